//! Everything that can go wrong between two replicas: what it is, what to do next, and how it travels as a gRPC status.

use std::collections::HashMap;
use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};
use upriver_model::FailureClass;

/// `domain` of the ErrorInfo in our statuses.
const DOMAIN: &str = "upriver.configbutler.ai";
const NOT_OWNER: &str = "NOT_OWNER";
const WRONG_REPLICA: &str = "WRONG_REPLICA";
const STOPPING: &str = "STOPPING";
const TOO_LARGE: &str = "TOO_LARGE";

/// The called replica does not own the branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotOwner {
    /// Replica id of the owner as far as it knows, empty if it does not.
    pub holder: String,
    /// Epoch of that holder.
    pub epoch: u64,
}

/// Why a call failed or a conversation ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// Somebody else owns the branch.
    #[error("the replica does not own this branch; as far as it knows {holder:?} does, at epoch {epoch}")]
    NotOwner {
        /// Replica id, empty if it is not known.
        holder: String,
        /// Epoch of that holder.
        epoch: u64,
    },
    /// The address belongs to another replica by now.
    #[error("the address answers as replica {found:?}, not as {expected:?}: that one is gone")]
    WrongReplica {
        /// Whom we meant.
        expected: String,
        /// Who answered.
        found: String,
    },
    /// No connection, or none any more before the call had begun.
    #[error("{address} cannot be reached: {reason}")]
    Unreachable {
        /// Host and port.
        address: String,
        /// The words of the system or of HTTP/2.
        reason: String,
    },
    /// One side does not accept the other's certificate.
    #[error(
        "no mutual TLS with {address}: {reason}; both replicas need a certificate of the same CA, for the name \
         {server_name:?} and for client and server authentication"
    )]
    Tls {
        /// Host and port.
        address: String,
        /// The name in --peer-tls-server-name.
        server_name: String,
        /// What TLS said.
        reason: String,
    },
    /// The call did not begin in time.
    #[error("{address} did not answer within {timeout:?}")]
    Deadline {
        /// Host and port.
        address: String,
        /// How long was waited.
        timeout: Duration,
    },
    /// The other replica does not consent to take a claim.
    #[error("the replica declines: {reason}")]
    Declined {
        /// Its words.
        reason: String,
    },
    /// A message does not fit, and can be sent by no retry.
    #[error("{what} has {bytes} bytes, more than the {limit} of one message: leave it out and report it")]
    TooLarge {
        /// The largest object in it, or the kind of message.
        what: String,
        /// Encoded size of the message in bytes.
        bytes: u64,
        /// [`crate::Settings::message_limit`].
        limit: u64,
    },
    /// The other side does not keep to the protocol, or its release does not know ours.
    #[error("the replica broke the peer protocol: {reason}; are all replicas of the same release?")]
    Protocol {
        /// What happened.
        reason: String,
    },
    /// The conversation is over: an end was dropped, a replica stopped, the connection broke.
    #[error("the conversation is over: {reason}")]
    Closed {
        /// Who or what ended it.
        reason: String,
    },
}

/// What the caller does about a [`PeerError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerAction {
    /// Call the holder that the error names, or look the claim up where it names none.
    CallHolder,
    /// Read the sessions again: this replica is gone.
    FindReplica,
    /// Call again, with a pause that grows.
    TryAgain,
    /// A person has to mend certificates; try again meanwhile, since the files are read again when they change.
    FixCertificates,
    /// Keep the claim.
    KeepClaim,
    /// Leave the object out and report it.
    LeaveOut,
    /// A defect or two releases that do not fit: report it.
    Inspect,
}

impl PeerError {
    /// Its class, for conditions and retry schedules.
    #[must_use]
    pub fn class(&self) -> FailureClass {
        match self {
            Self::NotOwner { .. } | Self::WrongReplica { .. } | Self::Declined { .. } => {
                FailureClass::Superseded
            }
            Self::Unreachable { .. } | Self::Deadline { .. } | Self::Closed { .. } => FailureClass::Network,
            Self::Tls { .. } => FailureClass::Config,
            Self::TooLarge { .. } => FailureClass::Content,
            Self::Protocol { .. } => FailureClass::Internal,
        }
    }

    /// What to do next.
    #[must_use]
    pub fn next_action(&self) -> PeerAction {
        match self {
            Self::NotOwner { .. } => PeerAction::CallHolder,
            Self::WrongReplica { .. } => PeerAction::FindReplica,
            Self::Unreachable { .. } | Self::Deadline { .. } | Self::Closed { .. } => PeerAction::TryAgain,
            Self::Tls { .. } => PeerAction::FixCertificates,
            Self::Declined { .. } => PeerAction::KeepClaim,
            Self::TooLarge { .. } => PeerAction::LeaveOut,
            Self::Protocol { .. } => PeerAction::Inspect,
        }
    }

