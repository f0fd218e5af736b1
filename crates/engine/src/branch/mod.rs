//! The owner of one branch: from a watcher's frame to a settled push.
//!
//! ```text
//!  watcher ── Opening, Frame, Snapshot ──▶ streams ──▶ Open, Append ──▶ store
//!                                             │ durable
//!                                             ▼
//!                          held (dirty scope) or window ──close──▶ queue
//!                                                                    │
//!   replay (list − inventory) ───────────────────────────────────▶  │
//!                                                                    ▼
//!      Reserve ▶ tip ▶ Build ▶ (Prove) ▶ Intend ▶ Push ▶ (ReadRef) ▶ Settle ▶ Clear
//! ```
//! In: [`Event`]s. Out: [`Command`]s. INV-2 (cursor), INV-3 (floor), INV-4 (ref), INV-5 (order), INV-7 (attempts). Any
//! failure of the store ends a *life*: everything in memory is dropped, and after a proof the journal is adopted and
//! loaded again (F5). Absent: clocks, Git objects, YAML, paths.

mod event;
mod intake;
#[cfg(feature = "testing")]
mod moment;
mod people;
mod recovery;
mod replay;
mod round;
mod streams;
mod tip;
mod view;

use std::collections::{BTreeMap, VecDeque};

use upriver_model::{
    Attempt, BranchKey, CommitId, EntryId, Epoch, Failure, FleetId, Incarnation, JournalHeader, Outcome,
    TargetScope, TargetUid, WatchKey,
};
use upriver_store::StoreError;

pub use event::{
    Base, Built, Chosen, Command, Ending, Event, Fetched, Member, Replayed, Snapshot, Start, Subscription,
    TargetPlan, Unit, UnitKind, UnitResult, WatchFrame, WatchHealth, WatchedEvent,
};
pub use streams::scope_hash;
pub use view::{BranchView, JournalState, ScopeView, TargetView};

use crate::ledger::Ledger;
use crate::retry::{self, Retry};
use crate::time::{Dice, Tick};
use crate::window::{Closed, Windows};
use replay::{Clearing, PendingReplay};
use round::Round;
use streams::{PendingFrame, Scope, Watch};

/// What does not change while an epoch lasts.
#[derive(Clone, Debug)]
pub struct BranchOptions {
    /// The branch.
    pub key: BranchKey,
    /// The installation.
    pub fleet: FleetId,
    /// Our epoch.
    pub epoch: Epoch,
    /// True after a clean hand-over or for a branch that nobody ever owned: no push of a predecessor can be in flight.
    pub clean: bool,
    /// How long an unmoved tip is watched before an empty fence commit is pushed (F10), milliseconds.
    pub fence_after_ms: u64,
    /// How often the branch is looked at when nothing is pushed, milliseconds.
    pub drift_poll_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// The store failed; try again then.
    Down {
        until: Tick,
    },
    Proving,
    Adopting,
    Loading,
    /// Reading the branch for evidence before anything is done.
    Fetching,
    FetchFailed {
        until: Option<Tick>,
    },
    Running,
    Ended,
}

/// See the module.
#[derive(Clone)]
pub struct Branch {
    options: BranchOptions,
    dice: Dice,
    out: Vec<Command>,
    phase: Phase,
    /// Counts lives, so that answers of an earlier one are dropped.
    life: u32,
    store_failures: u32,
    incarnation: Incarnation,
    plans: BTreeMap<TargetUid, TargetPlan>,
    ledger: Ledger,
    windows: Windows,
    queue: VecDeque<Unit>,
    scopes: BTreeMap<TargetScope, Scope>,
    watches: BTreeMap<WatchKey, Watch>,
    pending_frames: VecDeque<PendingFrame>,
    pending_replays: Vec<PendingReplay>,
    /// Clear commands whose answers are to come, oldest first.
    clears: VecDeque<(TargetScope, Clearing)>,
    round: Option<Round>,
    open_attempts: Vec<Attempt>,
    /// The tip if it is known, and whether our own last push left it.
    tip: Option<(Base, bool)>,
    last_settled: Option<CommitId>,
    /// The tip found at an unclean take-over or after a loss: while it stands, nothing passes on "no diff" (F10).
    suspicious: Option<Base>,
    subtrees: BTreeMap<TargetUid, Option<CommitId>>,
    refused: BTreeMap<String, String>,
    loaded: upriver_store::Loaded,
    next_entry: u64,
    next_attempt: u64,
    lost: bool,
    next_poll: Tick,
    git_failures: u32,
    /// Times at which the inventory was found not to know all that our commits wrote.
    losses: u32,
    /// Requests for a recheck that were acted upon.
    handled: BTreeMap<TargetUid, String>,
    /// The queue holds what a predecessor left in the journal.
    taken_over: bool,
    failure: Option<Failure>,
    outcome: Option<Outcome>,
    /// Nothing is adopted before the wanted targets are known: entries of unknown ones would pass.
    configured: bool,
    /// No watch is started any more.
    draining: bool,
    /// The last frame was refused because the journal is at its limit.
    full: bool,
}

