//! The words of the domain: ids, epochs, entries, failures, outcomes, the commit header.
//!
//! Plain values with `Eq`; std, thiserror and serde only. What is deliberately absent: IO, clock, randomness, and any
//! decision (those are in `upriver-engine`).

pub mod entry;
pub mod failure;
pub mod header;
pub mod ids;
pub mod idset;
pub mod resource;

pub use entry::{Attempt, Author, Entry, Intend, Operation, Seen, Settled, StoredEntry, Trigger};
pub use failure::{Failure, FailureClass, NextAction, Outcome};
pub use header::JournalHeader;
pub use ids::{
    AttemptId, BranchKey, CommitId, EntryId, Epoch, FleetId, Incarnation, ReplicaId, TargetScope, TargetUid,
    WatchKey,
};
pub use idset::IdSet;
pub use resource::{Gvr, ObjectKey, ResourceVersion, Scope};
