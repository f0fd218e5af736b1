//! What went wrong with a remote or with our copy of it, and what helps? In: facts. Out: an error that says both, and
//! a class that a retry schedule can be hung on. Every variant has a class and a next action; there is no "other".

use std::time::Duration;

use gix::ObjectId;

use crate::names::{BranchNameError, PathError};
use crate::remote::Service;

/// The kinds of failure that differ in when a retry makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureClass {
    /// Somebody else moved the ref: build again on the new tip.
    Superseded,
    /// The remote cannot be reached or is ill: wait.
    Network,
    /// The remote asks for fewer requests: wait at least as long as it says.
    RateLimited,
    /// The credentials are missing, wrong or see too little.
    Auth,
    /// The remote understood and refused: protection, hook, missing write permission, size.
    Policy,
    /// The address or the kind of repository is wrong.
    Config,
    /// What we were asked to write cannot be written.
    Content,
    /// The local disk failed.
    Storage,
    /// The push may or may not have been applied: read the ref.
    Uncertain,
    /// The remote answered something that we do not understand.
    Unknown,
    /// A bug of ours.
    Internal,
}

/// A remote or the local mirror failed; nothing has been pushed.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// No connection, or it broke before an answer.
    #[error("{remote} cannot be reached: {detail}; check the address, the network policy and the proxy")]
    Unreachable {
        /// The remote without secrets.
        remote: String,
        /// What the HTTP client said.
        detail: String,
    },
    /// No complete answer in time.
    #[error("{remote} did not answer within {}s; check whether the host is overloaded", .after.as_secs_f32())]
    TimedOut {
        /// The remote without secrets.
        remote: String,
        /// The deadline that passed.
        after: Duration,
    },
    /// HTTP 5xx.
    #[error("{remote} answered HTTP {status}: {detail}; wait, or ask the host's operator")]
    ServerFailed {
        /// The remote without secrets.
        remote: String,
        /// The status.
        status: u16,
        /// Begin of the body.
        detail: String,
    },
    /// HTTP 429, or 403 and 503 with `Retry-After`.
    #[error("{remote} limits our requests (HTTP {status}){}; wait", retry_text(.retry_after.as_ref()))]
    RateLimited {
        /// The remote without secrets.
        remote: String,
        /// The status.
        status: u16,
        /// The host's own minimum.
        retry_after: Option<Duration>,
    },
    /// HTTP 401.
    #[error(
        "{remote} refused the credentials (HTTP 401); put a valid login or token into the provider's Secret"
    )]
    Unauthorized {
        /// The remote without secrets.
        remote: String,
    },
    /// HTTP 403 without `Retry-After`.
    #[error("{remote} forbids {service} (HTTP 403): {detail}; grant the account that right")]
    Forbidden {
        /// The remote without secrets.
        remote: String,
        /// What we wanted to do.
        service: Service,
        /// Begin of the body.
        detail: String,
    },
    /// HTTP 404. Hosts say so too when the account may not see the repository, hence an authorisation failure: that
    /// class is retried, so a repository created later is found without a person.
    #[error(
        "{remote} does not exist or is hidden from this account (HTTP 404); check the URL and the credentials"
    )]
    NotFound {
        /// The remote without secrets.
        remote: String,
    },
    /// HTTP 413.
    #[error("{remote} refuses so large a push (HTTP 413); raise the host's limit or lower the batch size")]
    TooLarge {
        /// The remote without secrets.
        remote: String,
    },
    /// A redirect that we do not follow, since credentials would follow it.
    #[error("{remote} redirects to {target}; use that address in the provider if you trust it")]
    Redirected {
        /// The remote without secrets.
        remote: String,
        /// Where to.
        target: String,
    },
    /// Any other HTTP status.
    #[error("{remote} answered HTTP {status}: {detail}; is this the address of a Git repository?")]
    UnexpectedStatus {
        /// The remote without secrets.
        remote: String,
        /// The status.
        status: u16,
        /// Begin of the body.
        detail: String,
    },
    /// An answer that is not smart Git.
    #[error(
        "{remote} does not speak the Git protocol as expected: {detail}; is this the address of a repository?"
    )]
    Protocol {
        /// The remote without secrets.
        remote: String,
        /// What was wrong.
        detail: String,
    },
    /// The repository uses another hash.
    #[error("{remote} uses the object format {format}; only sha1 repositories are supported")]
    ObjectFormat {
        /// The remote without secrets.
        remote: String,
        /// The advertised format.
        format: String,
    },
    /// SSH is not built yet. Condition reason: `NotYetSupported`.
    #[error("{remote} needs SSH, which is not supported yet; use the repository's https address")]
    TransportNotSupported {
        /// The remote without secrets.
        remote: String,
    },
    /// The extra certificate authority cannot be used.
    #[error("the certificate authority for {remote} is unusable: {detail}; correct ca.crt in the Secret")]
    BadCertificate {
        /// The remote without secrets.
        remote: String,
        /// What was wrong.
        detail: String,
    },
    /// A branch name that git refuses.
    #[error(transparent)]
    BranchName(#[from] BranchNameError),
    /// A path that git, or one of its checkouts, refuses.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The text of a commit's header would break the commit.
    #[error("the commit's {field} holds a character that a commit header cannot hold; remove it")]
    CommitText {
        /// Which field.
        field: &'static str,
    },
    /// The local mirror lacks an object. Fetch; if that does not help, reset the mirror.
    #[error("the local mirror lacks object {id}; fetch again")]
    MissingObject {
        /// Which.
        id: ObjectId,
    },
    /// The local mirror cannot be read or written.
    #[error("the local mirror failed to {what}: {detail}; check disk space and permissions")]
    Local {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        detail: String,
    },
    /// A bug of ours.
    #[error("internal error in {what}: {detail}; please report it")]
    Internal {
        /// Where.
        what: &'static str,
        /// What.
        detail: String,
    },
}