    /// Its word in metrics.
    pub(crate) fn outcome(&self) -> &'static str {
        match self {
            Self::NotOwner { .. } => "not_owner",
            Self::WrongReplica { .. } => "wrong_replica",
            Self::Unreachable { .. } => "unreachable",
            Self::Tls { .. } => "tls",
            Self::Deadline { .. } => "deadline",
            Self::Declined { .. } => "declined",
            Self::TooLarge { .. } => "too_large",
            Self::Protocol { .. } => "protocol",
            Self::Closed { .. } => "closed",
        }
    }

    pub(crate) fn closed(reason: impl Into<String>) -> Self {
        Self::Closed { reason: reason.into() }
    }

    pub(crate) fn protocol(reason: impl Into<String>) -> Self {
        Self::Protocol { reason: reason.into() }
    }

    /// How a server tells it.
    pub(crate) fn to_status(&self) -> Status {
        let (code, reason, facts) = match self {
            Self::NotOwner { holder, epoch } => {
                let facts = vec![("holder", holder.clone()), ("epoch", epoch.to_string())];
                (Code::FailedPrecondition, NOT_OWNER, facts)
            }
            Self::WrongReplica { found, .. } => {
                (Code::FailedPrecondition, WRONG_REPLICA, vec![("replica", found.clone())])
            }
            Self::TooLarge { what, bytes, limit } => {
                let facts =
                    vec![("what", what.clone()), ("bytes", bytes.to_string()), ("limit", limit.to_string())];
                (Code::OutOfRange, TOO_LARGE, facts)
            }
            Self::Protocol { .. } => (Code::InvalidArgument, "PROTOCOL", Vec::new()),
            Self::Closed { .. } => (Code::Unavailable, STOPPING, Vec::new()),
            Self::Unreachable { .. } | Self::Tls { .. } | Self::Deadline { .. } | Self::Declined { .. } => {
                (Code::Unavailable, "UNAVAILABLE", Vec::new())
            }
        };
        let facts: HashMap<String, String> =
            facts.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let details = ErrorDetails::with_error_info(reason, DOMAIN, facts);
        Status::with_error_details(code, self.to_string(), details)
    }

    /// Reads what a server told, or what broke on the way; `expected` is whom we called, at `address`.
    pub(crate) fn from_status(status: &Status, address: &str, expected: &str) -> Self {
        let info = status.get_details_error_info().filter(|info| info.domain == DOMAIN);
        let Some(info) = info else { return Self::from_foreign(status, address) };
        let fact = |name: &str| info.metadata.get(name).cloned().unwrap_or_default();
        let number = |name: &str| fact(name).parse().unwrap_or_default();
        match info.reason.as_str() {
            NOT_OWNER => Self::NotOwner { holder: fact("holder"), epoch: number("epoch") },
            WRONG_REPLICA => Self::WrongReplica { expected: expected.to_owned(), found: fact("replica") },
            TOO_LARGE => {
                Self::TooLarge { what: fact("what"), bytes: number("bytes"), limit: number("limit") }
            }
            STOPPING => Self::closed(format!("{expected}: {}", status.message())),
            _ => Self::from_foreign(status, address),
        }
    }

    /// A status that our handlers did not make: the connection's, or that of the gRPC library.
    fn from_foreign(status: &Status, address: &str) -> Self {
        let reason = format!("{:?}: {}", status.code(), chain(status));
        match status.code() {
            Code::OutOfRange
            | Code::InvalidArgument
            | Code::Unimplemented
            | Code::DataLoss
            | Code::FailedPrecondition => Self::Protocol { reason },
            Code::Ok
            | Code::Cancelled
            | Code::Unknown
            | Code::DeadlineExceeded
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::ResourceExhausted
            | Code::Aborted
            | Code::Internal
            | Code::Unavailable
            | Code::Unauthenticated => Self::Unreachable { address: address.to_owned(), reason },
        }
    }
}

impl From<NotOwner> for PeerError {
    fn from(error: NotOwner) -> Self {
        Self::NotOwner { holder: error.holder, epoch: error.epoch }
    }
}

/// A status with its causes in one line.
fn chain(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_tells_arrives_with_its_facts() {
        let told = [
            PeerError::NotOwner { holder: "b-1".to_owned(), epoch: 7 },
            PeerError::WrongReplica { expected: "a-1".to_owned(), found: "c-1".to_owned() },
            PeerError::TooLarge { what: "Frame".to_owned(), bytes: 9, limit: 8 },
        ];
        for error in told {
            assert_eq!(PeerError::from_status(&error.to_status(), "h:1", "a-1"), error);
        }
        let stopping = PeerError::from_status(&PeerError::closed("stops").to_status(), "h:1", "a-1");
        assert_eq!(stopping.next_action(), PeerAction::TryAgain);
        let broken = PeerError::from_status(&Status::unavailable("reset"), "h:1", "a-1");
        assert_eq!(
            broken,
            PeerError::Unreachable { address: "h:1".to_owned(), reason: "Unavailable: reset".to_owned() }
        );
        let foreign = PeerError::from_status(&Status::unimplemented("no such call"), "h:1", "a-1");
        assert_eq!(foreign.next_action(), PeerAction::Inspect);
    }
}
