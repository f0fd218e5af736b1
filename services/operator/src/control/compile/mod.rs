//! One pass: which targets are valid, what does each branch have to do, what blocks the rest?
//!
//! A pure function of a [`Snapshot`]. The verdicts are kept beside the plan, so that statuses say exactly what was done.

mod branches;
mod index;
pub mod namespaces;
mod rules;
mod targets;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use kube::ResourceExt;
use upriver_api::Reason;
use upriver_content::policy::Selection;
use upriver_model::{BranchKey, Gvr, ObjectKey, TargetScope, TargetUid};

use super::encryption::Encryption;
use super::plan::Desired;
use super::snapshot::Snapshot;
use super::types;
use index::Index;
use namespaces::{Grants, Source};
use targets::Valid;

/// The source cluster that holds our own kinds.
pub const LOCAL_CLUSTER: &str = "local";

/// Why something does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Condition reason.
    pub reason: Reason,
    /// What to do, in words.
    pub message: String,
}

impl Refusal {
    pub(super) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// What was decided about a target.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetVerdict {
    /// Its `metadata.uid`.
    pub uid: TargetUid,
    /// Its branch, if one can be named at all.
    pub branch: Option<BranchKey>,
    /// Why it does not run.
    pub refusal: Option<Refusal>,
    /// How Secrets are selected, if they are.
    pub secrets: Option<Selection>,
    /// Whether Secrets could be encrypted. Everything else is written whatever this says.
    pub encryption: Encryption,
    /// Scopes that it wants, in a valid target only.
    pub scopes: Vec<TargetScope>,
}

/// What was decided about a rule of either kind.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleVerdict {
    /// Its target, if it exists.
    pub target: Option<ObjectKey>,
    /// Whether it may read its source namespaces; `None` for a ClusterWatchRule and where no answer was looked for.
    pub source: Option<Source>,
    /// Why it does not run, other than `source`.
    pub refusal: Option<Refusal>,
    /// False while discovery is unread.
    pub resolved: bool,
    /// Words that select nothing, with the reason.
    pub unmatched: Vec<String>,
    /// Types that it selects.
    pub types: usize,
    /// Scopes that it contributes to.
    pub scopes: Vec<TargetScope>,
}

/// The outcome of a pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Compiled {
    /// What has to be owned.
    pub desired: Desired,
    /// By (namespace, name).
    pub targets: BTreeMap<ObjectKey, TargetVerdict>,
    /// By (namespace, name).
    pub rules: BTreeMap<ObjectKey, RuleVerdict>,
    /// By name.
    pub cluster_rules: BTreeMap<String, RuleVerdict>,
    /// What WatchRules may read now; the next snapshot brings it back.
    pub grants: Grants,
    /// Types whose cluster-wide rights are not known yet.
    pub unknown_rights: Vec<Gvr>,
}

/// Key of a namespaced object.
#[must_use]
pub fn key_of(object: &impl ResourceExt) -> ObjectKey {
    ObjectKey::new(&object.namespace().unwrap_or_default(), &object.name_any())
}

/// Selections of a target by scope.
type Wanted = BTreeMap<TargetScope, types::Selected>;

/// Compiles a snapshot.
#[must_use]
pub fn compile(snapshot: &Snapshot) -> Compiled {
    let mut compiled = Compiled::default();
    let index = Index::new(snapshot);
    let valid = targets::compile(&index, &mut compiled);
    let mut wanted: BTreeMap<ObjectKey, Wanted> = BTreeMap::new();
    let mut take = |verdict: &RuleVerdict, selected: Wanted| {
        if let Some(target) = &verdict.target {
            merge(wanted.entry(target.clone()).or_default(), selected);
        }
    };
    for rule in &snapshot.watch_rules {
        let (verdict, selected, grant) = rules::watch_rule(rule, &index, &valid);
        take(&verdict, selected);
        if let Some(grant) = grant {
            compiled.grants.insert(rule.uid().unwrap_or_default(), grant);
        }
        compiled.rules.insert(key_of(&**rule), verdict);
    }
    for rule in &snapshot.cluster_watch_rules {
        let (verdict, selected) = rules::cluster_watch_rule(rule, &index, &valid);
        take(&verdict, selected);
        compiled.cluster_rules.insert(rule.name_any(), verdict);
    }
    add_targets(&mut compiled, snapshot, valid, wanted);
    compiled
}

fn add_targets(
    compiled: &mut Compiled,
    snapshot: &Snapshot,
    valid: BTreeMap<ObjectKey, Valid>,
    mut wanted: BTreeMap<ObjectKey, Wanted>,
) {
    for (key, found) in valid {
        let scopes = one_version(wanted.remove(&key).unwrap_or_default(), snapshot, compiled);
        if let Some(verdict) = compiled.targets.get_mut(&key) {
            verdict.scopes = scopes.keys().cloned().collect();
            let secrets = scopes.iter().filter(|(scope, _)| scope.gvr.is_secret());
            let mut selections = secrets.map(|(_, selected)| selected.selection);
            verdict.secrets =
                selections.clone().find(|how| *how == Selection::Named).or_else(|| selections.next());
        }
        branches::add_target(compiled, snapshot, &found, scopes);
    }
}

/// Rules may name different versions of one resource: they are the same objects in the same files, so one version is
/// followed (F15), the preferred one or else the lowest, and every rule is told of that one.
fn one_version(wanted: Wanted, snapshot: &Snapshot, compiled: &mut Compiled) -> Wanted {
    let preferred = |gvr: &Gvr| {
        let known = snapshot.types.as_ref().and_then(|types| types.get(gvr));
        known.is_some_and(|known| known.facts.preferred)
    };
    let mut chosen: BTreeMap<String, TargetScope> = BTreeMap::new();
    for scope in wanted.keys() {
        let better = |known: &TargetScope| !preferred(&known.gvr) && preferred(&scope.gvr);
        match chosen.entry(scope.as_key()) {
            Entry::Vacant(place) => drop(place.insert(scope.clone())),
            Entry::Occupied(mut place) if better(place.get()) => drop(place.insert(scope.clone())),
            Entry::Occupied(_) => {}
        }
    }
    if chosen.len() == wanted.len() {
        return wanted;
    }
    let rules = compiled.rules.values_mut().chain(compiled.cluster_rules.values_mut());
    for scope in rules.flat_map(|verdict| &mut verdict.scopes) {
        if let Some(instead) = chosen.get(&scope.as_key()) {
            scope.clone_from(instead);
        }
    }
    let mut kept = Wanted::new();
    for (scope, selected) in &wanted {
        if let Some(instead) = chosen.get(&scope.as_key()) {
            let of_chosen = wanted.get(instead).unwrap_or(selected).clone();
            let selected = types::Selected { operations: selected.operations.clone(), ..of_chosen };
            merge(&mut kept, Wanted::from([(instead.clone(), selected)]));
        }
    }
    kept
}

fn merge(into: &mut Wanted, selected: Wanted) {
    for (scope, found) in selected {
        let entry = into.entry(scope).or_insert_with(|| found.clone());
        entry.operations.extend(found.operations);
        entry.operations.sort_unstable();
        entry.operations.dedup();
        if found.selection == Selection::Named {
            entry.selection = Selection::Named;
        }
    }
}
