//! Findings of each kind, as the contract of the API names them.

use upriver_api::condition::{Finding, Gate, types};
use upriver_api::shared::StreamCounts;
use upriver_api::{ConditionStatus, Reason};
use upriver_engine::branch::{BranchView, JournalState, ScopeView, TargetView};
use upriver_model::{Failure, FailureClass, TargetScope};

use super::compile::{Refusal, RuleVerdict, TargetVerdict};
use super::snapshot::{OwnedBranch, Probe, ProbeFailure};

use ConditionStatus::{False, True, Unknown};

/// Files named in a message; the rest is counted.
const NAMED_FILES: usize = 5;

/// The only gate of a GitProvider.
pub(super) fn provider_gate(probe: Option<&Probe>, generation: i64) -> Gate {
    let Some(probe) = probe.filter(|probe| probe.generation == generation) else {
        return Gate::unobserved(Reason::Progressing, "the connection has not been tried yet");
    };
    match &probe.result {
        Ok(()) => Gate::Open,
        Err(ProbeFailure::SecretNotFound(message)) => Gate::blocked(Reason::SecretNotFound, message),
        Err(ProbeFailure::SecretMalformed(message)) => Gate::blocked(Reason::SecretMalformed, message),
        Err(ProbeFailure::NotYetSupported(message)) => Gate::blocked(Reason::NotYetSupported, message),
        Err(ProbeFailure::Connection(failure)) => {
            Gate::blocked(Reason::ConnectionFailed, failure.to_string())
        }
    }
}

/// What is known of a target from elsewhere.
pub(super) struct TargetFacts<'a> {
    pub(super) verdict: &'a TargetVerdict,
    pub(super) provider: Option<Gate>,
    pub(super) owned: Option<&'a OwnedBranch>,
    pub(super) view: Option<&'a TargetView>,
    pub(super) path: &'a str,
    pub(super) skipped_secrets: usize,
    pub(super) suspended: bool,
}

/// All conditions of a GitTarget, and its streams.
pub(super) fn target(facts: &TargetFacts<'_>) -> (Vec<Finding>, Option<StreamCounts>) {
    if let Some(refusal) = &facts.verdict.refusal {
        return (refused_target(refusal), None);
    }
    if facts.suspended {
        return (suspended_target(), None);
    }
    let streams = counts(facts.view);
    let going = "spec.suspend is not set";
    let mut findings = vec![
        Finding::new(types::SUSPENDED, False, Reason::NotSuspended, going),
        Finding::new(types::VALIDATED, True, Reason::Succeeded, "references, branch and path are good"),
    ];
    let mut gates = Vec::new();
    let mut add = |finding: Finding, gate: Gate| {
        findings.push(finding);
        gates.push(gate);
    };
    add_pair(&mut add, encryption(facts));
    add_pair(&mut add, path_accepted(facts));
    add_pair(&mut add, running(facts.view));
    add_pair(&mut add, provider_ready(facts.provider.as_ref()));
    add_pair(&mut add, delivering(facts));
    add_pair(&mut add, owned(facts.owned));
    let nothing = "nothing is rendered, every document is written whole";
    findings.push(Finding::new(types::RENDER_MATCHES_LIVE, True, Reason::RenderMatchesLive, nothing));
    let local = "the cluster that holds this object";
    findings.push(Finding::new(types::SOURCE_CLUSTER_REACHABLE, True, Reason::LocalCluster, local));
    let cluster = "the ClusterProvider is ready";
    findings.push(Finding::new(types::CLUSTER_PROVIDER_READY, True, Reason::ClusterProviderReady, cluster));
    findings.extend(upriver_api::condition::trio(&gates, "live changes reach the branch"));
    (findings, streams)
}

fn add_pair(add: &mut impl FnMut(Finding, Gate), (finding, gate): (Finding, Gate)) {
    add(finding, gate);
}

