//! One end of a conversation: moves messages between the application's channels and the wire.
//!
//! In: the two channels that the application does not hold, and the stream of what arrives. Out: the stream of what is
//! sent, and a task that ends with the conversation. Whatever arrives is read at once and waits here, bounded by credit,
//! so that the windows of the shared connection are never used up by an application that is slow. The application may
//! - drop its sender: what it has sent still goes out, then the conversation ends;
//! - drop its receiver: the conversation ends at once;
//! - and it sees the end in its own channels: what has arrived can still be taken, then there is no more.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, OnceLock};

use futures::Stream;
use prost::Message as _;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};
use upriver_telemetry::metric;

use crate::credit::{Credit, Grants};
use crate::error::PeerError;
use crate::gauge::Counted;
use crate::proto::{
    self, ForwardRequest, ForwardResponse, FromWatcher, ToWatcher, forward_request, forward_response,
    from_watcher, to_watcher,
};
use crate::size;

/// Messages in a channel between the application and its end, each way. Only a hand-over place: what waits is counted in
/// bytes, here on arrival and by the application before it sends. A full one makes the sender wait.
pub(crate) const CHANNEL: usize = 1;

/// The reason of an end in good order.
const OTHER_SIDE: &str = "the other side ended it";

/// Tells that a conversation is over, and why.
#[derive(Clone)]
pub struct Ended {
    over: CancellationToken,
    why: Arc<OnceLock<PeerError>>,
}

impl fmt::Debug for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ended").field(&self.why.get()).finish()
    }
}

impl Ended {
    pub(crate) fn new() -> Self {
        Self { over: CancellationToken::new(), why: Arc::new(OnceLock::new()) }
    }

    /// Waits for the end. An end that was dropped on purpose, by either side, is [`PeerError::Closed`].
    pub async fn wait(&self) -> PeerError {
        self.over.cancelled().await;
        self.why.get().cloned().unwrap_or_else(|| PeerError::closed("it was dropped"))
    }

    /// Ends it; the first reason stays.
    pub(crate) fn end(&self, why: PeerError) {
        // Not the first to say so.
        let _ = self.why.set(why);
        self.over.cancel();
    }
}

/// What a part of the wire is.
pub(crate) enum Part<K> {
    Message(K, u64),
    Credit(u64),
    Unexpected(&'static str),
}

/// One of the two sides, by what it sends and what it receives.
pub(crate) trait Side: Send + 'static {
    type Sent: Send + 'static;
    type Received: Send + 'static;
    type Out: Send + 'static;
    type In: Send + 'static;
    /// Its word in metrics.
    const NAME: &'static str;
    fn pack(message: Self::Sent, limit: usize) -> Result<(Self::Out, u64), PeerError>;
    fn credit(bytes: u64) -> Self::Out;
    fn unpack(part: Self::In) -> Part<Self::Received>;
    /// What the wire needs besides; `None` where a stream cannot say why it ends.
    fn farewell(why: &PeerError) -> Option<Status>;
    /// What an error on the wire means.
    fn broken(&self, status: &Status) -> PeerError;
}

/// The watcher's side, which called.
pub(crate) struct Watcher {
    pub(crate) address: String,
    pub(crate) replica: String,
}

impl Side for Watcher {
    type Sent = from_watcher::Kind;
    type Received = to_watcher::Kind;
    type Out = ForwardRequest;
    type In = ForwardResponse;
    const NAME: &'static str = "watcher";

    fn pack(kind: Self::Sent, limit: usize) -> Result<(Self::Out, u64), PeerError> {
        let message = FromWatcher { kind: Some(kind) };
        let bytes = size::check_from_watcher(&message, limit)?;
        let part = Some(forward_request::Part::Message(message));
        Ok((ForwardRequest { message_bytes: bytes, part }, bytes))
    }

    fn credit(bytes: u64) -> Self::Out {
        let part = Some(forward_request::Part::Credit(proto::Credit { bytes }));
        ForwardRequest { message_bytes: 0, part }
    }

    fn unpack(response: Self::In) -> Part<Self::Received> {
        match response.part {
            Some(forward_response::Part::Message(message)) => {
                let bytes = response.message_bytes.max(size::count(message.encoded_len()));
                message.kind.map_or(Part::Unexpected("an unknown message"), |kind| Part::Message(kind, bytes))
            }
            Some(forward_response::Part::Credit(credit)) => Part::Credit(credit.bytes),
            Some(forward_response::Part::Accepted(_)) => Part::Unexpected("a second Accepted"),
            None => Part::Unexpected("an empty part"),
        }
    }

