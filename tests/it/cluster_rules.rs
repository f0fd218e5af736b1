//! ClusterWatchRules: cluster-scoped objects reach `_cluster/` of the target's folder, and what is refused says why.

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use upriver_testkit::stack::{self, MirrorSpec, Stack, resources};
use upriver_testkit::{User, eventually};

use crate::states::{delete, ours, refused, rule, says, target, until, with_spec};
use crate::support::{Edits, SOON, assert_sound, stack as start};

fn cluster_rule(name: &str, namespace: &str, target: &str, items: &Value) -> Value {
    let spec = json!({"targetRef": {"namespace": namespace, "name": target}, "rules": items});
    ours("ClusterWatchRule", "", name, &spec)
}

fn roles() -> Value {
    json!([{"resources": ["clusterroles"], "apiGroups": ["rbac.authorization.k8s.io"]}, {"resources": ["namespaces"]}])
}

fn role(name: &str, verb: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": [verb]}]
    })
}

/// Waits for a file of the cluster's folder, or for its end.
async fn file(stack: &Stack, path: &str, holds: Option<&str>) {
    let path = format!("shop/_cluster/{path}");
    eventually(&format!("{path}: {holds:?}"), SOON, async || {
        let text = stack.repo().show("main", &path);
        match (holds, text) {
            (None, None) => Ok(()),
            (Some(part), Some(text)) if text.contains(part) => Ok(()),
            (_, text) => Err(format!("{text:?}")),
        }
    })
    .await;
}

#[tokio::test]
async fn cluster_scoped_objects_their_edits_and_deletions_reach_git_beside_namespaced_ones() {
    let stack = start(1).await;
    let mirror = stack.mirror(MirrorSpec::new("shop").types([resources::config_maps()])).await;
    stack
        .apply(User::Admin, &[role("auditor", "get"), cluster_rule("rbac", "shop", "mirror", &roles())])
        .await
        .expect("applied");
    stack.wait_ready("ClusterWatchRule", "", "rbac", SOON).await;
    let object = stack.get("ClusterWatchRule", "", "rbac").await.expect("readable");
    assert_eq!(object["status"]["streams"]["summary"], "2/2", "{object}");
    assert_eq!(says(&object, "SourceNamespaceAuthorized"), "nothing", "that is a WatchRule's");
    assert!(says(&object, "StreamsRunning").starts_with("True AllStreamsReady"));

    let auditor = "rbac.authorization.k8s.io/clusterroles/auditor.yaml";
    file(&stack, auditor, Some("- get")).await;
    file(&stack, "namespaces/shop.yaml", Some("kind: Namespace")).await;
    let api: Api<ClusterRole> = Api::all(stack.client(User::Alice));
    let change = Patch::Merge(json!({"metadata": {"labels": {"by": "alice"}}}));
    api.patch("auditor", &PatchParams::default(), &change).await.expect("patched");
    file(&stack, auditor, Some("by: alice")).await;
    stack.apply(User::Bob, &[role("second", "list")]).await.expect("applied");
    let second = "rbac.authorization.k8s.io/clusterroles/second.yaml";
    file(&stack, second, Some("- list")).await;
    api.delete("auditor", &DeleteParams::default()).await.expect("deleted");
    file(&stack, auditor, None).await;
    stack.plane().create_namespace("yard").await;
    file(&stack, "namespaces/yard.yaml", Some("name: yard")).await;
    Edits::new(stack.client(User::Alice), "shop").create("a", "1").await;
    let path = mirror.file_of(&resources::config_maps(), "a");
    eventually("the namespaced file", SOON, async || stack.repo().show("main", &path)).await;

    // Its end stops its streams and leaves its files; the WatchRule goes on.
    delete(&stack, "ClusterWatchRule", "", "rbac").await;
    until_streams(&stack, "1/1").await;
    api.delete("second", &DeleteParams::default()).await.expect("deleted");
    Edits::new(stack.client(User::Alice), "shop").create("b", "1").await;
    let path = mirror.file_of(&resources::config_maps(), "b");
    eventually("a later edit", SOON, async || stack.repo().show("main", &path)).await;
    file(&stack, second, Some("- list")).await;
    assert_sound(&stack);
}

async fn until_streams(stack: &Stack, summary: &str) {
    eventually(&format!("streams {summary}"), SOON, async || {
        let target = stack.get("GitTarget", "shop", "mirror").await?;
        let found = target["status"]["streams"]["summary"].clone();
        if found == summary { Ok(()) } else { Err(found.to_string()) }
    })
    .await;
}

