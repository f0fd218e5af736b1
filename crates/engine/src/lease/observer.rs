//! Other sessions, seen through consistent lists, and what their silence allows.

use std::collections::{BTreeMap, BTreeSet};

use upriver_model::Epoch;

use super::LeaseRecord;
use crate::time::Tick;

/// Own successful renewals for which one resourceVersion must stand still before its session is fenced (F19).
const SILENT_RENEWALS: u32 = 4;
/// Renewals closer together than this count once.
const RENEWAL_GAP_MS: u64 = 1_500;
/// A fenced session is kept so long after it was first seen fenced, in case its process still sleeps.
const COLLECT_AFTER_MS: u64 = 3_600_000;
/// Of those, so many without a failure between them at the end.
const IN_A_ROW: u32 = 2;

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
    /// Delete exactly this version of a session that was fenced long ago and that no claim names.
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
}

#[derive(Clone, Debug)]
struct Silence {
    rv: String,
    renewals: u32,
    last: Tick,
    /// It was seen to change: its process is alive.
    spoke: bool,
}

/// The observer of one session.
#[derive(Debug)]
pub struct Observer {
    me: String,
    pod: String,
    silences: BTreeMap<String, Silence>,
    held: BTreeSet<String>,
    /// When a session was first seen fenced.
    fenced: BTreeMap<String, Tick>,
}

impl Observer {
    /// An observer for the session `me` in `pod` (empty if it runs in none).
    #[must_use]
    pub fn new(me: &str, pod: &str) -> Self {
        Self {
            me: me.to_owned(),
            pod: pod.to_owned(),
            silences: BTreeMap::new(),
            held: BTreeSet::new(),
            fenced: BTreeMap::new(),
        }
    }

    /// Takes a list that was sent after an own successful renewal; `in_a_row` is that session's count.
    pub fn observe(
        &mut self,
        now: Tick,
        in_a_row: u32,
        wanted: &BTreeSet<String>,
        sighting: &Sighting,
    ) -> Vec<ClaimAct> {
        let mut acts = self.watch_sessions(now, in_a_row, sighting);
        let fencing: BTreeSet<String> = acts
            .iter()
            .filter_map(|act| match act {
                ClaimAct::Fence(record) => Some(record.name.clone()),
                ClaimAct::CreateFenced { .. }
                | ClaimAct::Collect(_)
                | ClaimAct::Take { .. }
                | ClaimAct::Held { .. }
                | ClaimAct::Gone { .. } => None,
            })
            .collect();
        let mut missing = BTreeSet::new();
        for claim in wanted {
            acts.extend(self.look_at_claim(claim, sighting, &fencing, &mut missing));
        }
        for claim in self.held.difference(wanted).cloned().collect::<Vec<_>>() {
            self.held.remove(&claim);
        }
        acts.extend(missing.into_iter().map(|session| ClaimAct::CreateFenced { session }));
        acts.extend(self.collect(now, sighting));
        acts
    }

