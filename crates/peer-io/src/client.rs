//! Calls to other replicas, over one connection each.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use http::Uri;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::{Request, Streaming};
use upriver_telemetry::metric;

use crate::conversation::{CHANNEL, Ended, Inbox, Shared, Watcher, outgoing};
use crate::error::PeerError;
use crate::link::{Caller, Link};
use crate::proto::forward_service_client::ForwardServiceClient;
use crate::proto::handover_service_client::HandoverServiceClient;
use crate::proto::{
    self, ForwardRequest, ForwardResponse, OfferRequest, forward_request, forward_response, from_watcher,
    offer_response, to_watcher,
};
use crate::service::{ReplicaIdentity, address_call};
use crate::settings::Settings;
use crate::tls::PeerTls;

/// What HTTP calls the server; who it is decides TLS.
const ORIGIN: &str = "https://upriver-peer";

/// Whom to call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PeerAddress {
    /// Its replica id: the session that is meant.
    pub replica: String,
    /// Host and port.
    pub address: String,
}

/// Our half of one forwarding conversation, on the watcher's side.
#[derive(Debug)]
pub struct WatcherEnd {
    /// What we say; dropping it ends the conversation once everything is out.
    pub outbound: mpsc::Sender<from_watcher::Kind>,
    /// What the owner says; closed when the conversation is over.
    pub inbound: mpsc::Receiver<to_watcher::Kind>,
    /// Tells why it is over.
    pub ended: Ended,
}

/// Whether somebody else began a connection.
enum Joined {
    Yes,
    No,
}

