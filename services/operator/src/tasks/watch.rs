//! One watch of one branch: opens its stream, lists or resumes, forwards frames, survives every way a watch can end.
//!
//! The cursor that a frame carries is the version of the last event read before it, so that a resume repeats nothing that
//! is durable and skips nothing that is not. While a frame is unacknowledged the next one gathers; when that is full, the
//! watch is not read any further and the API server feels it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use kube::Client;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use upriver_engine::Dice;
use upriver_engine::branch::{Event, Start, Subscription, WatchHealth};
use upriver_kube_io::watch::{Begin, Item, Watch, WatchError, WatchSpec, list_page};
use upriver_model::{BranchKey, Operation, ResourceVersion, TargetScope, TargetUid};
use upriver_store::Opening;
use upriver_telemetry::metric;
use upriver_telemetry::silence::LifeSign;

use super::frames::{FULL_PAUSE, FrameSender};
use super::snapshots::{self, Backfill};
use super::subscribed::{SkippedSecrets, Subscribed};
use super::wall_ms;

/// Asks the server to close a watch after so long, in seconds.
const SERVER_TIMEOUT: Duration = Duration::from_secs(290);
/// Longest wait for a list of one object; a connection that died unnoticed must not hold up a resume for longer.
const VERSION_DEADLINE: Duration = Duration::from_secs(15);
/// A watch that lived for so long was no part of a chain of expiries.
const LONG_LIFE: Duration = Duration::from_secs(60);

/// Names of targets, for metrics.
pub(crate) type Names = BTreeMap<TargetUid, (String, String)>;

/// What the branch tells its watch.
#[derive(Debug)]
pub(crate) enum ToWatch {
    Begin(Opening, Start),
    Continue(Opening),
    Update(Opening, Vec<Subscription>, Names),
    Backfill(Opening, Vec<TargetScope>),
    Ack(u64, u64),
    Hold(u64, u64),
}

/// Handle that ends the watch when dropped.
pub(crate) struct WatchHandle {
    pub(crate) to: mpsc::Sender<ToWatch>,
    stop: CancellationToken,
}

impl Drop for WatchHandle {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// What a watch needs from its branch.
pub(crate) struct WatchContext {
    pub(crate) client: Client,
    pub(crate) idle_limit: Duration,
    pub(crate) shard: BranchKey,
    /// How often in a row this watch key has expired; outlives the task, which ends at every expiry.
    pub(crate) expiries: Arc<AtomicU32>,
    pub(crate) life: u32,
    pub(crate) events: mpsc::Sender<(u32, Event)>,
    pub(crate) names: Names,
    pub(crate) skipped: SkippedSecrets,
    pub(crate) tracker: tokio_util::task::TaskTracker,
}

/// Starts a watch; it reports an opening first.
pub(crate) fn start(
    context: WatchContext,
    opening: Opening,
    subscriptions: Vec<Subscription>,
) -> WatchHandle {
    let tracker = context.tracker.clone();
    // Acks of one frame at a time, and rare updates: 64 are never reached by a task that lives.
    let (to, inbox) = mpsc::channel(64);
    let stop = CancellationToken::new();
    let key = opening.watch.clone();
    let subscribed =
        Subscribed::new(key.gvr.clone(), subscriptions, context.names.clone(), context.skipped.clone());
    let spec = WatchSpec {
        gvr: key.gvr,
        kind: subscribed.kind().to_owned(),
        scope: key.scope,
        idle_limit: context.idle_limit,
        server_timeout: SERVER_TIMEOUT,
    };
    let alive = LifeSign::start(&context.shard.to_string(), &spec.gvr, spec.scope.namespace());
    let task = Task {
        context,
        spec: Arc::new(spec),
        opening,
        subscribed,
        inbox,
        sender: FrameSender::default(),
        dice: Dice::new(rand::random()),
        failures: 0,
        alive,
        stop: stop.clone(),
    };
    let ended = stop.clone();
    tracker.spawn(async move {
        tokio::select! {
            () = ended.cancelled() => {}
            () = task.run() => {}
        }
    });
    WatchHandle { to, stop }
}

struct Task {
    context: WatchContext,
    spec: Arc<WatchSpec>,
    opening: Opening,
    subscribed: Subscribed,
    inbox: mpsc::Receiver<ToWatch>,
    sender: FrameSender,
    dice: Dice,
    failures: u32,
    alive: LifeSign,
    stop: CancellationToken,
}

/// The branch is gone, or says so.
struct Ended;

impl Task {
    async fn report(&self, event: Event) -> Result<(), Ended> {
        self.context.events.send((self.context.life, event)).await.map_err(|_| Ended)
    }

