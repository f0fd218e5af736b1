//! Store commands on the real embedded store, with the removed rules in between.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use upriver_engine::branch::{Command, Event};
use upriver_model::Incarnation;
use upriver_store::{
    Adopt, AppendReply, Clear, ClearReply, EmbeddedStore, Frame, HandleSnapshot, Journal, JournalLimits,
    OpenReply, Store, StoreError, StoreSnapshot,
};

use crate::config::Bug;
use crate::world::{Stored, World, branch_key};

thread_local! {
    /// Where commands are carried out: set to a world's moment before each, read back after it.
    static BENCH: EmbeddedStore = {
        let store = EmbeddedStore::with_clock(|| 0);
        // The branch has to be known to be set back.
        ready(store.stored_epoch(&branch_key())).expect("the embedded store answers");
        store
    };
}

/// The embedded store never waits.
fn ready<T>(reply: impl Future<Output = T>) -> T {
    match pin!(reply).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the embedded store waited"),
    }
}

/// A store in which nothing was ever written.
pub(crate) fn empty() -> StoreSnapshot {
    BENCH.with(|bench| {
        bench.wipe();
        bench.snapshot()
    })
}

type Done = Result<Option<Event>, StoreError>;

impl World {
    /// Carries an owner's next command out and hands it the answer: whoever stops between the two knows no more than one who
    /// stops after both.
    pub(crate) fn run_store(&mut self, index: usize) {
        let owner = self.owners[index].edit();
        let Some(command) = owner.store_queue.pop_front() else { return };
        let (life, epoch) = (owner.engine.life(), owner.epoch.as_key());
        // Plain reads carry no guard: whoever holds a handle may look.
        let guarded = !matches!(command, Command::Load | Command::ReadInventory(_));
        let done = BENCH.with(|bench| {
            bench.restore(&self.store.0);
            let done = if matches!(command, Command::Adopt) {
                self.adopt(bench, index)
            } else {
                self.operate(bench, index, command)
            };
            *self.store.edit() = Stored(bench.snapshot());
            done
        });
        if done.is_ok() && guarded {
            let op = self.store.0.guard(&branch_key()).map_or(0, |(_, _, op)| op);
            if let Some(handle) = &mut self.owners[index].edit().handle {
                handle.op = handle.op.max(op);
            }
            let result = self.checks.edit().accepted(epoch);
            self.note(result);
        }
        self.check_state();
        match done {
            Ok(Some(event)) => self.tell(index, life, event),
            Ok(None) => {}
            Err(error) => {
                self.owners[index].edit().handle = None;
                self.tell(index, life, Event::StoreFailed(error));
            }
        }
    }

    fn adopt(&mut self, bench: &EmbeddedStore, index: usize) -> Done {
        let owner = self.owners[index].edit();
        // Never used before: a journal is made anew only after a loss.
        let fresh = Incarnation::new(format!("history-{}", self.losses));
        let (branch, epoch, holder) = (branch_key(), owner.epoch, owner.replica());
        let (_, adopted) = ready(bench.adopt(Adopt { branch, epoch, holder, fresh }))?;
        let incarnation = adopted.incarnation.clone();
        owner.connection = self.losses;
        owner.handle = Some(HandleSnapshot { incarnation, epoch, op: 0 });
        Ok(Some(Event::Adopted(adopted)))
    }

    fn operate(&mut self, bench: &EmbeddedStore, index: usize, command: Command) -> Done {
        let Some(at) = self.owners[index].handle.clone() else {
            return Err(StoreError::Unavailable { reason: "there is no handle".to_owned() });
        };
        let blind = self.is_blind() || self.has(Bug::ConnectionsSurvive);
        if self.owners[index].connection != self.losses && !blind {
            // A store that went back to an earlier moment has another process behind its address.
            return Err(StoreError::Unavailable { reason: "the connection broke".to_owned() });
        }
        let shown = self.shown(at);
        let journal = bench.handle(&branch_key(), &shown);
        self.command(&*journal, command)
    }

    fn is_blind(&self) -> bool {
        let blind = [Bug::NoLossDetection, Bug::NoLossDetectionNoGap, Bug::ProgressWithoutSeq];
        blind.into_iter().any(|bug| self.has(bug))
    }

