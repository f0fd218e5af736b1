//! What does a client do when its network misbehaves: no word, late words, few words, a reset?
//!
//! In: the address of a real server. Out: a TCP proxy on loopback that forwards bytes, has a [`Trouble`] when told to, or
//! stops bringing the server's answers over the connections that exist, while all sockets stay open, as a load balancer
//! does that has forgotten its back half. It can put other bytes in the place of some of the server's, for servers that
//! name addresses which are behind proxies too. Absent: any other knowledge of what is spoken.

use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Bytes that are forwarded at a time.
const CHUNK: usize = 16 << 10;
/// Pieces per second of a slow link.
const PIECES: u32 = 10;

/// What is wrong with a link, in both directions and on all its connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing.
    #[default]
    None,
    /// Each piece of data arrives so much later.
    Latency(Duration),
    /// So many bytes per second, on each connection.
    Slow {
        /// Bytes per second.
        bytes: u32,
    },
    /// Connections are accepted and stay open, and nothing arrives, not even an end. What was on its way arrives when the
    /// trouble is over, as after a partition.
    BlackHole,
    /// Connections are reset, old ones and new ones.
    Reset,
}

/// A running proxy; dropping it ends its connections.
#[derive(Debug)]
pub struct TcpProxy {
    address: SocketAddr,
    opened: Arc<AtomicU64>,
    sent: Arc<AtomicU64>,
    /// Connections with a lower number are silent.
    silent_below: watch::Sender<u64>,
    trouble: watch::Sender<Trouble>,
    accepting: JoinHandle<()>,
}

/// Bytes of the server, and what the client gets instead.
pub type Replacement = (Vec<u8>, Vec<u8>);

#[derive(Clone)]
struct Route {
    target: SocketAddr,
    sent: Arc<AtomicU64>,
    silence: watch::Receiver<u64>,
    trouble: watch::Receiver<Trouble>,
    replacements: Arc<[Replacement]>,
}

impl TcpProxy {
    /// Starts a proxy for the server at `target` on a free port of loopback.
    ///
    /// # Errors
    /// If no port can be had.
    pub async fn start(target: SocketAddr) -> io::Result<Self> {
        Self::start_replacing(target, Vec::new()).await
    }

    /// As [`TcpProxy::start`]; what the server says goes through the replacements. Nothing else of the protocol is
    /// known here, so where it counts bytes both sides of a pair have to be of one length.
    ///
    /// # Errors
    /// If no port can be had.
    pub async fn start_replacing(target: SocketAddr, replacements: Vec<Replacement>) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let [opened, sent] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
        let (silent_below, silence) = watch::channel(0);
        let trouble = watch::Sender::new(Trouble::None);
        let route = Route {
            target,
            sent: sent.clone(),
            silence,
            trouble: trouble.subscribe(),
            replacements: replacements.into(),
        };
        let counted = opened.clone();
        // The tasks of the connections end with this one: they are in its set.
        let accepting = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let number = counted.fetch_add(1, Ordering::SeqCst);
                connections.spawn(forward(client, route.clone(), number));
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, opened, sent, silent_below, trouble, accepting })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections that were opened so far.
    #[must_use]
    pub fn opened(&self) -> u64 {
        self.opened.load(Ordering::SeqCst)
    }

    /// Bytes that clients have sent so far.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }

    /// From now on nothing that the server says arrives over the connections that exist. What the client says still
    /// reaches the server.
    pub fn silence_open_connections(&self) {
        self.silent_below.send_replace(self.opened());
    }

    /// From now on the link has this trouble; [`Trouble::None`] heals it.
    pub fn set_trouble(&self, trouble: Trouble) {
        self.trouble.send_replace(trouble);
    }
}

impl Drop for TcpProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn forward(mut client: TcpStream, mut route: Route, number: u64) {
    let mut watched = route.trouble.clone();
    let connected = async {
        until(&mut route.trouble, |trouble| trouble != Trouble::BlackHole).await;
        TcpStream::connect(route.target).await
    };
    let mut server = tokio::select! {
        biased;
        () = until(&mut watched, |trouble| trouble == Trouble::Reset) => return reset(&client),
        connected = connected => match connected {
            Ok(server) => server,
            Err(_) => return reset(&client),
        }
    };
    // Small packets as they come: a delay of the proxy's own would be a trouble that nobody asked for.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let requests = Passage::new(Arc::new([]), route.sent.clone());
    let answers = Passage::new(route.replacements.clone(), Arc::default());
    let up = pump(from_client, to_server, route.trouble.clone(), requests, std::future::pending());
    let muted = silenced(&mut route.silence, number);
    let down = pump(from_server, to_client, route.trouble.clone(), answers, muted);
    let ended = tokio::select! {
        biased;
        () = until(&mut watched, |trouble| trouble == Trouble::Reset) => false,
        _ = async { tokio::join!(up, down) } => true,
    };
    if !ended {
        reset(&client);
        reset(&server);
    }
}

