//! What does the remote offer right now? In: an address, a login, time limits. Out: its refs and capabilities.
//! Everything here blocks the calling thread, at most for the operation's deadline; never call it in an async task.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gix::ObjectId;
use gix::bstr::ByteSlice as _;
use gix::progress::Discard;
use gix::protocol::handshake::Ref;
use gix::protocol::ls_refs::RefPrefixes;
use gix::protocol::transport::client::Capabilities;
use gix::protocol::transport::client::blocking_io::http::Transport;
use gix::protocol::transport::{Protocol, Service as WireService};
use gix::protocol::{Handshake, LsRefsCommand};
use reqwest::blocking::Client;
use reqwest::header::HeaderValue;

use crate::credentials::Credentials;
use crate::error::GitError;
use crate::http::{Backend, FailureSlot, HttpFailure};
use crate::names::validate_branch;
use crate::url::{RemoteUrl, Scheme};

/// Told to the remote in every session.
pub(crate) const AGENT: &str = concat!("git/upriver-", env!("CARGO_PKG_VERSION"));

/// The two halves of a remote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Reading.
    UploadPack,
    /// Writing.
    ReceivePack,
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UploadPack => "reading",
            Self::ReceivePack => "writing",
        })
    }
}

/// Limits of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For a connection, TLS included.
    pub connect: Duration,
    /// For all requests of one operation together.
    pub operation: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: Duration::from_secs(10), operation: Duration::from_secs(60) }
    }
}

/// A remote repository and how we come to it. Cheap to clone: clones share the connection pool.
#[derive(Clone)]
pub struct Remote {
    url: RemoteUrl,
    credentials: Credentials,
    timeouts: Timeouts,
    client: Client,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("url", &self.url.display_redacted())
            .field("credentials", &self.credentials)
            .field("timeouts", &self.timeouts)
            .finish_non_exhaustive()
    }
}

/// What a remote shows at the beginning of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advertisement {
    /// Full names to ids; annotated tags as the tag object.
    pub refs: BTreeMap<String, ObjectId>,
    /// What `HEAD` points to, for example `refs/heads/main`, even if that does not exist yet. Receive-pack does not say.
    pub head_symref: Option<String>,
    /// Names, and values where they have one.
    pub capabilities: BTreeMap<String, Option<String>>,
}

impl Advertisement {
    /// The tip of a branch by its short name.
    #[must_use]
    pub fn branch(&self, branch: &str) -> Option<ObjectId> {
        self.refs.get(&full_name(branch)).copied()
    }

    /// The tip of the default branch.
    #[must_use]
    pub fn default_tip(&self) -> Option<ObjectId> {
        self.refs.get("HEAD").or_else(|| self.refs.get(self.head_symref.as_ref()?)).copied()
    }
}

impl Remote {
    /// Prepares access; nothing is connected yet.
    ///
    /// # Errors
    /// [`GitError::TransportNotSupported`] for SSH.
    pub fn new(url: RemoteUrl, credentials: Credentials, timeouts: Timeouts) -> Result<Self, GitError> {
        Self::with_ca(url, credentials, timeouts, None)
    }

    /// As [`Remote::new`], trusting these PEM certificates beside the system's.
    ///
    /// # Errors
    /// [`GitError::TransportNotSupported`] for SSH, [`GitError::BadCertificate`].
    pub fn with_ca(
        url: RemoteUrl,
        credentials: Credentials,
        timeouts: Timeouts,
        ca_pem: Option<&[u8]>,
    ) -> Result<Self, GitError> {
        let remote = url.display_redacted();
        match url.scheme() {
            Scheme::Ssh => return Err(GitError::TransportNotSupported { remote }),
            Scheme::Http | Scheme::Https => {}
        }
        let mut builder = Client::builder()
            .connect_timeout(timeouts.connect)
            .timeout(None)
            .redirect(reqwest::redirect::Policy::none())
            // Shorter than the idle limit of common proxies, so that a reused connection is a live one.
            .pool_idle_timeout(Duration::from_secs(20))
            .tcp_nodelay(true);
        if let Some(pem) = ca_pem {
            let bad = |detail: String| GitError::BadCertificate { remote: remote.clone(), detail };
            let certificates =
                reqwest::Certificate::from_pem_bundle(pem).map_err(|error| bad(error.to_string()))?;
            if certificates.is_empty() {
                return Err(bad("it holds no certificate".into()));
            }
            builder = builder.tls_certs_merge(certificates);
        }
        let client = builder
            .build()
            .map_err(|error| GitError::Internal { what: "the HTTP client", detail: error.to_string() })?;
        Ok(Self { url, credentials, timeouts, client })
    }

