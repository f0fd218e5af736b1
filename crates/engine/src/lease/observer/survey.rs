//! From a look to the directory: who holds what, who is alive, what belongs here.

use std::collections::BTreeMap;

use upriver_model::Epoch;

use super::{Observer, Standing};
use crate::lease::LeaseRecord;
use crate::lease::claim::replica_of;
use crate::lease::directory::{Directory, Member, Owner, Receiving};
use crate::lease::look::{Look, Sighting};
use crate::time::Tick;

/// A session younger than this is handed nothing: it may be one of many restarts.
const YOUNG_MS: u64 = 10_000;
/// Without a living holder for so long (a session's 8 s and 5 s more), a claim is told to be nobody's.
const UNOWNED_AFTER_MS: u64 = 13_000;

impl Observer {
    pub(super) fn directory(&self, look: Look<'_>, standings: &BTreeMap<&str, Standing<'_>>) -> Directory {
        let mut directory = Directory { receiving: self.receiving(look.now), ..Directory::default() };
        for (name, record) in look.sighting.sessions.iter().filter(|(_, record)| record.holder.is_some()) {
            if self.sessions.is_lively(name, look.sighting) {
                let member = member(name, record);
                directory.members.insert(member.replica.clone(), member);
            }
        }
        for (claim, key) in look.wanted {
            let record = look.sighting.claims.get(claim);
            if self.placements.get(&key.kind()).and_then(|placement| placement.home(claim))
                == Some(self.me.as_str())
            {
                directory.at_home.insert(claim.clone());
            }
            if self.owned_at.get(claim).is_some_and(|at| look.now.since(*at) >= UNOWNED_AFTER_MS) {
                directory.unowned.insert(key.clone());
            }
            directory.epochs.insert(claim.clone(), record.map_or(0, |record| record.transitions));
            let (Standing::Held(holder), Some(record)) = (standings[claim.as_str()], record) else {
                continue;
            };
            if let Some(owner) = self.owner(claim, holder, record, look.sighting) {
                if let Some(member) = directory.members.get_mut(&owner.replica) {
                    member.count(key.kind());
                }
                directory.owners.insert(key.clone(), owner);
            }
        }
        directory
    }

    fn owner(&self, claim: &str, holder: &str, record: &LeaseRecord, sighting: &Sighting) -> Option<Owner> {
        let me = holder == self.me;
        if me && !self.held.contains(claim) {
            return None;
        }
        let session = sighting.sessions.get(holder);
        Some(Owner {
            replica: replica_of(holder),
            address: session.map(|session| session.notes.address.clone()).unwrap_or_default(),
            epoch: Epoch::new(record.transitions)?,
            me,
        })
    }

    fn receiving(&self, now: Tick) -> Receiving {
        if self.draining {
            Receiving::Draining
        } else if self.begun.is_none_or(|begun| now.since(begun) < YOUNG_MS) {
            Receiving::Young
        } else {
            Receiving::Yes
        }
    }
}

fn member(name: &str, record: &LeaseRecord) -> Member {
    Member {
        replica: replica_of(name),
        address: record.notes.address.clone(),
        version: record.notes.version.clone(),
        draining: record.notes.draining,
        branches: 0,
        watches: 0,
    }
}
