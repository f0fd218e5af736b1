//! The owner's wishes change while the conversation runs.

use tokio::time::{Instant, sleep_until};

use super::{Conversation, Step};
use crate::tasks::watch::frames::{FULL_PAUSE, FrameSender};
use crate::tasks::watch::link::{FromWatch, Subscribe, ToWatch};

impl Conversation<'_> {
    /// Other subscriptions: what was matched so far goes out in the old stream, then a new one is opened.
    pub(super) async fn update(&mut self, mut subscribe: Subscribe) -> Step<()> {
        loop {
            while !self.sender.is_idle() {
                if let Some(frame) = self.sender.next(&self.opening) {
                    self.report(FromWatch::Frame(frame)).await?;
                }
                let wake = self.sender.again_at.unwrap_or_else(|| Instant::now() + FULL_PAUSE);
                tokio::select! {
                    message = self.hear() => if let Some(newer) = self.while_updating(message?) {
                        subscribe = newer;
                    },
                    () = sleep_until(wake) => {}
                }
            }
            self.opening = self.context.open(subscribe.scope_hash);
            self.names.clone_from(&subscribe.names);
            self.subscribed.reopen(subscribe.subscriptions, subscribe.names);
            self.sender = FrameSender::after(self.sender.cursor.clone());
            self.report(FromWatch::Opening(self.opening.clone())).await?;
            match self.wait_for_continue().await? {
                None => return Ok(()),
                Some(newer) => subscribe = newer,
            }
        }
    }

    /// Newer subscriptions, if that is what came.
    fn while_updating(&mut self, message: ToWatch) -> Option<Subscribe> {
        match message {
            ToWatch::Ack(stream, seq) if stream == self.opening.stream => self.sender.acked(seq),
            ToWatch::Hold(stream, seq) if stream == self.opening.stream => self.sender.held(seq),
            ToWatch::Subscribe(subscribe) => return Some(subscribe),
            ToWatch::Backfill(opening, scopes) => self.backfill(opening, scopes),
            ToWatch::Ack(..)
            | ToWatch::Hold(..)
            | ToWatch::Begin(..)
            | ToWatch::Continue(_)
            | ToWatch::Stale(_) => {}
        }
        None
    }

    async fn wait_for_continue(&mut self) -> Step<Option<Subscribe>> {
        loop {
            match self.hear().await? {
                ToWatch::Continue(opening) if opening == self.opening => return Ok(None),
                ToWatch::Subscribe(subscribe) => return Ok(Some(subscribe)),
                ToWatch::Backfill(opening, scopes) => self.backfill(opening, scopes),
                ToWatch::Continue(_)
                | ToWatch::Begin(..)
                | ToWatch::Ack(..)
                | ToWatch::Hold(..)
                | ToWatch::Stale(_) => {}
            }
        }
    }
}
