//! Streams, counted by type: a type has the state of its worst scope.

use std::collections::BTreeMap;

use upriver_api::condition::{Finding, Gate, types};
use upriver_api::shared::StreamCounts;
use upriver_api::{ConditionStatus, Reason};
use upriver_engine::branch::{ScopeView, TargetView};
use upriver_model::{Gvr, TargetScope};

use ConditionStatus::{False, True};

/// Names in a rule's sample of types that are not ready.
const SAMPLE: usize = 5;

/// A type and the state of its worst scope.
pub(super) type States<'a> = BTreeMap<&'a Gvr, &'a ScopeView>;

/// A scope that its owner has not taken up yet.
static COMING: ScopeView = ScopeView::Replaying;

/// States of the types in `scopes`.
pub(super) fn states<'a>(view: &'a TargetView, scopes: &'a [TargetScope]) -> States<'a> {
    let mut worst: States<'a> = BTreeMap::new();
    for scope in scopes {
        let state = view.scopes.get(scope).unwrap_or(&COMING);
        let entry = worst.entry(&scope.gvr).or_insert(state);
        if rank(state) > rank(entry) {
            *entry = state;
        }
    }
    worst
}

fn rank(state: &ScopeView) -> u8 {
    match state {
        ScopeView::Ready => 0,
        ScopeView::Replaying => 1,
        ScopeView::Blocked { .. } => 2,
    }
}

pub(super) fn tally(states: &States<'_>) -> StreamCounts {
    let count = |wanted: u8| {
        i32::try_from(states.values().filter(|state| rank(state) == wanted).count()).unwrap_or(i32::MAX)
    };
    StreamCounts::new(count(0), count(1), count(2))
}

/// Up to five types that are not ready, blocked ones first, as `plural` or `plural.group`.
pub(super) fn sample(states: &States<'_>) -> Vec<String> {
    let mut pending: Vec<(&Gvr, u8)> =
        states.iter().map(|(gvr, state)| (*gvr, rank(state))).filter(|(_, rank)| *rank > 0).collect();
    pending.sort_by_key(|(_, rank)| std::cmp::Reverse(*rank));
    pending.into_iter().take(SAMPLE).map(|(gvr, _)| name(gvr)).collect()
}

fn name(gvr: &Gvr) -> String {
    if gvr.group.is_empty() { gvr.resource.to_string() } else { format!("{}.{}", gvr.resource, gvr.group) }
}

pub(super) fn gate(states: &States<'_>) -> (Finding, Gate) {
    let finding =
        |status, reason: String, message: &str| Finding::new(types::STREAMS_RUNNING, status, reason, message);
    for (gvr, state) in states {
        if let ScopeView::Blocked { reason, message } = state {
            let message = format!("{gvr}: {message}");
            let gate = Gate::blocked(*reason, &message);
            return (finding(False, (*reason).to_owned(), &message), gate);
        }
    }
    let replaying = states.values().filter(|state| matches!(state, ScopeView::Replaying)).count();
    if replaying > 0 {
        let message = format!("{replaying} of {} lists are on their way into the branch", states.len());
        return (
            finding(False, Reason::Replaying.into(), &message),
            Gate::waiting(Reason::Replaying, message),
        );
    }
    if states.is_empty() {
        return (finding(True, Reason::NoResolvedTypes.into(), "nothing is selected"), Gate::Open);
    }
    (finding(True, Reason::AllStreamsReady.into(), "every stream follows live changes"), Gate::Open)
}

/// While the owner of the branch has not started.
pub(super) fn not_started() -> (Finding, Gate) {
    let message = "the branch's owner has not started yet";
    let finding = Finding::new(types::STREAMS_RUNNING, False, Reason::Progressing, message);
    (finding, Gate::waiting(Reason::Progressing, message))
}
