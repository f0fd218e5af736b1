//! What a process has once, and every claim's task uses.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::Client;
use tokio::sync::{Notify, watch};
use tokio_util::task::TaskTracker;
use upriver_engine::lease::Directory;
use upriver_model::{BranchKey, FleetId};
use upriver_peer_io::Peers;
use upriver_store::Store;

use super::Clock;
use super::watch::desk::Desk;
use crate::control::plan::Desired;
use crate::control::snapshot::OwnedBranch;

/// What the tasks of all claims of a process share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) client: Client,
    /// For lists and watches, which have their own pauses between tries.
    pub(crate) watch_client: Client,
    pub(crate) watch_idle_limit: Duration,
    pub(crate) store: Arc<dyn Store>,
    /// Where watchers of this process find owners in it.
    pub(crate) desk: Desk,
    /// Other replicas; `None` if this one serves alone.
    pub(crate) peers: Option<Arc<Peers>>,
    /// Tasks of conversations with peers; they end with the peers, and the process waits for them.
    pub(crate) carriers: TaskTracker,
    pub(crate) clock: Clock,
    pub(crate) fleet: FleetId,
    pub(crate) data_dir: PathBuf,
    pub(crate) git_timeout: Duration,
    pub(crate) fence_after: Duration,
    pub(crate) drift_poll: Duration,
    pub(crate) owned: Arc<Mutex<BTreeMap<BranchKey, OwnedBranch>>>,
    pub(crate) wake: Arc<Notify>,
    pub(crate) desired: watch::Receiver<Arc<Desired>>,
    /// Who holds what, as of the last look.
    pub(crate) directory: watch::Receiver<Arc<Directory>>,
    /// Asks for an early look at all Leases.
    pub(crate) look: Arc<Notify>,
}
