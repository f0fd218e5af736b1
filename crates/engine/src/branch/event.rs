//! What can happen to a branch owner, and what it may ask of the world.

use std::collections::BTreeMap;
use std::sync::Arc;

use upriver_model::{
    Attempt, AttemptId, Author, CommitId, Failure, IdSet, Intend, JournalHeader, ObjectKey, Operation,
    ResourceVersion, Seen, TargetScope, TargetUid, WatchKey,
};
use upriver_store::{
    Adopted, AppendReply, Clear, ClearReply, Frame, Loaded, Note, OpenReply, Opening, Settle, StoreError,
};

use crate::window::{Change, WindowRule};

/// One GitTarget as its branch owner sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetPlan {
    /// Its uid.
    pub uid: TargetUid,
    /// When its windows close.
    pub window: WindowRule,
    /// `prune.mode: Never`: no document is ever removed.
    pub never_prune: bool,
    /// Paused by a person: nothing is watched, nothing is written, its scopes are dirty.
    pub suspended: bool,
    /// A person's request to list everything again; acted upon once per value.
    pub recheck: Option<Box<str>>,
    /// Whatever a person may have changed to mend a failure; a new value tries again at once.
    pub subject: Box<str>,
    /// What it wants.
    pub subscriptions: Vec<Subscription>,
}

/// How a rule came to select a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// It names it; then objects that another controller makes are wanted too.
    ByName,
    /// It says `*`.
    ByWildcard,
}

/// One GitTarget's interest in one watch key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// What it wants.
    pub scope: TargetScope,
    /// Kind of the type.
    pub kind: Box<str>,
    /// The watch that serves it.
    pub watch: WatchKey,
    /// Live operations that it wants; replays are not filtered.
    pub operations: Vec<Operation>,
    /// How its rule selects the type.
    pub chosen: Chosen,
    /// Hash of everything that decides what its files hold; a change makes it dirty.
    pub spec_hash: Box<str>,
}

/// One sanitised event, matched by the watcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedEvent {
    /// The subscriptions that want it.
    pub scopes: Vec<TargetScope>,
    /// The object.
    pub key: ObjectKey,
    /// Kind.
    pub kind: Box<str>,
    /// `metadata.uid`.
    pub uid: Box<str>,
    /// Its version.
    pub rv: ResourceVersion,
    /// What happened.
    pub operation: Operation,
    /// Sanitised JSON, `None` for a delete.
    pub payload: Option<Box<str>>,
    /// Who did it.
    pub author: Author,
    /// When it was seen, milliseconds since 1970.
    pub observed_at_ms: i64,
}

/// A frame as the watcher sends it; the owner gives its entries their ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchFrame {
    /// Its stream.
    pub opening: Opening,
    /// Exactly one more than the last.
    pub seq: u64,
    /// Where the watch would be resumed once this frame is durable.
    pub cursor: Option<ResourceVersion>,
    /// The events; none in a progress frame.
    pub events: Vec<WatchedEvent>,
}

/// One object of a complete list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The object.
    pub key: ObjectKey,
    /// Kind.
    pub kind: Box<str>,
    /// `metadata.uid`.
    pub uid: Box<str>,
    /// Its version.
    pub rv: ResourceVersion,
    /// Sanitised JSON; `None` protects the identity of an object that cannot be mirrored.
    pub payload: Option<Box<str>>,
}

/// A complete list. A partial one is never a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The stream it belongs to.
    pub opening: Opening,
    /// The scopes that asked for it; empty for a replay of the whole watch key.
    pub scopes: Vec<TargetScope>,
    /// Version of the list.
    pub list_rv: ResourceVersion,
    /// When it was complete, milliseconds since 1970.
    pub time_ms: i64,
    /// The objects.
    pub members: Vec<Member>,
}

/// How a watch is doing, as its watcher says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchHealth {
    /// The initial list is in flight.
    Replaying,
    /// Events flow.
    Live,
    /// It cannot run: reason word and message.
    Blocked {
        /// `WatchError` or `WatchNotPermitted`.
        reason: &'static str,
        /// What the API server said.
        message: String,
    },
}

/// Where new commits start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Base {
    /// The branch's tip.
    Branch(CommitId),
    /// The branch is missing: from the default branch's tip.
    New(CommitId),
    /// The repository is empty.
    Unborn,
}

