//! Watches, Leases and the election against a real kube-apiserver.

mod lease;
mod watch;
