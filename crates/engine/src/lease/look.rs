//! What a look at the fleet goes by, and what comes of it.

use std::collections::BTreeMap;

use upriver_model::Epoch;

use super::LeaseRecord;
use super::claim::ClaimKey;
use super::directory::Directory;
use crate::time::Tick;

/// A consistent list of all sessions and claims: one LIST with the resourceVersion unset, sent after our own renewal.
#[derive(Clone, Debug, Default)]
pub struct Sighting {
    /// Session Leases by name, which is the identity of their holder.
    pub sessions: BTreeMap<String, LeaseRecord>,
    /// Claim Leases by name.
    pub claims: BTreeMap<String, LeaseRecord>,
}

/// What to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimAct {
    /// Clear the holder of exactly this version of a session.
    Fence(LeaseRecord),
    /// Delete exactly this version of a Lease that nobody has needed for long: a fenced session that no claim names, or
    /// a claim that nobody wants or holds.
    Collect(LeaseRecord),
    /// A session that a claim names does not exist: create it in fenced form; "already exists" means it lives (F6).
    CreateFenced {
        /// Name of the session.
        session: String,
    },
    /// Take a claim: `record` as seen, or create it. The epoch is above the Lease's and the store's.
    Take {
        /// Name of the claim.
        claim: String,
        /// The Lease as seen; `None` to create it.
        record: Option<LeaseRecord>,
    },
    /// The Lease names us: we hold it, with this epoch.
    Held {
        /// Name of the claim.
        claim: String,
        /// Its epoch.
        epoch: Epoch,
        /// The Lease.
        record: LeaseRecord,
    },
    /// We held it and the Lease names someone else: drop it.
    Gone {
        /// Name of the claim.
        claim: String,
    },
    /// The Lease names us, and we gave it up, or nobody wants it any more: end what runs under it, then write it free
    /// (F21). Said again until the Lease is free.
    Release {
        /// The Lease as seen.
        record: LeaseRecord,
    },
    /// It belongs elsewhere: ask that session for its consent, then hand it over.
    Offer {
        /// Name of the claim.
        claim: String,
        /// Name of the receiver's session.
        to: String,
    },
}

/// Whether other replicas share the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Company {
    /// Claims are spread over all that live.
    Fleet,
    /// This replica does everything: the store serves no other.
    Alone,
}

/// What a look goes by.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// When the list was received.
    pub now: Tick,
    /// Own successful renewals without a failure between them.
    pub in_a_row: u32,
    /// Everything that somebody has to hold, by the name of its Lease.
    pub wanted: &'a BTreeMap<String, ClaimKey>,
    /// The list, sent after an own successful renewal.
    pub sighting: &'a Sighting,
}

/// What came of a look.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// What to do, in this order.
    pub acts: Vec<ClaimAct>,
    /// Who holds what.
    pub directory: Directory,
    /// Look again after so many milliseconds, if that is before the next renewal.
    pub again_ms: Option<u64>,
}
