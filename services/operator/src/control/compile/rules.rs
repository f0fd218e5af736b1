//! What does a WatchRule or ClusterWatchRule select, and why not?
//!
//! Checks in the order of the contract: reference not blank, GitTarget, its GitProvider, the source namespaces (or, for a
//! ClusterWatchRule, scope and admission of the target's namespace), resolution. A failed one ends the row: a refused rule
//! contributes nothing to the plan of this very pass.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::ResourceExt;
use upriver_api::cluster_watch_rule::RuleScope as ApiScope;
use upriver_api::{ClusterWatchRule, GitTarget, Reason, WatchRule};
use upriver_model::{Gvr, ObjectKey, Scope, TargetScope, TargetUid};

use super::index::Index;
use super::namespaces::{self, Grant, Question};
use super::targets::{Valid, admit};
use super::{Refusal, RuleVerdict, Wanted, merge};
use crate::control::snapshot::Snapshot;
use crate::control::types::{self, RuleScope, Selector};

type Valids = BTreeMap<ObjectKey, Valid>;

fn verdict(snapshot: &Snapshot) -> RuleVerdict {
    RuleVerdict {
        target: None,
        source: None,
        refusal: None,
        resolved: snapshot.types.is_some(),
        unmatched: Vec::new(),
        types: 0,
        scopes: Vec::new(),
    }
}

/// The target of a rule, if it and its GitProvider exist; what is known of it goes into `verdict`.
fn target_of<'a>(
    key: &ObjectKey,
    index: &Index<'a>,
    verdict: &mut RuleVerdict,
) -> Result<&'a Arc<GitTarget>, Refusal> {
    if key.name.trim().is_empty() || key.namespace.trim().is_empty() {
        let message = "spec.targetRef is blank: name the GitTarget";
        return Err(Refusal::new(Reason::GitDestinationInvalid, message));
    }
    let Some(target) = index.target(key) else {
        let message = format!("GitTarget {key} does not exist: create it in namespace {}", &*key.namespace);
        return Err(Refusal::new(Reason::GitTargetNotFound, message));
    };
    verdict.target = Some(key.clone());
    if index.provider_of(target).is_none() {
        let name = &target.spec.provider_ref.name;
        let message = format!(
            "GitProvider {}/{name} of GitTarget {key} does not exist: create it there",
            &*key.namespace
        );
        return Err(Refusal::new(Reason::GitRepoConfigNotFound, message));
    }
    Ok(target)
}

/// Verdict, selections, and what the rule may read from now on.
pub(super) fn watch_rule(
    rule: &WatchRule,
    index: &Index<'_>,
    valid: &Valids,
) -> (RuleVerdict, Wanted, Option<Grant>) {
    let namespace = rule.namespace().unwrap_or_default();
    let key = ObjectKey::new(&namespace, &rule.spec.target_ref.name);
    let mut verdict = verdict(index.snapshot);
    let target = match target_of(&key, index, &mut verdict) {
        Ok(target) => target,
        Err(refusal) => {
            verdict.refusal = Some(refusal);
            return (verdict, Wanted::new(), None);
        }
    };
    let Some(cluster) = index.cluster_of(target) else {
        // The target says what is wrong; without its source cluster there is nobody to ask about namespaces.
        return (verdict, Wanted::new(), None);
    };
    let items: Vec<&str> =
        rule.spec.rules.iter().map(|item| item.source_namespace.as_deref().unwrap_or(&namespace)).collect();
    let question = Question {
        own: &namespace,
        target: &key.name,
        items: &items,
        policy: target.spec.allowed_source_namespaces.as_ref(),
        may_override: cluster.spec.allow_source_namespace_override,
        cluster: &target.spec.cluster_provider_ref.name,
    };
    let uid = rule.uid().unwrap_or_default();
    let answer =
        namespaces::evaluate(&question, &namespaces::labels(index.snapshot), index.snapshot.grants.get(&uid));
    verdict.source = Some(answer.source);
    let Some(grant) = answer.grant else { return (verdict, Wanted::new(), None) };
    let wanted = select(rule, &grant, valid.get(&key), index.snapshot, &mut verdict);
    (verdict, wanted, Some(grant))
}

