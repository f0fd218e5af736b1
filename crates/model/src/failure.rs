//! Failure classes, outcomes and next actions: the whole list, as total functions.
//!
//! In: what went wrong, already classified by the crate that saw it. Out: what happens next and what a person does.
//! Retry times are in `upriver-engine`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why something failed; each class has one retry schedule and one next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum FailureClass {
    /// The remote moved under us: rebuild, not a failure.
    Superseded,
    /// Claim or epoch lost: never retried by this replica.
    Fenced,
    /// DNS, refused, reset, timeout, 502, 503, 504.
    Network,
    /// 429, or 403 with Retry-After.
    RateLimited,
    /// 401, key refused, Secret missing.
    Auth,
    /// Protected branch, hook declined, file too big.
    Policy,
    /// Bad URL, branch not allowed, host key mismatch.
    Config,
    /// Path refused, encryption failed, duplicate identity.
    Content,
    /// Redis or disk.
    Storage,
    /// The connection broke after the pack was sent: read the ref, then classify.
    Uncertain,
    /// Pushed, but settlement or status failed.
    PostPush,
    /// Not classified.
    Unknown,
    /// Panic or broken invariant.
    Internal,
}

impl FailureClass {
    /// CamelCase name, as stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Superseded => "Superseded",
            Self::Fenced => "Fenced",
            Self::Network => "Network",
            Self::RateLimited => "RateLimited",
            Self::Auth => "Auth",
            Self::Policy => "Policy",
            Self::Config => "Config",
            Self::Content => "Content",
            Self::Storage => "Storage",
            Self::Uncertain => "Uncertain",
            Self::PostPush => "PostPush",
            Self::Unknown => "Unknown",
            Self::Internal => "Internal",
        }
    }

    /// Reads a stored name; one that this release does not know is [`FailureClass::Unknown`].
    #[must_use]
    pub fn parse(text: &str) -> Self {
        Self::ALL.into_iter().find(|known| known.as_str() == text).unwrap_or(Self::Unknown)
    }

    /// Every class, for tables that must be complete.
    pub const ALL: [Self; 13] = [
        Self::Superseded,
        Self::Fenced,
        Self::Network,
        Self::RateLimited,
        Self::Auth,
        Self::Policy,
        Self::Config,
        Self::Content,
        Self::Storage,
        Self::Uncertain,
        Self::PostPush,
        Self::Unknown,
        Self::Internal,
    ];

    /// What a person does about it.
    #[must_use]
    pub fn next_action(self) -> NextAction {
        match self {
            Self::Superseded | Self::Fenced | Self::Uncertain | Self::PostPush => NextAction::None,
            Self::Network | Self::RateLimited | Self::Storage => NextAction::Wait,
            Self::Auth => NextAction::ConfigureCredentials,
            Self::Policy => NextAction::AllowPush,
            Self::Config => NextAction::FixConfiguration,
            Self::Content => NextAction::CleanPath,
            Self::Unknown => NextAction::Retry,
            Self::Internal => NextAction::Inspect,
        }
    }

    /// The named outcome that conditions show.
    #[must_use]
    pub fn outcome(self) -> Outcome {
        match self {
            Self::Superseded => Outcome::Superseded,
            Self::Fenced => Outcome::Fenced,
            Self::Network => Outcome::Unreachable,
            Self::RateLimited => Outcome::RateLimited,
            Self::Auth => Outcome::AuthFailed,
            Self::Policy => Outcome::Denied,
            Self::Config => Outcome::ConfigInvalid,
            Self::Content => Outcome::ContentRefused,
            Self::Storage => Outcome::StorageUnavailable,
            Self::PostPush => Outcome::PushedUnsettled,
            Self::Uncertain | Self::Unknown | Self::Internal => Outcome::Unknown,
        }
    }
}

/// The result of an attempt, by name. Silence is not a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Outcome {
    /// The remote holds it.
    Pushed,
    /// Nothing differed.
    NoChange,
    /// A predecessor's push already held it.
    AlreadyPresent,
    /// Pushed after a rebuild on a moved tip.
    Rebased,
    /// A list was compared and what differed was pushed.
    Replayed,
    /// Journaled as a record only, without a commit.
    Recorded,
    /// The scope has to be listed again before anything can be said.
    NeedsReplay,
    /// Set aside so that it holds nobody up; its scopes are dirty.
    Parked,
    /// Failed for a reason that only a fix of the program ends; not tried again by itself.
    Quarantined,
    /// A person paused it.
    Suspended,
    /// The remote moved; rebuilt at once.
    Superseded,
    /// A newer owner exists.
    Fenced,
    /// Waiting for a backoff to end.
    Deferred,
    /// Credentials refused or missing.
    AuthFailed,
    /// The host's rules refused the push.
    Denied,
    /// The host asked for fewer requests.
    RateLimited,
    /// The host did not answer.
    Unreachable,
    /// A setting is wrong.
    ConfigInvalid,
    /// The folder holds something we must not touch.
    ContentRefused,
    /// Redis or disk is away.
    StorageUnavailable,
    /// Pushed, but not recorded yet.
    PushedUnsettled,
    /// Not known.
    Unknown,
}

