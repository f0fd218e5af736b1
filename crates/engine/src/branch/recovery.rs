//! The way back into a journal: prove, adopt, load, read the branch, account for what is in it already.

use std::collections::BTreeMap;

use upriver_model::{
    Attempt, CommitId, EntryId, Failure, IdSet, JournalHeader, Outcome, StoredEntry, TargetScope, TargetUid,
};
use upriver_store::{Adopted, Deferred, Loaded, Settle};

use super::replay::Paid;
use super::streams::covered;
use super::{Base, Branch, Command, Fetched, Phase};
use crate::ledger::Ledger;
use crate::time::Tick;
use crate::window::Document;

impl Branch {
    pub(super) fn proven(&mut self) {
        match self.phase {
            Phase::Proving => {
                self.phase = Phase::Adopting;
                self.out.push(Command::Adopt);
            }
            Phase::Running => self.round_proven(),
            Phase::Down { .. }
            | Phase::Adopting
            | Phase::Loading
            | Phase::Fetching
            | Phase::FetchFailed { .. }
            | Phase::Ended => {}
        }
    }

    pub(super) fn adopted(&mut self, adopted: Adopted) {
        // A journal that was made anew although this owner, or one before it, had one: the store lost it.
        let unknown = self.incarnation.as_str().is_empty();
        self.lost |= if unknown {
            adopted.created && !self.options.clean
        } else {
            self.incarnation != adopted.incarnation
        };
        self.incarnation = adopted.incarnation;
        self.ledger = Ledger::new(adopted.floor, adopted.done);
        self.last_settled = adopted.tip;
        self.subtrees = adopted.subtrees;
        self.phase = Phase::Loading;
        self.out.push(Command::Load);
    }

    pub(super) fn loaded(&mut self, now: Tick, loaded: Loaded) {
        self.refused = loaded.refused.clone();
        self.open_attempts = loaded.attempts.clone();
        // Ids and attempts go on above whatever this epoch used before, in this process or not.
        let epoch = self.options.epoch.as_key();
        let used = loaded.entries.iter().map(|stored| stored.id).chain(loaded.undecodable.iter().copied());
        let last = used.filter(|id| id.epoch == epoch).map(|id| id.n).max().unwrap_or(0);
        self.next_entry = self.next_entry.max(last + 1);
        let attempts = loaded.attempts.iter().filter(|attempt| attempt.id.epoch == epoch);
        self.next_attempt =
            self.next_attempt.max(attempts.map(|attempt| attempt.id.n).max().unwrap_or(0) + 1);
        self.handled = loaded.handled.clone();
        let waits = |deferred: &Deferred| deferred.delay_ms > 0 && !self.is_asked();
        let deferred = loaded.deferred.clone().filter(waits);
        self.loaded = loaded;
        match deferred {
            // A predecessor, or we before a crash, was waiting: the host is not asked again before that is over.
            Some(deferred) => {
                self.git_failures = deferred.failures;
                self.phase = Phase::FetchFailed { until: Some(now + deferred.delay_ms) };
                self.note_failure(deferred.failure);
            }
            None => self.first_fetch(),
        }
    }

    pub(super) fn first_fetch(&mut self) {
        self.phase = Phase::Fetching;
        self.out.push(Command::Fetch { until: self.last_settled.clone() });
    }

    pub(super) fn first_fetch_failed(&mut self, now: Tick, failure: Failure) {
        let until = self.defer(now, &failure);
        self.phase = Phase::FetchFailed { until };
        self.note_failure(failure);
    }

    /// The branch was read for the first time in this life.
    pub(super) fn recover(&mut self, now: Tick, fetched: &Fetched) {
        self.git_failures = 0;
        self.store_failures = 0;
        self.failure = None;
        if !self.options.clean || self.lost {
            self.suspicious = Some(fetched.base.clone());
        }
        self.options.clean = false;
        self.lost = false;
        let consumed = self.evidence(fetched);
        let loaded = std::mem::take(&mut self.loaded);
        self.raise_paused(&loaded);
        let owed = self.owe(&loaded, &consumed);
        self.tip = Some((fetched.base.clone(), false));
        self.settle_old_attempts(fetched);
        self.phase = Phase::Running;
        self.next_poll = now + self.options.drift_poll_ms;
        let drifted = self.last_settled.as_ref() != fetched.base.expected_old();
        self.losses += 1;
        self.install(&loaded, fetched.joined || self.has_own_commit(fetched));
        self.drop_undecodable(&loaded);
        if self.has_unexplained_commit(fetched, &loaded.attempts) {
            self.repair_loss();
        }
        self.taken_over = !owed.is_empty();
        for stored in owed {
            self.take_up(now, &loaded, stored);
        }
        self.forget_requests();
        self.recheck(now);
        // They have waited long enough, and no two clocks need be compared (F22).
        let closed = self.windows.close_all();
        self.enqueue(closed);
        if drifted {
            self.compare_subtrees(fetched);
        }
    }

