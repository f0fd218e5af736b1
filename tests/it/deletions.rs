//! Each kind is deleted while people edit: its streams stop, files stay, nothing crash-loops, other targets go on, and a
//! namesake takes the files over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DeleteParams};
use serde_json::{Value, json};
use upriver_testkit::stack::{self, Mirror, MirrorSpec, Stack, resources};
use upriver_testkit::{User, eventually};

use crate::states::{delete, ours, refused, says, target, until, with_spec};
use crate::support::{Edits, SOON, assert_sound, stack as start};

/// Somebody who sets one ConfigMap to 1, 2, 3 … until told to stop.
struct Busy {
    stop: Arc<AtomicBool>,
    written: Arc<AtomicU32>,
    task: tokio::task::JoinHandle<()>,
}

impl Busy {
    async fn start(stack: &Stack, namespace: &str) -> Self {
        let edits = Edits::new(stack.client(User::Bob), namespace);
        edits.create("busy", "0").await;
        let (stop, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let (ended, count) = (stop.clone(), written.clone());
        let task = tokio::spawn(async move {
            while !ended.load(Ordering::Relaxed) {
                let next = count.load(Ordering::Relaxed) + 1;
                edits.set("busy", &next.to_string()).await;
                count.store(next, Ordering::Relaxed);
            }
        });
        Self { stop, written, task }
    }

    /// Waits for so many more edits.
    async fn more(&self, count: u32) {
        let goal = self.written.load(Ordering::Relaxed) + count;
        eventually("further edits", SOON, async || {
            let written = self.written.load(Ordering::Relaxed);
            if written >= goal { Ok(()) } else { Err(written) }
        })
        .await;
    }

    async fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.expect("no edit failed");
    }
}

/// A mirror of `shop` that somebody edits all the time, and one of `yard` beside it on the same branch.
async fn world() -> (Stack, Mirror, Mirror, Busy) {
    let stack = start(1).await;
    let shop = stack.mirror(MirrorSpec::new("shop").types([resources::config_maps()])).await;
    let yard = stack.mirror(MirrorSpec::new("yard").types([resources::config_maps()])).await;
    stack.apply(User::Admin, &[provider(&stack, "1s")]).await.expect("applied");
    let busy = Busy::start(&stack, "shop").await;
    eventually("the first edits in Git", SOON, async || stack.repo().show("main", &file(&shop))).await;
    (stack, shop, yard, busy)
}

/// Somebody who never pauses would otherwise be committed once a minute.
fn provider(stack: &Stack, window: &str) -> Value {
    let push = json!({"push": {"commitWindow": window, "maxWindowAge": "2s"}});
    with_spec(stack::git_provider("shop", "git", &stack.repo_url(), window), &push)
}

fn file(mirror: &Mirror) -> String {
    mirror.file_of(&resources::config_maps(), "busy")
}

/// The neighbour mirrors an edit, all earlier work of the branch is done with, and the process is the one that was started.
async fn neighbour_goes_on(stack: &Stack, yard: &Mirror, name: &str) {
    Edits::new(stack.client(User::Alice), "yard").create(name, "1").await;
    stack.until_in_git(yard, SOON).await;
    stack.wait_ready("GitTarget", "yard", "mirror", SOON).await;
    let log = stack.operator(0).log();
    assert_eq!(log.matches("upriver starts").count(), 1, "it was never restarted");
    assert!(!log.contains("panicked"), "{log}");
}

/// The file of the deleted mirror stays as it is while edits go on.
async fn frozen(stack: &Stack, shop: &Mirror, yard: &Mirror, busy: &Busy, round: &str) {
    // What was in flight when the object went may still land, and lands before a later edit of the neighbour.
    neighbour_goes_on(stack, yard, &format!("{round}-1")).await;
    let before = stack.repo().show("main", &file(shop)).expect("the file stays");
    busy.more(10).await;
    neighbour_goes_on(stack, yard, &format!("{round}-2")).await;
    assert_eq!(stack.repo().show("main", &file(shop)).as_ref(), Some(&before), "nobody writes it");
}

