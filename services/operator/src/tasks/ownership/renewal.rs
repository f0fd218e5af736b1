//! Writes to our own session Lease.

use std::time::Instant;

use upriver_engine::lease::{ClaimKind, SessionAct, SessionResult};
use upriver_kube_io::lease::{LeaseError, LeaseWrite, Role, SessionNotes};
use upriver_telemetry::metric;

use super::{Life, Stage};
use crate::tasks::leases::{found, outcome, written};

impl Life<'_> {
    /// Carries out a session act; true if the session is lost.
    pub(super) async fn perform(&mut self, act: SessionAct) -> bool {
        let name = self.session.identity().to_owned();
        let begun = Instant::now();
        let (result, renewed) = match act {
            SessionAct::Lost => return true,
            SessionAct::Get => (found(self.o.leases.get(&name).await), false),
            SessionAct::Create { nonce } => {
                (written(self.o.leases.write(&self.session_write(None, nonce)).await), true)
            }
            SessionAct::Renew { uid, rv, nonce } => {
                (written(self.o.leases.write(&self.session_write(Some((uid, rv)), nonce)).await), true)
            }
        };
        if renewed {
            let outcome = outcome(&result);
            metrics::counter!(metric::RENEWALS, "outcome" => outcome).increment(1);
            metrics::histogram!(metric::RENEW_SECONDS).record(begun.elapsed().as_secs_f64());
            tracing::trace!(session = %name, outcome, "renewal");
        }
        let success = matches!(result, SessionResult::Written { .. });
        let lost = self.session.result(self.now(), result) == Some(SessionAct::Lost);
        if lost {
            metrics::counter!(metric::SESSIONS_LOST, "reason" => "fenced").increment(1);
            return true;
        }
        if success {
            // Everybody who asked before this renewal was sent has a proof now.
            for answer in self.waiting.drain(..) {
                let _ = answer.send(());
            }
            // At the end nothing is taken any more, so nothing is looked for.
            if self.stage == Stage::Working {
                self.look_around().await;
            }
        }
        false
    }

    fn session_write(&self, onto: Option<(String, String)>, nonce: String) -> LeaseWrite {
        let name = self.session.identity().to_owned();
        let count = |kind: ClaimKind| self.held.values().filter(|held| held.key.kind() == kind).count();
        let (branches, watches) = (count(ClaimKind::Branch), count(ClaimKind::Watch));
        let notes = SessionNotes {
            address: self.o.peer_address.clone().unwrap_or_default(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: self.started.clone(),
            draining: self.stage == Stage::Draining,
            branches,
            watches,
        };
        LeaseWrite {
            holder: Some(name.clone()),
            onto,
            nonce,
            pod: self.o.pod.clone(),
            about: format!("replica {}: {branches} branches, {watches} watches", self.replica),
            notes: Some(notes),
            ..LeaseWrite::free(name, Role::Session)
        }
    }

    /// Ends the session. If a claim may still name it, it stays in fenced form, which frees all such claims in one write
    /// (F21); else it is not needed any more.
    pub(super) async fn clear_session(&self) {
        let name = self.session.identity();
        let lease = match self.o.leases.get(name).await {
            Ok(lease) => lease,
            Err(error) => {
                tracing::warn!(%error, "the session was not cleared; the others will find it silent");
                return;
            }
        };
        if lease.holder.as_deref() != Some(name) {
            return;
        }
        let result = if self.unfreed.is_empty() {
            self.o.leases.delete(&lease.name, &lease.uid, &lease.rv).await.map(|()| lease)
        } else {
            let onto = Some((lease.uid, lease.rv));
            let about = format!("ended with {} claims that may not be free", self.unfreed.len());
            self.o.leases.write(&LeaseWrite { onto, about, ..LeaseWrite::free(name, Role::Session) }).await
        };
        self.note(result);
    }

    pub(super) fn note(&self, result: Result<upriver_kube_io::lease::LeaseView, LeaseError>) {
        match result {
            // A conflict means that the next list shows something else.
            Ok(_) | Err(LeaseError::Conflict { .. } | LeaseError::Missing { .. }) => {}
            Err(error) => tracing::warn!(%error, "a Lease was not written"),
        }
    }
}
