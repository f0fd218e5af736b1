//! Push rounds: reserve → tip T → build on T → proof if T was fetched → intend → push with expected-old = T → settle.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use upriver_model::{
    Attempt, AttemptId, CommitId, Failure, FailureClass, IdSet, Intend, Outcome, TargetScope, TargetUid,
    Trigger,
};
use upriver_store::{Deferred, Note, Settle};

use super::{Base, Branch, Built, Command, Phase, Replayed, Unit, UnitKind};
use crate::retry::{self, Retry};
use crate::time::Tick;

/// How often an unmoved tip is read again while nothing may pass on "no diff", milliseconds.
const REREAD_MS: u64 = 5_000;
/// Shorter waits are not worth a write to the store.
const DURABLE_WAIT_MS: u64 = 4_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Reserving,
    Fetching,
    Building,
    Proving,
    Intending,
    Pushing,
    /// The outcome of a push is not known: the ref tells.
    Reading,
    Settling,
    /// After a failure; `None` waits for a change made by a person.
    Waiting {
        until: Option<Tick>,
    },
    /// No diff, but a push still in flight might land on this tip (F10).
    Blocked {
        since: Tick,
        next: Tick,
        reading: bool,
    },
}

/// One round.
#[derive(Clone, Debug)]
pub(super) struct Round {
    pub(super) id: AttemptId,
    pub(super) units: Vec<Unit>,
    pub(super) stage: Stage,
    pub(super) base: Base,
    /// True if the base was fetched in this round, so that a proof sent after it is needed (F9).
    pub(super) fetched: bool,
    pub(super) rebuilt: bool,
    pub(super) built: Option<Built>,
    /// Tips that were sent onto this base, with the number of units that each holds: any of them may still land.
    pub(super) sent: Vec<(CommitId, usize)>,
    /// Units that an earlier push of this round has brought into the remote after all.
    pub(super) landed: Vec<Unit>,
    pub(super) outcome: Outcome,
}

impl Branch {
    pub(super) fn round_deadline(&self) -> Option<Tick> {
        match self.round.as_ref()?.stage {
            Stage::Waiting { until } => until,
            Stage::Blocked { next, reading: false, .. } => Some(next),
            Stage::Blocked { .. }
            | Stage::Reserving
            | Stage::Fetching
            | Stage::Building
            | Stage::Proving
            | Stage::Intending
            | Stage::Pushing
            | Stage::Reading
            | Stage::Settling => None,
        }
    }

    /// Starts what may start, and goes on with what has waited long enough.
    pub(super) fn pump(&mut self, now: Tick) {
        let Some(round) = &mut self.round else {
            if !self.queue.is_empty() {
                self.start_round();
            } else if self.ledger.has_news() {
                self.settle_passed();
            } else if now >= self.next_poll {
                self.next_poll = now + self.options.drift_poll_ms;
                self.out.push(Command::ReadRef);
            }
            return;
        };
        match round.stage {
            Stage::Waiting { until: Some(until) } if now >= until => self.refetch(),
            Stage::Blocked { next, reading: false, since } if now >= next => {
                round.stage = Stage::Blocked { since, next: now + REREAD_MS, reading: true };
                self.out.push(Command::ReadRef);
            }
            Stage::Waiting { .. }
            | Stage::Blocked { .. }
            | Stage::Reserving
            | Stage::Fetching
            | Stage::Building
            | Stage::Proving
            | Stage::Intending
            | Stage::Pushing
            | Stage::Reading
            | Stage::Settling => {}
        }
    }

    fn fresh_attempt(&mut self) -> AttemptId {
        let id = AttemptId { epoch: self.options.epoch.as_key(), n: self.next_attempt };
        self.next_attempt += 1;
        id
    }

