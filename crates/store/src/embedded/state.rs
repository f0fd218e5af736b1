//! What the embedded store keeps of one branch, and each operation on it: all or nothing, under the branch's lock.

use std::collections::{BTreeMap, VecDeque};

use upriver_model::{
    Attempt, AttemptId, CommitId, Entry, EntryId, IdSet, Incarnation, Intend, ObjectKey, Operation, Outcome,
    ReplicaId, ResourceVersion, Seen, Settled, StoredEntry, TargetScope, TargetUid, Trigger, WatchKey,
};

use crate::{
    Adopt, Adopted, AppendReply, Clear, ClearReply, Deferred, Frame, JournalLimits, Loaded, Note, OpenReply,
    Opening, Settle, StoreError,
};

/// Seven days: how long a settled attempt can be looked up.
const SETTLED_ATTEMPT_LIFE_MS: i64 = 7 * 24 * 3600 * 1000;

/// Who calls, and what it was told last.
pub(super) struct Caller<'a> {
    pub(super) incarnation: &'a Incarnation,
    pub(super) epoch: u64,
    pub(super) op: u64,
}

#[derive(Clone, Debug)]
struct Meta {
    incarnation: Incarnation,
    epoch: u64,
    holder: ReplicaId,
    op: u64,
    floor: EntryId,
    done: IdSet,
    tip: Option<CommitId>,
    subtrees: BTreeMap<TargetUid, Option<CommitId>>,
    bytes: u64,
}

#[derive(Clone, Debug)]
struct Cursor {
    rv: Option<ResourceVersion>,
    watch_epoch: u64,
    stream: u64,
    seq: u64,
    scope_hash: String,
}

#[derive(Clone, Debug, Default)]
struct AttemptRecord {
    trigger: Trigger,
    entries: IdSet,
    intend: Option<Intend>,
    outcome: Option<Outcome>,
}

/// One branch's journal. Without `meta` there is none.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    meta: Option<Meta>,
    log: BTreeMap<EntryId, StoredEntry>,
    /// Highest id ever appended: an id is not used twice, even if its entry is gone.
    last_id: EntryId,
    cursors: BTreeMap<String, Cursor>,
    settled: BTreeMap<String, Settled>,
    generations: BTreeMap<String, u64>,
    inventories: BTreeMap<String, BTreeMap<ObjectKey, Seen>>,
    attempts: BTreeMap<AttemptId, AttemptRecord>,
    /// When attempts were settled, oldest first.
    settled_at: VecDeque<(i64, AttemptId)>,
    refused: BTreeMap<String, String>,
    /// With the moment at which it ends.
    deferred: Option<(Deferred, i64)>,
    handled: BTreeMap<TargetUid, String>,
}

fn lost(what: &str) -> StoreError {
    StoreError::Lost { what: what.to_owned() }
}

impl State {
    pub(super) fn epoch(&self) -> u64 {
        self.meta.as_ref().map_or(0, |meta| meta.epoch)
    }

    /// Compares, counts, answers the new counter. The incarnation comes before the epoch (F17).
    pub(super) fn guard(&mut self, caller: &Caller<'_>) -> Result<u64, StoreError> {
        let Some(meta) = &mut self.meta else { return Err(lost("meta is missing")) };
        if meta.incarnation != *caller.incarnation {
            return Err(lost("another incarnation"));
        }
        if meta.epoch > caller.epoch {
            return Err(StoreError::Fenced { stored: meta.epoch });
        }
        if meta.epoch < caller.epoch {
            return Err(lost("the epoch went back"));
        }
        if meta.op < caller.op {
            return Err(lost("the operation counter went back"));
        }
        meta.op += 1;
        Ok(meta.op)
    }

