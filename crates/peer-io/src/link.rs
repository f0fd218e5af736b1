//! One connection to one replica: how it comes about, what calls get, how it ends.
//!
//! A task of its own connects and then drives the connection; others read its state. The task ends when the connection has
//! no conversation left and nobody may begin another one.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use hyper::client::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::body::Body;
use tower::Service;
use upriver_telemetry::metric;

use crate::client::PeerAddress;
use crate::error::PeerError;
use crate::gauge::Counted;
use crate::settings::{CONNECTION_WINDOW, STREAM_WINDOW, Settings};
use crate::tls::{Current, PeerTls};

/// Runs hyper's own tasks where they are counted.
#[derive(Clone, Debug)]
pub(crate) struct Tracked(pub(crate) TaskTracker);

impl<F> hyper::rt::Executor<F> for Tracked
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, task: F) {
        self.0.spawn(task);
    }
}

#[derive(Clone)]
enum State {
    Connecting,
    Open(http2::SendRequest<Body>),
    Ended(PeerError),
}

/// A connection, or the way to one.
pub(crate) struct Link {
    pub(crate) replica: String,
    /// Of the certificates that it began with.
    pub(crate) generation: u64,
    used: Mutex<Instant>,
    state: watch::Receiver<State>,
    /// No more calls: the connection ends with its last conversation.
    retired: CancellationToken,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.retired.cancel();
    }
}

impl Link {
    /// Starts to connect.
    pub(crate) fn start(
        peer: &PeerAddress,
        tls: &PeerTls,
        settings: Settings,
        tracker: &TaskTracker,
    ) -> Arc<Self> {
        let (sender, state) = watch::channel(State::Connecting);
        let current = tls.current();
        let retired = CancellationToken::new();
        let generation = current.generation;
        let dial = Dial {
            address: peer.address.clone(),
            server_name: tls.server_name().to_owned(),
            name: tls.name(),
            current,
            settings,
            tracker: tracker.clone(),
        };
        tracker.spawn(dial.run(sender, retired.clone()));
        let used = Mutex::new(Instant::now());
        Arc::new(Self { replica: peer.replica.clone(), generation, used, state, retired })
    }

    /// Waits for the connection.
    pub(crate) async fn open(&self) -> Result<Caller, PeerError> {
        self.touch();
        let mut state = self.state.clone();
        let found = state.wait_for(|state| !matches!(state, State::Connecting)).await;
        match found.as_deref() {
            Ok(State::Open(sender)) => Ok(Caller(sender.clone())),
            Ok(State::Ended(error)) => Err(error.clone()),
            Ok(State::Connecting) | Err(_) => Err(PeerError::closed("this replica stops")),
        }
    }