/// The drop that follows sends RST instead of FIN.
fn reset(stream: &TcpStream) {
    // A connection that is gone already cannot be told.
    let _ = stream.set_zero_linger();
}

async fn pump(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    mut trouble: watch::Receiver<Trouble>,
    mut passage: Passage,
    muted: impl Future<Output = ()>,
) {
    tokio::pin!(muted);
    let mut chunk = vec![0; CHUNK];
    loop {
        tokio::select! {
            biased;
            // The halves stay where they are: nothing is closed, nothing is read.
            () = &mut muted => std::future::pending().await,
            // An error is the end of the connection, like its regular end.
            read = from.read(&mut chunk) => match read {
                Ok(0) | Err(_) => break,
                Ok(count) => {
                    let bytes = passage.pass(&chunk[..count]);
                    if deliver(&bytes, &mut to, &mut trouble).await.is_err() {
                        break;
                    }
                }
            }
        }
    }
    until(&mut trouble, |trouble| trouble != Trouble::BlackHole).await;
    let _ = to.shutdown().await;
}

async fn deliver(
    bytes: &[u8],
    to: &mut WriteHalf<'_>,
    trouble: &mut watch::Receiver<Trouble>,
) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let now = *trouble.borrow_and_update();
        let count = match now {
            Trouble::None => rest.len(),
            Trouble::Latency(delay) => {
                tokio::time::sleep(delay).await;
                rest.len()
            }
            Trouble::Slow { bytes } => {
                tokio::time::sleep(Duration::from_secs(1) / PIECES).await;
                rest.len().min(usize::try_from((bytes / PIECES).max(1)).unwrap_or(CHUNK))
            }
            Trouble::BlackHole | Trouble::Reset => {
                until(trouble, |trouble| !matches!(trouble, Trouble::BlackHole | Trouble::Reset)).await;
                continue;
            }
        };
        // A trouble that came meanwhile holds up what it would have held up on the way.
        if *trouble.borrow() == Trouble::BlackHole {
            continue;
        }
        to.write_all(&rest[..count]).await?;
        rest = &rest[count..];
    }
    Ok(())
}

async fn until(trouble: &mut watch::Receiver<Trouble>, mut fits: impl FnMut(Trouble) -> bool) {
    if trouble.wait_for(|trouble| fits(*trouble)).await.is_err() {
        // The proxy is being dropped, and this task with it.
        std::future::pending().await
    }
}

async fn silenced(silence: &mut watch::Receiver<u64>, number: u64) {
    // An error means that the proxy is being dropped, and this task with it.
    let _ = silence.wait_for(|below| number < *below).await;
}

/// Counts what comes in one direction, and replaces bytes in it, also where a pair's first half comes in two reads.
struct Passage {
    pairs: Arc<[Replacement]>,
    counted: Arc<AtomicU64>,
    /// The end of what was read, as long as it may be the beginning of a first half.
    held: Vec<u8>,
}

impl Passage {
    fn new(pairs: Arc<[Replacement]>, counted: Arc<AtomicU64>) -> Self {
        Self { pairs, counted, held: Vec::new() }
    }

