//! From a rule's words to types of the catalog.

use std::collections::{BTreeMap, BTreeSet};

use upriver_api::watch_rule::Operation as RuleOperation;
use upriver_content::policy::Selection;
use upriver_engine::registry::{Catalog, CatalogType, Cause, TypeScope, Verdict};
use upriver_model::{Gvr, Operation};

/// What a rule may select at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleScope {
    /// Types whose objects live in namespaces.
    Namespaced,
    /// Types whose objects live outside of namespaces.
    Cluster,
}

/// One item of a rule. Empty lists mean "not given".
#[derive(Clone, Copy, Debug)]
pub(super) struct Selector<'a> {
    pub(super) resources: &'a [String],
    pub(super) operations: &'a [RuleOperation],
    pub(super) api_groups: &'a [String],
    pub(super) api_versions: &'a [String],
    pub(super) scope: RuleScope,
}

/// One type that a rule selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Selected {
    pub(super) gvr: Gvr,
    pub(super) kind: String,
    pub(super) operations: Vec<Operation>,
    /// Named by at least one item, or only meant by a wildcard.
    pub(super) selection: Selection,
}

/// What a rule item selects, and what it names in vain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Resolution {
    pub(super) selected: Vec<Selected>,
    /// Words that select nothing, each with the reason.
    pub(super) unmatched: Vec<String>,
}

/// Types of one resource, by group.
type ByGroup<'a> = BTreeMap<&'a str, Vec<&'a CatalogType>>;

pub(super) fn resolve(selector: &Selector<'_>, types: &Catalog) -> Resolution {
    let mut resolution = Resolution::default();
    let operations = operations(selector.operations);
    for word in selector.resources {
        let resource = word.trim().to_lowercase();
        let (selection, found) = if resource == "*" {
            (Selection::Wildcard, all(selector, types))
        } else {
            (Selection::Named, named(selector, &resource, types))
        };
        match found {
            Ok(found) => resolution.selected.extend(found.into_iter().map(|found| Selected {
                gvr: found.facts.gvr.clone(),
                kind: found.facts.kind.to_string(),
                operations: operations.clone(),
                selection,
            })),
            Err(reason) => resolution.unmatched.push(format!("{resource}: {reason}")),
        }
        resolution.unmatched.extend(unread(selector, &resource, types));
    }
    resolution
}

/// Types of one name.
fn named<'a>(
    selector: &Selector<'_>,
    resource: &str,
    types: &'a Catalog,
) -> Result<Vec<&'a CatalogType>, String> {
    let all: Vec<&CatalogType> =
        types.types().filter(|known| &*known.facts.gvr.resource == resource).collect();
    if all.is_empty() && types.was_dropped(resource) {
        return Err(format!("not served any more ({})", Cause::AbsenceExpired.as_str()));
    }
    if all.is_empty() {
        let failing: Vec<String> = types.failed().map(|(group, _)| group.to_string()).collect();
        let unread = if failing.is_empty() {
            String::new()
        } else {
            format!(" (not readable just now: {})", failing.join(", "))
        };
        return Err(format!("no such resource is served; check the plural name{unread}"));
    }
    let (asked, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|known| wants(selector, known));
    let Some(first) = asked.first() else {
        let served: BTreeSet<String> = others.iter().map(|known| known.facts.gvr.api_version()).collect();
        let served: Vec<String> = served.into_iter().collect();
        return Err(format!("not served in that group and version, only in {}", served.join(", ")));
    };
    let mut groups: ByGroup<'_> = BTreeMap::new();
    for known in asked.iter().copied().filter(|known| hindrance(selector.scope, known).is_none()) {
        groups.entry(&known.facts.gvr.group).or_default().push(known);
    }
    if groups.is_empty() {
        return Err(hindrance(selector.scope, first).unwrap_or_default());
    }
    if groups.len() > 1 && selector.api_groups.is_empty() {
        let names: Vec<&str> = groups.keys().map(|group| shown(group)).collect();
        return Err(format!("served by several groups ({}); set apiGroups", names.join(", ")));
    }
    Ok(groups.into_values().filter_map(pick).collect())
}

/// Every type that can be mirrored. What a wildcard cannot mean is left out without a word.
fn all<'a>(selector: &Selector<'_>, types: &'a Catalog) -> Result<Vec<&'a CatalogType>, String> {
    let mut groups: BTreeMap<(&str, &str), Vec<&CatalogType>> = BTreeMap::new();
    for known in types.types() {
        let gvr = &known.facts.gvr;
        if wants(selector, known) && hindrance(selector.scope, known).is_none() && !is_order(gvr) {
            groups.entry((&gvr.group, &gvr.resource)).or_default().push(known);
        }
    }
    if groups.is_empty() {
        return Err("nothing that can be mirrored is served in these groups and versions".to_owned());
    }
    Ok(groups.into_values().filter_map(pick).collect())
}

