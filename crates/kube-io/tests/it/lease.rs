use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, Patch, PatchParams};
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use upriver_kube_io::client::Clients;
use upriver_kube_io::election::Election;
use upriver_kube_io::lease::{LeaseError, LeaseWrite, Leases, Role, SessionNotes};
use upriver_testkit::{ControlPlane, User, eventually};

fn write(name: &str, onto: Option<(String, String)>, holder: &str, transitions: u64) -> LeaseWrite {
    LeaseWrite {
        onto,
        holder: Some(holder.to_owned()),
        transitions,
        nonce: format!("{holder}/{transitions}"),
        about: "a test".to_owned(),
        ..LeaseWrite::free(name, Role::Claim)
    }
}

async fn config(plane: &ControlPlane) -> Config {
    let file = Kubeconfig::read_from(plane.kubeconfig(User::Upriver)).expect("a kubeconfig");
    let mut config =
        Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.expect("a configuration");
    config.default_retry = false;
    config
}

async fn leases(plane: &ControlPlane) -> (Leases, String) {
    let namespace = plane.fresh_namespace("leases").await;
    let clients = Clients::new(config(plane).await).expect("clients");
    (Leases::new(clients.lease, &namespace), namespace)
}

#[tokio::test]
async fn only_the_version_that_was_read_is_replaced() {
    let plane = ControlPlane::shared().await;
    let (leases, _) = leases(plane).await;
    let first = leases.write(&write("c", None, "a", 1)).await.expect("created");
    assert_eq!((first.holder.as_deref(), first.transitions, first.role), (Some("a"), 1, Some(Role::Claim)));
    let again = leases.write(&write("c", None, "b", 1)).await;
    assert!(matches!(again, Err(LeaseError::Conflict { .. })), "{again:?}");
    let onto = Some((first.uid.clone(), first.rv.clone()));
    let second = leases.write(&write("c", onto.clone(), "a", 2)).await.expect("replaced");
    let stale = leases.write(&write("c", onto, "b", 2)).await;
    assert!(matches!(stale, Err(LeaseError::Conflict { .. })), "{stale:?}");
    assert_eq!(leases.list().await.expect("a list"), vec![second]);
}

/// LSE-04, for the words of the Lease; `tests/it/claims.rs` has it for whole replicas.
#[tokio::test]
async fn a_session_lives_whatever_its_clock_says() {
    let plane = ControlPlane::shared().await;
    let (leases, namespace) = leases(plane).await;
    let api: Api<Lease> = Api::namespaced(plane.client(User::Admin), &namespace);
    for (name, minutes_off) in [("ahead", 5), ("behind", -5)] {
        leases.write(&write(name, None, name, 1)).await.expect("created");
        let time = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(minutes_off);
        let renewed = Patch::Merge(serde_json::json!({"spec": {"renewTime": format!("{time:.6}")}}));
        api.patch(name, &PatchParams::default(), &renewed).await.expect("renewed");
        assert_eq!(leases.get(name).await.expect("readable").holder.as_deref(), Some(name));
    }
}

#[tokio::test]
async fn a_write_does_not_bring_a_deleted_lease_back() {
    let plane = ControlPlane::shared().await;
    let (leases, _) = leases(plane).await;
    let made = leases.write(&write("s", None, "a", 1)).await.expect("created");
    leases.delete(&made.name, &made.uid, &made.rv).await.expect("deleted");
    let renewed = leases.write(&write("s", Some((made.uid, made.rv)), "a", 1)).await;
    assert!(matches!(renewed, Err(LeaseError::Conflict { .. } | LeaseError::Missing { .. })), "{renewed:?}");
    assert!(matches!(leases.get("s").await, Err(LeaseError::Missing { .. })));
}

#[tokio::test]
async fn a_contested_claim_has_exactly_one_winner() {
    let plane = ControlPlane::shared().await;
    let (leases, _) = leases(plane).await;
    let mut current = leases.write(&write("c", None, "start", 1)).await.expect("created");
    for round in 2..40 {
        let onto = Some((current.uid.clone(), current.rv.clone()));
        let (a, b) = (write("c", onto.clone(), "a", round), write("c", onto, "b", round));
        let (a, b) = tokio::join!(leases.write(&a), leases.write(&b));
        assert_eq!(usize::from(a.is_ok()) + usize::from(b.is_ok()), 1, "round {round}");
        current = a.or(b).expect("one of them won");
    }
}

/// How many claims are contested: a few by default, `UPRIVER_CONTESTED_CLAIMS=10000` for the full number.
fn contested() -> usize {
    std::env::var("UPRIVER_CONTESTED_CLAIMS").ok().and_then(|count| count.parse().ok()).unwrap_or(400)
}

