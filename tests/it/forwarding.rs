//! One watch for a whole fleet: its events reach the owner of every branch, whoever dies, and whoever comes and goes.

use std::time::{Duration, Instant};

use upriver_testkit::stack::{Mirror, MirrorSpec, Stack, resources};
use upriver_testkit::{Operator, OperatorOptions, User, eventually};

use crate::editing::{Editing, converges};
use crate::fleet::{holders, until_shared};
use crate::support::{Edits, QUICK, SOON, stack, values_of};

/// A fault and what follows it.
const LATER: Duration = Duration::from_secs(120);

/// Mirrors of one namespace on branches of their own, which all want the same watch.
async fn mirrors(stack: &Stack, count: usize) -> Vec<Mirror> {
    let mut mirrors = Vec::new();
    for number in 0..count {
        let name = format!("m{number}");
        let spec = MirrorSpec::new("shop")
            .types([resources::config_maps()])
            .branch(&name)
            .path(&name)
            .name(&name)
            .commit_window("200ms");
        mirrors.push(stack.mirror(spec).await);
    }
    mirrors
}

/// The sum over all replicas that answer.
async fn sum(stack: &Stack, metric: &str, labels: &[(&str, &str)]) -> f64 {
    let mut sum = 0.0;
    for operator in stack.operators().iter().filter(|operator| operator.is_running()) {
        sum += operator.metric_value(metric, labels).await.unwrap_or(0.0);
    }
    sum
}

/// The fleet has so many API watches that serve branches: one for each watch key.
async fn until_watches(stack: &Stack, count: f64) {
    eventually("every watch to be open once in the whole fleet", LATER, async || {
        let shared = sum(stack, "upriver_watches_open", &[("mode", "shared")]).await;
        let own = sum(stack, "upriver_watches_open", &[("mode", "own")]).await;
        if shared == count && own == 0.0 { Ok(()) } else { Err((shared, own)) }
    })
    .await;
}

async fn holder_of_the_watch(stack: &Stack) -> usize {
    eventually("somebody to hold the watch", SOON, async || {
        let holders = holders(stack, "upriver-watch-").await;
        let pod = holders.keys().find(|pod| !pod.is_empty())?.clone();
        stack.operators().iter().position(|operator| operator.pod_name() == pod && operator.is_running())
    })
    .await
}

async fn arrives(stack: &Stack, mirrors: &[Mirror]) {
    for mirror in mirrors {
        converges(stack, mirror, LATER).await;
    }
}

fn pods(stack: &Stack) -> Vec<&str> {
    stack.operators().iter().filter(|operator| operator.is_running()).map(Operator::pod_name).collect()
}

#[tokio::test]
async fn one_watch_serves_the_branches_of_all_replicas_large_objects_included() {
    let stack = stack(3).await;
    let mirrors = mirrors(&stack, 6).await;
    until_shared(&stack, "upriver-branch-", 6, &pods(&stack)).await;
    until_watches(&stack, 1.0).await;
    let forwarded = sum(&stack, "upriver_forward_inflight", &[("side", "watcher")]).await;
    assert!((3.0..=5.0).contains(&forwarded), "{forwarded} of six branches are owned elsewhere");

    let edits = Edits::new(stack.client(User::Alice), "shop");
    edits.create("small", "1").await;
    edits.create("large", &"x".repeat(900 << 10)).await;
    edits.set("small", "2").await;
    arrives(&stack, &mirrors).await;
    edits.delete("large").await;
    edits.set("small", "3").await;
    arrives(&stack, &mirrors).await;
    until_watches(&stack, 1.0).await;
}

#[tokio::test]
async fn the_holder_of_the_watch_is_killed_and_its_successor_goes_on_from_the_cursors_without_a_list() {
    let stack = stack(3).await;
    let mirrors = mirrors(&stack, 6).await;
    let editing = Editing::start(&stack, "shop");
    editing.more(20).await;
    until_shared(&stack, "upriver-branch-", 6, &pods(&stack)).await;
    arrives_so_far(&stack, &mirrors).await;
    let killed = holder_of_the_watch(&stack).await;
    let replays = sum(&stack, "upriver_watch_starts_total", &[("mode", "replay")]).await
        - stack
            .operator(killed)
            .metric_value("upriver_watch_starts_total", &[("mode", "replay")])
            .await
            .unwrap_or(0.0);
    let begun = Instant::now();
    stack.operator(killed).kill();
    editing.more(40).await;
    until_watches(&stack, 1.0).await;
    println!("the watch of a killed replica was open again after {:?}", begun.elapsed());
    editing.more(20).await;
    editing.end().await;
    let rest: Vec<&Operator> = stack.operators().iter().filter(|operator| operator.is_running()).collect();
    assert_eq!(rest.len(), 2);
    for mirror in &mirrors {
        stack.until_in_git(mirror, LATER).await;
    }
    let after = sum(&stack, "upriver_watch_starts_total", &[("mode", "replay")]).await;
    assert_eq!(after, replays, "no branch needed a list");
}

