//! The owner of one branch: drives the engine, carries out its commands, publishes its view.
//!
//! Watchers, here and in other replicas, come through links (`links`). Store commands run one at a time on the journal's
//! connection, Git jobs one at a time on the Git thread; their results come back as events. Answers of an earlier life are
//! dropped by the engine.

mod links;
mod skipped;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube::Client;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use upriver_engine::Tick;
use upriver_engine::branch::{Branch, BranchOptions, Command, Ending, Event};
use upriver_model::{BranchKey, Epoch, ReplicaId, TargetUid, WatchKey};
use upriver_store::{Adopt, Journal, StoreError};

use super::commands::{self, StoreDone, StoreWork};
use super::git::{Done, GitThread, Job, SecretData};
use super::shared::Shared;
use super::shown::Shown;
use super::watch::desk::OpenDesk;
use super::watch::link::{FromWatch, Names, OwnerEnd, Subscribe, ToWatch};
use crate::control::plan::BranchSpec;
use links::{Inbound, Links};
use skipped::SkippedSecrets;

/// Events that wait for the engine; senders wait when it is full, and with them the watches.
const INBOX: usize = 64;
/// Longest time for a last push at shutdown.
const DRAIN_MS: u64 = 3_000;
/// The claim loop ticks at least this often (F8).
const TICK: Duration = Duration::from_secs(1);

/// What one branch gets from its claim.
pub(crate) struct Claimed {
    pub(crate) key: BranchKey,
    pub(crate) epoch: Epoch,
    pub(crate) replica: ReplicaId,
    pub(crate) clean: bool,
    /// Asks for a session renewal sent from now on.
    pub(crate) proofs: mpsc::Sender<oneshot::Sender<()>>,
    /// Last time the loop went round, in milliseconds of the process' clock.
    pub(crate) ticked: Arc<AtomicU64>,
    /// The claim is lost: act no more.
    pub(crate) stop: CancellationToken,
    /// The process stops, or the branch is no longer wanted: finish.
    pub(crate) drain: CancellationToken,
}

/// How an owner ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The store holds a higher epoch.
    Fenced { stored: u64 },
    /// Asked to; `clean` if nothing was left in flight.
    Finished { clean: bool },
}

/// Runs until the claim ends.
pub(crate) async fn run(shared: Shared, claimed: Claimed) -> Ended {
    let dir = shared.data_dir.join(format!("{}-{}", claimed.replica, claimed.key));
    let git = match GitThread::start(dir, shared.git_timeout) {
        Ok(git) => git,
        Err(error) => {
            tracing::error!(shard = %claimed.key, %error, "no thread for Git; the claim is given up");
            return Ended::Finished { clean: false };
        }
    };
    let (inbox, inbound) = mpsc::channel(INBOX);
    let (desk, attaching) = shared.desk.open(&claimed.key);
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let options = BranchOptions {
        key: claimed.key.clone(),
        fleet: shared.fleet.clone(),
        epoch: claimed.epoch,
        clean: claimed.clean,
        fence_after_ms: millis(shared.fence_after),
        drift_poll_ms: millis(shared.drift_poll),
    };
    let shown = Shown::new(
        claimed.key.clone(),
        claimed.epoch,
        claimed.replica.clone(),
        shared.owned.clone(),
        shared.wake.clone(),
    );
    let task = Task {
        engine: Branch::new(options, rand::random()),
        git,
        links: Links::new(inbox),
        _desk: desk,
        spec: None,
        names: Names::new(),
        journal: None,
        store_queue: VecDeque::new(),
        store_work: None,
        git_queue: VecDeque::new(),
        git_work: None,
        proof: None,
        skipped: SkippedSecrets::default(),
        last_secret: None,
        in_build: Vec::new(),
        built: Vec::new(),
        shown,
        shared,
        claimed,
    };
    task.run(inbound, attaching).await
}

