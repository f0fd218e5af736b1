//! What would a real API server do with this object, this user, this restart?
//!
//! In: [`ControlPlaneOptions`]. Out: etcd and kube-apiserver on loopback with four people and an operator who can log
//! in, ready in seconds. With `UPRIVER_TEST_KUBECONFIG` the same calls use that cluster instead, its users played by
//! impersonation; what needs our own processes (stop, pause, memory, audit webhook) then fails with
//! [`TestkitError::External`], and what tests make stays behind: namespaces, CRDs, and the roles `upriver-test-*`.

mod access;
mod bootstrap;
mod external;
mod launch;
mod options;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use tokio::sync::OnceCell;

use crate::TestkitError;
use crate::process::Signal;

use external::External;
use launch::Local;

pub use access::User;
pub use options::{AuditTls, ControlPlaneOptions};

/// A control plane; dropping it ends its processes.
#[derive(Debug)]
pub struct ControlPlane {
    backend: Backend,
}

#[derive(Debug)]
enum Backend {
    Local(Box<Local>),
    External(Box<External>),
}

static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();

impl ControlPlane {
    /// A control plane with default options.
    ///
    /// # Panics
    /// If it does not get ready; the message ends with the server's log.
    pub async fn start() -> Self {
        Self::start_with(ControlPlaneOptions::default()).await
    }

    /// A control plane with these options.
    ///
    /// # Panics
    /// If it does not get ready; the message ends with the server's log.
    pub async fn start_with(options: ControlPlaneOptions) -> Self {
        match Self::try_start(options).await {
            Ok(plane) => plane,
            Err(error) => panic!("{error}"),
        }
    }

    /// As [`ControlPlane::start_with`], for callers that report errors themselves.
    ///
    /// # Errors
    /// If its binaries cannot be had, or it does not get ready within a minute.
    pub async fn try_start(options: ControlPlaneOptions) -> Result<Self, TestkitError> {
        crate::init_tls();
        if let Some(path) = std::env::var_os("UPRIVER_TEST_KUBECONFIG") {
            let external = External::open(&PathBuf::from(path))?;
            let plane = Self { backend: Backend::External(Box::new(external)) };
            bootstrap::grant_access(&plane).await?;
            return Ok(plane);
        }
        let begun = Instant::now();
        let local = Local::start(options).await?;
        let plane = Self { backend: Backend::Local(Box::new(local)) };
        bootstrap::grant_access(&plane).await?;
        if let Backend::Local(local) = &plane.backend {
            local.note_start(begun.elapsed());
        }
        Ok(plane)
    }

    /// The one control plane that all tests of this process share, started by the first who asks. It ends with the
    /// process. Tests share its objects too: use fresh namespaces ([`ControlPlane::fresh_namespace`]), and do not stop
    /// or pause it.
    pub async fn shared() -> &'static Self {
        SHARED.get_or_init(Self::start).await
    }

    /// Address of the API server, `https://…`.
    #[must_use]
    pub fn url(&self) -> String {
        match &self.backend {
            Backend::Local(local) => local.url(),
            Backend::External(external) => external.url(),
        }
    }

    /// The certificates that vouch for it, as PEM.
    ///
    /// # Panics
    /// If they cannot be read.
    #[must_use]
    pub fn ca_pem(&self) -> String {
        match &self.backend {
            Backend::Local(local) => local.ca_pem().unwrap_or_else(|error| panic!("{error}")),
            Backend::External(external) => external.ca_pem(),
        }
    }

    /// A kubeconfig file with which `user` logs in.
    ///
    /// # Panics
    /// If it cannot be written.
    #[must_use]
    pub fn kubeconfig(&self, user: User) -> PathBuf {
        self.write_kubeconfig(user).unwrap_or_else(|error| panic!("{error}"))
    }

    /// A client that acts as `user`. It retries nothing by itself, so a test sees each answer. Its connections belong
    /// to the runtime of the caller: make one per test, never keep one in a static.
    ///
    /// # Panics
    /// If the server's certificate cannot be read.
    #[must_use]
    pub fn client(&self, user: User) -> kube::Client {
        self.try_client(user).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Kills the API server, as a crash would; etcd and its data stay.
    ///
    /// # Panics
    /// If the cluster is not ours.
    pub fn stop_apiserver(&self) {
        self.local("stopping the API server").stop_apiserver();
    }

    /// Starts the API server again on the same port with the same data, certificate and tokens.
    ///
    /// # Panics
    /// If it does not get ready, or the cluster is not ours.
    pub async fn start_apiserver(&self) {
        let started = self.local("starting the API server").start_apiserver().await;
        started.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Freezes the API server: connections stay open and nobody answers.
    ///
    /// # Panics
    /// If it does not run, or the cluster is not ours.
    pub fn pause(&self) {
        self.local("pausing the API server").signal(Signal::Stop);
    }

    /// Goes on after [`ControlPlane::pause`].
    ///
    /// # Panics
    /// If it does not run, or the cluster is not ours.
    pub fn resume(&self) {
        self.local("resuming the API server").signal(Signal::Cont);
    }

    /// Process ids of etcd and, while it runs, of the API server; empty for a cluster that is not ours.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        match &self.backend {
            Backend::Local(local) => local.pids(),
            Backend::External(_) => Vec::new(),
        }
    }

    /// Resident memory of API server and etcd in MiB, 0 for a cluster that is not ours.
    #[must_use]
    pub fn rss_mb(&self) -> u64 {
        match &self.backend {
            Backend::Local(local) => local.rss_mb(),
            Backend::External(_) => 0,
        }
    }

    /// Milliseconds from start to usable, 0 for a cluster that is not ours.
    #[must_use]
    pub fn startup_ms(&self) -> u64 {
        match &self.backend {
            Backend::Local(local) => local.startup_ms(),
            Backend::External(_) => 0,
        }
    }

    /// The folder with data, logs, tokens and kubeconfigs.
    #[must_use]
    pub fn dir(&self) -> &Path {
        match &self.backend {
            Backend::Local(local) => local.dir(),
            Backend::External(external) => external.dir(),
        }
    }

    /// A namespace that no other test uses, `<prefix>-<number>`.
    ///
    /// # Panics
    /// If the API server refuses it.
    pub async fn fresh_namespace(&self, prefix: &str) -> String {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        // The process id keeps runs apart that use the same foreign cluster.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{prefix}-{}-{number}", std::process::id());
        self.create_namespace(&name).await;
        name
    }

    fn local(&self, what: &'static str) -> &Local {
        match &self.backend {
            Backend::Local(local) => local,
            Backend::External(_) => panic!("{}", TestkitError::External { what }),
        }
    }
}
