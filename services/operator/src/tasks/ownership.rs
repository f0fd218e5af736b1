//! The session of this process and its claims: what it may write and watch, and since which epoch.
//!
//! One loop renews the session, looks around after each renewal and carries out what the engine makes of the list. Whatever
//! can take long runs beside it: taking, freeing and offering claims, and their tasks.

mod claims;
mod consent;
mod handing;
mod hints;
mod renewal;
mod taking;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use upriver_engine::Tick;
use upriver_engine::lease::{ClaimKey, Company, Directory, LeaseRecord, Observer, Session, session_name};
use upriver_kube_io::lease::Leases;
use upriver_model::{Epoch, ReplicaId};

use super::branch::{self, SILENCE_LIMIT_MS};
use super::shared::Shared;
use super::watch as watcher;
use crate::control::plan::Desired;

pub(crate) use consent::{Consent, NoPeers};
use handing::{Asked, Freed};
use taking::Taken;

/// The loop's own beat.
const BEAT: Duration = Duration::from_millis(200);
/// Pause before a new session after a lost one.
const NEW_SESSION_PAUSE: Duration = Duration::from_millis(500);
/// Looks that somebody asks for are at least this far apart.
const LOOK_GAP_MS: u64 = 300;
/// Claims that are taken or freed at the same time: enough for a thousand within seconds, few enough for the API server.
const WRITTEN_AT_ONCE: usize = 16;

/// What ownership needs.
pub(crate) struct Ownership {
    pub(crate) leases: Leases,
    /// For following claims: the connection of `leases` is for short calls only.
    pub(crate) followed: Leases,
    pub(crate) shared: Shared,
    pub(crate) pod: String,
    /// Our replica id, for others to show; empty between two sessions.
    pub(crate) replica: watch::Sender<String>,
    /// Set if a second replica has to be refused.
    pub(crate) alone: Option<Alone>,
    /// Where peers reach this process; `None` if nothing listens.
    pub(crate) peer_address: Option<String>,
    /// Who holds what, after each look.
    pub(crate) directory: watch::Sender<Arc<Directory>>,
    /// How peers are asked whether they want a claim.
    pub(crate) consent: Arc<dyn Consent>,
}

/// What this process lacks to be one of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alone {
    /// Its journal is in its own memory.
    Store,
    /// Nobody reaches it, and it reaches nobody.
    Peers,
}

impl Alone {
    fn advice(self) -> &'static str {
        match self {
            Self::Store => {
                "the embedded store serves one only: scale to one replica, or give all of them a Redis with --store redis \
                 --redis-addr"
            }
            Self::Peers => {
                "this one has no certificate to talk to it: give all of them one with --peer-cert-path, or scale to one \
                 replica"
            }
        }
    }
}

/// A process that serves alone met a second replica.
#[derive(Debug, thiserror::Error)]
#[error("another replica is alive ({other}), and {}", .lacks.advice())]
pub(crate) struct NotAlone {
    other: String,
    lacks: Alone,
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
        ownership.directory.send_replace(Arc::default());
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

/// What a session is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Working,
    /// The process ends.
    Draining,
}

/// How the task of a claim ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TaskEnd {
    /// Somebody knows a higher epoch.
    Fenced { stored: u64 },
    /// Asked to; `clean` if nothing was left in flight.
    Finished { clean: bool },
}

impl From<branch::Ended> for TaskEnd {
    fn from(ended: branch::Ended) -> Self {
        match ended {
            branch::Ended::Fenced { stored } => Self::Fenced { stored },
            branch::Ended::Finished { clean } => Self::Finished { clean },
        }
    }
}

impl From<watcher::Ended> for TaskEnd {
    fn from(ended: watcher::Ended) -> Self {
        match ended {
            watcher::Ended::Fenced { stored } => Self::Fenced { stored },
            // A watch leaves nothing behind.
            watcher::Ended::Finished => Self::Finished { clean: true },
        }
    }
}

struct Held {
    key: ClaimKey,
    epoch: Epoch,
    record: LeaseRecord,
    ticked: Arc<AtomicU64>,
    stop: CancellationToken,
    drain: CancellationToken,
    /// Session that it is handed to.
    successor: Option<String>,
}