async fn again(stack: &Stack, shop: &Mirror, busy: Busy) {
    stack.wait_ready("GitTarget", "shop", "mirror", SOON).await;
    stack.wait_ready("WatchRule", "shop", "mirror", SOON).await;
    busy.stop().await;
    stack.until_in_git(shop, SOON).await;
    assert_sound(stack);
}

fn rule() -> Value {
    stack::watch_rule("shop", "mirror", "mirror", &[resources::config_maps()])
}

#[tokio::test]
async fn a_target_deleted_under_edits_stops_and_its_namesake_adopts_the_files() {
    let (stack, shop, yard, busy) = world().await;
    let uid = stack.get("GitTarget", "shop", "mirror").await.expect("readable")["metadata"]["uid"].clone();
    delete(&stack, "GitTarget", "shop", "mirror").await;
    refused(&stack, "WatchRule", ("shop", "mirror"), ("GitTargetReady", "GitTargetNotFound"), "create it")
        .await;
    frozen(&stack, &shop, &yard, &busy, "target").await;
    stack.apply(User::Admin, &[target("shop", "mirror", "git", "shop", &json!({}))]).await.expect("applied");
    again(&stack, &shop, busy).await;
    let new = stack.get("GitTarget", "shop", "mirror").await.expect("readable");
    assert_ne!(new["metadata"]["uid"], uid);
    assert!(says(&new, "GitPathAccepted").starts_with("True"), "its predecessor's files are its own: {new}");
}

#[tokio::test]
async fn the_last_rule_deleted_under_edits_ends_the_commits_and_the_target_stays_ready() {
    let (stack, shop, yard, busy) = world().await;
    delete(&stack, "WatchRule", "shop", "mirror").await;
    eventually("no streams", SOON, async || {
        let target = stack.get("GitTarget", "shop", "mirror").await?;
        let summary = target["status"]["streams"]["summary"].clone();
        if summary == "0/0" { Ok(()) } else { Err(summary.to_string()) }
    })
    .await;
    frozen(&stack, &shop, &yard, &busy, "rule").await;
    let idle =
        until(&stack, "GitTarget", "shop", "mirror", ("StreamsRunning", "True", "NoResolvedTypes")).await;
    assert!(says(&idle, "Ready").starts_with("True"), "{}", says(&idle, "Ready"));
    stack.apply(User::Admin, &[rule()]).await.expect("applied");
    again(&stack, &shop, busy).await;
}

#[tokio::test]
async fn providers_deleted_under_edits_stop_their_targets_until_they_are_back() {
    let (stack, shop, yard, busy) = world().await;
    delete(&stack, "GitProvider", "shop", "git").await;
    refused(&stack, "GitTarget", ("shop", "mirror"), ("Validated", "ProviderNotFound"), "create it").await;
    refused(
        &stack,
        "WatchRule",
        ("shop", "mirror"),
        ("GitTargetReady", "GitRepoConfigNotFound"),
        "create it",
    )
    .await;
    frozen(&stack, &shop, &yard, &busy, "provider").await;
    stack.apply(User::Admin, &[provider(&stack, "1s")]).await.expect("applied");
    stack.wait_ready("GitTarget", "shop", "mirror", SOON).await;

    // The source cluster is everybody's: all stop, and all go on.
    delete(&stack, "ClusterProvider", "", "default").await;
    for namespace in ["shop", "yard"] {
        refused(
            &stack,
            "GitTarget",
            (namespace, "mirror"),
            ("Validated", "ClusterProviderNotFound"),
            "create it",
        )
        .await;
    }
    busy.more(5).await;
    stack.apply(User::Admin, &[stack::cluster_provider()]).await.expect("applied");
    neighbour_goes_on(&stack, &yard, "cluster").await;
    again(&stack, &shop, busy).await;
}

