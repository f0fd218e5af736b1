//! What may happen next, and what follows from it.

use std::fmt;
use std::sync::Arc;

use upriver_engine::branch::{Command, Event, WatchFrame, WatchHealth, WatchedEvent};
use upriver_model::FailureClass;
use upriver_sim::cluster;
use upriver_sim::invariants::moved_from_its_base;
use upriver_sim::plans;

use crate::config::{Bug, scope};
use crate::owner::{LOOK_MS, NOW, Owner, failure};
use crate::watch::{Watch, WatchState, observed, version};
use crate::world::{World, branch_key};

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The next event of the script happens in the cluster.
    Change,
    /// An owner's next store command is carried out; before it, the store's moment may be remembered for a loss.
    Store {
        /// The owner.
        owner: usize,
        /// Remember the moment before.
        remember: bool,
    },
    /// An owner's next fetch, or look at the ref.
    Git(usize),
    /// An owner's renewal is sent and answered.
    Prove(usize),
    /// A watch lists everything.
    List(usize),
    /// A watch sends all events that it has not sent.
    Frame(usize),
    /// A watch sends a progress frame.
    Heartbeat(usize),
    /// A list beside the stream is read, or reported.
    Backfill(usize, usize),
    /// Time passes until an owner's next deadline.
    Tick(usize),
    /// An idle owner looks at the branch.
    Look(usize),
    /// A push arrives at the remote.
    Land(usize),
    /// The answer to a push never comes.
    Timeout(usize),
    /// The holder's session counts as over; a successor takes the claim.
    TakeOver,
    /// The store goes back to the moment that was remembered.
    Lose,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl World {
    /// Every step that is possible.
    #[must_use]
    pub fn actions(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.broken.is_some() {
            return actions;
        }
        for (index, owner) in self.owners.iter().enumerate().filter(|(_, owner)| !owner.gone) {
            self.actions_of(index, owner, &mut actions);
        }
        actions.extend((0..self.flights.len()).map(Action::Land));
        if self.next_change().is_some() {
            actions.push(Action::Change);
        }
        if self.owners.len() < self.config.owners {
            actions.push(Action::TakeOver);
        }
        if self.remembered.is_some() && self.losses < self.config.losses {
            actions.push(Action::Lose);
        }
        actions
    }

    fn actions_of(&self, index: usize, owner: &Owner, actions: &mut Vec<Action>) {
        if !owner.store_queue.is_empty() {
            actions.push(Action::Store { owner: index, remember: false });
            if self.losses < self.config.losses && self.remembered.is_none() {
                actions.push(Action::Store { owner: index, remember: true });
            }
        }
        if !owner.git_queue.is_empty() {
            actions.push(Action::Git(index));
        }
        if owner.proving.is_some() {
            actions.push(Action::Prove(index));
        }
        if owner.flying.is_some() && self.timeouts < self.config.timeouts {
            actions.push(Action::Timeout(index));
        }
        match owner.engine.next_deadline() {
            Some(at) if at.0 < NOW.0 + LOOK_MS => actions.push(Action::Tick(index)),
            // A look that finds what is known changes nothing, a second one beside the first neither.
            Some(_) if owner.git_queue.is_empty() && self.would_find_news(owner) => {
                actions.push(Action::Look(index))
            }
            Some(_) | None => {}
        }
        let Some(watch) = &owner.watch else { return };
        if watch.state == WatchState::Listing {
            actions.push(Action::List(index));
        }
        if let Some(after) = watch.after().filter(|_| !watch.in_flight) {
            if self.cluster.after(0, after).is_some() {
                actions.push(Action::Frame(index));
            } else if self.heartbeat_tells(owner, watch, after) {
                actions.push(Action::Heartbeat(index));
            }
        }
        actions.extend((0..watch.backfills.len()).map(|backfill| Action::Backfill(index, backfill)));
    }

    pub(crate) fn would_find_news(&self, owner: &Owner) -> bool {
        owner.engine.known_tip() != Some(self.remote.tip.as_ref())
    }

    /// A progress frame that nobody learns anything from would only count up.
    pub(crate) fn heartbeat_tells(&self, owner: &Owner, watch: &Watch, after: u64) -> bool {
        let cursor = self.store.0.cursor(&branch_key(), &watch.opening.watch);
        let expected =
            (watch.opening.watch_epoch, watch.opening.stream, watch.seq, Some(version(after).to_string()));
        cursor != Some(expected) || !self.is_current(owner)
    }

    /// True if no script has run, and none was lost, since this owner's last one.
    pub(crate) fn is_current(&self, owner: &Owner) -> bool {
        let Some(handle) = &owner.handle else { return false };
        let connected = owner.connection == self.losses;
        connected
            && self.store.0.guard(&branch_key())
                == Some((&handle.incarnation, handle.epoch.as_key(), handle.op))
    }

    /// The world after a step, with what a quiet world has to be.
    #[must_use]
    pub fn after(&self, action: Action) -> Self {
        let mut after = self.clone();
        after.make(action);
        after.seal();
        if after.is_quiet() {
            let result = crate::quiet::check(&after);
            after.note(result);
        }
        after
    }

    /// Carries a step out.
    pub(crate) fn make(&mut self, action: Action) {
        match action {
            Action::Change => self.change(),
            Action::Store { owner, remember } => {
                if remember {
                    self.remembered = Some((self.store.clone(), self.checks.listed.clone()));
                }
                self.run_store(owner);
            }
            Action::Git(owner) => self.git(owner),
            Action::Prove(owner) => self.proof(owner),
            Action::List(owner) => self.list(owner),
            Action::Frame(owner) | Action::Heartbeat(owner) => self.frame(owner),
            Action::Backfill(owner, index) => self.backfill(owner, index),
            Action::Tick(owner) => self.tick(owner),
            Action::Look(owner) => {
                let engine = &mut self.owners[owner].edit().engine;
                engine.look_now(NOW);
                self.tell(owner, 0, Event::Tick);
            }
            Action::Land(index) => self.land(index),
            Action::Timeout(owner) => {
                self.timeouts += 1;
                self.owners[owner].edit().flying = None;
                let trusting = self.has(Bug::UncertainIsSuccess);
                let result = if trusting { Ok(()) } else { Err(failure(FailureClass::Uncertain)) };
                let life = self.owners[owner].engine.life();
                self.tell(owner, life, Event::Pushed(result));
            }
            Action::TakeOver => self.take_over(),
            Action::Lose => self.lose(),
        }
    }

    fn change(&mut self) {
        if let Some(event) = self.next_change() {
            Arc::make_mut(&mut self.cluster).record(event);
            self.happened += 1;
        }
    }

    fn lose(&mut self) {
        if let Some((store, listed)) = self.remembered.take() {
            self.losses += 1;
            self.store = store;
            self.checks.edit().store_lost(listed);
            self.check_state();
        }
    }

    fn tick(&mut self, index: usize) {
        let engine = &mut self.owners[index].edit().engine;
        if let Some(at) = engine.next_deadline() {
            engine.let_pass(NOW, at.since(NOW));
        }
        self.tell(index, 0, Event::Tick);
    }

    fn git(&mut self, index: usize) {
        let owner = self.owners[index].edit();
        let life = owner.engine.life();
        let event = match owner.git_queue.pop_front() {
            Some(Command::Fetch { until }) => {
                owner.fetched.insert(self.remote.tip.clone());
                let fetched = self.remote.fetch(until.as_ref(), &[plans::target_uid(0)]);
                Event::Fetched(Ok(Box::new(fetched)))
            }
            _ => {
                if owner.sent.is_some() && owner.sent == self.remote.tip {
                    owner.own_tip = owner.sent.clone();
                }
                Event::RefRead(Ok(self.remote.tip.clone()))
            }
        };
        self.tell(index, life, event);
    }

    /// The ref moves from the push's base, or the push is refused.
    fn land(&mut self, index: usize) {
        let flight = self.flights.remove(index);
        let fits = self.remote.tip == flight.old || self.has(Bug::NoCompareAndSwap);
        if fits {
            let tip = self.remote.tip.clone();
            let moved = moved_from_its_base(&self.remote, tip.as_ref(), flight.old.as_ref(), &flight.new);
            self.note(moved);
            Arc::make_mut(&mut self.remote).tip = Some(flight.new.clone());
            let landed =
                self.checks.edit().landed(&self.cluster, &self.remote, flight.old.as_ref(), &flight.new);
            self.note(landed);
            self.landed_by(flight.owner, &flight.new);
        }
        self.check_state();
        if !self.owners[flight.owner].awaits(&flight.new) {
            return;
        }
        let result = if fits {
            Ok(())
        } else if self.remote.tip.as_ref() == Some(&flight.new) {
            Err(failure(FailureClass::Uncertain))
        } else {
            Err(failure(FailureClass::Superseded))
        };
        let owner = self.owners[flight.owner].edit();
        owner.flying = None;
        let life = owner.engine.life();
        self.tell(flight.owner, life, Event::Pushed(result));
    }

    fn list(&mut self, index: usize) {
        let cluster = self.cluster.clone();
        let Some(watch) = &mut self.owners[index].edit().watch else { return };
        let snapshot = Watch::list(&watch.opening, Vec::new(), &cluster);
        watch.state = WatchState::Following { after: cluster.rv };
        let (life, key) = (watch.life, watch.opening.watch.clone());
        self.tell(index, life, Event::Snapshot(Box::new(snapshot)));
        self.tell(index, life, Event::Health(key, WatchHealth::Live));
    }

    fn backfill(&mut self, index: usize, backfill: usize) {
        let cluster = self.cluster.clone();
        let Some(watch) = &mut self.owners[index].edit().watch else { return };
        let life = watch.life;
        let wanted = &mut watch.backfills[backfill];
        let Some(snapshot) = wanted.listed.take() else {
            wanted.listed = Some(Watch::list(&wanted.opening, wanted.scopes.clone(), &cluster));
            return;
        };
        watch.backfills.remove(backfill);
        self.tell(index, life, Event::Snapshot(Box::new(snapshot)));
    }

    /// All events that were not sent, maybe none.
    fn frame(&mut self, index: usize) {
        let cluster = self.cluster.clone();
        let Some(watch) = &mut self.owners[index].edit().watch else { return };
        let Some(after) = watch.after() else { return };
        let unsent = cluster.events.iter().filter(|event| event.rv > after);
        let events = unsent.map(watched).collect();
        watch.state = WatchState::Following { after: cluster.rv };
        watch.seq += 1;
        watch.in_flight = true;
        let (opening, life) = (watch.opening.clone(), watch.life);
        let frame = WatchFrame { opening, seq: watch.seq, cursor: Some(version(cluster.rv)), events };
        self.tell(index, life, Event::Frame(frame));
    }
}

