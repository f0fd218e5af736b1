//! What do Ready, Reconciling and Stalled say, and when does a condition change?
//!
//! In: the verdict of each gate of one pass, in the kind's order. Out: the trio, always all three, written in place:
//! entries are never re-ordered, and `lastTransitionTime` moves only when `status` does. No clock: the time comes in.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::lenient::lenient_enum;
use crate::reasons::Reason;

/// Condition types that more than one place names.
pub mod types {
    /// The object does what it says.
    pub const READY: &str = "Ready";
    /// Something is under way.
    pub const RECONCILING: &str = "Reconciling";
    /// Nothing will change until somebody acts.
    pub const STALLED: &str = "Stalled";
    /// The spec can be used.
    pub const VALIDATED: &str = "Validated";
    /// Sensitive documents can be encrypted.
    pub const ENCRYPTION_CONFIGURED: &str = "EncryptionConfigured";
    /// Streams follow live changes.
    pub const STREAMS_RUNNING: &str = "StreamsRunning";
    /// The folder can be managed.
    pub const GIT_PATH_ACCEPTED: &str = "GitPathAccepted";
    /// What the folder renders equals what lives.
    pub const RENDER_MATCHES_LIVE: &str = "RenderMatchesLive";
    /// The source cluster answers.
    pub const SOURCE_CLUSTER_REACHABLE: &str = "SourceClusterReachable";
    /// Copy of the GitProvider's Ready.
    pub const GIT_PROVIDER_READY: &str = "GitProviderReady";
    /// Copy of the ClusterProvider's Ready.
    pub const CLUSTER_PROVIDER_READY: &str = "ClusterProviderReady";
    /// A replica writes this folder.
    pub const OWNED: &str = "Owned";
    /// Changes reach the repository.
    pub const DELIVERING: &str = "Delivering";
    /// Authors are known.
    pub const ATTRIBUTION_HEALTHY: &str = "AttributionHealthy";
    /// The user stopped writing.
    pub const SUSPENDED: &str = "Suspended";
    /// The rule may read its source namespaces.
    pub const SOURCE_NAMESPACE_AUTHORIZED: &str = "SourceNamespaceAuthorized";
    /// Copy of the GitTarget's Ready.
    pub const GIT_TARGET_READY: &str = "GitTargetReady";
    /// The rule's types are known.
    pub const RESOURCES_RESOLVED: &str = "ResourcesResolved";
    /// The submitter is known.
    pub const AUTHOR_ATTRIBUTED: &str = "AuthorAttributed";
    /// A commit was pushed.
    pub const PUSHED: &str = "Pushed";
}

const TYPE_PATTERN: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
const REASON_PATTERN: &str = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$";
const MESSAGE_MAX: usize = 32_768;

lenient_enum! {
    /// Status of a condition.
    pub enum ConditionStatus {
        /// It holds.
        True = "True",
        /// It does not.
        False = "False",
        /// Not known yet.
        Unknown = "Unknown",
    }
}

/// One observation about an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// When `status` changed last.
    pub last_transition_time: Time,
    /// What a person should know.
    #[schemars(length(max = 32768))]
    pub message: String,
    /// Generation of the object that was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// Why, in one word for machines.
    #[schemars(length(min = 1, max = 1024), regex(pattern = REASON_PATTERN))]
    pub reason: String,
    /// True, False or Unknown.
    pub status: ConditionStatus,
    /// What is observed.
    #[serde(rename = "type")]
    #[schemars(length(max = 316), regex(pattern = TYPE_PATTERN))]
    pub type_: String,
}

/// A condition as one pass wants it; [`set_condition`] adds time and generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Condition type.
    pub type_: &'static str,
    /// Status.
    pub status: ConditionStatus,
    /// Reason.
    pub reason: String,
    /// Message.
    pub message: String,
}

impl Finding {
    /// A finding from its parts.
    #[must_use]
    pub fn new(
        type_: &'static str,
        status: ConditionStatus,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self { type_, status, reason: reason.into(), message: message.into() }
    }
}

