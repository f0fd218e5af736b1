//! The loop: wake on any change, compile, publish, write statuses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ObjectMeta;
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use upriver_api::condition::{find, types::READY};
use upriver_api::{
    ClusterProvider, ClusterWatchRule, CommitRequest, ConditionStatus, GitProvider, GitTarget, WatchRule,
};
use upriver_engine::Dice;
use upriver_engine::lease::Directory;
use upriver_engine::retry::{Retry, schedule};
use upriver_kube_io::events::Events;
use upriver_kube_io::kubeconfig::Permits;
use upriver_model::{BranchKey, FailureClass, ObjectKey};

use super::catalog::{self, Types};
use super::compile::{Compiled, compile, key_of};
use super::facts::Facts;
use super::plan::Desired;
use super::rights::Rights;
use super::snapshot::{NamespacesRead, OwnedBranch, Probe, ProbeFailure, Snapshot};
use super::{probe, status};

/// Changes that come together are compiled together.
const DEBOUNCE: Duration = Duration::from_millis(30);
/// A pass without a change: heals whatever a lost wake-up left.
const PERIOD: Duration = Duration::from_secs(10);
/// How often a working provider is probed again.
const PROBE_EVERY: Duration = Duration::from_secs(300);

/// What the rest of the process shares with the control part.
pub struct Control {
    /// Client of the control cluster.
    pub client: Client,
    /// Client for discovery and watches, which repeats nothing by itself.
    pub watch_client: Client,
    /// Ends a watch that says nothing at all for so long.
    pub watch_idle_limit: Duration,
    /// Namespace of the operator: kubeconfigs of other clusters are read there.
    pub namespace: String,
    /// Our pod, for Events; empty outside of one.
    pub pod_name: String,
    /// What a kubeconfig may do.
    pub permits: Permits,
    /// Longest Git operation.
    pub git_timeout: Duration,
    /// Views of owned branches, kept by their tasks.
    pub owned: Arc<Mutex<BTreeMap<BranchKey, OwnedBranch>>>,
    /// Rings when a view or the office changed.
    pub wake: Arc<Notify>,
    /// True while this replica is the housekeeper.
    pub housekeeper: watch::Receiver<bool>,
    /// Who holds what, as of the last look at the Leases.
    pub directory: watch::Receiver<Arc<Directory>>,
    /// Where the plan goes.
    pub desired: watch::Sender<Arc<Desired>>,
    /// Set once every kind was listed and a plan was made.
    pub ready: watch::Sender<bool>,
}

struct Stores {
    git_providers: Store<GitProvider>,
    cluster_providers: Store<ClusterProvider>,
    git_targets: Store<GitTarget>,
    watch_rules: Store<WatchRule>,
    cluster_watch_rules: Store<ClusterWatchRule>,
    commit_requests: Store<CommitRequest>,
    namespaces: Store<Namespace>,
    namespaces_read: watch::Receiver<NamespacesRead>,
}

/// Follows one kind into a store; ends with the token.
fn follow<K>(client: &Client, wake: &Arc<Notify>, tracker: &TaskTracker, stop: &CancellationToken) -> Store<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static,
{
    follow_and_note(client, wake, tracker, stop, |_| {})
}

/// As [`follow`]; `note` is told of each event that leaves the store complete, and of each error.
fn follow_and_note<K>(
    client: &Client,
    wake: &Arc<Notify>,
    tracker: &TaskTracker,
    stop: &CancellationToken,
    note: impl Fn(Result<(), &watcher::Error>) + Send + 'static,
) -> Store<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static,
{
    let (store, writer) = reflector::store();
    let events = watcher(Api::<K>::all(client.clone()), watcher::Config::default()).default_backoff();
    let (wake, stop) = (wake.clone(), stop.clone());
    tracker.spawn(async move {
        let mut events = std::pin::pin!(events.reflect(writer));
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                event = events.next() => match event {
                    Some(Ok(event)) => {
                        // The first two come before anything is known, also when the list is refused afterwards.
                        match event {
                            watcher::Event::Init | watcher::Event::InitApply(_) => {}
                            watcher::Event::InitDone | watcher::Event::Apply(_) | watcher::Event::Delete(_) => {
                                note(Ok(()));
                            }
                        }
                        wake.notify_one();
                    }
                    Some(Err(error)) => {
                        tracing::warn!(kind = %K::kind(&()), %error, "following a kind; trying again");
                        note(Err(&error));
                        wake.notify_one();
                    }
                    None => return,
                },
            }
        }
    });
    store
}

