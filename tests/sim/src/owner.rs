//! One process that owns, or believes that it owns, the branch: the real engine in the operator's shell.
//!
//! Store commands run one at a time in order, Git jobs too; running and answering are two steps, so that a crash can come
//! between them. Watches send through one inbox. An answer carries the life in which it was asked for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use upriver_engine::Tick;
use upriver_engine::branch::{Branch, BranchOptions, Command, Event, TargetPlan};
use upriver_model::{CommitId, Epoch, ReplicaId, TargetUid, WatchKey};
use upriver_store::{Journal, StoreError};

use crate::Bug;
use crate::invariants::Broken;
use crate::remote::Path;
use crate::shared::{Shared, branch_key, fleet};
use crate::storing::{self, StoreDone};
use crate::watcher::{ToWatch, Watcher};

/// Events that wait for the engine, as in the operator.
const INBOX: usize = 64;
/// Longest time for a last push at a hand-over.
const DRAIN_MS: u64 = 3_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Alive,
    /// Stopped like a process under SIGSTOP; it may go on at any time.
    Frozen,
    Gone,
}

pub(crate) enum GitWork {
    Waiting(Command),
    /// A push whose answer is not there yet.
    Flying(u64),
    Done(Event),
}

enum Proof {
    Asked { fetches: u64 },
    Answered { fetches: u64, genuine: bool },
}

/// A handle with the connection that it lives on.
pub(crate) struct Handle {
    pub(crate) journal: Box<dyn Journal>,
    pub(crate) connection: u64,
}

pub(crate) struct Owner {
    pub(crate) number: usize,
    pub(crate) epoch: Epoch,
    pub(crate) engine: Branch,
    pub(crate) standing: Standing,
    /// Since when it finishes its work.
    pub(crate) draining: Option<u64>,
    pub(crate) journal: Option<Rc<Handle>>,
    store_queue: VecDeque<(u32, Command)>,
    store_work: Option<(u32, Result<StoreDone, StoreError>)>,
    pub(crate) git_queue: VecDeque<(u32, Command)>,
    pub(crate) git_work: Option<(u32, GitWork)>,
    pub(crate) built: Option<(Option<CommitId>, CommitId)>,
    proof: Option<(u32, Proof)>,
    pub(crate) watches: BTreeMap<WatchKey, Watcher>,
    pub(crate) inbox: VecDeque<(u32, Event)>,
    pub(crate) plan_version: u64,
    pub(crate) plans: Vec<TargetPlan>,
    /// Files that our own commits were the last to change, when a loss of this number was first repaired.
    pub(crate) own: (u32, BTreeSet<Path>),
    /// Fetches so far, and how many of them came before the last proof was asked for (INV-4).
    pub(crate) fetches: u64,
    pub(crate) proven: u64,
    pub(crate) fetched: BTreeMap<Option<CommitId>, u64>,
    pub(crate) own_tip: Option<CommitId>,
}

/// What a process can do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    StoreRun,
    StoreAnswer,
    GitRun,
    GitAnswer,
    ProofSend,
    ProofAnswer,
    Inbox,
    Configure,
    Tick,
    Watch(usize, crate::watcher::Act),
    /// The session's keeper notices that the claim is lost.
    Notice,
    /// Drained: the claim is given up.
    Release,
}

impl Owner {
    pub(crate) fn new(number: usize, epoch: Epoch, clean: bool, seed: u64) -> Self {
        let options = BranchOptions {
            key: branch_key(),
            fleet: fleet(),
            epoch,
            clean,
            fence_after_ms: 60_000,
            drift_poll_ms: 60_000,
        };
        Self {
            number,
            epoch,
            engine: Branch::new(options, seed),
            standing: Standing::Alive,
            draining: None,
            journal: None,
            store_queue: VecDeque::new(),
            store_work: None,
            git_queue: VecDeque::new(),
            git_work: None,
            built: None,
            proof: None,
            watches: BTreeMap::new(),
            inbox: VecDeque::new(),
            plan_version: 0,
            plans: Vec::new(),
            own: (0, BTreeSet::new()),
            fetches: 0,
            proven: 0,
            fetched: BTreeMap::new(),
            own_tip: None,
        }
    }

