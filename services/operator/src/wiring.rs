//! Start and stop: settings, clients, checks, tasks, signals.

mod peers;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Config as KubeConfig, ResourceExt};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use upriver_engine::lease::Directory;
use upriver_kube_io::client::Clients;
use upriver_kube_io::lease::Leases;
use upriver_model::{BranchKey, FleetId};
use upriver_redis_io::RedisStore;
use upriver_store::{EmbeddedStore, Store, StoreError};
use upriver_telemetry::metric;

use crate::config::{self, Action, Cli, Config};
use crate::control::plan::Desired;
use crate::control::snapshot::OwnedBranch;
use crate::control::{self, Control};
use crate::http::{self, Health, StoreStart};
use crate::tasks::ownership::{self, Alone, Consent, NoPeers, Ownership};
use crate::tasks::peers::AskPeers;
use crate::tasks::shared::Shared;
use crate::tasks::watch::desk::Desk;
use crate::tasks::{Clock, housekeeper};
use peers::PeerPart;

/// Why the process cannot run.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error(transparent)]
    Config(#[from] config::ConfigError),
    #[error(transparent)]
    Log(#[from] upriver_telemetry::LogError),
    #[error("the Kubernetes configuration cannot be used: {0}; pass --kubeconfig or run inside a cluster")]
    Kube(String),
    #[error("namespace {namespace} cannot be read: {reason}; create it, and allow this account to get it")]
    Namespace { namespace: String, reason: String },
    #[error("{0}")]
    Store(StoreError),
    #[error(transparent)]
    Listen(#[from] http::ListenError),
    #[error("the certificates for other replicas cannot be used: {0}")]
    PeerTls(upriver_peer_io::TlsError),
    #[error(transparent)]
    NotAlone(ownership::NotAlone),
    #[error("the process cannot be set up: {0}")]
    System(String),
}

/// The whole program. Bad flags end with 2 (by the parser), everything else that stops the start with 1.
#[must_use]
pub fn main(cli: Cli) -> ExitCode {
    let Action::Run(args) = cli.command;
    match start(*args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("upriver: {error}");
            ExitCode::FAILURE
        }
    }
}

fn start(args: config::RunArgs) -> Result<(), StartError> {
    let config = config::load(args)?;
    upriver_telemetry::init_logs(&config.log_level, config.log_encoding)?;
    // A second provider in the process would make TLS set-up ambiguous; an installed one is fine.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| StartError::System(error.to_string()))?;
    runtime.block_on(run(config))
}

async fn run(config: Config) -> Result<(), StartError> {
    tracing::info!(version = env!("CARGO_PKG_VERSION"), namespace = config.namespace, "upriver starts");
    let stop = stop_on_signals()?;
    let metrics = upriver_telemetry::init_metrics().map_err(|error| StartError::System(error.to_string()))?;
    metrics::gauge!(metric::BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    let clients =
        Clients::new(kube_config(&config).await?).map_err(|error| StartError::Kube(error.to_string()))?;
    let store = store(&config)?;
    let links = Links::new();
    let metrics = config.metrics_address.map(|address| (address, metrics));
    // Before anything that can take long: a process that waits for Redis is alive, and says what it waits for.
    let servers = http::serve(links.health(), config.health_address, metrics, stop.clone()).await?;
    let tasks = TaskTracker::new();
    tasks.spawn(servers);
    tokio::select! {
        () = stop.cancelled() => return Ok(()),
        checked = check_store(&*store, &links.start) => checked?,
    }
    let fleet = fleet(&clients, &config.namespace).await?;

    tasks.spawn(housekeeper::run(
        clients.config.clone(),
        config.namespace.clone(),
        holder(&config.pod_name),
        links.elected.clone(),
        stop.clone(),
    ));
    // Until the claims are handed over, the others have to reach us.
    let peers_stop = CancellationToken::new();
    let part = PeerPart::new(config.peer.as_ref(), &links, &peers_stop).await?;
    let shared = links.shared(&config, &clients, store, fleet, part.as_ref(), &tasks);
    let ownership = links.ownership(&config, &clients, shared.clone(), part.as_ref());
    if let Some(part) = part {
        part.start(&shared, &tasks, &peers_stop);
    }
    let control = links.control(&config, &clients);
    // The control part ends last: it shows what the data part did at the end.
    let control_stop = CancellationToken::new();
    let controlled = tasks.spawn(control::run(control, control_stop.clone()));
    let owning = tokio::spawn(ownership::run(ownership, stop.clone()));
    tasks.close();

    let ended = tokio::select! {
        ended = owning => ended.map(|refused| refused.err()),
        ended = controlled => ended.map(|()| None),
    };
    stop.cancel();
    peers_stop.cancel();
    control_stop.cancel();
    tasks.wait().await;
    tracing::info!("upriver has stopped");
    match ended {
        Ok(None) => Ok(()),
        Ok(Some(refused)) => Err(StartError::NotAlone(refused)),
        Err(error) => Err(StartError::System(format!("a task ended: {error}"))),
    }
}

/// Name of a candidate for the housekeeper's office.
fn holder(pod: &str) -> String {
    let suffix: u32 = rand::random();
    format!("{}-{suffix:08x}", if pod.is_empty() { "upriver" } else { pod })
}

/// What connects the parts.
struct Links {
    desired: watch::Sender<Arc<Desired>>,
    replica: watch::Sender<String>,
    elected: watch::Sender<bool>,
    planned: watch::Sender<bool>,
    start: watch::Sender<StoreStart>,
    owned: Arc<Mutex<BTreeMap<BranchKey, OwnedBranch>>>,
    wake: Arc<Notify>,
    directory: watch::Sender<Arc<Directory>>,
    look: Arc<Notify>,
}

impl Links {
    fn new() -> Self {
        Self {
            desired: watch::Sender::new(Arc::new(Desired::default())),
            replica: watch::Sender::new(String::new()),
            elected: watch::Sender::new(false),
            planned: watch::Sender::new(false),
            start: watch::Sender::new(StoreStart::Waiting("it was not asked yet".to_owned())),
            owned: Arc::new(Mutex::new(BTreeMap::new())),
            wake: Arc::new(Notify::new()),
            directory: watch::Sender::new(Arc::default()),
            look: Arc::new(Notify::new()),
        }
    }

    fn health(&self) -> Health {
        Health {
            planned: self.planned.subscribe(),
            replica: self.replica.subscribe(),
            start: self.start.subscribe(),
            owned: self.owned.clone(),
        }
    }

    fn shared(
        &self,
        config: &Config,
        clients: &Clients,
        store: Arc<dyn Store>,
        fleet: FleetId,
        part: Option<&PeerPart>,
        tasks: &TaskTracker,
    ) -> Shared {
        Shared {
            client: clients.api.clone(),
            watch_client: clients.watch.clone(),
            watch_idle_limit: config.watch_idle_limit,
            store,
            desk: Desk::new(),
            peers: part.map(|part| part.peers.clone()),
            carriers: tasks.clone(),
            clock: Clock::new(),
            fleet,
            data_dir: config.data_dir.clone(),
            git_timeout: config.git_timeout,
            fence_after: config.fence_after,
            drift_poll: config.drift_poll_interval,
            owned: self.owned.clone(),
            wake: self.wake.clone(),
            desired: self.desired.subscribe(),
            directory: self.directory.subscribe(),
            look: self.look.clone(),
        }
    }

    fn ownership(
        &self,
        config: &Config,
        clients: &Clients,
        shared: Shared,
        part: Option<&PeerPart>,
    ) -> Ownership {
        let alone = match part {
            _ if config.redis.is_none() => Some(Alone::Store),
            None => Some(Alone::Peers),
            Some(_) => None,
        };
        let consent: Arc<dyn Consent> = match part {
            Some(part) => Arc::new(AskPeers(part.peers.clone())),
            None => Arc::new(NoPeers),
        };
        Ownership {
            leases: Leases::new(clients.lease.clone(), &config.namespace),
            followed: Leases::new(clients.watch.clone(), &config.namespace),
            shared,
            pod: config.pod_name.clone(),
            replica: self.replica.clone(),
            alone,
            peer_address: part.map(|part| part.address.clone()),
            directory: self.directory.clone(),
            consent,
        }
    }

    fn control(&self, config: &Config, clients: &Clients) -> Control {
        Control {
            client: clients.api.clone(),
            watch_client: clients.watch.clone(),
            watch_idle_limit: config.watch_idle_limit,
            namespace: config.namespace.clone(),
            pod_name: config.pod_name.clone(),
            permits: config.kubeconfig_permits,
            git_timeout: config.git_timeout,
            owned: self.owned.clone(),
            wake: self.wake.clone(),
            housekeeper: self.elected.subscribe(),
            directory: self.directory.subscribe(),
            desired: self.desired.clone(),
            ready: self.planned.clone(),
        }
    }
}

/// SIGTERM and SIGINT ask for an orderly end; a second one ends the process at once.
fn stop_on_signals() -> Result<CancellationToken, StartError> {
    let stop = CancellationToken::new();
    let failed = |error: std::io::Error| StartError::System(error.to_string());
    let mut term = signal(SignalKind::terminate()).map_err(failed)?;
    let mut int = signal(SignalKind::interrupt()).map_err(failed)?;
    let token = stop.clone();
    tokio::spawn(async move {
        let mut asked = false;
        loop {
            tokio::select! {
                _ = term.recv() => {}
                _ = int.recv() => {}
            }
            if asked {
                std::process::exit(1);
            }
            asked = true;
            tracing::info!("asked to stop; handing everything over");
            token.cancel();
        }
    });
    Ok(stop)
}

async fn kube_config(config: &Config) -> Result<KubeConfig, StartError> {
    let failed = |error: String| StartError::Kube(error);
    match &config.kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path).map_err(|error| failed(error.to_string()))?;
            KubeConfig::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .map_err(|error| failed(error.to_string()))
        }
        None => KubeConfig::incluster().map_err(|error| failed(error.to_string())),
    }
}

