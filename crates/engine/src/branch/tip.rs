//! Where is the branch's tip, who left it, and what do we do when it is not where we left it?
//!
//! In: fetched tips, refs that were read. Out: units that have landed after all, drift, rebuilds, the fence (F10).

use std::collections::{BTreeMap, BTreeSet};

use upriver_model::{
    Author, CommitId, EntryId, Failure, FailureClass, IdSet, Outcome, TargetScope, TargetUid,
};

use super::round::Stage;
use super::{Base, Branch, Command, Fetched, Phase, Unit, UnitKind};
use crate::time::Tick;

impl Branch {
    pub(super) fn fetched(&mut self, now: Tick, result: Result<Box<Fetched>, Failure>) {
        if self.phase == Phase::Fetching {
            match result {
                Ok(fetched) => self.recover(now, &fetched),
                Err(failure) => self.first_fetch_failed(now, failure),
            }
            return;
        }
        match result {
            Ok(fetched) => self.fetched_tip(&fetched),
            Err(failure) if self.round.as_ref().is_some_and(|round| round.stage == Stage::Fetching) => {
                self.round_failed(now, failure);
            }
            // An idle look that a round has overtaken.
            Err(failure) => self.note_failure(failure),
        }
    }

    fn fetched_tip(&mut self, fetched: &Fetched) {
        self.tip = Some((fetched.base.clone(), false));
        self.forgive_moved_tip(&fetched.base);
        if self.has_unexplained_commit(fetched, &self.open_attempts) {
            // A push of somebody whose journal is lost, landed late.
            self.repair_loss();
        }
        self.settle_old_attempts(fetched);
        let evidence = self.evidence(fetched);
        let landed = self.take_landed(fetched);
        if landed {
            // What our push left: whatever differs from it later was somebody else.
            self.subtrees = fetched.subtrees.clone();
        } else {
            self.compare_subtrees(fetched);
        }
        let Some(round) = &mut self.round else { return };
        if round.stage != Stage::Fetching {
            return;
        }
        round.base = fetched.base.clone();
        round.fetched = true;
        // A list that pays nothing any more may be older than what is in the remote by now; a newer one is on its way.
        let current = |unit: &Unit| match &unit.kind {
            UnitKind::Replay(replayed) => self
                .scopes
                .get(&replayed.scope)
                .is_some_and(|scope| !replayed.void && scope.generation == replayed.generation),
            UnitKind::Window | UnitKind::Fence => true,
        };
        let mut units = std::mem::take(&mut round.units);
        units.retain(current);
        let (in_remote, owed): (Vec<Unit>, Vec<Unit>) = units
            .into_iter()
            .partition(|unit| !unit.entries.is_empty() && unit.entries.iter().all(|id| evidence.holds(id)));
        round.units = owed;
        // Of a unit that is there in part, the rest remains: no entry is in two commits.
        let mut in_part = Vec::new();
        for unit in &mut round.units {
            let (held, rest): (Vec<EntryId>, Vec<EntryId>) =
                unit.entries.iter().partition(|id| evidence.holds(*id));
            if !held.is_empty() {
                unit.entries = rest.into_iter().collect();
                in_part.extend(held.into_iter().map(|id| (id, unit.target.clone())));
            }
        }
        for (id, target) in in_part {
            self.ledger.pass(id, &target);
        }
        for unit in in_remote {
            self.pass_all(&unit);
        }
        self.build();
    }

    /// A push of this round whose outcome was not known has landed: its units are in the remote, replays included, and must
    /// not be applied to what came after them. True if nothing came on top of it.
    fn take_landed(&mut self, fetched: &Fetched) -> bool {
        let tip = fetched.base.expected_old();
        let Some(round) = &mut self.round else { return false };
        let in_remote =
            |id: &CommitId| tip == Some(id) || fetched.history.iter().any(|(commit, _)| commit == id);
        let landed =
            round.sent.iter().filter(|(id, _)| in_remote(id)).max_by_key(|(_, units)| *units).cloned();
        if round.base.expected_old() != tip {
            // Whatever was sent onto another base is refused from now on.
            round.sent.clear();
        }
        let Some((id, units)) = landed else { return false };
        let rest = round.units.split_off(units.min(round.units.len()));
        let units = std::mem::replace(&mut round.units, rest);
        for unit in &units {
            self.pass_all(unit);
        }
        let targets: BTreeSet<TargetUid> = units.iter().map(|unit| unit.target.clone()).collect();
        if let Some(round) = &mut self.round {
            round.landed.extend(units);
        }
        let on_top = tip == Some(&id);
        if !on_top {
            // Somebody came on top before we knew what our push left: there is nothing to compare with.
            let scopes = self.scopes.keys().filter(|scope| targets.contains(&scope.target));
            let scopes: Vec<TargetScope> = scopes.cloned().collect();
            if !scopes.is_empty() {
                self.raise(scopes);
            }
        }
        on_top
    }

