//! Store commands, carried out as the operator does, with the breakdowns of a store and the seeded bugs in between.

use std::rc::Rc;

use upriver_engine::branch::{Command, Event};
use upriver_model::Incarnation;
use upriver_store::{
    Adopt, Adopted, AppendReply, Clear, ClearReply, Frame, Journal, JournalLimits, OpenReply, Store,
    StoreError,
};

use crate::Bug;
use crate::invariants::Broken;
use crate::owner::{Handle, Owner};
use crate::plans::Plans;
use crate::shared::{Shared, branch_key, ready};

/// What a store command came to.
pub(crate) enum StoreDone {
    Adopted(Rc<Handle>, Adopted),
    Event(Option<Event>),
}

type Done = Result<StoreDone, StoreError>;

fn event(event: Event) -> Done {
    Ok(StoreDone::Event(Some(event)))
}

fn unavailable() -> StoreError {
    StoreError::Unavailable { reason: "the store is away".to_owned() }
}

/// Carries one command out; `None` if nobody can, because there is no handle.
pub(crate) fn run(owner: &Owner, s: &mut Shared, command: Command) -> Result<Option<Done>, Broken> {
    let adopting = matches!(command, Command::Adopt);
    // Plain reads carry no guard: whoever holds a handle may look.
    let guarded = !matches!(command, Command::Load | Command::ReadInventory(_));
    if !adopting && owner.journal.is_none() {
        return Ok(None);
    }
    let broken = owner.journal.as_ref().is_some_and(|handle| handle.connection != s.connections);
    if s.is_store_down() || (broken && !adopting) {
        return Ok(Some(Err(unavailable())));
    }
    let done = match &owner.journal {
        Some(handle) if !adopting => operate(&*handle.journal, s, command),
        Some(_) | None => adopt(owner, s),
    };
    if s.is_logging() {
        let text = match &done {
            Ok(StoreDone::Adopted(_, adopted)) => format!("adopted, created {}", adopted.created),
            Ok(StoreDone::Event(_)) => "done".to_owned(),
            Err(error) => error.to_string(),
        };
        s.say(|| format!("store for owner {}: {text}", owner.number));
    }
    if done.is_ok() && guarded {
        s.checks.accepted(owner.epoch.as_key())?;
    }
    s.check_state()?;
    Ok(Some(done))
}

fn adopt(owner: &Owner, s: &mut Shared) -> Done {
    s.incarnations += 1;
    let adopt = Adopt {
        branch: branch_key(),
        epoch: owner.epoch,
        holder: owner.replica(),
        fresh: Incarnation::new(format!("history-{}", s.incarnations)),
    };
    let (journal, adopted) = ready(s.store.adopt(adopt))?;
    Ok(StoreDone::Adopted(Rc::new(Handle { journal, connection: s.connections }), adopted))
}

fn operate(journal: &dyn Journal, s: &mut Shared, command: Command) -> Done {
    match command {
        Command::Load => load(journal, s),
        Command::Open(opening) if s.has_bug(Bug::OpenSkipped) => {
            let cursors = ready(journal.load())?.cursors;
            let cursor = cursors.get(&opening.watch.to_string()).cloned();
            event(Event::Opened(opening, OpenReply::Opened { cursor }))
        }
        Command::Open(opening) => {
            let reply = ready(journal.open(opening.clone()))?;
            event(Event::Opened(opening, reply))
        }
        Command::Append(frame) => event(Event::Appended(append(journal, s, frame)?)),
        Command::ReadInventory(scope) => {
            let seen = ready(journal.inventory(&scope))?;
            event(Event::Inventory(scope, seen))
        }
        Command::Raise(scopes, anew) => {
            let generations = ready(journal.raise(scopes.clone(), anew))?;
            event(Event::Raised(scopes, generations))
        }
        Command::Clear(clear) => self::clear(journal, s, *clear),
        Command::Forget(scope) => {
            ready(journal.forget(scope.clone()))?;
            s.checks.forgotten(&scope);
            Ok(StoreDone::Event(None))
        }
        Command::DropCursor(watch, remove) => {
            ready(journal.drop_cursor(watch, remove))?;
            Ok(StoreDone::Event(None))
        }
        Command::Note(note) => {
            ready(journal.note(note))?;
            Ok(StoreDone::Event(None))
        }
        Command::Reserve(attempt) => {
            ready(journal.reserve(attempt))?;
            event(Event::Reserved)
        }
        Command::Intend(attempt, intend) => {
            let open = ready(journal.intend(attempt, intend))?;
            event(Event::Intended(open))
        }
        Command::Settle(settle) => {
            let attempt = settle.attempt;
            ready(journal.settle(*settle))?;
            event(Event::Settled(attempt))
        }
        other => panic!("not a store command: {other:?}"),
    }
}

fn load(journal: &dyn Journal, s: &Shared) -> Done {
    let mut loaded = ready(journal.load())?;
    if s.has_bug(Bug::AttemptsForgotten) {
        loaded.attempts.clear();
    }
    if s.has_bug(Bug::EntriesForgotten) {
        loaded.entries.clear();
    }
    event(Event::Loaded(Box::new(loaded)))
}

fn clear(journal: &dyn Journal, s: &mut Shared, mut clear: Clear) -> Done {
    if s.has_bug(Bug::SettledBeforePush) {
        clear.spec_hash = early_settlement(&s.plans, &clear);
    }
    let (scope, list) = (clear.scope.clone(), clear.list_rv.number().unwrap_or(0));
    let reply = ready(journal.clear(clear))?;
    if reply == ClearReply::Cleared {
        s.checks.cleared(&s.cluster, &s.remote, &scope, list);
    }
    event(Event::Cleared(scope, reply))
}

/// Limits so small that a journal is full now and then.
fn append(journal: &dyn Journal, s: &mut Shared, frame: Frame) -> Result<AppendReply, StoreError> {
    let limits = JournalLimits { entries: 12, bytes: 1 << 20 };
    if s.has_bug(Bug::CursorBeforeEntries) && !frame.entries.is_empty() {
        let kept = vec![true; frame.entries.len()];
        let early = Frame { entries: Vec::new(), ..frame };
        return Ok(match ready(journal.append(early, limits))? {
            AppendReply::Appended { stamped_ms, .. } => AppendReply::Appended { stamped_ms, kept },
            other => other,
        });
    }
    ready(journal.append(frame, limits))
}

/// The specification of a scope as if its files were in the remote.
fn early_settlement(plans: &Plans, clear: &Clear) -> String {
    let wanted = plans.scopes().into_iter().find(|(scope, _)| *scope == clear.scope);
    wanted.map_or_else(|| clear.spec_hash.clone(), |(_, spec)| format!("{spec}@{}", clear.list_rv))
}