impl Base {
    /// What a push has to expect the ref to be.
    #[must_use]
    pub fn expected_old(&self) -> Option<&CommitId> {
        match self {
            Self::Branch(tip) => Some(tip),
            Self::New(_) | Self::Unborn => None,
        }
    }
}

/// A fetched tip with the evidence that its history holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The tip.
    pub base: Base,
    /// First-parent history from the tip down to the last known tip, or as deep as was asked for.
    pub history: Vec<(CommitId, Option<JournalHeader>)>,
    /// True if that history leads down to the tip that was asked for; if not, nobody knows what lies between.
    pub joined: bool,
    /// Tree of each target's folder.
    pub subtrees: BTreeMap<TargetUid, Option<CommitId>>,
}

/// One commit to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The target.
    pub target: TargetUid,
    /// Who made the changes.
    pub author: Author,
    /// Window, replay or fence.
    pub kind: UnitKind,
    /// The changes.
    pub changes: Vec<Change>,
    /// The entries it stands for.
    pub entries: IdSet,
    /// Time of the commit, milliseconds since 1970.
    pub time_ms: i64,
}

/// Where a unit comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnitKind {
    /// A closed window.
    Window,
    /// A replay; what is settled once it is in the remote.
    Replay(Box<Replayed>),
    /// An empty commit that ends every push still in flight (F10).
    Fence,
}

/// A replay that waits for its push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// The scope.
    pub scope: TargetScope,
    /// Kind of its type.
    pub kind: Box<str>,
    /// Generation that it pays.
    pub generation: u64,
    /// What "settled" will mean.
    pub spec_hash: Box<str>,
    /// The stream of the list.
    pub opening: Opening,
    /// Version of the list.
    pub list_rv: ResourceVersion,
    /// What the list held.
    pub inventory: Vec<(ObjectKey, Seen)>,
    /// Files of this scope that the list lacks and that our own commits were the last to change go too: the inventory
    /// that would name them was lost, or a person brought them back (F27). The number is that of the loss: what the history
    /// says has to be asked once for each.
    pub reclaim: Option<u32>,
    /// Its scope was paused or deselected since, and may be back with obligations of its own: nothing is settled by it.
    pub void: bool,
}

/// What became of one unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitResult {
    /// Its commit; `None` if nothing differed.
    pub commit: Option<CommitId>,
    /// Paths that are not ours, with the reason; `None` clears an earlier refusal.
    pub refused: Vec<(String, Option<String>)>,
}

/// The commits of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Built {
    /// The new tip; `None` if no unit made a difference.
    pub new: Option<CommitId>,
    /// One per unit.
    pub results: Vec<UnitResult>,
    /// Tree of each target's folder at the new tip.
    pub subtrees: BTreeMap<TargetUid, Option<CommitId>>,
}

/// What can happen.
#[derive(Clone, Debug)]
pub enum Event {
    /// Time passed.
    Tick,
    /// The wanted set of targets changed, or something a person changed may have mended a failure.
    Configure(Vec<TargetPlan>),
    /// The process stops: take nothing more, bring what is open into the branch.
    Drain,
    /// A watcher ended without being asked to.
    WatchDied(WatchKey),
    /// A session renewal sent after [`Command::Prove`] succeeded.
    Proven,
    /// Answer to [`Command::Adopt`].
    Adopted(Adopted),
    /// Answer to [`Command::Load`].
    Loaded(Box<Loaded>),
    /// Any store command failed; those after it fail too and are ignored.
    StoreFailed(StoreError),
    /// A watcher is ready to match and asks to open its stream.
    Opening(Opening),
    /// Answer to [`Command::Open`].
    Opened(Opening, OpenReply),
    /// A watcher's frame.
    Frame(WatchFrame),
    /// Answer to [`Command::Append`].
    Appended(AppendReply),
    /// The cursor is of no use (410), or the source went back in time.
    Expired {
        /// The stream.
        opening: Opening,
        /// True if versions went back: guards of that source are void (F18).
        rewound: bool,
    },
    /// A complete list.
    Snapshot(Box<Snapshot>),
    /// How a watch is doing.
    Health(WatchKey, WatchHealth),
    /// Answer to [`Command::ReadInventory`].
    Inventory(TargetScope, BTreeMap<ObjectKey, Seen>),
    /// Answer to [`Command::Raise`].
    Raised(Vec<TargetScope>, Vec<u64>),
    /// Answer to [`Command::Clear`].
    Cleared(TargetScope, ClearReply),
    /// Answer to [`Command::Fetch`].
    Fetched(Result<Box<Fetched>, Failure>),
    /// Answer to [`Command::Reserve`].
    Reserved,
    /// Answer to [`Command::Build`].
    Built(Result<Box<Built>, Failure>),
    /// Answer to [`Command::Intend`]; false if the attempt was settled already.
    Intended(bool),
    /// Answer to [`Command::Push`].
    Pushed(Result<(), Failure>),
    /// Answer to [`Command::ReadRef`].
    RefRead(Result<Option<CommitId>, Failure>),
    /// Answer to [`Command::Settle`].
    Settled(AttemptId),
}

