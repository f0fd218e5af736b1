//! The [`upriver_store::Store`] in Redis: one Lua script per file, one connection per journal handle.
//!
//! In: fenced operations. Out: replies. Every script touches keys of one hash tag only, so a Redis Cluster serves it too.
//! The connection of a handle is taken from the pool for good and never reconnects by itself: whoever loses it must
//! adopt again, and proves its session before that (F5). While the server is away all of them together ask it about once a
//! second (`gate.rs`).

mod gate;
mod journal;
mod keys;
mod load;
mod scripts;
mod store;

pub use store::{RedisOptions, RedisStore};
