//! Which types does a source cluster serve, and may each be followed?
//!
//! In: scans of discovery, with the time of each. Out: a [`Catalog`]. Additions act at once, removals are slow: an API
//! that is away for a moment has not uninstalled anything, and whoever takes its absence for deletion erases Git
//! (W1.20). Absent: IO, the clock, what rules select.

mod catalog;
mod facts;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

pub use catalog::{Catalog, CatalogType, Cause, Verdict};
pub use facts::{Answer, GroupVersion, Root, Scan, TypeFacts, TypeScope};
use upriver_model::Gvr;

use crate::Tick;

/// How long a type that a readable group-version no longer lists is kept.
pub const GRACE_MS: u64 = 60_000;
/// Dropped types that are remembered to say `absence-expired` instead of `not-served`. More than a cluster uninstalls
/// while anybody looks; beyond it the lowest names are forgotten, which only makes a message less exact.
const REMEMBERED: usize = 1_000;

/// Tells whether a type (group, resource) is never mirrored.
pub type Denied = fn(&str, &str) -> bool;

/// The registry of one source cluster.
#[derive(Debug)]
pub struct Registry {
    denied: Denied,
    known: BTreeMap<Gvr, Known>,
    failed: BTreeMap<GroupVersion, Box<str>>,
    dropped: BTreeSet<Gvr>,
    read: BTreeSet<Root>,
    catalog: Catalog,
}

#[derive(Clone, Debug)]
struct Known {
    facts: TypeFacts,
    kinds: Kinds,
    presence: Presence,
}

/// How many kinds one answer gave to a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kinds {
    One,
    Several,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Served,
    Missing { since: Tick },
    Degraded,
}

impl Registry {
    /// An empty registry with a denylist.
    #[must_use]
    pub fn new(denied: Denied) -> Self {
        Self {
            denied,
            known: BTreeMap::new(),
            failed: BTreeMap::new(),
            dropped: BTreeSet::new(),
            read: BTreeSet::new(),
            catalog: Catalog::default(),
        }
    }

    /// What is known now.
    #[must_use]
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Takes in a scan; true if the catalog is another one now.
    pub fn observe(&mut self, scan: Scan, now: Tick) -> bool {
        let listed: BTreeSet<GroupVersion> = scan.groups.keys().cloned().collect();
        self.read.extend(Root::ALL.into_iter().filter(|root| scan.has_read(*root)));
        self.failed.retain(|group, _| match scan.groups.get(group) {
            Some(Answer::Failed { .. }) => true,
            Some(Answer::Types(_)) => false,
            None => !scan.has_read(group.root()),
        });
        let gone = |group: &GroupVersion| !listed.contains(group) && scan.has_read(group.root());
        for known in self.known.values_mut().filter(|known| gone(&GroupVersion::of(&known.facts.gvr))) {
            known.miss(now);
        }
        for (group, answer) in scan.groups {
            match answer {
                Answer::Types(types) => self.answered(&group, types, now),
                Answer::Failed { why, stale } => self.degraded(group, why, stale),
            }
        }
        self.drop_expired(now);
        self.publish()
    }

    fn answered(&mut self, group: &GroupVersion, types: Vec<TypeFacts>, now: Tick) {
        let mut present: BTreeMap<Gvr, Known> = BTreeMap::new();
        for facts in types {
            match present.get_mut(&facts.gvr) {
                Some(twin) if twin.facts.kind != facts.kind => twin.kinds = Kinds::Several,
                Some(_) => {}
                None => {
                    let known = Known { facts, kinds: Kinds::One, presence: Presence::Served };
                    present.insert(known.facts.gvr.clone(), known);
                }
            }
        }
        for (gvr, known) in &mut self.known {
            if GroupVersion::of(gvr) == *group && !present.contains_key(gvr) {
                known.miss(now);
            }
        }
        self.dropped.retain(|gvr| !present.contains_key(gvr));
        self.known.extend(present);
    }

