//! What gathers for the next frame of a stream, and the one that is in flight.

use std::time::Duration;

use tokio::time::Instant;
use upriver_engine::branch::{WatchFrame, WatchedEvent};
use upriver_model::ResourceVersion;
use upriver_store::Opening;

/// A heartbeat with a sequence number finds gaps on idle branches (F24).
const PROGRESS: Duration = Duration::from_secs(10);
/// Events and bytes that gather behind an unacknowledged frame.
const FRAME_EVENTS: usize = 256;
const FRAME_BYTES: usize = 2 << 20;
/// About what an event takes beside its payload, and each subscription that wants it. Names have at most 253 bytes each.
const EVENT_BYTES: usize = 1 << 10;
const SCOPE_BYTES: usize = 512;
/// Pause before a frame that met a full journal is sent again.
pub(super) const FULL_PAUSE: Duration = Duration::from_secs(1);

/// Frames of one stream: what gathers, what is in flight.
#[derive(Default)]
pub(super) struct FrameSender {
    seq: u64,
    gathering: Vec<WatchedEvent>,
    gathered_bytes: usize,
    pub(super) cursor: Option<ResourceVersion>,
    pub(super) in_flight: Option<WatchFrame>,
    pub(super) again_at: Option<Instant>,
    last_sent: Option<Instant>,
}

impl FrameSender {
    /// The sender of a new stream, with what the old one had read.
    pub(super) fn after(cursor: Option<ResourceVersion>) -> Self {
        Self { cursor, ..Self::default() }
    }

    pub(super) fn is_full(&self) -> bool {
        self.gathering.len() >= FRAME_EVENTS || self.gathered_bytes >= FRAME_BYTES
    }

    pub(super) fn take(&mut self, rv: Option<ResourceVersion>, event: Option<WatchedEvent>) {
        if let Some(rv) = rv {
            self.cursor = Some(rv);
        }
        if let Some(event) = event {
            let payload = event.payload.as_ref().map_or(0, |payload| payload.len());
            self.gathered_bytes += payload + EVENT_BYTES + event.scopes.len() * SCOPE_BYTES;
            self.gathering.push(event);
        }
    }

    /// When a heartbeat is due; the first one is at once, it makes the cursor of a fresh list durable.
    pub(super) fn progress_at(&self, now: Instant) -> Instant {
        self.last_sent.map_or(now, |sent| sent + PROGRESS)
    }

    /// The next frame, if one may and should be sent now.
    pub(super) fn next(&mut self, opening: &Opening) -> Option<WatchFrame> {
        let now = Instant::now();
        if self.in_flight.is_some() {
            let again = self.again_at.is_some_and(|at| now >= at);
            return if again {
                self.again_at = None;
                self.in_flight.clone()
            } else {
                None
            };
        }
        if self.gathering.is_empty() && now < self.progress_at(now) {
            return None;
        }
        self.seq += 1;
        self.gathered_bytes = 0;
        self.last_sent = Some(now);
        let frame = WatchFrame {
            opening: opening.clone(),
            seq: self.seq,
            cursor: self.cursor.clone(),
            events: std::mem::take(&mut self.gathering),
        };
        self.in_flight = Some(frame.clone());
        Some(frame)
    }

    pub(super) fn acked(&mut self, seq: u64) {
        if self.in_flight.as_ref().is_some_and(|frame| frame.seq == seq) {
            self.in_flight = None;
            self.again_at = None;
        }
    }

    pub(super) fn held(&mut self, seq: u64) {
        if self.in_flight.as_ref().is_some_and(|frame| frame.seq == seq) {
            self.again_at = Some(Instant::now() + FULL_PAUSE);
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.gathering.is_empty() && self.in_flight.is_none()
    }
}

#[cfg(test)]
mod tests {
    use upriver_model::{Author, Gvr, ObjectKey, Operation, Scope, TargetScope, TargetUid};

    use super::*;

    fn wanted_by(subscriptions: usize) -> WatchedEvent {
        let scope = TargetScope {
            target: TargetUid::new("target"),
            gvr: Gvr::new("", "v1", "configmaps"),
            scope: Scope::Cluster,
        };
        WatchedEvent {
            scopes: vec![scope; subscriptions],
            key: ObjectKey::new("shop", "a"),
            kind: "ConfigMap".into(),
            uid: "u".into(),
            rv: ResourceVersion::new("1"),
            operation: Operation::Delete,
            payload: None,
            author: Author::NotAttempted,
            observed_at_ms: 0,
        }
    }

    #[test]
    fn a_frame_that_many_subscriptions_want_stays_below_the_size_of_one_message() {
        let mut sender = FrameSender::default();
        let mut events = 0;
        while !sender.is_full() {
            sender.take(None, Some(wanted_by(1000)));
            events += 1;
        }
        assert!((2..=8).contains(&events), "{events} events of 1000 subscriptions each");
    }
}
