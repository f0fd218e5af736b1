//! Replays: a complete list against the inventory, one unit per scope; and what settling a scope releases.

use std::collections::{BTreeMap, BTreeSet};

use upriver_model::{Author, IdSet, ObjectKey, Operation, Seen, TargetScope, TargetUid, WatchKey};
use upriver_store::{Clear, ClearReply};

use super::{Branch, Command, Member, Replayed, Snapshot, Unit, UnitKind};
use crate::time::Tick;
use crate::window::Change;

/// A list whose inventory is being read.
#[derive(Debug)]
pub(super) struct PendingReplay {
    scope: TargetScope,
    generation: u64,
    snapshot: std::sync::Arc<Snapshot>,
}

impl PendingReplay {
    pub(super) fn scope(&self) -> &TargetScope {
        &self.scope
    }

    pub(super) fn target(&self) -> &TargetUid {
        &self.scope.target
    }

    pub(super) fn watch(&self) -> &WatchKey {
        &self.snapshot.opening.watch
    }
}

impl Branch {
    /// New obligations for scopes: durable first, so that a replay which began earlier cannot clear them (F4).
    pub(super) fn raise(&mut self, scopes: Vec<TargetScope>) {
        let watches: BTreeSet<WatchKey> = scopes
            .iter()
            .filter_map(|key| self.scopes.get(key).map(|scope| scope.subscription.watch.clone()))
            .collect();
        self.mark_dirty(scopes);
        for watch in watches {
            self.backfill(&watch);
        }
    }

    pub(super) fn mark_dirty(&mut self, scopes: Vec<TargetScope>) {
        if scopes.is_empty() {
            return;
        }
        for key in &scopes {
            if let Some(scope) = self.scopes.get_mut(key) {
                scope.settled = false;
                scope.generation += 1;
                scope.listing = None;
            }
        }
        self.out.push(Command::Raise(scopes));
    }

    /// The store's count is the true one; ours is behind only after a loss.
    pub(super) fn raised(&mut self, scopes: Vec<TargetScope>, generations: Vec<u64>) {
        for (key, generation) in scopes.into_iter().zip(generations) {
            if let Some(scope) = self.scopes.get_mut(&key) {
                let behind = generation.saturating_sub(scope.generation);
                scope.generation += behind;
                scope.listing = scope.listing.map(|listing| listing + behind);
            }
        }
    }

    pub(super) fn snapshot(&mut self, snapshot: Snapshot) {
        let current = self.watches.get(&snapshot.opening.watch).map(|watch| &watch.opening);
        // A backfill may outlive an update of its watch's subscriptions, but never a restart: same epoch, same begin.
        let fits = current.is_some_and(|opening| {
            *opening == snapshot.opening
                || (!snapshot.scopes.is_empty() && opening.stream >= snapshot.opening.stream)
        });
        if !fits {
            return;
        }
        let snapshot = std::sync::Arc::new(snapshot);
        let whole = snapshot.scopes.is_empty();
        let asked: BTreeSet<&TargetScope> = snapshot.scopes.iter().collect();
        let mut pending = Vec::new();
        for (key, scope) in &self.scopes {
            let meant = scope.subscription.watch == snapshot.opening.watch && (whole || asked.contains(key));
            if let (true, false, Some(generation)) = (meant, scope.settled, scope.listing) {
                pending.push(PendingReplay { scope: key.clone(), generation, snapshot: snapshot.clone() });
            }
        }
        for replay in pending {
            self.out.push(Command::ReadInventory(replay.scope.clone()));
            self.pending_replays.push(replay);
        }
    }

    pub(super) fn inventory(&mut self, key: &TargetScope, seen: BTreeMap<ObjectKey, Seen>) {
        let Some(index) = self.pending_replays.iter().position(|replay| replay.scope == *key) else { return };
        let replay = self.pending_replays.remove(index);
        let Some(scope) = self.scopes.get(key) else { return };
        let never = self.plans.get(&key.target).is_none_or(|plan| plan.never_prune);
        let spec_hash = scope.subscription.spec_hash.clone();
        let kind = scope.subscription.kind.clone();
        let unit = replay_unit(&replay, &seen, never, &kind, spec_hash);
        // Windows close first, so that commits stay in order (W2.18).
        let closed = self.windows.close_targets(&BTreeSet::from([key.target.clone()]));
        self.enqueue(closed);
        self.queue.push_back(unit);
    }

