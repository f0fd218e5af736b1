//! The session of this process and its claims: what it may write, and since which epoch.

mod claims;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use upriver_engine::Tick;
use upriver_engine::lease::{LeaseRecord, Observer, Session, SessionAct, SessionResult};
use upriver_kube_io::lease::{LeaseWrite, Leases, Role};
use upriver_model::{BranchKey, Epoch, ReplicaId};
use upriver_telemetry::metric;

use super::branch::{Ended, SILENCE_LIMIT_MS, Shared};
use super::leases::{found, outcome, record, written};
use crate::control::plan::Desired;

/// The loop's own beat.
const BEAT: Duration = Duration::from_millis(200);
/// Pause before a new session after a lost one.
const NEW_SESSION_PAUSE: Duration = Duration::from_millis(500);
const SESSION_PREFIX: &str = "upriver-session-";
const CLAIM_PREFIX: &str = "upriver-branch-";

/// What ownership needs.
pub(crate) struct Ownership {
    pub(crate) leases: Leases,
    pub(crate) shared: Shared,
    pub(crate) pod: String,
    /// Our replica id, for others to show; empty between two sessions.
    pub(crate) replica: watch::Sender<String>,
    /// The store serves this process only: a second replica is refused.
    pub(crate) alone: bool,
}

/// The embedded store met a second replica.
#[derive(Debug, thiserror::Error)]
#[error(
    "another replica is alive ({other}), and the embedded store serves one only: scale to one replica, or give all of them \
     a Redis with --store redis --redis-addr"
)]
pub(crate) struct NotAlone {
    other: String,
}

/// How a session ended.
enum LifeEnd {
    Stopped,
    Lost,
    NotAlone(NotAlone),
}

/// Runs session after session until `stop`.
///
/// # Errors
/// If the store serves one replica and this is the second.
pub(crate) async fn run(ownership: Ownership, stop: CancellationToken) -> Result<(), NotAlone> {
    while !stop.is_cancelled() {
        let mut life = Life::new(&ownership);
        ownership.replica.send_replace(life.replica.to_string());
        let end = life.run(&stop).await;
        ownership.replica.send_replace(String::new());
        match end {
            LifeEnd::Stopped => {}
            LifeEnd::NotAlone(refused) => return Err(refused),
            LifeEnd::Lost => {
                tracing::warn!(replica = %life.replica, "the session is lost; every claim is dropped, a new session begins");
                tokio::time::sleep(NEW_SESSION_PAUSE).await;
            }
        }
    }
    Ok(())
}

struct Held {
    key: BranchKey,
    epoch: Epoch,
    record: LeaseRecord,
    ticked: Arc<AtomicU64>,
    stop: CancellationToken,
    drain: CancellationToken,
}

/// One session from creation to loss or shutdown.
struct Life<'a> {
    o: &'a Ownership,
    replica: ReplicaId,
    session: Session,
    observer: Observer,
    held: BTreeMap<String, Held>,
    running: JoinSet<(String, Ended)>,
    proofs: mpsc::Receiver<oneshot::Sender<()>>,
    ask: mpsc::Sender<oneshot::Sender<()>>,
    waiting: Vec<oneshot::Sender<()>>,
    desired: watch::Receiver<Arc<Desired>>,
    refused: Option<NotAlone>,
}

impl<'a> Life<'a> {
    fn new(o: &'a Ownership) -> Self {
        let suffix: u32 = rand::random();
        let pod = if o.pod.is_empty() { "upriver" } else { &o.pod };
        let replica = ReplicaId::new(format!("{pod}-{suffix:08x}"));
        let name = format!("{SESSION_PREFIX}{replica}");
        // One proof per branch at a time.
        let (ask, proofs) = mpsc::channel(1024);
        Self {
            session: Session::new(&name),
            observer: Observer::new(&name, &o.pod),
            replica,
            held: BTreeMap::new(),
            running: JoinSet::new(),
            proofs,
            ask,
            waiting: Vec::new(),
            desired: o.shared.desired.clone(),
            refused: None,
            o,
        }
    }

    fn now(&self) -> Tick {
        self.o.shared.clock.now()
    }

    async fn run(&mut self, stop: &CancellationToken) -> LifeEnd {
        loop {
            if stop.is_cancelled() {
                self.shut_down().await;
                return LifeEnd::Stopped;
            }
            if let Some(refused) = self.refused.take() {
                self.shut_down().await;
                return LifeEnd::NotAlone(refused);
            }
            while let Ok(answer) = self.proofs.try_recv() {
                self.waiting.push(answer);
                self.session.need_proof();
            }
            let healthy = self.is_healthy();
            if let Some(act) = self.session.tick(self.now(), healthy)
                && self.perform(act).await
            {
                self.abandon().await;
                return LifeEnd::Lost;
            }
            tokio::select! {
                () = stop.cancelled() => {}
                Some(answer) = self.proofs.recv() => {
                    self.waiting.push(answer);
                    self.session.need_proof();
                }
                Some(ended) = self.running.join_next() => self.task_ended(ended).await,
                _ = self.desired.changed() => self.session.need_proof(),
                () = tokio::time::sleep(BEAT) => {}
            }
        }
    }

