//! What can a test ask a Git server to get wrong? In: a kind of request, how often. Out: the fault that strikes it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use super::lock;

/// Which requests a fault concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// `GET …/info/refs?service=git-upload-pack`
    UploadPackRefs,
    /// `POST …/git-upload-pack`
    UploadPack,
    /// `GET …/info/refs?service=git-receive-pack`
    ReceivePackRefs,
    /// `POST …/git-receive-pack`
    ReceivePack,
    /// Anything else.
    Other,
}

/// What happens instead of, or around, the real answer.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Answer with this status, and with `Retry-After` in seconds.
    Refuse {
        /// The HTTP status.
        status: u16,
        /// Value of the `Retry-After` header.
        retry_after: Option<u64>,
    },
    /// Answer with a 301 to this address.
    Redirect {
        /// Value of the `Location` header.
        location: String,
    },
    /// Wait before asking the backend.
    Delay(Duration),
    /// Never answer; the request ends when the client or the server goes away.
    Hang,
    /// Read the request, close the connection, do not run the backend.
    CutBeforeBackend,
    /// Run the backend to its end, then close the connection without an answer.
    CutAfterBackend,
    /// Stop before the backend until the gate opens.
    HoldBeforeBackend(Gate),
    /// Run the backend, then stop before the answer until the gate opens.
    HoldAfterBackend(Gate),
}

/// How often a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// The next matching request only.
    Once,
    /// Every matching request until the faults are cleared.
    Always,
}

/// A stop that a request runs into and a test opens.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<GateInner>);

#[derive(Debug, Default)]
struct GateInner {
    reached: Mutex<bool>,
    changed: Condvar,
    open: AtomicBool,
    opened: Notify,
}

impl Gate {
    /// A closed gate.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Blocks until a request stands at the gate; false when none came within `limit`.
    #[must_use]
    pub fn wait_reached(&self, limit: Duration) -> bool {
        let reached = lock(&self.0.reached);
        let (reached, _) = self
            .0
            .changed
            .wait_timeout_while(reached, limit, |reached| !*reached)
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        *reached
    }

    /// Lets the request through, now or when it comes.
    pub fn open(&self) {
        self.0.open.store(true, Ordering::SeqCst);
        self.0.opened.notify_waiters();
    }

    pub(super) async fn pass(&self) {
        let opened = self.0.opened.notified();
        tokio::pin!(opened);
        opened.as_mut().enable();
        *lock(&self.0.reached) = true;
        self.0.changed.notify_all();
        if !self.0.open.load(Ordering::SeqCst) {
            opened.await;
        }
    }
}
