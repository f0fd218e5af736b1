//! Discovery, watches, Leases and the election against a real kube-apiserver.

mod discovery;
mod lease;
mod watch;
