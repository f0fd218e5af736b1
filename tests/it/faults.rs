//! Each part fails while edits go on: conditions say what is wrong, and all of it heals by itself.

use std::time::Duration;

use serde_json::Value;
use upriver_testkit::git_server::{Fault, RequestKind, Times, git, try_git};
use upriver_testkit::stack::{MirrorSpec, Stack, resources};
use upriver_testkit::{User, eventually};

use crate::editing::{Editing, converges};
use crate::foreign_files::condition;
use crate::support::{Edits, SOON, human_clone, in_both_stores, stack};

/// How long the Git host is away: the fault itself, nothing is waited for.
const GIT_OUTAGE: Duration = Duration::from_secs(30);
/// How long the API server is frozen: longer than a renewal may take, shorter than a session lasts.
const FREEZE: Duration = Duration::from_secs(6);
/// A backoff that began in the fault may last a minute more.
const AFTER_BACKOFF: Duration = Duration::from_secs(150);

const SPEC: fn() -> MirrorSpec =
    || MirrorSpec::new("shop").commit_window("200ms").types([resources::config_maps()]);

/// Waits until the target says that it does not deliver, for one of these reasons.
pub async fn not_delivering(stack: &Stack, reasons: &[&str]) -> Value {
    eventually(&format!("Delivering is False: {reasons:?}"), SOON, async || {
        let target = stack.get("GitTarget", "shop", "mirror").await?;
        let found = condition(&target, "Delivering", "False")?;
        condition(&target, "Ready", "False")?;
        let reason = found["reason"].as_str().unwrap_or_default();
        if reasons.contains(&reason) { Ok(found) } else { Err(found.to_string()) }
    })
    .await
}

async fn ready_again(stack: &Stack) {
    stack.wait_ready("GitTarget", "shop", "mirror", SOON).await;
}

#[tokio::test]
async fn a_redis_that_stops_is_wiped_or_set_back_costs_nothing() {
    let stack = stack(1).await;
    let mirror = stack.mirror(SPEC()).await;
    let editing = Editing::start(&stack, "shop");
    editing.more(60).await;

    stack.redis().stop();
    let said = not_delivering(&stack, &["JournalUnavailable"]).await;
    assert!(said["message"].as_str().is_some_and(|text| text.contains("next action: wait")), "{said}");
    editing.more(50).await;
    stack.redis().start_again().await;
    ready_again(&stack).await;

    let early = stack.redis().snapshot().await;
    editing.more(80).await;
    stack.redis().restore(&early).await;
    editing.more(50).await;

    stack.redis().pause();
    editing.more(50).await;
    stack.redis().resume();

    stack.redis().wipe().await;
    editing.more(50).await;
    editing.end().await;
    converges(&stack, &mirror, AFTER_BACKOFF).await;
    ready_again(&stack).await;
}

#[tokio::test]
async fn objects_deleted_while_the_journal_is_lost_leave_git() {
    let stack = stack(1).await;
    let mirror = stack.mirror(SPEC()).await;
    let edits = Edits::new(stack.client(User::Alice), "shop");
    for name in ["kept", "gone-before", "gone-while"] {
        edits.create(name, "1").await;
    }
    stack.until_in_git(&mirror, SOON).await;
    // The watch is on an API server that is away, so that nobody sees the deletion before the journal is gone.
    stack.operator(0).pause();
    edits.delete("gone-before").await;
    stack.redis().wipe().await;
    edits.delete("gone-while").await;
    stack.operator(0).resume();
    converges(&stack, &mirror, AFTER_BACKOFF).await;
    assert!(stack.repo().show("main", &mirror.file_of(&resources::config_maps(), "kept")).is_some());
}

async fn an_api_server_that_restarts_costs_nothing(stack: Stack) {
    let mirror = stack.mirror(SPEC()).await;
    let editing = Editing::start(&stack, "shop");
    editing.more(60).await;
    for _ in 0..2 {
        stack.plane().stop_apiserver();
        stack.plane().start_apiserver().await;
        editing.more(40).await;
    }
    stack.plane().pause();
    tokio::time::sleep(FREEZE).await;
    stack.plane().resume();
    editing.more(40).await;
    editing.end().await;
    converges(&stack, &mirror, AFTER_BACKOFF).await;
    ready_again(&stack).await;
}

