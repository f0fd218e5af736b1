//! How do etcd and kube-apiserver start quickly on loopback, and again after a stop?
//!
//! In: options. Out: two processes, one folder. A port that somebody else took meanwhile leads to new ports; after the
//! first success ports, certificate, keys and tokens stay, so that clients survive restarts.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use kube::Client;
use serde_json::json;

use super::access::{User, kubeconfig, write_private};
use super::options::ControlPlaneOptions;
use crate::TestkitError;
use crate::ports::free_ports;
use crate::process::{ChildProcess, ProcessSpec, Signal};
use crate::servers;
use crate::wait::try_eventually;
use crate::workdir::WorkDir;

const READY_WITHIN: Duration = Duration::from_secs(60);
const PORT_TRIES: usize = 5;
/// What Linux and Go print when a port is taken.
const PORT_TAKEN: &str = "address already in use";

const AUDIT_POLICY: &str = include_str!("audit-policy.yaml");

/// The processes of a control plane. Field order is drop order: the API server goes before its store, both before
/// their files.
#[derive(Debug)]
pub(super) struct Local {
    apiserver: Mutex<Option<ChildProcess>>,
    etcd: ChildProcess,
    servers: &'static Path,
    etcd_port: u16,
    port: u16,
    options: ControlPlaneOptions,
    secret: String,
    startup_ms: AtomicU64,
    dir: WorkDir,
}

impl Local {
    pub(super) async fn start(options: ControlPlaneOptions) -> Result<Self, TestkitError> {
        let servers = tokio::task::spawn_blocking(servers::folder)
            .await
            .expect("looking for the servers does not panic, and nobody cancels it")?;
        let dir = WorkDir::new("plane", options.dir.clone()).map_err(io_error("make a folder"))?;
        let secret = write_credentials(dir.path())?;
        write_audit(dir.path(), &options)?;
        let (etcd, etcd_port) = start_etcd(servers, &dir)?;
        let apiserver = Mutex::new(None);
        let startup_ms = AtomicU64::new(0);
        let mut local =
            Self { apiserver, etcd, servers, etcd_port, port: 0, options, secret, startup_ms, dir };
        for _ in 1..PORT_TRIES {
            [local.port] = free_ports();
            match local.start_apiserver().await {
                Err(TestkitError::NotReady { log, .. }) if log.contains(PORT_TAKEN) => {}
                outcome => return outcome.map(|()| local),
            }
            if !local.etcd.is_running() {
                (local.etcd, local.etcd_port) = start_etcd(servers, &local.dir)?;
            }
        }
        [local.port] = free_ports();
        local.start_apiserver().await.map(|()| local)
    }

    pub(super) async fn start_apiserver(&self) -> Result<(), TestkitError> {
        if self.running().as_ref().is_some_and(ChildProcess::is_running) {
            return Ok(());
        }
        // Each start has a log of its own, so that an old line never explains a new failure.
        let _ =
            fs::rename(self.dir().join("kube-apiserver.log"), self.dir().join("kube-apiserver.previous.log"));
        let process = ProcessSpec::new(self.servers.join("kube-apiserver"), self.dir())
            .args(self.apiserver_flags())
            .grace(Duration::ZERO)
            .spawn()?;
        let ready = try_eventually("/readyz of kube-apiserver", READY_WITHIN, async || {
            for server in [&process, &self.etcd] {
                if let Some(status) = server.exit_status() {
                    return Ok(Err(format!("{} ended with {status}", server.log().display())));
                }
            }
            self.probe().await.map(Ok)
        })
        .await;
        let why = match ready {
            Ok(Ok(())) => {
                *self.running() = Some(process);
                return Ok(());
            }
            Ok(Err(ended)) => ended,
            Err(late) => late.to_string(),
        };
        let log = format!("{}\n--- etcd ---\n{}", process.tail_log(), self.etcd.tail_log());
        Err(TestkitError::NotReady { server: "kube-apiserver", why, log })
    }

    pub(super) fn stop_apiserver(&self) {
        *self.running() = None;
    }