    fn start_round(&mut self) {
        let id = self.fresh_attempt();
        let units: Vec<Unit> = self.queue.drain(..).collect();
        let mut entries = IdSet::new();
        for unit in &units {
            entries.extend(&unit.entries);
        }
        let trigger = if units.iter().any(|unit| matches!(unit.kind, UnitKind::Replay(_))) {
            Trigger::Snapshot
        } else if std::mem::take(&mut self.taken_over) {
            Trigger::Takeover
        } else {
            Trigger::WindowClose
        };
        self.out.push(Command::Reserve(Attempt { id, trigger, entries, intend: None }));
        self.round = Some(Round {
            id,
            units,
            stage: Stage::Reserving,
            base: Base::Unborn,
            fetched: false,
            rebuilt: false,
            built: None,
            sent: Vec::new(),
            landed: Vec::new(),
            outcome: Outcome::Unknown,
        });
    }

    pub(super) fn reserved(&mut self) {
        let Some(round) = self.round.as_mut().filter(|round| round.stage == Stage::Reserving) else { return };
        match &self.tip {
            Some((base, own)) => {
                round.base = base.clone();
                // A tip fetched while recovering was fetched before this round: prove as if it were now.
                round.fetched = !*own;
                self.build();
            }
            None => {
                round.stage = Stage::Fetching;
                self.out.push(Command::Fetch { until: self.last_settled.clone() });
            }
        }
    }

    /// A rebuild is a new round of the same order, never a shortcut; what has closed meanwhile joins it.
    pub(super) fn refetch(&mut self) {
        self.tip = None;
        let joined: Vec<Unit> = self.queue.drain(..).collect();
        let until = self.last_settled.clone();
        let Some(round) = &mut self.round else { return };
        round.units.extend(joined);
        round.rebuilt = true;
        round.stage = Stage::Fetching;
        self.out.push(Command::Fetch { until });
    }

    pub(super) fn build(&mut self) {
        let Some(round) = &self.round else { return };
        let base = round.base.clone();
        let units = round.units.iter().map(|unit| (unit.clone(), self.header(unit))).collect();
        self.out.push(Command::Build { base, units: Arc::new(units) });
        if let Some(round) = &mut self.round {
            round.stage = Stage::Building;
        }
    }

    pub(super) fn built(&mut self, now: Tick, result: Result<Box<Built>, Failure>) {
        if self.round.as_ref().is_none_or(|round| round.stage != Stage::Building) {
            return;
        }
        let built = match result {
            Ok(built) => *built,
            Err(failure) => return self.round_failed(now, failure),
        };
        let Some(round) = &mut self.round else { return };
        let makes_news = built.new.is_some();
        // What evidence has passed does not pass on "no diff".
        let nothing_left = round.units.is_empty();
        round.built = Some(built);
        let (base, fetched) = (round.base.clone(), round.fetched);
        if makes_news && fetched {
            round.stage = Stage::Proving;
            self.out.push(Command::Prove);
        } else if makes_news {
            self.intend();
        } else if !nothing_left && self.late_landing(&base) {
            self.block(now);
        } else {
            self.settle(Outcome::NoChange);
        }
    }

    pub(super) fn block(&mut self, now: Tick) {
        let fence_after = self.options.fence_after_ms;
        let Some(round) = &mut self.round else { return };
        let since = match round.stage {
            Stage::Blocked { since, .. } => since,
            Stage::Reserving
            | Stage::Fetching
            | Stage::Building
            | Stage::Proving
            | Stage::Intending
            | Stage::Pushing
            | Stage::Reading
            | Stage::Settling
            | Stage::Waiting { .. } => now,
        };
        let next = (now + REREAD_MS).min(since + fence_after);
        round.stage = Stage::Blocked { since, next, reading: false };
    }

    pub(super) fn round_proven(&mut self) {
        if self.round.as_ref().is_some_and(|round| round.stage == Stage::Proving) {
            self.intend();
        }
    }

    fn intend(&mut self) {
        let Some(round) = &mut self.round else { return };
        let Some(new) = round.built.as_ref().and_then(|built| built.new.clone()) else { return };
        round.stage = Stage::Intending;
        round.sent.push((new.clone(), round.units.len()));
        let base = round.base.expected_old().cloned();
        self.out.push(Command::Intend(round.id, Intend { base, new }));
    }

    pub(super) fn intended(&mut self, now: Tick, open: bool) {
        let Some(round) = &mut self.round else { return };
        if round.stage != Stage::Intending {
            return;
        }
        if open {
            round.stage = Stage::Pushing;
            self.out.push(Command::Push);
        } else {
            let message = format!("attempt {} was settled before it was sent", round.id);
            self.round_failed(now, Failure::new(FailureClass::Internal, message));
        }
    }

