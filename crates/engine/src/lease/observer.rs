//! The fleet, seen through consistent lists, and what it allows: fencing, taking, offering, collecting.
//!
//! Nobody acts on a computation alone: placement says who should try first, and only the Lease that names us makes us a
//! holder. So two replicas whose views differ for a moment lose a write, and never a claim (F8).

mod survey;

use std::collections::{BTreeMap, BTreeSet};

use upriver_model::Epoch;

use super::LeaseRecord;
use super::claim::{ClaimKey, ClaimKind};
use super::leftovers::Leftovers;
use super::look::{ClaimAct, Company, Look, Seen, Sighting};
use super::moves::Moves;
use super::placement::{Placement, rank};
use super::sessions::Sessions;
use crate::time::Tick;

/// A free claim that nobody took for so long may be taken by anyone, …
const ANYONE_AFTER_MS: u64 = 3_000;
/// … each choice after the first so much later than the one before.
const RANK_STEP_MS: u64 = 1_000;
/// A successor that was named has a free claim to itself for so long.
const SUCCESSOR_FIRST_MS: u64 = 2_000;
/// While somebody hands claims over, they are looked for so often.
const HAND_OVER_LOOK_MS: u64 = 500;

/// Who may act under a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing<'a> {
    /// Nobody: it may be taken.
    Free,
    /// The holder's session is neither ours nor known to be fenced.
    Held(&'a str),
}

/// Whether placement names us for a free claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    First,
    Later,
}

/// A free claim, since when.
#[derive(Clone, Debug)]
struct Free {
    rv: Option<String>,
    since: Tick,
}

/// The observer of one session.
#[derive(Debug)]
pub struct Observer {
    me: String,
    company: Company,
    sessions: Sessions,
    moves: Moves,
    leftovers: Leftovers,
    held: BTreeSet<String>,
    /// Claims that we stopped acting under, with the last epoch that we had.
    given_up: BTreeMap<String, Epoch>,
    free: BTreeMap<String, Free>,
    /// When a claim was last seen with a living holder.
    owned_at: BTreeMap<String, Tick>,
    begun: Option<Tick>,
    draining: bool,
    /// Of the last look, for the end: members, and claims with their living holders.
    members: BTreeSet<String>,
    holders: BTreeMap<String, (ClaimKind, Option<String>)>,
    placements: BTreeMap<ClaimKind, Placement>,
}

impl Observer {
    /// An observer for the session `me` in `pod` (empty if it runs in none).
    #[must_use]
    pub fn new(me: &str, pod: &str, company: Company) -> Self {
        Self {
            me: me.to_owned(),
            company,
            sessions: Sessions::new(me, pod),
            moves: Moves::default(),
            leftovers: Leftovers::default(),
            held: BTreeSet::new(),
            given_up: BTreeMap::new(),
            free: BTreeMap::new(),
            owned_at: BTreeMap::new(),
            begun: None,
            draining: false,
            members: BTreeSet::new(),
            holders: BTreeMap::new(),
            placements: BTreeMap::new(),
        }
    }