impl Branch {
    /// A new owner; nothing happens before the first [`Event::Configure`] or [`Event::Tick`].
    #[must_use]
    pub fn new(options: BranchOptions, seed: u64) -> Self {
        Self {
            options,
            dice: Dice::new(seed),
            out: Vec::new(),
            phase: Phase::Down { until: Tick(0) },
            life: 0,
            store_failures: 0,
            incarnation: Incarnation::new(""),
            plans: BTreeMap::new(),
            ledger: Ledger::default(),
            windows: Windows::default(),
            queue: VecDeque::new(),
            scopes: BTreeMap::new(),
            watches: BTreeMap::new(),
            pending_frames: VecDeque::new(),
            pending_replays: Vec::new(),
            clears: VecDeque::new(),
            round: None,
            open_attempts: Vec::new(),
            tip: None,
            last_settled: None,
            suspicious: None,
            subtrees: BTreeMap::new(),
            refused: BTreeMap::new(),
            loaded: upriver_store::Loaded::default(),
            next_entry: 1,
            next_attempt: 1,
            lost: false,
            next_poll: Tick(0),
            git_failures: 0,
            losses: 0,
            handled: BTreeMap::new(),
            taken_over: false,
            failure: None,
            outcome: None,
            configured: false,
            draining: false,
            full: false,
        }
    }

    /// The current life; the shell hands it back with every answer.
    #[must_use]
    pub fn life(&self) -> u32 {
        self.life
    }

    /// One event. `life` is the one that the event answers to; [`Event::Tick`] and [`Event::Configure`] have none.
    pub fn step(&mut self, now: Tick, life: u32, event: Event) -> Vec<Command> {
        let timeless = matches!(event, Event::Tick | Event::Configure(_) | Event::Drain);
        if self.phase != Phase::Ended && (timeless || life == self.life) {
            self.take(now, event);
            self.advance(now);
        }
        std::mem::take(&mut self.out)
    }

    fn take(&mut self, now: Tick, event: Event) {
        match event {
            Event::Tick => {}
            Event::Configure(plans) => self.configure(now, plans),
            Event::Drain => self.drain(),
            Event::WatchDied(watch) => self.restart_watch(&watch),
            Event::Proven => self.proven(),
            Event::Adopted(adopted) => self.adopted(adopted),
            Event::Loaded(loaded) => self.loaded(now, *loaded),
            Event::StoreFailed(error) => self.store_failed(now, &error),
            Event::Opening(opening) => self.opening(opening),
            Event::Opened(opening, reply) => self.opened(&opening, reply),
            Event::Frame(frame) => self.frame(frame),
            Event::Appended(reply) => self.appended(now, reply),
            Event::Expired { opening, rewound } => self.expired(&opening, rewound),
            Event::Snapshot(snapshot) => self.snapshot(*snapshot),
            Event::Health(watch, health) => self.health(&watch, health),
            Event::Inventory(scope, seen) => self.inventory(&scope, seen),
            Event::Raised(scopes, generations) => self.raised(scopes, generations),
            Event::Cleared(scope, reply) => self.cleared(now, &scope, reply),
            Event::Fetched(result) => self.fetched(now, result),
            Event::Reserved => self.reserved(),
            Event::Built(result) => self.built(now, result),
            Event::Intended(open) => self.intended(now, open),
            Event::Pushed(result) => self.pushed(now, result),
            Event::RefRead(result) => self.ref_read(now, result),
            Event::Settled(attempt) => self.settled(now, attempt),
        }
    }

