//! Ids with only the traits that make sense for each.
//!
//! In: raw strings and numbers. Out: newtypes that cannot be mixed up. An [`Epoch`] has no `Display`, so no format
//! string picks it up by chance; its stored form is [`Epoch::as_key`].

use std::fmt;
use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};

use crate::resource::{Gvr, Scope};

/// Fencing token of a claim: rises with every change of holder and never falls (rule F17).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Epoch(NonZeroU64);

impl Epoch {
    /// The lowest epoch.
    pub const FIRST: Self = Self(NonZeroU64::MIN);

    /// An epoch from its stored number; zero is not one.
    #[must_use]
    pub fn new(number: u64) -> Option<Self> {
        NonZeroU64::new(number).map(Self)
    }

    /// The next epoch above both sources of truth (F17: `max(Lease, Redis) + 1`).
    #[must_use]
    pub fn above(lease: u64, store: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(lease.max(store)))
    }

    /// The number, for stores and wire formats.
    #[must_use]
    pub fn as_key(self) -> u64 {
        self.0.get()
    }
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(Box<str>);

        impl $name {
            /// Takes the text as it is.
            #[must_use]
            pub fn new(text: impl Into<Box<str>>) -> Self {
                Self(text.into())
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text_id!(
    /// One running process: pod name and a random suffix.
    ReplicaId
);
text_id!(
    /// 32 hex digits that stand for (canonical remote URL, branch): the unit of a branch claim.
    BranchKey
);
text_id!(
    /// `metadata.uid` of a GitTarget; a recreated target is another one.
    TargetUid
);
text_id!(
    /// One history of a journal: random, made when the journal's `meta` is created, gone when the store forgets it.
    Incarnation
);
text_id!(
    /// One installation: the uid of the operator's namespace.
    FleetId
);
text_id!(
    /// Hex commit id, 40 digits for SHA-1.
    CommitId
);

impl CommitId {
    /// The first ten digits, for logs and messages.
    #[must_use]
    pub fn short(&self) -> &str {
        self.0.get(..10).unwrap_or(&self.0)
    }
}

/// Id of one journal entry: `<owner epoch>-<n>`, `n` from the owner's memory (F1). Also the Redis stream id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
pub struct EntryId {
    /// Epoch of the owner that appended it; 0 only in [`EntryId::ZERO`].
    pub epoch: u64,
    /// Count within the epoch, from 1.
    pub n: u64,
}

impl EntryId {
    /// Before every entry: the floor of a new journal.
    pub const ZERO: Self = Self { epoch: 0, n: 0 };

    /// Reads `<epoch>-<n>`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (epoch, n) = text.split_once('-')?;
        Some(Self { epoch: epoch.parse().ok()?, n: n.parse().ok()? })
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.epoch, self.n)
    }
}

/// Id of one attempt: `<owner epoch>.<n>`. The branch key stands beside it wherever it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttemptId {
    /// Epoch of the owner that reserved it.
    pub epoch: u64,
    /// Count within the epoch, from 1.
    pub n: u64,
}

impl AttemptId {
    /// Reads `<epoch>.<n>`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (epoch, n) = text.split_once('.')?;
        Some(Self { epoch: epoch.parse().ok()?, n: n.parse().ok()? })
    }
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.n)
    }
}

/// One API watch: (source cluster, type, scope). The cursor belongs to the pair (branch key, watch key).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WatchKey {
    /// Source cluster; `local` for the cluster that holds our own kinds.
    pub cluster: Box<str>,
    /// The watched type.
    pub gvr: Gvr,
    /// Whole cluster or one namespace.
    pub scope: Scope,
}

impl fmt::Display for WatchKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}|{}|{}", self.cluster, self.gvr, self.scope)
    }
}

/// What one GitTarget wants of one type: the unit of back-fill, inventory and "settled".
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TargetScope {
    /// The GitTarget.
    pub target: TargetUid,
    /// The selected type.
    pub gvr: Gvr,
    /// The selected namespace, or the whole cluster.
    pub scope: Scope,
}

impl TargetScope {
    /// `target|group/resource|scope`: version-free, because a document's identity is.
    #[must_use]
    pub fn as_key(&self) -> String {
        format!("{}|{}|{}", self.target, self.gvr.group_resource(), self.scope)
    }
}

impl fmt::Display for TargetScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.as_key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_forms_of_ids_do_not_change() {
        assert_eq!(EntryId { epoch: 7, n: 12 }.to_string(), "7-12");
        assert_eq!(EntryId::parse("7-12"), Some(EntryId { epoch: 7, n: 12 }));
        assert_eq!(EntryId::parse("7"), None);
        assert_eq!(AttemptId { epoch: 7, n: 12 }.to_string(), "7.12");
        assert_eq!(AttemptId::parse("7.12"), Some(AttemptId { epoch: 7, n: 12 }));
        let gvr = Gvr::new("apps", "v1", "deployments");
        let watch = WatchKey { cluster: "local".into(), gvr: gvr.clone(), scope: Scope::Cluster };
        assert_eq!(watch.to_string(), "local|apps/v1/deployments|*");
        let scope = TargetScope { target: TargetUid::new("u1"), gvr, scope: Scope::Namespace("shop".into()) };
        assert_eq!(scope.as_key(), "u1|apps/deployments|shop");
    }

    #[test]
    fn an_epoch_is_above_the_lease_and_the_store() {
        assert_eq!(Epoch::above(0, 0), Epoch::FIRST);
        assert_eq!(Epoch::above(3, 7).as_key(), 8);
        assert_eq!(Epoch::above(7, 3).as_key(), 8);
    }
}