    pub(crate) fn replica(&self) -> ReplicaId {
        ReplicaId::new(format!("replica-{}", self.number))
    }

    pub(crate) fn targets(&self) -> Vec<TargetUid> {
        self.plans.iter().map(|plan| plan.uid.clone()).collect()
    }

    pub(crate) fn moves(&self, s: &Shared) -> Vec<Move> {
        let mut moves = Vec::new();
        if self.standing != Standing::Alive {
            return moves;
        }
        let mut push = |may: bool, next: Move| {
            if may {
                moves.push(next);
            }
        };
        push(self.store_work.is_some(), Move::StoreAnswer);
        push(self.store_work.is_none() && !self.store_queue.is_empty(), Move::StoreRun);
        match &self.git_work {
            Some((_, GitWork::Done(_))) => push(true, Move::GitAnswer),
            Some((_, GitWork::Waiting(_))) => push(true, Move::GitRun),
            Some((_, GitWork::Flying(_))) => {}
            None => push(!self.git_queue.is_empty(), Move::GitRun),
        }
        push(matches!(self.proof, Some((_, Proof::Asked { .. }))), Move::ProofSend);
        push(matches!(self.proof, Some((_, Proof::Answered { .. }))), Move::ProofAnswer);
        push(!self.inbox.is_empty(), Move::Inbox);
        push(self.plan_version != s.plan_version, Move::Configure);
        push(self.engine.next_deadline().is_some_and(|at| at.0 <= s.now), Move::Tick);
        push(s.lease.holder != Some(self.number), Move::Notice);
        let drained = |since| self.engine.is_idle() || s.now >= since + DRAIN_MS;
        push(self.draining.is_some_and(drained), Move::Release);
        if self.inbox.len() < INBOX {
            for (index, watch) in self.watches.values().enumerate() {
                moves.extend(watch.acts(s.now, &s.cluster).into_iter().map(|act| Move::Watch(index, act)));
            }
        }
        moves
    }

    pub(crate) fn deadline(&self) -> Option<u64> {
        if self.standing != Standing::Alive {
            return None;
        }
        let watches = self.watches.values().filter_map(Watcher::deadline);
        let drained = self.draining.map(|since| since + DRAIN_MS);
        watches.chain(drained).chain(self.engine.next_deadline().map(|at| at.0)).min()
    }

    pub(crate) fn make(&mut self, s: &mut Shared, next: Move) -> Result<(), Broken> {
        match next {
            Move::StoreRun => self.store_run(s),
            Move::StoreAnswer => {
                self.store_answer(s);
                Ok(())
            }
            Move::GitRun => self.git_run(s),
            Move::GitAnswer => {
                if let Some((life, GitWork::Done(event))) = self.git_work.take() {
                    self.step(s, life, event);
                }
                Ok(())
            }
            Move::ProofSend => {
                self.prove(s);
                Ok(())
            }
            Move::ProofAnswer => {
                self.proof_answered(s);
                Ok(())
            }
            Move::Inbox => {
                if let Some((life, event)) = self.inbox.pop_front() {
                    self.step(s, life, event);
                }
                Ok(())
            }
            Move::Configure => {
                self.plan_version = s.plan_version;
                self.plans = s.plans.as_plans();
                let plans = self.plans.clone();
                self.step(s, self.engine.life(), Event::Configure(plans));
                Ok(())
            }
            Move::Tick => {
                self.step(s, self.engine.life(), Event::Tick);
                Ok(())
            }
            Move::Watch(index, act) => {
                self.watch(s, index, act);
                Ok(())
            }
            Move::Notice => {
                s.say(|| format!("owner {} notices that its claim is lost", self.number));
                self.end();
                Ok(())
            }
            Move::Release => {
                self.release(s);
                Ok(())
            }
        }
    }

