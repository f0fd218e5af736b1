//! The store of a single replica: journals in memory, no Redis needed to start.
//!
//! In: the operations of [`Store`] and [`Journal`]. Out: the same replies as the Redis scripts give, refusals included:
//! every call compares incarnation, epoch and operation counter (F5), frames are compared as (epoch, stream, seq) (F2),
//! versions with the inventory (F11), an attempt is settled once (INV-7). One mutex per branch, never held over an await.
//!
//! What does not outlive the process: all of it. After a restart the journal is made anew, with another incarnation, so
//! every scope is dirty and is replayed, and the first tip found is watched for late pushes (F10). Lost with the memory
//! are the changes that were accepted and not pushed yet (the replay brings their last state, without their authors and
//! without the states between), and the inventory: an object that is deleted while no replica runs keeps its file.
//! Epochs do not fall, because the claim's Lease keeps them.

mod state;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use upriver_model::{
    Attempt, AttemptId, BranchKey, Epoch, Incarnation, Intend, ObjectKey, Seen, TargetScope, WatchKey,
};

use crate::{
    Adopt, Adopted, AppendReply, Clear, ClearReply, Frame, Journal, JournalLimits, Loaded, Note, OpenReply,
    Opening, Reply, Settle, Store, StoreError,
};
use state::{Caller, State};
#[cfg(feature = "testing")]
pub use state::{InspectedAttempt, Inspection};

type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;
type Shared = Arc<Mutex<State>>;

/// See the module.
pub struct EmbeddedStore {
    branches: Mutex<BTreeMap<BranchKey, Shared>>,
    clock: Clock,
}

impl Default for EmbeddedStore {
    fn default() -> Self {
        Self::new()
    }
}

/// A panic while a lock was held leaves plain maps behind, never half an operation that the next one could misread.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl EmbeddedStore {
    /// An empty store that stamps entries with the system's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
        })
    }

    /// An empty store with a clock of its own: milliseconds since 1970.
    #[must_use]
    pub fn with_clock(clock: impl Fn() -> i64 + Send + Sync + 'static) -> Self {
        Self { branches: Mutex::default(), clock: Arc::new(clock) }
    }

    fn branch(&self, key: &BranchKey) -> Shared {
        lock(&self.branches).entry(key.clone()).or_default().clone()
    }
}

/// A moment of the whole store, to go back to.
#[cfg(feature = "testing")]
#[derive(Clone, Debug)]
pub struct StoreSnapshot(BTreeMap<BranchKey, State>);

/// An owner's handle at one moment, apart from the store it talks to: a search has many of both.
#[cfg(feature = "testing")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandleSnapshot {
    /// The history that the owner adopted.
    pub incarnation: Incarnation,
    /// The owner's epoch.
    pub epoch: Epoch,
    /// Highest operation counter that was acknowledged.
    pub op: u64,
}

#[cfg(feature = "testing")]
impl StoreSnapshot {
    /// What is stored of a branch; `None` if it has no journal.
    #[must_use]
    pub fn inspect(&self, branch: &BranchKey) -> Option<Inspection> {
        self.0.get(branch)?.inspect(0)
    }

    /// What a script of a branch compares: incarnation, epoch and operation counter; `None` without a journal.
    #[must_use]
    pub fn guard(&self, branch: &BranchKey) -> Option<(&Incarnation, u64, u64)> {
        self.0.get(branch)?.guarded_by()
    }

    /// Epoch, stream, sequence number and version of a watch's cursor.
    #[must_use]
    pub fn cursor(&self, branch: &BranchKey, watch: &WatchKey) -> Option<(u64, u64, u64, Option<String>)> {
        self.0.get(branch)?.cursor(watch)
    }
}

/// Losses, as a store with a memory of its own never has them: for tests of those who use a store.
#[cfg(feature = "testing")]
impl EmbeddedStore {
    /// Remembers this moment.
    #[must_use]
    pub fn snapshot(&self) -> StoreSnapshot {
        let branches = lock(&self.branches);
        StoreSnapshot(branches.iter().map(|(key, state)| (key.clone(), lock(state).clone())).collect())
    }

    /// Forgets all that came after a moment, as a failover to a lagging copy does. Handles stay: their next call is
    /// compared with what the store knows now.
    pub fn restore(&self, snapshot: &StoreSnapshot) {
        for (key, state) in &*lock(&self.branches) {
            *lock(state) = snapshot.0.get(key).cloned().unwrap_or_default();
        }
    }

    /// A handle as it was at some moment, on what is stored now.
    #[must_use]
    pub fn handle(&self, branch: &BranchKey, at: &HandleSnapshot) -> Box<dyn Journal> {
        Box::new(EmbeddedJournal {
            state: self.branch(branch),
            clock: self.clock.clone(),
            incarnation: at.incarnation.clone(),
            epoch: at.epoch,
            op: AtomicU64::new(at.op),
            dead: AtomicBool::new(false),
        })
    }

    /// Forgets everything.
    pub fn wipe(&self) {
        self.restore(&StoreSnapshot(BTreeMap::new()));
    }