    /// The same remote with another login, on the same connection pool: for logins that are read anew for every push.
    #[must_use]
    pub fn with_credentials(&self, credentials: Credentials) -> Self {
        Self { credentials, ..self.clone() }
    }

    /// The address.
    #[must_use]
    pub fn url(&self) -> &RemoteUrl {
        &self.url
    }

    /// For people and logs.
    #[must_use]
    pub fn name(&self) -> String {
        self.url.display_redacted()
    }

    /// Lists all refs through one of the services; the connection check. Receive-pack answers only to accounts that may
    /// write, though a host can still refuse the push itself.
    ///
    /// # Errors
    /// See [`GitError`].
    pub fn advertise(&self, service: Service) -> Result<Advertisement, GitError> {
        let mut session = Session::open(self, service)?;
        session.refs(self, None)
    }

    /// Reads one branch: the truth after a push that ended unclear.
    ///
    /// # Errors
    /// See [`GitError`].
    pub fn read_ref(&self, branch: &str) -> Result<Option<ObjectId>, GitError> {
        validate_branch(branch)?;
        let mut session = Session::open(self, Service::UploadPack)?;
        let refs = session.refs(self, Some(&[full_name(branch)]))?;
        Ok(refs.branch(branch))
    }

    fn authorization(&self) -> Result<Option<HeaderValue>, GitError> {
        let text = match &self.credentials {
            Credentials::Anonymous => return Ok(None),
            Credentials::Basic { username, password } => {
                format!("Basic {}", STANDARD.encode(format!("{username}:{password}")))
            }
            Credentials::Bearer(token) => format!("Bearer {token}"),
        };
        let mut value =
            HeaderValue::try_from(text).map_err(|_| GitError::Unauthorized { remote: self.name() })?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

/// One operation against one service: a handshake that was answered.
pub(crate) struct Session {
    pub(crate) transport: Transport<Backend>,
    pub(crate) handshake: Handshake,
    pub(crate) failure: FailureSlot,
    service: Service,
}

impl Session {
    pub(crate) fn open(remote: &Remote, service: Service) -> Result<Self, GitError> {
        let deadline = Instant::now() + remote.timeouts.operation;
        let backend = Backend::new(remote.client.clone(), remote.authorization()?, deadline);
        let failure = backend.failure();
        let address = remote.url.http_address();
        let url = gix::url::parse(address.as_bytes().as_bstr())
            .map_err(|error| GitError::Internal { what: "the address", detail: error.to_string() })?;
        // Receive-pack has no version 2, and asking for it confuses old hosts.
        let (wire_service, version) = match service {
            Service::UploadPack => (WireService::UploadPack, Protocol::V2),
            Service::ReceivePack => (WireService::ReceivePack, Protocol::V1),
        };
        let mut transport = Transport::new_http(backend, url, version, false);
        let authenticate = |_| Ok(None);
        let handshake =
            gix::protocol::handshake(&mut transport, wire_service, authenticate, Vec::new(), &mut Discard)
                .map_err(|error| explain(remote, service, &failure, &error))?;
        let session = Self { transport, handshake, failure, service };
        session.check_format(remote)?;
        Ok(session)
    }

    fn check_format(&self, remote: &Remote) -> Result<(), GitError> {
        let format =
            self.handshake.capabilities.capability("object-format").and_then(|format| format.value());
        match format {
            Some(format) if format != "sha1" => {
                Err(GitError::ObjectFormat { remote: remote.name(), format: format.to_string() })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The refs that came with the handshake, or, in version 2, those that begin with one of the prefixes.
    pub(crate) fn refs(
        &mut self,
        remote: &Remote,
        prefixes: Option<&[String]>,
    ) -> Result<Advertisement, GitError> {
        let refs = match self.handshake.refs.take() {
            Some(refs) => refs,
            None => {
                let prefixes = prefixes.map(|names| {
                    let mut prefixes = RefPrefixes::new();
                    prefixes.extend(names.iter().map(|name| name.as_str().into()));
                    prefixes
                });
                let agent = ("agent", Some(AGENT.to_owned()));
                LsRefsCommand::new(prefixes, &self.handshake.capabilities, agent)
                    .invoke_blocking(&mut self.transport, &mut Discard, false)
                    .map_err(|error| self.explain(remote, &error))?
            }
        };
        Ok(advertisement(&refs, &self.handshake.capabilities))
    }

    pub(crate) fn explain(&self, remote: &Remote, error: &dyn std::error::Error) -> GitError {
        explain(remote, self.service, &self.failure, error)
    }
}

fn advertisement(list: &[Ref], wire: &Capabilities) -> Advertisement {
    let mut refs = BTreeMap::new();
    let mut head_symref = None;
    for item in list {
        let (name, id) = match item {
            Ref::Direct { full_ref_name, object } => (full_ref_name, Some(*object)),
            Ref::Peeled { full_ref_name, tag, .. } => (full_ref_name, Some(*tag)),
            Ref::Symbolic { full_ref_name, target, tag, object } => {
                if full_ref_name == "HEAD" {
                    head_symref = Some(target.to_string());
                }
                (full_ref_name, Some(tag.unwrap_or(*object)))
            }
            Ref::Unborn { full_ref_name, target } => {
                if full_ref_name == "HEAD" {
                    head_symref = Some(target.to_string());
                }
                (full_ref_name, None)
            }
        };
        // Receive-pack also lists `.have` lines, which are no refs.
        if let Some(id) = id.filter(|_| name == "HEAD" || name.starts_with(b"refs/")) {
            refs.insert(name.to_string(), id);
        }
    }
    let capabilities = wire
        .iter()
        .filter(|capability| !capability.name().trim().is_empty())
        .map(|capability| {
            let value = capability.value().map(|value| value.trim().as_bstr().to_string());
            (capability.name().trim().as_bstr().to_string(), value)
        })
        .collect();
    Advertisement { refs, head_symref, capabilities }
}

pub(crate) fn full_name(branch: &str) -> String {
    format!("refs/heads/{branch}")
}

/// The HTTP layer knows the facts; what gix reports is their echo, and counts only when HTTP went well.
pub(crate) fn explain(
    remote: &Remote,
    service: Service,
    failure: &FailureSlot,
    error: &dyn std::error::Error,
) -> GitError {
    match failure.get() {
        Some(failure) => from_http(remote, service, failure),
        None => {
            GitError::Protocol { remote: remote.name(), detail: crate::printable(causes(error).as_bytes()) }
        }
    }
}

pub(crate) fn from_http(remote: &Remote, service: Service, failure: HttpFailure) -> GitError {
    let name = remote.name();
    match failure {
        HttpFailure::NotSent(detail) | HttpFailure::Broken(detail) => {
            GitError::Unreachable { remote: name, detail }
        }
        HttpFailure::TimedOut => GitError::TimedOut { remote: name, after: remote.timeouts.operation },
        HttpFailure::Redirect(target) => GitError::Redirected { remote: name, target },
        HttpFailure::Status { status, retry_after, excerpt } => match (status, retry_after) {
            (429, _) | (403 | 503, Some(_)) => GitError::RateLimited { remote: name, status, retry_after },
            (401, _) => GitError::Unauthorized { remote: name },
            (403, None) => GitError::Forbidden { remote: name, service, detail: excerpt },
            (404 | 410, _) => GitError::NotFound { remote: name },
            (413, _) => GitError::TooLarge { remote: name },
            (500.., _) => GitError::ServerFailed { remote: name, status, detail: excerpt },
            (_, _) => GitError::UnexpectedStatus { remote: name, status, detail: excerpt },
        },
    }
}

fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}
