//! Does our state survive what can happen to a Redis: a crash, a pause, a lost disk, a restore from a backup?
//!
//! In: [`RedisOptions`]. Out: a redis-server on loopback with its own folder and an append-only file, that can be
//! killed, started again on the same port, paused, wiped and set back to an earlier state; with TLS beside it
//! ([`Certificates`]), or as one of a [`SentinelSet`].

mod sentinels;
mod tls;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tempfile::TempDir;

use crate::TestkitError;
use crate::ports::free_ports;
use crate::process::{ChildProcess, ProcessSpec, Signal, find_program};
use crate::wait::try_eventually;
use crate::workdir::WorkDir;

pub use sentinels::{MASTER, SentinelSet, SentinelTiming};
pub use tls::Certificates;

const READY_WITHIN: Duration = Duration::from_secs(15);
const PORT_TRIES: usize = 5;

/// How the server is set up. The default is what the operator asks of a production Redis, with each write on disk
/// before it is answered, so that a kill loses nothing and tests do not depend on timing.
#[derive(Clone, Debug)]
pub struct RedisOptions {
    /// `maxmemory-policy`; the operator insists on `noeviction`.
    pub maxmemory_policy: String,
    /// `maxmemory`, for example `8mb`; no limit if absent.
    pub maxmemory: Option<String>,
    /// Password of the default user.
    pub password: Option<String>,
    /// Keep an append-only file.
    pub append_only: bool,
    /// `appendfsync`: `always`, `everysec` or `no`.
    pub append_fsync: String,
    /// Listens with TLS on a second port, with these certificates.
    pub tls: Option<ServerTls>,
    /// Further arguments, for example `--timeout 1`.
    pub extra_args: Vec<String>,
    /// Folder for data and log; a temporary one if absent.
    pub dir: Option<PathBuf>,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self {
            maxmemory_policy: "noeviction".into(),
            maxmemory: None,
            password: None,
            append_only: true,
            append_fsync: "always".into(),
            tls: None,
            extra_args: Vec::new(),
            dir: None,
        }
    }
}

/// How the server speaks TLS.
#[derive(Clone, Debug)]
pub struct ServerTls {
    /// Its files; its clients' certificates have to descend from the same CA.
    pub certificates: Certificates,
    /// What it asks of clients.
    pub clients: ClientCertificates,
}

/// Do clients have to show a certificate?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    /// Who shows none is refused.
    Required,
    /// None is asked for.
    NotAsked,
}

/// A copy of a server's data at one moment.
#[derive(Debug)]
pub struct RedisSnapshot {
    dir: TempDir,
}

/// A running redis-server; dropping it ends it.
#[derive(Debug)]
pub struct RedisServer {
    // Before the folder: the process ends first, then its files go.
    process: Mutex<Option<ChildProcess>>,
    options: RedisOptions,
    program: PathBuf,
    port: u16,
    tls_port: u16,
    dir: WorkDir,
}

impl RedisServer {
    /// A server with the default options.
    ///
    /// # Panics
    /// If redis-server is not installed or does not start.
    pub async fn start() -> Self {
        Self::start_with(RedisOptions::default()).await
    }

    /// A server with other options.
    ///
    /// # Panics
    /// If redis-server is not installed or does not start.
    pub async fn start_with(options: RedisOptions) -> Self {
        match Self::try_start(options).await {
            Ok(server) => server,
            Err(error) => panic!("{error}"),
        }
    }

    /// As [`RedisServer::start_with`], for callers that report errors themselves.
    ///
    /// # Errors
    /// If redis-server is not installed or does not start.
    pub async fn try_start(options: RedisOptions) -> Result<Self, TestkitError> {
        let program = find_program("redis-server")
            .ok_or(TestkitError::NotInstalled { program: "redis-server", package: "redis-server" })?;
        let dir = WorkDir::new("redis", options.dir.clone()).map_err(io_error("make a folder for Redis"))?;
        let mut server = Self { process: Mutex::new(None), options, program, port: 0, tls_port: 0, dir };
        for _ in 1..PORT_TRIES {
            [server.port, server.tls_port] = free_ports();
            match server.launch().await {
                Err(TestkitError::NotReady { log, .. }) if log.contains("in use") => {}
                outcome => return outcome.map(|()| server),
            }
        }
        [server.port, server.tls_port] = free_ports();
        server.launch().await.map(|()| server)
    }

    /// `redis://` address with the password, if there is one.
    #[must_use]
    pub fn url(&self) -> String {
        match &self.options.password {
            Some(password) => format!("redis://:{password}@127.0.0.1:{}/", self.port),
            None => format!("redis://127.0.0.1:{}/", self.port),
        }
    }

    /// `rediss://` address of the port with TLS, which [`RedisOptions::tls`] asks for.
    #[must_use]
    pub fn tls_url(&self) -> String {
        format!("rediss://127.0.0.1:{}/", self.tls_port)
    }

    /// `host:port`.
    #[must_use]
    pub fn addr(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// A client for it.
    ///
    /// # Panics
    /// Never: the address is well formed.
    #[must_use]
    pub fn client(&self) -> ::redis::Client {
        ::redis::Client::open(self.url()).expect("our own URL is well formed")
    }

    /// Its process id, if it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process().as_ref().map(ChildProcess::pid)
    }