    /// What is stored of a branch; `None` if it has no journal.
    #[must_use]
    pub fn inspect(&self, branch: &BranchKey) -> Option<Inspection> {
        lock(&self.branch(branch)).inspect((self.clock)())
    }
}

impl Store for EmbeddedStore {
    fn check(&self) -> Reply<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn stored_epoch<'a>(&'a self, branch: &'a BranchKey) -> Reply<'a, u64> {
        Box::pin(async move { Ok(lock(&self.branch(branch)).epoch()) })
    }

    fn adopt(&self, adopt: Adopt) -> Reply<'_, (Box<dyn Journal>, Adopted)> {
        Box::pin(async move {
            let state = self.branch(&adopt.branch);
            let (adopted, op) = lock(&state).adopt(&adopt)?;
            let journal = EmbeddedJournal {
                state,
                clock: self.clock.clone(),
                incarnation: adopted.incarnation.clone(),
                epoch: adopt.epoch,
                op: AtomicU64::new(op),
                dead: AtomicBool::new(false),
            };
            Ok((Box::new(journal) as Box<dyn Journal>, adopted))
        })
    }
}

/// One owner's handle.
struct EmbeddedJournal {
    state: Shared,
    clock: Clock,
    incarnation: Incarnation,
    epoch: Epoch,
    /// Highest operation counter that was acknowledged.
    op: AtomicU64,
    /// Set by the first failure: the owner has to adopt again.
    dead: AtomicBool,
}

impl EmbeddedJournal {
    /// A guarded operation, as every script but `adopt` is one.
    fn guarded<'a, T: Send + 'a>(
        &'a self,
        work: impl FnOnce(&mut State, i64) -> Result<T, StoreError> + Send + 'a,
    ) -> Reply<'a, T> {
        Box::pin(async move {
            self.alive()?;
            let caller = Caller {
                incarnation: &self.incarnation,
                epoch: self.epoch.as_key(),
                op: self.op.load(Ordering::Acquire),
            };
            let mut state = lock(&self.state);
            let done = state.guard(&caller).and_then(|op| {
                self.op.fetch_max(op, Ordering::AcqRel);
                work(&mut state, (self.clock)())
            });
            if done.is_err() {
                self.dead.store(true, Ordering::Release);
            }
            done
        })
    }

    /// A plain read: it carries no guard, whoever holds a handle may look.
    fn plain<'a, T: Send + 'a>(&'a self, work: impl FnOnce(&State) -> T + Send + 'a) -> Reply<'a, T> {
        Box::pin(async move {
            self.alive()?;
            Ok(work(&lock(&self.state)))
        })
    }

    fn alive(&self) -> Result<(), StoreError> {
        if self.dead.load(Ordering::Acquire) {
            let reason = "this handle failed before; adopt again".to_owned();
            return Err(StoreError::Unavailable { reason });
        }
        Ok(())
    }
}

impl Journal for EmbeddedJournal {
    fn load(&self) -> Reply<'_, Loaded> {
        let now_ms = (self.clock)();
        self.plain(move |state| state.load(now_ms))
    }

    fn open(&self, opening: Opening) -> Reply<'_, OpenReply> {
        self.guarded(move |state, _| Ok(state.open(&opening)))
    }

    fn append(&self, frame: Frame, limits: JournalLimits) -> Reply<'_, AppendReply> {
        self.guarded(move |state, now_ms| state.append(frame, limits, now_ms))
    }

    fn reserve(&self, attempt: Attempt) -> Reply<'_, ()> {
        self.guarded(move |state, _| {
            state.reserve(attempt);
            Ok(())
        })
    }

    fn intend(&self, attempt: AttemptId, intend: Intend) -> Reply<'_, bool> {
        self.guarded(move |state, _| state.intend(attempt, intend))
    }

    fn settle(&self, settle: Settle) -> Reply<'_, ()> {
        self.guarded(move |state, now_ms| state.settle(settle, now_ms))
    }

    fn raise(&self, scopes: Vec<TargetScope>, anew: bool) -> Reply<'_, Vec<u64>> {
        self.guarded(move |state, _| Ok(state.raise(&scopes, anew)))
    }

    fn clear(&self, clear: Clear) -> Reply<'_, ClearReply> {
        self.guarded(move |state, _| Ok(state.clear(clear)))
    }

    fn inventory<'a>(&'a self, scope: &'a TargetScope) -> Reply<'a, BTreeMap<ObjectKey, Seen>> {
        self.plain(move |state| state.inventory(scope))
    }

    fn forget(&self, scope: TargetScope) -> Reply<'_, ()> {
        self.guarded(move |state, _| {
            state.forget(&scope);
            Ok(())
        })
    }

    fn note(&self, note: Note) -> Reply<'_, ()> {
        self.guarded(move |state, now_ms| {
            state.note(note, now_ms);
            Ok(())
        })
    }

    fn drop_cursor(&self, watch: WatchKey, remove: bool) -> Reply<'_, ()> {
        self.guarded(move |state, _| {
            state.drop_cursor(&watch, remove);
            Ok(())
        })
    }
}
