use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use upriver_api::{ClusterProvider, GitProvider, GitTarget, WatchRule};
use upriver_engine::Tick;
use upriver_engine::registry::{Answer, Catalog, GroupVersion, Registry, Scan, TypeFacts, TypeScope};
use upriver_model::Scope;

use super::namespaces::Source;
use super::*;
use crate::control::snapshot::NamespacesRead;

fn object<K: DeserializeOwned + Resource<DynamicType = ()>>(
    namespace: &str,
    name: &str,
    age: i64,
    spec: &Value,
) -> Arc<K> {
    let value = json!({
        "apiVersion": "configbutler.ai/v1alpha3", "kind": K::kind(&()),
        "metadata": {"name": name, "namespace": namespace, "uid": format!("{namespace}-{name}")}, "spec": spec
    });
    let mut object: K = serde_json::from_value(value).expect("an object");
    let created = jiff::Timestamp::from_second(1_000 - age).expect("a small number");
    object.meta_mut().creation_timestamp = Some(Time(created));
    Arc::new(object)
}

fn served(group: &str, version: &str, resource: &str, scope: TypeScope) -> TypeFacts {
    TypeFacts {
        gvr: Gvr::new(group, version, resource),
        kind: format!("Kind-{resource}").into(),
        scope: Some(scope),
        preferred: version == "v1",
        verbs: ["get", "list", "watch"].map(Box::from).to_vec(),
        subresources: Vec::new(),
    }
}

fn catalog(types: &[TypeFacts]) -> Catalog {
    let mut scan = Scan::default();
    for facts in types {
        scan.groups.insert(GroupVersion::of(&facts.gvr), Answer::Types(Vec::new()));
    }
    for facts in types {
        if let Some(Answer::Types(answered)) = scan.groups.get_mut(&GroupVersion::of(&facts.gvr)) {
            answered.push(facts.clone());
        }
    }
    let mut registry = Registry::new(upriver_content::policy::denied);
    registry.observe(scan, Tick(0));
    registry.catalog().clone()
}

/// A GitProvider `git` in each namespace, the ClusterProvider `default` that admits `a` and `b`, three types.
fn world() -> Snapshot {
    let provider = |namespace: &str| {
        let spec = json!({"url": "https://git.example.net/x.git", "allowedBranches": ["main"]});
        object::<GitProvider>(namespace, "git", 0, &spec)
    };
    let cluster = json!({"allowedNamespaces": {"names": ["a", "b"]}, "allowSourceNamespaceOverride": true});
    let types = vec![
        served("", "v1", "configmaps", TypeScope::Namespaced),
        served("", "v1", "namespaces", TypeScope::Cluster),
        served("apps", "v1", "deployments", TypeScope::Namespaced),
        served("apps", "v1beta1", "deployments", TypeScope::Namespaced),
    ];
    Snapshot {
        git_providers: ["a", "b", "c"].map(provider).to_vec(),
        cluster_providers: vec![object::<ClusterProvider>("", "default", 0, &cluster)],
        cluster_wide: types.iter().map(|facts| (facts.gvr.clone(), true)).collect(),
        types: Some(Arc::new(catalog(&types))),
        namespaces: ["a", "b", "c"].map(|name| (name.to_owned(), BTreeMap::new())).into(),
        ..Snapshot::default()
    }
}

fn target(namespace: &str, name: &str, age: i64, path: &str, more: &Value) -> Arc<GitTarget> {
    let mut spec = json!({"providerRef": {"name": "git"}, "branch": "main", "path": path});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    object(namespace, name, age, &spec)
}

fn verdict_of(compiled: &Compiled, namespace: &str, name: &str) -> String {
    let verdict = &compiled.targets[&ObjectKey::new(namespace, name)];
    verdict.refusal.as_ref().map_or_else(|| "runs".to_owned(), |refusal| refusal.reason.to_string())
}

fn names(verdict: &RuleVerdict) -> Vec<String> {
    verdict.scopes.iter().map(|scope| format!("{} {}", scope.gvr, scope.scope)).collect()
}