/// What one gate says about the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Nothing in the way.
    Open,
    /// Not yet.
    Waiting {
        /// Whether anything was ever observed: Ready is False if so, Unknown if not.
        seen: Seen,
        /// Gate reason.
        reason: String,
        /// For a person.
        message: String,
    },
    /// A person paused it: not ready, and nothing is wrong.
    Paused {
        /// For a person.
        message: String,
    },
    /// Not until somebody acts.
    Blocked {
        /// Gate reason.
        reason: String,
        /// For a person.
        message: String,
    },
}

/// Whether a waiting gate has an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The answer is "not yet".
    NotYet,
    /// There is no answer.
    Never,
}

impl Gate {
    /// A gate whose answer is "not yet".
    #[must_use]
    pub fn waiting(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Waiting { seen: Seen::NotYet, reason: reason.into(), message: message.into() }
    }

    /// A gate that has no answer.
    #[must_use]
    pub fn unobserved(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Waiting { seen: Seen::Never, reason: reason.into(), message: message.into() }
    }

    /// A gate that only a person can open.
    #[must_use]
    pub fn blocked(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Blocked { reason: reason.into(), message: message.into() }
    }
}

/// The gate that decides: a pause beats a stall beats progress beats converged; inside one level the first in order wins.
#[must_use]
pub fn deciding_gate(gates: &[Gate]) -> &Gate {
    let first = |wanted: fn(&Gate) -> bool| gates.iter().find(|gate| wanted(gate));
    first(|gate| matches!(gate, Gate::Paused { .. }))
        .or_else(|| first(|gate| matches!(gate, Gate::Blocked { .. })))
        .or_else(|| first(|gate| matches!(gate, Gate::Waiting { .. })))
        .unwrap_or(&Gate::Open)
}

/// Ready, Reconciling and Stalled of a pass. `converged` is the message when every gate is open.
#[must_use]
pub fn trio(gates: &[Gate], converged: &str) -> [Finding; 3] {
    use ConditionStatus::{False, True, Unknown};
    let succeeded = Reason::Succeeded.as_str();
    let progressing = Reason::Progressing.as_str();
    let (ready, reconciling, stalled, message) = match deciding_gate(gates) {
        Gate::Open => ((True, succeeded), (False, succeeded), (False, succeeded), converged),
        Gate::Waiting { seen, reason, message } => {
            let ready = match seen {
                Seen::NotYet => False,
                Seen::Never => Unknown,
            };
            ((ready, reason.as_str()), (True, reason.as_str()), (False, progressing), message.as_str())
        }
        Gate::Paused { message } => {
            let suspended = Reason::Suspended.as_str();
            ((False, suspended), (False, suspended), (False, suspended), message.as_str())
        }
        Gate::Blocked { reason, message } => {
            let reason = reason.as_str();
            ((False, reason), (False, reason), (True, reason), message.as_str())
        }
    };
    let finding =
        |type_, (status, reason): (ConditionStatus, &str)| Finding::new(type_, status, reason, message);
    [finding(types::READY, ready), finding(types::RECONCILING, reconciling), finding(types::STALLED, stalled)]
}

/// Writes a finding into the list: in place if its type is there, at the end if not. The transition time stays unless
/// the status changes. True if anything but time and generation changed, or the generation did.
pub fn set_condition(
    conditions: &mut Vec<Condition>,
    finding: &Finding,
    generation: Option<i64>,
    now: &Time,
) -> bool {
    let mut wanted = Condition {
        last_transition_time: now.clone(),
        message: cut(&finding.message),
        observed_generation: generation,
        reason: usable_reason(&finding.reason),
        status: finding.status.clone(),
        type_: finding.type_.to_owned(),
    };
    let Some(existing) = conditions.iter_mut().find(|condition| condition.type_ == finding.type_) else {
        conditions.push(wanted);
        return true;
    };
    if existing.status == wanted.status {
        wanted.last_transition_time = existing.last_transition_time.clone();
    }
    let changed = *existing != wanted;
    *existing = wanted;
    changed
}

/// The condition of a type.
#[must_use]
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// True if the condition of a type is True.
#[must_use]
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == ConditionStatus::True)
}

/// The schema refuses an empty reason, and a status write must not fail over it.
fn usable_reason(reason: &str) -> String {
    if reason.is_empty() { Reason::Unspecified.as_str().to_owned() } else { reason.to_owned() }
}

