//! What a consistent list of sessions and claims allows: fencing, collecting, taking, dropping.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio_util::sync::CancellationToken;
use upriver_engine::lease::{ClaimAct, LeaseRecord, Sighting};
use upriver_kube_io::lease::{LeaseError, LeaseView, LeaseWrite, Role};
use upriver_model::{BranchKey, Epoch};
use upriver_telemetry::metric;

use super::{CLAIM_PREFIX, Held, Life, NotAlone};
use crate::tasks::branch::{self, Claimed, Ended};
use crate::tasks::leases::{self, record};

impl Life<'_> {
    /// One consistent list, then whatever it allows.
    pub(super) async fn look_around(&mut self) {
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
        let wanted: BTreeMap<String, BranchKey> = self
            .desired
            .borrow_and_update()
            .branches
            .keys()
            .map(|key| (format!("{CLAIM_PREFIX}{key}"), key.clone()))
            .collect();
        self.release_unwanted(&wanted);
        let names: BTreeSet<String> = wanted.keys().cloned().collect();
        let acts = self.observer.observe(self.now(), self.session.in_a_row(), &names, &sighting);
        if self.o.alone
            && let Some(other) = self.observer.gives_way_to(&sighting)
        {
            self.refused = Some(NotAlone { other });
            return;
        }
        for act in acts {
            self.act(act, &wanted).await;
        }
    }

    fn release_unwanted(&mut self, wanted: &BTreeMap<String, BranchKey>) {
        for (claim, held) in &self.held {
            if !wanted.contains_key(claim) {
                held.drain.cancel();
            }
        }
    }

    async fn act(&mut self, act: ClaimAct, wanted: &BTreeMap<String, BranchKey>) {
        match act {
            ClaimAct::Fence(session) => self.fence(&session).await,
            ClaimAct::Collect(session) => self.collect(&session).await,
            ClaimAct::CreateFenced { session } => {
                let write = LeaseWrite {
                    name: session,
                    role: Role::Session,
                    onto: None,
                    holder: None,
                    transitions: 0,
                    nonce: String::new(),
                    pod: String::new(),
                    clean: false,
                    about: "fenced: a claim named this session, and it did not exist".to_owned(),
                };
                self.note(self.o.leases.write(&write).await);
            }
            ClaimAct::Take { claim, record } => {
                if let Some(key) = wanted.get(&claim) {
                    self.take(claim, key.clone(), record, 0).await;
                }
            }
            ClaimAct::Held { claim, epoch, record } => {
                // Our own write whose answer was lost: nobody else has acted at this epoch.
                if let (Some(key), false) = (wanted.get(&claim), self.held.contains_key(&claim)) {
                    self.start(claim, key.clone(), epoch, record, false);
                }
            }
            ClaimAct::Gone { claim } => {
                if let Some(held) = self.held.get(&claim) {
                    tracing::warn!(claim, "the claim names somebody else; it is dropped");
                    held.stop.cancel();
                }
            }
        }
    }

    pub(super) fn note(&self, result: Result<LeaseView, LeaseError>) {
        match result {
            // A conflict means that the next list shows something else.
            Ok(_) | Err(LeaseError::Conflict { .. } | LeaseError::Missing { .. }) => {}
            Err(error) => tracing::warn!(%error, "a Lease was not written"),
        }
    }

    async fn collect(&self, session: &LeaseRecord) {
        match self.o.leases.delete(&session.name, &session.uid, &session.rv).await {
            Ok(()) => tracing::info!(session = session.name, "a fenced session was collected"),
            Err(LeaseError::Conflict { .. } | LeaseError::Missing { .. }) => {}
            Err(error) => tracing::warn!(%error, "a fenced session was not collected"),
        }
    }

    async fn fence(&self, session: &LeaseRecord) {
        tracing::warn!(session = session.name, "the session is silent; it is fenced");
        let write = LeaseWrite {
            name: session.name.clone(),
            role: Role::Session,
            onto: Some((session.uid.clone(), session.rv.clone())),
            holder: None,
            transitions: session.transitions,
            nonce: String::new(),
            pod: session.pod.clone(),
            clean: false,
            about: format!("fenced by {}", self.replica),
        };
        self.note(self.o.leases.write(&write).await);
    }

    /// Takes a claim at an epoch above what Lease, store and caller know (F17).
    pub(super) async fn take(
        &mut self,
        claim: String,
        key: BranchKey,
        record: Option<LeaseRecord>,
        above: u64,
    ) {
        if self.held.contains_key(&claim) {
            return;
        }
        let stored = match self.o.shared.store.stored_epoch(&key).await {
            Ok(stored) => stored,
            Err(error) => {
                tracing::warn!(claim, %error, "no claim is taken while the store is away");
                return;
            }
        };
        let on_lease = record.as_ref().map_or(0, |record| record.transitions);
        let epoch = Epoch::above(on_lease, stored.max(above));
        // Never owned before, or given up with nothing in flight: no push of a predecessor can land.
        let clean = record.as_ref().map_or(stored == 0, |record| record.clean);
        let write = LeaseWrite {
            name: claim.clone(),
            role: Role::Claim,
            onto: record.map(|record| (record.uid, record.rv)),
            holder: Some(self.session.identity().to_owned()),
            transitions: epoch.as_key(),
            nonce: String::new(),
            pod: self.o.pod.clone(),
            clean: false,
            about: self.about(&key),
        };
        match self.o.leases.write(&write).await {
            Ok(lease) => self.start(claim, key, epoch, leases::record(&lease), clean),
            Err(LeaseError::Conflict { .. }) => tracing::debug!(claim, "somebody else was faster"),
            Err(error) => tracing::warn!(claim, %error, "the claim was not taken; the next list tells"),
        }
    }

    pub(super) fn about(&self, key: &BranchKey) -> String {
        let desired = self.desired.borrow();
        desired
            .branches
            .get(key)
            .map(|spec| format!("{} {}", spec.url.display_redacted(), spec.branch))
            .unwrap_or_default()
    }

    fn start(&mut self, claim: String, key: BranchKey, epoch: Epoch, record: LeaseRecord, clean: bool) {
        tracing::info!(claim, epoch = epoch.as_key(), replica = %self.replica, clean, "claim taken");
        let held = Held {
            key: key.clone(),
            epoch,
            record,
            ticked: Arc::new(AtomicU64::new(self.now().0)),
            stop: CancellationToken::new(),
            drain: CancellationToken::new(),
        };
        let claimed = Claimed {
            key,
            epoch,
            replica: self.replica.clone(),
            clean,
            proofs: self.ask.clone(),
            ticked: held.ticked.clone(),
            stop: held.stop.clone(),
            drain: held.drain.clone(),
        };
        self.held.insert(claim.clone(), held);
        metrics::gauge!(metric::BRANCHES_OWNED).increment(1.0);
        let shared = self.o.shared.clone();
        self.running.spawn(async move {
            // A panic of the owner is an ended owner, not an ended process; its message is in the log already.
            let ended =
                tokio::spawn(branch::run(shared, claimed)).await.unwrap_or(Ended::Finished { clean: false });
            (claim, ended)
        });
    }
}