    /// Takes a list that was sent after an own successful renewal.
    pub fn observe(&mut self, look: Look<'_>) -> Seen {
        let silent = self.sessions.watch(look.now, look.in_a_row, look.sighting);
        let fencing: BTreeSet<&str> = silent.iter().map(|record| record.name.as_str()).collect();
        let me = self.me.clone();
        let members = self.members(&me, look.sighting, &fencing);
        self.moves.see(look.now, &members);
        let standings: BTreeMap<&str, Standing<'_>> = look
            .wanted
            .keys()
            .map(|claim| (claim.as_str(), standing(claim, look.sighting, &fencing)))
            .collect();
        self.remember(look, &members, &standings);
        self.placements = self.spread();
        let mut seen = Seen { acts: silent.into_iter().map(ClaimAct::Fence).collect(), ..Seen::default() };
        for (claim, key) in look.wanted {
            let taker = self.placements.get(&key.kind()).and_then(|placement| placement.taker(claim));
            let choice = if taker == Some(me.as_str()) { Choice::First } else { Choice::Later };
            self.look_at_claim(look, claim, standings[claim.as_str()], choice, &members, &mut seen);
        }
        seen.acts.extend(self.offers(look.now));
        self.forget_unwanted(look.wanted);
        seen.acts.extend(self.unwanted(look));
        seen.acts.extend(missing_sessions(look));
        seen.acts.extend(self.leftovers.collect(look.now, look.wanted, look.sighting));
        if self.somebody_hands_over(look) {
            seen.again_ms = Some(seen.again_ms.unwrap_or(u64::MAX).min(HAND_OVER_LOOK_MS));
        }
        seen.directory = self.directory(look, &standings);
        seen
    }

    /// From now on nothing is taken, and nothing is offered.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Who should have our claims when we end, as far as the last look tells.
    #[must_use]
    pub fn successors(&self, claims: &BTreeSet<String>) -> BTreeMap<String, String> {
        let members: BTreeSet<&str> =
            self.members.iter().map(String::as_str).filter(|member| *member != self.me).collect();
        let mut successors = BTreeMap::new();
        for kind in ClaimKind::ALL {
            let of_kind = self.holders.iter().filter(|(_, (of, _))| *of == kind);
            let view = of_kind
                .map(|(claim, (_, holder))| {
                    let living =
                        holder.as_deref().filter(|holder| *holder != self.me && !claims.contains(claim));
                    (claim.as_str(), living)
                })
                .collect();
            let placement = Placement::new(&view, &members);
            let ours = claims.iter().filter(|claim| view.contains_key(claim.as_str()));
            successors
                .extend(ours.filter_map(|claim| Some((claim.clone(), placement.taker(claim)?.to_owned()))));
        }
        successors
    }

    /// Claims of ours that belong elsewhere, as far as the last look tells: few at a time, so this is asked again after
    /// each that was handed over or refused.
    pub fn offers(&mut self, now: Tick) -> Vec<ClaimAct> {
        let mut offers = Vec::new();
        if self.draining {
            return offers;
        }
        for claim in &self.held {
            let kind = self.holders.get(claim).map(|(kind, _)| *kind);
            let Some(placement) = kind.and_then(|kind| self.placements.get_mut(&kind)) else { continue };
            let Some(to) = placement.receiver(claim).map(str::to_owned) else { continue };
            // What is on its way already evens the fleet out as well: it counts before more is offered.
            let begun = self.moves.begin(now, claim, self.held.len());
            if begun || self.moves.is_on_its_way(claim) {
                placement.moved(claim, &to);
            }
            if begun {
                offers.push(ClaimAct::Offer { claim: claim.clone(), to });
            }
        }
        offers
    }

    /// Where only one replica may run: another that was seen alive and comes first.
    #[must_use]
    pub fn gives_way_to(&self, sighting: &Sighting) -> Option<String> {
        self.sessions.gives_way_to(sighting)
    }

    /// The claim will be taken anew, at a higher epoch.
    pub fn forget(&mut self, claim: &str) {
        self.held.remove(claim);
        self.moves.dropped(claim);
    }

    /// We stopped acting at this epoch, and try to write the claim free. Whatever becomes of that write, we do not act
    /// at this epoch again (F21).
    pub fn released(&mut self, claim: &str, epoch: Epoch) {
        self.forget(claim);
        self.given_up.insert(claim.to_owned(), epoch);
    }

    /// It is definitely not ours: the write that freed it was applied, or refused.
    pub fn freed(&mut self, claim: &str) {
        self.given_up.remove(claim);
    }

    /// It was handed over by agreement.
    pub fn handed_over(&mut self, now: Tick, claim: &str) {
        self.moves.moved(now, claim);
    }

