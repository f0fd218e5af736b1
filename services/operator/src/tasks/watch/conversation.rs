//! One watch for one branch: what its owner wants, what it gets, how far both are.
//!
//! The cursor that a frame carries is the version of the last event read before it, so that a resume repeats nothing that
//! is durable and skips nothing that is not. While a frame is unacknowledged the next one gathers; when that is full, the
//! stream is not read any further: a watch of its own lets the API server feel it, the shared one goes on without it.

mod updating;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use upriver_engine::branch::{Start, Subscription, WatchHealth};
use upriver_kube_io::watch::{Item, Watch, WatchError, WatchSpec};
use upriver_model::{Operation, ResourceVersion, TargetScope};
use upriver_store::Opening;
use upriver_telemetry::metric;
use upriver_telemetry::silence::LifeSign;

use super::Context;
use super::frames::FrameSender;
use super::hub::{Heard, Join, Seat};
use super::link::{FromWatch, Hello, ToWatch, WatcherEnd};
use super::snapshots::{self, Backfill};
use super::source::{self, Counted, Opened, Trouble};
use super::subscribed::Subscribed;
use crate::tasks::wall_ms;

/// A watch that lived for so long was no part of a chain of expiries.
const LONG_LIFE: Duration = Duration::from_secs(60);
/// A watch of its own tries to join the shared one this often.
const JOIN_EVERY: Duration = Duration::from_secs(1);

/// What outlives the conversations of one branch with one watcher.
#[derive(Default)]
pub(super) struct Memory {
    /// How often in a row this watch has expired.
    expiries: u32,
}

/// Why a conversation is over.
pub(super) enum Over {
    /// The owner is gone, or wants to begin anew.
    Closed,
    /// The owner knows a later watch epoch.
    Stale { epoch: u64 },
}

/// Where events come from.
enum Source {
    Own { watch: Box<Watch>, _open: Counted },
    Shared(Seat),
}

/// Something to read.
enum Read {
    Heard(Heard),
    /// The own watch ended.
    Ended(WatchError),
    /// Left out of the shared one.
    LeftOut,
}

pub(super) struct Conversation<'a> {
    context: &'a Context,
    memory: &'a mut Memory,
    spec: Arc<WatchSpec>,
    opening: Opening,
    subscribed: Subscribed,
    names: super::link::Names,
    to: mpsc::Sender<FromWatch>,
    from: mpsc::Receiver<ToWatch>,
    sender: FrameSender,
    joining: Option<oneshot::Receiver<Join>>,
    join_at: Instant,
    trouble: Trouble,
    alive: LifeSign,
    /// Lists beside the stream end with the conversation.
    lists: TaskTracker,
    stop: CancellationToken,
}

impl Drop for Conversation<'_> {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Speaks with the owner of a branch until either ends it. Answers whether the owner wanted anything.
pub(super) async fn run(
    context: &Context,
    memory: &mut Memory,
    hello: &Hello,
    mut end: WatcherEnd,
) -> (bool, Over) {
    let subscribe = loop {
        match end.from.recv().await {
            Some(ToWatch::Subscribe(subscribe)) => break subscribe,
            Some(ToWatch::Stale(epoch)) => return (false, Over::Stale { epoch }),
            // Nothing was asked yet that these could answer.
            Some(
                ToWatch::Begin(..)
                | ToWatch::Continue(_)
                | ToWatch::Backfill(..)
                | ToWatch::Ack(..)
                | ToWatch::Hold(..),
            ) => {}
            None => return (false, Over::Closed),
        }
    };
    let key = &hello.watch;
    let subscribed = Subscribed::new(key.gvr.clone(), subscribe.subscriptions, subscribe.names.clone());
    let mut conversation = Conversation {
        spec: context.spec(subscribed.kind()),
        opening: context.open(subscribe.scope_hash),
        subscribed,
        names: subscribe.names,
        to: end.to,
        from: end.from,
        sender: FrameSender::default(),
        joining: None,
        join_at: Instant::now(),
        trouble: Trouble::new(),
        alive: LifeSign::start(&hello.branch.to_string(), &key.gvr, key.scope.namespace()),
        lists: TaskTracker::new(),
        stop: CancellationToken::new(),
        context,
        memory,
    };
    let Err(over) = conversation.live().await;
    (true, over)
}