/// Every branch has something: its watch is past its first list.
async fn arrives_so_far(stack: &Stack, mirrors: &[Mirror]) {
    for mirror in mirrors {
        let branch = &mirror.spec.branch;
        eventually("the branch to begin", LATER, async || stack.repo().head(branch).map(drop)).await;
    }
}

#[tokio::test]
async fn a_frozen_holder_of_the_watch_sends_nothing_old_when_it_wakes() {
    let stack = stack(3).await;
    let mirrors = mirrors(&stack, 3).await;
    until_shared(&stack, "upriver-branch-", 3, &pods(&stack)).await;
    let edits = Edits::new(stack.client(User::Alice), "shop");
    edits.create("x", "100").await;
    arrives(&stack, &mirrors).await;
    let frozen = holder_of_the_watch(&stack).await;
    edits.set("x", "101").await;
    stack.operator(frozen).pause();
    edits.set("x", "102").await;
    eventually("somebody else to hold the watch", LATER, async || {
        let holders = holders(&stack, "upriver-watch-").await;
        let moved = holders.keys().any(|pod| !pod.is_empty() && pod != stack.operator(frozen).pod_name());
        if moved { Ok(()) } else { Err(holders) }
    })
    .await;
    edits.set("x", "103").await;
    for mirror in &mirrors {
        stack.until_in_git(mirror, LATER).await;
    }
    stack.operator(frozen).resume();
    eventually("the woken process to notice its fence", SOON, async || {
        let lost = stack.operator(frozen).metric_value("upriver_lease_lost_total", &[]).await;
        lost.is_some_and(|count| count >= 1.0).then_some(())
    })
    .await;
    edits.set("x", "104").await;
    arrives(&stack, &mirrors).await;
    until_watches(&stack, 1.0).await;
    for mirror in &mirrors {
        let file = mirror.file_of(&resources::config_maps(), "x");
        let values = values_of(&stack.repo(), &mirror.spec.branch, &file);
        let values: Vec<&str> = values.iter().flatten().map(String::as_str).collect();
        assert!(values.is_sorted(), "no old state over new on {}: {values:?}", mirror.spec.branch);
        assert_eq!(values.last(), Some(&"104"));
    }
}

#[tokio::test]
async fn a_fleet_grows_and_shrinks_under_edits_and_nothing_is_lost() {
    let mut stack = stack(1).await;
    let mirrors = mirrors(&stack, 6).await;
    let editing = Editing::start(&stack, "shop");
    editing.more(10).await;
    for size in [3, 5] {
        for number in stack.operators().len()..size {
            let named = OperatorOptions::named(format!("upriver-{number}"));
            let options = QUICK.iter().fold(named, |options, flag| options.arg(*flag));
            stack.add_operator(options).await.expect("it starts");
        }
        // Claims move only to sessions that have lived for a while, two at a time.
        until_shared(&stack, "upriver-branch-", 6, &pods(&stack)).await;
        editing.more(20).await;
    }
    for leaving in [4, 3, 2, 1] {
        let status = stack.operator(leaving).terminate().await;
        assert!(status.success(), "{status}");
        editing.more(10).await;
    }
    editing.end().await;
    for mirror in &mirrors {
        stack.until_in_git(mirror, LATER).await;
    }
    until_watches(&stack, 1.0).await;
    until_shared(&stack, "upriver-branch-", 6, &["upriver-0"]).await;
}

#[tokio::test]
async fn a_replica_without_certificates_is_refused_with_one_line_when_it_meets_another() {
    let mut stack = stack(1).await;
    let second = OperatorOptions { peers: false, ..OperatorOptions::named("upriver-1") };
    let index = stack.add_operator(second).await.expect("it starts, and then meets the first");
    let status = stack.operator(index).await_exit(SOON).await;
    assert_eq!(status.code(), Some(1));
    let log = stack.operator(index).log();
    let line = log.lines().find(|line| line.starts_with("upriver: ")).unwrap_or_default();
    assert!(
        line.contains("another replica is alive") && line.contains("--peer-cert-path"),
        "{line:?}\n{log}"
    );

    let unreadable = OperatorOptions::named("upriver-2").arg("--peer-cert-path=nowhere");
    let error = stack.add_operator(unreadable).await.expect_err("it does not start");
    let text = error.to_string();
    assert!(text.contains("nowhere/tls.crt cannot be read") && text.contains("Secret mounted"), "{text}");
}