    pub(super) fn signal(&self, signal: Signal) {
        let sent = self.running().as_ref().is_some_and(|process| process.signal(signal));
        assert!(sent, "{signal:?} was sent to an API server that does not run");
    }

    pub(super) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// The server makes its certificate at its first start and keeps it; the file holds its issuer too.
    pub(super) fn ca_pem(&self) -> Result<String, TestkitError> {
        fs::read_to_string(self.dir().join("certs/apiserver.crt"))
            .map_err(io_error("read the API server's certificate"))
    }

    pub(super) fn ca_der(&self) -> Result<Vec<Vec<u8>>, TestkitError> {
        let pem = self.ca_pem()?;
        let blocks = pem.split("-----BEGIN CERTIFICATE-----").skip(1);
        let bodies = blocks.filter_map(|block| block.split("-----END CERTIFICATE-----").next());
        let decode = |body: &str| STANDARD.decode(body.split_whitespace().collect::<String>());
        bodies.map(decode).collect::<Result<_, _>>().map_err(|error| TestkitError::Io {
            what: "decode the API server's certificate".into(),
            source: std::io::Error::new(std::io::ErrorKind::InvalidData, error),
        })
    }

    pub(super) fn token(&self, user: User) -> String {
        token(user, &self.secret)
    }

    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(super) fn pids(&self) -> Vec<u32> {
        let apiserver = self.running().as_ref().map(ChildProcess::pid);
        [Some(self.etcd.pid()), apiserver].into_iter().flatten().collect()
    }

    pub(super) fn rss_mb(&self) -> u64 {
        self.etcd.rss_mb() + self.running().as_ref().map_or(0, ChildProcess::rss_mb)
    }

