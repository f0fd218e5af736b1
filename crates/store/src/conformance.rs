//! One suite for every [`Store`]: what an owner may rely on. Each function takes a fresh branch of its own.

use std::collections::BTreeMap;

use upriver_model::{
    Attempt, AttemptId, Author, BranchKey, CommitId, Entry, EntryId, Epoch, Failure, FailureClass, Gvr,
    IdSet, Incarnation, Intend, ObjectKey, Operation, Outcome, ReplicaId, ResourceVersion, Scope, Seen,
    TargetScope, TargetUid, Trigger, WatchKey,
};

use crate::{
    Adopt, Adopted, AppendReply, Clear, ClearReply, Deferred, Frame, FrameEntry, Journal, JournalLimits,
    Note, OpenReply, Opening, Settle, Store, StoreError,
};

/// A branch, its scope and its watch, as the suite uses them.
pub struct Fixture {
    /// The branch.
    pub branch: BranchKey,
    /// The only scope.
    pub scope: TargetScope,
    /// The only watch.
    pub watch: WatchKey,
}

impl Fixture {
    /// A branch that no other test uses.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let gvr = Gvr::new("", "v1", "configmaps");
        Self {
            branch: BranchKey::new(format!("test-{name}")),
            scope: TargetScope {
                target: TargetUid::new("target-1"),
                gvr: gvr.clone(),
                scope: Scope::Namespace("shop".into()),
            },
            watch: WatchKey { cluster: "local".into(), gvr, scope: Scope::Cluster },
        }
    }

    /// Adopts with an epoch.
    ///
    /// # Errors
    /// Whatever the store says.
    pub async fn adopt(
        &self,
        store: &dyn Store,
        epoch: u64,
    ) -> Result<(Box<dyn Journal>, Adopted), StoreError> {
        self.adopt_as(store, epoch, "replica-1").await
    }

    /// Adopts as a named replica.
    ///
    /// # Errors
    /// Whatever the store says.
    pub async fn adopt_as(
        &self,
        store: &dyn Store,
        epoch: u64,
        holder: &str,
    ) -> Result<(Box<dyn Journal>, Adopted), StoreError> {
        store
            .adopt(Adopt {
                branch: self.branch.clone(),
                epoch: Epoch::new(epoch).expect("tests use epochs above zero"),
                holder: ReplicaId::new(holder),
                fresh: Incarnation::new(format!("fresh-{epoch}")),
            })
            .await
    }

    /// A stream of the only watch.
    #[must_use]
    pub fn opening(&self, watch_epoch: u64, stream: u64) -> Opening {
        Opening { watch: self.watch.clone(), watch_epoch, stream, scope_hash: "hash".to_owned() }
    }

    /// An entry for object `name` at version `rv`.
    #[must_use]
    pub fn entry(&self, id: (u64, u64), name: &str, rv: u64, operation: Operation) -> FrameEntry {
        FrameEntry {
            id: EntryId { epoch: id.0, n: id.1 },
            scope: self.scope.clone(),
            entry: Entry {
                schema: Entry::SCHEMA,
                target: self.scope.target.clone(),
                gvr: self.scope.gvr.clone(),
                kind: "ConfigMap".into(),
                scope: self.scope.scope.clone(),
                key: ObjectKey::new("shop", name),
                uid: format!("uid-{name}").into(),
                rv: ResourceVersion::new(&rv.to_string()),
                operation,
                payload: (operation != Operation::Delete).then(|| "{}".into()),
                author: Author::NotAttempted,
                observed_at_ms: 1_700_000_000_000,
            },
        }
    }

    /// A frame that moves the cursor.
    #[must_use]
    pub fn frame(&self, opening: &Opening, seq: u64, cursor: u64, entries: Vec<FrameEntry>) -> Frame {
        Frame {
            opening: opening.clone(),
            seq,
            cursor: Some(ResourceVersion::new(&cursor.to_string())),
            entries,
        }
    }
}

