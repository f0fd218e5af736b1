use std::time::Duration;

use upriver_testkit::stack::{MirrorSpec, resources};
use upriver_testkit::{User, eventually};

use crate::first_light::owner_of;
use crate::support::{Edits, SOON, stack, values_of};

#[tokio::test]
async fn a_second_process_stays_standby_and_a_frozen_owner_writes_nothing_old_when_it_wakes() {
    let stack = stack(2).await;
    let mirror = stack.mirror(MirrorSpec::new("shop").types([resources::config_maps()])).await;
    let edits = Edits::new(stack.client(User::Alice), "shop");
    edits.create("x", "100").await;
    stack.until_in_git(&mirror, SOON).await;
    let owner = owner_of(&stack).await;
    let standby = 1 - owner;

    // Frozen with an edit that it has not pushed: the window of one second is open.
    edits.set("x", "101").await;
    stack.operator(owner).pause();
    edits.set("x", "102").await;
    edits.create("y", "100").await;
    let what = "the standby to take over after the session's silence";
    eventually(what, Duration::from_secs(60), async || {
        (stack.operator(standby).metric_value("upriver_branches_owned", &[]).await == Some(1.0)).then_some(())
    })
    .await;
    stack.until_in_git(&mirror, SOON).await;
    edits.set("x", "103").await;
    stack.until_in_git(&mirror, SOON).await;

    stack.operator(owner).resume();
    eventually("the woken process to notice its fence", SOON, async || {
        let lost = stack.operator(owner).metric_value("upriver_lease_lost_total", &[]).await;
        lost.is_some_and(|count| count >= 1.0).then_some(())
    })
    .await;
    edits.set("x", "104").await;
    edits.delete("y").await;
    stack.until_in_git(&mirror, SOON).await;
    assert_eq!(owner_of(&stack).await, standby, "one owner, and it is the one that took over");
    let values = values_of(&stack.repo(), "main", &mirror.file_of(&resources::config_maps(), "x"));
    let values: Vec<&str> = values.iter().flatten().map(String::as_str).collect();
    assert!(values.is_sorted(), "no old state over new: {values:?}");
    assert_eq!(values.last(), Some(&"104"));
}

#[tokio::test]
async fn a_killed_owner_is_replaced_after_its_silence() {
    let stack = stack(2).await;
    let mirror = stack.mirror(MirrorSpec::new("shop").types([resources::config_maps()])).await;
    let edits = Edits::new(stack.client(User::Alice), "shop");
    edits.create("x", "1").await;
    stack.until_in_git(&mirror, SOON).await;
    let owner = owner_of(&stack).await;
    edits.set("x", "2").await;
    stack.operator(owner).kill();
    edits.delete("x").await;
    edits.create("z", "1").await;
    stack.until_in_git(&mirror, SOON).await;
    let epoch =
        stack.get("GitTarget", "shop", "mirror").await.expect("readable")["status"]["owner"]["epoch"].clone();
    assert_eq!(epoch, 2, "the claim's epoch rose by one");
}
