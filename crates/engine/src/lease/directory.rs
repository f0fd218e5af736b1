//! Who holds what, as one replica saw it at its last look: for routing, for consent, and for people.
//!
//! It may be out of date the moment it is read; whoever acts on it is told by the epoch if it was.

use std::collections::{BTreeMap, BTreeSet};

use upriver_model::{BranchKey, Epoch, ReplicaId, WatchKey};

use super::claim::{ClaimKey, ClaimKind};

/// Everything that one look has shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directory {
    /// Living holders of claims that are wanted.
    pub owners: BTreeMap<ClaimKey, Owner>,
    /// Sessions that are alive, draining ones included.
    pub members: BTreeMap<ReplicaId, Member>,
    /// Claims that had no living holder for longer than a take-over takes.
    pub unowned: BTreeSet<ClaimKey>,
    /// Epoch that each claim's Lease has shown, by the name of the Lease.
    pub epochs: BTreeMap<String, u64>,
    /// Names of claims that belong here; they may be handed to us.
    pub(super) at_home: BTreeSet<String>,
    /// Whether this replica takes anything from others at present.
    pub(super) receiving: Receiving,
}

/// The living holder of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Who.
    pub replica: ReplicaId,
    /// Where its process can be reached, empty if nowhere.
    pub address: String,
    /// Since which epoch.
    pub epoch: Epoch,
    /// This process itself.
    pub me: bool,
}

/// A living session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Who.
    pub replica: ReplicaId,
    /// Where its process can be reached, empty if nowhere.
    pub address: String,
    /// Its release.
    pub version: String,
    /// It is about to end.
    pub draining: bool,
    /// Branch claims that it holds.
    pub branches: usize,
    /// Watch claims that it holds.
    pub watches: usize,
}

impl Member {
    pub(super) fn count(&mut self, kind: ClaimKind) {
        match kind {
            ClaimKind::Branch => self.branches += 1,
            ClaimKind::Watch => self.watches += 1,
        }
    }
}

/// Whether a replica can be handed claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Receiving {
    Yes,
    /// Its session has only just begun: it may be one of many restarts.
    #[default]
    Young,
    Draining,
}

/// Why a claim that was offered is not wanted here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Wait for the session to get older.
    #[error("the session is younger than ten seconds; ask again later")]
    Young,
    /// Choose somebody else.
    #[error("the replica is about to end; choose another one")]
    Draining,
    /// The two views differ; they will meet.
    #[error("by the receiver's own view the claim belongs elsewhere; look again")]
    NotAtHome,
    /// The one who offers it has not held it for a while.
    #[error("the claim has had another epoch since; look again")]
    Outdated,
}

impl Directory {
    /// The living holder of a branch claim.
    #[must_use]
    pub fn owner_of(&self, branch: &BranchKey) -> Option<Owner> {
        self.owners.get(&ClaimKey::Branch(branch.clone())).cloned()
    }

    /// The living holder of a watch claim.
    #[must_use]
    pub fn watcher_of(&self, watch: &WatchKey) -> Option<Owner> {
        self.owners.get(&ClaimKey::Watch(watch.clone())).cloned()
    }

    /// Answers a peer that wants to hand us a claim, by the name of its Lease, that it holds at `epoch`. Whoever says yes
    /// looks for the claim soon.
    ///
    /// # Errors
    /// Why not; it is asked again later.
    pub fn consent(&self, claim: &str, epoch: Epoch) -> Result<(), Refusal> {
        match self.receiving {
            Receiving::Yes => {}
            Receiving::Young => return Err(Refusal::Young),
            Receiving::Draining => return Err(Refusal::Draining),
        }
        if !self.at_home.contains(claim) {
            return Err(Refusal::NotAtHome);
        }
        let outdated = self.epochs.get(claim).is_some_and(|seen| epoch.as_key() < *seen);
        if outdated { Err(Refusal::Outdated) } else { Ok(()) }
    }

    /// We have taken a claim since the look.
    pub fn took(&mut self, claim: ClaimKey, owner: Owner) {
        self.unowned.remove(&claim);
        self.epochs.insert(claim.lease_name(), owner.epoch.as_key());
        self.owners.insert(claim, owner);
    }

    /// We have stopped acting under a claim since the look.
    pub fn dropped(&mut self, claim: &ClaimKey) {
        if self.owners.get(claim).is_some_and(|owner| owner.me) {
            self.owners.remove(claim);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(name: &str) -> ClaimKey {
        ClaimKey::Branch(BranchKey::new(name))
    }

    #[test]
    fn consent_is_given_for_what_belongs_here_by_whoever_holds_it_now() {
        let mut directory = Directory { receiving: Receiving::Yes, ..Directory::default() };
        directory.at_home.insert("a".to_owned());
        directory.epochs.insert("a".to_owned(), 7);
        let epoch = |number| Epoch::new(number).expect("above zero");
        assert_eq!(directory.consent("a", epoch(7)), Ok(()));
        assert_eq!(directory.consent("a", epoch(8)), Ok(()), "our look is older than its claim");
        assert_eq!(directory.consent("a", epoch(6)), Err(Refusal::Outdated));
        assert_eq!(directory.consent("b", epoch(1)), Err(Refusal::NotAtHome));
        directory.receiving = Receiving::Young;
        assert_eq!(directory.consent("a", epoch(7)), Err(Refusal::Young));
        directory.receiving = Receiving::Draining;
        assert_eq!(directory.consent("a", epoch(7)), Err(Refusal::Draining));
    }

    #[test]
    fn what_was_taken_or_dropped_since_the_look_shows_at_once() {
        let mut directory = Directory::default();
        directory.unowned.insert(claim("a"));
        let owner =
            |me| Owner { replica: ReplicaId::new("r"), address: String::new(), epoch: Epoch::FIRST, me };
        directory.took(claim("a"), owner(true));
        assert_eq!(directory.owner_of(&BranchKey::new("a")), Some(owner(true)));
        assert!(directory.unowned.is_empty());
        directory.dropped(&claim("a"));
        assert_eq!(directory.owner_of(&BranchKey::new("a")), None);
        directory.owners.insert(claim("a"), owner(false));
        directory.dropped(&claim("a"));
        assert_eq!(directory.owner_of(&BranchKey::new("a")), Some(owner(false)), "that is somebody else's");
    }
}
