//! The types of the source cluster, kept current: scans on every trigger, and what triggers them.
//!
//! One task looks; beside it one task per watched kind (CustomResourceDefinition, APIService) rings its bell. All
//! triggers share one slot. What a scan means is decided in the engine's registry.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Client;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use upriver_engine::Tick;
use upriver_engine::registry::{
    Answer, Catalog, GroupVersion, Registry, Root, Scan, TypeFacts, TypeScope, Verdict,
};
use upriver_kube_io::discovery::{ApiScan, Discovery, ServedType};
use upriver_kube_io::watch::{Begin, Item, Watch, WatchError, WatchSpec, list_page};
use upriver_model::{Gvr, ResourceVersion, Scope};
use upriver_telemetry::metric;

/// How often discovery is read without a reason (W1.18).
const PERIOD: Duration = Duration::from_secs(30);
/// After a trigger discovery is read again at these distances: the API server publishes a type some time after the event
/// that announces it. An unchanged answer costs two empty responses.
const FOLLOW_UPS: [Duration; 4] =
    [Duration::from_millis(400), Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];
/// Triggers that come together are answered together, and no stream of them makes more scans than this allows.
const SPACING: Duration = Duration::from_millis(200);
/// First and longest pause of a bell's watch that cannot be opened.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// What the control part has of the catalog task.
pub(super) struct Types {
    catalog: watch::Receiver<Option<Arc<Catalog>>>,
    bell: Arc<Notify>,
}

impl Types {
    /// The latest catalog; `None` before the API has been read once.
    pub(super) fn latest(&self) -> Option<Arc<Catalog>> {
        self.catalog.borrow().clone()
    }

    /// Asks for a look soon.
    pub(super) fn look(&self) {
        self.bell.notify_one();
    }
}

/// Starts the task; it ends with `stop`. `wake` rings when the catalog changed.
pub(super) fn start(
    client: Client,
    idle_limit: Duration,
    wake: Arc<Notify>,
    tracker: &TaskTracker,
    stop: &CancellationToken,
) -> Types {
    let bell = Arc::new(Notify::new());
    let (sender, catalog) = watch::channel(None);
    let task = Task {
        discovery: Discovery::new(client.clone()),
        registry: Registry::new(upriver_content::policy::denied),
        started: Instant::now(),
        catalog: sender,
        wake,
        bells: Bells {
            client,
            idle_limit,
            bell: bell.clone(),
            armed: BTreeMap::new(),
            refused: BTreeSet::new(),
            tracker: tracker.clone(),
            stop: stop.clone(),
        },
        unread: BTreeMap::new(),
    };
    tracker.spawn(task.run(stop.clone()));
    Types { catalog, bell }
}

struct Task {
    discovery: Discovery,
    registry: Registry,
    started: Instant,
    catalog: watch::Sender<Option<Arc<Catalog>>>,
    wake: Arc<Notify>,
    bells: Bells,
    /// What was logged last as unreadable.
    unread: BTreeMap<Root, Box<str>>,
}

impl Task {
    async fn run(mut self, stop: CancellationToken) {
        let bell = self.bells.bell.clone();
        let mut follow_ups = VecDeque::new();
        let mut failures = 0;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                read = self.look() => failures = if read { 0 } else { failures + 1 },
            }
            self.bells.arm(self.registry.catalog()).await;
            // An API server that is away is asked again soon, then less often.
            let period =
                if failures == 0 { PERIOD } else { PERIOD.min(Duration::from_secs(1 << failures.min(5))) };
            let pause = follow_ups.pop_front().unwrap_or(period);
            tokio::select! {
                () = stop.cancelled() => return,
                () = bell.notified() => {
                    follow_ups = FOLLOW_UPS.into();
                    tokio::time::sleep(SPACING).await;
                }
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// One scan; false if a part of the API could not be read at all.
    async fn look(&mut self) -> bool {
        let scan = to_scan(self.discovery.scan().await);
        let unread = scan.unread.clone();
        let now = Tick(u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX));
        let changed = self.registry.observe(scan, now);
        let outcome = if !unread.is_empty() {
            "unread"
        } else if changed {
            "changed"
        } else {
            "same"
        };
        metrics::counter!(metric::DISCOVERY_SCANS, "outcome" => outcome).increment(1);
        if unread.keys().ne(self.unread.keys()) {
            for why in unread.values() {
                tracing::warn!(%why, "discovery failed; the known types stay");
            }
        }
        let read = unread.is_empty();
        self.unread = unread;
        if changed && self.registry.catalog().is_observed() {
            self.publish();
        }
        read
    }

    fn publish(&self) {
        let catalog = self.registry.catalog();
        let mut counts = BTreeMap::from([("followable", 0_u32), ("retained", 0), ("refused", 0)]);
        for known in catalog.types() {
            *counts.entry(verdict_label(known.verdict)).or_insert(0) += 1;
        }
        for (verdict, count) in &counts {
            metrics::gauge!(metric::CATALOG_TYPES, "verdict" => *verdict).set(f64::from(*count));
        }
        let failed: Vec<String> = catalog.failed().map(|(group, why)| format!("{group}: {why}")).collect();
        tracing::info!(revision = catalog.revision(), ?counts, ?failed, "the served types have changed");
        self.catalog.send_replace(Some(Arc::new(catalog.clone())));
        self.wake.notify_one();
    }
}

