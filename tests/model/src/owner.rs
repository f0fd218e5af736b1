//! One process that owns, or believes that it owns, the branch: the real engine, and what its shell holds for it.

use std::collections::{BTreeSet, VecDeque};
use std::hash::Hasher;
use std::sync::Arc;

use upriver_engine::Tick;
use upriver_engine::branch::{Base, Branch, BranchOptions, Command, Event, Unit, UnitKind, WatchHealth};
use upriver_model::{CommitId, EntryId, Epoch, FailureClass, IdSet, JournalHeader, ReplicaId, WatchKey};
use upriver_sim::invariants::{Broken, proven_before_push};
use upriver_sim::plans;
use upriver_sim::remote::{Path, parent};
use upriver_store::{HandleSnapshot, Opening};

use crate::config::Bug;
use crate::part::{Digest, Part, hash_text};
use crate::watch::{Backfill, Watch};
use crate::world::{Flight, Lease, World, branch_key, fleet};

/// The moment at which every step is taken; time that passes moves the deadlines instead.
pub(crate) const NOW: Tick = Tick(1_000_000_000);
/// So far away that no other deadline is behind it: an idle look is a step of its own.
pub(crate) const LOOK_MS: u64 = 1_000_000_000;

/// More streams than any owner needs within the bounds: one that is refused each time would count up for ever.
const STREAMS: u64 = 8;

/// A renewal that was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Proving {
    pub(crate) life: u32,
    /// Tips that were fetched before it was asked for.
    pub(crate) covers: BTreeSet<Option<CommitId>>,
}

#[derive(Clone)]
pub(crate) struct Owner {
    pub(crate) number: usize,
    pub(crate) epoch: Epoch,
    pub(crate) engine: Branch,
    pub(crate) gone: bool,
    pub(crate) handle: Option<HandleSnapshot>,
    pub(crate) store_queue: VecDeque<Command>,
    pub(crate) git_queue: VecDeque<Command>,
    /// A push that is waited for.
    pub(crate) flying: Option<CommitId>,
    built: Option<(Option<CommitId>, CommitId)>,
    pub(crate) proving: Option<Proving>,
    pub(crate) watch: Option<Watch>,
    /// Streams opened so far; never reused within the epoch.
    streams: u64,
    /// Files that our own commits were the last to change, when a loss of this number was first repaired.
    own: (u32, BTreeSet<Path>),
    /// Tips that were fetched in this life, and those of them after which a genuine proof was asked for (INV-4).
    pub(crate) fetched: BTreeSet<Option<CommitId>>,
    proven: BTreeSet<Option<CommitId>>,
    /// Losses that the store had seen when the connection was made.
    pub(crate) connection: u32,
    /// Tips that our pushes were to leave, and the one that a push has left. Commits are deterministic: a tip that is read
    /// and has the name of ours is ours, even if another owner's push of the same commit was the one that arrived.
    pub(crate) sent: Option<CommitId>,
    pub(crate) own_tip: Option<CommitId>,
}

impl Digest for Owner {
    fn digest(&self, state: &mut impl Hasher) {
        state.write_u8(u8::from(self.gone));
        if self.gone {
            // Nothing of it is ever seen again.
            return;
        }
        self.engine.fingerprint(state);
        let queues = (&self.store_queue, &self.git_queue, &self.flying, &self.built, &self.proving);
        let tips = (&self.fetched, &self.proven, &self.sent, &self.own_tip);
        let watch = (&self.watch, self.streams);
        hash_text(&(&self.handle, self.connection, queues, watch, &self.own, tips), state);
    }
}

impl Owner {
    fn new(number: usize, epoch: Epoch, clean: bool) -> Self {
        let options = BranchOptions {
            key: branch_key(),
            fleet: fleet(),
            epoch,
            clean,
            // The first look at an unmoved tip is the last one.
            fence_after_ms: 5_000,
            drift_poll_ms: LOOK_MS,
        };
        Self {
            number,
            epoch,
            engine: Branch::new(options, 0),
            gone: false,
            handle: None,
            store_queue: VecDeque::new(),
            git_queue: VecDeque::new(),
            flying: None,
            built: None,
            proving: None,
            watch: None,
            streams: 0,
            own: (0, BTreeSet::new()),
            fetched: BTreeSet::new(),
            proven: BTreeSet::new(),
            connection: 0,
            sent: None,
            own_tip: None,
        }
    }