fn appended(kept: &[bool]) -> impl Fn(&AppendReply) -> bool + '_ {
    move |reply| matches!(reply, AppendReply::Appended { kept: found, .. } if found == kept)
}

async fn append(journal: &dyn Journal, frame: Frame) -> AppendReply {
    journal.append(frame, JournalLimits::default()).await.expect("the store answers")
}

fn cursor(rv: u64) -> Option<ResourceVersion> {
    Some(ResourceVersion::new(&rv.to_string()))
}

/// Entries, cursor and inventory appear together and are there for the next owner.
pub async fn an_appended_frame_is_there_for_the_next_owner(store: &dyn Store) {
    let f = Fixture::new("next-owner");
    assert_eq!(store.stored_epoch(&f.branch).await, Ok(0));
    let (journal, first) = f.adopt(store, 3).await.expect("a free journal");
    assert!(first.created);
    let opening = f.opening(3, 1);
    assert_eq!(journal.open(opening.clone()).await, Ok(OpenReply::Opened { cursor: None }));
    let entry = f.entry((3, 1), "a", 10, Operation::Create);
    assert!(appended(&[true])(&append(&*journal, f.frame(&opening, 1, 10, vec![entry.clone()])).await));
    assert_eq!(store.stored_epoch(&f.branch).await, Ok(3));

    let (next, adopted) = f.adopt_as(store, 4, "replica-2").await.expect("a higher epoch takes over");
    assert!(!adopted.created);
    assert_eq!(adopted.incarnation, first.incarnation);
    let loaded = next.load().await.expect("readable");
    assert_eq!(loaded.entries.len(), 1);
    assert_eq!((loaded.entries[0].id, &loaded.entries[0].entry), (entry.id, &entry.entry));
    assert_eq!(loaded.cursors.get(&f.watch.to_string()).cloned(), cursor(10));
    let inventory = next.inventory(&f.scope).await.expect("readable");
    assert_eq!(inventory[&ObjectKey::new("shop", "a")].rv, ResourceVersion::new("10"));
    assert_eq!(next.open(f.opening(4, 1)).await, Ok(OpenReply::Opened { cursor: cursor(10) }));
}

/// F2: frames are compared as (epoch, stream, seq).
pub async fn frames_are_compared_as_epoch_stream_and_sequence(store: &dyn Store) {
    let f = Fixture::new("sequence");
    let (journal, _) = f.adopt(store, 2).await.expect("a free journal");
    let opening = f.opening(2, 5);
    journal.open(opening.clone()).await.expect("opens");
    assert!(appended(&[])(&append(&*journal, f.frame(&opening, 1, 1, vec![])).await));
    assert_eq!(append(&*journal, f.frame(&opening, 1, 2, vec![])).await, AppendReply::Duplicate);
    assert_eq!(append(&*journal, f.frame(&opening, 3, 3, vec![])).await, AppendReply::Gap);
    assert_eq!(append(&*journal, f.frame(&f.opening(2, 4), 2, 4, vec![])).await, AppendReply::Stale);
    assert_eq!(append(&*journal, f.frame(&f.opening(1, 9), 2, 4, vec![])).await, AppendReply::Stale);
    assert_eq!(append(&*journal, f.frame(&f.opening(2, 6), 2, 4, vec![])).await, AppendReply::Gap);
    let mut other = f.frame(&opening, 2, 5, vec![]);
    other.opening.scope_hash = "other".to_owned();
    assert_eq!(append(&*journal, other).await, AppendReply::Rescope);
    assert_eq!(journal.open(f.opening(2, 5)).await, Ok(OpenReply::Stale { epoch: 2 }));
    assert_eq!(journal.open(f.opening(1, 9)).await, Ok(OpenReply::Stale { epoch: 2 }));
    assert_eq!(journal.open(f.opening(2, 6)).await, Ok(OpenReply::Opened { cursor: cursor(1) }));
}