fn verdict_label(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Followable => "followable",
        Verdict::Retained(_) => "retained",
        Verdict::Refused(_) => "refused",
        Verdict::Unknown(_) => "unknown",
    }
}

fn to_scan(read: ApiScan) -> Scan {
    let mut scan = Scan::default();
    for answer in read.groups {
        let group = GroupVersion::new(&answer.group, &answer.version);
        let types = answer.types.into_iter().map(to_facts).collect();
        let answer = match answer.failure {
            Some(why) => Answer::Failed { why: why.into(), stale: types },
            None => Answer::Types(types),
        };
        scan.groups.insert(group, answer);
    }
    let failures = [(Root::Core, read.core_failure), (Root::Named, read.named_failure)];
    let unread = failures.into_iter().filter_map(|(root, why)| Some((root, why?.into())));
    scan.unread = unread.collect();
    scan
}

fn to_facts(served: ServedType) -> TypeFacts {
    let texts = |list: Vec<String>| list.into_iter().map(Box::from).collect();
    TypeFacts {
        gvr: served.gvr,
        kind: served.kind.into(),
        scope: served.namespaced.map(|own| if own { TypeScope::Namespaced } else { TypeScope::Cluster }),
        preferred: served.preferred,
        verbs: texts(served.verbs),
        subresources: texts(served.subresources),
    }
}

/// The kinds whose changes announce other types.
fn announcers() -> [Gvr; 2] {
    [
        Gvr::new("apiextensions.k8s.io", "v1", "customresourcedefinitions"),
        Gvr::new("apiregistration.k8s.io", "v1", "apiservices"),
    ]
}

struct Bells {
    client: Client,
    idle_limit: Duration,
    bell: Arc<Notify>,
    armed: BTreeMap<Gvr, JoinHandle<Option<Refused>>>,
    /// Kinds whose refusal was logged.
    refused: BTreeSet<Gvr>,
    tracker: TaskTracker,
    stop: CancellationToken,
}

/// We may not watch this kind; the words of the server.
struct Refused(String);

impl Bells {
    /// Starts what should run and does not: at first, and again after a refusal, since rights are granted without an
    /// event for us.
    async fn arm(&mut self, catalog: &Catalog) {
        for gvr in announcers() {
            if let Some(task) = self.armed.get(&gvr) {
                if !task.is_finished() {
                    continue;
                }
                self.ended(&gvr).await;
            }
            let Some(known) = catalog.get(&gvr).filter(|known| known.facts.watchable()) else { continue };
            let spec = WatchSpec {
                kind: known.facts.kind.to_string(),
                gvr: gvr.clone(),
                scope: Scope::Cluster,
                idle_limit: self.idle_limit,
                server_timeout: Duration::from_secs(290),
            };
            let (client, bell, stop) = (self.client.clone(), self.bell.clone(), self.stop.clone());
            let task = self.tracker.spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => None,
                    refused = ring(&client, &spec, &bell) => refused,
                }
            });
            self.armed.insert(gvr, task);
        }
    }

    async fn ended(&mut self, gvr: &Gvr) {
        let Some(task) = self.armed.remove(gvr) else { return };
        if let Ok(Some(Refused(message))) = task.await
            && self.refused.insert(gvr.clone())
        {
            let seconds = PERIOD.as_secs();
            tracing::warn!(%gvr, message, "not allowed to watch this kind; new types are noticed every {seconds} s only");
        }
    }
}

/// Rings for every change of a kind; ends when the kind may not be watched or is gone.
async fn ring(client: &Client, spec: &WatchSpec, bell: &Notify) -> Option<Refused> {
    let (mut cursor, mut pause) = (None, PAUSES.0);
    loop {
        let Err(error) = follow(client, spec, bell, &mut cursor, &mut pause).await;
        match error {
            WatchError::Forbidden { message } => return Some(Refused(message)),
            WatchError::NotServed { .. } => return None,
            WatchError::Expired { .. } => cursor = None,
            WatchError::Closed | WatchError::Silent { .. } => {}
            WatchError::NoStreamingList { .. } | WatchError::Failed { .. } => {
                tracing::debug!(gvr = %spec.gvr, %error, "a watch for new types ended; opening it again");
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

async fn follow(
    client: &Client,
    spec: &WatchSpec,
    bell: &Notify,
    cursor: &mut Option<ResourceVersion>,
    pause: &mut Duration,
) -> Result<std::convert::Infallible, WatchError> {
    let rv = match cursor {
        Some(rv) => rv.clone(),
        None => {
            let rv = list_page(client, spec, 1, None).await?.rv;
            // Whatever changed before this watch begins.
            bell.notify_one();
            cursor.insert(rv).clone()
        }
    };
    let mut watch = Watch::open(client, spec, &Begin::After(rv)).await?;
    *pause = PAUSES.0;
    loop {
        match watch.next().await? {
            // Only bookmarks move the cursor: an event that comes twice rings twice, and that is all.
            Item::Added(_) | Item::Modified(_) | Item::Deleted(_) => bell.notify_one(),
            Item::Bookmark { rv, .. } => *cursor = Some(rv),
        }
    }
}
