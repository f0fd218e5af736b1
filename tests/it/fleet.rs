//! Many claims, several replicas: who holds what after starts, kills and orderly ends, and what that costs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use upriver_testkit::operator::NAMESPACE;
use upriver_testkit::stack::{
    GIT_OBJECT, MirrorSpec, Stack, cluster_provider, git_provider, git_secret, git_target, resources,
    watch_rule,
};
use upriver_testkit::{OperatorOptions, User, eventually, holds_for};

use crate::support::{Edits, QUICK, SOON, stack};

/// A session's silence until it is fenced, a look that shows it, and the taking.
const TAKE_OVER: Duration = Duration::from_secs(60);
const SHOP: &str = "shop";

async fn leases(stack: &Stack) -> Vec<Lease> {
    let api: Api<Lease> = Api::namespaced(stack.client(User::Admin), NAMESPACE);
    api.list(&ListParams::default()).await.expect("the Leases can be listed").items
}

fn holder(lease: &Lease) -> Option<String> {
    lease.spec.as_ref()?.holder_identity.clone().filter(|holder| !holder.is_empty())
}

/// Pods of living sessions by the name of the session.
fn sessions(leases: &[Lease]) -> BTreeMap<String, String> {
    let living = leases.iter().filter(|lease| lease.name_any().starts_with("upriver-session-"));
    living
        .filter(|lease| holder(lease).is_some())
        .map(|lease| (lease.name_any(), lease.annotations()["upriver.configbutler.ai/pod"].clone()))
        .collect()
}

/// Claims of a kind by the pod that holds them; free ones and those of dead sessions under `""`.
pub async fn holders(stack: &Stack, prefix: &str) -> BTreeMap<String, BTreeSet<String>> {
    let leases = leases(stack).await;
    let sessions = sessions(&leases);
    let mut holders: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for lease in leases.iter().filter(|lease| lease.name_any().starts_with(prefix)) {
        let pod = holder(lease).and_then(|session| sessions.get(&session).cloned()).unwrap_or_default();
        holders.entry(pod).or_default().insert(lease.name_any());
    }
    holders
}

/// Waits until all claims of a kind are held by just these pods, each within a quarter above its share.
pub async fn until_shared(stack: &Stack, prefix: &str, claims: usize, pods: &[&str]) {
    let most = (claims * 5).div_ceil(pods.len() * 4);
    let what = format!("{claims} claims {prefix}… to be shared by {pods:?}");
    eventually(&what, TAKE_OVER, async || {
        let holders = holders(stack, prefix).await;
        let loads: BTreeMap<&str, usize> =
            holders.iter().map(|(pod, claims)| (pod.as_str(), claims.len())).collect();
        let all = loads.values().sum::<usize>() == claims;
        let right = loads.keys().all(|pod| pods.contains(pod)) && loads.values().all(|load| *load <= most);
        if all && right { Ok(()) } else { Err(format!("{loads:?}, at most {most} each")) }
    })
    .await;
}

/// Targets on branches of their own, `b0` and so on. Those that are paused cost a claim each and nothing else.
pub async fn targets(stack: &Stack, range: std::ops::Range<usize>, paused: bool) {
    let objects: Vec<Value> = range
        .map(|number| {
            let name = format!("t{number}");
            let mut target = git_target(SHOP, &name, GIT_OBJECT, &format!("b{number}"), &name);
            target["spec"]["suspend"] = json!(paused);
            target
        })
        .collect();
    stack.apply(User::Admin, &objects).await.expect("the targets are applied");
}

/// A stack whose namespace has a provider, and rules for each of the first `followed` targets.
pub async fn fleet(operators: usize, followed: usize) -> Stack {
    let stack = stack(operators).await;
    stack.plane().create_namespace(SHOP).await;
    let types = [resources::config_maps()];
    let mut objects = vec![
        cluster_provider(),
        git_secret(SHOP, GIT_OBJECT),
        git_provider(SHOP, GIT_OBJECT, &stack.repo_url(), "1s"),
    ];
    objects.extend(
        (0..followed).map(|number| watch_rule(SHOP, &format!("r{number}"), &format!("t{number}"), &types)),
    );
    stack.apply(User::Admin, &objects).await.expect("applied");
    stack.wait_ready("GitProvider", SHOP, GIT_OBJECT, SOON).await;
    stack
}