    fn pass<'a>(&mut self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        self.counted.fetch_add(u64::try_from(bytes.len()).unwrap_or_default(), Ordering::SeqCst);
        if self.pairs.is_empty() {
            return Cow::Borrowed(bytes);
        }
        let mut all = std::mem::take(&mut self.held);
        all.extend_from_slice(bytes);
        let mut passed = Vec::with_capacity(all.len());
        let mut rest = &all[..];
        while !rest.is_empty() {
            if let Some((from, to)) = self.pairs.iter().find(|(from, _)| rest.starts_with(from)) {
                passed.extend_from_slice(to);
                rest = &rest[from.len()..];
            } else if self.pairs.iter().any(|(from, _)| from.starts_with(rest)) {
                self.held = rest.to_vec();
                break;
            } else {
                passed.push(rest[0]);
                rest = &rest[1..];
            }
        }
        Cow::Owned(passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::eventually;

    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.into_split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                });
            }
        });
        address
    }

    async fn answer(stream: &mut TcpStream) -> Option<u8> {
        stream.write_all(b"x").await.ok()?;
        let mut byte = [0];
        let read = tokio::time::timeout(Duration::from_millis(300), stream.read_exact(&mut byte)).await;
        read.ok()?.ok().map(|_| byte[0])
    }

    #[tokio::test]
    async fn open_connections_fall_silent_without_being_closed_and_new_ones_work() {
        let proxy = TcpProxy::start(echo().await).await.expect("a proxy");
        let mut old = TcpStream::connect(proxy.address()).await.expect("connected");
        assert_eq!(answer(&mut old).await, Some(b'x'));
        proxy.silence_open_connections();
        assert_eq!(answer(&mut old).await, None, "silent");
        assert_eq!(answer(&mut old).await, None, "and still writable, so it is open");
        let new = eventually("an answer over a new connection", Duration::from_secs(5), async || {
            let mut new = TcpStream::connect(proxy.address()).await.ok()?;
            answer(&mut new).await
        });
        assert_eq!(new.await, b'x');
        assert!(proxy.opened() >= 2);
    }

    #[tokio::test]
    async fn a_black_hole_accepts_holds_everything_and_delivers_it_when_it_ends() {
        let proxy = TcpProxy::start(echo().await).await.expect("a proxy");
        let mut old = TcpStream::connect(proxy.address()).await.expect("connected");
        assert_eq!(answer(&mut old).await, Some(b'x'));
        proxy.set_trouble(Trouble::BlackHole);
        assert_eq!(answer(&mut old).await, None);
        let mut new = TcpStream::connect(proxy.address()).await.expect("accepted");
        assert_eq!(answer(&mut new).await, None);
        assert_eq!(proxy.sent(), 2, "of the new connection nothing was read yet");
        proxy.set_trouble(Trouble::None);
        for stream in [&mut old, &mut new] {
            let mut late = [0];
            let read = tokio::time::timeout(Duration::from_secs(5), stream.read_exact(&mut late)).await;
            assert!(matches!(read, Ok(Ok(_))) && late == *b"x", "what was sent meanwhile arrives");
        }
    }

    #[tokio::test]
    async fn a_reset_ends_connections_and_refuses_new_ones_until_it_is_over() {
        let proxy = TcpProxy::start(echo().await).await.expect("a proxy");
        let mut old = TcpStream::connect(proxy.address()).await.expect("connected");
        assert_eq!(answer(&mut old).await, Some(b'x'));
        proxy.set_trouble(Trouble::Reset);
        let ended = old.read_u8().await.expect_err("no byte comes");
        assert_eq!(ended.kind(), io::ErrorKind::ConnectionReset);
        if let Ok(mut new) = TcpStream::connect(proxy.address()).await {
            assert_eq!(answer(&mut new).await, None);
        }
        proxy.set_trouble(Trouble::None);
        let mut healed = TcpStream::connect(proxy.address()).await.expect("connected");
        assert_eq!(answer(&mut healed).await, Some(b'x'));
    }

    #[tokio::test]
    async fn latency_and_few_bytes_per_second_take_their_time() {
        let proxy = TcpProxy::start(echo().await).await.expect("a proxy");
        let mut stream = TcpStream::connect(proxy.address()).await.expect("connected");
        for trouble in [Trouble::Latency(Duration::from_millis(150)), Trouble::Slow { bytes: 200 }] {
            proxy.set_trouble(trouble);
            let begun = std::time::Instant::now();
            stream.write_all(&[7; 60]).await.expect("sent");
            let mut back = [0; 60];
            stream.read_exact(&mut back).await.expect("answered");
            // There and back: twice 150 ms, and twice three pieces of 20 bytes at 100 ms each less one overlap.
            assert!(begun.elapsed() >= Duration::from_millis(300), "{trouble:?}: {:?}", begun.elapsed());
            assert_eq!(back, [7; 60]);
        }
    }

    #[test]
    fn replacements_are_found_across_two_reads() {
        let pairs = [(b"$5\r\n17000".to_vec(), b"$5\r\n40000".to_vec())];
        let mut replacing = Passage::new(Arc::new(pairs), Arc::default());
        assert_eq!(replacing.pass(b"*2\r\n$3\r\nabc\r\n$5\r\n17")[..], *b"*2\r\n$3\r\nabc\r\n");
        assert_eq!(replacing.pass(b"000\r\n")[..], *b"$5\r\n40000\r\n");
        assert_eq!(replacing.pass(b"$5\r\n17001\r\n")[..], *b"$5\r\n17001\r\n");
    }
}