    async fn run(mut self) {
        // Whatever ends it, the branch starts another one when it still wants it.
        let Err(Ended) = self.live().await;
    }

    async fn live(&mut self) -> Result<std::convert::Infallible, Ended> {
        self.report(Event::Opening(self.opening.clone())).await?;
        let mut next = self.begin().await?;
        loop {
            let opened = match &next {
                Start::Replay => self.replay().await?,
                Start::Resume(rv) => self.resume(rv.clone()).await?,
            };
            if let Some(watch) = opened {
                self.follow(watch).await?;
            }
            // A replay that failed begins again; a watch goes on after what it has read.
            if let Some(cursor) = &self.sender.cursor {
                next = Start::Resume(cursor.clone());
            }
        }
    }

    async fn begin(&mut self) -> Result<Start, Ended> {
        loop {
            match self.inbox.recv().await.ok_or(Ended)? {
                ToWatch::Begin(opening, start) if opening == self.opening => {
                    if let Start::Resume(rv) = &start {
                        self.sender.cursor = Some(rv.clone());
                    }
                    return Ok(start);
                }
                ToWatch::Begin(..)
                | ToWatch::Continue(_)
                | ToWatch::Update(..)
                | ToWatch::Backfill(..)
                | ToWatch::Ack(..)
                | ToWatch::Hold(..) => {}
            }
        }
    }

    async fn replay(&mut self) -> Result<Option<Watch>, Ended> {
        metrics::counter!(metric::WATCH_STARTS, "mode" => "replay").increment(1);
        self.report(Event::Health(self.opening.watch.clone(), WatchHealth::Replaying)).await?;
        match snapshots::start(&self.context.client, &self.spec, &self.opening, &mut self.subscribed).await {
            Ok(started) => {
                self.is_alive();
                self.sender.cursor = Some(started.snapshot.list_rv.clone());
                self.report(Event::Snapshot(Box::new(started.snapshot))).await?;
                self.report(Event::Health(self.opening.watch.clone(), WatchHealth::Live)).await?;
                Ok(Some(started.watch))
            }
            // A list that expired on its way is begun again, like one that failed for any other reason: not at once.
            Err(error) => self.troubled(&error).await.map(|()| None),
        }
    }

    fn is_alive(&mut self) {
        self.failures = 0;
        self.alive.sign();
    }

    async fn resume(&mut self, cursor: ResourceVersion) -> Result<Option<Watch>, Ended> {
        metrics::counter!(metric::WATCH_STARTS, "mode" => "resume").increment(1);
        match self.source_version().await {
            // A source that was set back answers a watch from the future with silence (F18).
            Ok(current) if went_back(&cursor, &current) => return self.expired(true).await,
            Ok(_) => {}
            Err(error) => return self.troubled(&error).await.map(|()| None),
        }
        match Watch::open(&self.context.client, &self.spec, &Begin::After(cursor)).await {
            Ok(watch) => {
                self.is_alive();
                self.report(Event::Health(self.opening.watch.clone(), WatchHealth::Live)).await?;
                Ok(Some(watch))
            }
            Err(WatchError::Expired { .. }) => self.expired(false).await,
            Err(error) => self.troubled(&error).await.map(|()| None),
        }
    }

    async fn source_version(&self) -> Result<ResourceVersion, WatchError> {
        let page = list_page(&self.context.client, &self.spec, 1, None);
        match tokio::time::timeout(VERSION_DEADLINE, page).await {
            Ok(page) => page.map(|page| page.rv),
            Err(_) => Err(WatchError::Silent { seconds: VERSION_DEADLINE.as_secs() }),
        }
    }