#[derive(Default)]
struct Memory {
    probes: BTreeMap<ObjectKey, Known>,
    rights: Rights,
    /// Uid and generation of every rule when the last pass began.
    rules: BTreeSet<(String, i64)>,
    facts: Facts,
}

struct Known {
    probe: Probe,
    /// Whether the stored status said Ready when it was probed.
    stored_ready: Option<bool>,
    failures: u32,
    again: Option<Instant>,
}

impl Known {
    fn is_due(&self, generation: i64, stored_ready: Option<bool>, now: Instant) -> bool {
        // Another replica has found out something since: dependants must not wait for our own turn.
        let news = stored_ready != self.stored_ready && stored_ready == Some(self.probe.result.is_err());
        news || self.probe.generation != generation || self.again.is_some_and(|again| now >= again)
    }
}

/// Runs until `stop`.
pub async fn run(control: Control, stop: CancellationToken) {
    let tracker = TaskTracker::new();
    let stores = stores(&control, &tracker, &stop);
    let (watch_client, wake) = (control.watch_client.clone(), control.wake.clone());
    let types = catalog::start(watch_client, control.watch_idle_limit, wake, &tracker, &stop);
    let waited = tokio::select! {
        () = stop.cancelled() => false,
        done = wait_for_all(&stores) => done,
    };
    let pod = Some(control.pod_name.clone()).filter(|name| !name.is_empty());
    let (events, writing) = Events::new(control.client.clone(), "upriver", pod, stop.clone());
    tracker.spawn(writing);
    let dice = Dice::new(rand::random());
    let mut runner = Runner { control, stores, types, events, memory: Memory::default(), dice };
    let mut housekeeper = runner.control.housekeeper.clone();
    while waited && !stop.is_cancelled() {
        runner.pass().await;
        let wake = runner.control.wake.clone();
        tokio::select! {
            () = stop.cancelled() => break,
            () = wake.notified() => {}
            _ = housekeeper.changed() => {}
            () = tokio::time::sleep(runner.until_next()) => {}
        }
        tokio::time::sleep(DEBOUNCE).await;
    }
    tracker.close();
    tracker.wait().await;
}

fn stores(control: &Control, tracker: &TaskTracker, stop: &CancellationToken) -> Stores {
    let (client, wake) = (&control.client, &control.wake);
    let read = watch::Sender::new(NamespacesRead::NotYet);
    let namespaces_read = read.subscribe();
    let note = move |seen: Result<(), &watcher::Error>| match seen.map_err(forbidden) {
        Ok(()) => {
            read.send_if_modified(|now| std::mem::replace(now, NamespacesRead::Yes) != NamespacesRead::Yes);
        }
        Err(Some(why)) => {
            read.send_replace(NamespacesRead::Forbidden(why));
        }
        // Anything else passes by itself; what was read stays.
        Err(None) => {}
    };
    Stores {
        namespaces_read,
        git_providers: follow(client, wake, tracker, stop),
        cluster_providers: follow(client, wake, tracker, stop),
        git_targets: follow(client, wake, tracker, stop),
        watch_rules: follow(client, wake, tracker, stop),
        cluster_watch_rules: follow(client, wake, tracker, stop),
        commit_requests: follow(client, wake, tracker, stop),
        namespaces: follow_and_note(client, wake, tracker, stop, note),
    }
}

/// The API server's words, if it refuses for good.
fn forbidden(error: &watcher::Error) -> Option<String> {
    let refused = |status: &kube::core::Status| (status.code == 403).then(|| status.message.clone());
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status)) => refused(status),
        watcher::Error::WatchError(status) => refused(status),
        watcher::Error::InitialListFailed(_)
        | watcher::Error::WatchStartFailed(_)
        | watcher::Error::WatchFailed(_)
        | watcher::Error::NoResourceVersion => None,
    }
}

/// A plan made from half of the objects would stop targets: wait for every kind's first list (W1.16).
async fn wait_for_all(stores: &Stores) -> bool {
    let waits = futures::join!(
        stores.git_providers.wait_until_ready(),
        stores.cluster_providers.wait_until_ready(),
        stores.git_targets.wait_until_ready(),
        stores.watch_rules.wait_until_ready(),
        stores.cluster_watch_rules.wait_until_ready(),
        stores.commit_requests.wait_until_ready(),
        namespaces_known(stores),
    );
    waits.0.is_ok()
}

