//! All known types with a verdict each: which of them may be followed, and if not, why?

use std::collections::{BTreeMap, BTreeSet};

use upriver_model::Gvr;

use super::facts::{GroupVersion, Root, TypeFacts};

/// The check that failed first. Its name is frozen: it stands in messages and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// Check 1: no such type is served.
    NotServed,
    /// Check 1: only subresources of it are served.
    SubresourceOnly,
    /// Check 1: it was served, and has been missing for longer than the grace.
    AbsenceExpired,
    /// Check 2: its group-version cannot be read just now.
    DiscoveryDegraded,
    /// Check 2: nothing has been read yet.
    CatalogUnavailable,
    /// Check 3: its kind stands for several resources of its group-version.
    GvkNotUnique,
    /// Check 3: its resource stands for several kinds.
    GvrNotUnique,
    /// Check 4: neither namespaced nor cluster-scoped.
    ScopeUnknown,
    /// Check 5: get, list or watch is missing.
    MissingVerb,
    /// Check 7: never mirrored.
    DeniedByPolicy,
}

impl Cause {
    /// The name in messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotServed => "not-served",
            Self::SubresourceOnly => "subresource-only",
            Self::AbsenceExpired => "absence-expired",
            Self::DiscoveryDegraded => "discovery-degraded",
            Self::CatalogUnavailable => "catalog-unavailable",
            Self::GvkNotUnique => "gvk-not-unique",
            Self::GvrNotUnique => "gvr-not-unique",
            Self::ScopeUnknown => "scope-unknown",
            Self::MissingVerb => "missing-verb",
            Self::DeniedByPolicy => "denied-by-policy",
        }
    }
}

/// May a type be followed?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Yes.
    Followable,
    /// It is missing or cannot be read just now: what runs stays, and absence means nothing.
    Retained(Cause),
    /// No.
    Refused(Cause),
    /// Nobody can tell yet.
    Unknown(Cause),
}

impl Verdict {
    /// True if a stream of it may exist.
    #[must_use]
    pub fn is_selectable(self) -> bool {
        match self {
            Self::Followable | Self::Retained(_) => true,
            Self::Refused(_) | Self::Unknown(_) => false,
        }
    }
}

/// A known type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogType {
    /// What discovery said last.
    pub facts: TypeFacts,
    /// May it be followed?
    pub verdict: Verdict,
}

/// All known types. Two catalogs of one registry with the same revision are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalog {
    pub(super) revision: u64,
    pub(super) types: BTreeMap<Gvr, CatalogType>,
    pub(super) failed: BTreeMap<GroupVersion, Box<str>>,
    pub(super) dropped: BTreeSet<Gvr>,
    pub(super) read: BTreeSet<Root>,
}

impl Catalog {
    /// Rises when anything in here changes, and only then.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// False until both roots of the API have been read once: before that, what is not in here may well exist.
    #[must_use]
    pub fn is_observed(&self) -> bool {
        Root::ALL.iter().all(|root| self.read.contains(root))
    }

    /// Every known type, by group, version and resource.
    pub fn types(&self) -> impl Iterator<Item = &CatalogType> {
        self.types.values()
    }

    /// One type, if it is known.
    #[must_use]
    pub fn get(&self, gvr: &Gvr) -> Option<&CatalogType> {
        self.types.get(gvr)
    }

    /// Group-versions that exist and cannot be read, each with the server's words when that began.
    pub fn failed(&self) -> impl Iterator<Item = (&GroupVersion, &str)> {
        self.failed.iter().map(|(group, why)| (group, &**why))
    }

    /// True if a type of this resource name was served and has been missing for longer than the grace.
    #[must_use]
    pub fn was_dropped(&self, resource: &str) -> bool {
        self.dropped.iter().any(|gvr| &*gvr.resource == resource)
    }

    /// The verdict on any type, known or not.
    #[must_use]
    pub fn verdict(&self, gvr: &Gvr) -> Verdict {
        let group = GroupVersion::of(gvr);
        match self.types.get(gvr) {
            Some(known) => known.verdict,
            None if self.failed.contains_key(&group) => Verdict::Unknown(Cause::DiscoveryDegraded),
            None if !self.read.contains(&group.root()) => Verdict::Unknown(Cause::CatalogUnavailable),
            None if self.dropped.contains(gvr) => Verdict::Refused(Cause::AbsenceExpired),
            None => Verdict::Refused(Cause::NotServed),
        }
    }
}