fn cut(message: &str) -> String {
    message.chars().take(MESSAGE_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::jiff::Timestamp;

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).expect("a small number"))
    }

    fn rows(gates: &[Gate]) -> Vec<(&'static str, String, String)> {
        let row = |finding: Finding| (finding.type_, finding.status.to_string(), finding.reason);
        trio(gates, "all is well").into_iter().map(row).collect()
    }

    fn expect(
        ready: (&str, &str),
        reconciling: (&str, &str),
        stalled: (&str, &str),
    ) -> Vec<(&'static str, String, String)> {
        let row = |type_, (status, reason): (&str, &str)| (type_, status.to_owned(), reason.to_owned());
        vec![row("Ready", ready), row("Reconciling", reconciling), row("Stalled", stalled)]
    }

    #[test]
    fn open_gates_give_succeeded_three_times() {
        let expected = expect(("True", "Succeeded"), ("False", "Succeeded"), ("False", "Succeeded"));
        assert_eq!(rows(&[Gate::Open, Gate::Open]), expected);
        assert_eq!(rows(&[]), expected);
    }

    #[test]
    fn a_waiting_gate_is_not_ready_or_unknown_and_reconciles() {
        let not_yet = expect(("False", "Replaying"), ("True", "Replaying"), ("False", "Progressing"));
        assert_eq!(rows(&[Gate::Open, Gate::waiting("Replaying", "2 of 5")]), not_yet);
        let never =
            expect(("Unknown", "AwaitingDiscovery"), ("True", "AwaitingDiscovery"), ("False", "Progressing"));
        assert_eq!(rows(&[Gate::unobserved("AwaitingDiscovery", "not tried")]), never);
    }

    #[test]
    fn a_pause_is_neither_ready_nor_wrong() {
        let paused = Gate::Paused { message: "paused".to_owned() };
        let expected = expect(("False", "Suspended"), ("False", "Suspended"), ("False", "Suspended"));
        assert_eq!(rows(&[Gate::blocked("Broken", ""), paused]), expected);
    }

    #[test]
    fn a_stall_beats_progress_and_the_first_of_a_level_wins() {
        let gates = [
            Gate::waiting("First", ""),
            Gate::blocked("Second", "clean the folder"),
            Gate::blocked("Third", ""),
            Gate::unobserved("Fourth", ""),
        ];
        assert_eq!(rows(&gates), expect(("False", "Second"), ("False", "Second"), ("True", "Second")));
        assert_eq!(trio(&gates, "")[0].message, "clean the folder");
        assert_eq!(rows(&[Gate::waiting("A", ""), Gate::unobserved("B", "")])[0].2, "A");
    }

    #[test]
    fn time_moves_only_with_status_and_order_never_changes() {
        let mut conditions = Vec::new();
        for finding in trio(&[Gate::waiting("Replaying", "a")], "") {
            assert!(set_condition(&mut conditions, &finding, Some(1), &at(1)));
        }
        let [ready, ..] = trio(&[Gate::waiting("WatchError", "b")], "");
        assert!(set_condition(&mut conditions, &ready, Some(1), &at(2)), "reason and message changed");
        assert_eq!(conditions[0].last_transition_time, at(1));
        assert!(!set_condition(&mut conditions, &ready, Some(1), &at(3)), "nothing changed");
        assert!(set_condition(&mut conditions, &ready, Some(2), &at(4)), "the generation changed");
        let [ready, ..] = trio(&[], "");
        assert!(set_condition(&mut conditions, &ready, Some(2), &at(5)));
        assert_eq!(conditions[0].last_transition_time, at(5));
        let order: Vec<_> = conditions.iter().map(|condition| condition.type_.as_str()).collect();
        assert_eq!(order, ["Ready", "Reconciling", "Stalled"]);
        assert!(is_true(&conditions, types::READY) && !is_true(&conditions, types::OWNED));
    }

    #[test]
    fn what_the_schema_would_refuse_is_made_fit() {
        let mut conditions = Vec::new();
        let finding = Finding::new(types::READY, ConditionStatus::False, "", "\u{e4}".repeat(40_000));
        set_condition(&mut conditions, &finding, None, &at(1));
        assert_eq!(conditions[0].reason, "Unspecified");
        assert_eq!(conditions[0].message.chars().count(), MESSAGE_MAX);
    }
}