/// Waits until the labels of namespaces are known, or known to be forbidden: then rules that need none still run.
async fn namespaces_known(stores: &Stores) {
    let mut read = stores.namespaces_read.clone();
    // Not on the store itself: it is complete a moment before this says so, and a plan of that moment would lack scopes.
    if read.wait_for(|read| *read != NamespacesRead::NotYet).await.is_err() {
        tracing::debug!("following namespaces has ended");
    }
}

struct Runner {
    control: Control,
    stores: Stores,
    types: Types,
    events: Events,
    memory: Memory,
    dice: Dice,
}

impl Runner {
    async fn pass(&mut self) {
        self.note_rules();
        let housekeeper = *self.control.housekeeper.borrow();
        self.probe_providers().await;
        self.read_secrets(housekeeper).await;
        let mut snapshot = self.snapshot();
        let mut compiled = compile(&snapshot);
        let owned = snapshot.owned.values();
        if self.memory.rights.learn(&self.control.client, &compiled, owned).await {
            snapshot = self.snapshot();
            compiled = compile(&snapshot);
        }
        self.memory.facts.grants = compiled.grants.clone();
        // A plan without the types or rights that are still unread would stop what runs and forget what it has seen.
        if snapshot.types.is_some() && compiled.unknown_rights.is_empty() {
            self.publish(&compiled);
        }
        let snapshot = self.snapshot();
        let pass = status::Pass {
            client: &self.control.client,
            events: &self.events,
            snapshot: &snapshot,
            compiled: &compiled,
            housekeeper,
        };
        pass.write().await;
    }

    fn publish(&self, compiled: &Compiled) {
        let desired = Arc::new(compiled.desired.clone());
        self.control.desired.send_if_modified(|current| {
            let changed = *current != desired;
            if changed {
                *current = desired;
            }
            changed
        });
        self.control.ready.send_replace(true);
    }

    async fn read_secrets(&mut self, housekeeper: bool) {
        let (client, facts) = (&self.control.client, &mut self.memory.facts);
        facts.read_age_keys(client, &self.stores.git_targets.state()).await;
        // Only the housekeeper says what a kubeconfig is worth.
        if housekeeper {
            let providers = self.stores.cluster_providers.state();
            let Control { namespace, permits, .. } = &self.control;
            facts.read_kube_configs(client, namespace, *permits, &providers).await;
        }
    }

    fn snapshot(&mut self) -> Snapshot {
        let namespaces = self.stores.namespaces.state();
        let labels = |namespace: &Arc<Namespace>| (namespace.name_any(), namespace.labels().clone());
        let namespaces = self.memory.facts.namespaces(namespaces.iter().map(labels).collect());
        let (commit_requests, git_targets) =
            (self.stores.commit_requests.state(), self.stores.git_targets.state());
        let overdue_requests = self.memory.facts.overdue(&commit_requests, &git_targets);
        let owned = self.control.owned.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Snapshot {
            git_providers: self.stores.git_providers.state(),
            cluster_providers: self.stores.cluster_providers.state(),
            git_targets,
            watch_rules: self.stores.watch_rules.state(),
            cluster_watch_rules: self.stores.cluster_watch_rules.state(),
            commit_requests,
            namespaces,
            namespaces_read: self.stores.namespaces_read.borrow().clone(),
            grants: self.memory.facts.grants.clone(),
            age_keys: self.memory.facts.age_keys(),
            kube_configs: self.memory.facts.kube_configs(),
            overdue_requests,
            probes: self
                .memory
                .probes
                .iter()
                .map(|(key, known)| (key.clone(), known.probe.clone()))
                .collect(),
            types: self.types.latest(),
            cluster_wide: self.memory.rights.by_type(),
            owned,
            directory: self.control.directory.borrow().clone(),
        }
    }

    /// A new or changed rule may name types that were installed with it.
    fn note_rules(&mut self) {
        let uid =
            |object: &ObjectMeta| (object.uid.clone().unwrap_or_default(), object.generation.unwrap_or(0));
        let mut rules: BTreeSet<_> =
            self.stores.watch_rules.state().iter().map(|rule| uid(&rule.metadata)).collect();
        rules.extend(self.stores.cluster_watch_rules.state().iter().map(|rule| uid(&rule.metadata)));
        if rules != self.memory.rules {
            self.memory.rules = rules;
            self.types.look();
        }
    }

