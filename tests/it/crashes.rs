use std::time::Duration;

use upriver_testkit::git_server::{Fault, Gate, RequestKind, Times};
use upriver_testkit::stack::{Mirror, MirrorSpec, Stack, resources};
use upriver_testkit::{User, eventually};

use crate::support::{Edits, SOON, assert_sound, entries_of_commits, stack, values_of};

async fn prepared() -> (Stack, Mirror, Edits) {
    let stack = stack(1).await;
    let mirror = stack.mirror(MirrorSpec::new("shop").types([resources::config_maps()])).await;
    let edits = Edits::new(stack.client(User::Alice), "shop");
    for name in ["changed", "deleted", "deleted-while-down"] {
        edits.create(name, "1").await;
    }
    stack.until_in_git(&mirror, SOON).await;
    (stack, mirror, edits)
}

async fn edit(edits: &Edits) {
    edits.set("changed", "2").await;
    edits.create("created", "1").await;
    edits.delete("deleted").await;
}

/// After the restart: all is there, nothing was committed twice, no file went back.
async fn recovers(stack: &Stack, mirror: &Mirror, edits: &Edits) {
    edits.delete("deleted-while-down").await;
    edits.set("changed", "3").await;
    stack.operator(0).restart().await;
    stack.until_in_git(mirror, SOON).await;
    let repo = stack.repo();
    let file = |name: &str| mirror.file_of(&resources::config_maps(), name);
    assert_eq!(repo.show("main", &file("deleted")), None);
    assert_eq!(repo.show("main", &file("deleted-while-down")), None);
    let values = values_of(&repo, "main", &file("changed"));
    let seen: Vec<&str> = values.iter().flatten().map(String::as_str).collect();
    assert!(seen.is_sorted(), "no old state over new: {seen:?}");
    let distinct: std::collections::BTreeSet<&&str> = seen.iter().collect();
    assert_eq!(seen.len(), distinct.len(), "no state twice: {seen:?}");
    assert_eq!(seen.last(), Some(&"3"));
    assert_eq!(values_of(&repo, "main", &file("created")).len(), 1, "created in one commit");
    for (commit, fresh) in entries_of_commits(&repo, "main") {
        let info = repo.git(&["show", "--stat", "--format=%s", &commit]);
        let empty = !info.contains('|');
        assert!(!empty || fresh.is_empty() || info.starts_with("empty commit"), "{commit} {fresh:?}: {info}");
    }
    assert_sound(stack);
}

async fn crash_at(point: &str) {
    let (stack, mirror, edits) = prepared().await;
    stack.operator(0).order_crash(point);
    edit(&edits).await;
    let what = format!("the crash {point}");
    eventually(&what, SOON, async || (!stack.operator(0).is_running()).then_some(())).await;
    recovers(&stack, &mirror, &edits).await;
}

#[tokio::test]
async fn a_crash_before_the_append_loses_nothing() {
    crash_at("before-append").await;
}

#[tokio::test]
async fn a_crash_after_the_append_loses_nothing() {
    crash_at("after-append").await;
}

#[tokio::test]
async fn a_crash_after_the_commit_loses_nothing() {
    crash_at("after-commit").await;
}

#[tokio::test]
async fn a_crash_after_the_push_loses_nothing_and_repeats_nothing() {
    crash_at("after-push").await;
}

async fn crash_inside_push(fault: Fault, gate: Gate) {
    let (stack, mirror, edits) = prepared().await;
    stack.git().inject(RequestKind::ReceivePack, Times::Once, fault);
    edit(&edits).await;
    let waiting = gate.clone();
    let reached = tokio::task::spawn_blocking(move || waiting.wait_reached(Duration::from_secs(60)));
    assert!(reached.await.expect("the wait ends"), "no push came");
    stack.operator(0).kill();
    gate.open();
    recovers(&stack, &mirror, &edits).await;
}

#[tokio::test]
async fn a_crash_inside_a_push_that_lands_later_loses_nothing() {
    let gate = Gate::new();
    crash_inside_push(Fault::HoldBeforeBackend(gate.clone()), gate).await;
}

#[tokio::test]
async fn a_crash_inside_a_push_that_has_landed_repeats_nothing() {
    let gate = Gate::new();
    crash_inside_push(Fault::HoldAfterBackend(gate.clone()), gate).await;
}