/// A CommitRequest is an order, given once and carried out, and no state that anybody wants back. Its commit would
/// make the next one. Our other kinds are ordinary wishes.
fn is_order(gvr: &Gvr) -> bool {
    &*gvr.group == "configbutler.ai" && &*gvr.resource == "commitrequests"
}

/// Group and version are asked for.
fn wants(selector: &Selector<'_>, known: &CatalogType) -> bool {
    let gvr = &known.facts.gvr;
    let fits = |list: &[String], own: &str| is_open(list) || list.iter().any(|text| text.trim() == own);
    fits(selector.api_groups, &gvr.group) && fits(selector.api_versions, &gvr.version)
}

/// Not given, or `*`.
fn is_open(list: &[String]) -> bool {
    list.is_empty() || list.iter().any(|text| text.trim() == "*")
}

/// Several versions of one resource become one stream: they are the same objects in the same files, and no two streams of
/// them have an order between them (F15). The preferred version, else the lexically lowest (W1.6).
fn pick(versions: Vec<&CatalogType>) -> Option<&CatalogType> {
    let rank = |known: &CatalogType| match (known.verdict, known.facts.preferred) {
        (Verdict::Followable, true) => 0,
        // A preferred version that is away for a moment keeps its stream; changing over and back would list twice.
        (Verdict::Retained(_), true) => 1,
        (Verdict::Followable, false) => 2,
        (Verdict::Retained(_) | Verdict::Refused(_) | Verdict::Unknown(_), _) => 3,
    };
    // The catalog is sorted by version, and the first of equals wins: the lexically lowest.
    versions.into_iter().min_by_key(|known| rank(known))
}

/// Why a type cannot be selected, if it cannot.
fn hindrance(scope: RuleScope, known: &CatalogType) -> Option<String> {
    match (scope, known.facts.scope) {
        (RuleScope::Namespaced, Some(TypeScope::Cluster)) => {
            return Some(
                "a cluster-scoped resource; a WatchRule selects namespaced ones, use a ClusterWatchRule"
                    .to_owned(),
            );
        }
        (RuleScope::Cluster, Some(TypeScope::Namespaced)) => {
            return Some(
                "a namespaced resource; a ClusterWatchRule selects cluster-scoped ones, use a WatchRule"
                    .to_owned(),
            );
        }
        (RuleScope::Namespaced | RuleScope::Cluster, _) => {}
    }
    let cause = match known.verdict {
        Verdict::Followable | Verdict::Retained(_) => return None,
        Verdict::Refused(cause) | Verdict::Unknown(cause) => cause,
    };
    let words = match cause {
        Cause::MissingVerb => "cannot be listed and watched",
        Cause::DeniedByPolicy => "never mirrored: it holds no desired state",
        Cause::SubresourceOnly => "only its subresources are served",
        Cause::ScopeUnknown => "the API server does not say whether it is namespaced",
        Cause::GvkNotUnique => "several resources of its group-version have its kind",
        Cause::GvrNotUnique => "its resource stands for several kinds",
        Cause::NotServed | Cause::AbsenceExpired => "not served any more",
        Cause::DiscoveryDegraded | Cause::CatalogUnavailable => {
            "the API server cannot tell about it just now"
        }
    };
    Some(format!("{words} ({})", cause.as_str()))
}

/// Group-versions that may hold what a word means, and about which nothing is known because they cannot be read.
fn unread(selector: &Selector<'_>, resource: &str, types: &Catalog) -> Vec<String> {
    let failing = types.failed().filter(|(group, _)| {
        let listed = |list: &[String], own: &str| list.iter().any(|text| text.trim() == own);
        let asked =
            listed(selector.api_groups, &group.group) || (is_open(selector.api_groups) && resource == "*");
        let known = types.types().any(|known| {
            (&known.facts.gvr.group, &known.facts.gvr.version) == (&group.group, &group.version)
        });
        asked && !known && (is_open(selector.api_versions) || listed(selector.api_versions, &group.version))
    });
    failing.map(|(group, why)| format!("{resource} in {group}: {why}")).collect()
}

fn shown(group: &str) -> &str {
    if group.is_empty() { "core" } else { group }
}

fn operations(listed: &[RuleOperation]) -> Vec<Operation> {
    let all = vec![Operation::Create, Operation::Update, Operation::Delete];
    if listed.is_empty() {
        return all;
    }
    let mut wanted = BTreeSet::new();
    for operation in listed {
        match operation.as_str() {
            "CREATE" => drop(wanted.insert(Operation::Create)),
            "UPDATE" => drop(wanted.insert(Operation::Update)),
            "DELETE" => drop(wanted.insert(Operation::Delete)),
            "*" => return all,
            _ => {}
        }
    }
    wanted.into_iter().collect()
}

#[cfg(test)]
mod tests;