    async fn probe_providers(&mut self) {
        let providers = self.stores.git_providers.state();
        self.memory.probes.retain(|key, _| providers.iter().any(|provider| key_of(&**provider) == *key));
        let due: Vec<Arc<GitProvider>> =
            providers.into_iter().filter(|provider| self.is_due(provider)).collect();
        let (client, timeout) = (&self.control.client, self.control.git_timeout);
        let results =
            futures::future::join_all(due.iter().map(|provider| probe::probe(client, provider, timeout)))
                .await;
        for (provider, result) in due.iter().zip(results) {
            self.remember(provider, result);
        }
    }

    fn is_due(&self, provider: &GitProvider) -> bool {
        let generation = provider.metadata.generation.unwrap_or(0);
        let known = self.memory.probes.get(&key_of(provider));
        known.is_none_or(|known| known.is_due(generation, stored_ready(provider), Instant::now()))
    }

    fn remember(&mut self, provider: &GitProvider, result: Result<(), ProbeFailure>) {
        let key = key_of(provider);
        let generation = provider.metadata.generation.unwrap_or(0);
        let failures = match self.memory.probes.get(&key) {
            Some(known) if known.probe.generation == generation && result.is_err() => known.failures + 1,
            Some(_) | None => u32::from(result.is_err()),
        };
        let again = match &result {
            Ok(()) => Some(PROBE_EVERY),
            Err(ProbeFailure::CommitConfigInvalid(_) | ProbeFailure::NotYetSupported(_)) => None,
            // A Secret is created or mended without an event for us: look again soon, then less often.
            Err(ProbeFailure::SecretNotFound(_) | ProbeFailure::SecretMalformed(_)) => {
                self.delay(FailureClass::Network, failures, None)
            }
            Err(ProbeFailure::Connection(failure)) => self.delay(failure.class, failures, failure.floor_s),
        };
        let again = again.map(|delay| Instant::now() + delay.min(PROBE_EVERY));
        let stored_ready = stored_ready(provider);
        let probe = Probe { generation, result };
        self.memory.probes.insert(key, Known { probe, stored_ready, failures, again });
    }

    fn delay(&mut self, class: FailureClass, failures: u32, floor_s: Option<u64>) -> Option<Duration> {
        match schedule(class, failures, floor_s, &mut self.dice) {
            Retry::After(delay) => Some(Duration::from_millis(delay)),
            Retry::OnChange | Retry::Never => None,
        }
    }

    fn until_next(&self) -> Duration {
        let now = Instant::now();
        let probes = self.memory.probes.values().filter_map(|known| known.again);
        let next = probes
            .chain(self.memory.facts.next_due())
            .map(|again| again.saturating_duration_since(now))
            .min()
            .unwrap_or(PERIOD);
        next.clamp(Duration::from_millis(50), PERIOD)
    }
}

/// What the stored status says of the present generation.
fn stored_ready(provider: &GitProvider) -> Option<bool> {
    let ready = find(&provider.status.as_ref()?.conditions, READY)?;
    let current = ready.observed_generation == provider.metadata.generation;
    current.then_some(ready.status == ConditionStatus::True)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_is_probed_again_when_another_replica_says_otherwise() {
        let now = Instant::now();
        let known = |result: Result<(), ProbeFailure>, stored_ready| Known {
            probe: Probe { generation: 1, result },
            stored_ready,
            failures: 0,
            again: Some(now + PROBE_EVERY),
        };
        let failed = || Err(ProbeFailure::SecretNotFound("create it".to_owned()));
        let good = known(Ok(()), Some(true));
        assert!(!good.is_due(1, Some(true), now), "nothing new");
        assert!(good.is_due(1, Some(false), now), "it broke elsewhere");
        assert!(good.is_due(2, Some(true), now) && good.is_due(1, Some(true), now + PROBE_EVERY));
        let bad = known(failed(), Some(false));
        assert!(bad.is_due(1, Some(true), now), "it was mended elsewhere");
        assert!(!bad.is_due(1, Some(false), now) && !bad.is_due(1, None, now));
        // Asked once already, and still of another opinion: the usual turn is soon enough.
        assert!(!known(failed(), Some(true)).is_due(1, Some(true), now));
    }
}