    pub(crate) fn replica(&self) -> ReplicaId {
        ReplicaId::new(format!("replica-{}", self.number))
    }

    pub(crate) fn awaits(&self, new: &CommitId) -> bool {
        self.flying.as_ref() == Some(new)
    }

    pub(crate) fn end(&mut self) {
        self.gone = true;
        self.flying = None;
    }

    /// Answers of an earlier life are not waited for.
    fn begin_life(&mut self) {
        self.store_queue.clear();
        self.git_queue.clear();
        self.flying = None;
        self.proving = None;
        self.fetched.clear();
        self.proven.clear();
    }
}

pub(crate) fn failure(class: FailureClass) -> upriver_model::Failure {
    upriver_model::Failure::new(class, "")
}

impl World {
    /// A successor: its epoch is above what Lease and store know (F17).
    pub(crate) fn take_over(&mut self) {
        let number = self.owners.len();
        let stored = self.store.0.guard(&branch_key()).map_or(0, |(_, epoch, _)| epoch);
        let epoch = Epoch::above(self.lease.epoch, stored);
        let trusting = self.has(Bug::NoLateLandingBlock) || self.has(Bug::NoBlockAfterTakeOver);
        let clean = self.lease.epoch == 0 && stored == 0;
        self.lease = Lease { holder: Some(number), epoch: epoch.as_key() };
        self.owners.push(Part::new(Owner::new(number, epoch, clean || trusting)));
        let plan = self.config.plan();
        self.tell(number, 0, Event::Configure(vec![plan]));
    }

    /// An event for an owner, and all that follows from it inside of its process.
    pub(crate) fn tell(&mut self, index: usize, life: u32, event: Event) {
        let mut events = VecDeque::from([(life, event)]);
        while let Some((life, event)) = events.pop_front() {
            if self.owners[index].gone {
                return;
            }
            let owner = self.owners[index].edit();
            let before = owner.engine.life();
            owner.engine.throw_anew();
            let commands = owner.engine.step(NOW, life, event);
            let life = owner.engine.life();
            if life != before {
                owner.begin_life();
            }
            for command in commands {
                self.execute(index, life, command, &mut events);
            }
        }
    }

