//! One API watch for all branches that want its type: read once, given to everybody.
//!
//! A conversation joins behind the version that it has read. What it lacks comes out of a short memory of the stream; if
//! that does not reach back far enough, it reads a watch of its own until it does (F13). Joining and every dispatch are
//! steps of one task, so nothing is skipped between them. A conversation that does not keep up is left out and joins again
//! later: it never holds up the others.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kube::Client;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use upriver_content::ObjectMeta;
use upriver_engine::branch::WatchHealth;
use upriver_kube_io::watch::{Item, Watch, WatchError, WatchSpec};
use upriver_model::{ResourceVersion, WatchKey};
use upriver_telemetry::metric;

use super::source::{self, Counted, Opened, Trouble};

/// Conversations that begin together are waited for so long, so that the stream starts at the lowest of their versions.
const GATHER: Duration = Duration::from_millis(100);
/// A stream that nobody reads is kept open so long, for those who come back at once.
const LINGER: Duration = Duration::from_secs(5);
/// What is remembered of the stream.
const MEMORY_ITEMS: usize = 1_000;
const MEMORY_BYTES: usize = 4 << 20;
/// What waits for one conversation; beyond it, it is left out.
const BEHIND_ITEMS: usize = 256;
const BEHIND_BYTES: usize = 8 << 20;

/// One thing that a conversation hears.
pub(super) enum Heard {
    /// With its version, where it is a number.
    Item(Arc<Item>, Option<u64>),
    Health(WatchHealth),
    /// The stream cannot go on behind this version.
    Expired {
        behind: u64,
        rewound: bool,
    },
}

/// A place in the stream.
pub(super) struct Seat {
    heard: mpsc::Receiver<(Heard, usize)>,
    waiting: Arc<AtomicUsize>,
}

impl Seat {
    /// `None` when the conversation was left out, or the stream has ended.
    pub(super) async fn next(&mut self) -> Option<Heard> {
        let (heard, bytes) = self.heard.recv().await?;
        self.waiting.fetch_sub(bytes, Ordering::AcqRel);
        Some(heard)
    }
}

/// Answer to a request to join.
pub(super) enum Join {
    Seat(Seat),
    /// The stream is ahead of that version, and its memory does not reach back so far.
    Behind,
    Expired {
        rewound: bool,
    },
    Failed(WatchError),
}

struct Ask {
    at: u64,
    answer: oneshot::Sender<Join>,
}

/// The way to a hub.
#[derive(Clone)]
pub(super) struct HubHandle(mpsc::Sender<Ask>);

impl HubHandle {
    /// Asks for a place behind `at`. An answer that never comes means that the hub has ended.
    pub(super) fn join(&self, at: u64) -> oneshot::Receiver<Join> {
        let (answer, answered) = oneshot::channel();
        // Full: the asker is told by the dropped answer, and tries again.
        let _ = self.0.try_send(Ask { at, answer });
        answered
    }
}

/// Starts the hub of a watch key; it opens its watch when somebody joins.
pub(super) fn start(
    client: Client,
    key: WatchKey,
    spec: Arc<WatchSpec>,
    tasks: &TaskTracker,
    stop: CancellationToken,
) -> HubHandle {
    let (asks, inbox) = mpsc::channel(1024);
    let hub = Hub { client, key, spec, inbox, trouble: Trouble::new() };
    tasks.spawn(async move {
        tokio::select! {
            () = stop.cancelled() => {}
            () = hub.run() => {}
        }
    });
    HubHandle(asks)
}

struct Hub {
    client: Client,
    key: WatchKey,
    spec: Arc<WatchSpec>,
    inbox: mpsc::Receiver<Ask>,
    trouble: Trouble,
}

