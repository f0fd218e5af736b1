//! The server: accepts connections of other replicas over mutual TLS and serves their calls.
//!
//! Beside the peer protocol it answers `grpc.health.v1` and reflection. Each connection and each conversation is a task that
//! `serve` waits for; none outlives it by more than [`GRACE`].

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::service::Routes;
use upriver_telemetry::metric;

use crate::gauge::Counted;
use crate::link::Tracked;
use crate::proto::DESCRIPTORS;
use crate::proto::forward_service_server::ForwardServiceServer;
use crate::proto::handover_service_server::HandoverServiceServer;
use crate::service::{PeerHandler, ReplicaIdentity, Shop};
use crate::settings::{CONNECTION_WINDOW, STREAM_WINDOW, Settings};
use crate::tls::PeerTls;

/// Handshakes at a time, from whoever connects; each ends after [`Settings::start_timeout`]. More wait in the listener's
/// queue: replicas are tens, and each has one connection.
const HANDSHAKES: usize = 256;
/// Longest wait for connections to end when the replica stops: their conversations have ended by then.
const GRACE: Duration = Duration::from_secs(1);
/// A client that was refused may read why for so long.
const LINGER: Duration = Duration::from_secs(1);
/// Calls that are cancelled before they are looked at, before the connection counts as an attack. The callers are replicas
/// that may drop all their conversations at once.
const CANCELLED_EARLY: usize = 4096;

/// Serves until `stop`; then ends all conversations, and returns when the connections are closed.
///
/// # Errors
/// If the reflection service cannot be made, which the build would have noticed.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<PeerTls>,
    me: ReplicaIdentity,
    handler: Arc<dyn PeerHandler>,
    settings: Settings,
    stop: CancellationToken,
) -> io::Result<()> {
    let tracker = TaskTracker::new();
    let shop = Shop { me, handler, settings, tracker: tracker.clone(), stop: stop.clone() };
    let server = Server { tls, settings, routes: routes(shop).await?, tracker, stop };
    server.accept(&listener).await;
    drop(listener);
    server.tracker.close();
    if tokio::time::timeout(GRACE, server.tracker.wait()).await.is_err() {
        tracing::warn!(
            tasks = server.tracker.len(),
            "peer connections did not end in time; they end with the process"
        );
    }
    Ok(())
}

async fn routes(shop: Shop) -> io::Result<Routes> {
    let limit = shop.settings.wire_limit();
    let forward = ForwardServiceServer::new(shop.clone())
        .max_decoding_message_size(limit)
        .max_encoding_message_size(limit);
    // Offers are a few words.
    let handover = HandoverServiceServer::new(shop).max_decoding_message_size(64 << 10);
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<ForwardServiceServer<Shop>>().await;
    health.set_serving::<HandoverServiceServer<Shop>>().await;
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    // Some tools know the older version only.
    let (v1, v1alpha) = (reflection().build_v1(), reflection().build_v1alpha());
    Ok(Routes::new(forward)
        .add_service(handover)
        .add_service(health_service)
        .add_service(v1.map_err(io::Error::other)?)
        .add_service(v1alpha.map_err(io::Error::other)?)
        .prepare())
}

#[derive(Clone)]
struct Server {
    tls: Arc<PeerTls>,
    settings: Settings,
    routes: Routes,
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl Server {
    async fn accept(&self, listener: &TcpListener) {
        let handshakes = Arc::new(Semaphore::new(HANDSHAKES));
        loop {
            let next = async {
                // The semaphore is never closed.
                let turn = handshakes.clone().acquire_owned().await.map_err(io::Error::other)?;
                listener.accept().await.map(|(stream, from)| (stream, from, turn))
            };
            match self.stop.run_until_cancelled(next).await {
                None => return,
                Some(Ok((stream, from, turn))) => {
                    self.tracker.spawn(self.clone().connection(stream, from, turn));
                }
                Some(Err(error)) => {
                    tracing::warn!(%error, "a peer connection cannot be accepted");
                    // No file descriptors left, say: not at once again.
                    let pause = tokio::time::sleep(Duration::from_millis(200));
                    self.stop.run_until_cancelled(pause).await;
                }
            }
        }
    }

    async fn connection(self, stream: TcpStream, from: SocketAddr, turn: OwnedSemaphorePermit) {
        let secured = self.stop.run_until_cancelled(self.secure(stream)).await;
        drop(turn);
        let io = match secured {
            None => return,
            Some(Ok(io)) => io,
            Some(Err(reason)) => {
                tracing::debug!(%from, %reason, "a peer connection was refused");
                metrics::counter!(metric::PEER_HANDSHAKES_REFUSED).increment(1);
                return;
            }
        };
        let _counted = Counted::new(metric::PEER_CONNECTIONS, "state", "accepted");
        let service = TowerToHyperService::new(self.routes.clone());
        let mut connection = std::pin::pin!(self.http().serve_connection(TokioIo::new(io), service));
        let served = tokio::select! {
            served = connection.as_mut() => served,
            () = self.stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = served {
            tracing::debug!(%from, %error, "a peer connection broke");
        }
    }

    async fn secure(&self, stream: TcpStream) -> Result<tokio_rustls::server::TlsStream<TcpStream>, String> {
        // Small messages shall not wait for each other. An error shows itself at the next read.
        let _ = stream.set_nodelay(true);
        let acceptor = TlsAcceptor::from(self.tls.current().server.clone());
        let accepted = acceptor.accept(stream).into_fallible();
        match tokio::time::timeout(self.settings.start_timeout, accepted).await {
            Ok(Ok(secured)) => Ok(secured),
            Ok(Err((error, stream))) => {
                let _ = tokio::time::timeout(LINGER, linger(stream)).await;
                Err(error.to_string())
            }
            Err(_) => Err(format!("no handshake within {:?}", self.settings.start_timeout)),
        }
    }

    fn http(&self) -> http2::Builder<Tracked> {
        let mut http = http2::Builder::new(Tracked(self.tracker.clone()));
        http.timer(TokioTimer::new())
            .keep_alive_interval(Some(self.settings.keepalive_every))
            .keep_alive_timeout(self.settings.keepalive_timeout)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_concurrent_streams(self.settings.streams)
            .max_pending_accept_reset_streams(CANCELLED_EARLY);
        http
    }
}

/// Closing a socket with unread bytes in it resets the connection, and the alert that says why would be lost.
async fn linger(mut stream: TcpStream) {
    let mut rest = [0; 1024];
    // Whatever fails, the stream is closed next.
    let _ = stream.shutdown().await;
    while matches!(stream.read(&mut rest).await, Ok(1..)) {}
}
