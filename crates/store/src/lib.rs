//! What a durable journal must do, as traits with two shipped implementations: Redis (`upriver-redis-io`) and an embedded
//! one for a single replica.
//!
//! In: fenced operations of the owner of one branch. Out: replies that name every refusal. The rules behind each
//! operation are F1–F12 of the protocol; `ha-design.md` spells them out. A [`Journal`] is one connection's view: after an
//! [`StoreError::Unavailable`] or [`StoreError::Lost`] it is dead, and only a new [`Store::adopt`] goes on (F5), so
//! "prove the session on every new connection" is not a rule to remember but the only way to get a handle.

#[cfg(feature = "conformance")]
pub mod conformance;
mod embedded;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;

use upriver_model::{
    Attempt, AttemptId, BranchKey, CommitId, EntryId, Epoch, Failure, IdSet, Incarnation, Intend, ObjectKey,
    Outcome, ReplicaId, ResourceVersion, Seen, Settled, StoredEntry, TargetScope, TargetUid, WatchKey,
};

pub use embedded::EmbeddedStore;
#[cfg(feature = "testing")]
pub use embedded::{HandleSnapshot, InspectedAttempt, Inspection, StoreSnapshot};

/// A boxed reply, so that the traits can be used as objects.
pub type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Why the store did not do it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// A newer owner exists.
    #[error("fenced: the journal belongs to epoch {stored}")]
    Fenced {
        /// The epoch that the store holds.
        stored: u64,
    },
    /// The store forgot something that this owner was told is durable.
    #[error("the store lost data: {what}")]
    Lost {
        /// What gave it away.
        what: String,
    },
    /// Not reachable, or answering with an error: nothing is known about the last call.
    #[error("the store is not available: {reason}")]
    Unavailable {
        /// The client's words.
        reason: String,
    },
    /// The store is set up in a way that would lose data.
    #[error("the store is not usable: {reason}")]
    Unusable {
        /// What to change.
        reason: String,
    },
}

/// Take-over of a branch's journal.
#[derive(Clone, Debug)]
pub struct Adopt {
    /// The branch.
    pub branch: BranchKey,
    /// Our epoch, from the claim Lease.
    pub epoch: Epoch,
    /// Who we are.
    pub holder: ReplicaId,
    /// Used if the journal does not exist: random, never used before.
    pub fresh: Incarnation,
}

/// What the journal's `meta` said at take-over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// True if there was no journal.
    pub created: bool,
    /// Its history.
    pub incarnation: Incarnation,
    /// Everything up to here is passed.
    pub floor: EntryId,
    /// Passed above the floor.
    pub done: IdSet,
    /// Tip that the last settled push left.
    pub tip: Option<CommitId>,
    /// Tree of each target's folder at that tip; `None` for a folder that did not exist.
    pub subtrees: BTreeMap<TargetUid, Option<CommitId>>,
}

/// All that a new owner reads before it acts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Unpassed entries, ascending.
    pub entries: Vec<StoredEntry>,
    /// Entries that this release cannot decode; their scopes must be replayed.
    pub undecodable: Vec<EntryId>,
    /// Cursor by watch key text; an empty one is left out.
    pub cursors: BTreeMap<String, ResourceVersion>,
    /// Settled records by scope key.
    pub settled: BTreeMap<String, Settled>,
    /// Generations by scope key.
    pub generations: BTreeMap<String, u64>,
    /// Open attempts.
    pub attempts: Vec<Attempt>,
    /// Files that we refused to touch, by path, with the reason.
    pub refused: BTreeMap<String, String>,
    /// The failure that the last owner was waiting out.
    pub deferred: Option<Deferred>,
    /// The last request for a recheck that was acted upon, by target.
    pub handled: BTreeMap<TargetUid, String>,
}

/// A failure whose next attempt is not due yet: a crash loop must not hammer the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deferred {
    /// What failed, as it is shown.
    pub failure: Failure,
    /// How often in a row.
    pub failures: u32,
    /// How long to wait from now on, milliseconds by the store's clock.
    pub delay_ms: u64,
}

/// Something that the next owner has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// Nothing is tried before the delay is over; the next settlement ends it.
    Deferred(Deferred),
    /// A request for a recheck was acted upon.
    Handled {
        /// The target.
        target: TargetUid,
        /// Value of the request; `None` for a target that is gone.
        value: Option<String>,
    },
}

/// A watcher's claim on the order of its frames (F2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The watch.
    pub watch: WatchKey,
    /// Epoch of the watcher.
    pub watch_epoch: u64,
    /// From the watcher's memory, never reused within its epoch.
    pub stream: u64,
    /// Hash of the subscriptions it matches.
    pub scope_hash: String,
}

/// Answer to [`Journal::open`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenReply {
    /// The stream is the current one; resume after this cursor, if there is one.
    Opened {
        /// Where to go on.
        cursor: Option<ResourceVersion>,
    },
    /// A newer stream is open, of this watch epoch.
    Stale {
        /// The stored one: a watcher whose Lease still names it goes above (F17).
        epoch: u64,
    },
}

/// One entry of a frame, with where the inventory keeps its object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameEntry {
    /// Id given by the owner.
    pub id: EntryId,
    /// Inventory it belongs to.
    pub scope: TargetScope,
    /// The record.
    pub entry: upriver_model::Entry,
}