/// Nothing is known of the rest while nobody looks.
fn suspended_target() -> Vec<Finding> {
    let message = "paused by spec.suspend: nothing is watched or written, and what changes meanwhile follows when it is \
                   removed (next action: resume)";
    let valid = "references, branch and path are good";
    let mut findings = vec![
        Finding::new(types::VALIDATED, True, Reason::Succeeded, valid),
        Finding::new(types::SUSPENDED, True, Reason::Suspended, message),
        Finding::new(types::STREAMS_RUNNING, False, Reason::Suspended, message),
        Finding::new(types::DELIVERING, False, Reason::Suspended, message),
    ];
    let unknown = [types::GIT_PATH_ACCEPTED, types::RENDER_MATCHES_LIVE];
    findings.extend(unknown.map(|type_| Finding::new(type_, Unknown, Reason::Suspended, message)));
    findings.extend(upriver_api::condition::trio(&[Gate::Paused { message: message.to_owned() }], ""));
    findings
}

fn refused_target(refusal: &Refusal) -> Vec<Finding> {
    let mut findings = vec![Finding::new(types::VALIDATED, False, refusal.reason, &refusal.message)];
    let blocked = [
        types::ENCRYPTION_CONFIGURED,
        types::GIT_PATH_ACCEPTED,
        types::STREAMS_RUNNING,
        types::GIT_PROVIDER_READY,
        types::DELIVERING,
        types::OWNED,
        types::RENDER_MATCHES_LIVE,
        types::SOURCE_CLUSTER_REACHABLE,
        types::CLUSTER_PROVIDER_READY,
    ];
    let message = "the target is not valid";
    findings.extend(blocked.map(|type_| Finding::new(type_, Unknown, Reason::Blocked, message)));
    // The contract shows a failed validation under one reason; what is not built yet says so itself.
    let reason =
        if refusal.reason == Reason::NotYetSupported { refusal.reason } else { Reason::ValidationFailed };
    let gate = Gate::blocked(reason, &refusal.message);
    findings.extend(upriver_api::condition::trio(&[gate], ""));
    findings
}

fn encryption(facts: &TargetFacts<'_>) -> (Finding, Gate) {
    if !facts.verdict.scopes.iter().any(|scope| scope.gvr.is_secret()) {
        let finding =
            Finding::new(types::ENCRYPTION_CONFIGURED, True, Reason::NotRequired, "no Secret is selected");
        return (finding, Gate::Open);
    }
    let message = format!(
        "{} Secrets are selected and left out: they are never written in plaintext, and encryption is not supported yet; \
         remove secrets from the rule",
        facts.skipped_secrets
    );
    let finding = Finding::new(types::ENCRYPTION_CONFIGURED, False, Reason::NotYetSupported, &message);
    (finding, Gate::blocked(Reason::NotYetSupported, message))
}

fn path_accepted(facts: &TargetFacts<'_>) -> (Finding, Gate) {
    let folder = if facts.path.is_empty() { String::new() } else { format!("{}/", facts.path) };
    let refused: Vec<(&String, &String)> = facts
        .owned
        .iter()
        .flat_map(|owned| &owned.view.refused)
        .filter(|(path, _)| path.starts_with(&folder))
        .collect();
    if refused.is_empty() {
        let (status, reason) = match facts.owned {
            Some(owned) if owned.view.running => (True, Reason::GitPathAccepted),
            Some(_) | None => (Unknown, Reason::NotChecked),
        };
        return (
            Finding::new(types::GIT_PATH_ACCEPTED, status, reason, "no foreign file is in the way"),
            Gate::Open,
        );
    }
    let named: Vec<String> =
        refused.iter().take(NAMED_FILES).map(|(path, reason)| format!("{path}: {reason}")).collect();
    let more = refused.len().saturating_sub(NAMED_FILES);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    let message = format!("{}{rest}; move or delete these files, then they are written", named.join("; "));
    let finding = Finding::new(types::GIT_PATH_ACCEPTED, False, Reason::UnsupportedContent, &message);
    (finding, Gate::blocked(Reason::UnsupportedContent, message))
}

fn provider_ready(gate: Option<&Gate>) -> (Finding, Gate) {
    let not_ready = |status: ConditionStatus, message: &str| {
        Finding::new(types::GIT_PROVIDER_READY, status, Reason::GitProviderNotReady, message)
    };
    match gate {
        Some(Gate::Open) => {
            let message = "the GitProvider is ready";
            (Finding::new(types::GIT_PROVIDER_READY, True, Reason::GitProviderReady, message), Gate::Open)
        }
        Some(Gate::Blocked { message, .. }) => {
            (not_ready(False, message), Gate::waiting(Reason::GitProviderNotReady, message))
        }
        // Only an explicit False blocks.
        Some(Gate::Waiting { message, .. } | Gate::Paused { message }) => {
            (not_ready(Unknown, message), Gate::Open)
        }
        None => (not_ready(Unknown, "not known yet"), Gate::Open),
    }
}

