//! The API server: objects, versions that rise, events to resume from, compaction.
//!
//! Everything about an object that matters to Git is one number, its content; a document in the remote holds the same
//! number, so a file can be placed in the object's history.

use std::collections::BTreeMap;

use upriver_model::{Author, Gvr, ObjectKey, Operation, Scope};

use crate::rng::Rng;

/// Watched types, by number: group, version, resource, kind.
const KINDS: [(&str, &str, &str, &str); 2] =
    [("", "v1", "configmaps", "ConfigMap"), ("apps", "v1", "deployments", "Deployment")];
/// Objects, by number: namespace and name.
pub const OBJECTS: [(&str, &str); 4] = [("shop", "a"), ("shop", "b"), ("blog", "a"), ("blog", "c")];

pub fn gvr(kind: usize) -> Gvr {
    let (group, version, resource, _) = KINDS[kind];
    Gvr::new(group, version, resource)
}

pub fn kind_name(kind: usize) -> &'static str {
    KINDS[kind].3
}

pub fn kind_of(gvr: &Gvr) -> usize {
    KINDS.iter().position(|(_, _, resource, _)| **resource == *gvr.resource).unwrap_or(0)
}

pub fn key(object: usize) -> ObjectKey {
    let (namespace, name) = OBJECTS[object];
    ObjectKey::new(namespace, name)
}

pub fn object_of(key: &ObjectKey) -> usize {
    OBJECTS
        .iter()
        .position(|(namespace, name)| **namespace == *key.namespace && **name == *key.name)
        .unwrap_or(0)
}

pub fn covers(scope: &Scope, object: usize) -> bool {
    scope.covers(OBJECTS[object].0)
}

/// The sanitised document of a content.
pub fn payload(content: u64) -> Box<str> {
    content.to_string().into()
}

pub fn content(payload: &str) -> u64 {
    payload.parse().unwrap_or(0)
}

/// Who made the change of a version.
pub fn author(rv: u64) -> Author {
    match (rv / 2) % 3 {
        0 => Author::Resolved { username: "alice".into() },
        1 => Author::Resolved { username: "bob".into() },
        _ => Author::Unresolved,
    }
}

/// One object now.
#[derive(Clone, Debug)]
pub struct Live {
    pub uid: u64,
    pub rv: u64,
    pub content: u64,
}

/// One event of a watch.
#[derive(Clone, Debug)]
pub struct ClusterEvent {
    pub rv: u64,
    pub kind: usize,
    pub object: usize,
    pub uid: u64,
    pub operation: Operation,
    pub content: Option<u64>,
}

/// A state that an object had from a version on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Was {
    pub rv: u64,
    pub content: Option<u64>,
}

#[derive(Clone, Debug, Default)]
pub struct Cluster {
    pub rv: u64,
    pub compacted: u64,
    next: u64,
    pub live: BTreeMap<(usize, usize), Live>,
    pub events: Vec<ClusterEvent>,
    history: BTreeMap<(usize, usize), Vec<Was>>,
}

impl Cluster {
    /// States of an object in order; it begins as absent.
    pub fn history(&self, kind: usize, object: usize) -> Vec<Was> {
        let mut states = vec![Was { rv: 0, content: None }];
        states.extend(self.history.get(&(kind, object)).into_iter().flatten());
        states
    }

    /// The first place at or after `from` where the object was like this.
    pub fn place(&self, doc: (usize, usize), from: usize, content: Option<u64>) -> Option<usize> {
        let states = self.history.get(&doc).map_or(&[][..], Vec::as_slice);
        if from == 0 && content.is_none() {
            return Some(0);
        }
        (from.max(1)..=states.len()).find(|index| states[index - 1].content == content)
    }

    /// The place that a version stands for.
    pub fn place_at(&self, doc: (usize, usize), rv: u64) -> usize {
        let states = self.history.get(&doc).map_or(&[][..], Vec::as_slice);
        states.iter().take_while(|state| state.rv <= rv).count()
    }

    /// Somebody changes something.
    pub(crate) fn change(&mut self, rng: &mut Rng) -> String {
        let (kind, object) = (rng.below(KINDS.len()), rng.below(OBJECTS.len()));
        self.rv += 1 + rng.below(2) as u64;
        let doc = (kind, object);
        let (uid, operation, content) = match self.live.get(&doc).cloned() {
            None => {
                self.next += 1;
                (self.next, Operation::Create, Some(self.fresh(rng, doc)))
            }
            Some(live) if rng.once_in(3) => (live.uid, Operation::Delete, None),
            // Only its status changed.
            Some(live) if rng.once_in(5) => (live.uid, Operation::Update, Some(live.content)),
            Some(live) => (live.uid, Operation::Update, Some(self.fresh(rng, doc))),
        };
        self.record(ClusterEvent { rv: self.rv, kind, object, uid, operation, content });
        format!("cluster: {operation:?} {}/{} = {content:?} at rv {}", kind_name(kind), key(object), self.rv)
    }

    /// A change happens: its version is the cluster's from now on.
    pub fn record(&mut self, event: ClusterEvent) {
        let doc = (event.kind, event.object);
        self.rv = event.rv;
        match event.content {
            Some(content) => self.live.insert(doc, Live { uid: event.uid, rv: event.rv, content }),
            None => self.live.remove(&doc),
        };
        self.history.entry(doc).or_default().push(Was { rv: event.rv, content: event.content });
        self.events.push(event);
    }

    /// Nearly always new; now and then what it was before.
    fn fresh(&mut self, rng: &mut Rng, doc: (usize, usize)) -> u64 {
        let before =
            self.history.get(&doc).and_then(|states| states.iter().rev().find_map(|was| was.content));
        self.next += 1;
        before.filter(|_| rng.once_in(8)).unwrap_or(self.next)
    }

    /// The first event of a type after a version.
    pub fn after(&self, kind: usize, rv: u64) -> Option<&ClusterEvent> {
        let from = self.events.partition_point(|event| event.rv <= rv);
        self.events[from..].iter().find(|event| event.kind == kind)
    }
}
