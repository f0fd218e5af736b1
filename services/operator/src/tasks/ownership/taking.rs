//! Taking claims, and what runs under them. Many are taken at once and beside the renewals, so that a cold start with a
//! thousand free claims does not cost the session.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;
use upriver_engine::lease::{ClaimKey, ClaimKind, LeaseRecord, Owner};
use upriver_kube_io::lease::{LeaseError, LeaseWrite, Leases, Role};
use upriver_model::Epoch;
use upriver_store::Store;
use upriver_telemetry::metric;

use super::{Held, Life, Stage, TaskEnd};
use crate::tasks::branch::{self, Claimed};
use crate::tasks::leases::record;
use crate::tasks::watch::{self, ClaimedWatch};

/// A claim that we tried to take.
pub(super) struct Taken {
    claim: String,
    key: ClaimKey,
    /// `None` if it was not, or not surely; then the next list tells.
    taken: Option<(Epoch, LeaseRecord, bool)>,
}

/// Gauge of held claims.
pub(super) fn held_gauge(kind: ClaimKind) -> metrics::Gauge {
    match kind {
        ClaimKind::Branch => metrics::gauge!(metric::BRANCHES_OWNED),
        ClaimKind::Watch => metrics::gauge!(metric::WATCHES_OWNED),
    }
}

/// Writes our name on a claim, at an epoch above what Lease, store and caller know (F17).
async fn attempt(
    leases: Leases,
    store: Arc<dyn Store>,
    key: &ClaimKey,
    found: Option<LeaseRecord>,
    above: u64,
    mut write: LeaseWrite,
) -> Option<(Epoch, LeaseRecord, bool)> {
    let stored = match key {
        ClaimKey::Branch(branch) => match store.stored_epoch(branch).await {
            Ok(stored) => stored,
            Err(error) => {
                tracing::warn!(claim = write.name, %error, "no branch is taken while the store is away");
                return None;
            }
        },
        // What branches know of a watch's epoch they tell by refusing it.
        ClaimKey::Watch(_) => 0,
    };
    let on_lease = found.as_ref().map_or(0, |found| found.transitions);
    let epoch = Epoch::above(on_lease, stored.max(above));
    // Never owned before, or given up with nothing in flight: no push of a predecessor can land.
    let clean = found.as_ref().map_or(stored == 0, |found| found.clean);
    write.onto = found.map(|found| (found.uid, found.rv));
    write.transitions = epoch.as_key();
    match leases.write(&write).await {
        Ok(lease) => return Some((epoch, record(&lease), clean)),
        Err(LeaseError::Conflict { .. }) => tracing::debug!(claim = write.name, "somebody else was faster"),
        Err(error) => {
            tracing::warn!(claim = write.name, %error, "the claim was not taken; the next list tells");
        }
    }
    None
}

impl Life<'_> {
    /// Begins to take a claim; [`Life::taken`] is told what became of it.
    pub(super) fn take(&mut self, claim: String, key: ClaimKey, found: Option<LeaseRecord>, above: u64) {
        if self.held.contains_key(&claim) || !self.taking_now.insert(claim.clone()) {
            return;
        }
        let write = LeaseWrite {
            holder: Some(self.session.identity().to_owned()),
            pod: self.o.pod.clone(),
            about: self.about(&key),
            ..LeaseWrite::free(claim.clone(), Role::Claim)
        };
        let (leases, store) = (self.o.leases.clone(), self.o.shared.store.clone());
        let permits = self.permits.clone();
        self.taking.spawn(async move {
            let _permit = permits.acquire_owned().await;
            let taken = attempt(leases, store, &key, found, above, write).await;
            Taken { claim, key, taken }
        });
    }

    pub(super) fn taken(&mut self, ended: Result<Taken, JoinError>) {
        let Taken { claim, key, taken } = match ended {
            Ok(taken) => taken,
            Err(error) => {
                tracing::error!(%error, "an attempt to take a claim was lost");
                // Which one is not known; trying twice is harmless, since only one version can be replaced.
                self.taking_now.clear();
                return;
            }
        };
        self.taking_now.remove(&claim);
        match taken {
            Some((epoch, record, clean)) if self.stage == Stage::Working => {
                self.start(claim, key, epoch, record, clean);
            }
            // It came too late: nothing was done under it.
            Some((epoch, record, clean)) => self.free(&claim, epoch, &record, clean, None),
            // If it was applied after all, the next list says so anew.
            None => self.observer.forget(&claim),
        }
    }

    pub(super) fn about(&self, key: &ClaimKey) -> String {
        let branch = match key {
            ClaimKey::Branch(branch) => branch,
            ClaimKey::Watch(watch) => return watch.to_string(),
        };
        let desired = self.desired.borrow();
        desired
            .branches
            .get(branch)
            .map(|spec| format!("{} {}", spec.url.display_redacted(), spec.branch))
            .unwrap_or_default()
    }

    pub(super) fn start(
        &mut self,
        claim: String,
        key: ClaimKey,
        epoch: Epoch,
        record: LeaseRecord,
        clean: bool,
    ) {
        tracing::info!(claim, %key, epoch = epoch.as_key(), replica = %self.replica, clean, "claim taken");
        let held = Held {
            key: key.clone(),
            epoch,
            record,
            ticked: Arc::new(AtomicU64::new(self.now().0)),
            stop: CancellationToken::new(),
            drain: CancellationToken::new(),
            successor: None,
        };
        let address = self.o.peer_address.clone().unwrap_or_default();
        let owner = Owner { replica: self.replica.clone(), address, epoch, me: true };
        self.o.directory.send_modify(|directory| Arc::make_mut(directory).took(key.clone(), owner));
        held_gauge(key.kind()).increment(1.0);
        self.spawn(claim.clone(), &held, clean);
        self.held.insert(claim, held);
    }

    /// Starts the claim's task. A panic in it is an ended task, not an ended process; its message is in the log already.
    fn spawn(&mut self, claim: String, held: &Held, clean: bool) {
        let shared = self.o.shared.clone();
        let (epoch, replica) = (held.epoch, self.replica.clone());
        let (ticked, stop, drain) = (held.ticked.clone(), held.stop.clone(), held.drain.clone());
        match held.key.clone() {
            ClaimKey::Branch(key) => {
                let proofs = self.ask.clone();
                let claimed = Claimed { key, epoch, replica, clean, proofs, ticked, stop, drain };
                self.running.spawn(async move {
                    let ended = tokio::spawn(branch::run(shared, claimed)).await;
                    (claim, ended.map_or(TaskEnd::Finished { clean: false }, TaskEnd::from))
                });
            }
            ClaimKey::Watch(key) => {
                let claimed = ClaimedWatch { key, epoch, ticked, stop, drain };
                self.running.spawn(async move {
                    let ended = tokio::spawn(watch::run(shared, claimed)).await;
                    (claim, ended.map_or(TaskEnd::Finished { clean: false }, TaskEnd::from))
                });
            }
        }
    }
}
