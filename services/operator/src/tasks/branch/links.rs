//! The links of one branch to its watchers: who is connected, who waits, what is wanted.

use std::collections::BTreeMap;

use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use upriver_engine::branch::Event;
use upriver_model::WatchKey;

use crate::tasks::watch::link::{FromWatch, OwnerEnd, Subscribe, ToWatch};

/// What comes through a link.
pub(super) struct Inbound {
    pub(super) link: u64,
    /// `None`: the watcher has closed it.
    pub(super) message: Option<FromWatch>,
}

/// A connected watcher that was asked for something.
struct Active {
    number: u64,
    life: u32,
    epoch: u64,
    to: mpsc::Sender<ToWatch>,
    _pump: AbortOnDropHandle<()>,
}

pub(super) struct Links {
    inbox: mpsc::Sender<Inbound>,
    numbers: u64,
    active: BTreeMap<WatchKey, Active>,
    /// Connected, and not asked for anything yet.
    waiting: BTreeMap<WatchKey, OwnerEnd>,
    /// Asked for, and nobody is connected; with the life that asks.
    wanted: BTreeMap<WatchKey, (u32, Subscribe)>,
}

impl Links {
    pub(super) fn new(inbox: mpsc::Sender<Inbound>) -> Self {
        Self { inbox, numbers: 0, active: BTreeMap::new(), waiting: BTreeMap::new(), wanted: BTreeMap::new() }
    }

    /// A watcher has connected. Answers the watch whose present watcher it replaces.
    pub(super) fn attach(&mut self, end: OwnerEnd) -> Option<WatchKey> {
        let (watch, epoch) = (end.hello.watch.clone(), end.hello.epoch);
        let waiting = self.waiting.get(&watch).map(|end| end.hello.epoch);
        let active = self.active.get(&watch).map(|active| active.epoch);
        if let Some(later) = active.into_iter().chain(waiting).max().filter(|known| *known > epoch) {
            // Room for one message is certain: it is the first.
            let _ = end.to.try_send(ToWatch::Stale(later));
            return None;
        }
        self.waiting.insert(watch.clone(), end);
        if active.is_some() {
            return Some(watch);
        }
        self.pair(&watch);
        None
    }

    /// The branch wants a watcher.
    pub(super) fn want(&mut self, life: u32, watch: WatchKey, subscribe: Subscribe) {
        self.wanted.insert(watch.clone(), (life, subscribe));
        self.pair(&watch);
    }

    fn pair(&mut self, watch: &WatchKey) {
        if !self.wanted.contains_key(watch) {
            return;
        }
        let Some(end) = self.waiting.remove(watch) else { return };
        let Some((life, subscribe)) = self.wanted.remove(watch) else { return };
        let epoch = end.hello.epoch;
        if end.to.try_send(ToWatch::Subscribe(subscribe.clone())).is_err() {
            // It is gone; the next one that comes is asked.
            self.wanted.insert(watch.clone(), (life, subscribe));
            return;
        }
        self.numbers += 1;
        let pump = tokio::spawn(pump(self.numbers, end.from, self.inbox.clone()));
        let active =
            Active { number: self.numbers, life, epoch, to: end.to, _pump: AbortOnDropHandle::new(pump) };
        self.active.insert(watch.clone(), active);
    }

    /// False if the watcher does not take its messages.
    pub(super) fn tell(&self, watch: &WatchKey, message: ToWatch) -> bool {
        self.active.get(watch).is_none_or(|active| active.to.try_send(message).is_ok())
    }

    /// The watcher of this watch is not listened to any more, and none is wanted.
    pub(super) fn stop(&mut self, watch: &WatchKey) {
        self.active.remove(watch);
        self.wanted.remove(watch);
    }

    /// The watch behind a link, and the life it serves; `None` if it was closed meanwhile.
    pub(super) fn of(&self, link: u64) -> Option<(WatchKey, u32)> {
        let found = self.active.iter().find(|(_, active)| active.number == link);
        found.map(|(watch, active)| (watch.clone(), active.life))
    }

    pub(super) fn clear(&mut self) {
        self.active.clear();
        self.waiting.clear();
        self.wanted.clear();
    }
}

/// Carries what a watcher says into the branch's inbox; a full inbox lets the watcher wait.
async fn pump(link: u64, mut from: mpsc::Receiver<FromWatch>, inbox: mpsc::Sender<Inbound>) {
    loop {
        let message = from.recv().await;
        let last = message.is_none();
        if inbox.send(Inbound { link, message }).await.is_err() || last {
            return;
        }
    }
}

/// What a watcher says, in the engine's words; what is left out is nothing to the engine.
pub(super) fn event(watch: &WatchKey, message: FromWatch) -> Option<Event> {
    match message {
        FromWatch::Opening(opening) => Some(Event::Opening(opening)),
        FromWatch::Frame(frame) => Some(Event::Frame(frame)),
        FromWatch::Snapshot(snapshot) => Some(Event::Snapshot(snapshot)),
        FromWatch::Expired { opening, rewound } => Some(Event::Expired { opening, rewound }),
        FromWatch::Health(health) => Some(Event::Health(watch.clone(), health)),
        FromWatch::LeftOut(_) => None,
    }
}
