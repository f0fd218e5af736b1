//! What a branch owner shows: per target, how its streams and its delivery are.

use std::collections::BTreeMap;

use upriver_model::{CommitId, Failure, Outcome, TargetScope, TargetUid};

use super::{Branch, Phase, WatchHealth};
use crate::time::Tick;

/// A branch at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BranchView {
    /// True once the journal is loaded and the branch was read.
    pub running: bool,
    /// Last outcome of an attempt.
    pub outcome: Option<Outcome>,
    /// What is wrong now.
    pub failure: Option<Failure>,
    /// How the journal is.
    pub journal: JournalState,
    /// How often in a row it has failed.
    pub failures: u32,
    /// True if nothing but a change by a person ends the failure.
    pub parked: bool,
    /// When a failed attempt is tried again.
    pub next_attempt: Option<Tick>,
    /// Entries that are owed.
    pub depth: usize,
    /// When the oldest of them became durable, by the store's clock, milliseconds since 1970.
    pub oldest_ms: Option<i64>,
    /// Tip that our last settled attempt knew.
    pub tip: Option<CommitId>,
    /// Files that we do not touch, with the reason.
    pub refused: BTreeMap<String, String>,
    /// The targets.
    pub targets: BTreeMap<TargetUid, TargetView>,
}

/// How a branch's journal is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JournalState {
    /// It takes entries.
    #[default]
    Open,
    /// The store does not answer, or is being returned to; nothing advances.
    Unavailable,
    /// It is at its limit: the watches are not read further until a push makes room.
    Full,
}

/// One target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetView {
    /// Its scopes.
    pub scopes: BTreeMap<TargetScope, ScopeView>,
    /// Windows and replays that wait for a push.
    pub waiting: usize,
    /// Paused by a person.
    pub suspended: bool,
    /// The last request for a recheck that was acted upon.
    pub handled: Option<String>,
}

/// One scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScopeView {
    /// Events flow and its files are in the remote.
    Ready,
    /// A list or its push is in flight.
    Replaying,
    /// Its watch cannot run.
    Blocked {
        /// Reason word.
        reason: &'static str,
        /// Message.
        message: String,
    },
}

impl Branch {
    /// The view now.
    #[must_use]
    pub fn view(&self) -> BranchView {
        let mut targets: BTreeMap<TargetUid, TargetView> = BTreeMap::new();
        for plan in self.plans.values() {
            let view = targets.entry(plan.uid.clone()).or_default();
            view.waiting = self.units_of(&plan.uid);
            view.suspended = plan.suspended;
            view.handled = self.handled.get(&plan.uid).cloned();
            if plan.suspended {
                continue;
            }
            for subscription in &plan.subscriptions {
                view.scopes.insert(subscription.scope.clone(), self.scope_view(&subscription.scope));
            }
        }
        BranchView {
            running: self.phase == Phase::Running,
            outcome: self.outcome,
            failure: self.failure.clone(),
            journal: self.journal_state(),
            failures: self.git_failures.max(self.store_failures),
            parked: self.is_parked(),
            next_attempt: self.next_attempt_at(),
            depth: self.ledger.depth(),
            oldest_ms: self.ledger.oldest_ms(),
            tip: self.last_settled.clone(),
            refused: self.refused.clone(),
            targets,
        }
    }

    fn journal_state(&self) -> JournalState {
        let away = self.store_failures > 0
            && matches!(self.phase, Phase::Down { .. } | Phase::Proving | Phase::Adopting | Phase::Loading);
        if away {
            JournalState::Unavailable
        } else if self.full {
            JournalState::Full
        } else {
            JournalState::Open
        }
    }

    fn scope_view(&self, key: &TargetScope) -> ScopeView {
        let Some(scope) = self.scopes.get(key) else { return ScopeView::Replaying };
        let health = self.watches.get(&scope.subscription.watch).map(|watch| &watch.health);
        match health {
            Some(WatchHealth::Blocked { reason, message }) => {
                ScopeView::Blocked { reason, message: message.clone() }
            }
            Some(WatchHealth::Live) if scope.settled => ScopeView::Ready,
            Some(WatchHealth::Live | WatchHealth::Replaying) | None => ScopeView::Replaying,
        }
    }
}