    pub(super) fn pushed(&mut self, now: Tick, result: Result<(), Failure>) {
        let Some(round) = &mut self.round else { return };
        if round.stage != Stage::Pushing {
            return;
        }
        match result {
            Ok(()) => self.push_landed(),
            Err(failure) if failure.class == FailureClass::Uncertain => {
                round.stage = Stage::Reading;
                self.failure = Some(failure);
                self.out.push(Command::ReadRef);
            }
            Err(failure) => self.round_failed(now, failure),
        }
    }

    pub(super) fn push_landed(&mut self) {
        let Some(round) = &self.round else { return };
        let replay = |unit: &Unit| matches!(unit.kind, UnitKind::Replay(_));
        let outcome = if round.rebuilt {
            Outcome::Rebased
        } else if !round.units.is_empty() && round.units.iter().all(replay) {
            Outcome::Replayed
        } else {
            Outcome::Pushed
        };
        self.settle(outcome);
    }

    /// Shows a failure. One that nothing but a fix of the program ends is set aside.
    pub(super) fn note_failure(&mut self, failure: Failure) {
        let quarantined = failure.class == FailureClass::Internal && self.is_parked();
        self.outcome = Some(if quarantined { Outcome::Quarantined } else { failure.class.outcome() });
        self.failure = Some(failure);
    }

    /// When a failed operation is tried again; `None` waits for a person. A long wait is durable, so that no crash loop
    /// hammers the host.
    pub(super) fn defer(&mut self, now: Tick, failure: &Failure) -> Option<Tick> {
        self.git_failures += 1;
        let retry = retry::schedule(failure.class, self.git_failures, failure.floor_s, &mut self.dice);
        let Retry::After(delay_ms) = retry else { return None };
        if delay_ms >= DURABLE_WAIT_MS {
            let failures = self.git_failures;
            let deferred = Deferred { failure: failure.clone(), failures, delay_ms };
            self.out.push(Command::Note(Note::Deferred(deferred)));
        }
        Some(now + delay_ms)
    }

    pub(super) fn round_failed(&mut self, now: Tick, failure: Failure) {
        if self.round.is_none() {
            self.note_failure(failure);
            return;
        }
        let until = self.defer(now, &failure);
        if let Some(round) = &mut self.round {
            round.stage = Stage::Waiting { until };
        }
        self.tip = None;
        // Losing a race is not a failure to show.
        if failure.class != FailureClass::Superseded {
            self.note_failure(failure);
        }
    }

    /// A person changed something: whatever waits tries again at once.
    pub(super) fn retry_now(&mut self, now: Tick) {
        self.git_failures = 0;
        if matches!(self.phase, Phase::FetchFailed { .. }) {
            self.phase = Phase::FetchFailed { until: Some(now) };
        }
        if let Some(round) = &mut self.round
            && matches!(round.stage, Stage::Waiting { .. })
        {
            round.stage = Stage::Waiting { until: Some(now) };
        }
    }

    pub(super) fn pass_all(&mut self, unit: &Unit) {
        for id in unit.entries.iter().collect::<Vec<_>>() {
            self.ledger.pass(id, &unit.target);
        }
    }

    fn settle(&mut self, outcome: Outcome) {
        let Some(round) = &mut self.round else { return };
        round.stage = Stage::Settling;
        round.outcome = outcome;
        let id = round.id;
        let mut units = std::mem::take(&mut round.landed);
        units.append(&mut round.units);
        let built = round.built.clone();
        for unit in &units {
            self.pass_all(unit);
        }
        let mut refused = Vec::new();
        let mut tip = None;
        if let Some(built) = built {
            for result in built.results {
                for (path, reason) in result.refused {
                    if reason.is_some() || self.refused.contains_key(&path) {
                        self.note_refused(&path, reason.as_deref());
                        refused.push((path, reason));
                    }
                }
            }
            self.subtrees = built.subtrees;
            tip = built.new;
        }
        self.moved_to(tip.as_ref());
        let freed_bytes = self.ledger.take_freed();
        self.out.push(Command::Settle(Box::new(Settle {
            attempt: id,
            outcome,
            floor: self.ledger.floor(),
            done: self.ledger.done().clone(),
            tip: tip.or_else(|| self.tip.as_ref().and_then(|(base, _)| base.expected_old().cloned())),
            subtrees: self.subtrees.clone(),
            freed_bytes,
            refused,
        })));
        if let Some(round) = &mut self.round {
            round.units = units;
        }
    }

