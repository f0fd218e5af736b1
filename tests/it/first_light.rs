use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;
use upriver_testkit::stack::{MirrorSpec, Stack};
use upriver_testkit::{User, eventually};

use crate::support::{Edits, SOON, assert_sound, in_both_stores, stack};

fn deployment() -> serde_json::Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "nginx:1.27", "args": ["-c", "yes", "0x1F"]}]}
            }
        }
    })
}

fn headless_service() -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"clusterIP": "None", "selector": {"app": "web"}, "ports": [{"name": "http", "port": 80}]}
    })
}

fn script() -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "script", "namespace": "shop", "annotations": {"note": "on"}},
        "data": {"run.sh": "#!/bin/sh\necho hello\n", "empty": "", "octal": "012", "lead": "\nline"}
    })
}

in_both_stores!(
    every_edit_of_a_person_arrives_in_its_file_and_nothing_else_does,
    a_status_update_and_a_no_op_apply_make_no_commit,
    an_edited_rule_and_a_second_target_on_the_branch_are_followed_without_a_restart,
    a_restarted_api_server_and_deletions_meanwhile_are_caught_up_with,
);

async fn every_edit_of_a_person_arrives_in_its_file_and_nothing_else_does(stack: Stack) {
    let mirror = stack.mirror(MirrorSpec::new("shop")).await;
    stack.apply(User::Alice, &[script(), headless_service()]).await.expect("applied");
    stack.apply(User::Bob, &[deployment()]).await.expect("applied");
    stack.until_in_git(&mirror, SOON).await;

    let deployments: Api<Deployment> = Api::namespaced(stack.client(User::Bob), "shop");
    let scale = Patch::Merge(json!({"spec": {"replicas": 5}}));
    deployments.patch("web", &PatchParams::default(), &scale).await.expect("scaled");
    let edits = Edits::new(stack.client(User::Alice), "shop");
    edits.create("short-lived", "1").await;
    edits.create("kept", "1").await;
    edits.set("kept", "2").await;
    edits.delete("short-lived").await;
    stack.until_in_git(&mirror, SOON).await;
    let text = stack.repo().show("main", "shop/shop/apps/deployments/web.yaml").expect("mirrored");
    assert!(text.contains("\n  replicas: 5\n"), "{text}");
    assert!(!text.contains("status:") && !text.contains("managedFields"), "{text}");
    let service = stack.repo().show("main", "shop/shop/services/web.yaml").expect("mirrored");
    assert!(service.contains("clusterIP: None"), "headless services stay headless: {service}");

    deployments.delete("web", &DeleteParams::default()).await.expect("deleted");
    stack.until_in_git(&mirror, SOON).await;
    assert_eq!(stack.repo().show("main", "shop/shop/apps/deployments/web.yaml"), None);
    assert_sound(&stack);
}

async fn a_status_update_and_a_no_op_apply_make_no_commit(stack: Stack) {
    let mirror = stack.mirror(MirrorSpec::new("shop")).await;
    stack.apply(User::Bob, &[deployment()]).await.expect("applied");
    stack.until_in_git(&mirror, SOON).await;
    let before = stack.repo().head("main");

    let deployments: Api<Deployment> = Api::namespaced(stack.client(User::Bob), "shop");
    let status = Patch::Merge(json!({"status": {"replicas": 2, "observedGeneration": 1}}));
    deployments.patch_status("web", &PatchParams::default(), &status).await.expect("patched");
    let annotation =
        Patch::Merge(json!({"metadata": {"annotations": {"deployment.kubernetes.io/revision": "7"}}}));
    deployments.patch("web", &PatchParams::default(), &annotation).await.expect("patched");
    // A later edit of another object marks the moment at which the two above have been seen.
    Edits::new(stack.client(User::Alice), "shop").create("marker", "1").await;
    stack.until_in_git(&mirror, SOON).await;
    let log = stack.repo().log("main");
    let since: Vec<_> = log.iter().take_while(|commit| Some(&commit.id) != before.as_ref()).collect();
    assert_eq!(since.len(), 1, "{since:?}");
    assert_eq!(since[0].paths, ["shop/shop/configmaps/marker.yaml"]);
    let dropped = stack
        .operator(0)
        .metric_value("upriver_watch_events_total", &[("resource", "deployments"), ("outcome", "noop")])
        .await;
    assert!(dropped.is_some_and(|count| count >= 1.0), "{dropped:?}");
}

