//! Links to other replicas: the words of a link, carried by the peer protocol.
//!
//! Each end of a link has a carrier here that knows the streams its watcher has opened. A list crosses in portions between
//! its begin and its end; one that does not arrive whole is none.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;
use upriver_engine::branch::{Member, Snapshot, Start};
use upriver_model::{ResourceVersion, WatchKey};
use upriver_peer_io::proto;
use upriver_peer_io::proto::from_watcher::Kind as FromKind;
use upriver_peer_io::proto::to_watcher::Kind as ToKind;
use upriver_peer_io::{PeerAction, PeerAddress, PeerError, Peers};
use upriver_store::Opening;

use super::link::{FromWatch, Hello, OwnerEnd, ToWatch, WatcherEnd, pair};
use super::wire::{self, Unreadable};

/// Payload bytes and members of one portion of a list.
const PORTION_BYTES: usize = 1 << 20;
const PORTION_MEMBERS: usize = 500;
/// Streams of one conversation that a late list may still name.
const STREAMS: usize = 64;

/// Why a carrier stops; the link closes with it.
enum Over {
    Closed,
    Unreadable(Unreadable),
}

impl From<Unreadable> for Over {
    fn from(error: Unreadable) -> Self {
        Self::Unreadable(error)
    }
}

type Step<T> = Result<T, Over>;

/// Connects a watcher of ours with an owner in another replica.
///
/// # Errors
/// Whatever keeps the conversation from beginning.
pub(crate) async fn connect(
    peers: &Arc<Peers>,
    carriers: &TaskTracker,
    owner: &PeerAddress,
    hello: &Hello,
) -> Result<WatcherEnd, PeerError> {
    let far = peers.forward(owner, wire::hello(hello)).await?;
    let (watcher, near) = pair(hello.clone());
    let owner = owner.replica.clone();
    let carrier = WatcherCarrier { hello: hello.clone(), opening: Mutex::default() };
    carriers.spawn(async move {
        let ended = far.ended.clone();
        tokio::select! {
            over = carrier.carry(near, far.outbound, far.inbound) => tell(&over),
            why = ended.wait() => tell_peer(&why, &owner),
        }
    });
    Ok(watcher)
}

/// Takes a conversation that a watcher of another replica has begun; the link goes to the owner's desk.
///
/// # Errors
/// If its greeting cannot be read.
pub(crate) fn accept(carriers: &TaskTracker, far: upriver_peer_io::OwnerEnd) -> Result<OwnerEnd, Unreadable> {
    let hello = wire::read_hello(&far.hello)?;
    let (near, owner) = pair(hello.clone());
    let carrier = OwnerCarrier { hello, openings: Vec::new(), list: None };
    carriers.spawn(async move {
        let ended = far.ended.clone();
        tokio::select! {
            over = carrier.carry(near, far.outbound, far.inbound) => tell(&over),
            why = ended.wait() => tell_peer(&why, &far.from),
        }
    });
    Ok(owner)
}

fn tell(over: &Over) {
    match over {
        Over::Closed => {}
        Over::Unreadable(error) => tracing::error!(%error, "a conversation is ended"),
    }
}

fn tell_peer(why: &PeerError, replica: &str) {
    match why.next_action() {
        PeerAction::CallHolder | PeerAction::FindReplica | PeerAction::TryAgain | PeerAction::KeepClaim => {
            tracing::debug!(%why, replica, "a conversation is over");
        }
        PeerAction::FixCertificates | PeerAction::LeaveOut | PeerAction::Inspect => {
            tracing::error!(%why, replica, "a conversation broke, and will again until this is mended");
        }
    }
}

async fn send<T>(to: &mpsc::Sender<T>, message: T) -> Step<()> {
    to.send(message).await.map_err(|_| Over::Closed)
}

/// The watcher's side. Each direction goes on whatever holds up the other.
struct WatcherCarrier {
    hello: Hello,
    /// What our watcher has opened last.
    opening: Mutex<Option<Opening>>,
}

impl WatcherCarrier {
    async fn carry(
        self,
        near: OwnerEnd,
        outbound: mpsc::Sender<FromKind>,
        inbound: mpsc::Receiver<ToKind>,
    ) -> Over {
        let over = tokio::select! {
            over = self.send_all(near.from, &outbound) => over,
            over = self.read_all(inbound, &near.to) => over,
        };
        match over {
            Ok(never) => match never {},
            Err(over) => over,
        }
    }

