//! What does the API server fill in, and what may still change afterwards?

use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::setup::{api, cluster, good_spec, merged, object};

/// A kind, what is added to a small good spec, and the spec that is stored.
type Filled = (&'static str, Value, Value);

const GROUP: &str = "configbutler.ai";

fn repositories() -> Vec<Filled> {
    vec![
        (
            "GitTarget",
            json!({"encryption": {"secretRef": {"name": "s"}, "age": {"recipients": {}}}, "prune": {}}),
            json!({
                "providerRef": {"group": GROUP, "kind": "GitProvider", "name": "a"},
                "clusterProviderRef": {"group": GROUP, "kind": "ClusterProvider", "name": "default"},
                "branch": "main", "path": "clusters/a",
                "encryption": {
                    "provider": "sops",
                    "secretRef": {"group": "", "kind": "Secret", "name": "s"},
                    "age": {"enabled": false, "recipients": {"extractFromSecret": false, "generateWhenMissing": false}},
                },
                "prune": {"mode": "OnEvent"},
            }),
        ),
        (
            "GitProvider",
            json!({
                "secretRef": {"name": "s"}, "knownHostsRef": {"name": "k"}, "push": {},
                "commit": {"committer": {}, "message": {}, "signing": {"secretRef": {"name": "s"}}},
            }),
            json!({
                "url": "https://git.example.net/a.git", "allowedBranches": ["main"], "push": {},
                "secretRef": {"group": "", "kind": "Secret", "name": "s"},
                "commit": {
                    "message": {},
                    "committer": {"name": "Upriver", "email": "noreply@upriver.invalid"},
                    "signing": {"generateWhenMissing": false, "secretRef": {"group": "", "kind": "Secret", "name": "s"}},
                },
                "knownHostsRef": {"kind": "ConfigMap", "name": "k"},
            }),
        ),
    ]
}

fn selections() -> Vec<Filled> {
    vec![
        (
            "ClusterProvider",
            json!({"allowedNamespaces": {}, "attribution": {}}),
            json!({"allowSourceNamespaceOverride": false, "allowedNamespaces": {}, "attribution": {}}),
        ),
        (
            "WatchRule",
            json!({}),
            json!({
                "targetRef": {"group": GROUP, "kind": "GitTarget", "name": "a"},
                "rules": [{"resources": ["configmaps"]}],
            }),
        ),
        (
            "CommitRequest",
            json!({}),
            json!({"targetRef": {"group": GROUP, "kind": "GitTarget", "name": "a"}}),
        ),
        (
            "ClusterWatchRule",
            json!({}),
            json!({
                "targetRef": {"group": GROUP, "kind": "GitTarget", "name": "a", "namespace": "b"},
                "rules": [{"resources": ["namespaces"], "scope": "Cluster"}],
            }),
        ),
    ]
}

#[tokio::test]
async fn defaults_are_filled_in_and_only_below_parents_that_are_present() {
    let plane = cluster().await;
    let namespace = plane.fresh_namespace("defaults").await;
    for (kind, change, expected) in repositories().into_iter().chain(selections()) {
        let object = object(kind, &namespace, &merged(good_spec(kind), &change));
        let stored = api(plane, kind, &namespace).create(&PostParams::default(), &object).await;
        assert_eq!(stored.expect("a good object").data["spec"], expected, "{kind}");
    }
}

#[tokio::test]
async fn an_explicit_null_is_dropped_and_defaulted() {
    let plane = cluster().await;
    let namespace = plane.fresh_namespace("nulls").await;
    let mut target = object("GitTarget", &namespace, &good_spec("GitTarget"));
    target.data["spec"]["prune"] = json!({"mode": null});
    target.data["spec"]["clusterProviderRef"] = json!(null);
    let stored = api(plane, "GitTarget", &namespace).create(&PostParams::default(), &target).await;
    let spec = &stored.expect("nulls are dropped").data["spec"];
    assert_eq!(spec["prune"]["mode"], "OnEvent");
    assert_eq!(spec["clusterProviderRef"]["name"], "default");
}

#[tokio::test]
async fn spelling_out_a_default_is_no_change_and_mutable_fields_change() {
    let plane = cluster().await;
    let namespace = plane.fresh_namespace("mutable").await;
    let api = api(plane, "GitTarget", &namespace);
    let target = object("GitTarget", &namespace, &good_spec("GitTarget"));
    let name = target.metadata.name.clone().expect("it was given a name");
    api.create(&PostParams::default(), &target).await.expect("a good object");
    let change = json!({"spec": {
        "providerRef": {"group": "configbutler.ai", "kind": "GitProvider", "name": "a"},
        "clusterProviderRef": {"name": "default"},
        "prune": {"mode": "Always"},
        "suspend": true,
    }});
    let changed = api.patch(&name, &PatchParams::default(), &Patch::Merge(change)).await.expect("allowed");
    assert_eq!(changed.data["spec"]["suspend"], true);
    assert_eq!(changed.data["spec"]["prune"]["mode"], "Always");
}