type Step<T> = Result<T, Over>;

impl Conversation<'_> {
    async fn report(&self, message: FromWatch) -> Step<()> {
        self.to.send(message).await.map_err(|_| Over::Closed)
    }

    async fn live(&mut self) -> Step<std::convert::Infallible> {
        self.report(FromWatch::Opening(self.opening.clone())).await?;
        let mut next = self.begin().await?;
        loop {
            let source = match &next {
                Start::Replay => self.replay().await?,
                Start::Resume(rv) => self.resume(rv.clone()).await?,
            };
            if let Some(source) = source {
                self.follow(source).await?;
            }
            // A replay that failed begins again; a watch goes on after what it has read.
            if let Some(cursor) = &self.sender.cursor {
                next = Start::Resume(cursor.clone());
            }
        }
    }

    async fn hear(&mut self) -> Step<ToWatch> {
        match self.from.recv().await {
            Some(ToWatch::Stale(epoch)) => Err(Over::Stale { epoch }),
            Some(message) => Ok(message),
            None => Err(Over::Closed),
        }
    }

    async fn begin(&mut self) -> Step<Start> {
        loop {
            match self.hear().await? {
                ToWatch::Begin(opening, start) if opening == self.opening => {
                    if let Start::Resume(rv) = &start {
                        self.sender.cursor = Some(rv.clone());
                    }
                    return Ok(start);
                }
                // Before it has begun the owner closes a link whose subscriptions changed.
                ToWatch::Begin(..)
                | ToWatch::Continue(_)
                | ToWatch::Subscribe(_)
                | ToWatch::Backfill(..)
                | ToWatch::Ack(..)
                | ToWatch::Hold(..)
                | ToWatch::Stale(_) => {}
            }
        }
    }

    async fn replay(&mut self) -> Step<Option<Source>> {
        metrics::counter!(metric::WATCH_STARTS, "mode" => "replay").increment(1);
        self.report(FromWatch::Health(WatchHealth::Replaying)).await?;
        let client = &self.context.client;
        match snapshots::start(client, &self.spec, &self.opening, &mut self.subscribed).await {
            Ok(started) => {
                self.is_alive();
                self.sender.cursor = Some(started.snapshot.list_rv.clone());
                self.report(FromWatch::Snapshot(Box::new(started.snapshot))).await?;
                self.report_left_out().await?;
                // Without a watch of its own it goes on like after a resume.
                let Some(watch) = started.watch else { return Ok(None) };
                self.report(FromWatch::Health(WatchHealth::Live)).await?;
                Ok(Some(own(watch)))
            }
            // A list that expired on its way is begun again, like one that failed for any other reason: not at once.
            Err(error) => self.troubled(&error).await.map(|()| None),
        }
    }

    fn is_alive(&mut self) {
        self.trouble.is_over();
        self.alive.sign();
    }

    async fn resume(&mut self, cursor: ResourceVersion) -> Step<Option<Source>> {
        metrics::counter!(metric::WATCH_STARTS, "mode" => "resume").increment(1);
        // Versions that are not numbers cannot be compared with those of the shared stream.
        let joined = match cursor.number() {
            Some(at) => self.context.hub.join(at).await.ok(),
            None => Some(Join::Behind),
        };
        let source = match joined {
            Some(Join::Seat(seat)) => Source::Shared(seat),
            Some(Join::Expired { rewound }) => return self.expired(rewound).await,
            Some(Join::Failed(error)) => return self.troubled(&error).await.map(|()| None),
            Some(Join::Behind) | None => {
                match source::open_after(&self.context.client, &self.spec, &cursor).await {
                    Ok(Opened::Watch(watch)) => own(watch),
                    Ok(Opened::Expired { rewound }) => return self.expired(rewound).await,
                    Err(error) => return self.troubled(&error).await.map(|()| None),
                }
            }
        };
        self.is_alive();
        self.report(FromWatch::Health(WatchHealth::Live)).await?;
        Ok(Some(source))
    }

    /// The cursor is of no use: everything gathered is covered by the replay that follows in a new conversation.
    async fn expired<T>(&mut self, rewound: bool) -> Step<T> {
        metrics::counter!(metric::WATCH_ENDS, "reason" => "expired").increment(1);
        let pause = self.trouble.about(500 << self.memory.expiries.min(6));
        self.memory.expiries += 1;
        tracing::info!(watch = %self.opening.watch, rewound, ?pause, "the cursor has expired; replaying");
        // Spread out: after a restart of the API server all watches expire together, and each replay is a whole list.
        tokio::time::sleep(pause).await;
        self.report(FromWatch::Expired { opening: self.opening.clone(), rewound }).await?;
        // The owner closes the link and asks for a replay in the next.
        loop {
            self.hear().await?;
        }
    }

    /// Waits before another try, and goes on serving acknowledgements meanwhile.
    async fn troubled(&mut self, error: &WatchError) -> Step<()> {
        let (until, health) = self.trouble.next(&self.opening.watch, error);
        self.report(FromWatch::Health(health)).await?;
        loop {
            tokio::select! {
                message = self.from.recv() => self.handle(message).await?,
                () = sleep_until(until) => return Ok(()),
            }
        }
    }

    /// Reads until the source ends; comes back to have it opened again.
    async fn follow(&mut self, mut source: Source) -> Step<()> {
        let opened = Instant::now();
        self.joining = None;
        self.join_at = opened;
        loop {
            if let Some(frame) = self.sender.next(&self.opening) {
                self.report(FromWatch::Frame(frame)).await?;
            }
            self.ask_to_join(&source);
            let now = Instant::now();
            let wake = self.sender.again_at.unwrap_or_else(|| self.sender.progress_at(now));
            let waits = self.sender.in_flight.is_some() && self.sender.again_at.is_none();
            let full = self.sender.is_full();
            let read = tokio::select! {
                message = self.from.recv() => {
                    self.handle(message).await?;
                    continue;
                }
                joined = answer(&mut self.joining) => {
                    if let Some(Join::Seat(seat)) = joined {
                        source = Source::Shared(seat);
                    }
                    continue;
                }
                read = source.next(), if !full => read,
                () = sleep_until(wake), if !waits => continue,
                // Only an own watch asks for a seat.
                () = sleep_until(self.join_at), if self.joining.is_none() && source.is_own() => continue,
            };
            if opened.elapsed() >= LONG_LIFE {
                self.memory.expiries = 0;
            }
            match read {
                Read::Heard(heard) => {
                    if self.heard(heard).await? {
                        return Ok(());
                    }
                }
                Read::LeftOut => return Ok(()),
                Read::Ended(error) => return self.ended(error).await,
            }
        }
    }

    fn ask_to_join(&mut self, source: &Source) {
        let now = Instant::now();
        if !source.is_own() || self.joining.is_some() || now < self.join_at {
            return;
        }
        self.join_at = now + JOIN_EVERY;
        if let Some(at) = self.cursor() {
            self.joining = Some(self.context.hub.join(at));
        }
    }

    fn cursor(&self) -> Option<u64> {
        self.sender.cursor.as_ref().and_then(ResourceVersion::number)
    }

    /// True if the source is of no use any more.
    async fn heard(&mut self, heard: Heard) -> Step<bool> {
        match heard {
            Heard::Item(item, rv) => {
                // A watch of its own may have been read further while the seat was asked for.
                if rv.is_none_or(|rv| self.cursor().is_none_or(|cursor| rv > cursor)) {
                    self.item(&item);
                    self.report_left_out().await?;
                }
                Ok(false)
            }
            Heard::Health(health) => {
                if health == WatchHealth::Live {
                    self.is_alive();
                }
                self.report(FromWatch::Health(health)).await?;
                Ok(false)
            }
            Heard::Expired { behind, rewound } => {
                // One that has read further may still be served (F14).
                if rewound || self.cursor().is_none_or(|cursor| cursor <= behind) {
                    return self.expired(rewound).await;
                }
                Ok(true)
            }
        }
    }

    fn item(&mut self, item: &Item) {
        self.alive.sign();
        let (rv, event) = match item {
            Item::Added(object) => self.subscribed.event(object, Operation::Create, wall_ms()),
            Item::Modified(object) => self.subscribed.event(object, Operation::Update, wall_ms()),
            Item::Deleted(object) => self.subscribed.event(object, Operation::Delete, wall_ms()),
            Item::Bookmark { rv, .. } => (Some(rv.clone()), None),
        };
        self.sender.take(rv, event);
    }

    async fn report_left_out(&mut self) -> Step<()> {
        let left_out = self.subscribed.take_left_out();
        if left_out.is_empty() { Ok(()) } else { self.report(FromWatch::LeftOut(left_out)).await }
    }

    async fn ended(&mut self, error: WatchError) -> Step<()> {
        if matches!(error, WatchError::Expired { .. }) {
            return self.expired(false).await;
        }
        if source::ended_as_usual(&error) {
            tokio::time::sleep(self.trouble.spread()).await;
            return Ok(());
        }
        self.troubled(&error).await
    }

    async fn handle(&mut self, message: Option<ToWatch>) -> Step<()> {
        match message.ok_or(Over::Closed)? {
            ToWatch::Ack(stream, seq) if stream == self.opening.stream => self.sender.acked(seq),
            ToWatch::Hold(stream, seq) if stream == self.opening.stream => self.sender.held(seq),
            ToWatch::Ack(..) | ToWatch::Hold(..) | ToWatch::Begin(..) | ToWatch::Continue(_) => {}
            ToWatch::Backfill(opening, scopes) => self.backfill(opening, scopes),
            ToWatch::Subscribe(subscribe) => self.update(subscribe).await?,
            ToWatch::Stale(epoch) => return Err(Over::Stale { epoch }),
        }
        Ok(())
    }

    /// Lists for some scopes while the stream goes on.
    fn backfill(&self, opening: Opening, scopes: Vec<TargetScope>) {
        metrics::counter!(metric::WATCH_STARTS, "mode" => "backfill").increment(1);
        let mut by_place: BTreeMap<upriver_model::Scope, Vec<TargetScope>> = BTreeMap::new();
        for scope in scopes {
            by_place.entry(scope.scope.clone()).or_default().push(scope);
        }
        for (place, scopes) in by_place {
            let spec = WatchSpec { scope: place, ..(*self.spec).clone() };
            let subscriptions = scopes.iter().map(|scope| self.wanted(scope, &opening)).collect();
            let subscribed = Subscribed::new(self.spec.gvr.clone(), subscriptions, self.names.clone());
            let (client, to) = (self.context.client.clone(), self.to.clone());
            let list = Backfill { client, to, spec, opening: opening.clone(), scopes, subscribed };
            let stop = self.stop.clone();
            // Ends with its conversation: the owner asks again in the next.
            self.lists.spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = list.run() => {}
                }
            });
        }
    }

    fn wanted(&self, scope: &TargetScope, opening: &Opening) -> Subscription {
        Subscription {
            scope: scope.clone(),
            kind: self.spec.kind.as_str().into(),
            watch: opening.watch.clone(),
            operations: Vec::new(),
            chosen: self.subscribed.chosen(scope),
            spec_hash: "".into(),
        }
    }
}

fn own(watch: Watch) -> Source {
    Source::Own { watch: Box::new(watch), _open: Counted::new("own") }
}

impl Source {
    fn is_own(&self) -> bool {
        matches!(self, Self::Own { .. })
    }

    async fn next(&mut self) -> Read {
        match self {
            Self::Own { watch, .. } => match watch.next().await {
                Ok(item) => Read::Heard(Heard::Item(Arc::new(item), None)),
                Err(error) => Read::Ended(error),
            },
            Self::Shared(seat) => seat.next().await.map_or(Read::LeftOut, Read::Heard),
        }
    }
}

/// Waits for an answer of the hub, or for ever if none is due.
async fn answer(joining: &mut Option<oneshot::Receiver<Join>>) -> Option<Join> {
    match joining {
        Some(answer) => {
            let joined = answer.await.ok();
            *joining = None;
            joined
        }
        None => std::future::pending().await,
    }
}
