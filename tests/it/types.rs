//! Types that come, go, share a name, have several versions, or whose backend is down.

use std::time::{Duration, Instant};

use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use upriver_model::Gvr;
use upriver_testkit::stack::{Mirror, MirrorSpec, Stack, StackOptions, resources};
use upriver_testkit::{OperatorOptions, User, eventually};

use crate::support::{Edits, QUICK, SOON, assert_sound, stack};

/// What "within seconds" means, on a loaded machine too; the periodic look comes every 30 s and is no help.
const SECONDS: Duration = Duration::from_secs(15);

/// A CRD; the storage version is the last one.
fn crd(group: &str, plural: &str, kind: &str, versions: &[&str], subresources: &Value) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = |name: &&str| {
        json!({"name": name, "served": true, "storage": Some(name) == versions.last(),
            "schema": {"openAPIV3Schema": schema}, "subresources": subresources})
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
            "versions": versions.iter().map(version).collect::<Vec<_>>(),
        }
    })
}

fn object(api_version: &str, kind: &str, name: &str, value: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "shop"},
        "spec": {"value": value}})
}

/// A mirror whose rule has these items instead of one per type; `types` is what shall be in Git.
async fn mirror(stack: &Stack, types: Vec<Gvr>, items: &Value) -> Mirror {
    let mirror = stack.apply_mirror(MirrorSpec::new("shop").types(types)).await.expect("applied");
    set_rule(stack, items).await;
    mirror
}

async fn set_rule(stack: &Stack, items: &Value) {
    let rule = json!({
        "apiVersion": "configbutler.ai/v1alpha3", "kind": "WatchRule",
        "metadata": {"name": "mirror", "namespace": "shop"},
        "spec": {"targetRef": {"name": "mirror"}, "rules": items}
    });
    stack.apply(User::Admin, &[rule]).await.expect("applied");
}

/// The message of the rule's ResourcesResolved once it says `text`.
async fn resolved_says(stack: &Stack, text: &str) -> String {
    eventually(&format!("the rule to say {text:?}"), SOON, async || {
        let rule = stack.get("WatchRule", "shop", "mirror").await?;
        let conditions = rule["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|condition| condition["type"] == "ResourcesResolved");
        let message = found.and_then(|found| found["message"].as_str()).unwrap_or_default().to_owned();
        if message.contains(text) { Ok(message) } else { Err(message) }
    })
    .await
}

fn api(stack: &Stack, gvr: &Gvr, kind: &str) -> Api<DynamicObject> {
    let gvk = kube::core::GroupVersionKind::gvk(&gvr.group, &gvr.version, kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, &gvr.resource);
    Api::namespaced_with(stack.client(User::Alice), "shop", &resource)
}

fn cluster_api(stack: &Stack, group: &str, plural: &str, kind: &str) -> Api<DynamicObject> {
    let gvk = kube::core::GroupVersionKind::gvk(group, "v1", kind);
    Api::all_with(stack.client(User::Admin), &ApiResource::from_gvk_with_plural(&gvk, plural))
}

async fn uninstall(stack: &Stack, name: &str) {
    let crds =
        cluster_api(stack, "apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition");
    crds.delete(name, &DeleteParams::default()).await.expect("deleted");
    eventually("the CRD to be gone", SOON, async || match crds.get_opt(name).await {
        Ok(None) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
}

async fn metric(stack: &Stack, name: &str, labels: &[(&str, &str)]) -> f64 {
    stack.operator(0).metric_value(name, labels).await.unwrap_or_default()
}

fn ours() -> Vec<Gvr> {
    ["gitproviders", "gittargets", "watchrules"]
        .map(|name| Gvr::new("configbutler.ai", "v1alpha3", name))
        .into()
}

#[tokio::test]
async fn a_wildcard_mirrors_every_desired_state_type_and_one_installed_later_within_seconds() {
    let stack = stack(1).await;
    let rollouts = Gvr::new("late.example.net", "v1", "rollouts");
    let mut types = resources::typical();
    types.extend(ours());
    types.push(Gvr::new("", "v1", "resourcequotas"));
    let wildcard = json!([{"resources": ["*"]}]);
    let before = mirror(&stack, types.clone(), &wildcard).await;
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "shop"},
        "spec": {"hard": {"pods": "9"}}});
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "denied", "namespace": "shop"}, "spec": {"holderIdentity": "x"}});
    let order = json!({"apiVersion": "configbutler.ai/v1alpha3", "kind": "CommitRequest",
        "metadata": {"name": "order", "namespace": "shop"}, "spec": {"targetRef": {"name": "mirror"}}});
    stack.apply(User::Alice, &[quota, lease, order, owned_replica_set()]).await.expect("applied");
    Edits::new(stack.client(User::Bob), "shop").create("a", "1").await;
    // Everything there is in the folder is compared: what is denied, owned or an order would be left over.
    stack.until_in_git(&before, SOON).await;

    let scale = json!({"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}});
    let definition = crd("late.example.net", "rollouts", "Rollout", &["v1"], &scale);
    stack.apply(User::Admin, &[definition]).await.expect("applied");
    let begun = Instant::now();
    stack.apply(User::Alice, &[object("late.example.net/v1", "Rollout", "r", "1")]).await.expect("applied");
    types.push(rollouts);
    let mut after = before;
    after.spec.types = types;
    stack.until_in_git(&after, SECONDS).await;
    println!("an object of a type that was just installed reached Git after {:?}", begun.elapsed());
    assert_sound(&stack);
}

fn owned_replica_set() -> Value {
    let labels = json!({"app": "web"});
    json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": "web-1", "namespace": "shop", "ownerReferences": [{"apiVersion": "apps/v1",
            "kind": "Deployment", "name": "web", "uid": "00000000-0000-0000-0000-000000000001", "controller": true}]},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
            "spec": {"containers": [{"name": "web", "image": "nginx:1.27"}]}}}})
}

