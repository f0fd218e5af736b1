//! Where watchers find the owners of branches: in this process by its desk, elsewhere through a peer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{mpsc, watch};
use upriver_model::BranchKey;

use super::link::{Hello, OwnerEnd, WatcherEnd, pair};

/// Links that wait to be taken by the owner of a branch.
const WAITING: usize = 64;

/// The branches that this process owns, by key.
#[derive(Clone)]
pub(crate) struct Desk {
    open: Arc<Mutex<BTreeMap<BranchKey, Counter>>>,
    changed: watch::Sender<u64>,
}

struct Counter {
    number: u64,
    links: mpsc::Sender<OwnerEnd>,
}

/// Open while it lives.
pub(crate) struct OpenDesk {
    desk: Desk,
    branch: BranchKey,
    number: u64,
}

impl Desk {
    pub(crate) fn new() -> Self {
        Self { open: Arc::default(), changed: watch::Sender::new(0) }
    }

    /// From now on watchers reach this owner.
    pub(crate) fn open(&self, branch: &BranchKey) -> (OpenDesk, mpsc::Receiver<OwnerEnd>) {
        let (links, taken) = mpsc::channel(WAITING);
        self.changed.send_modify(|number| *number += 1);
        let number = *self.changed.borrow();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.insert(branch.clone(), Counter { number, links });
        (OpenDesk { desk: self.clone(), branch: branch.clone(), number }, taken)
    }

    /// Hands a link to the owner of its branch.
    ///
    /// # Errors
    /// The link again, if the owner is not here or takes none at present.
    pub(crate) fn attach(&self, end: OwnerEnd) -> Result<(), OwnerEnd> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(counter) = open.get(&end.hello.branch) else { return Err(end) };
        counter.links.try_send(end).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(end) | mpsc::error::TrySendError::Closed(end) => end,
        })
    }

    /// Connects a watcher to an owner in this process.
    pub(crate) fn connect(&self, hello: &Hello) -> Option<WatcherEnd> {
        let (watcher, owner) = pair(hello.clone());
        self.attach(owner).is_ok().then_some(watcher)
    }

    /// Changes whenever an owner begins here.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

impl Drop for OpenDesk {
    fn drop(&mut self) {
        let mut open = self.desk.open.lock().unwrap_or_else(PoisonError::into_inner);
        // A later owner of the same branch may have opened already.
        if open.get(&self.branch).is_some_and(|counter| counter.number == self.number) {
            open.remove(&self.branch);
        }
    }
}
