//! Clients with the right temper: which calls may the library repeat by itself, which may it not?

use std::time::Duration;

use kube::{Client, Config};

/// The clients of one cluster.
#[derive(Clone)]
pub struct Clients {
    /// For reads, watches and status patches.
    pub api: Client,
    /// For Leases: never repeated by the library (a "failed" renewal must not land later), with its own connection so
    /// that no LIST burst delays a renewal.
    pub lease: Client,
    /// The configuration that both were made from.
    pub config: Config,
}

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(15);

impl Clients {
    /// Clients for a kubeconfig or the cluster we run in.
    ///
    /// # Errors
    /// If the configuration cannot be turned into a client.
    pub fn new(mut config: Config) -> Result<Self, kube::Error> {
        config.connect_timeout = Some(CONNECT);
        // Watches live long and are silent for a minute; their own idle limit ends them.
        config.read_timeout = None;
        let api = Client::try_from(config.clone())?;
        let mut fenced = config;
        fenced.default_retry = false;
        Ok(Self { api, lease: Client::try_from(fenced.clone())?, config: fenced })
    }
}