fn owned(owned: Option<&OwnedBranch>) -> (Finding, Gate) {
    match owned {
        Some(branch) => {
            let message = format!("owned by {} at epoch {}", branch.replica, branch.epoch);
            (Finding::new(types::OWNED, True, Reason::Succeeded, message), Gate::Open)
        }
        None => {
            let message = "no replica owns the branch yet";
            (
                Finding::new(types::OWNED, False, Reason::NoOwner, message),
                Gate::waiting(Reason::NoOwner, message),
            )
        }
    }
}

fn delivering(facts: &TargetFacts<'_>) -> (Finding, Gate) {
    let finding =
        |status, reason: String, message: &str| Finding::new(types::DELIVERING, status, reason, message);
    let Some(view) = facts.owned.map(|owned| &owned.view) else {
        return (finding(Unknown, Reason::NoOwner.into(), "no replica owns the branch yet"), Gate::Open);
    };
    if view.journal == JournalState::Full {
        let message = "the branch's journal is at its limit: nothing is lost, what comes later waits in the cluster until \
                       pushes make room (next action: wait)";
        let gate = Gate::waiting(Reason::JournalOverflow, message);
        return (finding(False, Reason::JournalOverflow.into(), message), gate);
    }
    if let Some(failure) = &view.failure {
        let reason = match view.journal {
            JournalState::Unavailable => Reason::JournalUnavailable.into(),
            JournalState::Open | JournalState::Full => failure.class.outcome().as_str().to_owned(),
        };
        let message = failure.to_string();
        let gate = if view.parked || needs_person(failure) {
            Gate::blocked(&reason, &message)
        } else {
            Gate::waiting(&reason, &message)
        };
        return (finding(False, reason, &message), gate);
    }
    if !view.running {
        let message = "the journal and the branch are being read";
        let gate = Gate::waiting(Reason::Progressing, message);
        return (finding(Unknown, Reason::Progressing.into(), message), gate);
    }
    (finding(True, outcome_of(view), "changes reach the branch"), Gate::Open)
}

fn outcome_of(view: &BranchView) -> String {
    view.outcome.map_or_else(|| Reason::Succeeded.into(), |outcome| outcome.as_str().to_owned())
}

fn needs_person(failure: &Failure) -> bool {
    match failure.class {
        FailureClass::Auth
        | FailureClass::Policy
        | FailureClass::Config
        | FailureClass::Content
        | FailureClass::Internal => true,
        FailureClass::Superseded
        | FailureClass::Fenced
        | FailureClass::Network
        | FailureClass::RateLimited
        | FailureClass::Storage
        | FailureClass::Uncertain
        | FailureClass::PostPush
        | FailureClass::Unknown => false,
    }
}

fn states<'a>(
    view: &'a TargetView,
    scopes: Option<&'a [TargetScope]>,
) -> Vec<(&'a TargetScope, &'a ScopeView)> {
    let wanted = |scope: &TargetScope| scopes.is_none_or(|scopes| scopes.contains(scope));
    view.scopes.iter().filter(|(scope, _)| wanted(scope)).collect()
}

fn tally(states: &[(&TargetScope, &ScopeView)]) -> StreamCounts {
    let count = |wanted: fn(&ScopeView) -> bool| {
        i32::try_from(states.iter().filter(|(_, state)| wanted(state)).count()).unwrap_or(i32::MAX)
    };
    StreamCounts::new(
        count(|state| matches!(state, ScopeView::Ready)),
        count(|state| matches!(state, ScopeView::Replaying)),
        count(|state| matches!(state, ScopeView::Blocked { .. })),
    )
}

fn counts(view: Option<&TargetView>) -> Option<StreamCounts> {
    view.map(|view| tally(&states(view, None)))
}