    /// Why it ended; waits for a moment, because a call fails a little before its connection is known to have ended.
    pub(crate) async fn cause(&self) -> Option<PeerError> {
        let mut state = self.state.clone();
        let ended = state.wait_for(|state| matches!(state, State::Ended(_)));
        let ended = tokio::time::timeout(std::time::Duration::from_millis(100), ended).await.ok()?.ok()?;
        match &*ended {
            State::Ended(error) => Some(error.clone()),
            State::Connecting | State::Open(_) => None,
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        match &*self.state.borrow() {
            State::Ended(_) => true,
            State::Open(sender) => sender.is_closed(),
            State::Connecting => self.state.has_changed().is_err(),
        }
    }

    /// It is in use now.
    pub(crate) fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    pub(crate) fn unused_since(&self) -> Instant {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends calls over a connection.
#[derive(Clone)]
pub(crate) struct Caller(http2::SendRequest<Body>);

impl Service<http::Request<Body>> for Caller {
    type Response = http::Response<hyper::body::Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

struct Dial {
    address: String,
    server_name: String,
    name: rustls::pki_types::ServerName<'static>,
    current: Arc<Current>,
    settings: Settings,
    tracker: TaskTracker,
}

impl Dial {
    async fn run(self, state: watch::Sender<State>, retired: CancellationToken) {
        let connecting = Counted::new(metric::PEER_CONNECTIONS, "state", "connecting");
        let connected = async {
            tokio::time::timeout(self.settings.start_timeout, self.connect()).await.unwrap_or_else(|_| {
                let timeout = self.settings.start_timeout;
                Err(PeerError::Deadline { address: self.address.clone(), timeout })
            })
        };
        let Some(connected) = retired.run_until_cancelled(connected).await else { return };
        drop(connecting);
        let (io, trouble) = match connected {
            Ok(connected) => connected,
            Err(error) => {
                state.send_replace(State::Ended(error));
                return;
            }
        };
        let (sender, connection) = match self.http().handshake(TokioIo::new(io)).await {
            Ok(made) => made,
            Err(error) => {
                state.send_replace(State::Ended(self.ended(&trouble, &error.to_string())));
                return;
            }
        };
        state.send_replace(State::Open(sender));
        let mut connection = std::pin::pin!(connection);
        let outcome = tokio::select! {
            outcome = connection.as_mut() => outcome,
            () = retired.cancelled() => {
                // Drops the last sender; conversations go on until they end themselves.
                state.send_replace(State::Ended(PeerError::closed("the connection was not needed any more")));
                connection.await
            }
        };
        let reason =
            outcome.err().map_or_else(|| "the connection was closed".to_owned(), |error| error.to_string());
        state.send_replace(State::Ended(self.ended(&trouble, &reason)));
    }

    async fn connect(&self) -> Result<(Watched, Arc<OnceLock<String>>), PeerError> {
        let stream =
            TcpStream::connect(&self.address).await.map_err(|error| self.unreachable(&error.to_string()))?;
        // Small messages shall not wait for each other. An error shows itself at the next read.
        let _ = stream.set_nodelay(true);
        let connector = TlsConnector::from(self.current.client.clone());
        match connector.connect(self.name.clone(), stream).await {
            Ok(io) => {
                let trouble = Arc::new(OnceLock::new());
                let counted = Counted::new(metric::PEER_CONNECTIONS, "state", "open");
                Ok((Watched { io, trouble: trouble.clone(), _counted: counted }, trouble))
            }
            Err(error) => Err(match tls_trouble(&error) {
                Some(reason) => self.tls(reason),
                None => self.unreachable(&error.to_string()),
            }),
        }
    }

    fn ended(&self, trouble: &OnceLock<String>, reason: &str) -> PeerError {
        match trouble.get() {
            Some(reason) => self.tls(reason.clone()),
            None => self.unreachable(reason),
        }
    }

    fn tls(&self, reason: String) -> PeerError {
        PeerError::Tls { address: self.address.clone(), server_name: self.server_name.clone(), reason }
    }

    fn unreachable(&self, reason: &str) -> PeerError {
        PeerError::Unreachable { address: self.address.clone(), reason: reason.to_owned() }
    }

    fn http(&self) -> http2::Builder<Tracked> {
        let mut http = http2::Builder::new(Tracked(self.tracker.clone()));
        http.timer(TokioTimer::new())
            .keep_alive_interval(Some(self.settings.keepalive_every))
            .keep_alive_timeout(self.settings.keepalive_timeout)
            // A silent peer has to be noticed before the next call needs it.
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW);
        http
    }
}

/// What TLS has to say about a failure of the socket, if it was TLS.
fn tls_trouble(error: &io::Error) -> Option<String> {
    let inner = error.get_ref()?;
    inner.downcast_ref::<rustls::Error>().map(ToString::to_string)
}

/// The socket. In TLS 1.3 a server refuses our certificate after the handshake is over for us: the first read says so, and
/// HTTP/2 would not tell.
struct Watched {
    io: TlsStream<TcpStream>,
    trouble: Arc<OnceLock<String>>,
    _counted: Counted,
}

impl Watched {
    fn note<T>(&self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(error)) = &result
            && let Some(reason) = tls_trouble(error)
        {
            // The first one is the cause.
            let _ = self.trouble.set(reason);
        }
        result
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.io).poll_read(context, buffer);
        self.note(read)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(context, bytes);
        self.note(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(context);
        self.note(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