    fn execute(&mut self, index: usize, life: u32, command: Command, events: &mut VecDeque<(u32, Event)>) {
        let owner = self.owners[index].edit();
        match command {
            Command::End(_) => owner.end(),
            Command::Prove => self.prove(index, life, events),
            Command::StartWatch { watch, scope_hash, .. } => {
                let opening = self.start_watch(index, life, watch, scope_hash);
                events.push_back((life, Event::Opening(opening)));
            }
            Command::BeginWatch(opening, start) => {
                if let Some(watch) = owner.watch.as_mut().filter(|watch| watch.opening == opening) {
                    watch.begin(&start);
                    if watch.after().is_some() {
                        events.push_back((life, Event::Health(opening.watch, WatchHealth::Live)));
                    }
                }
            }
            Command::Backfill(opening, scopes) => {
                if let Some(watch) = &mut owner.watch {
                    watch.backfills.push(Backfill { opening, scopes, listed: None });
                }
            }
            Command::Ack(opening, seq) => {
                let here = |watch: &&mut Watch| watch.opening == opening && watch.seq == seq;
                if let Some(watch) = owner.watch.as_mut().filter(here) {
                    watch.in_flight = false;
                }
            }
            Command::StopWatch(_) => {
                owner.watch = None;
                // The link to it is closed: what it had sent is not heard any more.
                events.retain(|(_, event)| !is_a_watchers(event));
            }
            Command::StaleWatch { .. } => {}
            Command::Fetch { .. } | Command::ReadRef => owner.git_queue.push_back(command),
            Command::Build { base, units } => {
                let event = self.build(index, &base, &units);
                events.push_back((life, event));
            }
            Command::Push => self.send(index, life, events),
            Command::UpdateWatch { .. } | Command::ContinueWatch(_) | Command::Hold(..) => {
                panic!("plans do not change, the journal is never full: {command:?}")
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
            | Command::Settle(_) => owner.store_queue.push_back(command),
        }
    }

    fn start_watch(&mut self, index: usize, life: u32, watch: WatchKey, scope_hash: String) -> Opening {
        let owner = self.owners[index].edit();
        owner.streams += 1;
        // Watcher and owner are one process here, so the owner's epoch orders the watchers of its branch.
        let opening = Opening { watch, watch_epoch: owner.epoch.as_key(), stream: owner.streams, scope_hash };
        owner.watch = Some(Watch::new(life, opening.clone()));
        if opening.stream > STREAMS {
            self.note(Err(Broken { rule: "NOSTUCK", what: "a watch starts over and over".to_owned() }));
        }
        opening
    }

    fn prove(&mut self, index: usize, life: u32, events: &mut VecDeque<(u32, Event)>) {
        let for_good = self.holds_for_good(index);
        let owner = self.owners[index].edit();
        if for_good {
            // Nobody can come between the question and the answer.
            owner.proven = owner.fetched.clone();
            events.push_back((life, Event::Proven));
        } else {
            owner.proving = Some(Proving { life, covers: owner.fetched.clone() });
        }
    }

    /// The renewal reaches the API server, and its answer the owner.
    pub(crate) fn proof(&mut self, index: usize) {
        let genuine = self.lease.holder == Some(index);
        let owner = self.owners[index].edit();
        let Some(proving) = owner.proving.take() else { return };
        if genuine {
            owner.proven.extend(proving.covers);
        }
        if genuine || self.has(Bug::ProofSkipped) {
            self.tell(index, proving.life, Event::Proven);
        } else {
            self.owners[index].edit().end();
        }
    }

    fn build(&mut self, index: usize, base: &Base, units: &[(Unit, JournalHeader)]) -> Event {
        let number = |(unit, _): &(Unit, JournalHeader)| match &unit.kind {
            UnitKind::Replay(replayed) => replayed.reclaim,
            UnitKind::Window | UnitKind::Fence => None,
        };
        let loss = units.iter().filter_map(number).max();
        let units: Vec<_> =
            units.iter().map(|(unit, header)| (unit.clone(), self.named(header.clone()))).collect();
        let owner = self.owners[index].edit();
        if let Some(loss) = loss.filter(|loss| *loss != owner.own.0) {
            owner.own = (loss, self.remote.own_files(parent(base)));
        }
        let remote = Arc::make_mut(&mut self.remote);
        let built = remote.build(base, &units, &[plans::target_uid(0)], &owner.own.1);
        owner.built = built.new.clone().map(|new| (base.expected_old().cloned(), new));
        Event::Built(Ok(Box::new(built)))
    }

    /// A header as a removed rule would write it.
    fn named(&self, header: JournalHeader) -> JournalHeader {
        if self.has(Bug::HeaderOnePosition) {
            let floor = header.consumed.iter().max().map_or(header.floor, |last| last.max(header.floor));
            return JournalHeader { floor, consumed: IdSet::new(), ..header };
        }
        if self.has(Bug::NoHeader) {
            return JournalHeader { floor: EntryId::ZERO, consumed: IdSet::new(), ..header };
        }
        header
    }

    /// The push is in the air; it may land at any later time, so a sender that hesitates needs no step of its own.
    fn send(&mut self, index: usize, life: u32, events: &mut VecDeque<(u32, Event)>) {
        let early = self.has(Bug::SettleBeforePush);
        let owner = self.owners[index].edit();
        let Some((old, new)) = owner.built.take() else {
            events.push_back((life, Event::Pushed(Err(failure(FailureClass::Internal)))));
            return;
        };
        let own = owner.own_tip.is_some() && owner.own_tip == old;
        let proven = own || owner.proven.contains(&old);
        if early {
            events.push_back((life, Event::Pushed(Ok(()))));
        } else {
            owner.flying = Some(new.clone());
        }
        owner.sent = Some(new.clone());
        self.flights.push(Flight { owner: index, old, new });
        self.note(proven_before_push(index, proven));
    }

    /// Tips that this owner has left are kept for [`Owner::own_tip`] only; the engine remembers its own.
    pub(crate) fn landed_by(&mut self, index: usize, new: &CommitId) {
        if !self.owners[index].gone {
            self.owners[index].edit().own_tip = Some(new.clone());
        }
    }
}

fn is_a_watchers(event: &Event) -> bool {
    matches!(
        event,
        Event::Opening(_) | Event::Frame(_) | Event::Snapshot(_) | Event::Expired { .. } | Event::Health(..)
    )
}
