//! Watches that expire, or die without a word.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use upriver_testkit::proxy::TcpProxy;
use upriver_testkit::stack::{MirrorSpec, Stack, StackOptions, resources};
use upriver_testkit::{OperatorOptions, User, case_input, eventually};

use crate::support::{Edits, QUICK, SOON, assert_sound, stack};

/// Short enough for a test; on a quiet stream it passes all the time, since bookmarks come once a minute.
const IDLE: Duration = Duration::from_secs(3);

async fn metric(stack: &Stack, name: &str, labels: &[(&str, &str)]) -> f64 {
    stack.operator(0).metric_value(name, labels).await.unwrap_or_default()
}

async fn replays(stack: &Stack) -> f64 {
    metric(stack, "upriver_watch_starts_total", &[("mode", "replay")]).await
}

#[tokio::test]
async fn wch_01_a_quiet_type_whose_cursor_expired_is_listed_once_and_makes_no_commit() {
    let stack = stack(1).await;
    let mirror = stack.mirror(MirrorSpec::new("rc").types([resources::config_maps()])).await;
    let edits = Edits::new(stack.client(User::Alice), "rc");
    edits.create("kept", "1").await;
    stack.until_in_git(&mirror, SOON).await;
    let (before, head) = (replays(&stack).await, stack.repo().head("main"));

    stack.operator(0).pause();
    // Other types move the version of the whole cluster; the restarted server remembers nothing from before.
    for index in 0..20 {
        stack.plane().create_namespace(&format!("noise-{index}")).await;
    }
    stack.plane().stop_apiserver();
    stack.plane().start_apiserver().await;
    stack.operator(0).resume();
    let expired = &[("reason", "expired")];
    eventually("the 410 to be counted", SOON, async || {
        (metric(&stack, "upriver_watch_ends_total", expired).await >= 1.0).then_some(())
    })
    .await;
    // An edit after it marks the moment at which the list has been compared.
    edits.create("marker", "1").await;
    stack.until_in_git(&mirror, SOON).await;
    assert_eq!(replays(&stack).await, before + 1.0, "listed once");
    let log = stack.repo().log("main");
    let since: Vec<_> = log.iter().take_while(|commit| Some(&commit.id) != head.as_ref()).collect();
    assert_eq!(since.len(), 1, "only the marker is new: {since:?}");
    assert_eq!(since[0].paths, [mirror.file_of(&resources::config_maps(), "marker")]);
    assert_sound(&stack);
}

/// A stack whose operator reaches the API server through a proxy.
async fn behind_proxy() -> (Stack, TcpProxy) {
    let mut stack = Stack::start(StackOptions::default().operators(0, &[])).await;
    let url = stack.plane().url();
    let target: SocketAddr =
        url.trim_start_matches("https://").trim_end_matches('/').parse().expect("a loopback address");
    let proxy = TcpProxy::start(target).await.expect("a proxy");
    let kubeconfig = std::fs::read_to_string(stack.plane().kubeconfig(User::Upriver)).expect("readable");
    let file = stack.dir().join("proxied.kubeconfig");
    let proxied = kubeconfig.replace(&target.to_string(), &proxy.address().to_string());
    std::fs::write(&file, proxied).expect("writable");
    let options = OperatorOptions::named("upriver-0")
        .arg(format!("--kubeconfig={}", file.display()))
        .arg(format!("--watch-idle-limit={}s", IDLE.as_secs()));
    let options = QUICK.iter().fold(options, |options, flag| options.arg(*flag));
    stack.add_operator(options).await.expect("ready");
    (stack, proxy)
}

#[tokio::test]
async fn wch_04_an_edit_behind_a_watch_that_is_silent_but_open_is_committed_without_a_list() {
    // The recorded case drops packets with root's tools; the proxy does the same without them.
    let edit =
        case_input("WCH-04").map(|input| std::fs::read_to_string(input.join("run.sh")).expect("readable"));
    assert!(edit.is_none_or(|script| script.contains("configmap unseen")), "the case edits `unseen`");
    let (stack, proxy) = behind_proxy().await;
    let mirror = stack.mirror(MirrorSpec::new("rc").types([resources::config_maps()])).await;
    let edits = Edits::new(stack.client(User::Alice), "rc");
    edits.create("seen", "1").await;
    stack.until_in_git(&mirror, SOON).await;
    let listed = replays(&stack).await;

    let silent = &[("reason", "silent")];
    eventually("a quiet stream to be opened again", SOON, async || {
        (metric(&stack, "upriver_watch_ends_total", silent).await >= 2.0).then_some(())
    })
    .await;
    stack.wait_ready("GitTarget", "rc", "mirror", SOON).await;
    assert_eq!(replays(&stack).await, listed, "without a list");

    proxy.silence_open_connections();
    let begun = Instant::now();
    edits.create("unseen", "1").await;
    let labels = &[("resource", "configmaps"), ("scope", "*")];
    eventually("the silence to show", SOON, async || {
        let seconds = metric(&stack, "upriver_watch_silence_seconds", labels).await;
        if seconds >= 1.0 { Ok(()) } else { Err(seconds) }
    })
    .await;
    stack.until_in_git(&mirror, SOON).await;
    println!("an edit behind a dead connection reached Git after {:?}", begun.elapsed());
    assert_eq!(replays(&stack).await, listed, "still without a list");
    let lost = metric(&stack, "upriver_lease_lost_total", &[]).await;
    assert_eq!(lost, 0.0, "and the branch has not changed hands");
    assert_sound(&stack);
}

#[tokio::test]
async fn a_restarted_operator_goes_on_behind_its_cursors_and_lists_nothing() {
    let stack = stack(1).await;
    let mirror = stack.mirror(MirrorSpec::new("rc")).await;
    let edits = Edits::new(stack.client(User::Alice), "rc");
    edits.create("before", "1").await;
    stack.until_in_git(&mirror, SOON).await;
    // The cursors of the fresh lists have to be durable; each is with the first heartbeat of its stream.
    eventually("heartbeats", SOON, async || {
        let appended = metric(&stack, "upriver_redis_request_seconds_count", &[("op", "append")]).await;
        if appended >= mirror.spec.types.len() as f64 { Ok(()) } else { Err(appended) }
    })
    .await;
    stack.operator(0).kill();
    edits.create("meanwhile", "1").await;
    stack.operator(0).restart().await;
    stack.until_in_git(&mirror, SOON).await;
    let resumed = &[("mode", "resume")];
    eventually("every watch to run again", SOON, async || {
        let resumed = metric(&stack, "upriver_watch_starts_total", resumed).await;
        if resumed >= mirror.spec.types.len() as f64 { Ok(()) } else { Err(resumed) }
    })
    .await;
    assert_eq!(
        replays(&stack).await,
        0.0,
        "a plan without the types that are not read yet would list them all"
    );
}