#[tokio::test]
async fn three_replicas_share_branches_and_watches_and_the_rest_take_over_from_a_killed_one() {
    let stack = fleet(3, 0).await;
    targets(&stack, 0..24, true).await;
    let pods = ["upriver-0", "upriver-1", "upriver-2"];
    until_shared(&stack, "upriver-branch-", 24, &pods).await;

    // Watches are claims too, spread by themselves.
    let types = ["configmaps", "services", "serviceaccounts"];
    let rule = json!({
        "apiVersion": "configbutler.ai/v1alpha3", "kind": "WatchRule",
        "metadata": {"name": "all", "namespace": SHOP},
        "spec": {"targetRef": {"name": "live"}, "rules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "resources": types}
        ]}
    });
    let live = git_target(SHOP, "live", GIT_OBJECT, "live", "live");
    stack.apply(User::Admin, &[live, rule]).await.expect("applied");
    until_shared(&stack, "upriver-watch-", 3, &pods).await;
    until_shared(&stack, "upriver-branch-", 25, &pods).await;

    let killed = holders(&stack, "upriver-branch-").await["upriver-1"].len();
    assert!(killed > 0, "it had a share");
    let begun = Instant::now();
    stack.operator(1).kill();
    let rest = ["upriver-0", "upriver-2"];
    until_shared(&stack, "upriver-branch-", 25, &rest).await;
    until_shared(&stack, "upriver-watch-", 3, &rest).await;
    println!("{killed} branches of a killed replica were taken over after {:?}", begun.elapsed());
}

#[tokio::test]
async fn a_replica_that_is_asked_to_end_hands_its_claims_over_within_two_seconds() {
    let stack = fleet(3, 6).await;
    targets(&stack, 0..12, false).await;
    let pods = ["upriver-0", "upriver-1", "upriver-2"];
    until_shared(&stack, "upriver-branch-", 12, &pods).await;
    for number in 0..6 {
        stack.wait_ready("GitTarget", SHOP, &format!("t{number}"), SOON).await;
    }
    let before = holders(&stack, "upriver-branch-").await;
    let leaving = before.get("upriver-1").cloned().unwrap_or_default();
    assert!(!leaving.is_empty(), "it has a share: {before:?}");

    let begun = Instant::now();
    let rest = ["upriver-0", "upriver-2"];
    let (status, ()) =
        tokio::join!(stack.operator(1).terminate(), until_shared(&stack, "upriver-branch-", 12, &rest));
    let took = begun.elapsed();
    println!("{} branches were handed over {took:?} after SIGTERM", leaving.len());
    assert!(status.success(), "{status}");
    assert!(took < HAND_OVER, "handed over after {took:?}");
    let after = holders(&stack, "upriver-branch-").await;
    for pod in rest {
        let kept = before[pod].is_subset(&after[pod]);
        assert!(kept, "{pod} keeps what it had: {:?}, {:?}", before[pod], after[pod]);
    }
    // Nothing of the ended session is left.
    let all = leases(&stack).await;
    let sessions: Vec<String> =
        all.iter().map(ResourceExt::name_any).filter(|name| name.starts_with("upriver-session-")).collect();
    assert_eq!(sessions.len(), 2, "{sessions:?}");
}

/// Two seconds, and as much again for a machine that runs all tests at once.
const HAND_OVER: Duration = Duration::from_secs(4);

#[tokio::test]
async fn a_session_says_who_it_is_and_what_it_holds() {
    let stack = fleet(1, 1).await;
    targets(&stack, 0..3, false).await;
    until_shared(&stack, "upriver-branch-", 3, &["upriver-0"]).await;
    eventually("the session to count its claims", SOON, async || {
        let leases = leases(&stack).await;
        let session = leases.iter().find(|lease| lease.name_any().starts_with("upriver-session-"))?;
        let says =
            |name: &str| session.annotations().get(&format!("upriver.configbutler.ai/{name}")).cloned();
        let counted = says("branches")? == "3" && says("watches")? == "1";
        let known = says("version")? == env!("CARGO_PKG_VERSION") && says("started").is_some();
        (counted && known && says("draining").is_none()).then_some(())
    })
    .await;
    let watches = holders(&stack, "upriver-watch-").await;
    let name = watches["upriver-0"].first().expect("one watch").clone();
    let all = leases(&stack).await;
    let watch = all.iter().find(|lease| lease.name_any() == name).expect("listed");
    assert_eq!(watch.annotations()["upriver.configbutler.ai/about"], "local|v1/configmaps|*");

    // For paused targets nothing is watched.
    targets(&stack, 0..3, true).await;
    eventually("the watch to be given up", SOON, async || {
        let holders = holders(&stack, "upriver-watch-").await;
        if holders.keys().all(String::is_empty) { Ok(()) } else { Err(format!("{holders:?}")) }
    })
    .await;
    assert_eq!(stack.operator(0).metric_value("upriver_watches_owned", &[]).await, Some(0.0));
}