    pub(super) fn note_start(&self, took: Duration) {
        self.startup_ms.store(u64::try_from(took.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(super) fn startup_ms(&self) -> u64 {
        self.startup_ms.load(Ordering::Relaxed)
    }

    fn running(&self) -> MutexGuard<'_, Option<ChildProcess>> {
        self.apiserver.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One look at `/readyz`. The certificate appears during the start, hence a new client each time until then.
    async fn probe(&self) -> Result<(), String> {
        let server = self.url().parse().expect("our own URL is well formed");
        let mut config = kube::Config::new(server);
        config.root_cert = Some(self.ca_der().map_err(|error| error.to_string())?);
        config.auth_info.token = Some(self.token(User::Admin).into());
        config.default_retry = false;
        let client = Client::try_from(config).map_err(|error| error.to_string())?;
        let request = Request::get("/readyz").body(Vec::new()).expect("a constant request is well formed");
        client.request_text(request).await.map(|_| ()).map_err(|error| error.to_string())
    }

    fn apiserver_flags(&self) -> Vec<String> {
        let file = |name: &str| self.dir().join(name).to_string_lossy().into_owned();
        let mut flags = vec![
            format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port),
            format!("--secure-port={}", self.port),
            "--bind-address=127.0.0.1".into(),
            format!("--cert-dir={}", file("certs")),
            "--endpoint-reconciler-type=none".into(),
            "--service-account-issuer=https://upriver.invalid".into(),
            format!("--service-account-key-file={}", file("sa.pub")),
            format!("--service-account-signing-key-file={}", file("sa.key")),
            "--service-cluster-ip-range=10.96.0.0/16".into(),
            "--authorization-mode=RBAC".into(),
            format!("--token-auth-file={}", file("tokens.csv")),
            // Without a controller manager nobody makes the ServiceAccounts that this plugin insists on.
            "--disable-admission-plugins=ServiceAccount".into(),
            "--max-mutating-requests-inflight=1000".into(),
            "--profiling=false".into(),
        ];
        if self.options.audit_webhook_url.is_some() {
            flags.extend([
                format!("--audit-policy-file={}", file("audit-policy.yaml")),
                format!("--audit-webhook-config-file={}", file("audit-webhook.kubeconfig")),
                "--audit-webhook-batch-max-wait=1s".into(),
                "--audit-webhook-initial-backoff=1s".into(),
            ]);
        }
        flags.extend(self.options.extra_flags.iter().cloned());
        flags
    }
}

fn start_etcd(servers: &Path, dir: &WorkDir) -> Result<(ChildProcess, u16), TestkitError> {
    let [client, peer] = free_ports();
    let data = dir.sub("etcd").map_err(io_error("make the folder of etcd"))?;
    let client_url = format!("http://127.0.0.1:{client}");
    let peer_url = format!("http://127.0.0.1:{peer}");
    let process = ProcessSpec::new(servers.join("etcd"), dir.path())
        .args([
            "--name=upriver".to_owned(),
            format!("--data-dir={}", data.display()),
            format!("--listen-client-urls={client_url}"),
            format!("--advertise-client-urls={client_url}"),
            format!("--listen-peer-urls={peer_url}"),
            format!("--initial-advertise-peer-urls={peer_url}"),
            format!("--initial-cluster=upriver={peer_url}"),
            // The data lives as long as the test; a kill loses nothing, only a power cut would.
            "--unsafe-no-fsync".to_owned(),
            "--log-level=warn".to_owned(),
        ])
        .grace(Duration::ZERO)
        .spawn()?;
    Ok((process, client))
}

/// Tokens and the key that signs service account tokens. A folder used before keeps what it has.
fn write_credentials(dir: &Path) -> Result<String, TestkitError> {
    let tokens = dir.join("tokens.csv");
    if let Some(secret) = fs::read_to_string(&tokens).ok().as_deref().and_then(secret_of) {
        return Ok(secret.to_owned());
    }
    let mut bytes = [0_u8; 16];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| random_error())?;
    let secret: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    // The server wants the two halves in two files.
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).map_err(|_| random_error())?;
    let private = pair.to_pkcs8v1().map_err(|_| random_error())?;
    let public = pair.public_key().as_der().map_err(|_| random_error())?;
    write_private(&dir.join("sa.key"), &pem("PRIVATE KEY", private.as_ref()))?;
    write_private(&dir.join("sa.pub"), &pem("PUBLIC KEY", public.as_ref()))?;
    let line = |user: User| {
        format!("{},{},{},\"{}\"\n", token(user, &secret), user.name(), user.name(), user.group())
    };
    write_private(&tokens, &User::ALL.map(line).concat())?;
    Ok(secret)
}

fn pem(label: &str, der: &[u8]) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der))
}

fn token(user: User, secret: &str) -> String {
    format!("{}-{secret}", user.name())
}

fn secret_of(tokens: &str) -> Option<&str> {
    tokens.split(',').next()?.strip_prefix("admin-")
}

fn write_audit(dir: &Path, options: &ControlPlaneOptions) -> Result<(), TestkitError> {
    let Some(url) = &options.audit_webhook_url else { return Ok(()) };
    let path: PathBuf = dir.join("audit-policy.yaml");
    fs::write(&path, AUDIT_POLICY).map_err(io_error("write the audit policy"))?;
    let (cluster, user) = match &options.audit_webhook_tls {
        Some(tls) => (
            json!({
                "server": url,
                "certificate-authority-data": STANDARD.encode(&tls.ca_pem),
                "tls-server-name": tls.server_name,
            }),
            json!({
                "client-certificate-data": STANDARD.encode(&tls.client_cert_pem),
                "client-key-data": STANDARD.encode(&tls.client_key_pem),
            }),
        ),
        None if url.starts_with("https:") => {
            (json!({"server": url, "insecure-skip-tls-verify": true}), json!({}))
        }
        None => (json!({"server": url}), json!({})),
    };
    write_private(&dir.join("audit-webhook.kubeconfig"), &kubeconfig(&cluster, &user).to_string())
}

fn random_error() -> TestkitError {
    TestkitError::Io { what: "get random bytes".into(), source: std::io::Error::other("the system has none") }
}

fn io_error(what: &'static str) -> impl FnOnce(std::io::Error) -> TestkitError {
    move |source| TestkitError::Io { what: what.into(), source }
}
