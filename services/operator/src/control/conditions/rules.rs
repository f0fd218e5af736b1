//! WatchRule and ClusterWatchRule.

use upriver_api::condition::{Finding, Gate, trio, types};
use upriver_api::watch_rule::RuleStreams;
use upriver_api::{ConditionStatus, Reason};
use upriver_engine::branch::TargetView;

use super::streams;
use crate::control::compile::namespaces::Source;
use crate::control::compile::{Refusal, RuleVerdict};

use ConditionStatus::{False, True, Unknown};

/// What is known of a rule from elsewhere.
pub(in crate::control) struct RuleFacts<'a> {
    pub(in crate::control) verdict: &'a RuleVerdict,
    pub(in crate::control) kind: RuleKind,
    /// Findings of its target; none while nobody here answers for it.
    pub(in crate::control) target: &'a [Finding],
    pub(in crate::control) view: Option<&'a TargetView>,
}

/// Only a WatchRule has source namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::control) enum RuleKind {
    WatchRule,
    ClusterWatchRule,
}

/// All conditions of a rule, and its streams.
pub(in crate::control) fn rule(facts: &RuleFacts<'_>) -> (Vec<Finding>, Option<RuleStreams>) {
    let verdict = facts.verdict;
    let source = match facts.kind {
        RuleKind::WatchRule => Some(source(verdict)),
        RuleKind::ClusterWatchRule => None,
    };
    if let Some(refusal) = &verdict.refusal {
        return (refused(refusal, source.map(|(finding, _)| finding)), None);
    }
    let stopped = source.as_ref().and_then(|(finding, gate)| (*gate != Gate::Open).then_some(finding));
    let (ready, ready_gate) = target_ready(facts.target);
    let (resolved, resolved_gate) = resolved(verdict);
    let states = facts.view.map(|view| streams::states(view, &verdict.scopes));
    let (streams, streams_gate) = match (stopped, &states) {
        (Some(finding), _) if !runs_on(verdict) => not_running(finding),
        // The target says what is wrong; nobody runs streams for it.
        (_, None) if matches!(ready_gate, Gate::Blocked { .. }) => {
            let message = "the GitTarget does not run: see the condition GitTargetReady";
            (Finding::new(types::STREAMS_RUNNING, Unknown, Reason::NotReady, message), Gate::Open)
        }
        (_, Some(states)) => streams::gate(states),
        (_, None) => streams::not_started(),
    };
    let counted = states.filter(|_| stopped.is_none() || runs_on(verdict)).map(|states| {
        let counts = streams::tally(&states);
        RuleStreams {
            total: counts.total,
            ready: counts.ready,
            replaying: counts.replaying,
            blocked: counts.blocked,
            summary: counts.summary,
            pending_sample: streams::sample(&states),
        }
    });
    let mut findings = Vec::new();
    let mut gates = Vec::new();
    if let Some((finding, gate)) = source {
        findings.push(finding);
        gates.push(gate);
    }
    findings.extend([resolved, ready, streams]);
    gates.extend([resolved_gate, ready_gate, streams_gate]);
    findings.extend(trio(&gates, "the rule is followed"));
    (findings, counted)
}

fn refused(refusal: &Refusal, source: Option<Finding>) -> Vec<Finding> {
    let message = "the rule does not run: see the condition Ready";
    // An unsupported field is the rule's own matter; every other refusal is about the target.
    let ready = match refusal.reason {
        Reason::NotYetSupported => Finding::new(types::GIT_TARGET_READY, Unknown, Reason::Blocked, message),
        reason => Finding::new(types::GIT_TARGET_READY, False, reason, &refusal.message),
    };
    let resolved = Finding::new(types::RESOURCES_RESOLVED, Unknown, Reason::Blocked, message);
    let streams = Finding::new(types::STREAMS_RUNNING, Unknown, Reason::NotReady, message);
    let trio = trio(&[Gate::blocked(refusal.reason, &refusal.message)], "");
    source.into_iter().chain([resolved, ready, streams]).chain(trio).collect()
}

/// True if streams of an earlier grant go on although the policy cannot be evaluated.
fn runs_on(verdict: &RuleVerdict) -> bool {
    match &verdict.source {
        Some(Source::Unavailable { kept, .. } | Source::Checking { kept }) => *kept,
        Some(Source::Legacy | Source::Allowed { .. } | Source::Empty) => true,
        Some(Source::Denied { .. }) | None => false,
    }
}

fn source(verdict: &RuleVerdict) -> (Finding, Gate) {
    let Some(source) = &verdict.source else {
        let message = "not looked at: see the condition Ready of the rule and of its GitTarget";
        let finding = Finding::new(types::SOURCE_NAMESPACE_AUTHORIZED, Unknown, Reason::Blocked, message);
        return (finding, Gate::Open);
    };
    let reason = source.reason();
    let finding =
        |status, message: &str| Finding::new(types::SOURCE_NAMESPACE_AUTHORIZED, status, reason, message);
    match source {
        Source::Legacy => (finding(True, "the rule selects its own namespace"), Gate::Open),
        Source::Allowed { namespaces } => {
            (finding(True, &format!("{namespaces} source namespaces are admitted")), Gate::Open)
        }
        Source::Empty => {
            let message = "admitted, but no namespace matches now: widen allowedSourceNamespaces of the GitTarget, or label \
                           a namespace";
            (finding(True, message), Gate::Open)
        }
        Source::Denied { message } => (finding(False, message), Gate::blocked(reason, message)),
        Source::Unavailable { message, kept: false } => {
            (finding(False, message), Gate::blocked(reason, message))
        }
        Source::Unavailable { message, kept: true } => {
            let message = format!("{message}; the namespaces that were granted before go on");
            (finding(Unknown, &message), Gate::waiting(reason, message))
        }
        Source::Checking { .. } => {
            let message = "the labels of namespaces have not been read yet";
            (finding(Unknown, message), Gate::waiting(reason, message))
        }
    }
}

/// Streams of a rule that its source namespaces stop. The gate adds nothing: the source's own decides.
fn not_running(source: &Finding) -> (Finding, Gate) {
    let finding = Finding::new(
        types::STREAMS_RUNNING,
        source.status.clone(),
        source.reason.clone(),
        "the rule does not run: see the condition SourceNamespaceAuthorized",
    );
    (finding, Gate::Open)
}

fn resolved(verdict: &RuleVerdict) -> (Finding, Gate) {
    let finding = |status, reason: Reason, message: &str| {
        Finding::new(types::RESOURCES_RESOLVED, status, reason, message)
    };
    if !verdict.resolved {
        let message = "the API server's types have not been read yet";
        return (
            finding(Unknown, Reason::UnresolvedResources, message),
            Gate::unobserved(Reason::UnresolvedResources, message),
        );
    }
    let mut message = format!("{} resource types", verdict.types);
    if !verdict.unmatched.is_empty() {
        message = format!("{message}; left out: {}", verdict.unmatched.join("; "));
    }
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