fn stream_gate(states: &[(&TargetScope, &ScopeView)]) -> (Finding, Gate) {
    let finding =
        |status, reason: String, message: &str| Finding::new(types::STREAMS_RUNNING, status, reason, message);
    for (scope, state) in states {
        if let ScopeView::Blocked { reason, message } = state {
            let message = format!("{}: {message}", scope.gvr);
            let gate = Gate::blocked(*reason, &message);
            return (finding(False, (*reason).to_owned(), &message), gate);
        }
    }
    let replaying = states.iter().filter(|(_, state)| matches!(state, ScopeView::Replaying)).count();
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

fn running(view: Option<&TargetView>) -> (Finding, Gate) {
    match view {
        Some(view) => stream_gate(&states(view, None)),
        None => {
            let message = "the branch's owner has not started yet";
            let finding = Finding::new(types::STREAMS_RUNNING, False, Reason::Progressing, message);
            (finding, Gate::waiting(Reason::Progressing, message))
        }
    }
}

/// All conditions of a WatchRule, and its streams.
pub(super) fn rule(
    verdict: &RuleVerdict,
    target: &[Finding],
    view: Option<&TargetView>,
) -> (Vec<Finding>, Option<StreamCounts>) {
    let own = "the rule selects its own namespace";
    let source = Finding::new(types::SOURCE_NAMESPACE_AUTHORIZED, True, Reason::LegacySourceNamespace, own);
    if let Some(refusal) = &verdict.refusal {
        let ready = Finding::new(types::GIT_TARGET_READY, False, refusal.reason, &refusal.message);
        let streams =
            Finding::new(types::STREAMS_RUNNING, Unknown, Reason::NotReady, "the rule does not run");
        let trio = upriver_api::condition::trio(&[Gate::blocked(refusal.reason, &refusal.message)], "");
        return ([source, ready, streams].into_iter().chain(trio).collect(), None);
    }
    let (resolved, resolved_gate) = resolved(verdict);
    let (ready, ready_gate) = target_ready(target);
    let states = view.map(|view| states(view, Some(&verdict.scopes))).unwrap_or_default();
    let (streams, streams_gate) = if view.is_none() { running(None) } else { stream_gate(&states) };
    let trio =
        upriver_api::condition::trio(&[resolved_gate, ready_gate, streams_gate], "the rule is followed");
    let counts = view.map(|_| tally(&states));
    ([source, resolved, ready, streams].into_iter().chain(trio).collect(), counts)
}

fn resolved(verdict: &RuleVerdict) -> (Finding, Gate) {
    let finding = |status, reason: Reason, message: &str| {
        Finding::new(types::RESOURCES_RESOLVED, status, reason, message)
    };
    if !verdict.resolved {
        let message = "the API server's types have not been read yet";
        return (
            finding(Unknown, Reason::UnresolvedResources, message),
            Gate::waiting(Reason::UnresolvedResources, message),
        );
    }
    if verdict.unmatched.is_empty() {
        return (
            finding(True, Reason::Resolved, &format!("{} resource types", verdict.scopes.len())),
            Gate::Open,
        );
    }
    let message =
        format!("{} resource types; left out: {}", verdict.scopes.len(), verdict.unmatched.join("; "));
    (finding(True, Reason::Resolved, &message), Gate::Open)
}

fn target_ready(target: &[Finding]) -> (Finding, Gate) {
    let finding =
        |status, reason: &str, message: &str| Finding::new(types::GIT_TARGET_READY, status, reason, message);
    let find = |type_: &str| target.iter().find(|finding| finding.type_ == type_);
    let (Some(ready), Some(stalled)) = (find(types::READY), find(types::STALLED)) else {
        let message = "the GitTarget has not been looked at yet";
        let gate = Gate::waiting(Reason::Progressing, message);
        return (finding(Unknown, Reason::Progressing.as_str(), message), gate);
    };
    if ready.status == True {
        return (finding(True, Reason::Succeeded.as_str(), "the GitTarget is ready"), Gate::Open);
    }
    let gate = if ready.reason == Reason::Suspended.as_str() {
        Gate::Paused { message: ready.message.clone() }
    } else if stalled.status == True {
        Gate::blocked(&ready.reason, &ready.message)
    } else {
        Gate::waiting(&ready.reason, &ready.message)
    };
    (finding(False, &ready.reason, &ready.message), gate)
}
