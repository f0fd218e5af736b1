//! Leases that nobody needs any more: sessions that were fenced long ago, and claims that nobody wants or holds.
//!
//! Without this every replica that died, and every branch and watch that was once configured, would leave a Lease for
//! good, and each look would list it. What is deliberately absent: claims of living sessions, which their holders free.

use std::collections::{BTreeMap, BTreeSet};

use super::LeaseRecord;
use super::claim::ClaimKey;
use super::look::{ClaimAct, Sighting};
use crate::time::Tick;

/// A leftover is kept so long after it was first seen as one, in case the process that it named still sleeps.
pub(super) const COLLECT_AFTER_MS: u64 = 3_600_000;
/// Deleted in one look at most: they are no reason to be late with a renewal.
pub(super) const COLLECTED_AT_ONCE: usize = 20;

/// Leases by name, and when each was first seen to be left over.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    since: BTreeMap<String, Tick>,
}

impl Leftovers {
    /// Counts time, and says what to delete.
    pub(super) fn collect(
        &mut self,
        now: Tick,
        wanted: &BTreeMap<String, ClaimKey>,
        sighting: &Sighting,
    ) -> Vec<ClaimAct> {
        let left: Vec<&LeaseRecord> = leftovers(wanted, sighting).collect();
        let names: BTreeSet<&str> = left.iter().map(|record| record.name.as_str()).collect();
        self.since.retain(|name, _| names.contains(name.as_str()));
        for name in names {
            self.since.entry(name.to_owned()).or_insert(now);
        }
        // A session that a claim names tells that this claim may be taken.
        let needed: BTreeSet<&str> =
            sighting.claims.values().filter_map(|claim| claim.holder.as_deref()).collect();
        left.into_iter()
            .filter(|record| {
                self.since.get(&record.name).is_some_and(|since| now.since(*since) >= COLLECT_AFTER_MS)
            })
            .filter(|record| !needed.contains(record.name.as_str()))
            .take(COLLECTED_AT_ONCE)
            .map(|record| ClaimAct::Collect(record.clone()))
            .collect()
    }
}

fn leftovers<'a>(
    wanted: &'a BTreeMap<String, ClaimKey>,
    sighting: &'a Sighting,
) -> impl Iterator<Item = &'a LeaseRecord> {
    let lives = |session: &str| sighting.sessions.get(session).is_some_and(|record| record.holder.is_some());
    let sessions = sighting.sessions.values().filter(|record| record.holder.is_none());
    let claims = sighting.claims.values().filter(move |record| {
        !wanted.contains_key(&record.name) && !record.holder.as_deref().is_some_and(lives)
    });
    sessions.chain(claims)
}
