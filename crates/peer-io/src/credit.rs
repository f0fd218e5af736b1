//! How many bytes may one side send, and how many does it owe to the other?
//!
//! Both counters belong to one direction of one conversation. A sender may send while any credit is left, so that a message
//! larger than the whole credit is no deadlock; the receiver grants what its application has taken.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use tokio::sync::Notify;

/// More than anybody grants; what a broken peer may add up to without an overflow.
const MOST: i64 = 1 << 40;

/// What we may still send.
#[derive(Debug, Default)]
pub(crate) struct Credit {
    left: AtomicI64,
    granted: Notify,
}

impl Credit {
    /// Adds a grant of the other side; false if the sum is absurd.
    pub(crate) fn grant(&self, bytes: u64) -> bool {
        let Some(bytes) = i64::try_from(bytes).ok().filter(|bytes| *bytes <= MOST) else { return false };
        let before = self.left.fetch_add(bytes, Ordering::AcqRel);
        self.granted.notify_one();
        before <= MOST
    }

    /// Waits for any credit to be left. For one task at a time.
    pub(crate) async fn any(&self) {
        while self.left.load(Ordering::Acquire) <= 0 {
            self.granted.notified().await;
        }
    }

    /// Spends, possibly more than is left.
    pub(crate) fn spend(&self, bytes: u64) {
        self.left.fetch_sub(i64::try_from(bytes).unwrap_or(MOST), Ordering::AcqRel);
    }
}

/// What the other side may send to us.
#[derive(Debug)]
pub(crate) struct Grants {
    window: u64,
    /// Arrived and not granted again.
    held: AtomicU64,
    /// Taken by the application, not granted yet.
    taken: AtomicU64,
    due: Notify,
}

impl Grants {
    pub(crate) fn new(window: u64) -> Self {
        Self { window, held: AtomicU64::new(0), taken: AtomicU64::new(0), due: Notify::new() }
    }

    /// A message has arrived; false if the other side had no credit for it.
    pub(crate) fn arrived(&self, bytes: u64) -> bool {
        self.held.fetch_add(bytes, Ordering::AcqRel) < self.window
    }

    /// The application has taken a message.
    pub(crate) fn taken(&self, bytes: u64) {
        let taken = self.taken.fetch_add(bytes, Ordering::AcqRel) + bytes;
        // In portions, not for each acknowledgement. The other side needs only some credit to go on, and always has the
        // rest of the window.
        if taken > self.window / 8 {
            self.due.notify_one();
        }
    }

    /// Waits for a portion to be due, and takes it.
    pub(crate) async fn due(&self) -> u64 {
        loop {
            self.due.notified().await;
            let bytes = self.taken.swap(0, Ordering::AcqRel);
            if bytes > 0 {
                self.held.fetch_sub(bytes, Ordering::AcqRel);
                return bytes;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn any_credit_lets_one_message_of_any_size_pass_and_debt_none() {
        let credit = Credit::default();
        assert!(credit.any().now_or_never().is_none());
        assert!(credit.grant(1));
        assert!(credit.any().now_or_never().is_some());
        credit.spend(100);
        assert!(credit.grant(99));
        assert!(credit.any().now_or_never().is_none(), "all of it was spent");
        assert!(credit.grant(1));
        assert!(credit.any().now_or_never().is_some());
        assert!(!credit.grant(u64::MAX), "no peer means that");
    }

    #[test]
    fn what_the_application_took_is_granted_in_portions_and_more_than_the_window_is_a_breach() {
        let grants = Grants::new(80);
        assert!(grants.arrived(10) && grants.arrived(100), "the last one may exceed it");
        assert!(!grants.arrived(1));
        grants.taken(10);
        assert!(grants.due().now_or_never().is_none(), "too little");
        grants.taken(100);
        assert_eq!(grants.due().now_or_never(), Some(110));
        assert!(grants.arrived(79) && grants.due().now_or_never().is_none());
    }
}