    /// Every claim loop has gone round lately; else the session is not renewed and somebody else takes over (F8).
    fn is_healthy(&self) -> bool {
        let now = self.now();
        let silent: Vec<&str> = self
            .held
            .iter()
            .filter(|(_, held)| now.since(Tick(held.ticked.load(Ordering::Acquire))) > SILENCE_LIMIT_MS)
            .map(|(claim, _)| claim.as_str())
            .collect();
        if !silent.is_empty() {
            tracing::error!(?silent, "a claim loop hangs; the session is not renewed");
        }
        silent.is_empty()
    }

    /// Carries out a session act; true if the session is lost.
    async fn perform(&mut self, act: SessionAct) -> bool {
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
            self.look_around().await;
        }
        false
    }

    fn session_write(&self, onto: Option<(String, String)>, nonce: String) -> LeaseWrite {
        let name = self.session.identity().to_owned();
        LeaseWrite {
            holder: Some(name.clone()),
            name,
            role: Role::Session,
            onto,
            transitions: 0,
            nonce,
            pod: self.o.pod.clone(),
            clean: false,
            about: format!("replica {}, {} claims", self.replica, self.held.len()),
        }
    }

    async fn task_ended(&mut self, ended: Result<(String, Ended), tokio::task::JoinError>) {
        match ended {
            Ok((claim, ended)) => self.branch_ended(claim, ended).await,
            Err(error) => tracing::error!(%error, "an owner's task was lost"),
        }
    }

    async fn branch_ended(&mut self, claim: String, ended: Ended) {
        let Some(held) = self.held.remove(&claim) else { return };
        metrics::gauge!(metric::BRANCHES_OWNED).decrement(1.0);
        tracing::info!(claim, epoch = held.epoch.as_key(), ?ended, "the owner has ended");
        self.observer.forget(&claim);
        match ended {
            // The Lease may have been restored from a backup: if it still names us, go above the store's epoch.
            Ended::Fenced { stored } => match self.o.leases.get(&claim).await {
                Ok(lease) if lease.holder.as_deref() == Some(self.session.identity()) => {
                    self.take(claim, held.key, Some(record(&lease)), stored).await;
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(claim, %error, "a fenced claim could not be read"),
            },
            // The claim is somebody else's already.
            Ended::Finished { .. } if held.stop.is_cancelled() => {}
            Ended::Finished { clean } => self.release(&held, clean).await,
        }
    }

    /// Gives a claim up. Once sent, nothing is done under it any more.
    async fn release(&self, held: &Held, clean: bool) {
        let write = LeaseWrite {
            name: held.record.name.clone(),
            role: Role::Claim,
            onto: Some((held.record.uid.clone(), held.record.rv.clone())),
            holder: None,
            transitions: held.epoch.as_key(),
            nonce: String::new(),
            pod: String::new(),
            clean,
            about: self.about(&held.key),
        };
        self.note(self.o.leases.write(&write).await);
    }

    /// Hands everything over: branches finish, claims are written free, the session is cleared.
    async fn shut_down(&mut self) {
        for held in self.held.values() {
            held.drain.cancel();
        }
        while !self.running.is_empty() {
            // Proofs are still given: a last push may need one.
            tokio::select! {
                Some(ended) = self.running.join_next() => self.task_ended(ended).await,
                Some(answer) = self.proofs.recv() => {
                    self.waiting.push(answer);
                    self.session.need_proof();
                    let act = self.session.tick(self.now(), true);
                    if let Some(act) = act && self.prove_only(act).await {
                        self.abandon().await;
                        return;
                    }
                }
            }
        }
        self.clear_session().await;
    }

    /// A renewal for a proof at shutdown, without taking anything; true if the session is lost.
    async fn prove_only(&mut self, act: SessionAct) -> bool {
        let write = match act {
            SessionAct::Create { nonce } => self.session_write(None, nonce),
            SessionAct::Renew { uid, rv, nonce } => self.session_write(Some((uid, rv)), nonce),
            SessionAct::Get => return false,
            SessionAct::Lost => return true,
        };
        let result = written(self.o.leases.write(&write).await);
        let success = matches!(result, SessionResult::Written { .. });
        let lost = self.session.result(self.now(), result) == Some(SessionAct::Lost);
        if success {
            for answer in self.waiting.drain(..) {
                let _ = answer.send(());
            }
        }
        lost
    }

    async fn clear_session(&self) {
        let name = self.session.identity();
        if let Ok(lease) = self.o.leases.get(name).await
            && lease.holder.as_deref() == Some(name)
        {
            self.note(self.o.leases.delete(&lease.name, &lease.uid, &lease.rv).await.map(|()| lease));
        }
    }

    /// The session is lost: whatever runs under it ends now and releases nothing.
    async fn abandon(&mut self) {
        self.waiting.clear();
        self.proofs.close();
        for held in self.held.values() {
            held.stop.cancel();
        }
        while self.running.join_next().await.is_some() {}
        self.held.clear();
        metrics::gauge!(metric::BRANCHES_OWNED).set(0.0);
    }
}
