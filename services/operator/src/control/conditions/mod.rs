//! Findings of each kind, as the contract of the API names them. This file: GitProvider and GitTarget.

mod requests;
mod rules;
mod streams;
#[cfg(test)]
mod tests;

use upriver_api::condition::{Finding, Gate, types};
use upriver_api::shared::StreamCounts;
use upriver_api::{ClusterProviderSpec, ConditionStatus, Reason};
use upriver_content::policy::Selection;
use upriver_engine::branch::{BranchView, JournalState, TargetView};
use upriver_model::{Failure, FailureClass};

use super::compile::{Refusal, TargetVerdict};
use super::encryption::Encryption;
use super::snapshot::{KubeConfigs, OwnedBranch, Probe, ProbeFailure};

pub(super) use requests::{Patience, missing_target};
pub(super) use rules::{RuleFacts, RuleKind, rule};

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
        Err(ProbeFailure::CommitConfigInvalid(message)) => {
            Gate::blocked(Reason::CommitConfigInvalid, message)
        }
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
    pub(super) types: TypesRead,
}

/// Whether the API server has said which types it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TypesRead {
    Yes,
    NotYet,
}

/// The only gate of a ClusterProvider, and its condition. `None`: nothing definite is known, so nothing is written.
pub(super) fn cluster_provider(
    spec: &ClusterProviderSpec,
    kube_config: Option<&KubeConfigs>,
    generation: i64,
) -> Option<(Finding, Gate)> {
    let finding =
        |status, reason: Reason, message: &str| Finding::new(types::VALIDATED, status, reason, message);
    if spec.kube_config.is_none() {
        return Some((finding(True, Reason::InCluster, "the cluster that holds this object"), Gate::Open));
    }
    let known = kube_config.filter(|known| known.generation == generation)?;
    Some(match &known.result {
        Ok(()) => {
            (finding(True, Reason::Validated, "the kubeconfig can be used; nothing was dialled"), Gate::Open)
        }
        Err(refusal) => (
            finding(False, refusal.reason, &refusal.message),
            Gate::blocked(refusal.reason, &refusal.message),
        ),
    })
}