impl GitError {
    /// The row of the retry table.
    #[must_use]
    pub fn class(&self) -> FailureClass {
        match self {
            Self::Unreachable { .. } | Self::TimedOut { .. } | Self::ServerFailed { .. } => {
                FailureClass::Network
            }
            Self::RateLimited { .. } => FailureClass::RateLimited,
            Self::Unauthorized { .. } | Self::NotFound { .. } => FailureClass::Auth,
            Self::Forbidden { service, .. } => match service {
                Service::UploadPack => FailureClass::Auth,
                Service::ReceivePack => FailureClass::Policy,
            },
            Self::TooLarge { .. } => FailureClass::Policy,
            Self::Redirected { .. }
            | Self::ObjectFormat { .. }
            | Self::TransportNotSupported { .. }
            | Self::BadCertificate { .. }
            | Self::BranchName(_) => FailureClass::Config,
            Self::Path(_) | Self::CommitText { .. } => FailureClass::Content,
            Self::UnexpectedStatus { .. } | Self::Protocol { .. } => FailureClass::Unknown,
            Self::MissingObject { .. } | Self::Local { .. } => FailureClass::Storage,
            Self::Internal { .. } => FailureClass::Internal,
        }
    }

    /// The remote's own minimum before the next request.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        if let Self::RateLimited { retry_after, .. } = self { *retry_after } else { None }
    }

    pub(crate) fn local(what: &'static str, error: &impl std::fmt::Display) -> Self {
        Self::Local { what, detail: error.to_string() }
    }
}

fn retry_text(retry_after: Option<&Duration>) -> String {
    retry_after.map_or_else(String::new, |after| format!(", asking for {}s", after.as_secs()))
}

/// A push did not end with the remote's `ok`.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// The advertisement shows another tip than the commits were built on. Nothing was sent.
    #[error("{remote} moved {branch}: expected {}, found {}; build again on the new tip", tip(.expected.as_ref()), tip(.found.as_ref()))]
    TipMoved {
        /// The remote without secrets.
        remote: String,
        /// The branch.
        branch: String,
        /// What the commits were built on; nothing for a new branch.
        expected: Option<ObjectId>,
        /// What the remote has.
        found: Option<ObjectId>,
    },
    /// The remote answered `ng`. Re-read the ref to tell a lost race from a refusal: the text does not tell.
    #[error("{remote} refused the push to {branch}: {reason}{}; allow it, or push elsewhere", told(.messages))]
    Rejected {
        /// The remote without secrets.
        remote: String,
        /// The branch.
        branch: String,
        /// The remote's reason.
        reason: String,
        /// What its hooks printed, bounded and printable.
        messages: String,
    },
    /// The connection broke after the pack began to be sent: re-read the ref.
    #[error(
        "the push of {new} to {remote} {branch} has an unknown end: {detail}; read the branch to find out"
    )]
    Uncertain {
        /// The remote without secrets.
        remote: String,
        /// The branch.
        branch: String,
        /// What we tried to make the tip.
        new: ObjectId,
        /// What broke.
        detail: String,
    },
    /// The push failed before anything was sent.
    #[error(transparent)]
    NotSent(#[from] GitError),
}

impl PushError {
    /// The row of the retry table. `Rejected` is `Policy` here; [`crate::push::Standing`] refines it by the ref.
    #[must_use]
    pub fn class(&self) -> FailureClass {
        match self {
            Self::TipMoved { .. } => FailureClass::Superseded,
            Self::Rejected { .. } => FailureClass::Policy,
            Self::Uncertain { .. } => FailureClass::Uncertain,
            Self::NotSent(error) => error.class(),
        }
    }

    /// The remote's own minimum before the next request.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        if let Self::NotSent(error) = self { error.retry_after() } else { None }
    }
}

fn tip(id: Option<&ObjectId>) -> String {
    id.map_or_else(|| "no such branch".into(), ToString::to_string)
}

fn told(messages: &str) -> String {
    if messages.is_empty() {
        String::new()
    } else {
        format!(" ({})", messages.trim_end().replace('\n', " / "))
    }
}