impl Hub {
    async fn run(mut self) {
        let mut waiting = Vec::new();
        loop {
            if waiting.is_empty() {
                let Some(ask) = self.inbox.recv().await else { return };
                waiting.push(ask);
            }
            let until = Instant::now() + GATHER;
            while let Ok(Some(ask)) = timeout_at(until, self.inbox.recv()).await {
                waiting.push(ask);
            }
            let Some(lowest) = waiting.iter().map(|ask| ask.at).min() else { continue };
            match self.open(lowest).await {
                Ok(Opened::Watch(watch)) => self.live(watch, lowest, &mut waiting).await,
                Ok(Opened::Expired { rewound }) => {
                    // Only for those who asked for what is lost; the others may still be served (F14).
                    let (lost, others): (Vec<_>, Vec<_>) =
                        waiting.into_iter().partition(|ask| ask.at == lowest);
                    waiting = others;
                    lost.into_iter().for_each(|ask| drop(ask.answer.send(Join::Expired { rewound })));
                }
                Err(error) => {
                    for ask in waiting.drain(..) {
                        let _ = ask.answer.send(Join::Failed(again(&error)));
                    }
                }
            }
        }
    }

    async fn open(&self, after: u64) -> Result<Opened, WatchError> {
        source::open_after(&self.client, &self.spec, &ResourceVersion::new(&after.to_string())).await
    }

    /// Reads until nobody listens any more, or the stream cannot go on.
    async fn live(&mut self, watch: Watch, from: u64, waiting: &mut Vec<Ask>) {
        metrics::counter!(metric::WATCH_STARTS, "mode" => "shared").increment(1);
        let _counted = Counted::new("shared");
        self.trouble.is_over();
        let mut stream = Stream::new(from);
        waiting.drain(..).for_each(|ask| stream.join(ask));
        let mut open = Some(watch);
        loop {
            let ended = match open.take() {
                Some(watch) => self.read(watch, &mut stream).await,
                None => self.reopen(&mut stream).await,
            };
            match ended {
                Turn::Open(watch) => open = Some(watch),
                Turn::Closed => {}
                Turn::Over => break,
            }
        }
    }

    async fn read(&mut self, mut watch: Watch, stream: &mut Stream) -> Turn {
        let mut lonely_since: Option<Instant> = None;
        loop {
            lonely_since =
                if stream.is_listened_to() { None } else { lonely_since.or_else(|| Some(Instant::now())) };
            let leave = lonely_since.map_or_else(|| Instant::now() + LINGER, |since| since + LINGER);
            tokio::select! {
                ask = self.inbox.recv() => match ask {
                    Some(ask) => stream.join(ask),
                    None => return Turn::Over,
                },
                item = watch.next() => match item {
                    Ok(item) => stream.say(item),
                    Err(WatchError::Expired { .. }) => {
                        stream.expire(false);
                        return Turn::Over;
                    }
                    Err(error) if source::ended_as_usual(&error) => {
                        sleep(self.trouble.spread()).await;
                        return Turn::Closed;
                    }
                    Err(error) => return self.troubled(&error, stream).await,
                },
                () = sleep_until(leave), if lonely_since.is_some() => return Turn::Over,
            }
        }
    }

    async fn reopen(&mut self, stream: &mut Stream) -> Turn {
        match self.open(stream.last).await {
            Ok(Opened::Watch(watch)) => {
                self.trouble.is_over();
                stream.tell(WatchHealth::Live);
                Turn::Open(watch)
            }
            Ok(Opened::Expired { rewound }) => {
                metrics::counter!(metric::WATCH_ENDS, "reason" => "expired").increment(1);
                stream.expire(rewound);
                Turn::Over
            }
            Err(error) => self.troubled(&error, stream).await,
        }
    }

    /// Waits before another try; who joins meanwhile gets what is remembered, and the news.
    async fn troubled(&mut self, error: &WatchError, stream: &mut Stream) -> Turn {
        let (until, health) = self.trouble.next(&self.key, error);
        stream.tell(health.clone());
        loop {
            tokio::select! {
                ask = self.inbox.recv() => match ask {
                    Some(ask) => {
                        stream.join(ask);
                        stream.tell(health.clone());
                    }
                    None => return Turn::Over,
                },
                () = sleep_until(until) => return if stream.is_listened_to() { Turn::Closed } else { Turn::Over },
            }
        }
    }
}

enum Turn {
    Open(Watch),
    Closed,
    Over,
}