    /// Kills it (SIGKILL), as a crash would. Connections break, the files stay.
    pub fn stop(&self) {
        *self.process() = None;
    }

    /// Starts it again on the same port with the same files; no effect while it runs.
    ///
    /// # Panics
    /// If it does not get ready.
    pub async fn start_again(&self) {
        if self.process().as_ref().is_some_and(ChildProcess::is_running) {
            return;
        }
        if let Err(error) = self.launch().await {
            panic!("{error}");
        }
    }

    /// Loses the disk: kills it, removes its data and starts it again, empty.
    ///
    /// # Panics
    /// If files cannot be removed or it does not get ready.
    pub async fn wipe(&self) {
        self.stop();
        remove(&self.data());
        self.start_again().await;
    }

    /// Freezes it: connections stay open and nobody answers.
    pub fn pause(&self) {
        self.signal(Signal::Stop);
    }

    /// Goes on after [`RedisServer::pause`].
    pub fn resume(&self) {
        self.signal(Signal::Cont);
    }

    /// Copies its data. The server is killed for the copy and started again, so connections break.
    ///
    /// # Panics
    /// If files cannot be copied or it does not get ready.
    pub async fn snapshot(&self) -> RedisSnapshot {
        self.stop();
        let dir = tempfile::Builder::new().prefix("upriver-redis-snapshot-").tempdir();
        let dir = dir.expect("a folder for the snapshot");
        copy_tree(&self.data(), dir.path()).expect("the data of a stopped Redis can be copied");
        self.start_again().await;
        RedisSnapshot { dir }
    }

    /// Sets it back to `snapshot`, as a restore from a backup does: whatever was written since is gone.
    ///
    /// # Panics
    /// If files cannot be copied or it does not get ready.
    pub async fn restore(&self, snapshot: &RedisSnapshot) {
        self.stop();
        remove(&self.data());
        copy_tree(snapshot.dir.path(), &self.data()).expect("a snapshot can be copied back");
        self.start_again().await;
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn process(&self) -> MutexGuard<'_, Option<ChildProcess>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn signal(&self, signal: Signal) {
        let sent = self.process().as_ref().is_some_and(|process| process.signal(signal));
        assert!(sent, "{signal:?} was sent to a Redis that does not run");
    }

    async fn launch(&self) -> Result<(), TestkitError> {
        let data = self.dir.sub("data").map_err(io_error("make the data folder of Redis"))?;
        let process = self.spec(&data).spawn()?;
        let client = self.client();
        let ready = try_eventually("PONG from redis-server", READY_WITHIN, async || {
            if let Some(status) = process.exit_status() {
                return Ok(Err(status.to_string()));
            }
            let mut connection = client.get_multiplexed_async_connection().await?;
            ::redis::cmd("PING").query_async::<String>(&mut connection).await.map(Ok)
        })
        .await;
        let why = match ready {
            Ok(Ok(_)) => {
                *self.process() = Some(process);
                return Ok(());
            }
            Ok(Err(status)) => format!("it ended with {status}"),
            Err(late) => late.to_string(),
        };
        Err(TestkitError::NotReady { server: "redis-server", why, log: process.tail_log() })
    }

    fn spec(&self, data: &Path) -> ProcessSpec {
        let options = &self.options;
        let yes_no = if options.append_only { "yes" } else { "no" };
        let mut args: Vec<String> = [
            ["--port", &self.port.to_string()],
            ["--bind", "127.0.0.1"],
            ["--protected-mode", "yes"],
            ["--dir", &data.to_string_lossy()],
            ["--save", ""],
            ["--appendonly", yes_no],
            ["--appendfsync", &options.append_fsync],
            ["--maxmemory-policy", &options.maxmemory_policy],
            ["--daemonize", "no"],
        ]
        .concat()
        .into_iter()
        .map(str::to_owned)
        .collect();
        if let Some(limit) = &options.maxmemory {
            args.extend(["--maxmemory".to_owned(), limit.clone()]);
        }
        if let Some(password) = &options.password {
            args.extend(["--requirepass".to_owned(), password.clone()]);
        }
        if let Some(tls) = &options.tls {
            args.extend(tls_arguments(tls, self.tls_port));
        }
        args.extend(options.extra_args.iter().cloned());
        // No grace: a stop is meant to be a crash, and what was answered is on disk.
        ProcessSpec::new(&self.program, self.dir.path()).args(args).grace(Duration::ZERO)
    }
}

fn tls_arguments(tls: &ServerTls, port: u16) -> Vec<String> {
    let Certificates { ca, server, server_key, .. } = &tls.certificates;
    let clients = if tls.clients == ClientCertificates::Required { "yes" } else { "no" };
    [
        ["--tls-port", &port.to_string()],
        ["--tls-ca-cert-file", &ca.to_string_lossy()],
        ["--tls-cert-file", &server.to_string_lossy()],
        ["--tls-key-file", &server_key.to_string_lossy()],
        ["--tls-auth-clients", clients],
    ]
    .concat()
    .into_iter()
    .map(str::to_owned)
    .collect()
}

fn io_error(what: &str) -> impl FnOnce(io::Error) -> TestkitError {
    let what = what.to_owned();
    move |source| TestkitError::Io { what, source }
}

fn remove(dir: &Path) {
    match std::fs::remove_dir_all(dir) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => panic!("cannot remove {}: {error}", dir.display()),
    }
}

fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}