    fn farewell(_why: &PeerError) -> Option<Status> {
        None
    }

    fn broken(&self, status: &Status) -> PeerError {
        match PeerError::from_status(status, &self.address, &self.replica) {
            // It was reached: the conversation had begun.
            PeerError::Unreachable { reason, .. } => PeerError::Closed { reason },
            other => other,
        }
    }
}

/// The owner's side, which was called.
pub(crate) struct Owner {
    pub(crate) from: String,
}

impl Side for Owner {
    type Sent = to_watcher::Kind;
    type Received = from_watcher::Kind;
    type Out = ForwardResponse;
    type In = ForwardRequest;
    const NAME: &'static str = "owner";

    fn pack(kind: Self::Sent, limit: usize) -> Result<(Self::Out, u64), PeerError> {
        let message = ToWatcher { kind: Some(kind) };
        let bytes = size::check_to_watcher(&message, limit)?;
        let part = Some(forward_response::Part::Message(message));
        Ok((ForwardResponse { message_bytes: bytes, part }, bytes))
    }

    fn credit(bytes: u64) -> Self::Out {
        let part = Some(forward_response::Part::Credit(proto::Credit { bytes }));
        ForwardResponse { message_bytes: 0, part }
    }

    fn unpack(request: Self::In) -> Part<Self::Received> {
        match request.part {
            Some(forward_request::Part::Message(message)) => {
                let bytes = request.message_bytes.max(size::count(message.encoded_len()));
                message.kind.map_or(Part::Unexpected("an unknown message"), |kind| Part::Message(kind, bytes))
            }
            Some(forward_request::Part::Credit(credit)) => Part::Credit(credit.bytes),
            Some(forward_request::Part::Hello(_)) => Part::Unexpected("a second Hello"),
            None => Part::Unexpected("an empty part"),
        }
    }

    fn farewell(why: &PeerError) -> Option<Status> {
        (*why != PeerError::closed(OTHER_SIDE)).then(|| why.to_status())
    }

    fn broken(&self, status: &Status) -> PeerError {
        match PeerError::from_status(status, &self.from, &self.from) {
            PeerError::Unreachable { reason, .. } => PeerError::Closed { reason },
            other => other,
        }
    }
}

/// What both halves of an end share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) ended: Ended,
    pub(crate) credit: Arc<Credit>,
    pub(crate) grants: Arc<Grants>,
    /// Largest message, either way.
    pub(crate) limit: usize,
}

impl Shared {
    pub(crate) fn new(window: u64, limit: usize) -> Self {
        let (credit, grants) = (Arc::new(Credit::default()), Arc::new(Grants::new(window)));
        Self { ended: Ended::new(), credit, grants, limit }
    }
}

/// A part, and what sends the next one; none after the last, which may be an error.
type Step<S> = Option<(Result<<S as Side>::Out, Status>, Option<Outbox<S>>)>;

struct Outbox<S: Side> {
    shared: Shared,
    app: mpsc::Receiver<S::Sent>,
    next: Option<(S::Out, u64)>,
    first: Option<S::Out>,
}

/// What goes out: first the greeting, then grants and messages, as the connection takes them.
pub(crate) fn outgoing<S: Side>(
    shared: Shared,
    app: mpsc::Receiver<S::Sent>,
    first: S::Out,
) -> impl Stream<Item = Result<S::Out, Status>> + Send + 'static {
    let outbox = Outbox::<S> { shared, app, next: None, first: Some(first) };
    futures::stream::unfold(Some(outbox), async |outbox| outbox?.step().await)
}

impl<S: Side> Outbox<S> {
    async fn step(mut self) -> Step<S> {
        if let Some(first) = self.first.take() {
            return Some((Ok(first), Some(self)));
        }
        let shared = self.shared.clone();
        let message = tokio::select! {
            biased;
            why = shared.ended.wait() => return self.leave(&why),
            bytes = shared.grants.due() => return Some((Ok(S::credit(bytes)), Some(self))),
            message = self.message() => message,
        };
        match message {
            Ok(Some(message)) => Some((Ok(message), Some(self))),
            Ok(None) => None,
            Err(why) => {
                shared.ended.end(why.clone());
                self.leave(&why)
            }
        }
    }