fn watched(event: &cluster::ClusterEvent) -> WatchedEvent {
    WatchedEvent {
        scopes: vec![scope().0],
        key: cluster::key(event.object),
        kind: cluster::kind_name(event.kind).into(),
        uid: event.uid.to_string().into(),
        rv: version(event.rv),
        operation: event.operation,
        payload: event.content.map(cluster::payload),
        author: cluster::author(event.rv),
        observed_at_ms: observed(event.rv),
    }
}

/// Longest text of a command in a trace.
const SHOWN: usize = 230;

impl World {
    /// A step in words, as this world is before it.
    pub(crate) fn tells(&self, action: Action) -> String {
        let command = |command: Option<&Command>| {
            let text = command.map_or_else(String::new, |command| format!("{command:?}"));
            let text = text.replace("EntryId ", "").replace("AttemptId ", "").replace("TargetUid", "");
            text.chars().take(SHOWN).collect::<String>()
        };
        match action {
            Action::Change => format!("cluster: {:?}", self.next_change()),
            Action::Store { owner, remember } => {
                let before = if remember { "(its moment is remembered) " } else { "" };
                format!("{before}owner {owner}, store: {}", command(self.owners[owner].store_queue.front()))
            }
            Action::Git(owner) => {
                format!("owner {owner}, Git: {}", command(self.owners[owner].git_queue.front()))
            }
            Action::Land(index) => {
                let flight = &self.flights[index];
                let fits = self.remote.tip == flight.old;
                format!("push of owner {} ({:?} to {:?}) lands: {fits}", flight.owner, flight.old, flight.new)
            }
            other => format!("{other:?}"),
        }
    }
}
