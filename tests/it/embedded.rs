//! What is special about a single replica without Redis: its journal ends with the process.

use std::time::Duration;

use upriver_testkit::stack::{MirrorSpec, resources};
use upriver_testkit::{OperatorOptions, User};

use crate::editing::{Editing, converges};
use crate::support::{Edits, SOON, embedded_stack};

#[tokio::test]
async fn a_killed_process_comes_back_to_the_clusters_state_deletions_included() {
    let stack = embedded_stack().await;
    let mirror = stack.mirror(MirrorSpec::new("shop").types([resources::config_maps()])).await;
    let edits = Edits::new(stack.client(User::Alice), "shop");
    edits.create("kept", "1").await;
    edits.create("deleted-while-down", "1").await;
    stack.until_in_git(&mirror, SOON).await;
    let editing = Editing::start(&stack, "shop");
    editing.more(20).await;
    stack.operator(0).kill();
    edits.delete("deleted-while-down").await;
    edits.set("kept", "2").await;
    editing.more(20).await;
    stack.operator(0).restart().await;
    editing.more(20).await;
    editing.end().await;
    converges(&stack, &mirror, Duration::from_secs(120)).await;
}

#[tokio::test]
async fn a_second_replica_is_refused_with_one_clear_line() {
    let mut stack = embedded_stack().await;
    let mirror = stack.mirror(MirrorSpec::new("shop").types([resources::config_maps()])).await;
    let second = OperatorOptions::named("upriver-1").arg("--store=embedded");
    let index = stack.add_operator(second).await.expect("it starts, and then meets the first");
    let status = stack.operator(index).await_exit(SOON).await;
    assert_eq!(status.code(), Some(1));
    let log = stack.operator(index).log();
    let line = log.lines().find(|line| line.starts_with("upriver: ")).unwrap_or_default();
    assert!(line.contains("another replica is alive") && line.contains("--store redis"), "{line:?}\n{log}");
    Edits::new(stack.client(User::Alice), "shop").create("a", "1").await;
    stack.until_in_git(&mirror, SOON).await;
}
