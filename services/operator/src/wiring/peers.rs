//! Start of the part that other replicas see.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use upriver_peer_io::{PeerTls, Peers, ReplicaIdentity, Settings};

use super::{Links, StartError};
use crate::config::PeerConfig;
use crate::http;
use crate::tasks::peers::Reception;
use crate::tasks::shared::Shared;

/// Between two looks at the certificate files.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Ready to serve and to call.
pub(super) struct PeerPart {
    pub(super) peers: Arc<Peers>,
    /// Where others reach us; part of the session.
    pub(super) address: String,
    tls: Arc<PeerTls>,
    listener: TcpListener,
    me: ReplicaIdentity,
    settings: Settings,
}

impl PeerPart {
    /// Reads the certificates and takes the port.
    pub(super) async fn new(
        config: Option<&PeerConfig>,
        links: &Links,
        stop: &CancellationToken,
    ) -> Result<Option<Self>, StartError> {
        let Some(config) = config else { return Ok(None) };
        let tls = PeerTls::load(config.tls.clone()).map_err(StartError::PeerTls)?;
        let listener = http::listen(config.bind_address).await?;
        let (me, settings) = (ReplicaIdentity::new(links.replica.subscribe()), Settings::default());
        let peers = Arc::new(Peers::new(tls.clone(), me.clone(), settings, stop));
        let address = config.advertise_address.clone();
        Ok(Some(Self { peers, address, tls, listener, me, settings }))
    }

    /// Serves until `stop`, in tasks of `tasks`.
    pub(super) fn start(self, shared: &Shared, tasks: &TaskTracker, stop: &CancellationToken) {
        let reception = Reception {
            desk: shared.desk.clone(),
            carriers: shared.carriers.clone(),
            directory: shared.directory.clone(),
            look: shared.look.clone(),
        };
        let Self { tls, listener, me, settings, .. } = self;
        tasks.spawn(tls.clone().follow(LOOK_EVERY, stop.clone()));
        let stop = stop.clone();
        tasks.spawn(async move {
            let served =
                upriver_peer_io::serve(listener, tls, me, Arc::new(reception), settings, stop.clone());
            if let Err(error) = served.await {
                tracing::error!(%error, "no other replica is served any more; the process stops");
                stop.cancel();
            }
        });
    }
}