#[test]
fn who_owns_a_folder_that_two_targets_claim() {
    let none = json!({});
    let typo = json!({"placement": {"default": "x.txt"}});
    let branch = json!({"branch": "other"});
    let nowhere = json!({"clusterProviderRef": {"name": "nowhere"}});
    // The older target, its verdict, and that of a younger one on `clusters/a`.
    let cases = [
        (target("a", "old", 9, "clusters", &none), "runs", "TargetConflict"),
        (target("a", "old", 9, "clusters/a", &none), "runs", "TargetConflict"),
        (target("a", "old", 9, "clusters/a/b", &none), "runs", "TargetConflict"),
        (target("a", "old", 9, ".", &none), "runs", "TargetConflict"),
        (target("a", "old", 9, "clusters-a", &none), "runs", "runs"),
        (target("a", "old", 9, "clusters/ab", &none), "runs", "runs"),
        // It has a right to the folder, and something else to repair.
        (target("a", "old", 9, "clusters", &typo), "InvalidConfig", "TargetConflict"),
        // It has no right to the folder.
        (target("c", "old", 9, "clusters", &none), "NamespaceNotAuthorized", "runs"),
        (target("a", "old", 9, "clusters", &nowhere), "ClusterProviderNotFound", "runs"),
        (target("a", "old", 9, "clusters", &branch), "BranchNotAllowed", "runs"),
        (target("a", "old", 9, "/clusters", &none), "InvalidConfig", "runs"),
        (target("a", "old", 9, "clusters/../clusters/a", &none), "InvalidConfig", "runs"),
    ];
    for (old, expected_old, expected_new) in cases {
        let mut snapshot = world();
        let path = old.spec.path.clone();
        snapshot.git_targets = vec![target("b", "new", 1, "clusters/a", &none), old];
        let compiled = compile(&snapshot);
        let found = (
            verdict_of(&compiled, &snapshot.git_targets[1].namespace().expect("one"), "old"),
            verdict_of(&compiled, "b", "new"),
        );
        assert_eq!(found, (expected_old.to_owned(), expected_new.to_owned()), "{path}");
    }
}

#[test]
fn of_two_targets_of_one_age_the_larger_name_loses_and_a_loser_blocks_nobody() {
    let none = json!({});
    let mut snapshot = world();
    snapshot.git_targets = vec![
        target("b", "x", 5, "f", &none),
        target("a", "x", 5, "f", &none),
        target("b", "wide", 4, ".", &none),
        target("a", "beside", 3, "g", &none),
    ];
    let compiled = compile(&snapshot);
    assert_eq!(verdict_of(&compiled, "a", "x"), "runs");
    assert_eq!(verdict_of(&compiled, "b", "x"), "TargetConflict");
    assert_eq!(verdict_of(&compiled, "b", "wide"), "TargetConflict");
    assert_eq!(verdict_of(&compiled, "a", "beside"), "runs", "the loser at the root owns nothing");
}

#[test]
fn a_window_that_is_no_duration_runs_as_five_seconds() {
    for text in ["5 s", "1d"] {
        let mut snapshot = world();
        let spec = json!({
            "url": "https://git.example.net/x.git", "allowedBranches": ["main"], "push": {"commitWindow": text}
        });
        snapshot.git_providers = vec![object("a", "git", 0, &spec)];
        snapshot.git_targets = vec![target("a", "t", 1, "f", &json!({}))];
        let compiled = compile(&snapshot);
        let branch = compiled.desired.branches.values().next().expect("one branch");
        assert_eq!(Duration::from_millis(branch.targets[0].plan.window.silence_ms), Duration::from_secs(5));
    }
}

fn rule(name: &str, spec: &Value) -> Arc<WatchRule> {
    object("a", name, 0, spec)
}

#[test]
fn a_star_gives_one_scope_per_namespace_and_type_on_one_watch() {
    let mut snapshot = world();
    let policy =
        json!({"allowedSourceNamespaces": {"names": ["gone"], "selector": {"matchLabels": {"m": "y"}}}});
    snapshot.git_targets = vec![target("a", "t", 1, "f", &policy)];
    let items = json!([{"resources": ["configmaps", "deployments"], "sourceNamespace": "*"}]);
    snapshot.watch_rules = vec![rule("star", &json!({"targetRef": {"name": "t"}, "rules": items}))];
    let labelled = BTreeMap::from([("m".to_owned(), "y".to_owned())]);
    snapshot.namespaces.insert("b".to_owned(), labelled);
    let compiled = compile(&snapshot);
    let verdict = &compiled.rules[&ObjectKey::new("a", "star")];
    assert_eq!(verdict.source, Some(Source::Allowed { namespaces: 2 }));
    assert_eq!(verdict.types, 2);
    let expected =
        ["v1/configmaps b", "v1/configmaps gone", "apps/v1/deployments b", "apps/v1/deployments gone"];
    assert_eq!(names(verdict), expected);
    let branch = compiled.desired.branches.values().next().expect("one branch");
    let subscriptions = &branch.targets[0].plan.subscriptions;
    assert!(subscriptions.iter().all(|subscription| subscription.watch.scope == Scope::Cluster));

    // The labels become unreadable: the grant of the last pass goes on, and nothing else does.
    snapshot.grants = compiled.grants.clone();
    snapshot.namespaces.clear();
    snapshot.namespaces_read = NamespacesRead::Forbidden("no".to_owned());
    let kept = compile(&snapshot);
    assert_eq!(names(&kept.rules[&ObjectKey::new("a", "star")]), expected);
    assert_eq!(kept.grants, compiled.grants);
    snapshot.grants.clear();
    let fresh = compile(&snapshot);
    assert_eq!(names(&fresh.rules[&ObjectKey::new("a", "star")]), Vec::<String>::new());
}