/// One session from creation to loss or shutdown.
struct Life<'a> {
    o: &'a Ownership,
    replica: ReplicaId,
    session: Session,
    observer: Observer,
    stage: Stage,
    /// When the process began, for people.
    started: String,
    wanted: BTreeMap<String, ClaimKey>,
    held: BTreeMap<String, Held>,
    running: JoinSet<(String, TaskEnd)>,
    taking: JoinSet<Taken>,
    taking_now: BTreeSet<String>,
    permits: Arc<Semaphore>,
    freeing: JoinSet<Freed>,
    freeing_now: BTreeSet<String>,
    /// Claims of which it is not known that they are free.
    unfreed: BTreeSet<String>,
    asking: JoinSet<Asked>,
    hints: JoinSet<()>,
    looked: Tick,
    look_at: Option<Tick>,
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
        let name = session_name(&replica);
        let company = if o.alone.is_some() { Company::Alone } else { Company::Fleet };
        // One proof per branch at a time.
        let (ask, proofs) = mpsc::channel(1024);
        Self {
            session: Session::new(&name),
            observer: Observer::new(&name, &o.pod, company),
            replica,
            stage: Stage::Working,
            started: Timestamp::now().to_string(),
            wanted: BTreeMap::new(),
            held: BTreeMap::new(),
            running: JoinSet::new(),
            taking: JoinSet::new(),
            taking_now: BTreeSet::new(),
            permits: Arc::new(Semaphore::new(WRITTEN_AT_ONCE)),
            freeing: JoinSet::new(),
            freeing_now: BTreeSet::new(),
            unfreed: BTreeSet::new(),
            asking: JoinSet::new(),
            hints: JoinSet::new(),
            looked: Tick(0),
            look_at: None,
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
        let (me, look) = (self.session.identity().to_owned(), self.o.shared.look.clone());
        self.hints.spawn(hints::follow(self.o.followed.clone(), me, look));
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
            if self.look_at.is_some_and(|at| self.now() >= at) {
                self.look_at = None;
                self.session.need_proof();
            }
            let healthy = self.is_healthy();
            if let Some(act) = self.session.tick(self.now(), healthy)
                && self.perform(act).await
            {
                self.abandon().await;
                return LifeEnd::Lost;
            }
            self.wait(stop).await;
            self.catch_up().await;
        }
    }

    /// Takes note of everything else that has ended meanwhile: looks take long and are asked for often while claims move, and
    /// each must not be the price of one event.
    async fn catch_up(&mut self) {
        while let Some(ended) = self.running.try_join_next() {
            self.task_ended(ended).await;
        }
        while let Some(ended) = self.taking.try_join_next() {
            self.taken(ended);
        }
        while let Some(ended) = self.freeing.try_join_next() {
            self.freed(ended).await;
        }
        while let Some(ended) = self.asking.try_join_next() {
            self.asked(ended).await;
        }
    }

    /// Waits for whatever comes next, and takes note of it.
    async fn wait(&mut self, stop: &CancellationToken) {
        let beat = self.now() + u64::try_from(BEAT.as_millis()).unwrap_or(u64::MAX);
        let wake = self.o.shared.clock.at(self.look_at.map_or(beat, |at| at.min(beat)));
        let look = self.o.shared.look.clone();
        tokio::select! {
            () = stop.cancelled() => {}
            Some(answer) = self.proofs.recv() => {
                self.waiting.push(answer);
                self.session.need_proof();
            }
            Some(ended) = self.running.join_next() => self.task_ended(ended).await,
            Some(ended) = self.taking.join_next() => self.taken(ended),
            Some(ended) = self.freeing.join_next() => self.freed(ended).await,
            Some(ended) = self.asking.join_next() => self.asked(ended).await,
            () = look.notified() => self.look_in(0),
            Ok(()) = self.desired.changed() => self.look_in(0),
            () = tokio::time::sleep_until(wake) => {}
        }
    }

    /// Asks for a look after so many milliseconds; looks that are asked for are not too frequent.
    fn look_in(&mut self, ms: u64) {
        let at = (self.now() + ms).max(self.looked + LOOK_GAP_MS);
        self.look_at = Some(self.look_at.map_or(at, |before| before.min(at)));
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
}
