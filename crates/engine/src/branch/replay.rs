//! Replays: a complete list against the inventory, one unit per scope; and what settling a scope releases.

use std::collections::{BTreeMap, BTreeSet};

use upriver_model::{
    Author, IdSet, ObjectKey, Operation, ResourceVersion, Seen, TargetScope, TargetUid, WatchKey,
};
use upriver_store::{Clear, ClearReply};

use super::streams::{Listing, StreamOrder, covered, order_of};
use super::{Branch, Command, Member, Replayed, Snapshot, Unit, UnitKind};
use crate::time::Tick;
use crate::window::Change;

/// A list whose inventory is being read.
#[derive(Clone, Debug)]
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

/// What a Clear command on its way is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clearing {
    /// The inventory only, or a scope that has left the selection since.
    Inventory,
    /// The obligation of this generation.
    Obligation(u64),
}

/// What a "settled" record says: the specification that was paid, and the version of the list that paid it. Both stand in
/// the record's text, so that a successor knows which entries the list covers (F3d).
pub(super) struct Paid<'a> {
    pub(super) spec_hash: &'a str,
    pub(super) list_rv: Option<ResourceVersion>,
}

impl<'a> Paid<'a> {
    /// No specification: the inventory is recorded, the files are not in the remote yet.
    const REPLAYING: &'static str = "replaying";
    /// The same, and the list has to ask our own commits too (F27).
    pub(super) const RECLAIMING: &'static str = "reclaiming";

