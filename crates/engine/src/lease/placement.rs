//! Which replica should hold a claim? Highest random weight with a bound on the load, for the claims of one kind.
//!
//! In: the claims with their holders, and the members. Out: a taker for each free claim, a home for each claim. Equal
//! views give equal answers, in every replica and every release: the hash is written out here and frozen. Of all pairs
//! the heaviest that still fits is chosen first; that has one outcome, whatever order the claims come in, and a member
//! that joins or leaves changes little of it. What is deliberately absent: acting. A claim is held by whom its Lease names.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A member holds at most this share of the mean, in percent, rounded up.
const BOUND_PERCENT: usize = 125;

/// 64-bit FNV-1a over the parts, each followed by a byte that no UTF-8 text holds.
pub(super) fn fnv1a(parts: &[&str]) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let part = |hash: u64, part: &&str| step(part.bytes().fold(hash, step), 0xff);
    parts.iter().fold(0xcbf2_9ce4_8422_2325, part)
}

/// How well a member suits a claim. The last bytes of an FNV hash hardly reach its upper bits: they are mixed.
fn weight(claim: &str, member: &str) -> u64 {
    let mut x = fnv1a(&[claim, member]);
    x = (x ^ (x >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    x = (x ^ (x >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ (x >> 33)
}

/// How many members suit a claim better than this one: 0 is the first choice.
#[must_use]
pub fn rank(claim: &str, member: &str, members: &BTreeSet<&str>) -> usize {
    let key = |member: &str| (Reverse(weight(claim, member)), member.to_owned());
    let own = key(member);
    members.iter().filter(|other| key(other) < own).count()
}

/// The claims of one kind, spread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    bound: usize,
    loads: BTreeMap<String, usize>,
    takers: BTreeMap<String, String>,
    homes: BTreeMap<String, String>,
    holders: BTreeMap<String, String>,
}

impl Placement {
    /// Spreads claims, each with its living holder, if it has one, over the members.
    #[must_use]
    pub fn new(claims: &BTreeMap<&str, Option<&str>>, members: &BTreeSet<&str>) -> Self {
        let bound = bound(claims.len(), members.len());
        let mut loads: BTreeMap<&str, usize> = members.iter().map(|member| (*member, 0)).collect();
        for holder in claims.values().flatten() {
            if let Some(load) = loads.get_mut(holder) {
                *load += 1;
            }
        }
        // There is room for every free claim: all bounds together are no less than the number of claims.
        let room = |load: usize| bound.saturating_sub(load);
        let free = claims.iter().filter(|(_, holder)| holder.is_none()).map(|(claim, _)| *claim);
        let takers = spread(free, loads.iter().map(|(member, load)| (*member, room(*load))).collect());
        let homes = spread(claims.keys().copied(), loads.keys().map(|member| (*member, bound)).collect());
        let holders =
            claims.iter().filter_map(|(claim, holder)| Some(((*claim).to_owned(), (*holder)?.to_owned())));
        Self {
            bound,
            takers,
            homes,
            holders: holders.collect(),
            loads: loads.into_iter().map(|(member, load)| (member.to_owned(), load)).collect(),
        }
    }

    /// Most claims that a member is given.
    #[must_use]
    pub fn bound(&self) -> usize {
        self.bound
    }

    /// Who takes a free claim.
    #[must_use]
    pub fn taker(&self, claim: &str) -> Option<&str> {
        self.takers.get(claim).map(String::as_str)
    }

    /// Where a claim belongs, whoever holds it. As long as the members stay, a claim that is there moves no more.
    #[must_use]
    pub fn home(&self, claim: &str) -> Option<&str> {
        self.homes.get(claim).map(String::as_str)
    }

    /// The receiver of a held claim that should move: its home, if that evens the fleet out or its holder has too many.
    /// So a claim away from home is left alone while nothing is gained. Every claim of a holder with too many that is
    /// not at home may go, and those at home are within the bound: repeated moves end with everybody within it.
    #[must_use]
    pub fn receiver(&self, claim: &str) -> Option<&str> {
        let (holder, home) = (self.holders.get(claim)?, self.homes.get(claim)?);
        let (load, there) = (*self.loads.get(holder)?, *self.loads.get(home)?);
        (holder != home && (load > self.bound || there + 1 < load)).then_some(home)
    }

    /// Takes note of a move that was decided, so that the next question counts with it.
    pub fn moved(&mut self, claim: &str, to: &str) {
        let Some(from) = self.holders.insert(claim.to_owned(), to.to_owned()) else { return };
        if let Some(load) = self.loads.get_mut(&from) {
            *load = load.saturating_sub(1);
        }
        *self.loads.entry(to.to_owned()).or_default() += 1;
    }
}

fn bound(claims: usize, members: usize) -> usize {
    if members == 0 { 0 } else { (claims * BOUND_PERCENT).div_ceil(members * 100) }
}

/// The heaviest pair that still fits, again and again.
fn spread<'a>(
    claims: impl Iterator<Item = &'a str>,
    mut room: BTreeMap<&'a str, usize>,
) -> BTreeMap<String, String> {
    let members: Vec<&str> = room.keys().copied().collect();
    let pairs = |claim: &'a str| {
        members.iter().map(move |member| (Reverse(weight(claim, member)), claim, *member)).collect::<Vec<_>>()
    };
    let mut pairs: Vec<_> = claims.flat_map(pairs).collect();
    pairs.sort_unstable();
    let mut placed = BTreeMap::new();
    for (_, claim, member) in pairs {
        let Some(left) = room.get_mut(member).filter(|left| **left > 0) else { continue };
        if !placed.contains_key(claim) {
            *left -= 1;
            placed.insert(claim.to_owned(), member.to_owned());
        }
    }
    placed
}

#[cfg(test)]
mod tests;