    fn leave(self, why: &PeerError) -> Step<S> {
        S::farewell(why).map(|status| (Err(status), None))
    }

    /// The next message that may be sent. Nothing is lost if it is not waited for to the end.
    async fn message(&mut self) -> Result<Option<S::Out>, PeerError> {
        if self.next.is_none() {
            let Some(message) = self.app.recv().await else { return Ok(None) };
            self.next = Some(S::pack(message, self.shared.limit)?);
        }
        self.shared.credit.any().await;
        Ok(self.next.take().map(|(message, bytes)| {
            self.shared.credit.spend(bytes);
            metrics::counter!(metric::FORWARD_BYTES, "side" => S::NAME).increment(bytes);
            message
        }))
    }
}

/// The receiving half, a task of its own.
pub(crate) struct Inbox<S: Side> {
    pub(crate) side: S,
    pub(crate) shared: Shared,
    pub(crate) wire: Streaming<S::In>,
    pub(crate) app: mpsc::Sender<S::Received>,
}

impl<S: Side> Inbox<S> {
    /// Reads until the conversation is over, then hands out what has arrived.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let _counted = Counted::new(metric::FORWARD_INFLIGHT, "side", S::NAME);
        let mut waiting = Waiting::default();
        let app = self.app.clone();
        let ended = self.shared.ended.clone();
        loop {
            tokio::select! {
                () = stop.cancelled() => {
                    ended.end(PeerError::closed("this replica stops"));
                    break;
                }
                // Our own sending half knows of an end: a message that does not fit.
                _ = ended.wait() => break,
                () = app.closed() => {
                    ended.end(PeerError::closed("its receiver was dropped"));
                    break;
                }
                part = self.wire.message() => if let Err(why) = self.read(part, &mut waiting) {
                    ended.end(why);
                    break;
                },
                place = app.reserve(), if waiting.wants_place() => if let Ok(place) = place {
                    waiting.give(place, &self.shared.grants);
                }
            }
        }
        tracing::debug!(side = S::NAME, why = ?ended, "a conversation is over");
        // Gives its stream back to the connection now, however long the rest takes.
        drop(self.wire);
        while waiting.has_messages() {
            tokio::select! {
                () = stop.cancelled() => return,
                place = app.reserve() => match place {
                    Ok(place) => waiting.give(place, &self.shared.grants),
                    Err(_) => return,
                }
            }
        }
    }

    fn read(
        &self,
        part: Result<Option<S::In>, Status>,
        waiting: &mut Waiting<S::Received>,
    ) -> Result<(), PeerError> {
        let part = part.map_err(|status| self.side.broken(&status))?;
        match part.map(S::unpack) {
            None => Err(PeerError::closed(OTHER_SIDE)),
            // No such message can arrive; the sums below rely on it.
            Some(Part::Message(_, bytes)) if bytes > size::count(self.shared.limit) => {
                Err(PeerError::protocol(format!("it says that a message has {bytes} bytes")))
            }
            Some(Part::Message(_, bytes)) if !self.shared.grants.arrived(bytes) => {
                Err(PeerError::protocol("it sent more than its credit"))
            }
            Some(Part::Message(message, bytes)) => {
                waiting.queue.push_back((message, bytes));
                Ok(())
            }
            Some(Part::Credit(bytes)) if self.shared.credit.grant(bytes) => Ok(()),
            Some(Part::Credit(bytes)) => Err(PeerError::protocol(format!("it granted {bytes} bytes"))),
            Some(Part::Unexpected(what)) => Err(PeerError::protocol(format!("it sent {what}"))),
        }
    }
}

/// Messages that wait for the application, and the one that lies ready for it.
struct Waiting<K> {
    queue: VecDeque<(K, u64)>,
    ready: Option<u64>,
}

impl<K> Default for Waiting<K> {
    fn default() -> Self {
        Self { queue: VecDeque::new(), ready: None }
    }
}

impl<K> Waiting<K> {
    fn has_messages(&self) -> bool {
        !self.queue.is_empty()
    }

    fn wants_place(&self) -> bool {
        self.has_messages() || self.ready.is_some()
    }

    /// The one place is free, so the message that lay there was taken.
    fn give(&mut self, place: mpsc::Permit<'_, K>, grants: &Grants) {
        if let Some(bytes) = self.ready.take() {
            grants.taken(bytes);
        }
        if let Some((message, bytes)) = self.queue.pop_front() {
            place.send(message);
            self.ready = Some(bytes);
        }
    }
}