#[tokio::test]
async fn a_name_in_two_groups_is_named_and_several_versions_are_one_stream() {
    let stack = stack(1).await;
    let none = json!({});
    let definitions = [
        crd("a.example.net", "gizmos", "Gizmo", &["v1"], &none),
        crd("b.example.net", "gizmos", "Gizmo", &["v1"], &none),
        crd("c.example.net", "valves", "Valve", &["v1", "v1beta1"], &none),
    ];
    stack.apply(User::Admin, &definitions).await.expect("applied");
    let valves = Gvr::new("c.example.net", "v1", "valves");
    let items = json!([{"resources": ["gizmos"]}, {"resources": ["valves"]}, {"resources": ["configmaps"]}]);
    let mut found = mirror(&stack, vec![resources::config_maps(), valves.clone()], &items).await;
    stack.apply(User::Alice, &[object("a.example.net/v1", "Gizmo", "g", "1")]).await.expect("applied");
    stack.apply(User::Alice, &[object("c.example.net/v1beta1", "Valve", "v", "1")]).await.expect("applied");
    Edits::new(stack.client(User::Alice), "shop").create("a", "1").await;
    let said = resolved_says(&stack, "a.example.net, b.example.net").await;
    assert!(said.starts_with("2 resource types") && said.contains("gizmos"), "{said}");
    stack.until_in_git(&found, SOON).await;
    let text = stack.repo().show("main", &found.file_of(&valves, "v")).expect("mirrored");
    assert!(text.contains("apiVersion: c.example.net/v1\n"), "the preferred version: {text}");

    let both =
        json!([{"resources": ["gizmos"], "apiGroups": ["*"]}, {"resources": ["valves", "configmaps"]}]);
    set_rule(&stack, &both).await;
    found.spec.types.extend(["a.example.net", "b.example.net"].map(|group| Gvr::new(group, "v1", "gizmos")));
    stack.until_in_git(&found, SOON).await;
}

