//! The numbers of the transport, and what follows from each.

use std::time::Duration;

/// How connections and conversations behave; both sides have their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Longest start of a call: connecting, TLS and the first answer. A conversation that has begun has no deadline.
    pub start_timeout: Duration,
    /// A ping is sent after so long without a byte from the other side, idle or not.
    pub keepalive_every: Duration,
    /// A ping that is not answered for so long ends the connection. With the line above a vanished peer is noticed within
    /// 5 seconds, less than the 8 seconds of a session.
    pub keepalive_timeout: Duration,
    /// Bytes that the other side of a conversation may have sent without our application having taken them; the last
    /// message may exceed it. The memory that a slow branch costs is this plus [`Settings::message_limit`].
    pub credit: u64,
    /// Largest message in bytes. An object has 3 MiB at most where it comes from (the API server's limit for requests), so
    /// that one always fits; frames and snapshots are cut well below.
    pub message_limit: usize,
    /// Conversations and calls at a time on one connection.
    pub streams: u32,
    /// A connection without a conversation is closed after so long without a call.
    pub idle: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            start_timeout: Duration::from_secs(5),
            keepalive_every: Duration::from_secs(2),
            keepalive_timeout: Duration::from_millis(2500),
            // Some frames or one large object under way: far more than a network within a cluster holds (1 Gbit/s for 2 ms
            // is 250 kB). 500 conversations that nobody takes anything from cost 1 GiB at most.
            credit: 2 << 20,
            message_limit: 8 << 20,
            // One per (branch, watch key): a hundred branches that each want forty types from one watcher.
            streams: 4096,
            idle: Duration::from_secs(60),
        }
    }
}

impl Settings {
    /// Limit for gRPC: our own check comes first, and the frame around a message takes a few bytes more.
    pub(crate) fn wire_limit(&self) -> usize {
        self.message_limit + 1024
    }
}

/// HTTP/2 window of one stream in bytes; what a conversation may have under way before it is read at once.
pub(crate) const STREAM_WINDOW: u32 = 1 << 20;
/// HTTP/2 window of one connection in bytes: room for some large messages at once. It is never kept, since streams are read
/// whether or not their application takes anything.
pub(crate) const CONNECTION_WINDOW: u32 = 8 << 20;