    async fn send_all(
        &self,
        mut said: mpsc::Receiver<FromWatch>,
        outbound: &mpsc::Sender<FromKind>,
    ) -> Step<Infallible> {
        loop {
            self.out(said.recv().await.ok_or(Over::Closed)?, outbound).await?;
        }
    }

    async fn read_all(
        &self,
        mut heard: mpsc::Receiver<ToKind>,
        watcher: &mpsc::Sender<ToWatch>,
    ) -> Step<Infallible> {
        loop {
            let message = self.read(heard.recv().await.ok_or(Over::Closed)?)?;
            send(watcher, message).await?;
        }
    }

    async fn out(&self, message: FromWatch, outbound: &mpsc::Sender<FromKind>) -> Step<()> {
        let kind = match message {
            FromWatch::Opening(opening) => {
                let (stream, scope_hash) = (opening.stream, opening.scope_hash.clone());
                *self.opening.lock().unwrap_or_else(PoisonError::into_inner) = Some(opening);
                FromKind::Opening(proto::Opening { stream, scope_hash })
            }
            FromWatch::Frame(frame) => FromKind::Frame(wire::frame(&frame)),
            FromWatch::Snapshot(snapshot) => return self.list(*snapshot, outbound).await,
            FromWatch::Expired { opening, rewound } => {
                let cause =
                    if rewound { proto::expired::Cause::Rewound } else { proto::expired::Cause::Expired };
                FromKind::Expired(proto::Expired { stream: opening.stream, cause: cause.into() })
            }
            FromWatch::Health(health) => FromKind::Health(wire::health(&health)),
            FromWatch::LeftOut(secrets) => FromKind::LeftOut(wire::left_out(&secrets)),
        };
        send(outbound, kind).await
    }

    async fn list(&self, snapshot: Snapshot, outbound: &mpsc::Sender<FromKind>) -> Step<()> {
        let begin = proto::SnapshotBegin {
            stream: snapshot.opening.stream,
            scopes: wire::target_scopes(&snapshot.scopes),
            list_resource_version: snapshot.list_rv.as_str().to_owned(),
            time_ms: snapshot.time_ms,
        };
        send(outbound, FromKind::SnapshotBegin(begin)).await?;
        let count = snapshot.members.len() as u64;
        let (mut portion, mut bytes) = (Vec::new(), 0);
        for member in snapshot.members {
            bytes += member.payload.as_ref().map_or(0, |payload| payload.len());
            portion.push(wire::member(&member));
            if bytes >= PORTION_BYTES || portion.len() >= PORTION_MEMBERS {
                let members = std::mem::take(&mut portion);
                send(outbound, FromKind::SnapshotMembers(proto::SnapshotMembers { members })).await?;
                bytes = 0;
            }
        }
        if !portion.is_empty() {
            send(outbound, FromKind::SnapshotMembers(proto::SnapshotMembers { members: portion })).await?;
        }
        send(outbound, FromKind::SnapshotEnd(proto::SnapshotEnd { count })).await
    }

    /// The owner names streams by their numbers; the watcher's present one is the only one it can mean.
    fn read(&self, kind: ToKind) -> Result<ToWatch, Unreadable> {
        let opening = |stream: u64| {
            let present = self.opening.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let present = present.ok_or(Unreadable("stream"))?;
            // An answer to an earlier stream is nothing to the watcher; it compares whole openings.
            Ok(Opening { stream, ..present })
        };
        Ok(match kind {
            ToKind::Subscribe(wanted) => ToWatch::Subscribe(wire::read_subscribe(wanted, &self.hello.watch)?),
            ToKind::Begin(begin) => {
                let start = match begin.resume_after {
                    Some(rv) => Start::Resume(ResourceVersion::new(&rv)),
                    None => Start::Replay,
                };
                ToWatch::Begin(opening(begin.stream)?, start)
            }
            ToKind::Continue(proceed) => ToWatch::Continue(opening(proceed.stream)?),
            ToKind::Backfill(wanted) => {
                ToWatch::Backfill(opening(wanted.stream)?, wire::read_target_scopes(&wanted.scopes)?)
            }
            ToKind::Ack(ack) => ToWatch::Ack(ack.stream, ack.sequence),
            ToKind::Hold(hold) => ToWatch::Hold(hold.stream, hold.sequence),
            ToKind::Stale(stale) => ToWatch::Stale(stale.epoch),
        })
    }
}