    fn forgive_moved_tip(&mut self, base: &Base) {
        if self.suspicious.as_ref().is_some_and(|found| found != base) {
            self.suspicious = None;
        }
    }

    pub(super) fn ref_read(&mut self, now: Tick, result: Result<Option<CommitId>, Failure>) {
        let tip = match result {
            Ok(tip) => tip,
            Err(failure) => {
                // An idle look is not the round's, even if one has begun since.
                let asked = self.round.as_ref().is_some_and(|round| {
                    matches!(round.stage, Stage::Reading | Stage::Blocked { reading: true, .. })
                });
                if asked {
                    self.round_failed(now, failure);
                } else {
                    self.note_failure(failure);
                }
                return;
            }
        };
        let Some(round) = &mut self.round else {
            self.polled(tip.as_ref());
            return;
        };
        let new = round.built.as_ref().and_then(|built| built.new.as_ref());
        match round.stage {
            Stage::Reading if new.is_some() && tip.as_ref() == new => self.push_landed(),
            Stage::Reading => {
                let message = "the connection broke inside the push; the branch does not hold it yet";
                self.round_failed(now, Failure::new(FailureClass::Uncertain, message));
            }
            Stage::Blocked { since, .. } => {
                if tip.as_ref() != round.base.expected_old() {
                    self.refetch();
                } else if now.since(since) >= self.options.fence_after_ms {
                    self.fence();
                } else {
                    self.block(now);
                }
            }
            Stage::Reserving
            | Stage::Fetching
            | Stage::Building
            | Stage::Proving
            | Stage::Intending
            | Stage::Pushing
            | Stage::Settling
            | Stage::Waiting { .. } => {}
        }
    }

    /// An idle look at the branch: somebody else may have moved, rewound or deleted it.
    fn polled(&mut self, tip: Option<&CommitId>) {
        self.outcome = self.outcome.filter(|outcome| *outcome != Outcome::Unreachable);
        self.failure = None;
        self.git_failures = 0;
        let known = self.tip.as_ref().map(|(base, _)| base.expected_old().cloned());
        if known != Some(tip.cloned()) {
            self.tip = None;
            self.out.push(Command::Fetch { until: self.last_settled.clone() });
        }
    }

    /// Adds an empty commit, in the name of a target that still exists: nobody builds for another.
    fn fence(&mut self) {
        let Some(round) = &mut self.round else { return };
        let fenced = round.units.iter().any(|unit| unit.kind == UnitKind::Fence);
        let of_unit = round.units.iter().map(|unit| &unit.target).find(|uid| self.plans.contains_key(*uid));
        if let (false, Some(target)) = (fenced, of_unit.or_else(|| self.plans.keys().next()).cloned()) {
            let time_ms = round.units.last().map_or(0, |unit| unit.time_ms);
            round.units.push(Unit {
                target,
                author: Author::NotAttempted,
                kind: UnitKind::Fence,
                changes: Vec::new(),
                entries: IdSet::new(),
                time_ms,
            });
        }
        self.build();
    }

    /// Our push left this tip: every older attempt on another base is refused by the remote from now on.
    pub(super) fn moved_to(&mut self, tip: Option<&CommitId>) {
        if let Some(tip) = tip {
            let base = Base::Branch(tip.clone());
            self.tip = Some((base.clone(), true));
            self.suspicious = None;
            let fetched = Fetched { base, history: Vec::new(), joined: true, subtrees: BTreeMap::new() };
            self.settle_old_attempts(&fetched);
        }
        self.last_settled = self.tip.as_ref().and_then(|(base, _)| base.expected_old().cloned());
    }
}