#[tokio::test]
async fn a_type_that_was_uninstalled_and_comes_back_is_followed_again_without_a_hot_loop() {
    let stack = stack(1).await;
    let definition = crd("kitchen.example.net", "meals", "Meal", &["v1"], &json!({}));
    stack.apply(User::Admin, std::slice::from_ref(&definition)).await.expect("applied");
    let meals = Gvr::new("kitchen.example.net", "v1", "meals");
    let items = json!([{"resources": ["meals"]}]);
    let found = mirror(&stack, vec![meals.clone()], &items).await;
    let soup = object("kitchen.example.net/v1", "Meal", "soup", "hot");
    stack.apply(User::Alice, std::slice::from_ref(&soup)).await.expect("applied");
    stack.until_in_git(&found, SOON).await;
    let process = stack.operator(0).pid();

    for round in 0..2 {
        uninstall(&stack, "meals.kitchen.example.net").await;
        // The API server deletes the instances first, and each deletion is seen.
        let file = found.file_of(&meals, "soup");
        eventually("the file to be removed", SOON, async || {
            stack.repo().show("main", &file).is_none().then_some(())
        })
        .await;
        eventually("the type to be retained", SECONDS, async || {
            (metric(&stack, "upriver_catalog_types", &[("verdict", "retained")]).await >= 1.0).then_some(())
        })
        .await;
        let scans = metric(&stack, "upriver_discovery_scans_total", &[]).await;
        stack.apply(User::Admin, std::slice::from_ref(&definition)).await.expect("applied");
        let begun = Instant::now();
        stack.apply(User::Bob, std::slice::from_ref(&soup)).await.expect("applied");
        stack.until_in_git(&found, SECONDS).await;
        println!("round {round}: followed again after {:?}", begun.elapsed());
        let scans = metric(&stack, "upriver_discovery_scans_total", &[]).await - scans;
        assert!(scans < 40.0, "{scans} looks at the types for one installation");
    }
    let starts = metric(&stack, "upriver_watch_starts_total", &[]).await;
    assert!(starts < 60.0, "{starts} attempts to watch one type");
    assert_eq!(stack.operator(0).pid(), process, "the operator has not crashed");
    assert_sound(&stack);
}

#[tokio::test]
async fn an_api_whose_backend_is_down_stops_nothing_else_and_takes_nothing_out_of_git() {
    let stack = stack(1).await;
    let definition = crd("farm.example.net", "crops", "Crop", &["v1"], &json!({}));
    stack.apply(User::Admin, &[definition]).await.expect("applied");
    let crops = Gvr::new("farm.example.net", "v1", "crops");
    let items = json!([{"resources": ["crops", "configmaps"]}]);
    let found = mirror(&stack, vec![resources::config_maps(), crops.clone()], &items).await;
    stack.apply(User::Alice, &[object("farm.example.net/v1", "Crop", "corn", "1")]).await.expect("applied");
    let edits = Edits::new(stack.client(User::Alice), "shop");
    edits.create("a", "1").await;
    stack.until_in_git(&found, SOON).await;

    // The group now leads to a Service that does not exist, as that of a broken aggregated API does.
    let services = cluster_api(&stack, "apiregistration.k8s.io", "apiservices", "APIService");
    let broken = json!({
        "metadata": {"labels": {"kube-aggregator.kubernetes.io/automanaged": null}},
        "spec": {"service": {"namespace": "default", "name": "nowhere"}, "insecureSkipTLSVerify": true}
    });
    let params = PatchParams::default();
    services.patch("v1.farm.example.net", &params, &Patch::Merge(&broken)).await.expect("patched");
    let retained = async || {
        let count = metric(&stack, "upriver_catalog_types", &[("verdict", "retained")]).await;
        if count >= 1.0 { Ok(()) } else { Err(count) }
    };
    eventually("the type to be retained", SOON, retained).await;
    edits.set("a", "2").await;
    eventually("the edit in Git", SOON, async || {
        let text =
            stack.repo().show("main", &found.file_of(&resources::config_maps(), "a")).unwrap_or_default();
        if text.contains("value: \"2\"") { Ok(()) } else { Err(text) }
    })
    .await;
    assert!(stack.repo().show("main", &found.file_of(&crops, "corn")).is_some(), "an outage deletes nothing");
    let said = resolved_says(&stack, "2 resource types").await;
    assert!(!said.contains("left out"), "the retained type is still selected: {said}");

    // The aggregator registers the group again by itself.
    services.delete("v1.farm.example.net", &DeleteParams::default()).await.expect("deleted");
    eventually("the group to answer again", SOON, async || {
        let patch = Patch::Merge(json!({"spec": {"value": "2"}}));
        api(&stack, &crops, "Crop").patch("corn", &params, &patch).await
    })
    .await;
    stack.until_in_git(&found, SOON).await;
    assert_sound(&stack);
}