    /// The only operation that makes a journal.
    pub(super) fn adopt(&mut self, adopt: &Adopt) -> Result<(Adopted, u64), StoreError> {
        let mine = adopt.epoch.as_key();
        let created = self.meta.is_none();
        let meta = self.meta.get_or_insert_with(|| Meta {
            incarnation: adopt.fresh.clone(),
            epoch: mine,
            holder: adopt.holder.clone(),
            op: 0,
            floor: EntryId::ZERO,
            done: IdSet::new(),
            tip: None,
            subtrees: BTreeMap::new(),
            bytes: 0,
        });
        if meta.epoch > mine || (meta.epoch == mine && meta.holder != adopt.holder) {
            return Err(StoreError::Fenced { stored: meta.epoch });
        }
        if !created {
            meta.op += 1;
        }
        meta.epoch = mine;
        meta.holder = adopt.holder.clone();
        let adopted = Adopted {
            created,
            incarnation: meta.incarnation.clone(),
            floor: meta.floor,
            done: meta.done.clone(),
            tip: meta.tip.clone(),
            subtrees: meta.subtrees.clone(),
        };
        Ok((adopted, meta.op))
    }

    pub(super) fn load(&self, now_ms: i64) -> Loaded {
        let (known, unknown): (Vec<&StoredEntry>, Vec<&StoredEntry>) =
            self.log.values().partition(|stored| stored.entry.schema == Entry::SCHEMA);
        let mut open: Vec<Attempt> = self
            .attempts
            .iter()
            .filter(|(_, record)| record.outcome.is_none())
            .map(|(id, record)| Attempt {
                id: *id,
                trigger: record.trigger,
                entries: record.entries.clone(),
                intend: record.intend.clone(),
            })
            .collect();
        open.sort_by_key(|attempt| (attempt.id.n, attempt.id.epoch));
        Loaded {
            entries: known.into_iter().cloned().collect(),
            undecodable: unknown.into_iter().map(|stored| stored.id).collect(),
            cursors: self
                .cursors
                .iter()
                .filter_map(|(watch, cursor)| Some((watch.clone(), cursor.rv.clone()?)))
                .collect(),
            settled: self.settled.clone(),
            generations: self.generations.clone(),
            attempts: open,
            refused: self.refused.clone(),
            deferred: self.deferred.as_ref().map(|(deferred, until)| Deferred {
                delay_ms: u64::try_from(until.saturating_sub(now_ms)).unwrap_or(0),
                ..deferred.clone()
            }),
            handled: self.handled.clone(),
        }
    }

    pub(super) fn note(&mut self, note: Note, now_ms: i64) {
        match note {
            Note::Deferred(deferred) => {
                let delay = i64::try_from(deferred.delay_ms).unwrap_or(i64::MAX);
                self.deferred = Some((deferred, now_ms.saturating_add(delay)));
            }
            Note::Handled { target, value: Some(value) } => drop(self.handled.insert(target, value)),
            Note::Handled { target, value: None } => drop(self.handled.remove(&target)),
        }
    }

    pub(super) fn open(&mut self, opening: &Opening) -> OpenReply {
        let watch = opening.watch.to_string();
        let known = self.cursors.get(&watch);
        let mine = (opening.watch_epoch, opening.stream);
        if let Some(cursor) = known.filter(|cursor| (cursor.watch_epoch, cursor.stream) >= mine) {
            return OpenReply::Stale { epoch: cursor.watch_epoch };
        }
        let rv = known.and_then(|cursor| cursor.rv.clone());
        let record = Cursor {
            rv: rv.clone(),
            watch_epoch: opening.watch_epoch,
            stream: opening.stream,
            seq: 0,
            scope_hash: opening.scope_hash.clone(),
        };
        self.cursors.insert(watch, record);
        OpenReply::Opened { cursor: rv }
    }

    /// Entries, cursor and inventory, or nothing at all (INV-2).
    pub(super) fn append(
        &mut self,
        frame: Frame,
        limits: JournalLimits,
        now_ms: i64,
    ) -> Result<AppendReply, StoreError> {
        let Some(meta) = &mut self.meta else { return Err(lost("meta is missing")) };
        let Some(cursor) = self.cursors.get_mut(&frame.opening.watch.to_string()) else {
            return Ok(AppendReply::Stale);
        };
        if let Some(refusal) = cursor.refuses(&frame) {
            return Ok(refusal);
        }
        let length = self.log.len() as u64;
        if !frame.entries.is_empty() && (length >= limits.entries || meta.bytes >= limits.bytes) {
            return Ok(AppendReply::Full);
        }
        if frame.entries.first().is_some_and(|first| first.id <= self.last_id) {
            let reason = format!("an entry id is not above {}", self.last_id);
            return Err(StoreError::Unavailable { reason });
        }
        let mut kept = Vec::with_capacity(frame.entries.len());
        for item in frame.entries {
            let inventory = self.inventories.entry(item.scope.as_key()).or_default();
            let keep = !inventory.get(&item.entry.key).is_some_and(|seen| covers(seen, &item.entry));
            kept.push(keep);
            if keep {
                meta.bytes += item.entry.size() as u64;
                inventory.insert(item.entry.key.clone(), seen_by(&item.entry));
                self.last_id = item.id;
                let stored = StoredEntry { id: item.id, stamped_ms: now_ms, entry: item.entry };
                self.log.insert(item.id, stored);
            }
        }
        if frame.cursor.is_some() {
            cursor.rv = frame.cursor;
        }
        cursor.seq = frame.seq;
        Ok(AppendReply::Appended { stamped_ms: now_ms, kept })
    }

