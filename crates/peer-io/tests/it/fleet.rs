//! A few replicas in one process, each with a port, an identity and a handler that hands conversations to the test.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use upriver_peer_io::proto::{self, from_watcher, to_watcher};
use upriver_peer_io::{
    NotOwner, Offer, OwnerEnd, PeerAddress, PeerError, PeerHandler, PeerTls, Peers, ReplicaIdentity,
    Settings, TlsFiles, WatcherEnd, serve,
};
use upriver_testkit::PeerCerts;
use upriver_testkit::peer_certs::PEER_NAME;

/// Longest wait for what takes milliseconds, on a machine that has much else to do.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// Hands conversations to the test, or refuses them.
pub(crate) struct Desk {
    ends: mpsc::UnboundedSender<OwnerEnd>,
    pub(crate) not_owner: Mutex<Option<NotOwner>>,
    pub(crate) offers: Mutex<Vec<Offer>>,
    pub(crate) declines: Mutex<Option<String>>,
}

impl PeerHandler for Desk {
    fn accept(&self, end: OwnerEnd) -> Result<(), NotOwner> {
        if let Some(refusal) = self.not_owner.lock().expect("no panic").clone() {
            return Err(refusal);
        }
        self.ends.send(end).expect("the test holds the other half");
        Ok(())
    }

    fn offered(&self, offer: Offer) -> BoxFuture<'_, Result<(), String>> {
        self.offers.lock().expect("no panic").push(offer);
        let answer = self.declines.lock().expect("no panic").clone().map_or(Ok(()), Err);
        async move { answer }.boxed()
    }
}

/// A serving replica; it ends with the test's runtime.
pub(crate) struct Replica {
    pub(crate) id: String,
    pub(crate) address: SocketAddr,
    pub(crate) desk: Arc<Desk>,
    pub(crate) ends: mpsc::UnboundedReceiver<OwnerEnd>,
    pub(crate) stop: CancellationToken,
    pub(crate) identity: watch::Sender<String>,
    pub(crate) serving: JoinHandle<std::io::Result<()>>,
}

impl Replica {
    pub(crate) async fn start(id: &str, tls: &Arc<PeerTls>, settings: Settings) -> Self {
        Self::start_at("127.0.0.1:0".parse().expect("an address"), id, tls, settings).await
    }

    pub(crate) async fn start_at(at: SocketAddr, id: &str, tls: &Arc<PeerTls>, settings: Settings) -> Self {
        let listener = TcpListener::bind(at).await.expect("the port is free");
        let address = listener.local_addr().expect("bound");
        let (sender, ends) = mpsc::unbounded_channel();
        let desk = Arc::new(Desk {
            ends: sender,
            not_owner: Mutex::default(),
            offers: Mutex::default(),
            declines: Mutex::default(),
        });
        let (identity, me) = watch::channel(id.to_owned());
        let stop = CancellationToken::new();
        let me = ReplicaIdentity::new(me);
        let serving = tokio::spawn(serve(listener, tls.clone(), me, desk.clone(), settings, stop.clone()));
        Self { id: id.to_owned(), address, desk, ends, stop, identity, serving }
    }

    pub(crate) fn peer(&self) -> PeerAddress {
        self.peer_at(self.address)
    }

    /// As others see it behind a proxy.
    pub(crate) fn peer_at(&self, address: SocketAddr) -> PeerAddress {
        PeerAddress { replica: self.id.clone(), address: address.to_string() }
    }

    pub(crate) async fn accepted(&mut self) -> OwnerEnd {
        soon(self.ends.recv()).await.expect("the server runs")
    }
}

/// What a replica needs for TLS.
pub(crate) fn tls(certs: &PeerCerts) -> Arc<PeerTls> {
    PeerTls::load(files(certs, PEER_NAME)).expect("good files")
}

pub(crate) fn files(certs: &PeerCerts, name: &str) -> TlsFiles {
    TlsFiles {
        certificate: certs.certificate.clone(),
        key: certs.key.clone(),
        ca: certs.ca.clone(),
        server_name: name.to_owned(),
    }
}

/// The client half of a replica; hold the sender as long as it lives.
pub(crate) fn peers(id: &str, tls: &Arc<PeerTls>, settings: Settings) -> Peers {
    let (_, me) = watch::channel(id.to_owned());
    Peers::new(tls.clone(), ReplicaIdentity::new(me), settings, &CancellationToken::new())
}

/// One owner, one watcher, one set of certificates in `folder`.
pub(crate) async fn pair(folder: &Path, settings: Settings) -> (Replica, Peers) {
    let tls = tls(&PeerCerts::make(folder));
    (Replica::start("owner-1", &tls, settings).await, peers("watcher-1", &tls, settings))
}

/// Both ends of a new conversation.
pub(crate) async fn converse(
    peers: &Peers,
    peer: &PeerAddress,
    owner: &mut Replica,
) -> (WatcherEnd, OwnerEnd) {
    let watcher = peers.forward(peer, hello("main")).await.expect("accepted");
    (watcher, owner.accepted().await)
}

pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, what).await.expect("it happens soon")
}

pub(crate) fn refused<T>(result: Result<T, PeerError>) -> PeerError {
    result.map(|_| ()).expect_err("refused")
}

pub(crate) fn hello(branch: &str) -> proto::Hello {
    let gvr =
        proto::Gvr { group: String::new(), version: "v1".to_owned(), resource: "configmaps".to_owned() };
    let scope = proto::Scope { kind: Some(proto::scope::Kind::Namespace("team".to_owned())) };
    let watch_key = proto::WatchKey { cluster: "home".to_owned(), gvr: Some(gvr), scope: Some(scope) };
    proto::Hello { branch_key: branch.to_owned(), watch_key: Some(watch_key), watch_epoch: 3, credit: None }
}

/// A frame with one object of this size.
pub(crate) fn frame(sequence: u64, bytes: usize) -> from_watcher::Kind {
    let event = proto::Event {
        key: Some(proto::ObjectKey { namespace: "team".to_owned(), name: format!("object-{sequence}") }),
        kind: "ConfigMap".to_owned(),
        operation: proto::Operation::Update.into(),
        payload: Some("x".repeat(bytes)),
        ..proto::Event::default()
    };
    from_watcher::Kind::Frame(proto::Frame { stream: 1, sequence, cursor: None, events: vec![event] })
}

pub(crate) fn ack(sequence: u64) -> to_watcher::Kind {
    to_watcher::Kind::Ack(proto::Ack { stream: 1, sequence })
}

/// Sends a frame and has it acknowledged.
pub(crate) async fn round_trip(watcher: &mut WatcherEnd, owner: &mut OwnerEnd, sequence: u64) {
    soon(watcher.outbound.send(frame(sequence, 100))).await.expect("open");
    assert_eq!(soon(owner.inbound.recv()).await, Some(frame(sequence, 100)));
    soon(owner.outbound.send(ack(sequence))).await.expect("open");
    assert_eq!(soon(watcher.inbound.recv()).await, Some(ack(sequence)));
}