    /// The receiver did not consent.
    pub fn refused(&mut self, now: Tick, claim: &str) {
        self.moves.refused(now, claim);
    }

    fn members<'a>(
        &self,
        me: &'a str,
        sighting: &'a Sighting,
        fencing: &BTreeSet<&str>,
    ) -> BTreeSet<&'a str> {
        let mut members = match self.company {
            Company::Fleet => self.sessions.members(sighting),
            Company::Alone => BTreeSet::new(),
        };
        members.retain(|member| !fencing.contains(member));
        if self.draining {
            members.remove(me);
        } else {
            members.insert(me);
        }
        members
    }

    fn remember(
        &mut self,
        look: Look<'_>,
        members: &BTreeSet<&str>,
        standings: &BTreeMap<&str, Standing<'_>>,
    ) {
        self.begun.get_or_insert(look.now);
        self.members = members.iter().map(|member| (*member).to_owned()).collect();
        self.holders = look
            .wanted
            .iter()
            .map(|(claim, key)| {
                let holder = match standings[claim.as_str()] {
                    Standing::Free => None,
                    Standing::Held(holder) => Some(holder.to_owned()),
                };
                (claim.clone(), (key.kind(), holder))
            })
            .collect();
        self.owned_at.retain(|claim, _| look.wanted.contains_key(claim));
        for claim in look.wanted.keys() {
            let living = match standings[claim.as_str()] {
                Standing::Free => false,
                Standing::Held(holder) => self.sessions.is_lively(holder, look.sighting),
            };
            let at = self.owned_at.entry(claim.clone()).or_insert(look.now);
            if living {
                *at = look.now;
            }
        }
    }

    fn spread(&self) -> BTreeMap<ClaimKind, Placement> {
        let members: BTreeSet<&str> = self.members.iter().map(String::as_str).collect();
        let placement = |kind: ClaimKind| {
            let of_kind = self.holders.iter().filter(|(_, (of, _))| *of == kind);
            let claims = of_kind.map(|(claim, (_, holder))| (claim.as_str(), holder.as_deref())).collect();
            (kind, Placement::new(&claims, &members))
        };
        ClaimKind::ALL.into_iter().map(placement).collect()
    }

    fn look_at_claim(
        &mut self,
        look: Look<'_>,
        claim: &str,
        standing: Standing<'_>,
        choice: Choice,
        members: &BTreeSet<&str>,
        seen: &mut Seen,
    ) {
        let record = look.sighting.claims.get(claim);
        match (standing, record) {
            (Standing::Held(holder), Some(record)) if holder == self.me => {
                self.free.remove(claim);
                seen.acts.extend(self.hold(claim, record));
            }
            (Standing::Held(_), _) => {
                self.free.remove(claim);
                self.given_up.remove(claim);
                seen.acts.extend(self.lost(claim));
            }
            (Standing::Free, record) => {
                self.given_up.remove(claim);
                seen.acts.extend(self.lost(claim));
                match self.wait_ms(look.now, claim, record, choice, members) {
                    Some(0) => {
                        if record.is_some_and(|record| record.successor.as_deref() == Some(self.me.as_str()))
                        {
                            self.moves.moved(look.now, claim);
                        }
                        let take = ClaimAct::Take { claim: claim.to_owned(), record: record.cloned() };
                        seen.acts.push(take);
                    }
                    Some(wait) => seen.again_ms = Some(seen.again_ms.unwrap_or(u64::MAX).min(wait)),
                    None => {}
                }
            }
        }
    }

    /// How long a free claim is left to others; `None` if we take nothing.
    fn wait_ms(
        &mut self,
        now: Tick,
        claim: &str,
        record: Option<&LeaseRecord>,
        choice: Choice,
        members: &BTreeSet<&str>,
    ) -> Option<u64> {
        let rv = record.map(|record| record.rv.clone());
        let free = self.free.entry(claim.to_owned()).or_insert_with(|| Free { rv: rv.clone(), since: now });
        if free.rv != rv {
            *free = Free { rv, since: now };
        }
        if self.draining {
            return None;
        }
        let waited = now.since(free.since);
        // One that is not there, or that is about to end as well, has no precedence.
        let successor = record.and_then(|record| record.successor.as_deref());
        let successor = successor.filter(|successor| members.contains(successor));
        if successor == Some(self.me.as_str()) {
            return Some(0);
        }
        let precedence = if successor.is_some() { SUCCESSOR_FIRST_MS } else { 0 };
        let due = match choice {
            Choice::First => precedence,
            Choice::Later => {
                let rank = u64::try_from(rank(claim, &self.me, members)).unwrap_or(u64::MAX);
                ANYONE_AFTER_MS + RANK_STEP_MS * rank
            }
        };
        Some(due.saturating_sub(waited))
    }

    fn hold(&mut self, claim: &str, record: &LeaseRecord) -> Option<ClaimAct> {
        let epoch = Epoch::new(record.transitions)?;
        if self.given_up.get(claim).is_some_and(|given_up| epoch <= *given_up) {
            return Some(ClaimAct::Release { record: record.clone() });
        }
        self.given_up.remove(claim);
        let new = self.held.insert(claim.to_owned());
        new.then(|| ClaimAct::Held { claim: claim.to_owned(), epoch, record: record.clone() })
    }

    fn lost(&mut self, claim: &str) -> Option<ClaimAct> {
        self.moves.dropped(claim);
        self.held.remove(claim).then(|| ClaimAct::Gone { claim: claim.to_owned() })
    }

    fn forget_unwanted(&mut self, wanted: &BTreeMap<String, ClaimKey>) {
        self.held.retain(|claim| wanted.contains_key(claim));
        self.free.retain(|claim, _| wanted.contains_key(claim));
    }

    /// Claims that name us and that nobody wants any more.
    fn unwanted<'a>(&'a self, look: Look<'a>) -> impl Iterator<Item = ClaimAct> + 'a {
        let ours = look.sighting.claims.values().filter(|record| record.holder.as_deref() == Some(&self.me));
        ours.filter(move |record| !look.wanted.contains_key(&record.name))
            .map(|record| ClaimAct::Release { record: record.clone() })
    }

    /// Whether a session that is about to end still holds something that is wanted.
    fn somebody_hands_over(&self, look: Look<'_>) -> bool {
        let draining = |session: &str| {
            session != self.me
                && look
                    .sighting
                    .sessions
                    .get(session)
                    .is_some_and(|record| record.holder.is_some() && record.notes.draining)
        };
        !self.draining && self.holders.values().any(|(_, holder)| holder.as_deref().is_some_and(draining))
    }
}

fn standing<'a>(claim: &str, sighting: &'a Sighting, fencing: &BTreeSet<&str>) -> Standing<'a> {
    let Some(holder) = sighting.claims.get(claim).and_then(|record| record.holder.as_deref()) else {
        return Standing::Free;
    };
    match sighting.sessions.get(holder) {
        // The fence has to be written before the claim is; the next list shows it.
        Some(_) if fencing.contains(holder) => Standing::Held(holder),
        Some(session) if session.holder.is_none() => Standing::Free,
        // A session that is missing is created in fenced form first (F6).
        Some(_) | None => Standing::Held(holder),
    }
}

fn missing_sessions(look: Look<'_>) -> impl Iterator<Item = ClaimAct> {
    let holders = look.wanted.keys().filter_map(|claim| look.sighting.claims.get(claim)?.holder.as_deref());
    let missing: BTreeSet<&str> =
        holders.filter(|holder| !look.sighting.sessions.contains_key(*holder)).collect();
    missing.into_iter().map(|session| ClaimAct::CreateFenced { session: session.to_owned() })
}

#[cfg(test)]
mod tests;
