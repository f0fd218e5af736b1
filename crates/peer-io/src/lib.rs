//! How do replicas talk to each other? gRPC over mutual TLS: forwarding conversations and offers of claims.
//!
//! In: an address of a replica and what to say, or a socket and a handler. Out: two ends of a conversation, as bounded
//! channels. What is said is the operator's business; it converts between [`proto`] and its own values. INV-8: whatever
//! leaves the process here leaves it encrypted, to a replica that showed a certificate of our CA for the peers' name.
//!
//! - Each conversation has credits in bytes in both directions ([`Settings::credit`]), so a slow branch bounds the memory
//!   of both replicas and never holds up another on the same connection: whatever arrives is read at once.
//! - A call has a deadline for its start, a conversation has none; HTTP/2 pings notice a peer that vanished.
//! - Every call names the replica that it means, and a server that is another one refuses.
//!
//! Absent: retries and routing (the caller's), any knowledge of journals, cursors or claims.

mod client;
mod conversation;
mod credit;
mod error;
mod gauge;
mod link;
mod server;
mod service;
mod settings;
mod size;
mod tls;

/// The messages, made from `proto/upriver/peer/v1/peer.proto`, which also documents them.
pub mod proto {
    #![allow(missing_docs, clippy::all, clippy::too_many_lines)]
    tonic::include_proto!("upriver.peer.v1");

    /// For reflection: the whole protocol as a `FileDescriptorSet`.
    pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/peer.bin"));
}

pub use client::{PeerAddress, Peers, WatcherEnd};
pub use conversation::Ended;
pub use error::{NotOwner, PeerAction, PeerError};
pub use server::serve;
pub use service::{Offer, OwnerEnd, PeerHandler, ReplicaIdentity};
pub use settings::Settings;
pub use size::{fits, message_bytes};
pub use tls::{PeerTls, Reload, TlsError, TlsFiles};