    /// What is known stays. What only an old answer of the server shows is kept too: after our own restart during an
    /// outage it says which streams there were.
    fn degraded(&mut self, group: GroupVersion, why: Box<str>, stale: Vec<TypeFacts>) {
        for (gvr, known) in &mut self.known {
            if GroupVersion::of(gvr) == group {
                known.presence = Presence::Degraded;
            }
        }
        for facts in stale {
            self.dropped.remove(&facts.gvr);
            let known = Known { facts, kinds: Kinds::One, presence: Presence::Degraded };
            self.known.entry(known.facts.gvr.clone()).or_insert(known);
        }
        // The words of the first failure stay: later ones differ in ports and times only.
        self.failed.entry(group).or_insert(why);
    }

    fn drop_expired(&mut self, now: Tick) {
        let dropped = &mut self.dropped;
        self.known.retain(|gvr, known| {
            let expired = match known.presence {
                Presence::Missing { since } => now.since(since) >= GRACE_MS,
                Presence::Served | Presence::Degraded => false,
            };
            if expired {
                dropped.insert(gvr.clone());
            }
            !expired
        });
        while self.dropped.len() > REMEMBERED {
            self.dropped.pop_first();
        }
    }

    fn publish(&mut self) -> bool {
        let kinds = self.kinds_in_use();
        let judged =
            |known: &Known| CatalogType { facts: known.facts.clone(), verdict: self.judge(known, &kinds) };
        let types: BTreeMap<Gvr, CatalogType> =
            self.known.iter().map(|(gvr, known)| (gvr.clone(), judged(known))).collect();
        let last = &self.catalog;
        if last.types == types
            && last.failed == self.failed
            && last.dropped == self.dropped
            && last.read == self.read
        {
            return false;
        }
        self.catalog = Catalog {
            revision: last.revision + 1,
            types,
            failed: self.failed.clone(),
            dropped: self.dropped.clone(),
            read: self.read.clone(),
        };
        true
    }

    /// Resources per kind. What has no verbs of its own is no second bearer of a kind.
    fn kinds_in_use(&self) -> BTreeMap<(GroupVersion, Box<str>), usize> {
        let mut kinds = BTreeMap::new();
        for known in self.known.values().filter(|known| !known.facts.verbs.is_empty()) {
            *kinds.entry(known.kind()).or_insert(0) += 1;
        }
        kinds
    }

    /// The checks of a type in their order; the first that fails names the cause. Presence comes last, because only a
    /// type that would be followed can be retained.
    fn judge(&self, known: &Known, kinds: &BTreeMap<(GroupVersion, Box<str>), usize>) -> Verdict {
        let facts = &known.facts;
        if facts.verbs.is_empty() && !facts.subresources.is_empty() {
            return Verdict::Refused(Cause::SubresourceOnly);
        }
        let refused = if kinds.get(&known.kind()).is_some_and(|count| *count > 1) {
            Some(Cause::GvkNotUnique)
        } else if known.kinds == Kinds::Several {
            Some(Cause::GvrNotUnique)
        } else if facts.scope.is_none() {
            Some(Cause::ScopeUnknown)
        } else if !facts.watchable() {
            Some(Cause::MissingVerb)
        } else if (self.denied)(&facts.gvr.group, &facts.gvr.resource) {
            Some(Cause::DeniedByPolicy)
        } else {
            None
        };
        let absent = match known.presence {
            Presence::Served => None,
            Presence::Missing { .. } => Some(Cause::NotServed),
            Presence::Degraded => Some(Cause::DiscoveryDegraded),
        };
        match (absent, refused) {
            (None, None) => Verdict::Followable,
            (Some(cause), None) => Verdict::Retained(cause),
            (None | Some(_), Some(cause)) => Verdict::Refused(cause),
        }
    }
}

impl Known {
    fn kind(&self) -> (GroupVersion, Box<str>) {
        (GroupVersion::of(&self.facts.gvr), self.facts.kind.clone())
    }

    fn miss(&mut self, now: Tick) {
        match self.presence {
            Presence::Missing { .. } => {}
            // A group-version that answers again without the type starts the clock: while it failed nobody looked.
            Presence::Served | Presence::Degraded => self.presence = Presence::Missing { since: now },
        }
    }
}
