//! All decisions: ownership, intake, windows, push rounds, replays, retries.
//!
//! In: what happened, with the time it happened at. Out: commands. The operator, the simulation and the model check
//! drive the same `step` functions. What is deliberately absent: clock, randomness (dice are handed in), IO, spawn; this
//! crate names neither tokio, kube, redis, gix nor tonic. From `upriver-store` it takes only the words of the journal.

#![deny(clippy::wildcard_enum_match_arm)]

pub mod branch;
pub mod lease;
pub mod ledger;
pub mod registry;
pub mod retry;
pub mod time;
pub mod window;

pub use time::{Dice, Tick};