/// All conditions of a GitTarget, and its streams.
pub(super) fn target(facts: &TargetFacts<'_>) -> (Vec<Finding>, Option<StreamCounts>) {
    if let Some(refusal) = &facts.verdict.refusal {
        return (refused_target(refusal), None);
    }
    if facts.suspended {
        return (suspended_target(), None);
    }
    let states = facts.view.map(|view| streams::states(view, &facts.verdict.scopes));
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
    // The order of the contract: of several that wait, the first names the reason.
    add_pair(&mut add, encryption(facts));
    add_pair(&mut add, path_accepted(facts));
    add_pair(&mut add, provider_ready(facts.provider.as_ref()));
    add_pair(&mut add, source_reachable(facts.types));
    add_pair(&mut add, states.as_ref().map_or_else(streams::not_started, streams::gate));
    add_pair(&mut add, delivering(facts));
    add_pair(&mut add, owned(facts.owned));
    let nothing = "nothing is rendered, every document is written whole";
    findings.push(Finding::new(types::RENDER_MATCHES_LIVE, True, Reason::RenderMatchesLive, nothing));
    let cluster = "the ClusterProvider is ready";
    findings.push(Finding::new(types::CLUSTER_PROVIDER_READY, True, Reason::ClusterProviderReady, cluster));
    findings.extend(upriver_api::condition::trio(&gates, "live changes reach the branch"));
    (findings, states.map(|states| streams::tally(&states)))
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

/// What the housekeeper says of a target that no replica answers for: the rest stays as its last owner left it.
pub(super) fn unowned_target() -> Vec<Finding> {
    let message = "no living replica owns the branch: changes wait in the cluster, and follow when one takes it (next \
                   action: see that replicas run, and that they reach Redis)";
    let mut findings = vec![
        Finding::new(types::OWNED, False, Reason::NoOwner, message),
        Finding::new(types::DELIVERING, False, Reason::NoOwner, message),
    ];
    findings.extend(upriver_api::condition::trio(&[Gate::waiting(Reason::NoOwner, message)], ""));
    findings
}

fn refused_target(refusal: &Refusal) -> Vec<Finding> {
    let mut findings = vec![Finding::new(types::VALIDATED, False, refusal.reason, &refusal.message)];
    let blocked = [
        (types::ENCRYPTION_CONFIGURED, Reason::Blocked),
        (types::GIT_PATH_ACCEPTED, Reason::NotChecked),
        (types::STREAMS_RUNNING, Reason::NotReady),
        (types::GIT_PROVIDER_READY, Reason::Blocked),
        (types::DELIVERING, Reason::Blocked),
        (types::OWNED, Reason::Blocked),
        (types::RENDER_MATCHES_LIVE, Reason::Blocked),
        (types::SOURCE_CLUSTER_REACHABLE, Reason::Blocked),
        (types::CLUSTER_PROVIDER_READY, Reason::Blocked),
    ];
    let message = "the target is not valid: see the condition Validated";
    findings.extend(blocked.map(|(type_, reason)| Finding::new(type_, Unknown, reason, message)));
    // The contract shows a failed validation under one reason; what is not built yet says so itself.
    let reason =
        if refusal.reason == Reason::NotYetSupported { refusal.reason } else { Reason::ValidationFailed };
    let gate = Gate::blocked(reason, &refusal.message);
    findings.extend(upriver_api::condition::trio(&[gate], ""));
    findings
}

fn encryption(facts: &TargetFacts<'_>) -> (Finding, Gate) {
    let finding = |status, reason: Reason, message: &str| {
        Finding::new(types::ENCRYPTION_CONFIGURED, status, reason, message)
    };
    let secrets = facts.verdict.secrets;
    let selected = secrets.is_some();
    let left_out = format!(
        "{} Secrets are selected and left out: they are never written in plaintext, and encryption is not supported yet; \
         remove secrets from the rule",
        facts.skipped_secrets
    );
    let not_built = |message: &str| {
        (finding(False, Reason::NotYetSupported, message), Gate::blocked(Reason::NotYetSupported, message))
    };
    match &facts.verdict.encryption {
        Encryption::Off if !selected => {
            (finding(True, Reason::NotRequired, "age is not enabled, and no Secret is selected"), Gate::Open)
        }
        // Whoever says `*` asks for all that can be mirrored; that Secrets cannot is told, and holds nothing up.
        Encryption::Off if secrets == Some(Selection::Wildcard) => {
            (finding(False, Reason::NotYetSupported, &left_out), Gate::Open)
        }
        Encryption::Off => not_built(&left_out),
        Encryption::NotBuilt if selected => not_built(&left_out),
        Encryption::NotBuilt => not_built(
            "spec.encryption is good, but encryption is not supported yet: remove it; Secrets are left out either way",
        ),
        Encryption::Unread => {
            let message = "the Secret with age keys has not been read yet";
            let gate = Gate::unobserved(Reason::Progressing, message);
            (finding(Unknown, Reason::Progressing, message), gate)
        }
        Encryption::Refused(refusal) => {
            let message = format!("{}; everything but Secrets is still written", refusal.message);
            // The trio has a word of its own for this gate.
            let gate = Gate::blocked(Reason::EncryptionNotConfigured, &message);
            (finding(False, refusal.reason, &message), gate)
        }
    }
}

/// A target that runs is fed from the cluster that we live in; another one is refused before.
fn source_reachable(read: TypesRead) -> (Finding, Gate) {
    match read {
        TypesRead::Yes => {
            let local = "the cluster that holds this object answered";
            (Finding::new(types::SOURCE_CLUSTER_REACHABLE, True, Reason::LocalCluster, local), Gate::Open)
        }
        TypesRead::NotYet => {
            let message = "the source cluster has not been asked for its types yet";
            let reason = Reason::AwaitingDiscovery;
            let finding = Finding::new(types::SOURCE_CLUSTER_REACHABLE, Unknown, reason, message);
            (finding, Gate::unobserved(reason, message))
        }
    }
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
