//! The [`upriver_store::Store`] in Redis: one Lua script per file, one connection per journal handle.
//!
//! In: fenced operations. Out: replies. Every script touches keys of one hash tag only, so a Redis Cluster serves it too.
//! All connections come from one place (`connect.rs`): it asks Sentinels, checks that a server is the master, and spaces its
//! attempts for the whole process. The connection of a handle is taken from the pool for good and never reconnects by itself:
//! whoever loses it must adopt again, and proves its session before that (F5). Nothing reads with BLOCK yet; such a read
//! will need a connection of its own without a response timeout.

mod connect;
mod errors;
mod journal;
mod keys;
mod load;
mod options;
mod pace;
mod replicas;
mod rights;
mod scripts;
mod sentinel;
mod store;
mod watch;

pub use options::{ClientFiles, RedisOptions, SentinelOptions, TlsFiles, WaitOptions};
pub use store::RedisStore;
