//! Commit windows: which changes become one commit, and when?
//!
//! In: durable entries in journal order. Out: closed windows in the order they closed. One window per (target, author);
//! before an entry joins a window, any other open window that holds the same object closes first, so the order of a
//! file's commits is the order of the cluster (INV-5). A window closes by silence or by age.

use std::collections::{BTreeMap, BTreeSet};

use upriver_model::{Author, EntryId, Gvr, IdSet, ObjectKey, Operation, StoredEntry, TargetUid};

use crate::time::Tick;

/// When a target's windows close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowRule {
    /// Silence that closes a window, milliseconds; 0 closes it after every entry.
    pub silence_ms: u64,
    /// Longest life of a window, milliseconds.
    pub max_age_ms: u64,
}

impl Default for WindowRule {
    fn default() -> Self {
        Self { silence_ms: 5_000, max_age_ms: 60_000 }
    }
}

/// A document's identity inside a target: version-free.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Document {
    /// `group/resource`.
    pub group_resource: Box<str>,
    /// Namespace and name.
    pub key: ObjectKey,
}

/// What a commit does to one document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Type with its version, for the path and the message.
    pub gvr: Gvr,
    /// Kind.
    pub kind: Box<str>,
    /// The object.
    pub key: ObjectKey,
    /// The latest operation.
    pub operation: Operation,
    /// Sanitised JSON; `None` removes the document.
    pub payload: Option<Box<str>>,
}

impl Change {
    /// The document it is about.
    #[must_use]
    pub fn document(&self) -> Document {
        Document { group_resource: self.gvr.group_resource().into(), key: self.key.clone() }
    }
}

/// A closed window: one commit to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// The target.
    pub target: TargetUid,
    /// Who made all of its changes.
    pub author: Author,
    /// One change per document, in first-seen order; the last one won.
    pub changes: Vec<Change>,
    /// Every entry it stands for, superseded ones included.
    pub entries: IdSet,
    /// Latest time of observation: the commit's time, milliseconds since 1970.
    pub time_ms: i64,
}

#[derive(Clone, Debug)]
struct Open {
    order: Vec<Document>,
    changes: BTreeMap<Document, Change>,
    entries: IdSet,
    time_ms: i64,
    opened: Tick,
    touched: Tick,
}

type Key = (TargetUid, Author);

/// The open windows of one branch.
#[derive(Clone, Debug, Default)]
pub struct Windows {
    open: BTreeMap<Key, Open>,
    rules: BTreeMap<TargetUid, WindowRule>,
}

impl Windows {
    /// Sets a target's rule; it holds from the next decision on.
    pub fn set_rule(&mut self, target: &TargetUid, rule: WindowRule) {
        self.rules.insert(target.clone(), rule);
    }

    fn rule(&self, target: &TargetUid) -> WindowRule {
        self.rules.get(target).copied().unwrap_or_default()
    }

    /// Takes a durable entry; answers the windows that closed because of it, in order.
    pub fn add(&mut self, now: Tick, stored: StoredEntry) -> Vec<Closed> {
        let StoredEntry { id, entry, .. } = stored;
        let document = Document { group_resource: entry.gvr.group_resource().into(), key: entry.key.clone() };
        let key: Key = (entry.target.clone(), entry.author.clone());
        let mut closed = self.close_where(|other, window| {
            other.0 == key.0 && *other != key && window.changes.contains_key(&document)
        });
        let window = self.open.entry(key.clone()).or_insert_with(|| Open::new(now));
        window.add(now, id, document, entry);
        if self.rule(&key.0).silence_ms == 0 {
            closed.extend(self.close_where(|other, _| *other == key));
        }
        closed
    }

    fn close_where(&mut self, wanted: impl Fn(&Key, &Open) -> bool) -> Vec<Closed> {
        let mut keys: Vec<(Tick, Key)> = self
            .open
            .iter()
            .filter(|(key, window)| wanted(key, window))
            .map(|(key, window)| (window.touched, key.clone()))
            .collect();
        keys.sort();
        keys.into_iter()
            .filter_map(|(_, key)| self.open.remove(&key).map(|window| window.close(key)))
            .collect()
    }

    /// Closes the windows that are due.
    pub fn due(&mut self, now: Tick) -> Vec<Closed> {
        let rules = self.rules.clone();
        self.close_where(|(target, _), window| {
            window.deadline(rules.get(target).copied().unwrap_or_default()) <= now
        })
    }

    /// When the next window is due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Tick> {
        self.open.iter().map(|((target, _), window)| window.deadline(self.rule(target))).min()
    }

    /// Closes the windows of the targets: before a replay of theirs is applied, or all of them at a take-over.
    pub fn close_targets(&mut self, targets: &BTreeSet<TargetUid>) -> Vec<Closed> {
        self.close_where(|(target, _), _| targets.contains(target))
    }

    /// Closes everything.
    pub fn close_all(&mut self) -> Vec<Closed> {
        self.close_where(|_, _| true)
    }

    /// Number of open windows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// As if so much time had passed: for a model in which the clock stands still.
    #[cfg(feature = "testing")]
    pub(crate) fn let_pass(&mut self, milliseconds: u64) {
        for window in self.open.values_mut() {
            window.opened.0 = window.opened.0.saturating_sub(milliseconds);
            window.touched.0 = window.touched.0.saturating_sub(milliseconds);
        }
    }

    /// True if none is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

