//! What people ask of a GitTarget: a pause, another look.

use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use upriver_api::GitTarget;
use upriver_testkit::stack::{Mirror, MirrorSpec, Stack, resources};
use upriver_testkit::{User, eventually};

use crate::foreign_files::condition;
use crate::support::{Edits, SOON, human_clone, human_push, in_both_stores, stack};

in_both_stores!(
    a_suspended_target_is_left_alone_and_catches_up_when_it_goes_on,
    a_recheck_is_done_once_per_value_and_ends_a_wait,
);

async fn change(stack: &Stack, patch: Value) {
    let targets: Api<GitTarget> = Api::namespaced(stack.client(User::Admin), "shop");
    targets.patch("mirror", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("patched");
}

async fn suspend(stack: &Stack, suspended: bool) {
    change(stack, json!({"spec": {"suspend": suspended}})).await;
    let wanted = if suspended { "True" } else { "False" };
    eventually(&format!("Suspended is {wanted}"), SOON, async || {
        condition(&stack.get("GitTarget", "shop", "mirror").await?, "Suspended", wanted)
    })
    .await;
}

fn file(mirror: &Mirror, name: &str) -> String {
    mirror.file_of(&resources::config_maps(), name)
}

async fn a_suspended_target_is_left_alone_and_catches_up_when_it_goes_on(stack: Stack) {
    let mirror = stack.mirror(MirrorSpec::new("shop").types([resources::config_maps()])).await;
    let other = stack.mirror(MirrorSpec::new("yard").types([resources::config_maps()])).await;
    let edits = Edits::new(stack.client(User::Alice), "shop");
    for name in ["kept", "changed", "deleted", "deleted-while-nobody-runs"] {
        edits.create(name, "1").await;
    }
    stack.until_in_git(&mirror, SOON).await;
    let before = stack.repo().ls_tree("main", "shop");

    suspend(&stack, true).await;
    let target = stack.get("GitTarget", "shop", "mirror").await.expect("readable");
    for type_ in ["Ready", "Reconciling", "Stalled"] {
        let found = condition(&target, type_, "False").expect("neither ready nor wrong");
        assert_eq!(found["reason"], "Suspended", "{found}");
    }
    edits.set("changed", "2").await;
    edits.delete("deleted").await;
    edits.create("new", "1").await;
    // The same branch goes on for others, and its commits mark the time that has passed.
    Edits::new(stack.client(User::Bob), "yard").create("a", "1").await;
    stack.until_in_git(&other, SOON).await;
    assert_eq!(stack.repo().ls_tree("main", "shop"), before, "nothing is written while it is suspended");
    stack.operator(0).kill();
    edits.delete("deleted-while-nobody-runs").await;
    stack.operator(0).restart().await;
    Edits::new(stack.client(User::Bob), "yard").create("b", "1").await;
    stack.until_in_git(&other, SOON).await;
    assert_eq!(stack.repo().ls_tree("main", "shop"), before, "a restart does not end a pause");

    suspend(&stack, false).await;
    stack.until_in_git(&mirror, SOON).await;
    for gone in ["deleted", "deleted-while-nobody-runs"] {
        assert_eq!(stack.repo().show("main", &file(&mirror, gone)), None, "{gone}");
    }
    stack.wait_ready("GitTarget", "shop", "mirror", SOON).await;
}

async fn a_recheck_is_done_once_per_value_and_ends_a_wait(stack: Stack) {
    let mirror = stack.mirror(MirrorSpec::new("shop").types([resources::config_maps()])).await;
    let edits = Edits::new(stack.client(User::Alice), "shop");
    edits.create("a", "1").await;
    stack.until_in_git(&mirror, SOON).await;

    let ask = async |value: &str| {
        change(&stack, json!({"metadata": {"annotations": {upriver_api::RECONCILE_ANNOTATION: value}}}))
            .await;
        eventually("the request is handled", SOON, async || {
            let target = stack.get("GitTarget", "shop", "mirror").await?;
            let handled = target["status"]["lastHandledReconcileAt"].clone();
            if handled == value { Ok(()) } else { Err(handled.to_string()) }
        })
        .await;
    };
    let replays =
        async || stack.operator(0).metric_value("upriver_replays_total", &[]).await.unwrap_or_default();
    let first = replays().await;
    ask("one").await;
    stack.until_in_git(&mirror, SOON).await;
    let asked = replays().await;
    assert!(asked > first, "{first} lists before, {asked} after");
    edits.set("a", "2").await;
    stack.until_in_git(&mirror, SOON).await;
    assert_eq!(replays().await, asked, "a request is acted upon once");

    // A push that waits for its next turn does not wait any longer.
    let refused = "#!/bin/sh\necho frozen; exit 1\n";
    stack.git().set_hook("fleet", "pre-receive", refused).expect("a hook");
    edits.set("a", "3").await;
    eventually("the push is denied", SOON, async || {
        let target = stack.get("GitTarget", "shop", "mirror").await?;
        let found = condition(&target, "Delivering", "False")?;
        let retry = target["status"]["delivery"]["nextRetry"].as_str().map(str::to_owned);
        if found["reason"] == "Denied" && retry.is_some() { Ok(()) } else { Err(found.to_string()) }
    })
    .await;
    stack.git().set_hook("fleet", "pre-receive", "#!/bin/sh\nexit 0\n").expect("a hook");
    ask("two").await;
    stack.until_in_git(&mirror, SOON).await;
    stack.wait_ready("GitTarget", "shop", "mirror", SOON).await;
    let target = stack.get("GitTarget", "shop", "mirror").await.expect("readable");
    assert_eq!(target["status"]["delivery"]["consecutiveFailures"], Value::Null, "{target}");
}

/// A backoff is durable: a new owner does not ask a host that wants to be left alone.
#[tokio::test]
async fn a_wait_is_kept_over_a_restart() {
    use upriver_testkit::git_server::{Fault, RequestKind, Times};
    let stack = stack(1).await;
    let mirror = stack.mirror(MirrorSpec::new("shop").types([resources::config_maps()])).await;
    let edits = Edits::new(stack.client(User::Alice), "shop");
    edits.create("a", "1").await;
    stack.until_in_git(&mirror, SOON).await;

    let limit = Fault::Refuse { status: 429, retry_after: Some(600) };
    stack.git().inject(RequestKind::ReceivePackRefs, Times::Always, limit);
    edits.set("a", "2").await;
    let limited = async || {
        let target = stack.get("GitTarget", "shop", "mirror").await?;
        let found = condition(&target, "Delivering", "False")?;
        let owner = target["status"]["owner"]["epoch"].as_i64().unwrap_or_default();
        if found["reason"] == "RateLimited" { Ok(owner) } else { Err(found.to_string()) }
    };
    let epoch = eventually("the host asks for a pause", SOON, limited).await;
    stack.operator(0).kill();
    let pushes = stack.git().requests(RequestKind::ReceivePackRefs);
    stack.operator(0).restart().await;
    eventually("the next owner waits too", SOON, async || {
        let owner = limited().await?;
        if owner > epoch { Ok(()) } else { Err(format!("epoch {owner}")) }
    })
    .await;
    assert_eq!(stack.git().requests(RequestKind::ReceivePackRefs), pushes, "the host is left alone");

    // A person who knows better asks for another look.
    stack.git().clear_faults();
    change(&stack, json!({"metadata": {"annotations": {upriver_api::RECONCILE_ANNOTATION: "now"}}})).await;
    stack.until_in_git(&mirror, SOON).await;
}

/// A folder that was repaired by hand is looked at again on request, without waiting for anything else.
#[tokio::test]
async fn a_foreign_file_that_was_removed_is_noticed_by_a_recheck() {
    let stack = stack(1).await;
    let clone = human_clone(&stack);
    std::fs::create_dir_all(clone.join("shop/shop/configmaps")).expect("made");
    std::fs::write(clone.join("shop/shop/configmaps/a.yaml"), "# mine\n").expect("written");
    human_push(&clone, "mine");
    let mirror = stack.apply_mirror(MirrorSpec::new("shop").types([resources::config_maps()])).await;
    let mirror = mirror.expect("applied");
    Edits::new(stack.client(User::Alice), "shop").create("a", "1").await;
    eventually("the file is refused", SOON, async || {
        condition(&stack.get("GitTarget", "shop", "mirror").await?, "GitPathAccepted", "False")
    })
    .await;
    std::fs::remove_file(clone.join("shop/shop/configmaps/a.yaml")).expect("removed");
    human_push(&clone, "out of the way");
    change(&stack, json!({"metadata": {"annotations": {upriver_api::RECONCILE_ANNOTATION: "1"}}})).await;
    stack.until_in_git(&mirror, SOON).await;
    stack.wait_ready("GitTarget", "shop", "mirror", SOON).await;
}