    /// The process is gone; what it had sent to the remote may still land.
    pub(crate) fn end(&mut self) {
        self.standing = Standing::Gone;
        self.watches.clear();
        self.inbox.clear();
        self.store_queue.clear();
        self.git_queue.clear();
        self.journal = None;
    }

    pub(crate) fn release(&mut self, s: &mut Shared) {
        let clean = self.engine.is_idle();
        if s.lease.holder == Some(self.number) {
            s.lease.holder = None;
            s.lease.clean = clean;
        }
        s.say(|| format!("owner {} gives its claim up, clean {clean}", self.number));
        self.end();
    }

    pub(crate) fn step(&mut self, s: &mut Shared, life: u32, event: Event) {
        let current = self.engine.life();
        if s.is_logging() {
            let stale = if life == current { "" } else { " (of an earlier life)" };
            let text = short(&format!("{event:?}"));
            s.say(|| format!("owner {} <- {text}{stale}", self.number));
        }
        let commands = self.engine.step(Tick(s.now), life, event);
        let life = self.engine.life();
        for command in commands {
            if self.standing == Standing::Gone {
                return;
            }
            if s.is_logging() {
                let text = short(&format!("{command:?}"));
                s.say(|| format!("owner {} -> {text}", self.number));
            }
            self.execute(s, life, command);
        }
    }