/// F11: an event whose version is not above the inventory's for that uid is dropped, tombstones included.
pub async fn an_old_version_of_a_known_uid_is_dropped(store: &dyn Store) {
    let f = Fixture::new("guard");
    let (journal, _) = f.adopt(store, 1).await.expect("a free journal");
    let opening = f.opening(1, 1);
    journal.open(opening.clone()).await.expect("opens");
    let first = vec![
        f.entry((1, 1), "a", 10, Operation::Create),
        f.entry((1, 2), "a", 12, Operation::Delete),
        f.entry((1, 3), "b", 11, Operation::Create),
    ];
    assert!(appended(&[true; 3])(&append(&*journal, f.frame(&opening, 1, 12, first)).await));
    let mut reborn = f.entry((1, 6), "a", 9, Operation::Create);
    reborn.entry.uid = "another-uid".into();
    let late = vec![
        f.entry((1, 4), "a", 11, Operation::Update),
        f.entry((1, 5), "b", 11, Operation::Update),
        reborn,
        f.entry((1, 7), "b", 13, Operation::Update),
    ];
    assert!(appended(&[false, false, true, true])(&append(&*journal, f.frame(&opening, 2, 13, late)).await));
    let ids: Vec<u64> =
        journal.load().await.expect("readable").entries.iter().map(|stored| stored.id.n).collect();
    assert_eq!(ids, [1, 2, 3, 6, 7]);
}

/// INV-1: a lower epoch is fenced in every operation, and so is an equal one of another holder.
pub async fn a_stale_owner_is_fenced(store: &dyn Store) {
    let f = Fixture::new("fenced");
    let (old, _) = f.adopt(store, 1).await.expect("a free journal");
    let (_new, _) = f.adopt_as(store, 2, "replica-2").await.expect("a higher epoch");
    assert_eq!(old.open(f.opening(1, 1)).await, Err(StoreError::Fenced { stored: 2 }));
    assert!(matches!(f.adopt(store, 1).await.map(|_| ()), Err(StoreError::Fenced { stored: 2 })));
    assert!(matches!(f.adopt(store, 2).await.map(|_| ()), Err(StoreError::Fenced { stored: 2 })));
    f.adopt_as(store, 2, "replica-2").await.expect("the holder itself may return");
}

