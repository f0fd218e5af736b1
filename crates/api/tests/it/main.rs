//! Does a real API server treat our kinds as the contract says? One binary, one shared control plane.

mod columns;
mod defaults;
mod examples;
mod files;
mod refused;
mod setup;