/// Connections to other replicas, made when they are needed.
pub struct Peers {
    tls: Arc<PeerTls>,
    me: ReplicaIdentity,
    settings: Settings,
    links: Mutex<HashMap<String, Arc<Link>>>,
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl fmt::Debug for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peers").finish_non_exhaustive()
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Peers {
    /// No connections yet. All conversations end at `stop`, or when this is dropped.
    #[must_use]
    pub fn new(tls: Arc<PeerTls>, me: ReplicaIdentity, settings: Settings, stop: &CancellationToken) -> Self {
        let (links, tracker, stop) = (Mutex::default(), TaskTracker::new(), stop.child_token());
        Self { tls, me, settings, links, tracker, stop }
    }

    /// Begins a conversation with the owner of a branch.
    ///
    /// # Errors
    /// [`PeerError::next_action`] says what to do; nothing is tried twice here.
    pub async fn forward(&self, peer: &PeerAddress, hello: proto::Hello) -> Result<WatcherEnd, PeerError> {
        let begun = self.in_time(peer, Box::pin(self.begin(peer, hello))).await;
        let outcome = begun.as_ref().map_or_else(PeerError::outcome, |_| "accepted");
        metrics::counter!(metric::FORWARD_REQUESTS, "outcome" => outcome).increment(1);
        begun
    }

    /// Asks a replica whether it would take a claim of ours (F8).
    ///
    /// # Errors
    /// [`PeerError::Declined`] if not, others as for [`Peers::forward`].
    pub async fn offer(&self, peer: &PeerAddress, claim: &str, epoch: u64) -> Result<(), PeerError> {
        self.in_time(peer, Box::pin(self.ask(peer, claim, epoch))).await
    }

    /// Waits for the tasks of connections and conversations, after `stop`.
    pub async fn stopped(&self) {
        self.stop.cancelled().await;
        self.links().clear();
        self.tracker.close();
        self.tracker.wait().await;
    }

    async fn in_time<T>(
        &self,
        peer: &PeerAddress,
        call: impl Future<Output = Result<T, PeerError>>,
    ) -> Result<T, PeerError> {
        let timeout = self.settings.start_timeout;
        tokio::time::timeout(timeout, call)
            .await
            .unwrap_or_else(|_| Err(PeerError::Deadline { address: peer.address.clone(), timeout }))
    }

    async fn begin(&self, peer: &PeerAddress, mut hello: proto::Hello) -> Result<WatcherEnd, PeerError> {
        let (link, caller) = self.caller(peer).await?;
        let shared = Shared::new(self.settings.credit, self.settings.message_limit);
        let (outbound, from_app) = mpsc::channel(CHANNEL);
        let (to_app, inbound) = mpsc::channel(CHANNEL);
        hello.credit = Some(proto::Credit { bytes: self.settings.credit });
        let first = ForwardRequest { message_bytes: 0, part: Some(forward_request::Part::Hello(hello)) };
        let stream = outgoing::<Watcher>(shared.clone(), from_app, first);
        // A stream of requests cannot end with a status; it just ends.
        let stream = futures::StreamExt::filter_map(stream, async |part| part.ok());
        let mut request = Request::new(stream);
        address_call(request.metadata_mut(), &self.me.current(), &peer.replica)?;
        let limit = self.settings.wire_limit();
        let mut client = ForwardServiceClient::with_origin(caller, Uri::from_static(ORIGIN))
            .max_decoding_message_size(limit)
            .max_encoding_message_size(limit);
        let answer = match client.forward(request).await {
            Ok(answer) => answer,
            Err(status) => return Err(self.explain(peer, &link, &status).await),
        };
        let mut wire = answer.into_inner();
        let granted = self.accepted(peer, &link, &mut wire).await?;
        if !shared.credit.grant(granted) {
            return Err(PeerError::protocol(format!("it granted {granted} bytes")));
        }
        let ended = shared.ended.clone();
        let side = Watcher { address: peer.address.clone(), replica: peer.replica.clone() };
        let inbox = Inbox { side, shared, wire, app: to_app };
        let stop = self.stop.clone();
        self.tracker.spawn(async move {
            inbox.run(stop).await;
            // In use until now.
            link.touch();
        });
        Ok(WatcherEnd { outbound, inbound, ended })
    }

    async fn accepted(
        &self,
        peer: &PeerAddress,
        link: &Link,
        wire: &mut Streaming<ForwardResponse>,
    ) -> Result<u64, PeerError> {
        let first = match wire.message().await {
            Ok(first) => first,
            Err(status) => return Err(self.explain(peer, link, &status).await),
        };
        match first.and_then(|response| response.part) {
            Some(forward_response::Part::Accepted(accepted)) => Ok(accepted.credit.unwrap_or_default().bytes),
            Some(forward_response::Part::Message(_) | forward_response::Part::Credit(_)) | None => {
                Err(PeerError::protocol("it did not begin with Accepted"))
            }
        }
    }

    async fn ask(&self, peer: &PeerAddress, claim: &str, epoch: u64) -> Result<(), PeerError> {
        let (link, caller) = self.caller(peer).await?;
        let mut request = Request::new(OfferRequest { claim: claim.to_owned(), epoch });
        address_call(request.metadata_mut(), &self.me.current(), &peer.replica)?;
        let mut client = HandoverServiceClient::with_origin(caller, Uri::from_static(ORIGIN));
        let answer = match client.offer(request).await {
            Ok(answer) => answer,
            Err(status) => return Err(self.explain(peer, &link, &status).await),
        };
        match answer.into_inner().outcome {
            Some(offer_response::Outcome::Accepted(_)) => Ok(()),
            Some(offer_response::Outcome::Refused(refused)) => {
                Err(PeerError::Declined { reason: refused.reason })
            }
            None => Err(PeerError::protocol("it neither accepts nor refuses")),
        }
    }

    /// A failed call; where the connection failed, that is the better explanation.
    async fn explain(&self, peer: &PeerAddress, link: &Link, status: &tonic::Status) -> PeerError {
        match PeerError::from_status(status, &peer.address, &peer.replica) {
            told @ PeerError::Unreachable { .. } => link.cause().await.unwrap_or(told),
            told => told,
        }
    }

    /// A connection that is open. One attempt serves all who call meanwhile; who joined one that fails makes his own, since
    /// it may have begun long before his call.
    async fn caller(&self, peer: &PeerAddress) -> Result<(Arc<Link>, Caller), PeerError> {
        let (link, joined) = self.link(peer)?;
        match (link.open().await, joined) {
            (Ok(caller), _) => Ok((link, caller)),
            (Err(error), Joined::No) => Err(error),
            (Err(_), Joined::Yes) => {
                let (link, _) = self.link(peer)?;
                let caller = link.open().await?;
                Ok((link, caller))
            }
        }
    }

    /// The connection to a peer: the one there is, or a new one if that has ended, meant another replica, or began with
    /// certificates that have changed.
    fn link(&self, peer: &PeerAddress) -> Result<(Arc<Link>, Joined), PeerError> {
        if self.stop.is_cancelled() {
            return Err(PeerError::closed("this replica stops"));
        }
        let generation = self.tls.current().generation;
        let now = Instant::now();
        let mut links = self.links();
        // Whoever is in a conversation or call holds its link.
        links.retain(|_, link| {
            Arc::strong_count(link) > 1 || now.duration_since(link.unused_since()) < self.settings.idle
        });
        if let Some(link) = links.get(&peer.address)
            && link.replica == peer.replica
            && link.generation == generation
            && !link.has_ended()
        {
            return Ok((link.clone(), Joined::Yes));
        }
        let link = Link::start(peer, &self.tls, self.settings, &self.tracker);
        links.insert(peer.address.clone(), link.clone());
        Ok((link, Joined::No))
    }

    fn links(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Link>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
