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
use upriver_api::{ClusterProvider, ClusterWatchRule, CommitRequest, GitProvider, GitTarget, WatchRule};
use upriver_engine::Dice;
use upriver_engine::retry::{Retry, schedule};
use upriver_model::{BranchKey, FailureClass, ObjectKey};

use super::catalog::{self, Types};
use super::compile::{Compiled, compile, key_of};
use super::plan::Desired;
use super::rights::Rights;
use super::snapshot::{OwnedBranch, Probe, ProbeFailure, Snapshot};
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
    /// Longest Git operation.
    pub git_timeout: Duration,
    /// Views of owned branches, kept by their tasks.
    pub owned: Arc<Mutex<BTreeMap<BranchKey, OwnedBranch>>>,
    /// Rings when a view or the office changed.
    pub wake: Arc<Notify>,
    /// True while this replica is the housekeeper.
    pub housekeeper: watch::Receiver<bool>,
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
}

/// Follows one kind into a store; ends with the token.
fn follow<K>(client: &Client, wake: &Arc<Notify>, tracker: &TaskTracker, stop: &CancellationToken) -> Store<K>
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
                    Some(Ok(_)) => wake.notify_one(),
                    Some(Err(error)) => tracing::warn!(kind = %K::kind(&()), %error, "following a kind; trying again"),
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
}

struct Known {
    probe: Probe,
    failures: u32,
    again: Option<Instant>,
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
    let dice = Dice::new(rand::random());
    let mut runner = Runner { control, stores, types, memory: Memory::default(), dice };
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
    Stores {
        git_providers: follow(client, wake, tracker, stop),
        cluster_providers: follow(client, wake, tracker, stop),
        git_targets: follow(client, wake, tracker, stop),
        watch_rules: follow(client, wake, tracker, stop),
        cluster_watch_rules: follow(client, wake, tracker, stop),
        commit_requests: follow(client, wake, tracker, stop),
        namespaces: follow(client, wake, tracker, stop),
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
        stores.namespaces.wait_until_ready(),
    );
    waits.0.is_ok()
}

struct Runner {
    control: Control,
    stores: Stores,
    types: Types,
    memory: Memory,
    dice: Dice,
}

impl Runner {
    async fn pass(&mut self) {
        self.note_rules();
        let housekeeper = *self.control.housekeeper.borrow();
        self.probe_providers().await;
        let mut snapshot = self.snapshot();
        let mut compiled = compile(&snapshot);
        let owned = snapshot.owned.values();
        if self.memory.rights.learn(&self.control.client, &compiled, owned).await {
            snapshot = self.snapshot();
            compiled = compile(&snapshot);
        }
        // A plan without the types or rights that are still unread would stop what runs and forget what it has seen.
        if snapshot.types.is_some() && compiled.unknown_rights.is_empty() {
            self.publish(&compiled);
        }
        let snapshot = self.snapshot();
        status::write_all(&self.control.client, &snapshot, &compiled, housekeeper).await;
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

    fn snapshot(&self) -> Snapshot {
        let namespaces = self.stores.namespaces.state();
        let owned = self.control.owned.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Snapshot {
            git_providers: self.stores.git_providers.state(),
            cluster_providers: self.stores.cluster_providers.state(),
            git_targets: self.stores.git_targets.state(),
            watch_rules: self.stores.watch_rules.state(),
            cluster_watch_rules: self.stores.cluster_watch_rules.state(),
            commit_requests: self.stores.commit_requests.state(),
            namespaces: namespaces
                .iter()
                .map(|namespace| (namespace.name_any(), namespace.labels().clone()))
                .collect(),
            probes: self
                .memory
                .probes
                .iter()
                .map(|(key, known)| (key.clone(), known.probe.clone()))
                .collect(),
            types: self.types.latest(),
            cluster_wide: self.memory.rights.by_type(),
            owned,
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
        self.memory.probes.get(&key_of(provider)).is_none_or(|known| {
            known.probe.generation != provider.metadata.generation.unwrap_or(0)
                || known.again.is_some_and(|again| Instant::now() >= again)
        })
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
            Err(ProbeFailure::NotYetSupported(_)) => None,
            // A Secret is created or mended without an event for us: look again soon, then less often.
            Err(ProbeFailure::SecretNotFound(_) | ProbeFailure::SecretMalformed(_)) => {
                self.delay(FailureClass::Network, failures, None)
            }
            Err(ProbeFailure::Connection(failure)) => self.delay(failure.class, failures, failure.floor_s),
        };
        let again = again.map(|delay| Instant::now() + delay.min(PROBE_EVERY));
        self.memory.probes.insert(key, Known { probe: Probe { generation, result }, failures, again });
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
        let next = probes.map(|again| again.saturating_duration_since(now)).min().unwrap_or(PERIOD);
        next.clamp(Duration::from_millis(50), PERIOD)
    }
}