impl Open {
    fn new(now: Tick) -> Self {
        Self {
            order: Vec::new(),
            changes: BTreeMap::new(),
            entries: IdSet::new(),
            time_ms: i64::MIN,
            opened: now,
            touched: now,
        }
    }

    fn add(&mut self, now: Tick, id: EntryId, document: Document, entry: upriver_model::Entry) {
        self.touched = now;
        self.time_ms = self.time_ms.max(entry.observed_at_ms);
        self.entries.insert(id);
        let change = Change {
            gvr: entry.gvr,
            kind: entry.kind,
            key: entry.key,
            operation: entry.operation,
            payload: entry.payload,
        };
        if self.changes.insert(document.clone(), change).is_none() {
            self.order.push(document);
        }
    }

    fn deadline(&self, rule: WindowRule) -> Tick {
        (self.touched + rule.silence_ms).min(self.opened + rule.max_age_ms)
    }

    fn close(mut self, (target, author): Key) -> Closed {
        let changes = self.order.iter().filter_map(|document| self.changes.remove(document)).collect();
        Closed { target, author, changes, entries: self.entries, time_ms: self.time_ms }
    }
}

#[cfg(test)]
mod tests {
    use upriver_model::{Entry, ResourceVersion, Scope};

    use super::*;

    fn entry(n: u64, name: &str, author: &str) -> StoredEntry {
        StoredEntry {
            id: EntryId { epoch: 1, n },
            stamped_ms: 0,
            entry: Entry {
                schema: Entry::SCHEMA,
                target: TargetUid::new("t"),
                gvr: Gvr::new("", "v1", "configmaps"),
                kind: "ConfigMap".into(),
                scope: Scope::Cluster,
                key: ObjectKey::new("shop", name),
                uid: name.into(),
                rv: ResourceVersion::new(&n.to_string()),
                operation: Operation::Update,
                payload: Some(n.to_string().into()),
                author: Author::Resolved { username: author.into() },
                observed_at_ms: 1000 + i64::try_from(n).expect("small"),
            },
        }
    }

    fn ids(closed: &[Closed]) -> Vec<String> {
        closed.iter().map(|window| window.entries.to_string()).collect()
    }

    fn windows() -> Windows {
        let mut windows = Windows::default();
        windows.set_rule(&TargetUid::new("t"), WindowRule { silence_ms: 100, max_age_ms: 250 });
        windows
    }

    #[test]
    fn two_people_at_work_at_once_make_two_commits() {
        let mut windows = windows();
        for n in 1..=6 {
            let (name, author) = if n % 2 == 0 { ("b", "bob") } else { ("a", "alice") };
            assert_eq!(windows.add(Tick(n), entry(n, name, author)), vec![]);
        }
        let closed = windows.due(Tick(500));
        assert_eq!(ids(&closed), ["1-1,1-3,1-5", "1-2,1-4,1-6"]);
        assert_eq!(closed[0].changes.len(), 1);
        assert_eq!(closed[0].changes[0].payload.as_deref(), Some("5"));
        assert_eq!(closed[0].time_ms, 1005);
    }

    #[test]
    fn another_window_that_holds_the_object_closes_first() {
        let mut windows = windows();
        windows.add(Tick(1), entry(1, "x", "alice"));
        windows.add(Tick(2), entry(2, "y", "alice"));
        let closed = windows.add(Tick(3), entry(3, "x", "bob"));
        assert_eq!(ids(&closed), ["1-1..2"]);
        assert_eq!(ids(&windows.close_all()), ["1-3"]);
    }

    #[test]
    fn silence_closes_a_window_and_age_does_it_at_last() {
        let mut windows = windows();
        windows.add(Tick(0), entry(1, "x", "alice"));
        assert_eq!(windows.next_deadline(), Some(Tick(100)));
        assert_eq!(windows.due(Tick(99)), vec![]);
        for n in 2..=5 {
            windows.add(Tick(n * 50), entry(n, "x", "alice"));
        }
        assert_eq!(windows.next_deadline(), Some(Tick(250)), "edits go on, but age ends it");
        assert_eq!(ids(&windows.due(Tick(250))), ["1-1..5"]);
        assert!(windows.is_empty());
    }

    #[test]
    fn a_window_of_zero_is_one_commit_per_event() {
        let mut windows = windows();
        windows.set_rule(&TargetUid::new("t"), WindowRule { silence_ms: 0, max_age_ms: 60_000 });
        assert_eq!(ids(&windows.add(Tick(0), entry(1, "x", "alice"))), ["1-1"]);
        assert!(windows.is_empty());
    }
}