/// Where a watch begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// After this version, without a list.
    Resume(ResourceVersion),
    /// With a complete list.
    Replay,
}

/// All that a branch owner may ask of the world. Store commands are carried out in order, Git commands too.
#[derive(Clone, Debug)]
pub enum Command {
    /// Renew the session; answer only after a renewal sent from now on.
    Prove,
    /// Take the journal over, or return to it.
    Adopt,
    /// Read the journal.
    Load,
    /// A watcher is wanted, here or in another replica. It opens a stream of its own numbering first.
    StartWatch {
        /// What it shall watch.
        watch: WatchKey,
        /// What it matches.
        subscriptions: Vec<Subscription>,
        /// Hash of the subscriptions, for its opening.
        scope_hash: String,
    },
    /// Change what a running watcher matches; it opens a new stream between two frames.
    UpdateWatch {
        /// The watch.
        watch: WatchKey,
        /// What it matches from then on.
        subscriptions: Vec<Subscription>,
        /// Hash of the subscriptions, for its opening.
        scope_hash: String,
    },
    /// The watcher's epoch is behind the one that the store holds: it is not the present one, or its Lease was restored
    /// from a backup (F17).
    StaleWatch {
        /// The watch.
        watch: WatchKey,
        /// The stored epoch.
        epoch: u64,
    },
    /// The stream is open: begin.
    BeginWatch(Opening, Start),
    /// Go on after an [`Command::UpdateWatch`].
    ContinueWatch(Opening),
    /// A watcher is not listened to any more.
    StopWatch(WatchKey),
    /// List for some scopes beside the running stream.
    Backfill(Opening, Vec<TargetScope>),
    /// A frame is durable.
    Ack(Opening, u64),
    /// The journal is full: send the frame again later.
    Hold(Opening, u64),
    /// Store: open a stream.
    Open(Opening),
    /// Store: write a note for the next owner.
    Note(Note),
    /// Store: append.
    Append(Frame),
    /// Store: read an inventory.
    ReadInventory(TargetScope),
    /// Store: raise obligations.
    /// With `true` the old settled records go too, so that a successor knows of the loss.
    Raise(Vec<TargetScope>, bool),
    /// Store: a scope is settled.
    Clear(Box<Clear>),
    /// Store: drop a scope's records.
    Forget(TargetScope),
    /// Store: forget a cursor (`true`: the whole record).
    DropCursor(WatchKey, bool),
    /// Store: an attempt begins.
    Reserve(Attempt),
    /// Store: what the push is about to do.
    Intend(AttemptId, Intend),
    /// Store: an attempt ends.
    Settle(Box<Settle>),
    /// Git: fetch the branch, with history down to `until` or so many commits.
    Fetch {
        /// Last tip that we know of.
        until: Option<CommitId>,
    },
    /// Git: build the units on the base, one commit each at most.
    Build {
        /// Where they start.
        base: Base,
        /// The units with their headers.
        units: Arc<Vec<(Unit, JournalHeader)>>,
    },
    /// Git: push what was built last.
    Push,
    /// Git: read the branch's ref.
    ReadRef,
    /// The claim is lost or fenced: end this owner.
    End(Ending),
}

/// Why an owner ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The store holds a higher epoch. If the Lease still names us, it has to be rewritten above it (F17).
    Fenced {
        /// The store's epoch.
        stored: u64,
    },
}
