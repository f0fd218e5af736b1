//! Real servers for tests and the demo: which are running, where, and are they gone afterwards?
//!
//! In: nothing but a machine with Go (first run only) and redis-server. Out: a kube-apiserver with etcd
//! ([`ControlPlane`]), a Redis ([`RedisServer`]), the operator itself ([`Operator`]), all of it together with a Git server
//! and the standard objects ([`Stack`]), child processes in general ([`process`]), waits with a deadline
//! ([`wait`]). [`loading_redis`] is a Redis that is not ready for minutes; [`proxy`] stands between a client and a server and falls silent; [`peer_certs`] are what
//! replicas show each other; [`fake_api`] says what a real API server cannot be made to say. All of it listens on loopback, all of it ends with its owner, even one that is killed. What is
//! deliberately absent: other doubles of these servers, Docker, a kubelet and a controller manager (Deployments get no
//! pods, namespaces get no default objects and stay Terminating when deleted: use fresh names).

pub mod control_plane;
pub mod fake_api;
pub mod git_server;
pub mod loading_redis;
pub mod operator;
pub mod peer_certs;
pub mod ports;
pub mod process;
pub mod proxy;
pub mod redis;
pub mod servers;
pub mod stack;
pub mod wait;
mod workdir;

use std::path::PathBuf;
use std::process::ExitStatus;

pub use self::redis::{RedisOptions, RedisServer, SentinelSet};
pub use control_plane::{ControlPlane, ControlPlaneOptions, User};
pub use operator::{Operator, OperatorOptions};
pub use peer_certs::{PeerCa, PeerCerts};
pub use process::{ChildProcess, ProcessSpec, Signal};
pub use stack::{Mirror, MirrorSpec, Stack, StackOptions};
pub use wait::{eventually, holds_for, try_eventually};

/// A real server could not be had.
#[derive(Debug, thiserror::Error)]
pub enum TestkitError {
    /// The control plane's binaries are missing and the build script failed; it said why on stderr.
    #[error(
        "tests/tools/build.sh found and built no kube-apiserver and etcd ({status}); its output says why"
    )]
    NoServers {
        /// How the script ended.
        status: ExitStatus,
    },
    /// A program that has to be installed is not.
    #[error("{program} is not on PATH: install {package}")]
    NotInstalled {
        /// The program.
        program: &'static str,
        /// The Debian package that brings it.
        package: &'static str,
    },
    /// A file or folder could not be used.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A process could not be started.
    #[error(transparent)]
    Process(#[from] process::ProcessError),
    /// A server was started and did not get ready.
    #[error("{server} is not ready: {why}\n--- last lines of its log ---\n{log}")]
    NotReady {
        /// Which server.
        server: &'static str,
        /// The last sight of it.
        why: String,
        /// The end of its log.
        log: String,
    },
    /// The API server refused something that every run needs.
    #[error("the API server refused to {what}: {source}")]
    Kube {
        /// What was asked.
        what: String,
        /// Its answer.
        source: Box<kube::Error>,
    },
    /// A kubeconfig given by the user is unusable.
    #[error("the kubeconfig {path} is unusable: {why}")]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A YAML text is not what it should be.
    #[error("unusable YAML: {why}")]
    Yaml {
        /// What the parser said.
        why: String,
    },
    /// The operation needs a control plane that this process started.
    #[error("{what} needs a control plane of our own, but UPRIVER_TEST_KUBECONFIG names another cluster")]
    External {
        /// What was asked.
        what: &'static str,
    },
}

/// Installs the TLS provider that kube and others look for. Every entry point of this crate calls it.
pub fn init_tls() {
    // An error means that one is installed already, which is just as well.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

/// The folder with the input of a recorded case, for example `WCH-01`: below `UPRIVER_SHARED`, or `shared` beside the
/// workspace. `None`, with a printed line, if it is not there; the test is then skipped.
#[must_use]
pub fn case_input(case: &str) -> Option<PathBuf> {
    let beside = || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared"));
    let root = std::env::var_os("UPRIVER_SHARED").map_or_else(beside, PathBuf::from);
    let folder = root.join("cases/inputs").join(case);
    if folder.is_dir() {
        return Some(folder);
    }
    println!("SKIPPED: no input of {case} at {} (set UPRIVER_SHARED)", folder.display());
    None
}

/// The operator's binary: `UPRIVER_BIN`, or the one beside the running test in the target folder.
///
/// # Panics
/// If it has not been built.
#[must_use]
pub fn upriver_binary() -> PathBuf {
    if let Some(named) = std::env::var_os("UPRIVER_BIN") {
        let path = PathBuf::from(named);
        assert!(path.is_file(), "UPRIVER_BIN names {}, which is no file", path.display());
        return path;
    }
    let exe = std::env::current_exe().expect("a running program has a path");
    // Tests run in target/<profile>/deps, examples in target/<profile>/examples, binaries in target/<profile>.
    let found = exe.ancestors().skip(1).take(2).map(|dir| dir.join("upriver")).find(|path| path.is_file());
    found.unwrap_or_else(|| {
        panic!("no `upriver` binary beside {}: run `cargo build -p upriver-operator` first", exe.display())
    })
}