    pub(super) fn reserve(&mut self, attempt: Attempt) {
        self.attempts.entry(attempt.id).or_insert_with(|| AttemptRecord {
            trigger: attempt.trigger,
            entries: attempt.entries,
            intend: None,
            outcome: None,
        });
    }

    pub(super) fn intend(&mut self, id: AttemptId, intend: Intend) -> Result<bool, StoreError> {
        let Some(record) = self.attempts.get_mut(&id) else { return Err(lost("the attempt is missing")) };
        if record.outcome.is_some() {
            return Ok(false);
        }
        record.intend = Some(intend);
        Ok(true)
    }

    pub(super) fn settle(&mut self, settle: Settle, now_ms: i64) -> Result<(), StoreError> {
        let Some(meta) = &mut self.meta else { return Err(lost("meta is missing")) };
        let record = self.attempts.entry(settle.attempt).or_default();
        if record.outcome.is_none() {
            record.outcome = Some(settle.outcome);
            self.settled_at.push_back((now_ms, settle.attempt));
        }
        self.deferred = None;
        meta.floor = settle.floor;
        meta.done = settle.done;
        if settle.tip.is_some() {
            meta.tip = settle.tip;
        }
        if !settle.subtrees.is_empty() {
            meta.subtrees = settle.subtrees;
        }
        if settle.floor != EntryId::ZERO {
            self.log.retain(|id, _| *id > settle.floor);
        }
        meta.bytes = meta.bytes.saturating_sub(settle.freed_bytes);
        for (path, reason) in settle.refused {
            match reason {
                Some(reason) => self.refused.insert(path, reason),
                None => self.refused.remove(&path),
            };
        }
        self.expire_attempts(now_ms);
        Ok(())
    }

    fn expire_attempts(&mut self, now_ms: i64) {
        while let Some((at, id)) = self.settled_at.front()
            && now_ms.saturating_sub(*at) > SETTLED_ATTEMPT_LIFE_MS
        {
            self.attempts.remove(id);
            self.settled_at.pop_front();
        }
    }

    pub(super) fn raise(&mut self, scopes: &[TargetScope], anew: bool) -> Vec<u64> {
        let mut raised = Vec::with_capacity(scopes.len());
        for scope in scopes {
            if anew {
                self.settled.remove(&scope.as_key());
            }
            let generation = self.generations.entry(scope.as_key()).or_insert(0);
            *generation += 1;
            raised.push(*generation);
        }
        raised
    }

    pub(super) fn clear(&mut self, clear: Clear) -> ClearReply {
        if let Some(opening) = &clear.opening {
            let known = self.cursors.get(&opening.watch.to_string());
            let current = known.map(|cursor| (cursor.watch_epoch, cursor.stream));
            if current != Some((opening.watch_epoch, opening.stream)) {
                return ClearReply::Stale;
            }
        }
        let key = clear.scope.as_key();
        let generation = self.generations.get(&key).copied().unwrap_or(0);
        if generation != clear.generation {
            return ClearReply::Raised(generation);
        }
        let mut inventory: BTreeMap<ObjectKey, Seen> = clear.inventory.into_iter().collect();
        if let Some(list) = clear.list_rv.number() {
            // Live entries that are newer than the list win.
            let old = self.inventories.remove(&key).unwrap_or_default();
            inventory
                .extend(old.into_iter().filter(|(_, seen)| seen.rv.number().is_some_and(|rv| rv > list)));
        }
        self.inventories.insert(key.clone(), inventory);
        self.settled.insert(key, Settled { spec_hash: clear.spec_hash.into(), generation });
        ClearReply::Cleared
    }

