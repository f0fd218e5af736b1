//! What a consistent list of sessions and claims allows: fencing, collecting, taking, dropping, offering.

use std::collections::BTreeMap;
use std::sync::Arc;

use upriver_engine::lease::{ClaimAct, ClaimKey, Directory, LeaseRecord, Look, Sighting};
use upriver_kube_io::lease::{LeaseError, LeaseWrite, Role};

use super::{Life, NotAlone};
use crate::control::plan::Desired;
use crate::tasks::leases::record;

/// Everything that somebody has to hold, by the name of its Lease.
fn wanted(desired: &Desired) -> BTreeMap<String, ClaimKey> {
    let branches = desired.branches.keys().cloned().map(ClaimKey::Branch);
    let targets = desired.branches.values().flat_map(|branch| &branch.targets);
    let subscriptions =
        targets.filter(|target| !target.plan.suspended).flat_map(|target| &target.plan.subscriptions);
    let watches = subscriptions.map(|subscription| ClaimKey::Watch(subscription.watch.clone()));
    branches.chain(watches).map(|key| (key.lease_name(), key)).collect()
}

impl Life<'_> {
    /// One consistent list, then whatever it allows.
    pub(super) async fn look_around(&mut self) {
        self.looked = self.now();
        let leases = match self.o.leases.list().await {
            Ok(leases) => leases,
            Err(error) => {
                tracing::warn!(%error, "sessions and claims could not be listed");
                return;
            }
        };
        let mut sighting = Sighting::default();
        for lease in &leases {
            let record = record(lease);
            match lease.role {
                Some(Role::Session) => drop(sighting.sessions.insert(record.name.clone(), record)),
                Some(Role::Claim) => drop(sighting.claims.insert(record.name.clone(), record)),
                None => {}
            }
        }
        self.wanted = wanted(&self.desired.borrow_and_update());
        let look = Look {
            now: self.now(),
            in_a_row: self.session.in_a_row(),
            wanted: &self.wanted,
            sighting: &sighting,
        };
        let seen = self.observer.observe(look);
        if let Some(lacks) = self.o.alone
            && let Some(other) = self.observer.gives_way_to(&sighting)
        {
            self.refused = Some(NotAlone { other, lacks });
            return;
        }
        self.publish(seen.directory);
        if let Some(wait) = seen.again_ms {
            self.look_in(wait);
        }
        for act in seen.acts {
            self.act(act).await;
        }
    }

    fn publish(&self, directory: Directory) {
        let before = self.o.directory.send_replace(Arc::new(directory));
        if before.unowned != self.o.directory.borrow().unowned {
            self.o.shared.wake.notify_one();
        }
    }

    pub(super) async fn act(&mut self, act: ClaimAct) {
        match act {
            ClaimAct::Fence(session) => self.fence(&session).await,
            ClaimAct::Collect(lease) => self.collect(&lease).await,
            ClaimAct::CreateFenced { session } => {
                let about = "fenced: a claim named this session, and it did not exist".to_owned();
                let write = LeaseWrite { about, ..LeaseWrite::free(session, Role::Session) };
                self.note(self.o.leases.write(&write).await);
            }
            ClaimAct::Take { claim, record } => {
                if let Some(key) = self.wanted.get(&claim) {
                    self.take(claim, key.clone(), record, 0);
                }
            }
            ClaimAct::Held { claim, epoch, record } => {
                // Our own write whose answer was lost: nobody else has acted at this epoch.
                let known = self.held.contains_key(&claim) || self.taking_now.contains(&claim);
                if let (Some(key), false) = (self.wanted.get(&claim), known) {
                    self.start(claim, key.clone(), epoch, record, false);
                }
            }
            ClaimAct::Gone { claim } => {
                if let Some(held) = self.held.get(&claim) {
                    tracing::warn!(claim, "the claim names somebody else; it is dropped");
                    held.stop.cancel();
                }
            }
            ClaimAct::Release { record } => match self.held.get(&record.name) {
                // Its end writes it free.
                Some(held) => held.drain.cancel(),
                None if self.taking_now.contains(&record.name) => {}
                None => self.free_again(record),
            },
            ClaimAct::Offer { claim, to } => self.offer(claim, to),
        }
    }

    async fn collect(&self, lease: &LeaseRecord) {
        match self.o.leases.delete(&lease.name, &lease.uid, &lease.rv).await {
            Ok(()) => tracing::info!(lease = lease.name, "a Lease that nobody needs any more was deleted"),
            Err(LeaseError::Conflict { .. } | LeaseError::Missing { .. }) => {}
            Err(error) => tracing::warn!(%error, "a Lease that nobody needs any more was not deleted"),
        }
    }

    async fn fence(&self, session: &LeaseRecord) {
        tracing::warn!(session = session.name, "the session is silent; it is fenced");
        let write = LeaseWrite {
            onto: Some((session.uid.clone(), session.rv.clone())),
            transitions: session.transitions,
            pod: session.pod.clone(),
            about: format!("fenced by {}", self.replica),
            ..LeaseWrite::free(session.name.clone(), Role::Session)
        };
        self.note(self.o.leases.write(&write).await);
    }
}
