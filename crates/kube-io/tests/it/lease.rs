use std::time::Duration;

use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use upriver_kube_io::client::Clients;
use upriver_kube_io::election::Election;
use upriver_kube_io::lease::{LeaseError, LeaseWrite, Leases, Role};
use upriver_testkit::{ControlPlane, User, eventually};

fn write(name: &str, onto: Option<(String, String)>, holder: &str, transitions: u64) -> LeaseWrite {
    LeaseWrite {
        name: name.to_owned(),
        role: Role::Claim,
        onto,
        holder: Some(holder.to_owned()),
        transitions,
        nonce: format!("{holder}/{transitions}"),
        pod: String::new(),
        clean: false,
        about: "a test".to_owned(),
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