    /// What a script compares, as a removed rule would show it.
    fn shown(&self, mut at: HandleSnapshot) -> HandleSnapshot {
        let blind = self.is_blind();
        let Some((incarnation, epoch, _)) = self.store.0.guard(&branch_key()) else { return at };
        if blind {
            at.op = 0;
            at.incarnation = incarnation.clone();
        }
        let forgot = blind && epoch < at.epoch.as_key();
        if forgot || self.has(Bug::NoEpochCheck) {
            at.epoch = upriver_model::Epoch::above(epoch - 1, 0);
        }
        at
    }

    fn command(&mut self, journal: &dyn Journal, command: Command) -> Done {
        Ok(Some(match command {
            Command::Load => self.load(journal)?,
            Command::Open(opening) if self.has(Bug::OpenSkipped) => {
                let cursors = ready(journal.load())?.cursors;
                let cursor = cursors.get(&opening.watch.to_string()).cloned();
                Event::Opened(opening, OpenReply::Opened { cursor })
            }
            Command::Open(opening) => {
                let reply = ready(journal.open(opening.clone()))?;
                Event::Opened(opening, reply)
            }
            Command::Append(frame) => Event::Appended(self.append(journal, frame)?),
            Command::ReadInventory(scope) => {
                let seen = ready(journal.inventory(&scope))?;
                Event::Inventory(scope, seen)
            }
            Command::Raise(scopes, anew) => {
                let generations = ready(journal.raise(scopes.clone(), anew))?;
                Event::Raised(scopes, generations)
            }
            Command::Clear(clear) => self.clear(journal, *clear)?,
            Command::Forget(scope) => {
                ready(journal.forget(scope.clone()))?;
                self.checks.edit().forgotten(&scope);
                return Ok(None);
            }
            Command::DropCursor(watch, remove) => {
                ready(journal.drop_cursor(watch, remove))?;
                return Ok(None);
            }
            Command::Note(note) => {
                ready(journal.note(note))?;
                return Ok(None);
            }
            Command::Reserve(attempt) => {
                ready(journal.reserve(attempt))?;
                Event::Reserved
            }
            Command::Intend(attempt, intend) => Event::Intended(ready(journal.intend(attempt, intend))?),
            Command::Settle(settle) => {
                let attempt = settle.attempt;
                ready(journal.settle(*settle))?;
                Event::Settled(attempt)
            }
            other => panic!("not a store command: {other:?}"),
        }))
    }

    fn load(&self, journal: &dyn Journal) -> Result<Event, StoreError> {
        let mut loaded = ready(journal.load())?;
        if self.has(Bug::AttemptsForgotten) || self.has(Bug::NoLateLandingBlock) {
            loaded.attempts.clear();
        }
        if self.has(Bug::EntriesForgotten) {
            loaded.entries.clear();
        }
        Ok(Event::Loaded(Box::new(loaded)))
    }

    fn clear(&mut self, journal: &dyn Journal, mut clear: Clear) -> Result<Event, StoreError> {
        if self.has(Bug::SettledBeforePush) {
            clear.spec_hash = format!("{}@{}", crate::config::scope().1, clear.list_rv);
        }
        let (scope, list) = (clear.scope.clone(), clear.list_rv.number().unwrap_or(0));
        let reply = ready(journal.clear(clear))?;
        if reply == ClearReply::Cleared {
            self.checks.edit().cleared(&self.cluster, &self.remote, &scope, list);
        }
        Ok(Event::Cleared(scope, reply))
    }

    fn append(&self, journal: &dyn Journal, mut frame: Frame) -> Result<AppendReply, StoreError> {
        let limits = JournalLimits::default();
        let unnumbered = self.has(Bug::NoLossDetectionNoGap)
            || (self.has(Bug::ProgressWithoutSeq) && frame.entries.is_empty());
        let cursor = self.store.0.cursor(&branch_key(), &frame.opening.watch);
        if let Some((epoch, stream, seq, _)) = cursor.filter(|_| unnumbered) {
            (frame.opening.watch_epoch, frame.opening.stream, frame.seq) = (epoch, stream, seq + 1);
        }
        if self.has(Bug::CursorBeforeEntries) && !frame.entries.is_empty() {
            let kept = vec![true; frame.entries.len()];
            let early = Frame { entries: Vec::new(), ..frame };
            return Ok(match ready(journal.append(early, limits))? {
                AppendReply::Appended { stamped_ms, .. } => AppendReply::Appended { stamped_ms, kept },
                other => other,
            });
        }
        ready(journal.append(frame, limits))
    }
}
