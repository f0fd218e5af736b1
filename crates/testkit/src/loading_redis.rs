//! What does a client do with a Redis that is loading its data for minutes?
//!
//! In: the address that a real Redis had. Out: a server that answers LOADING to everything, PING too, but what belongs to
//! connecting (CLIENT, SELECT, AUTH, HELLO), and counts. Dropping it frees the address for the real one. Absent: inline
//! commands, and everything else that a Redis can do.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// No command of ours is longer; a larger number is a bug of the reader.
const MAX_BULK: usize = 1 << 20;

/// A running server; dropping it ends its connections.
#[derive(Debug)]
pub struct LoadingRedis {
    counts: Arc<Counts>,
    accepting: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Counts {
    connections: AtomicU64,
    refused: AtomicU64,
}

impl LoadingRedis {
    /// Listens at `host:port`, as [`crate::RedisServer::addr`] gives it, while that server is stopped.
    ///
    /// # Errors
    /// If somebody else listens there.
    pub async fn start(address: &str) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let counts = Arc::new(Counts::default());
        let counted = counts.clone();
        // The tasks of the connections end with this one: they are in its set.
        let accepting = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                counted.connections.fetch_add(1, Ordering::SeqCst);
                connections.spawn(serve(client, counted.clone()));
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { counts, accepting })
    }

    /// Connections that were opened so far.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.counts.connections.load(Ordering::SeqCst)
    }

    /// Commands that were answered with LOADING so far.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.counts.refused.load(Ordering::SeqCst)
    }

    /// Ends it and waits until the address is free.
    pub async fn stop(mut self) {
        self.accepting.abort();
        // An error is the abort itself.
        let _ = (&mut self.accepting).await;
    }
}

impl Drop for LoadingRedis {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(client: TcpStream, counts: Arc<Counts>) {
    let (read, mut write) = client.into_split();
    let mut read = BufReader::new(read);
    // An error is the end of the connection, like its regular end.
    while let Ok(Some(command)) = next_command(&mut read).await {
        let answer: &[u8] = match command.as_str() {
            "CLIENT" | "SELECT" | "AUTH" => b"+OK\r\n",
            "HELLO" => b"-ERR unknown command\r\n",
            _ => {
                counts.refused.fetch_add(1, Ordering::SeqCst);
                b"-LOADING Redis is loading the dataset in memory\r\n"
            }
        };
        if write.write_all(answer).await.is_err() {
            return;
        }
    }
}

/// The name of the next command in capitals; its arguments are read and dropped. `None` at the end.
async fn next_command(read: &mut (impl tokio::io::AsyncBufRead + Unpin)) -> io::Result<Option<String>> {
    let Some(parts) = number(read).await? else { return Ok(None) };
    let mut name = String::new();
    for part in 0..parts {
        let Some(length) = number(read).await?.filter(|length| *length <= MAX_BULK) else {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        };
        let mut text = vec![0; length + 2];
        read.read_exact(&mut text).await?;
        if part == 0 {
            name = String::from_utf8_lossy(&text[..length]).to_uppercase();
        }
    }
    Ok(Some(name))
}

/// A line of a mark and a number, such as `*3`; `None` at the end.
async fn number(read: &mut (impl tokio::io::AsyncBufRead + Unpin)) -> io::Result<Option<usize>> {
    let mut line = String::new();
    if read.read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    let digits = line.trim_end().get(1..).and_then(|digits| digits.parse().ok());
    digits.map(Some).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RedisServer;

    #[tokio::test]
    async fn it_accepts_connections_answers_loading_and_gives_the_port_back() {
        let server = RedisServer::start().await;
        server.stop();
        let loading = LoadingRedis::start(&server.addr()).await.expect("the port is free");
        let mut connection = server.client().get_multiplexed_async_connection().await.expect("connected");
        for command in ["PING", "GET"] {
            let said = redis::cmd(command).arg("x").query_async::<()>(&mut connection).await;
            assert_eq!(said.expect_err("loading").code(), Some("LOADING"), "{command}");
        }
        assert_eq!((loading.connections(), loading.refused()), (1, 2));
        loading.stop().await;
        server.start_again().await;
    }
}