    /// The cursor is of no use: everything gathered is covered by the replay that follows in a new stream.
    async fn expired<T>(&mut self, rewound: bool) -> Result<T, Ended> {
        metrics::counter!(metric::WATCH_ENDS, "reason" => "expired").increment(1);
        let before = self.context.expiries.fetch_add(1, Ordering::Relaxed);
        let longest = 500 << before.min(6);
        let pause = self.dice.between(longest / 2, longest);
        tracing::info!(watch = %self.opening.watch, rewound, pause_ms = pause, "the cursor has expired; replaying");
        // Spread out: after a restart of the API server all watches expire together, and each replay is a whole list.
        tokio::time::sleep(Duration::from_millis(pause)).await;
        self.report(Event::Expired { opening: self.opening.clone(), rewound }).await?;
        // The branch ends this task and starts the next stream.
        self.stop.cancelled().await;
        Err(Ended)
    }

    /// Waits before another try, and goes on serving acknowledgements meanwhile.
    async fn troubled(&mut self, error: &WatchError) -> Result<(), Ended> {
        self.failures += 1;
        let (reason, pause) = match error {
            WatchError::Forbidden { .. } => ("WatchNotPermitted", 60_000),
            // Short enough to follow a type again soon after it was installed again, long enough not to be a load.
            WatchError::NotServed { .. } => ("WatchError", 4_000),
            WatchError::Closed
            | WatchError::Expired { .. }
            | WatchError::NoStreamingList { .. }
            | WatchError::Silent { .. }
            | WatchError::Failed { .. } => ("WatchError", 500 << self.failures.min(6)),
        };
        let pause = self.dice.between(pause / 2, pause.min(60_000));
        // The same trouble is told less and less often.
        if self.failures.is_power_of_two() {
            tracing::warn!(watch = %self.opening.watch, %error, retry_ms = pause, "a watch cannot run");
        } else {
            tracing::debug!(watch = %self.opening.watch, %error, retry_ms = pause, "a watch cannot run");
        }
        let health = WatchHealth::Blocked { reason, message: error.to_string() };
        self.report(Event::Health(self.opening.watch.clone(), health)).await?;
        let until = Instant::now() + Duration::from_millis(pause);
        loop {
            tokio::select! {
                message = self.inbox.recv() => self.handle(message.ok_or(Ended)?).await?,
                () = sleep_until(until) => return Ok(()),
            }
        }
    }

    /// Reads a watch until it ends; comes back to have it opened again.
    async fn follow(&mut self, mut watch: Watch) -> Result<(), Ended> {
        let opened = Instant::now();
        loop {
            if let Some(frame) = self.sender.next(&self.opening) {
                self.report(Event::Frame(frame)).await?;
            }
            let now = Instant::now();
            let wake = self.sender.again_at.unwrap_or_else(|| self.sender.progress_at(now));
            let waits = self.sender.in_flight.is_some() && self.sender.again_at.is_none();
            let full = self.sender.is_full();
            tokio::select! {
                message = self.inbox.recv() => self.handle(message.ok_or(Ended)?).await?,
                item = watch.next(), if !full => match item {
                    Ok(item) => self.item(item),
                    Err(error) => {
                        if opened.elapsed() >= LONG_LIFE {
                            self.context.expiries.store(0, Ordering::Relaxed);
                        }
                        return self.ended(error).await;
                    }
                },
                () = sleep_until(wake), if !waits => {}
            }
        }
    }

    fn item(&mut self, item: Item) {
        self.alive.sign();
        let (rv, event) = match item {
            Item::Added(object) => self.subscribed.event(&object, Operation::Create, wall_ms()),
            Item::Modified(object) => self.subscribed.event(&object, Operation::Update, wall_ms()),
            Item::Deleted(object) => self.subscribed.event(&object, Operation::Delete, wall_ms()),
            Item::Bookmark { rv, .. } => (Some(rv), None),
        };
        self.sender.take(rv, event);
    }