fn store(config: &Config) -> Result<Arc<dyn Store>, StartError> {
    let Some(options) = &config.redis else {
        tracing::info!("the embedded store: one replica, its journal ends with the process");
        return Ok(Arc::new(EmbeddedStore::new()));
    };
    Ok(Arc::new(RedisStore::new(options).map_err(StartError::Store)?))
}

/// A Redis that is away is waited for, and `start` says so; one that would lose the journal is refused.
async fn check_store(store: &dyn Store, start: &watch::Sender<StoreStart>) -> Result<(), StartError> {
    // Doubling from here: a Redis that loads for minutes is asked a few times a minute.
    let mut pause = Duration::from_secs(1);
    loop {
        match store.check().await {
            Ok(()) => {
                start.send_replace(StoreStart::Passed);
                return Ok(());
            }
            Err(StoreError::Unavailable { reason }) => {
                tracing::warn!(reason, "waiting for Redis");
                start.send_replace(StoreStart::Waiting(reason));
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(10));
            }
            Err(other) => return Err(StartError::Store(other)),
        }
    }
}

/// The uid of our namespace names this installation in commits, for ever.
async fn fleet(clients: &Clients, namespace: &str) -> Result<FleetId, StartError> {
    let api: Api<Namespace> = Api::all(clients.api.clone());
    let found = api.get(namespace).await.map_err(|error| StartError::Namespace {
        namespace: namespace.to_owned(),
        reason: error.to_string(),
    })?;
    let uid = found.uid().unwrap_or_default();
    Ok(FleetId::new(uid))
}