/// Writes to Leases so far, by the API server's own count; its own Leases are among them.
async fn lease_writes(stack: &Stack) -> f64 {
    let request = http::Request::get("/metrics").body(Vec::new()).expect("well-formed");
    let text = stack.client(User::Admin).request_text(request).await.expect("the API server's metrics");
    let of_leases = |line: &&str| {
        line.starts_with("apiserver_request_total{")
            && line.contains("resource=\"leases\"")
            && ["POST", "PUT", "PATCH", "DELETE"]
                .iter()
                .any(|verb| line.contains(&format!("verb=\"{verb}\"")))
    };
    let counts =
        text.lines().filter(of_leases).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    counts.sum()
}

#[tokio::test]
async fn an_idle_fleet_writes_as_many_leases_for_two_hundred_branches_as_for_ten() {
    let stack = fleet(2, 3).await;
    let pods = ["upriver-0", "upriver-1"];
    let mut rates = Vec::new();
    for (range, paused, total) in [(0..10, false, 10), (10..200, true, 200)] {
        targets(&stack, range, paused).await;
        until_shared(&stack, "upriver-branch-", total, &pods).await;
        let (before, begun) = (lease_writes(&stack).await, Instant::now());
        let shared = holders(&stack, "upriver-branch-").await;
        holds_for("every claim stays where it is", Duration::from_secs(10), async || {
            let now = holders(&stack, "upriver-branch-").await;
            if now == shared { Ok(()) } else { Err(now) }
        })
        .await;
        let rate = (lease_writes(&stack).await - before) / begun.elapsed().as_secs_f64();
        println!("{total} branches: {rate:.2} Lease writes a second");
        rates.push(rate);
    }
    // A hundred and ninety branches at once were no reason to be late with a renewal.
    for operator in stack.operators() {
        assert_eq!(operator.metric_value("upriver_lease_lost_total", &[]).await.unwrap_or(0.0), 0.0);
    }
    // Two sessions at one write per two seconds, the election, and the API server's own Leases.
    assert!(rates.iter().all(|rate| *rate < 3.0), "{rates:?}");
    assert!(rates[1] < rates[0] + 0.7, "{rates:?}: it does not depend on the number of claims");
}

#[tokio::test]
async fn a_target_that_nobody_can_own_says_so_until_somebody_does() {
    let mut stack = stack(1).await;
    let mirror = stack.mirror(MirrorSpec::new("shop").types([resources::config_maps()])).await;
    let edits = Edits::new(stack.client(User::Alice), "shop");
    edits.create("x", "1").await;
    stack.until_in_git(&mirror, SOON).await;
    // The next replica sees an orphan that it cannot take: the journal's store does not answer it.
    let options = QUICK.iter().fold(OperatorOptions::named("upriver-1"), |options, flag| options.arg(*flag));
    let second = stack.add_operator(options).await.expect("it starts");
    stack.redis().stop();
    stack.operator(0).kill();
    let reason = async |stack: &Stack| {
        let target = stack.get("GitTarget", "shop", "mirror").await.ok()?;
        let conditions = target["status"]["conditions"].as_array()?.clone();
        let ready = conditions.into_iter().find(|condition| condition["type"] == "Ready")?;
        Some((ready["status"].as_str()?.to_owned(), ready["reason"].as_str()?.to_owned()))
    };
    eventually("the housekeeper to say that nobody owns it", Duration::from_secs(90), async || {
        let said = reason(&stack).await;
        if said == Some(("False".into(), "NoOwner".into())) { Ok(()) } else { Err(format!("{said:?}")) }
    })
    .await;
    assert_eq!(stack.operator(second).metric_value("upriver_unowned_targets", &[]).await, Some(1.0));
    stack.redis().start_again().await;
    edits.set("x", "2").await;
    stack.wait_ready("GitTarget", "shop", "mirror", SOON).await;
    stack.until_in_git(&mirror, SOON).await;
    eventually("nothing to be counted as unowned", SOON, async || {
        let unowned = stack.operator(second).metric_value("upriver_unowned_targets", &[]).await;
        if unowned == Some(0.0) { Ok(()) } else { Err(format!("{unowned:?}")) }
    })
    .await;
}