    async fn ended(&mut self, error: WatchError) -> Result<(), Ended> {
        let reason = match &error {
            WatchError::Closed => "closed",
            WatchError::Expired { .. } => return self.expired(false).await,
            WatchError::Forbidden { .. } => "forbidden",
            WatchError::NotServed { .. } => "not_served",
            WatchError::Silent { .. } => "silent",
            WatchError::NoStreamingList { .. } | WatchError::Failed { .. } => "failed",
        };
        metrics::counter!(metric::WATCH_ENDS, "reason" => reason).increment(1);
        if matches!(error, WatchError::Closed | WatchError::Silent { .. }) {
            // The server's own timeout, or a connection that died unnoticed: go on after the cursor at once, a little
            // spread out. If nobody answers, opening it says so.
            let pause = Duration::from_millis(self.dice.between(0, 300));
            tokio::time::sleep(pause).await;
            return Ok(());
        }
        self.troubled(&error).await
    }

    async fn handle(&mut self, message: ToWatch) -> Result<(), Ended> {
        match message {
            ToWatch::Ack(stream, seq) if stream == self.opening.stream => self.sender.acked(seq),
            ToWatch::Hold(stream, seq) if stream == self.opening.stream => self.sender.held(seq),
            ToWatch::Ack(..) | ToWatch::Hold(..) | ToWatch::Begin(..) | ToWatch::Continue(_) => {}
            ToWatch::Backfill(opening, scopes) => self.backfill(opening, scopes),
            ToWatch::Update(opening, subscriptions, names) => {
                self.update(opening, subscriptions, names).await?
            }
        }
        Ok(())
    }

    /// Other subscriptions: what was matched so far goes out in the old stream, then the new one is opened.
    async fn update(
        &mut self,
        opening: Opening,
        subscriptions: Vec<Subscription>,
        names: Names,
    ) -> Result<(), Ended> {
        while !self.sender.is_idle() {
            if let Some(frame) = self.sender.next(&self.opening) {
                self.report(Event::Frame(frame)).await?;
            }
            let wake = self.sender.again_at.unwrap_or_else(|| Instant::now() + FULL_PAUSE);
            tokio::select! {
                message = self.inbox.recv() => match message.ok_or(Ended)? {
                    ToWatch::Ack(stream, seq) if stream == self.opening.stream => self.sender.acked(seq),
                    ToWatch::Hold(stream, seq) if stream == self.opening.stream => self.sender.held(seq),
                    ToWatch::Update(opening, subscriptions, names) => {
                        return Box::pin(self.update(opening, subscriptions, names)).await;
                    }
                    ToWatch::Backfill(opening, scopes) => self.backfill(opening, scopes),
                    ToWatch::Ack(..) | ToWatch::Hold(..) | ToWatch::Begin(..) | ToWatch::Continue(_) => {}
                },
                () = sleep_until(wake) => {}
            }
        }
        self.opening = opening;
        self.context.names = names.clone();
        self.subscribed.reopen(subscriptions, names);
        self.sender = FrameSender::after(self.sender.cursor.clone());
        self.report(Event::Opening(self.opening.clone())).await?;
        self.wait_for_continue().await
    }

    async fn wait_for_continue(&mut self) -> Result<(), Ended> {
        loop {
            match self.inbox.recv().await.ok_or(Ended)? {
                ToWatch::Continue(opening) if opening == self.opening => return Ok(()),
                ToWatch::Update(opening, subscriptions, names) => {
                    return Box::pin(self.update(opening, subscriptions, names)).await;
                }
                ToWatch::Backfill(opening, scopes) => self.backfill(opening, scopes),
                ToWatch::Continue(_) | ToWatch::Begin(..) | ToWatch::Ack(..) | ToWatch::Hold(..) => {}
            }
        }
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
            let subscribed = Subscribed::new(
                self.spec.gvr.clone(),
                subscriptions,
                self.context.names.clone(),
                self.context.skipped.clone(),
            );
            let (client, life, events) =
                (self.context.client.clone(), self.context.life, self.context.events.clone());
            let list = Backfill { client, life, events, spec, opening: opening.clone(), scopes, subscribed };
            let stop = self.stop.clone();
            // Ends with its watch: the branch asks again after a restart.
            self.context.tracker.spawn(async move {
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

fn went_back(cursor: &ResourceVersion, current: &ResourceVersion) -> bool {
    match (cursor.number(), current.number()) {
        (Some(cursor), Some(current)) => current < cursor,
        (None, _) | (_, None) => false,
    }
}

#[cfg(test)]
mod tests;
