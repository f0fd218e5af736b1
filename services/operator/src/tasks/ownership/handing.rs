//! Giving claims up: when their task ends, when they belong elsewhere, when the process ends.

use std::time::Duration;

use tokio::task::JoinError;
use upriver_engine::lease::{LeaseRecord, replica_of};
use upriver_kube_io::lease::{LeaseError, LeaseView, LeaseWrite, Role};
use upriver_model::Epoch;
use upriver_telemetry::metric;

use super::taking::held_gauge;
use super::{BEAT, Held, Life, Stage, TaskEnd};
use crate::tasks::leases::record;

/// Longest wait for a peer's consent.
const CONSENT_TIMEOUT: Duration = Duration::from_secs(5);

/// A claim that we tried to write free.
pub(super) struct Freed {
    claim: String,
    successor: Option<String>,
    result: Result<LeaseView, LeaseError>,
}

/// A peer's answer.
pub(super) struct Asked {
    claim: String,
    epoch: Epoch,
    to: String,
    answer: Result<(), String>,
}

impl Life<'_> {
    pub(super) async fn task_ended(&mut self, ended: Result<(String, TaskEnd), JoinError>) {
        let (claim, ended) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                tracing::error!(%error, "the task of a claim was lost");
                return;
            }
        };
        let Some(held) = self.held.remove(&claim) else { return };
        held_gauge(held.key.kind()).decrement(1.0);
        self.o.directory.send_modify(|directory| std::sync::Arc::make_mut(directory).dropped(&held.key));
        tracing::info!(claim, epoch = held.epoch.as_key(), ?ended, "the claim's task has ended");
        self.observer.forget(&claim);
        match ended {
            // The claim is somebody else's already.
            TaskEnd::Finished { .. } if held.stop.is_cancelled() => {}
            TaskEnd::Finished { clean } => {
                self.free(&claim, held.epoch, &held.record, clean, held.successor.clone());
            }
            TaskEnd::Fenced { stored } if self.stage == Stage::Working => {
                self.take_above(claim, &held, stored).await;
            }
            // Whoever fenced us has it, or will.
            TaskEnd::Fenced { .. } => drop(self.unfreed.insert(claim)),
        }
    }

    /// The Lease may have been restored from a backup: if it still names us, go above the store's epoch (F17).
    async fn take_above(&mut self, claim: String, held: &Held, stored: u64) {
        match self.o.leases.get(&claim).await {
            Ok(lease) if lease.holder.as_deref() == Some(self.session.identity()) => {
                self.take(claim, held.key.clone(), Some(record(&lease)), stored);
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(claim, %error, "a fenced claim could not be read"),
        }
    }

    /// Writes a claim free. Once this is sent, nothing is done under it any more, whatever becomes of the write (F21).
    pub(super) fn free(
        &mut self,
        claim: &str,
        epoch: Epoch,
        onto: &LeaseRecord,
        clean: bool,
        successor: Option<String>,
    ) {
        self.observer.released(claim, epoch);
        if !self.freeing_now.insert(claim.to_owned()) {
            return;
        }
        let about = self.wanted.get(claim).map(|key| self.about(key)).unwrap_or_default();
        let write = LeaseWrite {
            onto: Some((onto.uid.clone(), onto.rv.clone())),
            transitions: epoch.as_key(),
            clean,
            successor: successor.clone(),
            about,
            ..LeaseWrite::free(claim, Role::Claim)
        };
        let (leases, claim, permits) = (self.o.leases.clone(), claim.to_owned(), self.permits.clone());
        self.freeing.spawn(async move {
            let _permit = permits.acquire_owned().await;
            let result = leases.write(&write).await;
            Freed { claim, successor, result }
        });
    }

    /// The write that should have freed it was lost.
    pub(super) fn free_again(&mut self, record: LeaseRecord) {
        if let Some(epoch) = Epoch::new(record.transitions) {
            self.free(&record.name.clone(), epoch, &record, false, None);
        }
    }

    pub(super) async fn freed(&mut self, ended: Result<Freed, JoinError>) {
        let Freed { claim, successor, result } = match ended {
            Ok(freed) => freed,
            Err(error) => {
                tracing::error!(%error, "a write that frees a claim was lost");
                self.unfreed.append(&mut self.freeing_now);
                return;
            }
        };
        self.freeing_now.remove(&claim);
        self.unfreed.remove(&claim);
        match result {
            Ok(_) => {
                self.observer.freed(&claim);
                if successor.is_some() {
                    metrics::counter!(metric::CLAIM_MOVES, "outcome" => "handed_over").increment(1);
                    self.observer.handed_over(self.now(), &claim);
                }
            }
            // Definite: it has another holder, or none.
            Err(LeaseError::Conflict { .. } | LeaseError::Missing { .. }) => self.observer.freed(&claim),
            Err(error @ (LeaseError::Forbidden { .. } | LeaseError::Unknown { .. })) => {
                tracing::warn!(claim, %error, "the claim may not be free; the next list tells");
                self.unfreed.insert(claim);
            }
        }
        self.offer_more().await;
    }

    /// Asks a peer whether it wants a claim; [`Life::asked`] is told the answer.
    pub(super) fn offer(&mut self, claim: String, to: String) {
        let peer = self.o.shared.directory.borrow().members.get(&replica_of(&to)).cloned();
        let (Some(peer), Some(held)) = (peer, self.held.get(&claim)) else {
            self.observer.refused(self.now(), &claim);
            return;
        };
        let epoch = held.epoch;
        let asking = self.o.consent.ask(&peer, &claim, epoch.as_key());
        self.asking.spawn(async move {
            let answer = tokio::time::timeout(CONSENT_TIMEOUT, asking).await;
            let answer = answer.unwrap_or_else(|_| Err("no answer in time".to_owned()));
            Asked { claim, epoch, to, answer }
        });
    }

    pub(super) async fn asked(&mut self, ended: Result<Asked, JoinError>) {
        let Asked { claim, epoch, to, answer } = match ended {
            Ok(asked) => asked,
            Err(error) => {
                tracing::error!(%error, "asking a peer was lost; its claim does not move again in this session");
                return;
            }
        };
        match (answer, self.held.get_mut(&claim)) {
            (Ok(()), Some(held)) if held.epoch == epoch => {
                tracing::info!(claim, to, "the claim is handed over");
                held.successor = Some(to);
                held.drain.cancel();
            }
            // It ended while we asked.
            (Ok(()), _) => {}
            (Err(reason), _) => {
                tracing::debug!(claim, to, reason, "the claim stays");
                metrics::counter!(metric::CLAIM_MOVES, "outcome" => "refused").increment(1);
                self.observer.refused(self.now(), &claim);
            }
        }
    }

    async fn offer_more(&mut self) {
        for act in self.observer.offers(self.now()) {
            self.act(act).await;
        }
    }

    /// Hands everything over: says so, ends all tasks, writes all claims free with successors, clears the session.
    pub(super) async fn shut_down(&mut self) {
        self.stage = Stage::Draining;
        self.observer.drain();
        self.session.need_proof();
        if self.renew_if_due().await {
            return self.abandon().await;
        }
        let successors = self.observer.successors(&self.held.keys().cloned().collect());
        for (claim, held) in &mut self.held {
            held.successor = successors.get(claim).cloned();
            held.drain.cancel();
        }
        while !(self.running.is_empty() && self.taking.is_empty() && self.freeing.is_empty()) {
            tokio::select! {
                Some(ended) = self.running.join_next() => self.task_ended(ended).await,
                Some(ended) = self.taking.join_next() => self.taken(ended),
                Some(ended) = self.freeing.join_next() => self.freed(ended).await,
                // Proofs are still given: a last push may need one.
                Some(answer) = self.proofs.recv() => {
                    self.waiting.push(answer);
                    self.session.need_proof();
                }
                () = tokio::time::sleep(BEAT) => {}
            }
            if self.renew_if_due().await {
                return self.abandon().await;
            }
        }
        self.clear_session().await;
    }

    async fn renew_if_due(&mut self) -> bool {
        match self.session.tick(self.now(), true) {
            Some(act) => self.perform(act).await,
            None => false,
        }
    }

    /// The session is lost: whatever runs under it ends now and releases nothing.
    pub(super) async fn abandon(&mut self) {
        self.waiting.clear();
        self.proofs.close();
        self.taking.abort_all();
        self.freeing.abort_all();
        self.asking.abort_all();
        for held in self.held.values() {
            held.stop.cancel();
        }
        while self.running.join_next().await.is_some() {}
        for held in std::mem::take(&mut self.held).into_values() {
            held_gauge(held.key.kind()).decrement(1.0);
        }
    }
}