    /// What time allows, after every event.
    fn advance(&mut self, now: Tick) {
        match self.phase {
            Phase::Down { until } if self.configured && now >= until => {
                self.phase = Phase::Proving;
                self.out.push(Command::Prove);
            }
            Phase::FetchFailed { until: Some(until) } if now >= until => self.first_fetch(),
            Phase::Running => {
                let due = self.windows.due(now);
                self.enqueue(due);
                self.pump(now);
            }
            Phase::Down { .. }
            | Phase::Proving
            | Phase::Adopting
            | Phase::Loading
            | Phase::Fetching
            | Phase::FetchFailed { .. }
            | Phase::Ended => {}
        }
    }

    /// When the next [`Event::Tick`] is of use.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Tick> {
        match self.phase {
            Phase::Down { until } if self.configured => Some(until),
            Phase::FetchFailed { until } => until,
            Phase::Running => {
                // While a round is under way nobody looks at the branch: a moment that nothing serves would come for ever.
                let poll = self.round.is_none().then_some(self.next_poll);
                let deadlines = [self.windows.next_deadline(), self.round_deadline(), poll];
                deadlines.into_iter().flatten().min()
            }
            Phase::Down { .. }
            | Phase::Proving
            | Phase::Adopting
            | Phase::Loading
            | Phase::Fetching
            | Phase::Ended => None,
        }
    }

    /// Stops intake; what is durable and open goes into the branch now, the rest waits in the journal.
    fn drain(&mut self) {
        self.draining = true;
        for watch in std::mem::take(&mut self.watches).into_keys() {
            self.out.push(Command::StopWatch(watch));
        }
        let closed = self.windows.close_all();
        self.enqueue(closed);
    }

    /// True if nothing waits and nothing flies: a hand-over now would be a clean one.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.phase == Phase::Running
            && self.round.is_none()
            && self.queue.is_empty()
            && self.windows.is_empty()
            && self.pending_frames.is_empty()
            && self.open_attempts.is_empty()
            && !self.ledger.has_news()
    }

    /// Closed windows become units, in the order they closed.
    fn enqueue(&mut self, closed: Vec<Closed>) {
        for window in closed {
            self.queue.push_back(Unit {
                target: window.target,
                author: window.author,
                kind: UnitKind::Window,
                changes: window.changes,
                entries: window.entries,
                time_ms: window.time_ms,
            });
        }
    }

    fn header(&self, unit: &Unit) -> JournalHeader {
        let mut consumed = self.ledger.done_of(&unit.target);
        consumed.extend(&unit.entries);
        JournalHeader {
            fleet: self.options.fleet.clone(),
            branch: self.options.key.clone(),
            incarnation: self.incarnation.clone(),
            target: unit.target.clone(),
            floor: self.ledger.floor(),
            consumed,
        }
    }

    fn fresh_entry(&mut self) -> EntryId {
        let id = EntryId { epoch: self.options.epoch.as_key(), n: self.next_entry };
        self.next_entry += 1;
        id
    }

    fn store_failed(&mut self, now: Tick, error: &StoreError) {
        if let StoreError::Fenced { stored } = error {
            self.phase = Phase::Ended;
            self.out.push(Command::End(Ending::Fenced { stored: *stored }));
            return;
        }
        self.store_failures += 1;
        self.lost |= matches!(error, StoreError::Lost { .. });
        self.failure = Some(Failure::new(upriver_model::FailureClass::Storage, error.to_string()));
        let delay = match retry::schedule(
            upriver_model::FailureClass::Storage,
            self.store_failures,
            None,
            &mut self.dice,
        ) {
            // A loss was answered by a working store: no reason to wait.
            Retry::After(_) if matches!(error, StoreError::Lost { .. }) => 0,
            Retry::After(delay) => delay,
            Retry::OnChange | Retry::Never => 30_000,
        };
        self.end_life(now + delay);
    }

    /// Drops everything that only memory knows. Nothing is lost by that: what counts is in the journal, or dirty.
    fn end_life(&mut self, until: Tick) {
        self.life += 1;
        for watch in std::mem::take(&mut self.watches).into_keys() {
            self.out.push(Command::StopWatch(watch));
        }
        self.scopes.clear();
        self.ledger = Ledger::default();
        self.windows = Windows::default();
        self.queue.clear();
        self.pending_frames.clear();
        self.pending_replays.clear();
        self.clears.clear();
        self.round = None;
        self.open_attempts.clear();
        self.tip = None;
        self.full = false;
        self.phase = Phase::Down { until };
    }
}
