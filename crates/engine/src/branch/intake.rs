//! From a watcher's frame to a window: entries get their ids, become durable, are held, covered or applied.

use upriver_model::{Entry, StoredEntry, TargetScope};
use upriver_store::{AppendReply, Frame, FrameEntry, Opening};

use super::streams::{PendingFrame, scope_hash};
use super::{Branch, Command, WatchFrame};
use crate::time::Tick;

impl Branch {
    pub(super) fn frame(&mut self, frame: WatchFrame) {
        let Some(watch) = self.watches.get(&frame.opening.watch) else { return };
        if !watch.is_open_as(&frame.opening) {
            return;
        }
        let mut entries = Vec::new();
        for event in frame.events {
            for scope in &event.scopes {
                let id = self.fresh_entry();
                entries.push(FrameEntry {
                    id,
                    scope: scope.clone(),
                    entry: Entry {
                        schema: Entry::SCHEMA,
                        target: scope.target.clone(),
                        gvr: scope.gvr.clone(),
                        kind: event.kind.clone(),
                        scope: scope.scope.clone(),
                        key: event.key.clone(),
                        uid: event.uid.clone(),
                        rv: event.rv.clone(),
                        operation: event.operation,
                        payload: event.payload.clone(),
                        author: event.author.clone(),
                        observed_at_ms: event.observed_at_ms,
                    },
                });
            }
        }
        self.pending_frames.push_back(PendingFrame {
            opening: frame.opening.clone(),
            seq: frame.seq,
            entries: entries.clone(),
        });
        self.out.push(Command::Append(Frame {
            opening: frame.opening,
            seq: frame.seq,
            cursor: frame.cursor,
            entries,
        }));
    }

    pub(super) fn appended(&mut self, now: Tick, reply: AppendReply) {
        let Some(pending) = self.pending_frames.pop_front() else { return };
        match reply {
            AppendReply::Appended { stamped_ms, kept } => {
                self.full = self.full && pending.entries.is_empty();
                self.out.push(Command::Ack(pending.opening, pending.seq));
                for (item, kept) in pending.entries.into_iter().zip(kept) {
                    if kept {
                        self.durable(
                            now,
                            StoredEntry { id: item.id, stamped_ms, entry: item.entry },
                            &item.scope,
                        );
                    }
                }
            }
            AppendReply::Duplicate => self.out.push(Command::Ack(pending.opening, pending.seq)),
            AppendReply::Full => {
                self.full = true;
                if self.wants_other(&pending.opening) {
                    // It would match anew only after this frame, which waits for room, which waits for the list of a scope
                    // that is not matched yet. Its cursor has not moved: nothing is lost by starting it over.
                    self.restart_watch(&pending.opening.watch);
                } else {
                    self.out.push(Command::Hold(pending.opening, pending.seq));
                }
            }
            AppendReply::Gap | AppendReply::Stale | AppendReply::Rescope => {
                let current = self.watches.get(&pending.opening.watch);
                if current.is_some_and(|watch| watch.is_open_as(&pending.opening)) {
                    self.restart_watch(&pending.opening.watch);
                }
            }
        }
    }

    /// True if the subscriptions of a watch have changed since this stream was opened.
    fn wants_other(&self, opening: &Opening) -> bool {
        let current = self.watches.get(&opening.watch).is_some_and(|watch| watch.is_open_as(opening));
        current && scope_hash(&self.subscriptions_of(&opening.watch)) != opening.scope_hash
    }

    fn durable(&mut self, now: Tick, stored: StoredEntry, scope: &TargetScope) {
        self.ledger.owe(stored.id, stored.entry.size() as u64, stored.stamped_ms);
        match self.scopes.get_mut(scope) {
            // The stream is behind a list that was taken beside it, maybe with the object deleted and made anew since:
            // another uid, so the store's guard lets it through.
            Some(state) if state.is_covered(&stored) => self.ledger.pass(stored.id, &stored.entry.target),
            Some(state) if !state.settled => state.held.push(stored),
            Some(_) => self.apply(now, stored),
            // Deselected while the frame was on its way: configuration is not a deletion, the file stays.
            None => self.ledger.pass(stored.id, &stored.entry.target),
        }
    }

    /// A live entry joins its window. Under `prune.mode: Never` a delete removes nothing and passes.
    pub(super) fn apply(&mut self, now: Tick, stored: StoredEntry) {
        let never = self.plans.get(&stored.entry.target).is_some_and(|plan| plan.never_prune);
        if never && stored.entry.payload.is_none() {
            self.ledger.pass(stored.id, &stored.entry.target);
            return;
        }
        let closed = self.windows.add(now, stored);
        self.enqueue(closed);
    }
}