fn select(
    rule: &WatchRule,
    grant: &Grant,
    target: Option<&Valid>,
    snapshot: &Snapshot,
    verdict: &mut RuleVerdict,
) -> Wanted {
    let mut selection = Selection::new(target);
    for (item, namespaces) in rule.spec.rules.iter().zip(&grant.items) {
        let selector = Selector {
            resources: &item.resources,
            operations: &item.operations,
            api_groups: &item.api_groups,
            api_versions: &item.api_versions,
            scope: RuleScope::Namespaced,
        };
        let scopes: Vec<Scope> =
            namespaces.iter().map(|name| Scope::Namespace(name.as_str().into())).collect();
        selection.add(&selector, &scopes, snapshot);
    }
    selection.finish(verdict)
}

/// What the items of a rule select, together.
struct Selection<'a> {
    /// Where it goes; a target that does not run gets nothing, but its rules still say what they would select.
    target: Option<&'a Valid>,
    wanted: Wanted,
    types: BTreeSet<Gvr>,
    unmatched: Vec<String>,
}

impl<'a> Selection<'a> {
    fn new(target: Option<&'a Valid>) -> Self {
        Self { target, wanted: Wanted::new(), types: BTreeSet::new(), unmatched: Vec::new() }
    }

    /// Adds what one item selects in each scope.
    fn add(&mut self, selector: &Selector<'_>, scopes: &[Scope], snapshot: &Snapshot) {
        let Some(types) = &snapshot.types else { return };
        let resolution = types::resolve(selector, types);
        self.unmatched.extend(resolution.unmatched);
        self.types.extend(resolution.selected.iter().map(|found| found.gvr.clone()));
        let Some(target) = self.target else { return };
        let uid = TargetUid::new(target.object.uid().unwrap_or_default());
        for found in resolution.selected {
            let selected = scopes.iter().map(|scope| {
                let scope = TargetScope { target: uid.clone(), gvr: found.gvr.clone(), scope: scope.clone() };
                (scope, found.clone())
            });
            merge(&mut self.wanted, selected.collect());
        }
    }

    fn finish(self, verdict: &mut RuleVerdict) -> Wanted {
        verdict.scopes = self.wanted.keys().cloned().collect();
        verdict.types = self.types.len();
        verdict.unmatched = self.unmatched;
        self.wanted
    }
}

/// Verdict and selections.
pub(super) fn cluster_watch_rule(
    rule: &ClusterWatchRule,
    index: &Index<'_>,
    valid: &Valids,
) -> (RuleVerdict, Wanted) {
    let key = ObjectKey::new(&rule.spec.target_ref.namespace, &rule.spec.target_ref.name);
    let mut verdict = verdict(index.snapshot);
    if let Err(refusal) = may_run(rule, &key, index, &mut verdict) {
        verdict.refusal = Some(refusal);
        return (verdict, Wanted::new());
    }
    let mut selection = Selection::new(valid.get(&key));
    for item in &rule.spec.rules {
        let selector = Selector {
            resources: &item.resources,
            operations: &item.operations,
            api_groups: &item.api_groups,
            api_versions: &item.api_versions,
            scope: RuleScope::Cluster,
        };
        selection.add(&selector, &[Scope::Cluster], index.snapshot);
    }
    let wanted = selection.finish(&mut verdict);
    (verdict, wanted)
}

fn may_run(
    rule: &ClusterWatchRule,
    key: &ObjectKey,
    index: &Index<'_>,
    verdict: &mut RuleVerdict,
) -> Result<(), Refusal> {
    // Stored under an older schema; today's refuses it.
    let foreign = rule.spec.rules.iter().enumerate().find(|(_, item)| item.scope != ApiScope::Cluster);
    if let Some((index, item)) = foreign {
        let message = format!(
            "spec.rules[{index}].scope is {}: remove it, and select namespaced types with a WatchRule",
            item.scope
        );
        return Err(Refusal::new(Reason::ClusterScopeOnly, message));
    }
    let target = target_of(key, index, verdict)?;
    admit(target, index)
        .map_err(|refusal| Refusal::new(Reason::GitTargetNamespaceNotAuthorized, refusal.message))?;
    Ok(())
}