/// Four claimers, each with a connection of its own, try to create every claim and then to take it from whoever has it,
/// over and over until nothing is left to take. Of each epoch of each claim exactly one of them is the holder.
#[tokio::test(flavor = "multi_thread")]
async fn of_many_contested_claims_each_epoch_has_exactly_one_holder() {
    const TAKEN_OVER: u64 = 2;
    let plane = ControlPlane::shared().await;
    let namespace = plane.fresh_namespace("contested").await;
    let claims = contested();
    let mut claimers = tokio::task::JoinSet::new();
    for claimer in ["a", "b", "c", "d"] {
        let leases = Leases::new(Clients::new(config(plane).await).expect("clients").lease, &namespace);
        claimers.spawn(async move {
            let mut won = Vec::new();
            let race = async |number: usize| {
                let name = format!("claim-{number}");
                let mut won = Vec::new();
                let mut current = leases.write(&write(&name, None, claimer, 1)).await;
                loop {
                    let seen = match current {
                        Ok(lease) => {
                            won.push((name.clone(), lease.transitions));
                            lease
                        }
                        Err(LeaseError::Conflict { .. }) => leases.get(&name).await.expect("it exists"),
                        Err(other) => panic!("{name}: {other}"),
                    };
                    if seen.transitions > TAKEN_OVER {
                        return won;
                    }
                    let onto = Some((seen.uid, seen.rv));
                    current = leases.write(&write(&name, onto, claimer, seen.transitions + 1)).await;
                }
            };
            let mut races = futures::stream::iter(0..claims).map(race).buffer_unordered(8);
            while let Some(some) = races.next().await {
                won.extend(some);
            }
            won
        });
    }
    let mut holders: BTreeMap<(String, u64), usize> = BTreeMap::new();
    for won in claimers.join_all().await {
        for epoch in won {
            *holders.entry(epoch).or_default() += 1;
        }
    }
    assert_eq!(holders.len(), claims * 3, "every claim was created once and taken over twice");
    let two: Vec<_> = holders.iter().filter(|(_, count)| **count != 1).collect();
    assert!(two.is_empty(), "two holders of one epoch: {two:?}");
}

#[tokio::test]
async fn a_thousand_claims_and_ten_sessions_are_listed_well_within_a_renewal() {
    let plane = ControlPlane::shared().await;
    let (leases, _) = leases(plane).await;
    let made = futures::stream::iter(0..1010)
        .map(|number| {
            let session = LeaseWrite {
                holder: Some("s".to_owned()),
                notes: Some(SessionNotes { version: "1".to_owned(), ..SessionNotes::default() }),
                ..LeaseWrite::free(format!("session-{number}"), Role::Session)
            };
            let claim = write(
                &format!("claim-{number:032}"),
                None,
                "upriver-session-upriver-7d9c5b-x2x4z-0011aabb",
                3,
            );
            let leases = leases.clone();
            async move { leases.write(if number < 10 { &session } else { &claim }).await.expect("created") }
        })
        .buffer_unordered(16)
        .count()
        .await;
    assert_eq!(made, 1010);
    let mut times = Vec::new();
    for _ in 0..10 {
        let begun = Instant::now();
        assert_eq!(leases.list().await.expect("a list").len(), 1010);
        times.push(begun.elapsed());
    }
    times.sort();
    println!("a consistent list of 1010 Leases: median {:?}, slowest {:?}", times[5], times[9]);
    assert!(times[5] < Duration::from_secs(1), "{times:?}");
}

#[tokio::test]
async fn a_claim_that_is_written_free_is_told_with_its_successor_and_a_session_says_what_it_is() {
    let plane = ControlPlane::shared().await;
    let (leases, _) = leases(plane).await;
    let held = leases.write(&write("c", None, "a", 1)).await.expect("created");
    let mut freed = std::pin::pin!(leases.freed().await.expect("followed"));
    let free = LeaseWrite {
        onto: Some((held.uid, held.rv)),
        transitions: 1,
        clean: true,
        successor: Some("b".to_owned()),
        ..LeaseWrite::free("c", Role::Claim)
    };
    let written = leases.write(&free).await.expect("replaced");
    assert_eq!(
        (written.holder.clone(), written.successor.as_deref(), written.clean),
        (None, Some("b"), true)
    );
    let told = tokio::time::timeout(Duration::from_secs(10), freed.next()).await.expect("told soon");
    assert_eq!(told, Some(written));

    let notes = SessionNotes {
        address: "10.0.0.1:9443".to_owned(),
        version: "1.2.3".to_owned(),
        started: "2026-01-01T00:00:00Z".to_owned(),
        draining: true,
        branches: 3,
        watches: 4,
    };
    let session = LeaseWrite { notes: Some(notes.clone()), ..LeaseWrite::free("s", Role::Session) };
    assert_eq!(leases.write(&session).await.expect("created").notes, notes);
}

#[tokio::test]
async fn the_guarded_election_has_exactly_one_winner_where_the_bare_library_has_two() {
    let plane = ControlPlane::shared().await;
    let namespace = plane.fresh_namespace("election").await;
    let ttl = Duration::from_secs(15);
    for round in 0..10 {
        let name = format!("housekeeper-{round}");
        let candidate = |holder: &'static str| {
            let (config, namespace, name) = (config(plane), namespace.clone(), name.clone());
            async move { Election::new(config.await, &namespace, &name, holder, ttl).expect("a candidate") }
        };
        let (a, b) = (candidate("a").await, candidate("b").await);
        let (first, second) = tokio::join!(a.round(), b.round());
        assert!(first ^ second, "round {round}: {first} {second}");
        let (winner, loser) = if first { (a, b) } else { (b, a) };
        assert!(winner.round().await, "the winner renews");
        assert!(!loser.round().await, "the loser waits");
        winner.step_down().await;
        // A given-up Lease lasts one more second.
        eventually("the loser takes the given-up office", Duration::from_secs(10), async || {
            loser.round().await.then_some(())
        })
        .await;
    }
}