/// Some events of one stream; empty ones are progress frames and carry a sequence number too (F24).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The stream it belongs to.
    pub opening: Opening,
    /// Exactly one more than the last.
    pub seq: u64,
    /// Version of the oldest event that is not in a frame yet, or of the last one; `None` leaves the cursor.
    pub cursor: Option<ResourceVersion>,
    /// The entries.
    pub entries: Vec<FrameEntry>,
}

/// Answer to [`Journal::append`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppendReply {
    /// Durable. `kept[i]` is false if the inventory had entry i's version already (F11).
    Appended {
        /// Store time, milliseconds since 1970.
        stamped_ms: i64,
        /// One flag per entry.
        kept: Vec<bool>,
    },
    /// This sequence number is in already.
    Duplicate,
    /// A frame is missing before this one: open again.
    Gap,
    /// A newer stream is open.
    Stale,
    /// The subscriptions changed: open again with the new hash.
    Rescope,
    /// The journal is at its limit: nothing was written.
    Full,
}

/// Ends an attempt and passes entries.
#[derive(Clone, Debug)]
pub struct Settle {
    /// The attempt.
    pub attempt: AttemptId,
    /// How it ended.
    pub outcome: Outcome,
    /// The new floor.
    pub floor: EntryId,
    /// Passed above it.
    pub done: IdSet,
    /// The tip that a push left.
    pub tip: Option<CommitId>,
    /// Tree of each target's folder at that tip; empty keeps what is stored.
    pub subtrees: BTreeMap<TargetUid, Option<CommitId>>,
    /// Bytes of the passed entries.
    pub freed_bytes: u64,
    /// Refused paths to remember, or to forget (`None`).
    pub refused: Vec<(String, Option<String>)>,
}

/// A replayed scope whose files are in the remote (F3, F4).
#[derive(Clone, Debug)]
pub struct Clear {
    /// The scope.
    pub scope: TargetScope,
    /// Generation read before the LIST was sent.
    pub generation: u64,
    /// What "settled" means now.
    pub spec_hash: String,
    /// The stream that the list belongs to, compared with the stored one.
    pub opening: Option<Opening>,
    /// Version of the list.
    pub list_rv: ResourceVersion,
    /// What the list held.
    pub inventory: Vec<(ObjectKey, Seen)>,
}

/// Answer to [`Journal::clear`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClearReply {
    /// Settled.
    Cleared,
    /// A newer obligation exists; its generation.
    Raised(u64),
    /// The stream of the list is not the current one.
    Stale,
}

/// Limits of one journal; beyond them appends answer [`AppendReply::Full`].
#[derive(Clone, Copy, Debug)]
pub struct JournalLimits {
    /// Number of entries.
    pub entries: u64,
    /// Bytes of records.
    pub bytes: u64,
}

impl Default for JournalLimits {
    fn default() -> Self {
        Self { entries: 50_000, bytes: 256 << 20 }
    }
}

/// Where journals live.
pub trait Store: Send + Sync {
    /// Fails with [`StoreError::Unusable`] if the store's settings would lose data.
    fn check(&self) -> Reply<'_, ()>;

    /// Highest owner epoch that the store knows for a branch, 0 if none (F17).
    fn stored_epoch<'a>(&'a self, branch: &'a BranchKey) -> Reply<'a, u64>;

    /// Takes over, or returns after a loss. The caller has proven its session after its last connection broke.
    fn adopt(&self, adopt: Adopt) -> Reply<'_, (Box<dyn Journal>, Adopted)>;
}

/// The owner's handle on one branch's journal. Every call carries incarnation, epoch and operation counter.
pub trait Journal: Send + Sync {
    /// Reads everything a new owner needs.
    fn load(&self) -> Reply<'_, Loaded>;
    /// Opens a stream (F2).
    fn open(&self, opening: Opening) -> Reply<'_, OpenReply>;
    /// Appends a frame and moves the cursor, or does nothing.
    fn append(&self, frame: Frame, limits: JournalLimits) -> Reply<'_, AppendReply>;
    /// Makes an attempt durable before any side effect.
    fn reserve(&self, attempt: Attempt) -> Reply<'_, ()>;
    /// Names what the push is about to do; false if the attempt is settled already.
    fn intend(&self, attempt: AttemptId, intend: Intend) -> Reply<'_, bool>;
    /// Ends an attempt, raises the floor, trims.
    fn settle(&self, settle: Settle) -> Reply<'_, ()>;
    /// Raises obligations; answers the new generations in order. `anew` forgets the settled records too: the next owner takes
    /// the scopes for ones that were never listed.
    fn raise(&self, scopes: Vec<TargetScope>, anew: bool) -> Reply<'_, Vec<u64>>;
    /// Records a finished replay.
    fn clear(&self, clear: Clear) -> Reply<'_, ClearReply>;
    /// What was seen live in a scope.
    fn inventory<'a>(&'a self, scope: &'a TargetScope) -> Reply<'a, BTreeMap<ObjectKey, Seen>>;
    /// Drops the records of a scope that left the selection.
    fn forget(&self, scope: TargetScope) -> Reply<'_, ()>;
    /// Writes a note.
    fn note(&self, note: Note) -> Reply<'_, ()>;
    /// Forgets a cursor: `remove` for a watch that is no longer wanted, else only its version.
    fn drop_cursor(&self, watch: WatchKey, remove: bool) -> Reply<'_, ()>;
}