impl Outcome {
    /// Every outcome, for tables that must be complete.
    pub const ALL: [Self; 22] = [
        Self::Pushed,
        Self::NoChange,
        Self::AlreadyPresent,
        Self::Rebased,
        Self::Replayed,
        Self::Recorded,
        Self::NeedsReplay,
        Self::Parked,
        Self::Quarantined,
        Self::Suspended,
        Self::Superseded,
        Self::Fenced,
        Self::Deferred,
        Self::AuthFailed,
        Self::Denied,
        Self::RateLimited,
        Self::Unreachable,
        Self::ConfigInvalid,
        Self::ContentRefused,
        Self::StorageUnavailable,
        Self::PushedUnsettled,
        Self::Unknown,
    ];

    /// Reads a stored name; one that this release does not know is [`Outcome::Unknown`].
    #[must_use]
    pub fn parse(text: &str) -> Self {
        Self::ALL.into_iter().find(|known| known.as_str() == text).unwrap_or(Self::Unknown)
    }

    /// What a person does about it.
    #[must_use]
    pub fn next_action(self) -> NextAction {
        match self {
            Self::Pushed
            | Self::NoChange
            | Self::AlreadyPresent
            | Self::Rebased
            | Self::Replayed
            | Self::Recorded
            | Self::Superseded
            | Self::Fenced
            | Self::PushedUnsettled => NextAction::None,
            Self::Deferred
            | Self::NeedsReplay
            | Self::RateLimited
            | Self::Unreachable
            | Self::StorageUnavailable => NextAction::Wait,
            Self::Suspended => NextAction::Resume,
            Self::AuthFailed => NextAction::ConfigureCredentials,
            Self::Denied => NextAction::AllowPush,
            Self::ConfigInvalid => NextAction::FixConfiguration,
            Self::ContentRefused | Self::Parked => NextAction::CleanPath,
            Self::Quarantined => NextAction::Inspect,
            Self::Unknown => NextAction::Retry,
        }
    }

    /// CamelCase name, used as condition reason and metric label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pushed => "Pushed",
            Self::NoChange => "NoChange",
            Self::AlreadyPresent => "AlreadyPresent",
            Self::Rebased => "Rebased",
            Self::Replayed => "Replayed",
            Self::Recorded => "Recorded",
            Self::NeedsReplay => "NeedsReplay",
            Self::Parked => "Parked",
            Self::Quarantined => "Quarantined",
            Self::Suspended => "Suspended",
            Self::Superseded => "Superseded",
            Self::Fenced => "Fenced",
            Self::Deferred => "Deferred",
            Self::AuthFailed => "AuthFailed",
            Self::Denied => "Denied",
            Self::RateLimited => "RateLimited",
            Self::Unreachable => "Unreachable",
            Self::ConfigInvalid => "ConfigInvalid",
            Self::ContentRefused => "ContentRefused",
            Self::StorageUnavailable => "StorageUnavailable",
            Self::PushedUnsettled => "PushedUnsettled",
            Self::Unknown => "Unknown",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a person does about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum NextAction {
    /// Nothing: it heals by itself at once.
    None,
    /// Nothing yet: it is retried.
    Wait,
    /// Ask for a retry.
    Retry,
    /// End the suspension.
    Resume,
    /// Repair the Secret named in the GitProvider.
    ConfigureCredentials,
    /// Let the credential push to the branch.
    AllowPush,
    /// Repair the object named in the message.
    FixConfiguration,
    /// Clean the folder named in the message.
    CleanPath,
    /// Force a replay.
    ForceReplay,
    /// Read the logs and report a bug.
    Inspect,
}

impl NextAction {
    /// snake_case name, as in messages and the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Wait => "wait",
            Self::Retry => "retry",
            Self::Resume => "resume",
            Self::ConfigureCredentials => "configure_credentials",
            Self::AllowPush => "allow_push",
            Self::FixConfiguration => "fix_configuration",
            Self::CleanPath => "clean_path",
            Self::ForceReplay => "force_replay",
            Self::Inspect => "inspect",
        }
    }
}

impl fmt::Display for NextAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A classified failure with what a person needs to know about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Its class.
    pub class: FailureClass,
    /// What happened, in words, without secrets.
    pub message: Box<str>,
    /// The host's own minimum wait in seconds (Retry-After).
    pub floor_s: Option<u64>,
}

impl Failure {
    /// A failure without a host-given wait.
    #[must_use]
    pub fn new(class: FailureClass, message: impl Into<Box<str>>) -> Self {
        Self { class, message: message.into(), floor_s: None }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (next action: {})", self.message, self.class.next_action())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stored_name_reads_back_and_an_unknown_one_is_unknown() {
        for class in FailureClass::ALL {
            assert_eq!(FailureClass::parse(class.as_str()), class);
        }
        for outcome in Outcome::ALL {
            assert_eq!(Outcome::parse(outcome.as_str()), outcome);
        }
        assert_eq!(Outcome::parse("FromTheFuture"), Outcome::Unknown);
        assert_eq!(FailureClass::parse(""), FailureClass::Unknown);
    }

    #[test]
    fn a_failure_and_its_outcome_ask_for_the_same_action() {
        for class in FailureClass::ALL {
            let asked = match class {
                // Their outcome says "not known" only if it stays so.
                FailureClass::Uncertain | FailureClass::Internal => NextAction::Retry,
                other => other.next_action(),
            };
            assert_eq!(class.outcome().next_action(), asked, "{class:?}");
        }
    }
}
