//! Between the Lease client's answers and the Lease engine's words.

use upriver_engine::lease::{LeaseRecord, SessionNotes, SessionResult};
use upriver_kube_io::lease::{LeaseError, LeaseView};

pub(super) fn record(lease: &LeaseView) -> LeaseRecord {
    LeaseRecord {
        name: lease.name.clone(),
        uid: lease.uid.clone(),
        rv: lease.rv.clone(),
        holder: lease.holder.clone(),
        transitions: lease.transitions,
        nonce: lease.nonce.clone(),
        pod: lease.pod.clone(),
        clean: lease.clean,
        successor: lease.successor.clone(),
        notes: SessionNotes {
            address: lease.notes.address.clone(),
            version: lease.notes.version.clone(),
            draining: lease.notes.draining,
        },
    }
}

pub(super) fn written(result: Result<LeaseView, LeaseError>) -> SessionResult {
    match result {
        Ok(lease) => SessionResult::Written { uid: lease.uid, rv: lease.rv },
        Err(error) => failed(error),
    }
}

pub(super) fn found(result: Result<LeaseView, LeaseError>) -> SessionResult {
    match result {
        Ok(lease) => {
            SessionResult::Found { holder: lease.holder, nonce: lease.nonce, uid: lease.uid, rv: lease.rv }
        }
        Err(error) => failed(error),
    }
}

fn failed(error: LeaseError) -> SessionResult {
    match error {
        LeaseError::Conflict { .. } => SessionResult::Conflict,
        LeaseError::Missing { .. } => SessionResult::Missing,
        LeaseError::Forbidden { .. } | LeaseError::Unknown { .. } => {
            tracing::warn!(%error, "the session's Lease");
            SessionResult::Unknown
        }
    }
}

pub(super) fn outcome(result: &SessionResult) -> &'static str {
    match result {
        SessionResult::Written { .. } | SessionResult::Found { .. } => "ok",
        SessionResult::Conflict => "conflict",
        SessionResult::Missing => "missing",
        SessionResult::Unknown => "unknown",
    }
}