#[tokio::test]
async fn a_cluster_rule_and_a_request_deleted_under_edits_leave_the_rest_alone() {
    let (stack, shop, yard, busy) = world().await;
    let spec = json!({"targetRef": {"namespace": "shop", "name": "mirror"}, "rules": [{"resources": ["namespaces"]}]});
    let request = ours("CommitRequest", "shop", "save", &json!({"targetRef": {"name": "mirror"}}));
    let objects = [ours("ClusterWatchRule", "", "spaces", &spec), request];
    stack.apply(User::Admin, &objects).await.expect("applied");
    stack.wait_ready("ClusterWatchRule", "", "spaces", SOON).await;
    until(&stack, "CommitRequest", "shop", "save", ("Ready", "False", "NotYetSupported")).await;
    delete(&stack, "ClusterWatchRule", "", "spaces").await;
    delete(&stack, "CommitRequest", "shop", "save").await;
    eventually("one stream", SOON, async || {
        let target = stack.get("GitTarget", "shop", "mirror").await?;
        let total = target["status"]["streams"]["total"].clone();
        if total == 1 { Ok(()) } else { Err(total.to_string()) }
    })
    .await;
    stack.plane().create_namespace("later").await;
    neighbour_goes_on(&stack, &yard, "cluster-rule").await;
    let spaces = stack.repo().paths("main", "shop/_cluster");
    assert!(spaces.iter().any(|path| path.ends_with("namespaces/shop.yaml")), "files stay: {spaces:?}");
    assert!(!spaces.iter().any(|path| path.ends_with("namespaces/later.yaml")), "streams stop: {spaces:?}");
    busy.stop().await;
    let file = file(&shop);
    let last = stack_value(&stack).await;
    eventually("the last edit", SOON, async || {
        stack.repo().show("main", &file).filter(|text| text.contains(&format!("value: \"{last}\"")))
    })
    .await;
}

async fn stack_value(stack: &Stack) -> String {
    let api: Api<ConfigMap> = Api::namespaced(stack.client(User::Admin), "shop");
    let map = api.get("busy").await.expect("readable");
    map.data.unwrap_or_default().remove("value").unwrap_or_default()
}

#[tokio::test]
async fn credentials_deleted_under_edits_keep_the_edits_until_they_are_back() {
    let (stack, shop, yard, busy) = world().await;
    let secrets: Api<Secret> = Api::namespaced(stack.client(User::Admin), "shop");
    secrets.delete("git", &DeleteParams::default()).await.expect("deleted");
    eventually("the loss to be named", SOON, async || {
        let target = stack.get("GitTarget", "shop", "mirror").await?;
        let text = says(&target, "Ready");
        if text.starts_with("False") && text.contains("Secret") { Ok(()) } else { Err(text) }
    })
    .await;
    busy.more(10).await;
    // A change of the provider's object is not needed, it only spares the test the wait between two attempts.
    let touched = provider(&stack, "2s");
    stack.apply(User::Admin, &[stack::git_secret("shop", "git"), touched]).await.expect("applied");
    again(&stack, &shop, busy).await;
    neighbour_goes_on(&stack, &yard, "secret").await;
}

#[tokio::test]
async fn everything_of_a_namespace_deleted_at_once_hurts_nobody_else_and_comes_back() {
    let (stack, shop, yard, busy) = world().await;
    for (kind, name) in [("GitProvider", "git"), ("WatchRule", "mirror"), ("GitTarget", "mirror")] {
        delete(&stack, kind, "shop", name).await;
    }
    let secrets: Api<Secret> = Api::namespaced(stack.client(User::Admin), "shop");
    secrets.delete("git", &DeleteParams::default()).await.expect("deleted");
    frozen(&stack, &shop, &yard, &busy, "all").await;
    // What is deleted while nobody looks is found by the namesake's list.
    busy.stop().await;
    let edits = Edits::new(stack.client(User::Alice), "shop");
    edits.create("fresh", "1").await;
    let mirror = stack.mirror(MirrorSpec::new("shop").types([resources::config_maps()])).await;
    stack.until_in_git(&mirror, SOON).await;
    edits.delete("busy").await;
    stack.until_in_git(&mirror, SOON).await;
    assert_sound(&stack);
}
