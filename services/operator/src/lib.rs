//! The operator: one process, the thin shell around `upriver-engine`.
//!
//! In: flags. Out: commits in Git repositories, statuses of our kinds. `wiring` starts everything; `control` compiles
//! our kinds into what each branch has to do; `tasks` carry out what the engine asks for; `http` serves health and
//! metrics. Deliberately absent: decisions about journals, windows, pushes and Leases.

pub mod config;
pub mod control;
mod crash;
mod http;
mod tasks;
mod wiring;

pub use wiring::main;
