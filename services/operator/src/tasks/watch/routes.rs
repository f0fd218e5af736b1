//! The way to the owner of a branch: inside this process, or to the replica that its claim's Lease names.

use std::sync::Arc;

use tokio::sync::{Notify, watch};
use tokio_util::task::TaskTracker;
use upriver_engine::lease::Directory;
use upriver_peer_io::{PeerAction, PeerAddress, PeerError, Peers};

use super::desk::Desk;
use super::link::{Hello, WatcherEnd};
use super::remote;
use crate::tasks::shared::Shared;

/// How watchers reach owners.
#[derive(Clone)]
pub(super) struct Routes {
    pub(super) desk: Desk,
    /// Who holds what, as of the last look at the Leases.
    pub(super) directory: watch::Receiver<Arc<Directory>>,
    /// Asks for an early look.
    pub(super) look: Arc<Notify>,
    /// Absent in a process that serves alone.
    pub(super) peers: Option<Arc<Peers>>,
    /// Tasks of conversations with peers.
    pub(super) carriers: TaskTracker,
}

impl Routes {
    pub(super) fn new(shared: &Shared) -> Self {
        Self {
            desk: shared.desk.clone(),
            directory: shared.directory.clone(),
            look: shared.look.clone(),
            peers: shared.peers.clone(),
            carriers: shared.carriers.clone(),
        }
    }

    /// Connects to the owner, or answers `None`: it is not known, or it cannot be reached now.
    pub(super) async fn connect(&self, hello: &Hello) -> Option<WatcherEnd> {
        if let Some(end) = self.desk.connect(hello) {
            return Some(end);
        }
        let owner = self.directory.borrow().owner_of(&hello.branch)?;
        // It is being opened here; the desk tells when it is.
        if owner.me || owner.address.is_empty() {
            return None;
        }
        let peers = self.peers.as_ref()?;
        let address = PeerAddress { replica: owner.replica.to_string(), address: owner.address };
        match remote::connect(peers, &self.carriers, &address, hello).await {
            Ok(end) => Some(end),
            Err(error) => {
                self.refused(hello, &address, &error);
                None
            }
        }
    }

    fn refused(&self, hello: &Hello, owner: &PeerAddress, error: &PeerError) {
        let (branch, watch) = (&hello.branch, &hello.watch);
        match error.next_action() {
            // The claim has moved, or is about to: normal in a fleet.
            PeerAction::CallHolder | PeerAction::FindReplica => {
                tracing::debug!(%branch, %watch, replica = owner.replica, %error, "the owner is elsewhere");
                self.look.notify_one();
            }
            PeerAction::TryAgain
            | PeerAction::FixCertificates
            | PeerAction::KeepClaim
            | PeerAction::LeaveOut
            | PeerAction::Inspect => {
                tracing::warn!(%branch, %watch, replica = owner.replica, %error, "events cannot be forwarded to the owner");
            }
        }
    }
}
