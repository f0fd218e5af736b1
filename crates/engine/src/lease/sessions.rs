//! Other sessions: who is silent, who lives, who can be given work.

use std::collections::{BTreeMap, BTreeSet};

use super::LeaseRecord;
use super::look::Sighting;
use crate::time::Tick;

/// Own successful renewals for which one resourceVersion must stand still before its session is fenced (F19).
const SILENT_RENEWALS: u32 = 4;
/// Renewals closer together than this count once.
const RENEWAL_GAP_MS: u64 = 1_500;
/// Of those, so many without a failure between them at the end.
const IN_A_ROW: u32 = 2;
/// After so many without a change nothing is given to a session any more. Its own renewals are as far apart as ours, so
/// one can be missed by the way the two fall, and two cannot.
const QUIET_RENEWALS: u32 = 2;

#[derive(Clone, Debug)]
struct Silence {
    rv: String,
    renewals: u32,
    last: Tick,
    /// It was seen to change: its process is alive.
    spoke: bool,
}

/// What is known of the other sessions.
#[derive(Debug)]
pub(super) struct Sessions {
    me: String,
    pod: String,
    silences: BTreeMap<String, Silence>,
}

impl Sessions {
    pub(super) fn new(me: &str, pod: &str) -> Self {
        Self { me: me.to_owned(), pod: pod.to_owned(), silences: BTreeMap::new() }
    }

    /// Counts silence, and says whom to fence.
    pub(super) fn watch(&mut self, now: Tick, in_a_row: u32, sighting: &Sighting) -> Vec<LeaseRecord> {
        self.silences.retain(|name, _| sighting.sessions.contains_key(name));
        let mut silent = Vec::new();
        for (name, record) in &sighting.sessions {
            if *name == self.me || record.holder.is_none() {
                continue;
            }
            // An older process of our own pod cannot be alive beside us (F30); fencing is always safe.
            let predecessor = !self.pod.is_empty() && record.pod == self.pod;
            if predecessor || self.is_silent(now, in_a_row, record) {
                silent.push(record.clone());
            }
        }
        silent
    }

    fn is_silent(&mut self, now: Tick, in_a_row: u32, record: &LeaseRecord) -> bool {
        let silence = self.silences.entry(record.name.clone()).or_insert_with(|| Silence {
            rv: record.rv.clone(),
            renewals: 0,
            last: now,
            spoke: false,
        });
        if silence.rv != record.rv {
            *silence = Silence { rv: record.rv.clone(), renewals: 0, last: now, spoke: true };
            return false;
        }
        if now.since(silence.last) >= RENEWAL_GAP_MS {
            silence.renewals += 1;
            silence.last = now;
        }
        silence.renewals >= SILENT_RENEWALS && in_a_row >= IN_A_ROW
    }

    /// Seen alive lately. A session that is seen for the first time counts until its silence speaks against it: else a
    /// replica would believe itself alone at its first look, and take everything.
    pub(super) fn is_lively(&self, name: &str, sighting: &Sighting) -> bool {
        sighting.sessions.get(name).is_some_and(|record| record.holder.is_some())
            && (name == self.me
                || self.silences.get(name).is_some_and(|silence| silence.renewals < QUIET_RENEWALS))
    }

    /// The sessions that claims may be given to.
    pub(super) fn members<'a>(&self, sighting: &'a Sighting) -> BTreeSet<&'a str> {
        let sessions = sighting.sessions.iter();
        sessions
            .filter(|(name, record)| !record.notes.draining && self.is_lively(name, sighting))
            .map(|(name, _)| name.as_str())
            .collect()
    }

    /// Where only one replica may run: another that was seen alive and comes first. One that holds claims comes before
    /// one that holds none, then the lower name, so that of two exactly one gives way.
    pub(super) fn gives_way_to(&self, sighting: &Sighting) -> Option<String> {
        let rank = |name: &str| {
            let owns = sighting.claims.values().any(|claim| claim.holder.as_deref() == Some(name));
            (!owns, name.to_owned())
        };
        let alive = |name: &str| {
            sighting.sessions.get(name).is_some_and(|record| record.holder.is_some())
                && self.silences.get(name).is_some_and(|silence| silence.spoke)
        };
        let first = self.silences.keys().filter(|name| alive(name)).min_by_key(|name| rank(name))?;
        (rank(first) < rank(&self.me)).then(|| first.clone())
    }
}
