//! Which entries of a journal are still owed, and how far may the floor rise?
//!
//! In: ids that became durable, ids that were passed. Out: floor (INV-3: it never passes an entry that is owed), the
//! exact ids passed above it, bytes freed. What "passed" takes is decided by the caller.

use std::collections::BTreeMap;

use upriver_model::{EntryId, IdSet, TargetUid};

#[derive(Clone, Copy, Debug)]
struct Owed {
    bytes: u64,
    stamped_ms: i64,
}

/// The owner's account of its journal.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    owed: BTreeMap<EntryId, Owed>,
    floor: EntryId,
    highest: EntryId,
    done: IdSet,
    by_target: BTreeMap<TargetUid, IdSet>,
    freed: u64,
    changed: bool,
}

impl Ledger {
    /// The account as the journal's `meta` has it.
    #[must_use]
    pub fn new(floor: EntryId, done: IdSet) -> Self {
        Self { floor, highest: floor, done, ..Self::default() }
    }

    /// An entry is durable and owed; false if it had been passed before.
    pub fn owe(&mut self, id: EntryId, bytes: u64, stamped_ms: i64) -> bool {
        self.highest = self.highest.max(id);
        if id <= self.floor || self.done.contains(id) {
            return false;
        }
        self.owed.insert(id, Owed { bytes, stamped_ms });
        true
    }

    /// An entry need not be looked at again. A repeat changes nothing.
    pub fn pass(&mut self, id: EntryId, target: &TargetUid) {
        let Some(owed) = self.owed.remove(&id) else { return };
        self.freed += owed.bytes;
        self.changed = true;
        self.done.insert(id);
        self.by_target.entry(target.clone()).or_default().insert(id);
        self.raise();
    }

    fn raise(&mut self) {
        let floor = match self.owed.first_key_value() {
            // Everything below the first owed entry is passed: the last passed id below it is the floor.
            Some((first, _)) => self.last_done_below(*first),
            None => self.highest,
        };
        if floor > self.floor {
            self.floor = floor;
            self.done.drop_through(floor);
            for ids in self.by_target.values_mut() {
                ids.drop_through(floor);
            }
            self.by_target.retain(|_, ids| !ids.is_empty());
        }
    }

    fn last_done_below(&self, id: EntryId) -> EntryId {
        if id.n > 1 && self.done.contains(EntryId { epoch: id.epoch, n: id.n - 1 }) {
            return EntryId { epoch: id.epoch, n: id.n - 1 };
        }
        // Ids may be missing (dropped by the version guard), or the epoch may have changed: look for the nearest.
        self.done.last_below(id).map_or(self.floor, |found| found.max(self.floor))
    }

    /// True if `id` is still owed.
    #[must_use]
    pub fn is_owed(&self, id: EntryId) -> bool {
        self.owed.contains_key(&id)
    }

    /// Number of owed entries.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.owed.len()
    }

    /// Store time at which the first owed entry became durable, milliseconds since 1970.
    #[must_use]
    pub fn oldest_ms(&self) -> Option<i64> {
        self.owed.first_key_value().map(|(_, owed)| owed.stamped_ms)
    }

    /// Everything up to here is passed.
    #[must_use]
    pub fn floor(&self) -> EntryId {
        self.floor
    }

    /// Exact ids passed above the floor.
    #[must_use]
    pub fn done(&self) -> &IdSet {
        &self.done
    }

    /// Those of one target, for its commit header.
    #[must_use]
    pub fn done_of(&self, target: &TargetUid) -> IdSet {
        self.by_target.get(target).cloned().unwrap_or_default()
    }

    /// True if something was passed since the last [`Ledger::take_freed`].
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.changed
    }

    /// Bytes passed since the last call; what a settlement reports to the store.
    pub fn take_freed(&mut self) -> u64 {
        self.changed = false;
        std::mem::take(&mut self.freed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(epoch: u64, n: u64) -> EntryId {
        EntryId { epoch, n }
    }

    #[test]
    fn the_floor_never_passes_an_owed_entry() {
        let target = TargetUid::new("t");
        let mut ledger = Ledger::new(EntryId::ZERO, IdSet::new());
        for n in 1..=5 {
            assert!(ledger.owe(id(1, n), 10, 0));
        }
        ledger.pass(id(1, 3), &target);
        assert_eq!((ledger.floor(), ledger.done().to_string().as_str()), (EntryId::ZERO, "1-3"));
        assert_eq!(ledger.done_of(&target).to_string(), "1-3");
        ledger.pass(id(1, 1), &target);
        assert_eq!((ledger.floor(), ledger.done().to_string().as_str()), (id(1, 1), "1-3"));
        ledger.pass(id(1, 2), &target);
        assert_eq!((ledger.floor(), ledger.done().to_string().as_str()), (id(1, 3), ""));
        assert_eq!(ledger.take_freed(), 30);
        ledger.pass(id(1, 2), &target);
        assert!(!ledger.has_news(), "a repeat changes nothing");
        ledger.pass(id(1, 5), &target);
        ledger.pass(id(1, 4), &target);
        assert_eq!((ledger.floor(), ledger.depth()), (id(1, 5), 0));
    }

    #[test]
    fn gaps_between_ids_do_not_hold_the_floor() {
        let target = TargetUid::new("t");
        let mut ledger = Ledger::new(id(1, 4), IdSet::parse("1-6").expect("a set"));
        assert!(!ledger.owe(id(1, 4), 1, 0) && !ledger.owe(id(1, 6), 1, 0), "passed before");
        assert!(ledger.owe(id(1, 9), 1, 0));
        assert!(ledger.owe(id(2, 1), 1, 0));
        ledger.pass(id(1, 9), &target);
        assert_eq!(ledger.floor(), id(1, 9));
        ledger.pass(id(2, 1), &target);
        assert_eq!(ledger.floor(), id(2, 1));
    }
}