    /// Where only one replica may run: another that was seen alive and comes first. One that holds claims comes before one
    /// that holds none, then the lower name, so that of two exactly one gives way.
    #[must_use]
    pub fn gives_way_to(&self, sighting: &Sighting) -> Option<String> {
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

    fn watch_sessions(&mut self, now: Tick, in_a_row: u32, sighting: &Sighting) -> Vec<ClaimAct> {
        self.silences.retain(|name, _| sighting.sessions.contains_key(name));
        let mut acts = Vec::new();
        for (name, record) in &sighting.sessions {
            if *name == self.me || record.holder.is_none() {
                continue;
            }
            // An older process of our own pod cannot be alive beside us (F30); fencing is always safe.
            let predecessor = !self.pod.is_empty() && record.pod == self.pod;
            if predecessor || self.is_silent(now, in_a_row, record) {
                acts.push(ClaimAct::Fence(record.clone()));
            }
        }
        acts
    }

    fn collect(&mut self, now: Tick, sighting: &Sighting) -> Vec<ClaimAct> {
        let free = |name: &str| sighting.sessions.get(name).is_some_and(|record| record.holder.is_none());
        self.fenced.retain(|name, _| free(name));
        for name in sighting.sessions.keys().filter(|name| free(name)) {
            self.fenced.entry(name.clone()).or_insert(now);
        }
        let named = |name: &str| sighting.claims.values().any(|claim| claim.holder.as_deref() == Some(name));
        sighting
            .sessions
            .values()
            .filter(|record| {
                self.fenced.get(&record.name).is_some_and(|since| now.since(*since) >= COLLECT_AFTER_MS)
            })
            .filter(|record| !named(&record.name))
            .map(|record| ClaimAct::Collect(record.clone()))
            .collect()
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

    fn look_at_claim(
        &mut self,
        claim: &str,
        sighting: &Sighting,
        fencing: &BTreeSet<String>,
        missing: &mut BTreeSet<String>,
    ) -> Vec<ClaimAct> {
        let Some(record) = sighting.claims.get(claim) else {
            return vec![ClaimAct::Take { claim: claim.to_owned(), record: None }];
        };
        let take = || vec![ClaimAct::Take { claim: claim.to_owned(), record: Some(record.clone()) }];
        let Some(holder) = &record.holder else {
            return self.lost(claim).into_iter().chain(take()).collect();
        };
        if *holder == self.me {
            return self.hold(claim, record);
        }
        let mut acts: Vec<ClaimAct> = self.lost(claim).into_iter().collect();
        match sighting.sessions.get(holder) {
            // The fence has to be written before the claim is; the next list shows it.
            Some(_) if fencing.contains(holder) => {}
            Some(session) if session.holder.is_none() => acts.extend(take()),
            Some(_) => {}
            None => {
                missing.insert(holder.clone());
            }
        }
        acts
    }

    fn hold(&mut self, claim: &str, record: &LeaseRecord) -> Vec<ClaimAct> {
        if !self.held.insert(claim.to_owned()) {
            return Vec::new();
        }
        let Some(epoch) = Epoch::new(record.transitions) else { return Vec::new() };
        vec![ClaimAct::Held { claim: claim.to_owned(), epoch, record: record.clone() }]
    }

    fn lost(&mut self, claim: &str) -> Option<ClaimAct> {
        self.held.remove(claim).then(|| ClaimAct::Gone { claim: claim.to_owned() })
    }

    /// The claim will be taken anew, at a higher epoch.
    pub fn forget(&mut self, claim: &str) {
        self.held.remove(claim);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(name: &str, rv: u64, holder: Option<&str>, transitions: u64) -> LeaseRecord {
        LeaseRecord {
            name: name.to_owned(),
            uid: format!("uid-{name}"),
            rv: rv.to_string(),
            holder: holder.map(str::to_owned),
            transitions,
            nonce: String::new(),
            pod: format!("pod-{name}"),
            clean: false,
        }
    }

    fn sighting<const S: usize, const C: usize>(
        sessions: [LeaseRecord; S],
        claims: [LeaseRecord; C],
    ) -> Sighting {
        let by_name = |record: LeaseRecord| (record.name.clone(), record);
        Sighting {
            sessions: sessions.into_iter().map(by_name).collect(),
            claims: claims.into_iter().map(by_name).collect(),
        }
    }

    fn wanted() -> BTreeSet<String> {
        BTreeSet::from(["c".to_owned()])
    }

    #[test]
    fn a_missing_or_free_claim_is_taken_and_held_once() {
        let mut observer = Observer::new("me", "");
        let me = lease("me", 1, Some("me"), 0);
        let none = sighting([me.clone()], []);
        let take = ClaimAct::Take { claim: "c".to_owned(), record: None };
        assert_eq!(observer.observe(Tick(0), 1, &wanted(), &none), vec![take]);
        let mine = lease("c", 2, Some("me"), 4);
        let held = sighting([me], [mine.clone()]);
        let epoch = Epoch::new(4).expect("above zero");
        let expected = ClaimAct::Held { claim: "c".to_owned(), epoch, record: mine };
        assert_eq!(observer.observe(Tick(2000), 2, &wanted(), &held), vec![expected]);
        assert_eq!(observer.observe(Tick(4000), 3, &wanted(), &held), vec![]);
    }

    #[test]
    fn a_living_holder_is_left_alone() {
        let mut observer = Observer::new("me", "");
        for turn in 0..20 {
            let seen = sighting([lease("you", turn, Some("you"), 0)], [lease("c", 1, Some("you"), 1)]);
            assert_eq!(observer.observe(Tick(turn * 2000), 9, &wanted(), &seen), vec![]);
        }
    }

    #[test]
    fn silence_is_four_renewals_of_ours_then_fence_then_take() {
        let mut observer = Observer::new("me", "");
        let you = lease("you", 5, Some("you"), 0);
        let claim = lease("c", 1, Some("you"), 1);
        let seen = sighting([you.clone()], [claim.clone()]);
        for turn in 0..4 {
            assert_eq!(observer.observe(Tick(turn * 2000), 9, &wanted(), &seen), vec![], "turn {turn}");
        }
        let fence = vec![ClaimAct::Fence(you)];
        assert_eq!(observer.observe(Tick(8000), 9, &wanted(), &seen), fence);
        let fenced = sighting([lease("you", 6, None, 0)], [claim.clone()]);
        let take = ClaimAct::Take { claim: "c".to_owned(), record: Some(claim) };
        assert_eq!(observer.observe(Tick(10_000), 9, &wanted(), &fenced), vec![take]);
    }

    #[test]
    fn renewals_in_a_burst_count_once_and_a_flapping_api_server_fences_nobody() {
        let mut observer = Observer::new("me", "");
        let seen = sighting([lease("you", 5, Some("you"), 0)], []);
        let nothing = BTreeSet::new();
        for turn in 0..40 {
            assert_eq!(observer.observe(Tick(turn * 100), 9, &nothing, &seen), vec![], "a burst of proofs");
        }
        for turn in 0..40 {
            let now = Tick(4000 + turn * 2000);
            assert_eq!(observer.observe(now, 1, &nothing, &seen), vec![], "every other renewal fails");
        }
    }

    #[test]
    fn where_one_may_run_exactly_one_of_two_living_ones_gives_way() {
        let both = |rv: u64, owner: &str| {
            sighting(
                [lease("a", rv, Some("a"), 0), lease("b", rv, Some("b"), 0)],
                [lease("c", 1, Some(owner), 1)],
            )
        };
        for (owner, loser) in [("a", "b"), ("b", "a")] {
            for me in ["a", "b"] {
                let mut observer = Observer::new(me, "");
                observer.observe(Tick(0), 9, &BTreeSet::new(), &both(1, owner));
                assert_eq!(observer.gives_way_to(&both(1, owner)), None, "not seen alive yet");
                observer.observe(Tick(2000), 9, &BTreeSet::new(), &both(2, owner));
                let expected = (me == loser).then(|| owner.to_owned());
                assert_eq!(observer.gives_way_to(&both(2, owner)), expected, "{me}, owner {owner}");
            }
        }
    }

    #[test]
    fn a_claim_of_an_unknown_session_needs_a_fence_first() {
        let mut observer = Observer::new("me", "");
        let seen = sighting([], [lease("c", 1, Some("you"), 1)]);
        let expected = vec![ClaimAct::CreateFenced { session: "you".to_owned() }];
        assert_eq!(observer.observe(Tick(0), 9, &wanted(), &seen), expected);
    }

    #[test]
    fn a_predecessor_in_the_same_pod_is_fenced_at_once() {
        let mut observer = Observer::new("me", "pod-old");
        let old = lease("old", 1, Some("old"), 0);
        let seen = sighting([old.clone()], []);
        assert_eq!(observer.observe(Tick(0), 1, &BTreeSet::new(), &seen), vec![ClaimAct::Fence(old)]);
    }

    #[test]
    fn a_fenced_session_is_collected_after_an_hour_unless_a_claim_names_it() {
        let mut observer = Observer::new("me", "");
        let old = lease("old", 1, None, 0);
        let hour = Tick(COLLECT_AFTER_MS);
        let named = sighting([old.clone()], [lease("c", 1, Some("old"), 1)]);
        let alone = sighting([old.clone()], []);
        let nothing = BTreeSet::new();
        assert_eq!(observer.observe(Tick(0), 9, &nothing, &alone), vec![]);
        assert_eq!(observer.observe(Tick(COLLECT_AFTER_MS - 1), 9, &nothing, &alone), vec![]);
        assert_eq!(observer.observe(hour, 9, &nothing, &named), vec![]);
        assert_eq!(observer.observe(hour, 9, &nothing, &alone), vec![ClaimAct::Collect(old)]);
    }

    #[test]
    fn a_claim_that_names_another_is_dropped() {
        let mut observer = Observer::new("me", "");
        let mine = sighting([], [lease("c", 1, Some("me"), 4)]);
        observer.observe(Tick(0), 9, &wanted(), &mine);
        let theirs = sighting([lease("you", 1, Some("you"), 0)], [lease("c", 2, Some("you"), 5)]);
        let gone = vec![ClaimAct::Gone { claim: "c".to_owned() }];
        assert_eq!(observer.observe(Tick(1), 9, &wanted(), &theirs), gone);
    }
}
