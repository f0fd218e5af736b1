//! Watches, their streams, and the entries that come through them.

use std::collections::{BTreeMap, BTreeSet};

use upriver_model::{ResourceVersion, StoredEntry, TargetScope, TargetUid, WatchKey};
use upriver_store::{FrameEntry, Loaded, OpenReply, Opening};

use super::replay::{Clearing, Paid};
use super::{Branch, Command, Start, Subscription, WatchHealth};

/// One subscription and how far it is.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    pub(super) subscription: Subscription,
    /// Rises with every new obligation; a replay clears only the one it began with (F4).
    pub(super) generation: u64,
    pub(super) settled: bool,
    /// True once its watcher has said "matching from here"; only then may a list be asked for (F3c).
    pub(super) matched: bool,
    /// The list that will pay the present obligation, or an earlier one.
    pub(super) listing: Listing,
    /// Live entries of a dirty scope: journaled, but held until the list is in the remote (F3b).
    pub(super) held: Vec<StoredEntry>,
    /// Version of the last list whose files are in the remote: whatever is not above it is covered (F3d).
    pub(super) list_rv: Option<ResourceVersion>,
    /// The inventory does not know all that our commits wrote: the next list asks them too (F27).
    pub(super) reclaim: bool,
    /// Stream in which the source was found to have gone back: lists of it and before are of another time (F18).
    pub(super) rewound_in: StreamOrder,
}

/// Watch epoch and stream: orders all streams of one watch.
pub(super) type StreamOrder = (u64, u64);

pub(super) fn order_of(opening: &Opening) -> StreamOrder {
    (opening.watch_epoch, opening.stream)
}

impl Scope {
    /// True if a list that is in the remote holds this version, or a later one, of everything.
    pub(super) fn is_covered(&self, stored: &StoredEntry) -> bool {
        self.list_rv.as_ref().is_some_and(|list| covered(stored, list))
    }
}

/// Versions that are not numbers cover nothing.
pub(super) fn covered(stored: &StoredEntry, list: &ResourceVersion) -> bool {
    match (stored.entry.rv.number(), list.number()) {
        (Some(entry), Some(list)) => entry <= list,
        (None, _) | (_, None) => false,
    }
}

/// How far a list for a scope is. One at a time is on its way, so that an answer cannot be taken for that of another
/// question; the generation is the one before the LIST was sent (F4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listing {
    /// None is asked for.
    Idle,
    /// On its way: for the whole watch key, or beside the stream.
    Asked { generation: u64, whole: bool },
    /// Here: its inventory is read, or its unit waits for a push.
    Taken { generation: u64 },
}

