//! Cases of others about Leases: clocks that are wrong, and fleets that change their size.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::watch;
use upriver_testkit::operator::NAMESPACE;
use upriver_testkit::stack::Stack;
use upriver_testkit::{Operator, OperatorOptions, User, eventually, holds_for};

use crate::fleet::{fleet, holders, targets, until_shared};
use crate::support::QUICK;

/// Renewals of sessions that the test plays.
const RENEWAL: Duration = Duration::from_millis(1500);
/// The case asks for 40 s; a machine that runs all tests at once gets more, and the time is printed.
const SPREAD: Duration = Duration::from_secs(120);
/// Longer than a session may be silent.
const LONGER_THAN_SILENCE: Duration = Duration::from_secs(16);

fn lease_api(stack: &Stack) -> Api<Lease> {
    Api::namespaced(stack.client(User::Admin), NAMESPACE)
}

/// Writes `renewTime` into a session, as a replica does whose clock is so many minutes off.
async fn renew(api: &Api<Lease>, session: &str, minutes_off: i64) {
    let time = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(minutes_off);
    let patch = Patch::Merge(json!({"spec": {"renewTime": format!("{time:.6}")}}));
    api.patch(session, &PatchParams::default(), &patch).await.expect("renewed");
}

/// A living session without a process.
async fn play_session(api: &Api<Lease>, session: &str, minutes_off: i64) {
    let lease: Lease = serde_json::from_value(json!({
        "metadata": {"name": session, "labels": {"upriver.configbutler.ai/lease": "session"},
            "annotations": {"upriver.configbutler.ai/pod": session}},
        "spec": {"holderIdentity": session, "leaseDurationSeconds": 8}
    }))
    .expect("a Lease");
    api.create(&PostParams::default(), &lease).await.expect("created");
    renew(api, session, minutes_off).await;
}

#[tokio::test]
async fn lse_04_a_claim_is_kept_while_its_session_renews_whatever_its_clock_says_and_taken_when_it_stops() {
    let stack = fleet(1, 0).await;
    targets(&stack, 0..2, true).await;
    until_shared(&stack, "upriver-branch-", 2, &["upriver-0"]).await;
    let claims: Vec<String> = holders(&stack, "upriver-branch-").await["upriver-0"].iter().cloned().collect();
    stack.operator(0).kill();

    let api = lease_api(&stack);
    let players = [("upriver-session-ahead", 5), ("upriver-session-behind", -5)];
    for ((session, off), claim) in players.iter().zip(&claims) {
        play_session(&api, session, *off).await;
        let taken = json!({"spec": {"holderIdentity": session, "leaseTransitions": 3}});
        api.patch(claim, &PatchParams::default(), &Patch::Merge(taken)).await.expect("taken");
    }
    let (stop, stopped) = watch::channel(false);
    let renewing = tokio::spawn({
        let api = api.clone();
        async move {
            while !*stopped.borrow() {
                for (session, off) in players {
                    renew(&api, session, off).await;
                }
                tokio::time::sleep(RENEWAL).await;
            }
        }
    });
    stack.operator(0).restart().await;
    holds_for("both claims to stay where they are", LONGER_THAN_SILENCE, async || {
        let holders = holders(&stack, "upriver-branch-").await;
        let kept = players.iter().all(|(session, _)| holders.contains_key(*session));
        if kept && !holders.contains_key("upriver-0") { Ok(()) } else { Err(holders) }
    })
    .await;
    stop.send_replace(true);
    renewing.await.expect("it renewed until then");
    let begun = Instant::now();
    until_shared(&stack, "upriver-branch-", 2, &["upriver-0"]).await;
    println!("both were taken {:?} after the last renewal", begun.elapsed());
    for claim in claims {
        let lease = api.get(&claim).await.expect("readable");
        assert_eq!(lease.spec.and_then(|spec| spec.lease_transitions), Some(4), "above what the Lease said");
    }
}

/// Waits until all claims are held by living pods, none with more than twice the mean.
async fn until_spread(stack: &Stack, claims: usize) {
    let pods: Vec<&str> =
        stack.operators().iter().filter(|operator| operator.is_running()).map(Operator::pod_name).collect();
    let most = (2 * claims).div_ceil(pods.len());
    let begun = Instant::now();
    let loads = eventually("the claims to be spread over living pods", SPREAD, async || {
        let holders = holders(stack, "upriver-branch-").await;
        let loads: BTreeMap<&str, usize> =
            holders.iter().map(|(pod, claims)| (pod.as_str(), claims.len())).collect();
        let all = loads.values().sum::<usize>() == claims;
        let right = loads.iter().all(|(pod, load)| pods.contains(pod) && *load <= most);
        if all && right { Ok(format!("{loads:?}")) } else { Err(format!("{loads:?}")) }
    })
    .await;
    println!("{} replicas after {:?}: {loads}", pods.len(), begun.elapsed());
}

/// The case has 200; `UPRIVER_CLAIMS=200` makes it so, a run with everything else has fewer.
fn claims() -> usize {
    std::env::var("UPRIVER_CLAIMS").map_or(48, |text| text.parse().expect("a number"))
}

#[tokio::test]
async fn lse_05_all_claims_have_one_living_owner_each_after_every_change_of_size() {
    let claims = claims();
    let mut stack = fleet(3, 0).await;
    targets(&stack, 0..claims, true).await;
    until_spread(&stack, claims).await;
    for leaving in [1, 2] {
        let begun = Instant::now();
        assert!(stack.operator(leaving).terminate().await.success());
        println!("an orderly end took {:?}", begun.elapsed());
    }
    until_spread(&stack, claims).await;
    for number in 3..7 {
        let named = OperatorOptions::named(format!("upriver-{number}"));
        let options = QUICK.iter().fold(named, |options, flag| options.arg(*flag));
        stack.add_operator(options).await.expect("it starts");
    }
    until_spread(&stack, claims).await;
    for leaving in [3, 4, 5] {
        assert!(stack.operator(leaving).terminate().await.success());
    }
    until_spread(&stack, claims).await;
    for operator in stack.operators().iter().filter(|operator| operator.is_running()) {
        let lost = operator.metric_value("upriver_lease_lost_total", &[]).await;
        assert_eq!(lost.unwrap_or(0.0), 0.0, "{} lost its session over it", operator.pod_name());
    }
}
