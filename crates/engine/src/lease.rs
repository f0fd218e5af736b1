//! Sessions and claims on Kubernetes Leases: who is alive, what may be taken?
//!
//! In: results of our own Lease writes, consistent lists of all session and claim Leases. Out: the next writes, and a
//! directory of who holds what. INV-1: at most one epoch per claim is accepted. Rules F6, F7, F8, F17, F19, F21, F30.
//! Nobody's clock is compared with ours: silence is counted in our own successful renewals. Talking to the API server is
//! `upriver-kube-io`'s.

mod claim;
mod directory;
mod leftovers;
mod look;
mod moves;
mod observer;
mod placement;
mod session;
mod sessions;

pub use claim::{ClaimKey, ClaimKind, replica_of, session_name};
pub use directory::{Directory, Member, Owner, Refusal};
pub use look::{ClaimAct, Company, Look, Seen, Sighting};
pub use observer::Observer;
pub use placement::{Placement, rank};
pub use session::{Session, SessionAct, SessionResult};

/// What a Lease holds, as far as sessions and claims are concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// Session that a free claim was given up for; it has a short precedence (F8).
    pub successor: Option<String>,
    /// What a session says of itself.
    pub notes: SessionNotes,
}

/// What a session tells the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionNotes {
    /// Where peers reach its process, empty if nowhere.
    pub address: String,
    /// Its release.
    pub version: String,
    /// It is about to end: it takes nothing and hands everything over.
    pub draining: bool,
}