    fn note_refused(&mut self, path: &str, reason: Option<&str>) {
        match reason {
            Some(reason) => self.refused.insert(path.to_owned(), reason.to_owned()),
            None => self.refused.remove(path),
        };
    }

    pub(super) fn settled(&mut self, now: Tick, attempt: AttemptId) {
        let settling =
            self.round.as_ref().is_some_and(|round| round.stage == Stage::Settling && round.id == attempt);
        if !settling {
            return;
        }
        let Some(round) = self.round.take() else { return };
        self.git_failures = 0;
        self.failure = None;
        self.outcome = Some(round.outcome);
        self.next_poll = now + self.options.drift_poll_ms;
        for unit in &round.units {
            if let UnitKind::Replay(replayed) = &unit.kind
                && !replayed.void
            {
                self.clear(replayed);
            }
        }
    }

    /// Entries that a settled list covers, or of deleted targets, pass without a push.
    fn settle_passed(&mut self) {
        let id = self.fresh_attempt();
        let freed_bytes = self.ledger.take_freed();
        self.out.push(Command::Settle(Box::new(Settle {
            attempt: id,
            outcome: Outcome::NoChange,
            floor: self.ledger.floor(),
            done: self.ledger.done().clone(),
            tip: None,
            subtrees: BTreeMap::new(),
            freed_bytes,
            refused: Vec::new(),
        })));
    }

    /// True while a failure waits for a person, not for a moment.
    pub(super) fn is_parked(&self) -> bool {
        let waiting = self.round.as_ref().map(|round| &round.stage);
        self.phase == Phase::FetchFailed { until: None } || waiting == Some(&Stage::Waiting { until: None })
    }

    /// True while work waits for a person or a backoff.
    pub(super) fn next_attempt_at(&self) -> Option<Tick> {
        match self.phase {
            Phase::FetchFailed { until } => until,
            Phase::Down { until } => Some(until),
            Phase::Proving
            | Phase::Adopting
            | Phase::Loading
            | Phase::Fetching
            | Phase::Running
            | Phase::Ended => match self.round.as_ref()?.stage {
                Stage::Waiting { until } => until,
                Stage::Reserving
                | Stage::Fetching
                | Stage::Building
                | Stage::Proving
                | Stage::Intending
                | Stage::Pushing
                | Stage::Reading
                | Stage::Settling
                | Stage::Blocked { .. } => None,
            },
        }
    }

    /// Replays that wait or fly and still pay something.
    pub(super) fn replays_mut(&mut self) -> impl Iterator<Item = &mut Replayed> {
        let flying = self.round.iter_mut().flat_map(|round| &mut round.units);
        self.queue.iter_mut().chain(flying).filter_map(|unit| match &mut unit.kind {
            UnitKind::Replay(replayed) => Some(&mut **replayed).filter(|replayed| !replayed.void),
            UnitKind::Window | UnitKind::Fence => None,
        })
    }

    /// Scopes whose present obligation is paid by a replay that waits or flies.
    pub(super) fn replays_under_way(&mut self) -> BTreeSet<TargetScope> {
        let wanted: BTreeMap<TargetScope, u64> =
            self.scopes.iter().map(|(key, scope)| (key.clone(), scope.generation)).collect();
        self.replays_mut()
            .filter(|replayed| wanted.get(&replayed.scope) == Some(&replayed.generation))
            .map(|replayed| replayed.scope.clone())
            .collect()
    }

    /// Number of units that wait or fly, for views and tests.
    pub(super) fn units_of(&self, target: &TargetUid) -> usize {
        let flying = self.round.iter().flat_map(|round| &round.units);
        self.queue.iter().chain(flying).filter(|unit| unit.target == *target).count()
    }
}