async fn an_edited_rule_and_a_second_target_on_the_branch_are_followed_without_a_restart(stack: Stack) {
    let first = MirrorSpec::new("shop").types([upriver_testkit::stack::resources::config_maps()]);
    let first = stack.mirror(first).await;
    let edits = Edits::new(stack.client(User::Alice), "shop");
    edits.create("a", "1").await;
    stack.apply(User::Bob, &[deployment()]).await.expect("applied");
    stack.until_in_git(&first, SOON).await;
    assert_eq!(stack.repo().show("main", "shop/shop/apps/deployments/web.yaml"), None, "not selected");

    // The same namespace, now with Deployments too; and another namespace into another folder of the same branch.
    let wider = stack.mirror(MirrorSpec::new("shop")).await;
    let other = stack.mirror(MirrorSpec::new("yard")).await;
    Edits::new(stack.client(User::Bob), "yard").create("b", "1").await;
    edits.set("a", "2").await;
    stack.until_in_git(&wider, SOON).await;
    stack.until_in_git(&other, SOON).await;
    assert!(stack.repo().show("main", "shop/shop/apps/deployments/web.yaml").is_some());
}

async fn a_restarted_api_server_and_deletions_meanwhile_are_caught_up_with(stack: Stack) {
    let mirror = stack.mirror(MirrorSpec::new("shop")).await;
    let edits = Edits::new(stack.client(User::Alice), "shop");
    for index in 0..5 {
        edits.create(&format!("o{index}"), "1").await;
    }
    stack.until_in_git(&mirror, SOON).await;
    stack.operator(0).pause();
    edits.delete("o1").await;
    edits.set("o2", "2").await;
    // The restarted server remembers no events from before: the operator's cursors are expired.
    stack.plane().stop_apiserver();
    stack.plane().start_apiserver().await;
    Edits::new(stack.client(User::Alice), "shop").delete("o3").await;
    stack.operator(0).resume();
    stack.until_in_git(&mirror, SOON).await;
    assert_eq!(stack.repo().show("main", "shop/shop/configmaps/o1.yaml"), None);
    assert_eq!(stack.repo().show("main", "shop/shop/configmaps/o3.yaml"), None);
}

#[tokio::test]
async fn a_stopped_operator_hands_over_in_good_order() {
    let stack = stack(2).await;
    let mirror = stack.mirror(MirrorSpec::new("shop")).await;
    let edits = Edits::new(stack.client(User::Alice), "shop");
    edits.create("a", "1").await;
    stack.until_in_git(&mirror, SOON).await;
    let owner = owner_of(&stack).await;
    edits.set("a", "2").await;
    let status = stack.operator(owner).terminate().await;
    assert!(status.success(), "{status:?}");
    edits.set("a", "3").await;
    stack.until_in_git(&mirror, SOON).await;
    let claims = stack.operator(1 - owner).metric_value("upriver_branches_owned", &[]).await;
    assert_eq!(claims, Some(1.0));
}

/// Index of the operator that owns the only branch.
pub async fn owner_of(stack: &Stack) -> usize {
    eventually("one operator to own the branch", Duration::from_secs(30), async || {
        let mut owners = Vec::new();
        for (index, operator) in stack.operators().iter().enumerate() {
            if operator.metric_value("upriver_branches_owned", &[]).await == Some(1.0) {
                owners.push(index);
            }
        }
        match owners[..] {
            [only] => Ok(only),
            _ => Err(format!("{owners:?}")),
        }
    })
    .await
}