    fn execute(&mut self, s: &mut Shared, life: u32, command: Command) {
        match command {
            Command::End(_) => self.end(),
            Command::Prove => self.proof = Some((life, Proof::Asked { fetches: self.fetches })),
            Command::StartWatch { watch, subscriptions, scope_hash } => {
                let opening = s.watch_claims.open(&watch, scope_hash);
                self.watches.insert(watch, Watcher::new(life, opening, subscriptions, s.bug));
            }
            Command::UpdateWatch { watch, subscriptions, scope_hash } => {
                let opening = s.watch_claims.reopen(self.watches.get(&watch), &watch, scope_hash);
                self.tell(&watch, ToWatch::Update(opening, subscriptions));
            }
            Command::StaleWatch { watch, epoch } => s.watch_claims.go_above(&watch, epoch),
            Command::BeginWatch(opening, start) => {
                self.tell(&opening.watch.clone(), ToWatch::Begin(opening, start));
            }
            Command::ContinueWatch(opening) => {
                self.tell(&opening.watch.clone(), ToWatch::Continue(opening));
            }
            Command::Backfill(opening, scopes) => {
                self.tell(&opening.watch.clone(), ToWatch::Backfill(opening, scopes));
            }
            Command::Ack(opening, seq) => self.tell(&opening.watch, ToWatch::Ack(opening.stream, seq)),
            Command::Hold(opening, seq) => self.tell(&opening.watch, ToWatch::Hold(opening.stream, seq)),
            Command::StopWatch(watch) => {
                self.let_go(&watch);
            }
            Command::Push if s.has_bug(Bug::SettleBeforePush) => {
                self.git_queue.push_back((u32::MAX, Command::Push));
                self.step(s, life, Event::Pushed(Ok(())));
            }
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
    }

    /// The link to a watcher is closed: what it had sent is not heard any more.
    pub(crate) fn let_go(&mut self, watch: &WatchKey) {
        self.watches.remove(watch);
        self.inbox.retain(|(_, event)| watch_of(event) != Some(watch));
    }

    fn tell(&mut self, watch: &WatchKey, message: ToWatch) {
        if let Some(watcher) = self.watches.get_mut(watch) {
            watcher.inbox.push_back(message);
        }
    }

    fn watch(&mut self, s: &mut Shared, index: usize, act: crate::watcher::Act) {
        let Some(watcher) = self.watches.values_mut().nth(index) else { return };
        let life = watcher.life;
        let events = watcher.act(act, s.now, &s.cluster, &mut s.rng);
        self.inbox.extend(events.into_iter().map(|event| (life, event)));
    }

    fn prove(&mut self, s: &mut Shared) {
        if let Some((_, proof @ Proof::Asked { .. })) = &mut self.proof
            && let Proof::Asked { fetches } = *proof
        {
            let genuine = s.lease.holder == Some(self.number);
            *proof = Proof::Answered { fetches, genuine };
            s.say(|| format!("owner {} renews its session: {genuine}", self.number));
        }
    }

    fn proof_answered(&mut self, s: &mut Shared) {
        let Some((life, Proof::Answered { fetches, genuine })) = self.proof.take() else { return };
        if genuine {
            self.proven = self.proven.max(fetches);
        }
        if genuine || s.has_bug(Bug::ProofSkipped) {
            self.step(s, life, Event::Proven);
        } else {
            s.say(|| format!("owner {} has lost its session", self.number));
            self.end();
        }
    }

    fn store_run(&mut self, s: &mut Shared) -> Result<(), Broken> {
        let current = self.engine.life();
        while let Some((life, command)) = self.store_queue.pop_front() {
            if life != current {
                continue;
            }
            if let Some(result) = storing::run(self, s, command)? {
                self.store_work = Some((life, result));
                return Ok(());
            }
        }
        Ok(())
    }

    fn store_answer(&mut self, s: &mut Shared) {
        let Some((life, result)) = self.store_work.take() else { return };
        match result {
            Ok(StoreDone::Adopted(handle, adopted)) => {
                self.journal = Some(handle);
                self.step(s, life, Event::Adopted(adopted));
            }
            Ok(StoreDone::Event(Some(event))) => self.step(s, life, event),
            Ok(StoreDone::Event(None)) => {}
            Err(error) => {
                self.journal = None;
                self.step(s, life, Event::StoreFailed(error));
            }
        }
    }

    /// The answer is lost on its way: the store has done it, or not.
    pub(crate) fn lose_store_answer(&mut self) -> bool {
        let Some((_, result @ Ok(_))) = &mut self.store_work else { return false };
        *result = Err(StoreError::Unavailable { reason: "the connection broke".to_owned() });
        true
    }

    /// Nothing waits, nothing flies, everything that the cluster has is in.
    pub(crate) fn is_quiet(&self, s: &Shared) -> bool {
        let view = self.engine.view();
        let ready =
            |scope: &upriver_engine::branch::ScopeView| *scope == upriver_engine::branch::ScopeView::Ready;
        view.running
            && view.depth == 0
            && view.targets.values().all(|target| target.waiting == 0)
            && self.plan_version == s.plan_version
            && view.targets.values().flat_map(|target| target.scopes.values()).all(ready)
            && self.watches.values().all(|watch| watch.is_quiet(&s.cluster))
            && self.store_queue.is_empty()
            && self.store_work.is_none()
            && self.git_queue.is_empty()
            && self.git_work.is_none()
            && self.proof.is_none()
            && self.inbox.is_empty()
    }
}

fn short(text: &str) -> String {
    const MOST: usize = 420;
    let plain = text.replace("EntryId ", "").replace("ResourceVersion", "rv").replace("TargetUid", "");
    if plain.len() <= MOST {
        return plain;
    }
    let cut = (0..=MOST).rev().find(|index| plain.is_char_boundary(*index)).unwrap_or(0);
    format!("{} …", &plain[..cut])
}

/// The watch that an event comes from, if a watcher sent it.
fn watch_of(event: &Event) -> Option<&WatchKey> {
    match event {
        Event::Opening(opening) | Event::Expired { opening, .. } => Some(&opening.watch),
        Event::Frame(frame) => Some(&frame.opening.watch),
        Event::Snapshot(snapshot) => Some(&snapshot.opening.watch),
        Event::Health(watch, _) => Some(watch),
        _ => None,
    }
}