    /// An entry of a dirty scope waits for the list: an earlier list, newer than the entry, may be in the remote already
    /// although nobody settled it (F3b). If the scope left the selection before that, nobody will list it: the file stays.
    fn take_up(&mut self, now: Tick, loaded: &Loaded, stored: StoredEntry) {
        match self.scopes.get_mut(&scope_of(&stored)) {
            Some(scope) if !scope.settled => scope.held.push(stored),
            None if !was_settled(loaded, &stored) => self.ledger.pass(stored.id, &stored.entry.target),
            Some(_) | None => self.apply(now, stored),
        }
    }

    /// True if a commit of ours lies above the last settled tip and no push that we know of explains it: a journal knew more
    /// when it was made, and what it forgot is not in the inventory either.
    pub(super) fn has_unexplained_commit(&self, fetched: &Fetched, attempts: &[Attempt]) -> bool {
        let attempted = attempts.iter().filter_map(|attempt| attempt.intend.as_ref());
        let mut pushes: BTreeMap<&CommitId, Option<&CommitId>> =
            attempted.map(|intend| (&intend.new, intend.base.as_ref())).collect();
        if let Some(round) = &self.round {
            let base = round.base.expected_old();
            pushes.extend(round.sent.iter().map(|(new, _)| (new, base)));
        }
        let mut explained: Option<Option<&CommitId>> = None;
        for (id, header) in &fetched.history {
            if explained == Some(Some(id)) {
                explained = None;
            }
            if let Some(base) = pushes.get(id) {
                explained = Some(*base);
            }
            if explained.is_none() && header.as_ref().is_some_and(|header| self.is_own(header)) {
                return true;
            }
        }
        false
    }

    fn is_own(&self, header: &JournalHeader) -> bool {
        header.fleet == self.options.fleet && header.branch == self.options.key
    }

    /// Lists everything again, and asks the history what our commits wrote.
    pub(super) fn repair_loss(&mut self) {
        let scopes: Vec<TargetScope> = self.scopes.keys().cloned().collect();
        if !scopes.is_empty() {
            self.reclaim(&scopes);
            self.raise(scopes);
        }
    }

    /// True if this installation has written to the branch before, whatever became of its journals.
    fn has_own_commit(&self, fetched: &Fetched) -> bool {
        let mut headers = fetched.history.iter().filter_map(|(_, header)| header.as_ref());
        headers.any(|header| self.is_own(header))
    }

    /// Ids that commits of this journal in the branch's history stand for (F1).
    pub(super) fn evidence(&self, fetched: &Fetched) -> Evidence {
        let mut found = Evidence::default();
        for header in fetched.history.iter().filter_map(|(_, header)| header.as_ref()) {
            let ours = header.fleet == self.options.fleet
                && header.branch == self.options.key
                && header.incarnation == self.incarnation;
            if ours {
                found.floor = found.floor.max(header.floor);
                found.ids.extend(&header.consumed);
            }
        }
        found
    }

    /// Puts loaded entries on the account; answers those that still have to be committed, in order. An entry is passed,
    /// not applied, when it or a later one of its document is in the remote already, alone or with a list that covers it.
    fn owe(&mut self, loaded: &Loaded, evidence: &Evidence) -> Vec<StoredEntry> {
        let entries = &loaded.entries;
        let mut latest: BTreeMap<(upriver_model::TargetUid, Document), EntryId> = BTreeMap::new();
        let document = |stored: &StoredEntry| {
            let entry = &stored.entry;
            let group_resource = entry.gvr.group_resource().into();
            (entry.target.clone(), Document { group_resource, key: entry.key.clone() })
        };
        for stored in entries.iter().filter(|stored| evidence.holds(stored.id)) {
            latest.insert(document(stored), stored.id);
        }
        let mut owed = Vec::new();
        for stored in entries {
            if !self.ledger.owe(stored.id, stored.entry.size() as u64, stored.stamped_ms) {
                continue;
            }
            let superseded = latest.get(&document(stored)).is_some_and(|id| *id >= stored.id);
            let unwanted = self.plans.get(&stored.entry.target).is_none_or(|plan| plan.suspended);
            if evidence.holds(stored.id) || superseded || unwanted || is_listed(loaded, stored) {
                self.ledger.pass(stored.id, &stored.entry.target);
            } else {
                owed.push(stored.clone());
            }
        }
        owed
    }

