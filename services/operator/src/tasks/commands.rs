//! Store commands as futures: each runs on the journal's own connection, one after the other.

use std::sync::Arc;
use std::time::Instant;

use futures::FutureExt;
use futures::future::BoxFuture;
use upriver_engine::branch::{Command, Event};
use upriver_model::{AttemptId, Incarnation, TargetScope};
use upriver_store::{Adopt, Adopted, Journal, JournalLimits, Store, StoreError};
use upriver_telemetry::metric;

use crate::crash::{self, Point};

/// What a store command came to.
pub(super) enum StoreDone {
    /// A journal handle and what its `meta` said.
    Adopted(Arc<dyn Journal>, Adopted),
    /// An answer for the engine, if it waits for one.
    Event(Option<Event>),
}

/// A store command on its way.
pub(super) type StoreWork = BoxFuture<'static, Result<StoreDone, StoreError>>;

/// Takes a journal over.
pub(super) fn adopt(store: Arc<dyn Store>, adopt: Adopt) -> StoreWork {
    timed("adopt", async move {
        let (journal, adopted) = store.adopt(adopt).await?;
        Ok(StoreDone::Adopted(Arc::from(journal), adopted))
    })
}

/// A name that no journal ever had.
pub(super) fn fresh_incarnation() -> Incarnation {
    let bits: u128 = rand::random();
    Incarnation::new(format!("{bits:032x}"))
}

/// Carries out any other store command; `None` if it is not one.
pub(super) fn start(journal: Arc<dyn Journal>, command: Command) -> Option<StoreWork> {
    let work = match command {
        Command::Load => timed("load", async move { event(Event::Loaded(Box::new(journal.load().await?))) }),
        Command::Open(opening) => timed("open", async move {
            let reply = journal.open(opening.clone()).await?;
            event(Event::Opened(opening, reply))
        }),
        Command::Append(frame) => timed("append", async move {
            crash::reached(Point::BeforeAppend);
            let reply = journal.append(frame, JournalLimits::default()).await?;
            crash::reached(Point::AfterAppend);
            event(Event::Appended(reply))
        }),
        Command::ReadInventory(scope) => timed("inventory", async move {
            let seen = journal.inventory(&scope).await?;
            event(Event::Inventory(scope, seen))
        }),
        Command::Raise(scopes, anew) => timed("raise", async move {
            let generations = journal.raise(scopes.clone(), anew).await?;
            event(Event::Raised(scopes, generations))
        }),
        Command::Clear(clear) => timed("clear", async move {
            let scope: TargetScope = clear.scope.clone();
            let reply = journal.clear(*clear).await?;
            event(Event::Cleared(scope, reply))
        }),
        Command::Forget(scope) => timed("forget", async move {
            journal.forget(scope).await?;
            Ok(StoreDone::Event(None))
        }),
        Command::Note(note) => timed("note", async move {
            journal.note(note).await?;
            Ok(StoreDone::Event(None))
        }),
        Command::DropCursor(watch, remove) => timed("drop_cursor", async move {
            journal.drop_cursor(watch, remove).await?;
            Ok(StoreDone::Event(None))
        }),
        attempt @ (Command::Reserve(_) | Command::Intend(..) | Command::Settle(_)) => {
            return start_attempt(journal, attempt);
        }
        Command::Prove
        | Command::Adopt
        | Command::StartWatch { .. }
        | Command::UpdateWatch { .. }
        | Command::StaleWatch { .. }
        | Command::BeginWatch(..)
        | Command::ContinueWatch(_)
        | Command::StopWatch(_)
        | Command::Backfill(..)
        | Command::Ack(..)
        | Command::Hold(..)
        | Command::Fetch { .. }
        | Command::Build { .. }
        | Command::Push
        | Command::ReadRef
        | Command::End(_) => return None,
    };
    Some(work)
}

/// Commands about attempts; `None` if it is not one.
fn start_attempt(journal: Arc<dyn Journal>, command: Command) -> Option<StoreWork> {
    match command {
        Command::Reserve(attempt) => Some(timed("reserve", async move {
            journal.reserve(attempt).await?;
            event(Event::Reserved)
        })),
        Command::Intend(attempt, intend) => Some(timed("intend", async move {
            let open = journal.intend(attempt, intend).await?;
            event(Event::Intended(open))
        })),
        Command::Settle(settle) => Some(timed("settle", async move {
            let (attempt, outcome): (AttemptId, _) = (settle.attempt, settle.outcome);
            journal.settle(*settle).await?;
            metrics::counter!(metric::PUSHES, "outcome" => outcome.as_str()).increment(1);
            event(Event::Settled(attempt))
        })),
        _ => None,
    }
}

fn event(event: Event) -> Result<StoreDone, StoreError> {
    Ok(StoreDone::Event(Some(event)))
}

fn timed(
    op: &'static str,
    work: impl Future<Output = Result<StoreDone, StoreError>> + Send + 'static,
) -> StoreWork {
    async move {
        let begun = Instant::now();
        let result = work.await;
        metrics::histogram!(metric::STORE_SECONDS, "op" => op).record(begun.elapsed().as_secs_f64());
        if let Err(error) = &result {
            let class = match error {
                StoreError::Fenced { .. } => "fenced",
                StoreError::Lost { .. } => "lost",
                StoreError::Unavailable { .. } => "unavailable",
                StoreError::Unusable { .. } => "unusable",
            };
            metrics::counter!(metric::STORE_ERRORS, "class" => class).increment(1);
        }
        result
    }
    .boxed()
}
