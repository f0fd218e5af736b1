//! What does the API server fill in, and what may still change afterwards?

use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use crate::setup::{api, cluster, good_spec, merged, object};

#[tokio::test]
async fn defaults_are_filled_in_and_only_below_parents_that_are_present() {
    let plane = cluster().await;
    let namespace = plane.fresh_namespace("defaults").await;
    let group = "configbutler.ai";
    let bare = [
        (
            "GitTarget",
            json!({"encryption": {}, "prune": {}}),
            json!({
                "providerRef": {"group": group, "kind": "GitProvider", "name": "a"},
                "clusterProviderRef": {"group": group, "kind": "ClusterProvider", "name": "default"},
                "branch": "main", "path": "clusters/a",
                "encryption": {"provider": "sops"}, "prune": {"mode": "OnEvent"},
            }),
        ),
        (
            "GitProvider",
            json!({"commit": {"committer": {}, "signing": {"secretRef": {"name": "s"}}}, "knownHostsRef": {"name": "k"}}),
            json!({
                "url": "https://git.example.net/a.git", "allowedBranches": ["main"],
                "commit": {
                    "committer": {"name": "Upriver", "email": "noreply@upriver.invalid"},
                    "signing": {"generateWhenMissing": false, "secretRef": {"group": "", "kind": "Secret", "name": "s"}},
                },
                "knownHostsRef": {"kind": "ConfigMap", "name": "k"},
            }),
        ),
        ("ClusterProvider", json!({}), json!({"allowSourceNamespaceOverride": false})),
        (
            "ClusterWatchRule",
            json!({}),
            json!({
                "targetRef": {"group": group, "kind": "GitTarget", "name": "a", "namespace": "b"},
                "rules": [{"resources": ["namespaces"], "scope": "Cluster"}],
            }),
        ),
    ];
    for (kind, change, expected) in bare {
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