impl Listing {
    /// The store's count is ahead of ours by so much.
    pub(super) fn shift(&mut self, behind: u64) {
        match self {
            Self::Idle => {}
            Self::Asked { generation, .. } | Self::Taken { generation } => *generation += behind,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchPhase {
    /// Waiting for its watcher to open the stream.
    Starting,
    /// The script is on its way; `begin` is false after an update of a running watch.
    Opening {
        begin: bool,
    },
    Running,
}

/// One watch of this branch.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    /// What its watcher was asked to match last.
    scope_hash: String,
    /// The stream that its watcher opened last; none before its first.
    opening: Option<Opening>,
    /// The first stream of its watcher: lists of an earlier one are of another watcher.
    first: StreamOrder,
    pub(super) phase: WatchPhase,
    /// True until the watcher has begun once with this stream's predecessor.
    pub(super) begun: bool,
    pub(super) health: WatchHealth,
}

impl Watch {
    fn wanted(scope_hash: String) -> Self {
        Self {
            scope_hash,
            opening: None,
            first: (0, 0),
            phase: WatchPhase::Starting,
            begun: false,
            health: WatchHealth::Replaying,
        }
    }

    /// True if this is its present stream.
    pub(super) fn is_open_as(&self, opening: &Opening) -> bool {
        self.opening.as_ref() == Some(opening)
    }

    /// True if its present watcher opened this stream, now or before.
    pub(super) fn had_opened(&self, opening: &Opening) -> bool {
        let last = self.opening.as_ref().map(order_of);
        last.is_some_and(|last| (self.first..=last).contains(&order_of(opening)))
    }
}

/// A frame on its way to the store.
#[derive(Clone, Debug)]
pub(super) struct PendingFrame {
    pub(super) opening: Opening,
    pub(super) seq: u64,
    pub(super) entries: Vec<FrameEntry>,
}

/// Hash of what a watch matches for a branch; frames of other subscriptions are refused (F3c).
#[must_use]
pub fn scope_hash(subscriptions: &[Subscription]) -> String {
    // FNV-1a, 64 bit: only equality counts, and it has to be the same in every replica and release.
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for subscription in subscriptions {
        let operations: Vec<&str> =
            subscription.operations.iter().map(|operation| operation.as_str()).collect();
        let text = format!("{}\t{}\t{}\n", subscription.scope, subscription.scope.gvr, operations.join(","));
        for byte in text.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    format!("{hash:016x}")
}

impl Branch {
    /// Brings scopes and watches in line with the plans. `loaded` is what the journal knew at the start of a life, which is
    /// when a scope without a record may be one whose record was lost.
    pub(super) fn install(&mut self, loaded: &Loaded, recovering: bool) {
        let wanted: BTreeMap<TargetScope, Subscription> = self
            .plans
            .values()
            .filter(|plan| !plan.suspended)
            .flat_map(|plan| &plan.subscriptions)
            .map(|subscription| (subscription.scope.clone(), subscription.clone()))
            .collect();
        self.remove_scopes(&wanted, &self.paused_scopes(), loaded);
        for (key, subscription) in wanted {
            self.put_scope(key, subscription, loaded, recovering);
        }
        self.align_watches(loaded);
    }

    /// A scope of a paused target becomes dirty and keeps its inventory, so that what is deleted meanwhile leaves Git with
    /// the list that follows the pause. One that left the selection is forgotten.
    fn remove_scopes(
        &mut self,
        wanted: &BTreeMap<TargetScope, Subscription>,
        paused: &BTreeSet<TargetScope>,
        loaded: &Loaded,
    ) {
        let gone: Vec<TargetScope> =
            self.scopes.keys().filter(|key| !wanted.contains_key(key)).cloned().collect();
        for key in gone {
            if let Some(scope) = self.scopes.remove(&key) {
                for stored in scope.held {
                    self.ledger.pass(stored.id, &stored.entry.target);
                }
            }
            self.pending_replays.retain(|replay| *replay.scope() != key);
            self.replays_mut()
                .filter(|replayed| replayed.scope == key)
                .for_each(|replayed| replayed.void = true);
            for (_, clearing) in self.clears.iter_mut().filter(|(scope, _)| *scope == key) {
                *clearing = Clearing::Inventory;
            }
            if paused.contains(&key) {
                self.out.push(Command::Raise(vec![key], false));
            } else {
                self.out.push(Command::Forget(key));
            }
        }
        // Records of scopes that were deselected while nobody ran: never trust them again (W1.28).
        let known: BTreeSet<String> = wanted.keys().chain(paused).map(TargetScope::as_key).collect();
        let recorded: BTreeSet<&String> = loaded.settled.keys().chain(loaded.generations.keys()).collect();
        for key in recorded.into_iter().filter(|key| !known.contains(*key)) {
            if let Some(scope) = parse_scope(key) {
                self.out.push(Command::Forget(scope));
            }
        }
    }

    fn put_scope(&mut self, key: TargetScope, subscription: Subscription, loaded: &Loaded, recovering: bool) {
        if let Some(scope) = self.scopes.get_mut(&key) {
            let changed = scope.subscription.spec_hash != subscription.spec_hash;
            scope.subscription = subscription;
            if changed {
                self.raise(vec![key]);
            }
            return;
        }
        let text = key.as_key();
        let generation = loaded.generations.get(&text).copied().unwrap_or(0);
        let paid =
            loaded.settled.get(&text).map(|record| (record.generation, Paid::parse(&record.spec_hash)));
        let settled = paid
            .as_ref()
            .is_some_and(|(of, paid)| *of == generation && paid.spec_hash == &*subscription.spec_hash);
        let reclaim = paid.as_ref().map_or(recovering, |(_, paid)| paid.spec_hash == Paid::RECLAIMING);
        let list_rv = paid.and_then(|(_, paid)| paid.list_rv);
        self.scopes.insert(
            key,
            Scope {
                subscription,
                generation,
                settled,
                matched: false,
                listing: Listing::Idle,
                held: Vec::new(),
                list_rv,
                reclaim,
                rewound_in: (0, 0),
            },
        );
    }

    fn align_watches(&mut self, loaded: &Loaded) {
        let mut wanted: BTreeMap<WatchKey, Vec<Subscription>> = BTreeMap::new();
        for scope in self.scopes.values() {
            wanted.entry(scope.subscription.watch.clone()).or_default().push(scope.subscription.clone());
        }
        let gone: Vec<WatchKey> =
            self.watches.keys().filter(|key| !wanted.contains_key(key)).cloned().collect();
        for key in gone {
            self.watches.remove(&key);
            self.out.push(Command::StopWatch(key.clone()));
            self.out.push(Command::DropCursor(key, true));
        }
        let unwanted =
            loaded.cursors.keys().filter(|text| !wanted.keys().any(|key| key.to_string() == **text));
        let unwanted: Vec<WatchKey> = unwanted.filter_map(|text| parse_watch(text)).collect();
        self.out.extend(unwanted.into_iter().map(|key| Command::DropCursor(key, true)));
        if self.draining {
            return;
        }
        for (key, subscriptions) in wanted {
            let hash = scope_hash(&subscriptions);
            match self.watches.get(&key) {
                None => self.start_watch(key, subscriptions, hash),
                Some(watch) if watch.scope_hash != hash => self.update_watch(&key, subscriptions, hash),
                Some(_) => {}
            }
        }
    }

    fn start_watch(&mut self, watch: WatchKey, subscriptions: Vec<Subscription>, scope_hash: String) {
        self.watches.insert(watch.clone(), Watch::wanted(scope_hash.clone()));
        self.out.push(Command::StartWatch { watch, subscriptions, scope_hash });
    }

    fn update_watch(&mut self, key: &WatchKey, subscriptions: Vec<Subscription>, scope_hash: String) {
        let Some(watch) = self.watches.get_mut(key) else { return };
        if watch.begun {
            watch.scope_hash.clone_from(&scope_hash);
            self.out.push(Command::UpdateWatch { watch: key.clone(), subscriptions, scope_hash });
        } else {
            self.out.push(Command::StopWatch(key.clone()));
            self.start_watch(key.clone(), subscriptions, scope_hash);
        }
    }

    /// Starts a watch over, from its cursor.
    pub(super) fn restart_watch(&mut self, key: &WatchKey) {
        let subscriptions = self.subscriptions_of(key);
        self.out.push(Command::StopWatch(key.clone()));
        self.watches.remove(key);
        let listed: BTreeSet<TargetScope> = self.replays_under_way();
        for (name, scope) in self.scopes.iter_mut().filter(|(_, scope)| scope.subscription.watch == *key) {
            // A list that waits for its push pays all the same; a second one of its generation would come out of order.
            if !listed.contains(name) {
                scope.listing = Listing::Idle;
            }
            scope.matched = false;
        }
        self.pending_replays.retain(|replay| replay.watch() != key);
        if !subscriptions.is_empty() && !self.draining {
            let hash = scope_hash(&subscriptions);
            self.start_watch(key.clone(), subscriptions, hash);
        }
    }

    pub(super) fn opening(&mut self, opening: Opening) {
        let Some(watch) = self.watches.get_mut(&opening.watch) else { return };
        let order = order_of(&opening);
        match &watch.opening {
            Some(last) if order <= order_of(last) => return,
            Some(_) => {}
            None => watch.first = order,
        }
        watch.phase = WatchPhase::Opening { begin: !watch.begun };
        watch.opening = Some(opening.clone());
        self.out.push(Command::Open(opening));
    }

    pub(super) fn opened(&mut self, opening: &Opening, reply: OpenReply) {
        let Some(watch) = self.watches.get_mut(&opening.watch) else { return };
        if !watch.is_open_as(opening) {
            return;
        }
        let cursor = match reply {
            OpenReply::Opened { cursor } => cursor,
            OpenReply::Stale { epoch } => {
                self.out.push(Command::StaleWatch { watch: opening.watch.clone(), epoch });
                self.restart_watch(&opening.watch);
                return;
            }
        };
        let begin = matches!(watch.phase, WatchPhase::Opening { begin: true });
        watch.phase = WatchPhase::Running;
        watch.begun = true;
        self.mark_matched(opening);
        if !begin {
            self.out.push(Command::ContinueWatch(opening.clone()));
            self.backfill(&opening.watch);
            return;
        }
        let any_settled = self.scopes_of(&opening.watch).any(|scope| scope.settled);
        match cursor {
            Some(cursor) if any_settled => {
                self.out.push(Command::BeginWatch(opening.clone(), Start::Resume(cursor)));
                self.backfill(&opening.watch);
            }
            // Nothing would be saved by resuming: one replay of the whole watch key pays every scope.
            Some(_) | None => self.begin_replay(opening, cursor.is_some()),
        }
    }

    /// The watcher matches what the opening's hash stands for; a newer configuration follows with an opening of its own.
    fn mark_matched(&mut self, opening: &Opening) {
        if scope_hash(&self.subscriptions_of(&opening.watch)) == opening.scope_hash {
            for scope in self.scopes.values_mut().filter(|scope| scope.subscription.watch == opening.watch) {
                scope.matched = true;
            }
        }
    }

    fn begin_replay(&mut self, opening: &Opening, drop_cursor: bool) {
        if drop_cursor {
            self.out.push(Command::DropCursor(opening.watch.clone(), false));
        }
        // Dirty ones too: an earlier list of theirs may still wait for its push, and must not pay for this one, which sets
        // the cursor.
        let scopes = self.keys_of(&opening.watch);
        self.mark_dirty(scopes);
        for scope in self.scopes.values_mut().filter(|scope| scope.subscription.watch == opening.watch) {
            scope.listing = Listing::Asked { generation: scope.generation, whole: true };
        }
        self.out.push(Command::BeginWatch(opening.clone(), Start::Replay));
    }

    fn keys_of(&self, watch: &WatchKey) -> Vec<TargetScope> {
        let here = self.scopes.iter().filter(|(_, scope)| scope.subscription.watch == *watch);
        here.map(|(key, _)| key.clone()).collect()
    }

    pub(super) fn subscriptions_of(&self, watch: &WatchKey) -> Vec<Subscription> {
        self.scopes_of(watch).map(|scope| scope.subscription.clone()).collect()
    }

    fn scopes_of<'a>(&'a self, watch: &'a WatchKey) -> impl Iterator<Item = &'a Scope> {
        self.scopes.values().filter(move |scope| scope.subscription.watch == *watch)
    }

    /// Lists for the dirty scopes of a running watch; the stream is not disturbed.
    pub(super) fn backfill(&mut self, key: &WatchKey) {
        let Some(watch) = self.watches.get(key) else { return };
        if watch.phase != WatchPhase::Running {
            return;
        }
        let Some(opening) = watch.opening.clone() else { return };
        let mut wanted = Vec::new();
        for (name, scope) in &mut self.scopes {
            let here = scope.subscription.watch == *key;
            if here && scope.matched && !scope.settled && scope.listing == Listing::Idle {
                scope.listing = Listing::Asked { generation: scope.generation, whole: false };
                wanted.push(name.clone());
            }
        }
        if !wanted.is_empty() {
            self.out.push(Command::Backfill(opening, wanted));
        }
    }

    pub(super) fn expired(&mut self, opening: &Opening, rewound: bool) {
        if self.watches.get(&opening.watch).is_none_or(|watch| !watch.is_open_as(opening)) {
            return;
        }
        let scopes = self.keys_of(&opening.watch);
        if rewound {
            // Objects that vanished with the lost time have files, and no inventory names them any more.
            self.reclaim(&scopes);
            // Versions start over: the guard would drop every event to come.
            for key in &scopes {
                self.drop_guards(key, order_of(opening));
            }
        }
        self.mark_dirty(scopes);
        self.out.push(Command::DropCursor(opening.watch.clone(), false));
        self.restart_watch(&opening.watch);
    }

    pub(super) fn health(&mut self, key: &WatchKey, health: WatchHealth) {
        if let Some(watch) = self.watches.get_mut(key) {
            watch.health = health;
        }
    }
}

/// Reads [`TargetScope::as_key`] back; the version is not part of it and not needed to forget.
fn parse_scope(text: &str) -> Option<TargetScope> {
    let mut parts = text.split('|');
    let (target, group_resource, scope) = (parts.next()?, parts.next()?, parts.next()?);
    let (group, resource) = group_resource.rsplit_once('/').unwrap_or(("", group_resource));
    Some(TargetScope {
        target: TargetUid::new(target),
        gvr: upriver_model::Gvr::new(group, "", resource),
        scope: parse_scope_name(scope),
    })
}

/// Reads a [`WatchKey`]'s text back.
fn parse_watch(text: &str) -> Option<WatchKey> {
    let mut parts = text.split('|');
    let (cluster, gvr, scope) = (parts.next()?, parts.next()?, parts.next()?);
    let (api_version, resource) = gvr.rsplit_once('/')?;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    Some(WatchKey {
        cluster: cluster.into(),
        gvr: upriver_model::Gvr::new(group, version, resource),
        scope: parse_scope_name(scope),
    })
}

fn parse_scope_name(text: &str) -> upriver_model::Scope {
    if text == "*" { upriver_model::Scope::Cluster } else { upriver_model::Scope::Namespace(text.into()) }
}