#[test]
fn a_refused_rule_contributes_nothing_and_the_others_stay() {
    let mut snapshot = world();
    snapshot.git_targets = vec![target("a", "t", 1, "f", &json!({}))];
    let of = |items: Value| json!({"targetRef": {"name": "t"}, "rules": items});
    let maps = || json!({"resources": ["configmaps"]});
    let elsewhere = json!({"resources": ["deployments"], "sourceNamespace": "b"});
    snapshot.watch_rules = vec![
        rule("good", &of(json!([maps()]))),
        rule("half", &of(json!([{"resources": ["deployments"]}, elsewhere]))),
        rule("blank", &json!({"targetRef": {"name": " "}, "rules": [maps()]})),
        rule("lost", &json!({"targetRef": {"name": "nowhere"}, "rules": [maps()]})),
    ];
    let spec = |scope: &str| json!({"targetRef": {"namespace": "a", "name": "t"}, "rules": [{"resources": ["namespaces"], "scope": scope}]});
    snapshot.cluster_watch_rules = vec![object("", "stored", 0, &spec("Namespaced"))];
    let compiled = compile(&snapshot);
    let reason = |name: &str| {
        compiled.rules[&ObjectKey::new("a", name)].refusal.as_ref().map(|refusal| refusal.reason)
    };
    assert_eq!(reason("blank"), Some(Reason::GitDestinationInvalid));
    assert_eq!(reason("lost"), Some(Reason::GitTargetNotFound));
    let half = &compiled.rules[&ObjectKey::new("a", "half")];
    assert!(matches!(half.source, Some(Source::Denied { .. })) && half.scopes.is_empty());
    let stored = compiled.cluster_rules["stored"].refusal.clone().expect("refused");
    assert_eq!(stored.reason, Reason::ClusterScopeOnly);
    assert!(stored.message.contains("rules[0].scope is Namespaced"), "{}", stored.message);
    let scopes = &compiled.targets[&ObjectKey::new("a", "t")].scopes;
    assert_eq!(scopes.iter().map(|scope| scope.gvr.to_string()).collect::<Vec<_>>(), ["v1/configmaps"]);

    snapshot.cluster_watch_rules = vec![object("", "stored", 0, &spec("Cluster"))];
    let compiled = compile(&snapshot);
    assert_eq!(names(&compiled.cluster_rules["stored"]), ["v1/namespaces *"]);
}

#[test]
fn a_cluster_rule_is_not_bound_by_the_policy_and_needs_the_admission_of_its_targets_namespace() {
    let mut snapshot = world();
    let policy = json!({"allowedSourceNamespaces": {}});
    snapshot.git_targets = vec![target("a", "t", 1, "f", &policy), target("c", "t", 1, "g", &json!({}))];
    let spec = |namespace: &str| json!({"targetRef": {"namespace": namespace, "name": "t"}, "rules": [{"resources": ["namespaces"]}]});
    snapshot.cluster_watch_rules = vec![object("", "in", 0, &spec("a")), object("", "out", 0, &spec("c"))];
    let compiled = compile(&snapshot);
    assert_eq!(names(&compiled.cluster_rules["in"]), ["v1/namespaces *"]);
    let reason =
        |compiled: &Compiled| compiled.cluster_rules["out"].refusal.as_ref().map(|refusal| refusal.reason);
    assert_eq!(reason(&compiled), Some(Reason::GitTargetNamespaceNotAuthorized));
    // Both causes have this reason.
    snapshot.cluster_providers.clear();
    assert_eq!(reason(&compile(&snapshot)), Some(Reason::GitTargetNamespaceNotAuthorized));
}

#[test]
fn rules_that_name_different_versions_of_a_resource_share_one_stream() {
    let rule = |name: &str, version: &str| {
        let items = json!([{"resources": ["deployments"], "apiVersions": [version]}]);
        object::<WatchRule>("a", name, 0, &json!({"targetRef": {"name": "t"}, "rules": items}))
    };
    let mut snapshot = world();
    snapshot.git_targets = vec![target("a", "t", 0, "x", &json!({}))];
    snapshot.watch_rules = vec![rule("new", "v1"), rule("old", "v1beta1")];
    let compiled = compile(&snapshot);
    let branch = compiled.desired.branches.values().next().expect("one branch");
    let [only] = &branch.targets[0].plan.subscriptions[..] else { panic!("{:?}", branch.targets) };
    assert_eq!(only.scope.gvr, Gvr::new("apps", "v1", "deployments"));
    for verdict in compiled.rules.values() {
        assert_eq!(
            verdict.scopes,
            std::slice::from_ref(&only.scope),
            "each rule follows the stream that runs"
        );
    }
}