/// F9 and INV-7: reserve, intend, settle; an open attempt is there for the next owner, a settled one never changes.
pub async fn an_attempt_is_settled_once(store: &dyn Store) {
    let f = Fixture::new("attempt");
    let (journal, _) = f.adopt(store, 1).await.expect("a free journal");
    let opening = f.opening(1, 1);
    journal.open(opening.clone()).await.expect("opens");
    let entries = (1..=3).map(|n| f.entry((1, n), &format!("o{n}"), n, Operation::Create)).collect();
    append(&*journal, f.frame(&opening, 1, 3, entries)).await;

    let id = AttemptId { epoch: 1, n: 1 };
    let carried: IdSet = [EntryId { epoch: 1, n: 1 }, EntryId { epoch: 1, n: 3 }].into_iter().collect();
    let reserved = Attempt { id, trigger: Trigger::Takeover, entries: carried.clone(), intend: None };
    journal.reserve(reserved.clone()).await.expect("reserved");
    let intend = Intend { base: Some(CommitId::new("aa")), new: CommitId::new("bb") };
    assert_eq!(journal.intend(id, intend.clone()).await, Ok(true));
    let (next, _) = f.adopt_as(store, 2, "replica-2").await.expect("takes over");
    let loaded = next.load().await.expect("readable");
    assert_eq!(loaded.attempts, vec![Attempt { intend: Some(intend.clone()), ..reserved }]);

    let settle = |outcome| Settle {
        attempt: id,
        outcome,
        floor: EntryId { epoch: 1, n: 1 },
        done: [EntryId { epoch: 1, n: 3 }].into_iter().collect(),
        tip: Some(CommitId::new("bb")),
        subtrees: [(f.scope.target.clone(), Some(CommitId::new("cc")))].into(),
        freed_bytes: 1,
        refused: vec![("path.yaml".to_owned(), Some("not ours".to_owned()))],
    };
    next.settle(settle(Outcome::Pushed)).await.expect("settled");
    let nothing_freed = Settle { freed_bytes: 0, ..settle(Outcome::Fenced) };
    next.settle(nothing_freed).await.expect("a repeat changes nothing");
    assert_eq!(next.intend(id, intend).await, Ok(false));
    let loaded = next.load().await.expect("readable");
    assert_eq!(loaded.attempts, vec![]);
    assert_eq!(loaded.entries.iter().map(|stored| stored.id.n).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(loaded.refused.get("path.yaml").map(String::as_str), Some("not ours"));
    let (_, adopted) = f.adopt_as(store, 3, "replica-3").await.expect("takes over");
    assert_eq!(adopted.floor, EntryId { epoch: 1, n: 1 });
    assert_eq!(adopted.done.to_string(), "1-3");
    assert_eq!(adopted.tip, Some(CommitId::new("bb")));
    assert_eq!(adopted.subtrees[&f.scope.target], Some(CommitId::new("cc")));
}

/// F3 and F4: a replay settles a scope only at the generation it began with, and only for the current stream.
pub async fn a_replay_clears_only_the_obligation_it_began_with(store: &dyn Store) {
    let f = Fixture::new("clear");
    let (journal, _) = f.adopt(store, 1).await.expect("a free journal");
    let opening = f.opening(1, 1);
    journal.open(opening.clone()).await.expect("opens");
    assert_eq!(journal.raise(vec![f.scope.clone()], false).await, Ok(vec![1]));
    let live = vec![f.entry((1, 1), "late", 120, Operation::Create)];
    append(&*journal, f.frame(&opening, 1, 120, live)).await;
    let listed = |name: &str, rv: &str| {
        let seen = Seen { uid: format!("uid-{name}").into(), rv: ResourceVersion::new(rv), deleted: false };
        (ObjectKey::new("shop", name), seen)
    };
    let clear = |generation, opening: Option<Opening>| Clear {
        scope: f.scope.clone(),
        generation,
        spec_hash: "spec".to_owned(),
        opening,
        list_rv: ResourceVersion::new("100"),
        inventory: vec![listed("a", "90"), listed("late", "95")],
    };
    assert_eq!(journal.raise(vec![f.scope.clone()], false).await, Ok(vec![2]));
    assert_eq!(journal.clear(clear(1, None)).await, Ok(ClearReply::Raised(2)));
    assert_eq!(journal.clear(clear(2, Some(f.opening(1, 9)))).await, Ok(ClearReply::Stale));
    assert!(journal.load().await.expect("readable").settled.is_empty());
    assert_eq!(journal.clear(clear(2, Some(opening))).await, Ok(ClearReply::Cleared));
    let loaded = journal.load().await.expect("readable");
    let record = &loaded.settled[&f.scope.as_key()];
    assert_eq!((&*record.spec_hash, record.generation), ("spec", 2));
    assert_eq!(loaded.generations[&f.scope.as_key()], 2);
    let inventory = journal.inventory(&f.scope).await.expect("readable");
    assert_eq!(inventory.len(), 2);
    assert_eq!(inventory[&ObjectKey::new("shop", "late")].rv.as_str(), "120", "the newer live entry wins");

    journal.forget(f.scope.clone()).await.expect("forgotten");
    let loaded = journal.load().await.expect("readable");
    assert!(loaded.settled.is_empty() && loaded.generations.is_empty());
    assert!(journal.inventory(&f.scope).await.expect("readable").is_empty());
}

/// A full journal refuses entries, but not progress, and writes nothing of a refused frame.
pub async fn a_full_journal_refuses_entries(store: &dyn Store) {
    let f = Fixture::new("full");
    let (journal, _) = f.adopt(store, 1).await.expect("a free journal");
    let opening = f.opening(1, 1);
    journal.open(opening.clone()).await.expect("opens");
    let limits = JournalLimits { entries: 1, bytes: 1 << 20 };
    let one = f.frame(&opening, 1, 1, vec![f.entry((1, 1), "a", 1, Operation::Create)]);
    assert!(appended(&[true])(&journal.append(one, limits).await.expect("answers")));
    let two = f.frame(&opening, 2, 2, vec![f.entry((1, 2), "b", 2, Operation::Create)]);
    assert_eq!(journal.append(two, limits).await, Ok(AppendReply::Full));
    assert!(appended(&[])(&journal.append(f.frame(&opening, 2, 2, vec![]), limits).await.expect("answers")));
    assert_eq!(journal.load().await.expect("readable").entries.len(), 1);
}

/// A forgotten cursor is gone, but the stream order stays.
pub async fn a_dropped_cursor_leads_to_a_replay(store: &dyn Store) {
    let f = Fixture::new("cursor");
    let (journal, _) = f.adopt(store, 1).await.expect("a free journal");
    journal.open(f.opening(1, 1)).await.expect("opens");
    append(&*journal, f.frame(&f.opening(1, 1), 1, 7, vec![])).await;
    journal.drop_cursor(f.watch.clone(), false).await.expect("dropped");
    assert_eq!(journal.open(f.opening(1, 1)).await, Ok(OpenReply::Stale { epoch: 1 }));
    assert_eq!(journal.open(f.opening(1, 2)).await, Ok(OpenReply::Opened { cursor: None }));
    journal.drop_cursor(f.watch.clone(), true).await.expect("removed");
    assert_eq!(append(&*journal, f.frame(&f.opening(1, 2), 1, 8, vec![])).await, AppendReply::Stale);
}

/// A failure is waited out by the next owner too, until something is settled; a handled request is never acted on again.
pub async fn notes_outlive_their_owner(store: &dyn Store) {
    let f = Fixture::new("notes");
    let (journal, _) = f.adopt(store, 1).await.expect("a free journal");
    let failure = Failure::new(FailureClass::Network, "no route\nto the host");
    let deferred = Deferred { failure: failure.clone(), failures: 3, delay_ms: 60_000 };
    journal.note(Note::Deferred(deferred)).await.expect("noted");
    let target = TargetUid::new("target-1");
    let value = Some("2026-01-01".to_owned());
    journal.note(Note::Handled { target: target.clone(), value }).await.expect("noted");

    let (next, _) = f.adopt_as(store, 2, "replica-2").await.expect("taken over");
    let loaded = next.load().await.expect("readable");
    let found = loaded.deferred.expect("still deferred");
    assert_eq!((found.failure, found.failures), (failure, 3));
    assert!((30_000..=60_000).contains(&found.delay_ms), "{}", found.delay_ms);
    assert_eq!(loaded.handled.get(&target).map(String::as_str), Some("2026-01-01"));
    assert!(journal.note(Note::Handled { target: target.clone(), value: None }).await.is_err(), "fenced");

    let settle = Settle {
        attempt: AttemptId { epoch: 2, n: 1 },
        outcome: Outcome::NoChange,
        floor: EntryId::ZERO,
        done: IdSet::new(),
        tip: None,
        subtrees: BTreeMap::new(),
        freed_bytes: 0,
        refused: Vec::new(),
    };
    next.settle(settle).await.expect("settled");
    next.note(Note::Handled { target, value: None }).await.expect("noted");
    let loaded = next.load().await.expect("readable");
    assert_eq!(loaded.deferred, None);
    assert!(loaded.handled.is_empty());
}

/// Runs the whole suite.
pub async fn all(store: &dyn Store) {
    an_appended_frame_is_there_for_the_next_owner(store).await;
    frames_are_compared_as_epoch_stream_and_sequence(store).await;
    an_old_version_of_a_known_uid_is_dropped(store).await;
    a_stale_owner_is_fenced(store).await;
    an_attempt_is_settled_once(store).await;
    a_replay_clears_only_the_obligation_it_began_with(store).await;
    a_full_journal_refuses_entries(store).await;
    a_dropped_cursor_leads_to_a_replay(store).await;
    notes_outlive_their_owner(store).await;
}
