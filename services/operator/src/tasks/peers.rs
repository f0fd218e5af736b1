//! What this replica answers to others, and what it asks them: conversations of watchers, and offers of claims.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::{Notify, watch};
use tokio_util::task::TaskTracker;
use upriver_engine::lease::{Directory, Member};
use upriver_model::{BranchKey, Epoch};
use upriver_peer_io::{NotOwner, Offer, OwnerEnd, PeerAddress, PeerHandler, Peers};

use super::ownership::Consent;
use super::watch::desk::Desk;
use super::watch::remote;

/// Serves calls of other replicas.
pub(crate) struct Reception {
    pub(crate) desk: Desk,
    /// Tasks of conversations with peers.
    pub(crate) carriers: TaskTracker,
    /// Who holds what, as of the last look at the Leases.
    pub(crate) directory: watch::Receiver<Arc<Directory>>,
    /// Asks for an early look.
    pub(crate) look: Arc<Notify>,
}

impl Reception {
    fn owner_of(&self, branch: &BranchKey) -> NotOwner {
        match self.directory.borrow().owner_of(branch) {
            // The claim is ours and its task is not: the caller is better off asking again than asking us for ever.
            Some(owner) if owner.me => NotOwner { holder: String::new(), epoch: 0 },
            Some(owner) => NotOwner { holder: owner.replica.to_string(), epoch: owner.epoch.as_key() },
            None => NotOwner { holder: String::new(), epoch: 0 },
        }
    }
}

impl PeerHandler for Reception {
    fn accept(&self, end: OwnerEnd) -> Result<(), NotOwner> {
        let branch = BranchKey::new(end.hello.branch_key.as_str());
        let from = end.from.clone();
        match remote::accept(&self.carriers, end) {
            Ok(end) => self.desk.attach(end).map_err(|_| self.owner_of(&branch)),
            Err(error) => {
                tracing::error!(%error, from, %branch, "a watcher said something unknown; are all replicas of one release?");
                Err(NotOwner { holder: String::new(), epoch: 0 })
            }
        }
    }

    fn offered(&self, offer: Offer) -> BoxFuture<'_, Result<(), String>> {
        let Some(epoch) = Epoch::new(offer.epoch) else {
            return futures::future::ready(Err("a claim without an epoch".to_owned())).boxed();
        };
        let answer =
            self.directory.borrow().consent(&offer.claim, epoch).map_err(|refusal| refusal.to_string());
        if answer.is_ok() {
            tracing::info!(
                claim = offer.claim,
                from = offer.from,
                "a claim is about to be handed over to this replica"
            );
            self.look.notify_one();
        }
        futures::future::ready(answer).boxed()
    }
}

/// Asks over the peer protocol.
pub(crate) struct AskPeers(pub(crate) Arc<Peers>);

impl Consent for AskPeers {
    fn ask(&self, peer: &Member, claim: &str, epoch: u64) -> BoxFuture<'static, Result<(), String>> {
        let (peers, claim) = (self.0.clone(), claim.to_owned());
        let peer = PeerAddress { replica: peer.replica.to_string(), address: peer.address.clone() };
        async move { peers.offer(&peer, &claim, epoch).await.map_err(|error| error.to_string()) }.boxed()
    }
}
