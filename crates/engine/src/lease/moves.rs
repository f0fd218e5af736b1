//! When may a held claim move to another replica? Rarely: a hand-over stops its work for a moment.
//!
//! A move needs members that stayed the same for a while, a claim that has not just moved, few others on their way, and
//! the receiver's consent, which the caller asks for (F8). What is deliberately absent: whether a move is worth it, which
//! is `placement`'s question.

use std::collections::{BTreeMap, BTreeSet};

use crate::time::Tick;

/// Members have to be the same for so long.
pub(super) const STABLE_MS: u64 = 10_000;
/// A claim moves at most once in this time.
const MOVED_PAUSE_MS: u64 = 60_000;
/// After a refusal the same claim is not offered for so long.
const REFUSED_PAUSE_MS: u64 = 20_000;
/// Claims of one replica that are offered or handed over at the same time: two, and one more for each sixteen that it
/// holds, so that a fleet that grows is level again within a minute whatever its size.
const IN_FLIGHT: usize = 2;
const HELD_FOR_ONE_MORE: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Moves {
    members: BTreeSet<String>,
    since: Tick,
    in_flight: BTreeSet<String>,
    /// Until when a claim stays where it is.
    rests: BTreeMap<String, Tick>,
}

impl Moves {
    /// Takes note of the members at a moment.
    pub(super) fn see(&mut self, now: Tick, members: &BTreeSet<&str>) {
        if !members.iter().copied().eq(self.members.iter().map(String::as_str)) {
            self.members = members.iter().map(|member| (*member).to_owned()).collect();
            self.since = now;
        }
        self.rests.retain(|_, until| now < *until);
    }

    /// Whether this claim, one of so many that are held, may be offered now; if so, it counts as on its way.
    pub(super) fn begin(&mut self, now: Tick, claim: &str, held: usize) -> bool {
        let stable = now.since(self.since) >= STABLE_MS;
        let most = IN_FLIGHT + held / HELD_FOR_ONE_MORE;
        let may = stable && self.in_flight.len() < most && !self.rests.contains_key(claim);
        may && self.in_flight.insert(claim.to_owned())
    }

    /// The receiver did not want it.
    pub(super) fn refused(&mut self, now: Tick, claim: &str) {
        if self.in_flight.remove(claim) {
            self.rests.insert(claim.to_owned(), now + REFUSED_PAUSE_MS);
        }
    }

    /// It has changed hands by agreement, from us or to us.
    pub(super) fn moved(&mut self, now: Tick, claim: &str) {
        self.in_flight.remove(claim);
        self.rests.insert(claim.to_owned(), now + MOVED_PAUSE_MS);
    }

    /// It is not ours any more, for whatever reason.
    pub(super) fn dropped(&mut self, claim: &str) {
        self.in_flight.remove(claim);
    }

    /// It is offered, or being handed over.
    pub(super) fn is_on_its_way(&self, claim: &str) -> bool {
        self.in_flight.contains(claim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stable() -> Moves {
        let mut moves = Moves::default();
        moves.see(Tick(0), &BTreeSet::from(["a", "b"]));
        moves
    }

    #[test]
    fn nothing_moves_before_the_members_have_been_the_same_for_ten_seconds() {
        let mut moves = stable();
        assert!(!moves.begin(Tick(9_999), "c", 15));
        moves.see(Tick(9_999), &BTreeSet::from(["a", "b", "new"]));
        assert!(!moves.begin(Tick(19_998), "c", 15), "one came: counted anew");
        moves.see(Tick(19_998), &BTreeSet::from(["a", "b", "new"]));
        assert!(moves.begin(Tick(19_999), "c", 15));
    }

    #[test]
    fn two_are_on_their_way_at_most_and_each_once() {
        let mut moves = stable();
        let offered: Vec<bool> =
            ["c", "c", "d", "e"].iter().map(|claim| moves.begin(Tick(10_000), claim, 15)).collect();
        assert_eq!(offered, [true, false, true, false]);
        moves.moved(Tick(10_100), "c");
        assert!(moves.begin(Tick(10_200), "e", 15));
        assert!(!moves.begin(Tick(10_200), "f", 15) && moves.begin(Tick(10_200), "f", 16));
    }

    #[test]
    fn a_moved_claim_rests_for_a_minute_and_a_refused_one_for_a_while() {
        let mut moves = stable();
        assert!(moves.begin(Tick(10_000), "c", 15) && moves.begin(Tick(10_000), "d", 15));
        moves.moved(Tick(10_000), "c");
        moves.refused(Tick(10_000), "d");
        let mut again = |at: u64, claim: &str| {
            moves.see(Tick(at), &BTreeSet::from(["a", "b"]));
            moves.begin(Tick(at), claim, 15)
        };
        assert!(!again(29_999, "d") && again(30_000, "d"));
        assert!(!again(69_999, "c") && again(70_000, "c"));
    }
}