/// Binds the operator to these rules alone, in the whole cluster, before it starts.
async fn narrow(stack: &Stack, rules: &Value) {
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "narrow"}, "rules": rules});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "narrow"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "narrow"},
        "subjects": [operator_user()]});
    stack.apply(User::Admin, &[role, binding]).await.expect("applied");
    stack.plane().take_operator_rights().await.expect("taken");
}

fn operator_user() -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": User::Upriver.name()})
}

async fn start_operator(stack: &mut Stack, flags: &[&str]) {
    let options = OperatorOptions::named("upriver-0");
    let options = QUICK.iter().chain(flags).fold(options, |options, flag| options.arg(*flag));
    stack.add_operator(options).await.expect("ready");
}

#[tokio::test]
async fn without_rights_for_crds_the_refusal_is_logged_once_and_a_new_rule_still_finds_the_type() {
    let mut stack = Stack::start(StackOptions::default().operators(0, &[])).await;
    // Everything but the kinds that announce types.
    let groups = ["", "configbutler.ai", "coordination.k8s.io", "quiet.example.net"];
    narrow(&stack, &json!([{"apiGroups": groups, "resources": ["*"], "verbs": ["*"]}])).await;
    start_operator(&mut stack, &[]).await;

    let only = json!([{"resources": ["configmaps"]}]);
    let mut found = mirror(&stack, vec![resources::config_maps()], &only).await;
    Edits::new(stack.client(User::Alice), "shop").create("a", "1").await;
    stack.until_in_git(&found, SOON).await;
    let definition = crd("quiet.example.net", "mice", "Mouse", &["v1"], &json!({}));
    stack.apply(User::Admin, &[definition]).await.expect("applied");
    stack.apply(User::Alice, &[object("quiet.example.net/v1", "Mouse", "m", "1")]).await.expect("applied");
    set_rule(&stack, &json!([{"resources": ["configmaps", "mice"]}])).await;
    found.spec.types.push(Gvr::new("quiet.example.net", "v1", "mice"));
    stack.until_in_git(&found, SECONDS).await;
    let complaints = stack.operator(0).log().matches("not allowed to watch this kind").count();
    assert_eq!(complaints, 2, "once for CRDs, once for APIServices");
}

#[tokio::test]
async fn a_right_that_shrinks_to_one_namespace_is_noticed_and_the_watch_shrinks_with_it() {
    let mut stack = Stack::start(StackOptions::default().operators(0, &[])).await;
    let own =
        json!({"apiGroups": ["configbutler.ai", "coordination.k8s.io"], "resources": ["*"], "verbs": ["*"]});
    let needed =
        json!({"apiGroups": [""], "resources": ["namespaces", "secrets"], "verbs": ["get", "list", "watch"]});
    let config_maps =
        json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]});
    narrow(&stack, &json!([own, needed, config_maps])).await;
    start_operator(&mut stack, &["--watch-idle-limit=2s"]).await;
    let only = json!([{"resources": ["configmaps"]}]);
    let found = mirror(&stack, vec![resources::config_maps()], &only).await;
    let edits = Edits::new(stack.client(User::Alice), "shop");
    edits.create("a", "1").await;
    stack.until_in_git(&found, SOON).await;

    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "reader", "namespace": "shop"}, "rules": [config_maps]});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "reader", "namespace": "shop"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [operator_user()]});
    stack.apply(User::Admin, &[role, binding]).await.expect("applied");
    narrow(&stack, &json!([own, needed])).await;
    edits.create("b", "1").await;
    eventually("a watch of the namespace alone", SOON, async || {
        (metric(&stack, "upriver_watch_silence_seconds", &[("scope", "shop")]).await > 0.0).then_some(())
    })
    .await;
    edits.set("a", "2").await;
    stack.until_in_git(&found, SOON).await;
}
