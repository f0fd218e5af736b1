//! What a replica answers: forwarding conversations and offers of claims.

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Request, Response, Status, Streaming};

use crate::conversation::{CHANNEL, Ended, Inbox, Owner, Shared, outgoing};
use crate::error::{NotOwner, PeerError};
use crate::proto::forward_service_server::ForwardService;
use crate::proto::handover_service_server::HandoverService;
use crate::proto::{
    self, Accepted, ForwardRequest, ForwardResponse, OfferRequest, OfferResponse, forward_request,
    forward_response, from_watcher, offer_response, to_watcher,
};
use crate::settings::Settings;

/// Metadata: the replica id of the caller.
const FROM: &str = "upriver-from";
/// Metadata: the replica id that the caller means.
const TO: &str = "upriver-to";

/// Our own replica id: that of the current session, which changes when a session is lost.
#[derive(Clone, Debug)]
pub struct ReplicaIdentity(watch::Receiver<String>);

impl ReplicaIdentity {
    /// Follows the id that `sessions` holds.
    #[must_use]
    pub fn new(sessions: watch::Receiver<String>) -> Self {
        Self(sessions)
    }

    pub(crate) fn current(&self) -> String {
        self.0.borrow().clone()
    }
}

/// Our half of one forwarding conversation, on the owner's side.
#[derive(Debug)]
pub struct OwnerEnd {
    /// Which branch and which watch.
    pub hello: proto::Hello,
    /// Replica id of the watcher.
    pub from: String,
    /// What the watcher says; closed when the conversation is over.
    pub inbound: mpsc::Receiver<from_watcher::Kind>,
    /// What we say; dropping it ends the conversation once everything is out.
    pub outbound: mpsc::Sender<to_watcher::Kind>,
    /// Tells why it is over.
    pub ended: Ended,
}

/// A claim that its holder would hand over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Name of the claim's Lease.
    pub claim: String,
    /// Epoch under which it is held.
    pub epoch: u64,
    /// Replica id of the holder.
    pub from: String,
}

/// What the operator does with calls of other replicas.
pub trait PeerHandler: Send + Sync + 'static {
    /// A watcher wants to forward. Takes the end and returns at once, or drops it.
    ///
    /// # Errors
    /// If this replica does not own the branch.
    fn accept(&self, end: OwnerEnd) -> Result<(), NotOwner>;

    /// A holder asks whether we would take its claim. An error is the reason why not.
    fn offered(&self, offer: Offer) -> BoxFuture<'_, Result<(), String>>;
}

/// What the handlers of calls share.
#[derive(Clone)]
pub(crate) struct Shop {
    pub(crate) me: ReplicaIdentity,
    pub(crate) handler: Arc<dyn PeerHandler>,
    pub(crate) settings: Settings,
    pub(crate) tracker: TaskTracker,
    pub(crate) stop: CancellationToken,
}

/// Says who calls whom.
pub(crate) fn address_call(metadata: &mut MetadataMap, from: &str, to: &str) -> Result<(), PeerError> {
    for (key, id) in [(FROM, from), (TO, to)] {
        let value = MetadataValue::try_from(id)
            .map_err(|_| PeerError::protocol(format!("{id:?} is no replica id")))?;
        metadata.insert(key, value);
    }
    Ok(())
}

impl Shop {
    /// Who calls, if it means us.
    fn caller(&self, metadata: &MetadataMap) -> Result<String, PeerError> {
        let read = |key: &str| metadata.get(key).and_then(|value| value.to_str().ok());
        let (Some(from), Some(to)) = (read(FROM), read(TO)) else {
            return Err(PeerError::protocol(format!("a call without {FROM} and {TO} in its metadata")));
        };
        let found = self.me.current();
        if to != found {
            return Err(PeerError::WrongReplica { expected: to.to_owned(), found });
        }
        Ok(from.to_owned())
    }

    async fn hello(&self, wire: &mut Streaming<ForwardRequest>) -> Result<proto::Hello, Status> {
        let first = tokio::time::timeout(self.settings.start_timeout, wire.message())
            .await
            .map_err(|_| Status::deadline_exceeded("no Hello came"))??;
        match first.and_then(|request| request.part) {
            Some(forward_request::Part::Hello(hello)) => Ok(hello),
            Some(forward_request::Part::Message(_) | forward_request::Part::Credit(_)) | None => {
                Err(PeerError::protocol("it did not begin with Hello").to_status())
            }
        }
    }
}

#[tonic::async_trait]
impl ForwardService for Shop {
    type ForwardStream = BoxStream<'static, Result<ForwardResponse, Status>>;

    async fn forward(
        &self,
        request: Request<Streaming<ForwardRequest>>,
    ) -> Result<Response<Self::ForwardStream>, Status> {
        let from = self.caller(request.metadata()).map_err(|error| error.to_status())?;
        let mut wire = request.into_inner();
        let mut hello = self.hello(&mut wire).await?;
        let shared = Shared::new(self.settings.credit, self.settings.message_limit);
        let first = hello.credit.take().unwrap_or_default().bytes;
        if !shared.credit.grant(first) {
            return Err(PeerError::protocol(format!("it granted {first} bytes")).to_status());
        }
        let (to_app, inbound) = mpsc::channel(CHANNEL);
        let (outbound, from_app) = mpsc::channel(CHANNEL);
        let end = OwnerEnd { hello, from: from.clone(), inbound, outbound, ended: shared.ended.clone() };
        self.handler.accept(end).map_err(|error| PeerError::from(error).to_status())?;
        let inbox = Inbox { side: Owner { from }, shared: shared.clone(), wire, app: to_app };
        self.tracker.spawn(inbox.run(self.stop.clone()));
        let credit = Some(proto::Credit { bytes: self.settings.credit });
        let greeting = ForwardResponse {
            message_bytes: 0,
            part: Some(forward_response::Part::Accepted(Accepted { credit })),
        };
        Ok(Response::new(Box::pin(outgoing::<Owner>(shared, from_app, greeting))))
    }
}

#[tonic::async_trait]
impl HandoverService for Shop {
    async fn offer(&self, request: Request<OfferRequest>) -> Result<Response<OfferResponse>, Status> {
        let from = self.caller(request.metadata()).map_err(|error| error.to_status())?;
        let OfferRequest { claim, epoch } = request.into_inner();
        let answer = self.handler.offered(Offer { claim, epoch, from });
        let answer = tokio::time::timeout(self.settings.start_timeout, answer)
            .await
            .unwrap_or_else(|_| Err("the replica is too busy to decide".to_owned()));
        let outcome = match answer {
            Ok(()) => offer_response::Outcome::Accepted(proto::OfferAccepted {}),
            Err(reason) => offer_response::Outcome::Refused(proto::OfferRefused { reason }),
        };
        Ok(Response::new(OfferResponse { outcome: Some(outcome) }))
    }
}
