//! Which certificate do we show, and whom do we believe? Read from files, and read again when they change.
//!
//! In: three PEM files, as a mounted Secret has them, and the one name that all peers' certificates are for; so addresses
//! of pods need no place in certificates. Out: settings for the next connection. What runs goes on as it began. A new file
//! that cannot be used keeps the old ones, with a warning and a count. The folder is looked at in intervals: the kubelet
//! itself brings a changed Secret only about once a minute. TLS 1.3 only, both ends are ours.

mod names;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_util::sync::CancellationToken;
use upriver_telemetry::metric;

use names::NamedClients;

/// Where the certificate, its key and the CA are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// PEM file of our certificate, with those between it and the CA.
    pub certificate: PathBuf,
    /// PEM file of its key.
    pub key: PathBuf,
    /// PEM file of the CA, or of the old and the new one while it is changed.
    pub ca: PathBuf,
    /// The DNS name that the certificates of all replicas are for.
    pub server_name: String,
}

/// The files cannot be used; the text says which and what to put there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// It cannot be read.
    #[error("{path} cannot be read: {reason}; is the Secret mounted there?")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's words.
        reason: String,
    },
    /// It is not what it should be.
    #[error("{path} is not usable: {reason}")]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        reason: String,
    },
    /// The certificate is for other names.
    #[error(
        "{path} is not for the name {name:?}: issue it with that DNS name, or set --peer-tls-server-name"
    )]
    WrongName {
        /// The certificate.
        path: PathBuf,
        /// The name of the peers.
        name: String,
    },
    /// The name is not a DNS name.
    #[error("{name:?} is not a DNS name, which --peer-tls-server-name has to be")]
    NoName {
        /// The setting.
        name: String,
    },
}

/// What a look at the files brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reload {
    /// They are what they were.
    Same,
    /// New connections use the new ones.
    Loaded,
    /// They changed and cannot be used; the old ones stay.
    Kept(TlsError),
}

impl Reload {
    fn tell(&self, files: &TlsFiles) {
        let outcome = match self {
            Self::Same => return,
            Self::Loaded => {
                tracing::info!(certificate = %files.certificate.display(), "new peer certificates are in use");
                "loaded"
            }
            Self::Kept(error) => {
                tracing::warn!(%error, "changed peer certificates cannot be used; the old ones stay");
                "refused"
            }
        };
        metrics::counter!(metric::PEER_TLS_RELOADS, "outcome" => outcome).increment(1);
    }
}

/// What new connections use.
pub(crate) struct Current {
    /// One more with each change.
    pub(crate) generation: u64,
    pub(crate) server: Arc<ServerConfig>,
    pub(crate) client: Arc<ClientConfig>,
}

/// Certificates that are read again when their files change.
pub struct PeerTls {
    files: TlsFiles,
    name: ServerName<'static>,
    current: RwLock<Arc<Current>>,
    /// What the last look found, usable or not, so that each change is judged and told once.
    seen: Mutex<Result<Texts, TlsError>>,
}

impl std::fmt::Debug for PeerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PeerTls").field("files", &self.files).finish_non_exhaustive()
    }
}

/// The bytes of the files. Holds the key: never printed.
#[derive(Clone, PartialEq, Eq)]
struct Texts {
    certificate: Vec<u8>,
    key: Vec<u8>,
    ca: Vec<u8>,
}

impl PeerTls {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// See [`TlsError`].
    pub fn load(files: TlsFiles) -> Result<Arc<Self>, TlsError> {
        let name = ServerName::try_from(files.server_name.clone())
            .map_err(|_| TlsError::NoName { name: files.server_name.clone() })?;
        let texts = Texts::read(&files)?;
        let current = RwLock::new(Arc::new(configure(&files, &name, &texts, 0)?));
        Ok(Arc::new(Self { files, name, current, seen: Mutex::new(Ok(texts)) }))
    }

    /// Looks at the files once, and tells what came of a change.
    pub fn reload(&self) -> Reload {
        let found = self.look();
        found.tell(&self.files);
        found
    }

    /// Looks at the files in intervals, until `stop`. Run it as a task beside [`crate::serve`].
    pub async fn follow(self: Arc<Self>, every: Duration, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(every)).await.is_some() {
            let tls = self.clone();
            // An error is a panic there, which has been printed; it is never cancelled.
            if let Ok(found) = tokio::task::spawn_blocking(move || tls.look()).await {
                found.tell(&self.files);
            }
        }
    }

    fn look(&self) -> Reload {
        // Held to the end, so that two looks at a time cannot leave the older files in use.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let texts = Texts::read(&self.files);
        if *seen == texts {
            return Reload::Same;
        }
        seen.clone_from(&texts);
        let generation = self.current().generation + 1;
        match texts.and_then(|texts| configure(&self.files, &self.name, &texts, generation)) {
            Ok(next) => {
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
                Reload::Loaded
            }
            Err(error) => Reload::Kept(error),
        }
    }

    /// The DNS name of all peers.
    #[must_use]
    pub fn server_name(&self) -> &str {
        &self.files.server_name
    }

    pub(crate) fn name(&self) -> ServerName<'static> {
        self.name.clone()
    }

    pub(crate) fn current(&self) -> Arc<Current> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Texts {
    fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        let read = |path: &Path| {
            std::fs::read(path)
                .map_err(|error| TlsError::Unreadable { path: path.to_owned(), reason: error.to_string() })
        };
        Ok(Self { certificate: read(&files.certificate)?, key: read(&files.key)?, ca: read(&files.ca)? })
    }
}

fn configure(
    files: &TlsFiles,
    name: &ServerName<'static>,
    texts: &Texts,
    generation: u64,
) -> Result<Current, TlsError> {
    let chain = certificates(&files.certificate, &texts.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(&texts.key)
        .map_err(|error| unusable(&files.key, format!("no PEM private key: {error}")))?;
    names::check(&chain[0], name).map_err(|_| TlsError::WrongName {
        path: files.certificate.clone(),
        name: files.server_name.clone(),
    })?;
    let mut roots = RootCertStore::empty();
    for ca in certificates(&files.ca, &texts.ca)? {
        roots.add(ca).map_err(|error| unusable(&files.ca, error.to_string()))?;
    }
    let (roots, provider) = (Arc::new(roots), provider());
    let clients = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
        .build()
        .map_err(|error| unusable(&files.ca, error.to_string()))?;
    let clients = Arc::new(NamedClients::new(clients, name.clone()));
    // The certificate and the key are two files: one may be new and the other not yet.
    let pair =
        |error: rustls::Error| unusable(&files.certificate, format!("with {}: {error}", files.key.display()));
    let version = |error: rustls::Error| unusable(&files.certificate, error.to_string());
    let mut server = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(version)?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain.clone(), key.clone_key())
        .map_err(pair)?;
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(version)?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .map_err(pair)?;
    server.alpn_protocols = vec![b"h2".to_vec()];
    client.alpn_protocols = server.alpn_protocols.clone();
    // A resumed session skips the certificates. Connections are few and long, so each one shows them.
    server.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    client.resumption = rustls::client::Resumption::disabled();
    Ok(Current { generation, server: Arc::new(server), client: Arc::new(client) })
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn certificates(path: &Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    match found {
        Ok(found) if found.is_empty() => Err(unusable(path, "it holds no PEM certificate".to_owned())),
        Ok(found) => Ok(found),
        Err(error) => Err(unusable(path, format!("no PEM certificate: {error}"))),
    }
}

fn unusable(path: &Path, reason: String) -> TlsError {
    TlsError::Unusable { path: path.to_owned(), reason }
}
