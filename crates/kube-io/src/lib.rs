//! Talking to the Kubernetes API: watches, Leases, discovery, statuses, Events.
//!
//! In: plain values. Out: plain values and typed errors. Deliberately absent: decisions (who owns what, what an event
//! means) and anything about Git or Redis. Every kube call of the project outside our own kinds is in here, so that a
//! new major version of `kube` is one move.

pub mod client;
pub mod discovery;
pub mod election;
pub mod events;
pub mod kubeconfig;
pub mod lease;
pub mod rights;
pub mod status;
pub mod watch;
