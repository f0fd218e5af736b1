//! Kubernetes Events about our own objects, as `kubectl describe` lists them.
//!
//! In: [`Notice`]s. Out: Events of `events.k8s.io`, one per (object, type, reason), repeated ones counted in its series, so
//! that a flapping condition costs two Events and not hundreds. They are a courtesy: a full queue or a refused write loses
//! one and disturbs nobody.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Every object of a few hundred may change at once; beyond that an Event tells nobody anything.
const QUEUE: usize = 512;
/// What the API server takes as a note, in bytes.
const NOTE_MAX: usize = 1024;

/// Whether something is as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// It is.
    Normal,
    /// Somebody should look.
    Warning,
}

/// Something to tell about an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    /// The object.
    pub regarding: ObjectReference,
    /// Its type.
    pub tone: Tone,
    /// One word for machines.
    pub reason: String,
    /// For a person; cut at 1024 bytes.
    pub note: String,
}

/// Where notices are left; clones share one queue.
#[derive(Clone, Debug)]
pub struct Events {
    queue: mpsc::Sender<Notice>,
}

impl Events {
    /// A queue, and the task that writes what is in it until `stop`. `controller` and `instance` sign the Events.
    pub fn new(
        client: Client,
        controller: &str,
        instance: Option<String>,
        stop: CancellationToken,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (queue, notices) = mpsc::channel(QUEUE);
        let reporter = Reporter { controller: controller.to_owned(), instance };
        let writer = Writer { recorder: Recorder::new(client.clone(), reporter.clone()), client, reporter };
        (Self { queue }, writer.run(notices, stop))
    }

    /// Leaves a notice. Never waits; a full queue drops it.
    pub fn tell(&self, notice: Notice) {
        if let Err(error) = self.queue.try_send(notice) {
            tracing::debug!(%error, "an Event is left out");
        }
    }
}

struct Writer {
    client: Client,
    reporter: Reporter,
    recorder: Recorder,
}

impl Writer {
    async fn run(mut self, mut notices: mpsc::Receiver<Notice>, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                notice = notices.recv() => match notice {
                    Some(notice) => self.write(notice).await,
                    None => return,
                },
            }
        }
    }

    async fn write(&mut self, notice: Notice) {
        let type_ = match notice.tone {
            Tone::Normal => EventType::Normal,
            Tone::Warning => EventType::Warning,
        };
        let event = Event {
            type_,
            reason: notice.reason,
            note: Some(cut(notice.note)),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        let mut written = self.recorder.publish(&event, &notice.regarding).await;
        if matches!(&written, Err(kube::Error::Api(status)) if status.code == 404) {
            // The Event whose series would be counted on has expired: begin anew.
            self.recorder = Recorder::new(self.client.clone(), self.reporter.clone());
            written = self.recorder.publish(&event, &notice.regarding).await;
        }
        if let Err(error) = written {
            tracing::debug!(reason = event.reason, %error, "an Event was not written");
        }
    }
}

/// Cuts between two characters.
fn cut(mut note: String) -> String {
    if note.len() > NOTE_MAX {
        let end = (0..=NOTE_MAX).rev().find(|end| note.is_char_boundary(*end)).unwrap_or(0);
        note.truncate(end);
    }
    note
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_note_is_cut_between_two_characters() {
        assert_eq!(cut("short".to_owned()), "short");
        let long = cut(format!("a{}", "\u{e4}".repeat(1000)));
        assert_eq!(long.len(), 1023);
    }
}
