//! From a rule's words to served types.

use std::collections::BTreeSet;

use upriver_api::watch_rule::{NamespacedRule, Operation as RuleOperation};
use upriver_kube_io::discovery::ServedType;
use upriver_model::{Gvr, Operation};

/// One type that a rule selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Selected {
    pub(super) gvr: Gvr,
    pub(super) kind: String,
    pub(super) operations: Vec<Operation>,
}

/// What a rule item selects, and what it names in vain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Resolution {
    pub(super) selected: Vec<Selected>,
    /// Words that select nothing, each with the reason.
    pub(super) unmatched: Vec<String>,
}

pub(super) fn resolve(rule: &NamespacedRule, types: &[ServedType]) -> Resolution {
    let mut resolution = Resolution::default();
    let operations = operations(&rule.operations);
    for word in &rule.resources {
        let resource = word.trim().to_lowercase();
        match find(rule, &resource, types) {
            Ok(found) => resolution.selected.extend(found.into_iter().map(|served| Selected {
                gvr: served.gvr.clone(),
                kind: served.kind.clone(),
                operations: operations.clone(),
            })),
            Err(reason) => resolution.unmatched.push(format!("{resource}: {reason}")),
        }
    }
    resolution
}

fn find<'a>(
    rule: &NamespacedRule,
    resource: &str,
    types: &'a [ServedType],
) -> Result<Vec<&'a ServedType>, String> {
    let named: Vec<&ServedType> = types.iter().filter(|served| &*served.gvr.resource == resource).collect();
    if named.is_empty() {
        return Err("no such resource is served; check the plural name".to_owned());
    }
    let in_groups: Vec<&ServedType> = named
        .into_iter()
        .filter(|served| {
            rule.api_groups.is_empty() || rule.api_groups.iter().any(|group| **group == *served.gvr.group)
        })
        .collect();
    let groups: BTreeSet<&str> = in_groups.iter().map(|served| &*served.gvr.group).collect();
    if groups.len() > 1 && rule.api_groups.is_empty() {
        let names: Vec<&str> =
            groups.into_iter().map(|group| if group.is_empty() { "core" } else { group }).collect();
        return Err(format!("served by several groups ({}); set apiGroups", names.join(", ")));
    }
    let found: Vec<&ServedType> =
        in_groups.into_iter().filter(|served| wants_version(rule, served)).collect();
    let Some(first) = found.first() else {
        return Err("not served in that group and version".to_owned());
    };
    if !first.namespaced {
        return Err("a cluster-scoped resource; a WatchRule selects namespaced ones".to_owned());
    }
    if !found.iter().all(|served| served.watchable()) {
        return Err("cannot be listed and watched".to_owned());
    }
    if upriver_content::policy::denied(&first.gvr.group, &first.gvr.resource) {
        return Err("never mirrored: it holds no desired state".to_owned());
    }
    Ok(found)
}

fn wants_version(rule: &NamespacedRule, served: &ServedType) -> bool {
    if rule.api_versions.is_empty() {
        return served.preferred;
    }
    rule.api_versions.iter().any(|version| **version == *served.gvr.version)
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
mod tests {
    use super::*;

    fn served(group: &str, version: &str, resource: &str, preferred: bool, namespaced: bool) -> ServedType {
        ServedType {
            gvr: Gvr::new(group, version, resource),
            kind: "Kind".to_owned(),
            namespaced,
            preferred,
            verbs: ["get", "list", "watch"].map(str::to_owned).to_vec(),
        }
    }

    fn rule(resources: &[&str], groups: &[&str], versions: &[&str]) -> NamespacedRule {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        NamespacedRule {
            resources: texts(resources),
            operations: Vec::new(),
            api_groups: texts(groups),
            api_versions: texts(versions),
            source_namespace: None,
        }
    }

    fn types() -> Vec<ServedType> {
        let mut silent = served("example.net", "v1", "silent", true, true);
        silent.verbs = vec!["get".to_owned()];
        vec![
            served("", "v1", "configmaps", true, true),
            served("", "v1", "pods", true, true),
            served("", "v1", "nodes", true, false),
            served("example.net", "v1", "things", false, true),
            served("example.net", "v2", "things", true, true),
            served("a.net", "v1", "twins", true, true),
            served("b.net", "v1", "twins", true, true),
            silent,
        ]
    }

    fn names(rule: &NamespacedRule) -> Vec<String> {
        resolve(rule, &types()).selected.iter().map(|selected| selected.gvr.to_string()).collect()
    }

    #[test]
    fn a_name_selects_the_preferred_version_unless_versions_are_named() {
        assert_eq!(names(&rule(&[" ConfigMaps "], &[""], &[])), ["v1/configmaps"]);
        assert_eq!(names(&rule(&["things"], &[], &[])), ["example.net/v2/things"]);
        assert_eq!(
            names(&rule(&["things"], &[], &["v1", "v2"])),
            ["example.net/v1/things", "example.net/v2/things"]
        );
    }

    #[test]
    fn what_selects_nothing_says_why() {
        let reason = |rule: NamespacedRule| resolve(&rule, &types()).unmatched.join("; ");
        assert!(reason(rule(&["deploymnets"], &[], &[])).contains("no such resource"));
        assert!(reason(rule(&["twins"], &[], &[])).contains("a.net, b.net"));
        assert_eq!(names(&rule(&["twins"], &["b.net"], &[])), ["b.net/v1/twins"]);
        assert!(reason(rule(&["nodes"], &[], &[])).contains("cluster-scoped"));
        assert!(reason(rule(&["pods"], &[], &[])).contains("never mirrored"));
        assert!(reason(rule(&["silent"], &[], &[])).contains("listed and watched"));
        assert!(reason(rule(&["configmaps"], &["apps"], &[])).contains("not served in that group"));
    }
}