#[tokio::test]
async fn a_cluster_rule_that_may_not_run_says_why_and_one_that_may_no_longer_stops() {
    let stack = start(1).await;
    stack.mirror(MirrorSpec::new("shop").types([resources::config_maps()])).await;
    stack.plane().create_namespace("outside").await;
    let admitted = json!({"allowedNamespaces": {"names": ["shop"]}});
    let objects = [
        with_spec(stack::cluster_provider(), &admitted),
        stack::git_secret("outside", "git"),
        stack::git_provider("outside", "git", &stack.repo_url(), "1s"),
        target("outside", "stranger", "git", "stranger", &json!({})),
        target("shop", "homeless", "gone", "homeless", &json!({})),
        cluster_rule("orphan", "shop", "nowhere", &roles()),
        cluster_rule("homeless", "shop", "homeless", &roles()),
        cluster_rule("stranger", "outside", "stranger", &roles()),
        cluster_rule("mixed", "shop", "mirror", &json!([{"resources": ["namespaces", "deployments"]}])),
        cluster_rule("good", "shop", "mirror", &roles()),
        rule("shop", "nodes", "mirror", &json!([{"resources": ["namespaces"]}])),
    ];
    stack.apply(User::Admin, &objects).await.expect("stored");
    let of_target = async |name: &str, reason: &str, part: &str| {
        let object = refused(&stack, "ClusterWatchRule", ("", name), ("GitTargetReady", reason), part).await;
        assert!(says(&object, "ResourcesResolved").starts_with("Unknown Blocked"));
        assert!(says(&object, "StreamsRunning").starts_with("Unknown NotReady"));
    };
    of_target("orphan", "GitTargetNotFound", "create it").await;
    of_target("homeless", "GitRepoConfigNotFound", "create it").await;
    of_target("stranger", "GitTargetNamespaceNotAuthorized", "allowedNamespaces").await;
    // What it may not select is left out by name, the rest is followed.
    stack.wait_ready("ClusterWatchRule", "", "mixed", SOON).await;
    let mixed = stack.get("ClusterWatchRule", "", "mixed").await.expect("readable");
    let resolved = says(&mixed, "ResourcesResolved");
    assert!(resolved.contains("1 resource types") && resolved.contains("use a WatchRule"), "{resolved}");
    let nodes = until(&stack, "WatchRule", "shop", "nodes", ("Ready", "True", "Succeeded")).await;
    assert!(says(&nodes, "ResourcesResolved").contains("ClusterWatchRule"));
    assert!(says(&nodes, "StreamsRunning").starts_with("True NoResolvedTypes"));
    file(&stack, "namespaces/shop.yaml", Some("kind: Namespace")).await;

    // The policy is withdrawn: nothing more is written, and the files stay.
    stack.wait_ready("ClusterWatchRule", "", "good", SOON).await;
    let nobody = with_spec(stack::cluster_provider(), &json!({"allowedNamespaces": {"names": ["other"]}}));
    stack.apply(User::Admin, &[nobody]).await.expect("stored");
    of_target("good", "GitTargetNamespaceNotAuthorized", "allowedNamespaces").await;
    let before = stack.repo().head("main");
    stack.apply(User::Admin, &[role("late", "get")]).await.expect("applied");
    stack.apply(User::Admin, &[stack::cluster_provider()]).await.expect("stored");
    stack.wait_ready("ClusterWatchRule", "", "good", SOON).await;
    file(&stack, "rbac.authorization.k8s.io/clusterroles/late.yaml", Some("- get")).await;
    assert_ne!(stack.repo().head("main"), before);
}

/// Replaces the scopes that the schema admits.
async fn admit_scopes(stack: &Stack, scopes: &[&str]) {
    let path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/rules/items/properties/scope/enum";
    let patch = json!([{"op": "replace", "path": path, "value": scopes}]);
    let crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/clusterwatchrules.configbutler.ai";
    let request = http::Request::patch(crd)
        .header("content-type", "application/json-patch+json")
        .body(patch.to_string().into_bytes())
        .expect("a well-formed path");
    stack.client(User::Admin).request_text(request).await.expect("patched");
}

#[tokio::test]
async fn a_rule_stored_under_an_older_schema_is_refused_by_name_and_starts_nothing() {
    let stack = start(1).await;
    stack.mirror(MirrorSpec::new("shop").types([resources::config_maps()])).await;
    admit_scopes(&stack, &["Cluster", "Namespaced"]).await;
    let old =
        cluster_rule("old", "shop", "mirror", &json!([{"resources": ["services"], "scope": "Namespaced"}]));
    eventually("the older schema to be served", SOON, async || {
        stack.apply(User::Admin, std::slice::from_ref(&old)).await.map_err(|error| error.to_string())
    })
    .await;
    admit_scopes(&stack, &["Cluster"]).await;
    refused(&stack, "ClusterWatchRule", ("", "old"), ("GitTargetReady", "ClusterScopeOnly"), "WatchRule")
        .await;
    stack.wait_ready("GitTarget", "shop", "mirror", SOON).await;
    until_streams(&stack, "1/1").await;
}
