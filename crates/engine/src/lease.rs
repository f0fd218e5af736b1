//! Sessions and claims on Kubernetes Leases: who is alive, what may be taken?
//!
//! In: results of our own Lease writes, consistent lists of all session and claim Leases. Out: the next writes. INV-1: at
//! most one epoch per claim is accepted. Rules F6, F7, F17, F19, F30. Nobody's clock is compared with ours: silence is
//! counted in our own successful renewals. Talking to the API server is `upriver-kube-io`'s.

mod observer;
mod session;

pub use observer::{ClaimAct, Observer, Sighting};
pub use session::{Session, SessionAct, SessionResult};

/// What a Lease holds, as far as sessions and claims are concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRecord {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`: without it a write to a deleted Lease would bring it back (F6).
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub rv: String,
    /// `spec.holderIdentity`; `None` for a fenced session or a free claim.
    pub holder: Option<String>,
    /// `spec.leaseTransitions`: a claim's epoch.
    pub transitions: u64,
    /// Mark of the holder's last write, to know an own write again after a lost answer (F7).
    pub nonce: String,
    /// Pod that the holder runs in, empty if it is not known (F30).
    pub pod: String,
    /// True if the last holder gave it up by itself, with nothing left in flight.
    pub clean: bool,
}