/// An error cannot be copied; its words can.
fn again(error: &WatchError) -> WatchError {
    let message = error.to_string();
    match error {
        WatchError::Forbidden { message } => WatchError::Forbidden { message: message.clone() },
        WatchError::NotServed { message } => WatchError::NotServed { message: message.clone() },
        WatchError::Expired { .. }
        | WatchError::NoStreamingList { .. }
        | WatchError::Closed
        | WatchError::Silent { .. }
        | WatchError::Failed { .. } => WatchError::Failed { message },
    }
}

/// What was read lately, and who listens.
struct Stream {
    /// The memory holds everything behind this version.
    base: u64,
    last: u64,
    memory: VecDeque<(u64, usize, Arc<Item>)>,
    remembered: usize,
    seats: Vec<Listener>,
}

struct Listener {
    heard: mpsc::Sender<(Heard, usize)>,
    waiting: Arc<AtomicUsize>,
}

impl Listener {
    /// False if it is gone or too far behind.
    fn hear(&self, heard: Heard, bytes: usize) -> bool {
        if self.waiting.load(Ordering::Acquire) > BEHIND_BYTES {
            return false;
        }
        self.waiting.fetch_add(bytes, Ordering::AcqRel);
        self.heard.try_send((heard, bytes)).is_ok()
    }
}

impl Stream {
    fn new(from: u64) -> Self {
        Self { base: from, last: from, memory: VecDeque::new(), remembered: 0, seats: Vec::new() }
    }

    fn is_listened_to(&mut self) -> bool {
        self.seats.retain(|seat| !seat.heard.is_closed());
        !self.seats.is_empty()
    }

    fn join(&mut self, ask: Ask) {
        let missing = || self.memory.iter().filter(|(rv, ..)| *rv > ask.at);
        if ask.at < self.base || missing().count() >= BEHIND_ITEMS {
            let _ = ask.answer.send(Join::Behind);
            return;
        }
        let (heard, seat) = mpsc::channel(BEHIND_ITEMS);
        let waiting = Arc::new(AtomicUsize::new(0));
        let listener = Listener { heard, waiting: waiting.clone() };
        if missing().all(|(rv, bytes, item)| listener.hear(Heard::Item(item.clone(), Some(*rv)), *bytes))
            && ask.answer.send(Join::Seat(Seat { heard: seat, waiting })).is_ok()
        {
            self.seats.push(listener);
        }
    }

    fn say(&mut self, item: Item) {
        let (rv, bytes) = match &item {
            Item::Added(object) | Item::Modified(object) | Item::Deleted(object) => {
                // An object that cannot be read is told by each conversation; it moves nobody's version.
                let rv = ObjectMeta::peek(object).ok().and_then(|meta| number(&meta.resource_version));
                (rv.unwrap_or(self.last), object.len())
            }
            Item::Bookmark { rv, .. } => (rv.number().unwrap_or(self.last), 0),
        };
        self.last = self.last.max(rv);
        let item = Arc::new(item);
        self.remember(rv, bytes, item.clone());
        self.seats.retain(|seat| seat.hear(Heard::Item(item.clone(), Some(rv)), bytes));
    }

    fn remember(&mut self, rv: u64, bytes: usize, item: Arc<Item>) {
        self.memory.push_back((rv, bytes, item));
        self.remembered += bytes;
        while self.memory.len() > MEMORY_ITEMS || self.remembered > MEMORY_BYTES {
            let Some((rv, bytes, _)) = self.memory.pop_front() else { return };
            self.base = self.base.max(rv);
            self.remembered -= bytes;
        }
    }

    fn tell(&mut self, health: WatchHealth) {
        self.seats.retain(|seat| seat.hear(Heard::Health(health.clone()), 0));
    }

    fn expire(&mut self, rewound: bool) {
        let behind = self.last;
        for seat in self.seats.drain(..) {
            // One that is too far behind to hear it opens the stream again, and is told then.
            seat.hear(Heard::Expired { behind, rewound }, 0);
        }
    }
}

fn number(text: &str) -> Option<u64> {
    ResourceVersion::new(text).number()
}

#[cfg(test)]
mod tests;