    pub(super) fn parse(text: &'a str) -> Self {
        match text.rsplit_once('@') {
            Some((spec_hash, list_rv)) => Self { spec_hash, list_rv: Some(ResourceVersion::new(list_rv)) },
            None => Self { spec_hash: text, list_rv: None },
        }
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
                // A list on its way is waited for, and not used; one that is here pays nothing any more.
                if let Listing::Taken { .. } = scope.listing {
                    scope.listing = Listing::Idle;
                }
            }
        }
        let anew = scopes.iter().any(|key| self.scopes.get(key).is_some_and(|scope| scope.reclaim));
        self.out.push(Command::Raise(scopes, anew));
    }

    /// The store's count is the true one; ours is behind only after a loss.
    pub(super) fn raised(&mut self, scopes: Vec<TargetScope>, generations: Vec<u64>) {
        for (key, generation) in scopes.into_iter().zip(generations) {
            let Some(scope) = self.scopes.get_mut(&key) else { continue };
            let behind = generation.saturating_sub(scope.generation);
            scope.generation += behind;
            scope.listing.shift(behind);
            for replay in self.pending_replays.iter_mut().filter(|replay| replay.scope == key) {
                replay.generation += behind;
            }
            for replayed in self.replays_mut().filter(|replayed| replayed.scope == key) {
                replayed.generation += behind;
            }
        }
    }

    pub(super) fn snapshot(&mut self, snapshot: Snapshot) {
        // A backfill may outlive an update of its watch's subscriptions, but never its watcher.
        let fits = self.watches.get(&snapshot.opening.watch).is_some_and(|watch| {
            watch.is_open_as(&snapshot.opening)
                || (!snapshot.scopes.is_empty() && watch.had_opened(&snapshot.opening))
        });
        if !fits {
            return;
        }
        let snapshot = std::sync::Arc::new(snapshot);
        let asked: BTreeSet<&TargetScope> = snapshot.scopes.iter().collect();
        let mut pending = Vec::new();
        for (key, scope) in &mut self.scopes {
            let here = scope.subscription.watch == snapshot.opening.watch;
            let Listing::Asked { generation, whole } = scope.listing else { continue };
            if !here || whole != asked.is_empty() || !(whole || asked.contains(key)) {
                continue;
            }
            if generation == scope.generation {
                scope.listing = Listing::Taken { generation };
                pending.push(PendingReplay { scope: key.clone(), generation, snapshot: snapshot.clone() });
            } else {
                scope.listing = Listing::Idle;
            }
        }
        self.backfill(&snapshot.opening.watch);
        for replay in pending {
            self.out.push(Command::ReadInventory(replay.scope.clone()));
            self.pending_replays.push(replay);
        }
    }

    pub(super) fn inventory(&mut self, key: &TargetScope, seen: BTreeMap<ObjectKey, Seen>) {
        let Some(index) = self.pending_replays.iter().position(|replay| replay.scope == *key) else { return };
        let replay = self.pending_replays.remove(index);
        let Some(scope) = self.scopes.get_mut(key) else { return };
        if scope.listing != (Listing::Taken { generation: replay.generation }) {
            // A newer obligation asks for a newer list.
            return;
        }
        let never = self.plans.get(&key.target).is_none_or(|plan| plan.never_prune);
        let spec_hash = scope.subscription.spec_hash.clone();
        let kind = scope.subscription.kind.clone();
        let reclaim = (scope.reclaim && !never).then_some(self.losses);
        let unit = replay_unit(&replay, &seen, never, reclaim, (&kind, spec_hash));
        self.record(&replay, seen, &unit);
        // Windows close first, so that commits stay in order (W2.18).
        let closed = self.windows.close_targets(&BTreeSet::from([key.target.clone()]));
        self.enqueue(closed);
        self.queue.push_back(unit);
    }

    /// What the list holds is in the inventory before its files are in the remote: if we end between the push and its
    /// settlement, or the settlement is refused, an object that is deleted meanwhile is still known to have a file.
    fn record(&mut self, replay: &PendingReplay, seen: BTreeMap<ObjectKey, Seen>, unit: &Unit) {
        let mut inventory = seen;
        if let UnitKind::Replay(replayed) = &unit.kind {
            inventory.extend(replayed.inventory.iter().cloned());
        }
        let (inventory, list_rv) = (inventory.into_iter().collect(), replay.snapshot.list_rv.clone());
        self.put_inventory(&replay.scope, list_rv, inventory);
    }

    /// What our commits wrote there may be more than the inventory knows (F27).
    pub(super) fn reclaim(&mut self, scopes: &[TargetScope]) {
        self.losses += 1;
        for key in scopes {
            if let Some(scope) = self.scopes.get_mut(key) {
                scope.reclaim = true;
            }
        }
    }

    /// The source went back in time: what was seen there says nothing about the versions to come.
    pub(super) fn drop_guards(&mut self, key: &TargetScope, stream: StreamOrder) {
        // Not a number: nothing that is stored counts as newer.
        self.put_inventory(key, ResourceVersion::new(""), Vec::new());
        if let Some(scope) = self.scopes.get_mut(key) {
            scope.list_rv = None;
            scope.rewound_in = stream;
        }
    }

    fn put_inventory(
        &mut self,
        key: &TargetScope,
        list_rv: ResourceVersion,
        inventory: Vec<(ObjectKey, Seen)>,
    ) {
        let Some(scope) = self.scopes.get(key) else { return };
        let spec_hash = if scope.reclaim { Paid::RECLAIMING } else { Paid::REPLAYING };
        self.clears.push_back((key.clone(), Clearing::Inventory));
        self.out.push(Command::Clear(Box::new(Clear {
            scope: key.clone(),
            generation: scope.generation,
            spec_hash: spec_hash.to_owned(),
            opening: None,
            list_rv,
            inventory,
        })));
    }

    /// The files of a replay are in the remote: make the scope settled.
    pub(super) fn clear(&mut self, replayed: &Replayed) {
        self.out.push(Command::Clear(Box::new(Clear {
            scope: replayed.scope.clone(),
            generation: replayed.generation,
            spec_hash: format!("{}@{}", replayed.spec_hash, replayed.list_rv),
            // A list of an earlier stream was refused in `snapshot`.
            opening: None,
            list_rv: replayed.list_rv.clone(),
            inventory: replayed.inventory.clone(),
        })));
        self.clears.push_back((replayed.scope.clone(), Clearing::Obligation(replayed.generation)));
        if let Some(scope) = self.scopes.get_mut(&replayed.scope)
            && order_of(&replayed.opening) > scope.rewound_in
        {
            // What the list covers is passed; what came after it waits for the answer.
            scope.list_rv = Some(replayed.list_rv.clone());
            let held = std::mem::take(&mut scope.held);
            let (covered, later): (Vec<_>, Vec<_>) =
                held.into_iter().partition(|stored| covered(stored, &replayed.list_rv));
            scope.held = later;
            for stored in covered {
                self.ledger.pass(stored.id, &stored.entry.target);
            }
        }
    }

    pub(super) fn cleared(&mut self, now: Tick, key: &TargetScope, reply: ClearReply) {
        // The store answers in order.
        let Some((_, Clearing::Obligation(paid))) = self.clears.pop_front() else { return };
        let Some(scope) = self.scopes.get_mut(key) else { return };
        let watch = scope.subscription.watch.clone();
        // An answer to an older list says nothing about the one that is under way.
        if paid != scope.generation {
            return;
        }
        scope.listing = Listing::Idle;
        match reply {
            ClearReply::Cleared => {
                scope.settled = true;
                scope.reclaim = false;
                for stored in std::mem::take(&mut scope.held) {
                    self.apply(now, stored);
                }
            }
            ClearReply::Raised(generation) => {
                // No obligation came after this Clear: the store's count is the present one.
                scope.generation = generation;
                self.backfill(&watch);
            }
            ClearReply::Stale => self.backfill(&watch),
        }
    }
}

fn replay_unit(
    replay: &PendingReplay,
    seen: &BTreeMap<ObjectKey, Seen>,
    never: bool,
    reclaim: Option<u32>,
    (kind, spec_hash): (&str, Box<str>),
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
            kind: kind.into(),
            generation: replay.generation,
            spec_hash,
            opening: snapshot.opening.clone(),
            list_rv: snapshot.list_rv.clone(),
            inventory,
            reclaim,
            void: false,
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