#[tokio::test]
async fn a_git_host_that_is_down_for_half_a_minute_costs_nothing() {
    let stack = stack(1).await;
    let mirror = stack.mirror(SPEC()).await;
    let editing = Editing::start(&stack, "shop");
    editing.more(60).await;
    stack.git().stop();
    not_delivering(&stack, &["Unreachable"]).await;
    tokio::time::sleep(GIT_OUTAGE).await;
    stack.git().start_again().expect("the port is still free");
    editing.more(20).await;
    editing.end().await;
    converges(&stack, &mirror, AFTER_BACKOFF).await;
    ready_again(&stack).await;
}

in_both_stores!(
    a_git_host_that_refuses_is_slow_or_cuts_the_push_costs_nothing,
    an_api_server_that_restarts_costs_nothing,
);

async fn a_git_host_that_refuses_is_slow_or_cuts_the_push_costs_nothing(stack: Stack) {
    let mirror = stack.mirror(SPEC()).await;
    let editing = Editing::start(&stack, "shop");
    editing.more(60).await;

    let refuse = |status, retry_after| Fault::Refuse { status, retry_after };
    stack.git().inject(RequestKind::ReceivePackRefs, Times::Always, refuse(503, None));
    not_delivering(&stack, &["Unreachable"]).await;
    stack.git().clear_faults();
    ready_again(&stack).await;

    for fault in [Fault::CutBeforeBackend, Fault::CutAfterBackend] {
        let before = stack.git().requests(RequestKind::ReceivePack);
        stack.git().inject(RequestKind::ReceivePack, Times::Once, fault);
        editing.more(40).await;
        eventually("the push was cut and another came", SOON, async || {
            let now = stack.git().requests(RequestKind::ReceivePack);
            if now >= before + 2 { Ok(()) } else { Err(format!("{} pushes", now - before)) }
        })
        .await;
    }

    for kind in [RequestKind::ReceivePackRefs, RequestKind::ReceivePack, RequestKind::UploadPackRefs] {
        stack.git().inject(kind, Times::Always, Fault::Delay(Duration::from_secs(1)));
    }
    editing.more(100).await;
    stack.git().clear_faults();

    stack.git().inject(RequestKind::ReceivePackRefs, Times::Once, refuse(429, Some(5)));
    not_delivering(&stack, &["RateLimited"]).await;
    editing.end().await;
    converges(&stack, &mirror, AFTER_BACKOFF).await;
    ready_again(&stack).await;
}

#[tokio::test]
async fn a_branch_that_people_move_rewind_and_delete_under_running_edits_converges() {
    let stack = stack(1).await;
    let mirror = stack.mirror(SPEC()).await;
    let editing = Editing::start(&stack, "shop");
    editing.more(60).await;
    eventually("some commits", SOON, async || {
        let count = stack.repo().count_commits("main");
        if count >= 5 { Ok(()) } else { Err(format!("{count} commits")) }
    })
    .await;
    let clone = human_clone(&stack);
    for round in 0..3 {
        // A person may lose the race against the operator, and tries again.
        eventually("a person's push", SOON, async || {
            git(&["fetch", "-q", "origin"], &clone);
            git(&["reset", "-q", "--hard", "origin/main"], &clone);
            std::fs::write(clone.join(format!("NOTES-{round}.md")), "kept\n").expect("writable");
            git(&["add", "--all"], &clone);
            git(&["commit", "-q", "-m", "notes"], &clone);
            try_git(&["push", "-q", "origin", "HEAD:main"], &clone)
        })
        .await;
        editing.more(25).await;
    }
    for round in 0..3 {
        let notes = stack.repo().show("main", &format!("NOTES-{round}.md"));
        assert_eq!(notes.as_deref(), Some("kept\n"), "a person's commit stays");
    }
    let early = stack.repo().git(&["rev-list", "--first-parent", "main"]);
    let early = early.lines().nth(4).expect("at least five commits").to_owned();
    stack.repo().git(&["update-ref", "refs/heads/main", &early]);
    editing.more(60).await;
    stack.repo().git(&["update-ref", "-d", "refs/heads/main"]);
    editing.more(60).await;
    editing.end().await;
    converges(&stack, &mirror, AFTER_BACKOFF).await;
    ready_again(&stack).await;
}