struct Task {
    shared: Shared,
    claimed: Claimed,
    engine: Branch,
    git: GitThread,
    links: Links,
    _desk: OpenDesk,
    spec: Option<Arc<BranchSpec>>,
    names: Names,
    journal: Option<Arc<dyn Journal>>,
    store_queue: VecDeque<(u32, Command)>,
    store_work: Option<(u32, StoreWork)>,
    git_queue: VecDeque<(u32, Command)>,
    git_work: Option<(u32, BoxFuture<'static, GitDone>)>,
    proof: Option<(u32, oneshot::Receiver<()>)>,
    skipped: SkippedSecrets,
    last_secret: Option<SecretData>,
    in_build: Vec<TargetUid>,
    built: Vec<TargetUid>,
    shown: Shown,
}

struct GitDone {
    done: Done,
    secret: Option<SecretData>,
}

/// Waits for a slot's future, or for ever if it is empty.
async fn of<T>(slot: &mut Option<(u32, BoxFuture<'static, T>)>) -> (u32, T) {
    match slot {
        Some((life, work)) => {
            let result = work.await;
            let life = *life;
            *slot = None;
            (life, result)
        }
        None => std::future::pending().await,
    }
}

async fn proven(slot: &mut Option<(u32, oneshot::Receiver<()>)>) -> (u32, bool) {
    match slot {
        Some((life, answer)) => {
            let result = answer.await.is_ok();
            let life = *life;
            *slot = None;
            (life, result)
        }
        None => std::future::pending().await,
    }
}

impl Task {
    async fn run(
        mut self,
        mut inbound: mpsc::Receiver<Inbound>,
        mut attaching: mpsc::Receiver<OwnerEnd>,
    ) -> Ended {
        let mut desired = self.shared.desired.clone();
        let (stop, drain) = (self.claimed.stop.clone(), self.claimed.drain.clone());
        let mut draining: Option<Tick> = None;
        self.configure();
        let ended = loop {
            let now = self.shared.clock.now();
            self.claimed.ticked.store(now.0, Ordering::Release);
            self.start_work();
            self.shown.show(now, self.engine.view(), &self.skipped.counts());
            if let Some(since) = draining
                && (self.engine.is_idle() || now.since(since) >= DRAIN_MS)
            {
                break Ended::Finished { clean: self.engine.is_idle() };
            }
            let wake = self.wake_at(now, draining);
            let step = tokio::select! {
                biased;
                () = stop.cancelled() => break Ended::Finished { clean: false },
                () = drain.cancelled(), if draining.is_none() => {
                    draining = Some(now);
                    self.step(self.engine.life(), Event::Drain)
                }
                (life, result) = of(&mut self.store_work) => self.store_done(life, result),
                (life, done) = of(&mut self.git_work) => self.git_done(life, done),
                // A refused proof means that the session is lost: the claim ends right behind it.
                (life, proof) = proven(&mut self.proof) => if proof { self.step(life, Event::Proven) } else { None },
                Some(end) = attaching.recv() => self.attach(end),
                Some(inbound) = inbound.recv() => self.heard(inbound),
                _ = desired.changed() => self.configure(),
                () = tokio::time::sleep_until(wake) => self.step(self.engine.life(), Event::Tick),
            };
            if let Some(ended) = step {
                break ended;
            }
        };
        self.links.clear();
        self.shown.clear();
        ended
    }

    /// A watcher has connected; if another one is, the engine starts over with the later one.
    fn attach(&mut self, end: OwnerEnd) -> Option<Ended> {
        let replaced = self.links.attach(end)?;
        self.step(self.engine.life(), Event::WatchDied(replaced))
    }

    fn heard(&mut self, inbound: Inbound) -> Option<Ended> {
        // A link that was closed meanwhile is not listened to any more.
        let (watch, life) = self.links.of(inbound.link)?;
        match inbound.message {
            None => self.step(life, Event::WatchDied(watch)),
            Some(FromWatch::LeftOut(secrets)) => {
                self.skipped.note(secrets);
                None
            }
            Some(message) => self.step(life, links::event(&watch, message)?),
        }
    }

    fn wake_at(&self, now: Tick, draining: Option<Tick>) -> tokio::time::Instant {
        let latest = now + u64::try_from(TICK.as_millis()).unwrap_or(1000);
        let due = self.engine.next_deadline().unwrap_or(latest).min(latest);
        let due = draining.map_or(due, |since| due.min(since + DRAIN_MS));
        self.shared.clock.at(due)
    }

    /// The wanted targets changed, or may have.
    fn configure(&mut self) -> Option<Ended> {
        let spec = self.shared.desired.borrow().branches.get(&self.claimed.key).cloned();
        // A branch that nobody wants any more is drained by its claim's keeper.
        let spec = spec?;
        if self.spec.as_ref() == Some(&spec) {
            return None;
        }
        self.names = spec
            .targets
            .iter()
            .map(|target| (target.plan.uid.clone(), (target.namespace.clone(), target.name.clone())))
            .collect();
        let plans = spec.targets.iter().map(|target| target.plan.clone()).collect();
        self.spec = Some(spec);
        self.step(self.engine.life(), Event::Configure(plans))
    }

    fn step(&mut self, life: u32, event: Event) -> Option<Ended> {
        let commands = self.engine.step(self.shared.clock.now(), life, event);
        let life = self.engine.life();
        for command in commands {
            if let Some(ended) = self.execute(life, command) {
                return Some(ended);
            }
        }
        None
    }

    fn execute(&mut self, life: u32, command: Command) -> Option<Ended> {
        match command {
            Command::End(Ending::Fenced { stored }) => return Some(Ended::Fenced { stored }),
            Command::Prove => self.prove(life),
            Command::StartWatch { watch, subscriptions, scope_hash } => {
                let subscribe = Subscribe { subscriptions, scope_hash, names: self.names.clone() };
                self.links.want(life, watch, subscribe);
            }
            Command::UpdateWatch { watch, subscriptions, scope_hash } => {
                let subscribe = Subscribe { subscriptions, scope_hash, names: self.names.clone() };
                return self.tell(life, &watch, ToWatch::Subscribe(subscribe));
            }
            Command::StaleWatch { watch, epoch } => {
                tracing::warn!(%watch, epoch, "a watcher is behind the journal's watch epoch");
                return self.tell(life, &watch, ToWatch::Stale(epoch));
            }
            Command::BeginWatch(opening, start) => {
                return self.tell(life, &opening.watch.clone(), ToWatch::Begin(opening, start));
            }
            Command::ContinueWatch(opening) => {
                return self.tell(life, &opening.watch.clone(), ToWatch::Continue(opening));
            }
            Command::Backfill(opening, scopes) => {
                return self.tell(life, &opening.watch.clone(), ToWatch::Backfill(opening, scopes));
            }
            Command::Ack(opening, seq) => {
                return self.tell(life, &opening.watch, ToWatch::Ack(opening.stream, seq));
            }
            Command::Hold(opening, seq) => {
                return self.tell(life, &opening.watch, ToWatch::Hold(opening.stream, seq));
            }
            Command::StopWatch(watch) => self.links.stop(&watch),
            Command::Fetch { .. } | Command::Build { .. } | Command::Push | Command::ReadRef => {
                self.git_queue.push_back((life, command));
            }
            Command::Adopt
            | Command::Load
            | Command::Open(_)
            | Command::Append(_)
            | Command::ReadInventory(_)
            | Command::Raise(..)
            | Command::Clear(_)
            | Command::Forget(_)
            | Command::DropCursor(..)
            | Command::Note(_)
            | Command::Reserve(_)
            | Command::Intend(..)
            | Command::Settle(_) => self.store_queue.push_back((life, command)),
        }
        None
    }

    /// A watcher that does not take its messages is let go; it connects again.
    fn tell(&mut self, life: u32, watch: &WatchKey, message: ToWatch) -> Option<Ended> {
        if self.links.tell(watch, message) {
            return None;
        }
        tracing::warn!(%watch, "a watcher does not answer; its link is closed");
        self.step(life, Event::WatchDied(watch.clone()))
    }

    fn prove(&mut self, life: u32) {
        let (answer, proof) = oneshot::channel();
        // Full or closed means that the session's keeper is ending, and with it this claim.
        if self.claimed.proofs.try_send(answer).is_ok() {
            self.proof = Some((life, proof));
        }
    }

    /// Starts the next store command and the next Git job, if their slots are free.
    fn start_work(&mut self) {
        let current = self.engine.life();
        while self.store_work.is_none() {
            let Some((life, command)) = self.store_queue.pop_front() else { break };
            if life != current {
                continue;
            }
            let work = match (command, &self.journal) {
                (Command::Adopt, _) => Some(self.adopt()),
                (command, Some(journal)) => commands::start(journal.clone(), command),
                (_, None) => None,
            };
            self.store_work = work.map(|work| (life, work));
        }
        while self.git_work.is_none() {
            let Some((life, command)) = self.git_queue.pop_front() else { break };
            if life == current {
                self.git_work = self.start_git(command).map(|work| (life, work));
            }
        }
    }

    fn adopt(&self) -> StoreWork {
        let adopt = Adopt {
            branch: self.claimed.key.clone(),
            epoch: self.claimed.epoch,
            holder: self.claimed.replica.clone(),
            fresh: commands::fresh_incarnation(),
        };
        commands::adopt(self.shared.store.clone(), adopt)
    }

    fn store_done(&mut self, life: u32, result: Result<StoreDone, StoreError>) -> Option<Ended> {
        match result {
            Ok(StoreDone::Adopted(journal, adopted)) => {
                self.journal = Some(journal);
                self.step(life, Event::Adopted(adopted))
            }
            Ok(StoreDone::Event(Some(event))) => self.step(life, event),
            Ok(StoreDone::Event(None)) => None,
            Err(error) => {
                tracing::warn!(shard = %self.claimed.key, %error, "the journal; adopting it again");
                self.journal = None;
                self.step(life, Event::StoreFailed(error))
            }
        }
    }

    fn start_git(&mut self, command: Command) -> Option<BoxFuture<'static, GitDone>> {
        let spec = self.spec.clone()?;
        let git = self.git.clone();
        if let Command::Build { base, units } = command {
            self.in_build = units.iter().map(|(unit, _)| unit.target.clone()).collect();
            let refused = self.engine.view().refused.into_keys().collect();
            let work = git.run(spec, Job::Build { base, units, refused });
            return Some(work.map(|done| GitDone { done, secret: None }).boxed());
        }
        let (client, last) = (self.shared.client.clone(), self.last_secret.clone());
        let work = async move {
            let secret = match read_secret(&client, &spec, last).await {
                Ok(secret) => secret,
                Err(failure) => return GitDone { done: refused(&command, failure), secret: None },
            };
            let job = match command {
                Command::Fetch { until } => Job::Fetch { secret: secret.clone(), until },
                Command::Push => Job::Push { secret: secret.clone() },
                _ => Job::ReadRef { secret: secret.clone() },
            };
            GitDone { done: git.run(spec, job).await, secret: Some(secret) }
        };
        Some(work.boxed())
    }

    fn git_done(&mut self, life: u32, done: GitDone) -> Option<Ended> {
        if let Some(secret) = done.secret {
            self.last_secret = Some(secret);
        }
        let event = match done.done {
            Done::Fetched(result) => Event::Fetched(result),
            Done::Built(result) => {
                if let Ok(built) = &result {
                    let made = self.in_build.iter().zip(&built.results);
                    self.built = made
                        .filter(|(_, result)| result.commit.is_some())
                        .map(|(target, _)| target.clone())
                        .collect();
                }
                Event::Built(result)
            }
            Done::Pushed(result) => {
                if result.is_ok() {
                    self.shown.note_push(&self.built);
                }
                Event::Pushed(result)
            }
            Done::RefRead(result) => Event::RefRead(result),
        };
        self.step(life, event)
    }
}

/// The Secret is read for every operation, so a rotated token works at once. An API server that is away is no reason to
/// stop pushing with what was read last.
async fn read_secret(
    client: &Client,
    spec: &BranchSpec,
    last: Option<SecretData>,
) -> Result<SecretData, upriver_model::Failure> {
    use upriver_model::{Failure, FailureClass};
    let Some((namespace, name)) = &spec.secret else { return Ok(None) };
    match crate::control::secret_data(client, namespace, name).await {
        Ok(data) => Ok(Some(Arc::new(data))),
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let message = format!("Secret {namespace}/{name} does not exist: create it");
            Err(Failure::new(FailureClass::Auth, message))
        }
        Err(error) => last.ok_or_else(|| {
            let message = format!("Secret {namespace}/{name} cannot be read: {error}");
            Failure::new(FailureClass::Network, message)
        }),
    }
}

fn refused(command: &Command, failure: upriver_model::Failure) -> Done {
    match command {
        Command::Fetch { .. } => Done::Fetched(Err(failure)),
        Command::Push => Done::Pushed(Err(failure)),
        _ => Done::RefRead(Err(failure)),
    }
}

/// How long a claim loop may be silent before the session is no longer renewed (F8).
pub(crate) const SILENCE_LIMIT_MS: u64 = 5_000;
