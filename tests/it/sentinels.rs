//! The operator with a Redis that fails over while edits go on.

use std::time::Duration;

use upriver_testkit::redis::{MASTER, SentinelTiming};
use upriver_testkit::stack::{MirrorSpec, Stack, StackOptions, resources};
use upriver_testkit::{OperatorOptions, SentinelSet};

use crate::editing::{Editing, converges};
use crate::support::SOON;

/// A backoff that began in the fault may last a minute more.
const AFTER_BACKOFF: Duration = Duration::from_secs(150);

#[tokio::test]
async fn a_redis_that_fails_over_twice_costs_nothing() {
    let set = SentinelSet::start(SentinelTiming::default()).await;
    let mut stack = Stack::start(StackOptions { operators: Vec::new(), ..StackOptions::default() }).await;
    let options = OperatorOptions::named("upriver-0")
        .arg(format!("--redis-sentinel-addrs={}", set.addresses().join(",")))
        .arg(format!("--redis-sentinel-master={MASTER}"))
        .arg("--redis-insecure");
    stack.add_operator(options).await.expect("an operator behind Sentinels");
    let spec = MirrorSpec::new("shop").commit_window("200ms").types([resources::config_maps()]);
    let mirror = stack.mirror(spec).await;
    let editing = Editing::start(&stack, "shop");
    editing.more(60).await;

    let first = set.master().await;
    first.stop();
    editing.more(50).await;
    let second = set.master().await;
    assert_ne!(second.addr(), first.addr());
    stack.wait_ready("GitTarget", "shop", "mirror", SOON).await;
    editing.more(30).await;
    first.start_again().await;
    set.becomes_replica(first).await;

    // And back, by hand: the old master lives on.
    set.fail_over().await;
    editing.more(80).await;
    editing.end().await;
    converges(&stack, &mirror, AFTER_BACKOFF).await;
    stack.wait_ready("GitTarget", "shop", "mirror", SOON).await;
}