/// The owner's side.
struct OwnerCarrier {
    hello: Hello,
    /// The last streams: a list of an earlier one may still come.
    openings: Vec<Opening>,
    list: Option<(proto::SnapshotBegin, Vec<Member>)>,
}

impl OwnerCarrier {
    async fn carry(
        mut self,
        near: WatcherEnd,
        outbound: mpsc::Sender<ToKind>,
        inbound: mpsc::Receiver<FromKind>,
    ) -> Over {
        let over = tokio::select! {
            over = answer_all(near.from, &outbound) => over,
            over = self.read_all(inbound, &near.to) => over,
        };
        match over {
            Ok(never) => match never {},
            Err(over) => over,
        }
    }

    async fn read_all(
        &mut self,
        mut heard: mpsc::Receiver<FromKind>,
        owner: &mpsc::Sender<FromWatch>,
    ) -> Step<Infallible> {
        loop {
            if let Some(message) = self.read(heard.recv().await.ok_or(Over::Closed)?)? {
                send(owner, message).await?;
            }
        }
    }

    fn opening(&self, stream: u64) -> Result<Opening, Unreadable> {
        let found = self.openings.iter().find(|opening| opening.stream == stream);
        found.cloned().ok_or(Unreadable("stream"))
    }

    /// A list is a message once it is whole.
    fn read(&mut self, kind: FromKind) -> Result<Option<FromWatch>, Unreadable> {
        Ok(Some(match kind {
            FromKind::Opening(opened) => FromWatch::Opening(self.open(opened)),
            FromKind::Frame(frame) => {
                let opening = self.opening(frame.stream)?;
                FromWatch::Frame(wire::read_frame(frame, opening)?)
            }
            FromKind::SnapshotBegin(begin) => {
                self.list = Some((begin, Vec::new()));
                return Ok(None);
            }
            FromKind::SnapshotMembers(portion) => {
                let (_, members) = self.list.as_mut().ok_or(Unreadable("beginning of a list"))?;
                for member in portion.members {
                    members.push(wire::read_member(member)?);
                }
                return Ok(None);
            }
            FromKind::SnapshotEnd(end) => FromWatch::Snapshot(Box::new(self.whole(end.count)?)),
            FromKind::Expired(expired) => {
                let rewound = match proto::expired::Cause::try_from(expired.cause) {
                    Ok(proto::expired::Cause::Expired) => false,
                    Ok(proto::expired::Cause::Rewound) => true,
                    Ok(proto::expired::Cause::Unspecified) | Err(_) => return Err(Unreadable("cause")),
                };
                FromWatch::Expired { opening: self.opening(expired.stream)?, rewound }
            }
            FromKind::Health(health) => FromWatch::Health(wire::read_health(health)?),
            FromKind::LeftOut(left_out) => FromWatch::LeftOut(wire::read_left_out(left_out)?),
        }))
    }

    fn open(&mut self, opened: proto::Opening) -> Opening {
        let watch: WatchKey = self.hello.watch.clone();
        let opening = Opening {
            watch,
            watch_epoch: self.hello.epoch,
            stream: opened.stream,
            scope_hash: opened.scope_hash,
        };
        self.openings.push(opening.clone());
        if self.openings.len() > STREAMS {
            self.openings.remove(0);
        }
        opening
    }

    fn whole(&mut self, count: u64) -> Result<Snapshot, Unreadable> {
        let (begin, members) = self.list.take().ok_or(Unreadable("beginning of a list"))?;
        if members.len() as u64 != count {
            return Err(Unreadable("members"));
        }
        Ok(Snapshot {
            opening: self.opening(begin.stream)?,
            scopes: wire::read_target_scopes(&begin.scopes)?,
            list_rv: ResourceVersion::new(&begin.list_resource_version),
            time_ms: begin.time_ms,
            members,
        })
    }
}

async fn answer_all(mut said: mpsc::Receiver<ToWatch>, outbound: &mpsc::Sender<ToKind>) -> Step<Infallible> {
    loop {
        send(outbound, wire::to_watcher(said.recv().await.ok_or(Over::Closed)?)).await?;
    }
}

#[cfg(test)]
mod tests;