    /// The files of a replay are in the remote: make the scope settled.
    pub(super) fn clear(&mut self, replayed: &Replayed) {
        self.out.push(Command::Clear(Box::new(Clear {
            scope: replayed.scope.clone(),
            generation: replayed.generation,
            spec_hash: replayed.spec_hash.to_string(),
            // Streams of one epoch begin in this process; a list of an earlier stream was refused in `snapshot`.
            opening: None,
            list_rv: replayed.list_rv.clone(),
            inventory: replayed.inventory.clone(),
        })));
        if let Some(scope) = self.scopes.get_mut(&replayed.scope) {
            // What the list covers is passed; what came after it waits for the answer.
            let (covered, later) = std::mem::take(&mut scope.held).into_iter().partition(|stored| {
                match (stored.entry.rv.number(), replayed.list_rv.number()) {
                    (Some(entry), Some(list)) => entry <= list,
                    (None, _) | (_, None) => false,
                }
            });
            scope.held = later;
            let covered: Vec<_> = covered;
            for stored in covered {
                self.ledger.pass(stored.id, &stored.entry.target);
            }
        }
    }

    pub(super) fn cleared(&mut self, now: Tick, key: &TargetScope, reply: ClearReply) {
        let Some(scope) = self.scopes.get_mut(key) else { return };
        let watch = scope.subscription.watch.clone();
        let paid = scope.listing.take();
        match reply {
            ClearReply::Cleared if paid == Some(scope.generation) => {
                scope.settled = true;
                for stored in std::mem::take(&mut scope.held) {
                    self.apply(now, stored);
                }
            }
            ClearReply::Raised(generation) => {
                scope.generation = scope.generation.max(generation);
                self.backfill(&watch);
            }
            ClearReply::Cleared | ClearReply::Stale => self.backfill(&watch),
        }
    }
}

fn replay_unit(
    replay: &PendingReplay,
    seen: &BTreeMap<ObjectKey, Seen>,
    never: bool,
    kind: &str,
    spec_hash: Box<str>,
) -> Unit {
    let snapshot = &replay.snapshot;
    let members: Vec<&Member> =
        snapshot.members.iter().filter(|member| replay.scope.scope.covers(&member.key.namespace)).collect();
    let mut changes: Vec<Change> = members
        .iter()
        .filter(|member| member.payload.is_some())
        .map(|member| Change {
            gvr: replay.scope.gvr.clone(),
            kind: member.kind.clone(),
            key: member.key.clone(),
            operation: Operation::Update,
            payload: member.payload.clone(),
        })
        .collect();
    if !never {
        let listed: BTreeSet<&ObjectKey> = members.iter().map(|member| &member.key).collect();
        let gone = seen.iter().filter(|(key, seen)| !listed.contains(key) && deleted_by(seen, snapshot));
        changes.extend(gone.map(|(key, _)| Change {
            gvr: replay.scope.gvr.clone(),
            kind: kind.into(),
            key: key.clone(),
            operation: Operation::Delete,
            payload: None,
        }));
    }
    let inventory = members
        .iter()
        .map(|member| {
            let seen = Seen { uid: member.uid.clone(), rv: member.rv.clone(), deleted: false };
            (member.key.clone(), seen)
        })
        .collect();
    Unit {
        target: replay.scope.target.clone(),
        author: Author::NotAttempted,
        kind: UnitKind::Replay(Box::new(Replayed {
            scope: replay.scope.clone(),
            generation: replay.generation,
            spec_hash,
            opening: snapshot.opening.clone(),
            list_rv: snapshot.list_rv.clone(),
            inventory,
        })),
        changes,
        entries: IdSet::new(),
        time_ms: snapshot.time_ms,
    }
}

/// Seen live before, not in the complete list: it is gone. A live event after the list speaks for itself.
fn deleted_by(seen: &Seen, snapshot: &Snapshot) -> bool {
    match (seen.rv.number(), snapshot.list_rv.number()) {
        (Some(seen), Some(list)) => seen <= list,
        (None, _) | (_, None) => true,
    }
}
