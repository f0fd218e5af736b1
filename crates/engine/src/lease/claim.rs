//! What can be claimed, and how its Lease is called. Names are frozen: replicas of two releases meet in them.

use std::fmt;

use upriver_model::{BranchKey, ReplicaId, WatchKey};

use super::placement::fnv1a;

const SESSION_PREFIX: &str = "upriver-session-";
const BRANCH_PREFIX: &str = "upriver-branch-";
const WATCH_PREFIX: &str = "upriver-watch-";

/// One thing that exactly one replica may do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClaimKey {
    /// Write one branch.
    Branch(BranchKey),
    /// Watch one type in one scope.
    Watch(WatchKey),
}

/// Claims of each kind are spread by themselves: they cost different things.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClaimKind {
    /// Of branches.
    Branch,
    /// Of watches.
    Watch,
}

impl ClaimKind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Branch, Self::Watch];
}

impl ClaimKey {
    /// Name of its Lease. A watch key is too long and has characters that a name may not have: 64 bits of its hash stand
    /// for it, so that even among 100,000 keys two meet with a chance below one in a billion.
    #[must_use]
    pub fn lease_name(&self) -> String {
        match self {
            Self::Branch(key) => format!("{BRANCH_PREFIX}{key}"),
            Self::Watch(key) => format!("{WATCH_PREFIX}{:016x}", fnv1a(&[&key.to_string()])),
        }
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> ClaimKind {
        match self {
            Self::Branch(_) => ClaimKind::Branch,
            Self::Watch(_) => ClaimKind::Watch,
        }
    }
}

impl fmt::Display for ClaimKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Branch(key) => key.fmt(f),
            Self::Watch(key) => key.fmt(f),
        }
    }
}

/// Name of a replica's session Lease, which is the holder that its claims name.
#[must_use]
pub fn session_name(replica: &ReplicaId) -> String {
    format!("{SESSION_PREFIX}{replica}")
}

/// The replica that a session's name stands for.
#[must_use]
pub fn replica_of(session: &str) -> ReplicaId {
    ReplicaId::new(session.strip_prefix(SESSION_PREFIX).unwrap_or(session))
}

#[cfg(test)]
mod tests {
    use upriver_model::{Gvr, Scope};

    use super::*;

    #[test]
    fn names_of_leases_do_not_change() {
        let branch = ClaimKey::Branch(BranchKey::new("00ff"));
        assert_eq!(branch.lease_name(), "upriver-branch-00ff");
        let gvr = Gvr::new("apps", "v1", "deployments");
        let watch = ClaimKey::Watch(WatchKey { cluster: "local".into(), gvr, scope: Scope::Cluster });
        assert_eq!(watch.to_string(), "local|apps/v1/deployments|*");
        assert_eq!(watch.lease_name(), "upriver-watch-fe0653282ceff69e");
        let replica = ReplicaId::new("pod-1");
        assert_eq!(session_name(&replica), "upriver-session-pod-1");
        assert_eq!(replica_of("upriver-session-pod-1"), replica);
    }
}