    /// Entries that this release cannot read: they name no scope, so every scope is listed again, and they pass.
    fn drop_undecodable(&mut self, loaded: &Loaded) {
        if loaded.undecodable.is_empty() {
            return;
        }
        self.raise(self.scopes.keys().cloned().collect());
        // No header needs to name them: whatever they stood for is in the lists.
        let nobody = TargetUid::new("");
        for id in &loaded.undecodable {
            if self.ledger.owe(*id, 0, 0) {
                self.ledger.pass(*id, &nobody);
            }
        }
    }

    /// Attempts of a predecessor, or of an earlier life: settled by evidence, or left open because they may still land.
    pub(super) fn settle_old_attempts(&mut self, fetched: &Fetched) {
        let landed = |id: &CommitId| {
            fetched.base.expected_old() == Some(id) || fetched.history.iter().any(|(commit, _)| commit == id)
        };
        let (open, ended): (Vec<Attempt>, Vec<Attempt>) =
            std::mem::take(&mut self.open_attempts).into_iter().partition(|attempt| {
                attempt.intend.as_ref().is_some_and(|intend| {
                    !landed(&intend.new) && intend.base.as_ref() == fetched.base.expected_old()
                })
            });
        self.open_attempts = open;
        for attempt in ended {
            let pushed = attempt.intend.as_ref().is_some_and(|intend| landed(&intend.new));
            let outcome = if pushed { Outcome::AlreadyPresent } else { Outcome::Superseded };
            self.settle_attempt(&attempt, outcome);
        }
    }

    fn settle_attempt(&mut self, attempt: &Attempt, outcome: Outcome) {
        let freed_bytes = self.ledger.take_freed();
        self.out.push(Command::Settle(Box::new(Settle {
            attempt: attempt.id,
            outcome,
            floor: self.ledger.floor(),
            done: self.ledger.done().clone(),
            tip: None,
            subtrees: BTreeMap::new(),
            freed_bytes,
            refused: Vec::new(),
        })));
    }

    /// The folder of a target is not what our last push left: somebody else wrote, rewound or deleted. Replay it.
    pub(super) fn compare_subtrees(&mut self, fetched: &Fetched) {
        let mut drifted = Vec::new();
        for (target, found) in &fetched.subtrees {
            let expected = self.subtrees.get(target);
            if expected.is_some_and(|expected| expected != found) {
                drifted.extend(self.scopes.keys().filter(|scope| scope.target == *target).cloned());
            }
        }
        self.subtrees = fetched.subtrees.clone();
        if !drifted.is_empty() {
            if !fetched.joined {
                // Set back to before our last push: files of objects that are gone since may be there again.
                self.reclaim(&drifted);
            }
            self.raise(drifted);
        }
    }

    /// True while nothing may pass on "no diff" at this tip (F10).
    pub(super) fn late_landing(&self, base: &Base) -> bool {
        let open = self.open_attempts.iter().filter_map(|attempt| attempt.intend.as_ref());
        self.suspicious.as_ref() == Some(base)
            || open.into_iter().any(|intend| intend.base.as_ref() == base.expected_old())
    }
}

fn scope_of(stored: &StoredEntry) -> TargetScope {
    let entry = &stored.entry;
    TargetScope { target: entry.target.clone(), gvr: entry.gvr.clone(), scope: entry.scope.clone() }
}

/// True if the entry's scope was not dirty when its last owner ended.
fn was_settled(loaded: &Loaded, stored: &StoredEntry) -> bool {
    let key = scope_of(stored).as_key();
    let generation = loaded.generations.get(&key).copied().unwrap_or(0);
    loaded.settled.get(&key).is_some_and(|record| {
        record.generation == generation && Paid::parse(&record.spec_hash).list_rv.is_some()
    })
}

/// True if a list that settled the entry's scope holds it, or what came after it (F3d).
fn is_listed(loaded: &Loaded, stored: &StoredEntry) -> bool {
    let record = loaded.settled.get(&scope_of(stored).as_key());
    record
        .and_then(|record| Paid::parse(&record.spec_hash).list_rv)
        .is_some_and(|list| covered(stored, &list))
}

/// What the remote holds of this journal.
#[derive(Clone, Debug, Default)]
pub(super) struct Evidence {
    floor: EntryId,
    ids: IdSet,
}

impl Evidence {
    pub(super) fn holds(&self, id: EntryId) -> bool {
        id <= self.floor || self.ids.contains(id)
    }
}
