//! What a watcher and the owner of a branch say to each other; the same words in one process and between two.
//!
//! ```text
//!  watcher: Hello ─▶                      owner
//!                 ◀─ Subscribe                 (and again whenever the subscriptions change)
//!         Opening ─▶
//!                 ◀─ Begin | Continue | Stale
//!  Frame, Snapshot, Health, Expired ─▶
//!                 ◀─ Ack, Hold, Backfill
//! ```
//! Either end may close the link at any time; the watcher then connects again.

use std::collections::BTreeMap;

use tokio::sync::mpsc;
use upriver_engine::branch::{Snapshot, Start, Subscription, WatchFrame, WatchHealth};
use upriver_model::{BranchKey, ObjectKey, TargetScope, TargetUid, WatchKey};
use upriver_store::Opening;

/// Messages that wait in either direction: one frame is in flight at a time, the rest is rare.
pub(super) const WAITING: usize = 16;

/// Names of targets, for metrics.
pub(crate) type Names = BTreeMap<TargetUid, (String, String)>;

/// Who wants to speak about what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) branch: BranchKey,
    pub(crate) watch: WatchKey,
    /// Of the watch claim.
    pub(crate) epoch: u64,
}

/// What a branch wants of a watch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Subscribe {
    pub(crate) subscriptions: Vec<Subscription>,
    pub(crate) scope_hash: String,
    pub(crate) names: Names,
}

/// A Secret that was seen and left out, or that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeftOut {
    pub(crate) target: TargetUid,
    pub(crate) key: ObjectKey,
    pub(crate) gone: bool,
}

/// What a watcher says.
#[derive(Debug)]
pub(crate) enum FromWatch {
    Opening(Opening),
    Frame(WatchFrame),
    Snapshot(Box<Snapshot>),
    Expired { opening: Opening, rewound: bool },
    Health(WatchHealth),
    LeftOut(Vec<LeftOut>),
}

/// What an owner says.
#[derive(Debug)]
pub(crate) enum ToWatch {
    Subscribe(Subscribe),
    Begin(Opening, Start),
    Continue(Opening),
    Backfill(Opening, Vec<TargetScope>),
    /// Stream and sequence number of a frame that is durable.
    Ack(u64, u64),
    /// The journal is full: send that frame again later.
    Hold(u64, u64),
    /// A later watch epoch is known.
    Stale(u64),
}

/// The owner's end of a link.
pub(crate) struct OwnerEnd {
    pub(crate) hello: Hello,
    pub(crate) from: mpsc::Receiver<FromWatch>,
    pub(crate) to: mpsc::Sender<ToWatch>,
}

/// The watcher's end.
pub(crate) struct WatcherEnd {
    pub(crate) to: mpsc::Sender<FromWatch>,
    pub(crate) from: mpsc::Receiver<ToWatch>,
}

/// Both ends of a link inside of this process.
pub(crate) fn pair(hello: Hello) -> (WatcherEnd, OwnerEnd) {
    let (to_owner, from) = mpsc::channel(WAITING);
    let (to, from_owner) = mpsc::channel(WAITING);
    (WatcherEnd { to: to_owner, from: from_owner }, OwnerEnd { hello, from, to })
}
