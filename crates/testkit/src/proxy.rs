//! What does a client do when its connection dies without a word?
//!
//! In: the address of a real server. Out: a TCP proxy on loopback that forwards bytes and, when told to, stops bringing
//! the server's answers over the connections that exist, while all sockets stay open, as a load balancer does that has
//! forgotten its back half. Later connections are not affected. Absent: any knowledge of what is spoken.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Bytes that are forwarded at a time.
const CHUNK: usize = 16 << 10;

/// A running proxy; dropping it ends its connections.
#[derive(Debug)]
pub struct TcpProxy {
    address: SocketAddr,
    opened: Arc<AtomicU64>,
    /// Connections with a lower number are silent.
    silent_below: watch::Sender<u64>,
    accepting: JoinHandle<()>,
}

impl TcpProxy {
    /// Starts a proxy for the server at `target` on a free port of loopback.
    ///
    /// # Errors
    /// If no port can be had.
    pub async fn start(target: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let opened = Arc::new(AtomicU64::new(0));
        let (silent_below, silence) = watch::channel(0);
        let counted = opened.clone();
        // The tasks of the connections end with this one: they are in its set.
        let accepting = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let number = counted.fetch_add(1, Ordering::SeqCst);
                connections.spawn(forward(client, target, number, silence.clone()));
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, opened, silent_below, accepting })
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

    /// From now on nothing that the server says arrives over the connections that exist. What the client says still
    /// reaches the server.
    pub fn silence_open_connections(&self) {
        self.silent_below.send_replace(self.opened());
    }
}

impl Drop for TcpProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn forward(client: TcpStream, target: SocketAddr, number: u64, mut silence: watch::Receiver<u64>) {
    let Ok(server) = TcpStream::connect(target).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let up = async {
        // An error is the end of the connection, like its regular end.
        let _ = tokio::io::copy(&mut from_client, &mut to_server).await;
        let _ = to_server.shutdown().await;
    };
    let down = async {
        let mut chunk = vec![0; CHUNK];
        loop {
            tokio::select! {
                biased;
                // The halves stay where they are: nothing is closed, nothing is read.
                () = silenced(&mut silence, number) => std::future::pending().await,
                read = from_server.read(&mut chunk) => match read {
                    Ok(0) | Err(_) => break,
                    Ok(count) => {
                        if to_client.write_all(&chunk[..count]).await.is_err() {
                            break;
                        }
                    }
                }
            }
        }
        let _ = to_client.shutdown().await;
    };
    tokio::join!(up, down);
}

async fn silenced(silence: &mut watch::Receiver<u64>, number: u64) {
    // An error means that the proxy is being dropped, and this task with it.
    let _ = silence.wait_for(|below| number < *below).await;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
}
