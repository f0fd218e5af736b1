//! The holder of one watch claim: one API watch, and a conversation with the owner of every branch that wants it.
//!
//! ```text
//!   API server ──▶ hub ──▶ conversation (branch a) ──▶ link ──▶ owner of a, in this process
//!                    └───▶ conversation (branch b) ──▶ link ──▶ owner of b, in another replica
//! ```
//! Which branches want the watch comes from the plan, what they want of it from their owners: a plan that is late delays,
//! and does no harm.

mod conversation;
pub(crate) mod desk;
mod frames;
mod hub;
pub(crate) mod link;
pub(crate) mod remote;
mod routes;
mod snapshots;
mod source;
mod subscribed;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kube::Client;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use upriver_engine::Dice;
use upriver_kube_io::watch::WatchSpec;
use upriver_model::{BranchKey, Epoch, WatchKey};
use upriver_store::Opening;

use self::conversation::{Memory, Over};
use self::hub::HubHandle;
use self::link::Hello;
use self::routes::Routes;
use super::shared::Shared;
use crate::control::plan::Desired;

/// Asks the server to close a watch after so long, in seconds.
const SERVER_TIMEOUT: Duration = Duration::from_secs(290);
/// The claim loop ticks at least this often (F8).
const TICK: Duration = Duration::from_secs(1);
/// Pauses between two links to an owner, doubling; a new owner ends them.
const FIRST_PAUSE_MS: u64 = 20;
const LAST_PAUSE_MS: u64 = 2_000;

/// What a watcher gets from its claim.
pub(crate) struct ClaimedWatch {
    pub(crate) key: WatchKey,
    pub(crate) epoch: Epoch,
    /// Last time the loop went round, in milliseconds of the process' clock.
    pub(crate) ticked: Arc<AtomicU64>,
    /// The claim is lost: act no more.
    pub(crate) stop: CancellationToken,
    /// The process stops, or the watch is no longer wanted: finish.
    pub(crate) drain: CancellationToken,
}

/// How a watcher ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// An owner knows a later watch epoch.
    Fenced { stored: u64 },
    /// Asked to.
    Finished,
}

/// What all conversations of a watcher share.
struct Context {
    client: Client,
    idle_limit: Duration,
    key: WatchKey,
    epoch: u64,
    streams: AtomicU64,
    hub: HubHandle,
    routes: Routes,
}

impl Context {
    fn spec(&self, kind: &str) -> Arc<WatchSpec> {
        Arc::new(spec(&self.key, kind, self.idle_limit))
    }

    /// A stream of its own numbering, never used before in this epoch (F2).
    fn open(&self, scope_hash: String) -> Opening {
        let stream = self.streams.fetch_add(1, Ordering::Relaxed) + 1;
        Opening { watch: self.key.clone(), watch_epoch: self.epoch, stream, scope_hash }
    }
}

fn spec(key: &WatchKey, kind: &str, idle_limit: Duration) -> WatchSpec {
    WatchSpec {
        gvr: key.gvr.clone(),
        kind: kind.to_owned(),
        scope: key.scope.clone(),
        idle_limit,
        server_timeout: SERVER_TIMEOUT,
    }
}

/// Runs until the claim ends.
pub(crate) async fn run(shared: Shared, claimed: ClaimedWatch) -> Ended {
    let (stop, tracker) = (CancellationToken::new(), TaskTracker::new());
    let stopped = stop.clone().drop_guard();
    let mut desired = shared.desired.clone();
    let kind = kind_of(&desired.borrow(), &claimed.key);
    let spec = Arc::new(spec(&claimed.key, &kind, shared.watch_idle_limit));
    let context = Arc::new(Context {
        client: shared.watch_client.clone(),
        idle_limit: shared.watch_idle_limit,
        key: claimed.key.clone(),
        epoch: claimed.epoch.as_key(),
        streams: AtomicU64::new(0),
        hub: hub::start(shared.watch_client.clone(), claimed.key.clone(), spec, &tracker, stop.clone()),
        routes: Routes::new(&shared),
    });
    let (stale, mut staled) = mpsc::channel(1);
    let mut feeds: BTreeMap<BranchKey, DropGuard> = BTreeMap::new();
    let ended = loop {
        claimed.ticked.store(shared.clock.now().0, Ordering::Release);
        let wanted = branches(&desired.borrow_and_update(), &claimed.key);
        feeds.retain(|branch, _| wanted.contains(branch));
        for branch in wanted {
            feeds.entry(branch.clone()).or_insert_with(|| {
                let stop = stop.child_token();
                tracker.spawn(feed(context.clone(), branch, stale.clone(), stop.clone()));
                stop.drop_guard()
            });
        }
        tokio::select! {
            () = claimed.stop.cancelled() => break Ended::Finished,
            () = claimed.drain.cancelled() => break Ended::Finished,
            Some(stored) = staled.recv() => break Ended::Fenced { stored },
            changed = desired.changed() => if changed.is_err() { break Ended::Finished },
            () = tokio::time::sleep(TICK) => {}
        }
    };
    drop((feeds, stopped));
    tracker.close();
    tracker.wait().await;
    ended
}

/// The branches that want something of this watch.
fn branches(desired: &Desired, key: &WatchKey) -> BTreeSet<BranchKey> {
    let wants = |branch: &&Arc<crate::control::plan::BranchSpec>| {
        let mut subscriptions = branch
            .targets
            .iter()
            .filter(|target| !target.plan.suspended)
            .flat_map(|target| &target.plan.subscriptions);
        subscriptions.any(|subscription| subscription.watch == *key)
    };
    desired.branches.values().filter(wants).map(|branch| branch.key.clone()).collect()
}

fn kind_of(desired: &Desired, key: &WatchKey) -> String {
    let targets = desired.branches.values().flat_map(|branch| &branch.targets);
    targets
        .flat_map(|target| &target.plan.subscriptions)
        .find(|subscription| subscription.watch == *key)
        .map(|subscription| subscription.kind.to_string())
        .unwrap_or_default()
}

/// Keeps up a conversation with the owner of one branch.
async fn feed(context: Arc<Context>, branch: BranchKey, stale: mpsc::Sender<u64>, stop: CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = converse(&context, branch, stale) => {}
    }
}

async fn converse(context: &Context, branch: BranchKey, stale: mpsc::Sender<u64>) {
    let hello = Hello { branch, watch: context.key.clone(), epoch: context.epoch };
    let mut memory = Memory::default();
    let mut dice = Dice::new(rand::random());
    let mut here = context.routes.desk.changes();
    let mut directory = context.routes.directory.clone();
    let mut pause = FIRST_PAUSE_MS;
    loop {
        here.mark_unchanged();
        let owner = directory.borrow_and_update().owner_of(&hello.branch);
        let over = match context.routes.connect(&hello).await {
            Some(end) => Some(conversation::run(context, &mut memory, &hello, end).await),
            None => None,
        };
        match over {
            Some((_, Over::Stale { epoch })) => {
                // Another conversation may have told it before.
                let _ = stale.try_send(epoch);
                return std::future::pending().await;
            }
            Some((true, Over::Closed)) => pause = FIRST_PAUSE_MS,
            Some((false, Over::Closed)) | None => {}
        }
        let wait = Duration::from_millis(dice.between(pause / 2, pause));
        tokio::select! {
            () = tokio::time::sleep(wait) => pause = (pause * 2).min(LAST_PAUSE_MS),
            changed = here.changed() => if changed.is_err() { return },
            changed = directory.wait_for(|now| now.owner_of(&hello.branch) != owner) => if changed.is_err() { return },
        }
    }
}

#[cfg(test)]
mod tests;