    pub(super) fn inventory(&self, scope: &TargetScope) -> BTreeMap<ObjectKey, Seen> {
        self.inventories.get(&scope.as_key()).cloned().unwrap_or_default()
    }

    pub(super) fn forget(&mut self, scope: &TargetScope) {
        let key = scope.as_key();
        self.settled.remove(&key);
        self.generations.remove(&key);
        self.inventories.remove(&key);
    }

    pub(super) fn drop_cursor(&mut self, watch: &WatchKey, remove: bool) {
        let watch = watch.to_string();
        if remove {
            self.cursors.remove(&watch);
        } else if let Some(cursor) = self.cursors.get_mut(&watch) {
            cursor.rv = None;
        }
    }
}

impl Cursor {
    /// F2: why this frame is not the next one.
    fn refuses(&self, frame: &Frame) -> Option<AppendReply> {
        let opening = &frame.opening;
        if opening.watch_epoch != self.watch_epoch || opening.stream < self.stream {
            return Some(AppendReply::Stale);
        }
        if opening.stream > self.stream {
            return Some(AppendReply::Gap);
        }
        if frame.seq <= self.seq {
            return Some(AppendReply::Duplicate);
        }
        if frame.seq != self.seq + 1 {
            return Some(AppendReply::Gap);
        }
        (self.scope_hash != opening.scope_hash).then_some(AppendReply::Rescope)
    }
}

/// F11: the inventory has this version of this uid, or a later one.
fn covers(seen: &Seen, entry: &Entry) -> bool {
    let known = seen.rv.number().zip(entry.rv.number());
    seen.uid == entry.uid && known.is_some_and(|(seen, new)| new <= seen)
}

fn seen_by(entry: &Entry) -> Seen {
    Seen { uid: entry.uid.clone(), rv: entry.rv.clone(), deleted: entry.operation == Operation::Delete }
}

/// All of one branch, for tests that judge it.
#[cfg(feature = "testing")]
#[derive(Clone, Debug)]
pub struct Inspection {
    /// Its history.
    pub incarnation: Incarnation,
    /// Epoch of the owner.
    pub epoch: u64,
    /// Everything up to here is passed.
    pub floor: EntryId,
    /// Passed above the floor.
    pub done: IdSet,
    /// What the next owner would load.
    pub loaded: Loaded,
    /// What was seen live, by scope key.
    pub inventories: BTreeMap<String, BTreeMap<ObjectKey, Seen>>,
    /// Attempts, settled ones included.
    pub attempts: BTreeMap<AttemptId, InspectedAttempt>,
}

/// One attempt, for tests that judge it.
#[cfg(feature = "testing")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InspectedAttempt {
    /// What its push was about to do.
    pub intend: Option<Intend>,
    /// How it ended; `None` while it is open.
    pub outcome: Option<Outcome>,
}

#[cfg(feature = "testing")]
impl State {
    pub(super) fn guarded_by(&self) -> Option<(&Incarnation, u64, u64)> {
        self.meta.as_ref().map(|meta| (&meta.incarnation, meta.epoch, meta.op))
    }

    pub(super) fn cursor(&self, watch: &WatchKey) -> Option<(u64, u64, u64, Option<String>)> {
        let cursor = self.cursors.get(&watch.to_string())?;
        let rv = cursor.rv.as_ref().map(ToString::to_string);
        Some((cursor.watch_epoch, cursor.stream, cursor.seq, rv))
    }

    pub(super) fn inspect(&self, now_ms: i64) -> Option<Inspection> {
        let meta = self.meta.as_ref()?;
        let attempts = self
            .attempts
            .iter()
            .map(|(id, record)| {
                (*id, InspectedAttempt { intend: record.intend.clone(), outcome: record.outcome })
            })
            .collect();
        Some(Inspection {
            incarnation: meta.incarnation.clone(),
            epoch: meta.epoch,
            floor: meta.floor,
            done: meta.done.clone(),
            loaded: self.load(now_ms),
            inventories: self.inventories.clone(),
            attempts,
        })
    }
}
