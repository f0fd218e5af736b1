//! Calls that do not become a conversation, and what the caller learns.

use std::time::Duration;

use tokio::net::TcpListener;
use upriver_model::FailureClass;
use upriver_peer_io::{NotOwner, PeerAction, PeerAddress, PeerError, Settings};
use upriver_testkit::PeerCerts;

use crate::fleet::{Replica, converse, hello, pair, peers, refused, round_trip, soon, tls};

#[tokio::test]
async fn a_replica_that_does_not_own_the_branch_names_the_owner() {
    let recorder = upriver_telemetry::recorder().expect("our buckets");
    let _recording = metrics::set_default_local_recorder(&recorder);
    let folder = tempfile::tempdir().expect("a folder");
    let (mut owner, peers) = pair(folder.path(), Settings::default()).await;
    let known = NotOwner { holder: "other-7".to_owned(), epoch: 42 };
    *owner.desk.not_owner.lock().expect("no panic") = Some(known);
    let error = refused(peers.forward(&owner.peer(), hello("main")).await);
    assert_eq!(error, PeerError::NotOwner { holder: "other-7".to_owned(), epoch: 42 });
    assert_eq!(error.next_action(), PeerAction::CallHolder);
    *owner.desk.not_owner.lock().expect("no panic") = None;
    let (mut watcher, mut end) = converse(&peers, &owner.peer(), &mut owner).await;
    round_trip(&mut watcher, &mut end, 1).await;
    let text = recorder.handle().render();
    for line in [
        r#"upriver_forward_requests_total{outcome="not_owner"} 1"#,
        r#"upriver_forward_requests_total{outcome="accepted"} 1"#,
        r#"upriver_forward_inflight{side="owner"} 1"#,
        r#"upriver_forward_inflight{side="watcher"} 1"#,
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}

#[tokio::test]
async fn an_address_that_another_replica_uses_now_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let tls = tls(&PeerCerts::make(folder.path()));
    let mut old = Replica::start("owner-1", &tls, Settings::default()).await;
    let peers = peers("watcher-1", &tls, Settings::default());
    let peer = old.peer();
    let (mut watcher, _end) = converse(&peers, &peer, &mut old).await;
    old.stop.cancel();
    soon(&mut old.serving).await.expect("no panic").expect("stopped");
    assert_eq!(soon(watcher.inbound.recv()).await, None, "its replica stopped");

    let mut new = Replica::start_at(old.address, "owner-2", &tls, Settings::default()).await;
    let error = refused(peers.forward(&peer, hello("main")).await);
    assert_eq!(
        error,
        PeerError::WrongReplica { expected: "owner-1".to_owned(), found: "owner-2".to_owned() }
    );
    assert_eq!(error.next_action(), PeerAction::FindReplica);
    assert_eq!(refused(peers.offer(&peer, "claim", 1).await), error, "every call");
    let (mut watcher, mut end) = converse(&peers, &new.peer(), &mut new).await;
    round_trip(&mut watcher, &mut end, 1).await;

    assert!(new.desk.offers.lock().expect("no panic").is_empty());
}

#[tokio::test]
async fn a_replica_with_a_new_session_refuses_calls_that_name_the_old_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let tls = tls(&PeerCerts::make(folder.path()));
    let mut owner = Replica::start("owner-1", &tls, Settings::default()).await;
    let [connected, other] = ["watcher-1", "watcher-2"].map(|id| peers(id, &tls, Settings::default()));
    let (mut running, mut running_end) = converse(&connected, &owner.peer(), &mut owner).await;
    round_trip(&mut running, &mut running_end, 1).await;

    owner.identity.send_replace("owner-2".to_owned());
    let old = owner.peer();
    let expected = PeerError::WrongReplica { expected: "owner-1".to_owned(), found: "owner-2".to_owned() };
    // Over the connection that there is, and over a new one.
    assert_eq!(refused(connected.forward(&old, hello("main")).await), expected);
    assert_eq!(refused(connected.offer(&old, "claim", 1).await), expected);
    assert_eq!(refused(other.forward(&old, hello("main")).await), expected);
    assert!(owner.ends.try_recv().is_err() && owner.desk.offers.lock().expect("no panic").is_empty());

    // Whether a running conversation may go on is for the epochs that it names to say (F2), not for the transport.
    round_trip(&mut running, &mut running_end, 2).await;
    owner.id = "owner-2".to_owned();
    let (mut watcher, mut end) = converse(&connected, &owner.peer(), &mut owner).await;
    round_trip(&mut watcher, &mut end, 1).await;
}

#[tokio::test]
async fn a_port_that_nobody_serves_is_unreachable_and_one_that_says_nothing_ends_the_start_in_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let tls = tls(&PeerCerts::make(folder.path()));
    let settings = Settings { start_timeout: Duration::from_secs(1), ..Settings::default() };
    let peers = peers("watcher-1", &tls, settings);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let peer = PeerAddress { replica: "owner-1".to_owned(), address };
    let error = soon(peers.forward(&peer, hello("main"))).await.map(|_| ()).expect_err("nobody accepts");
    assert!(matches!(error, PeerError::Deadline { .. }), "{error}");
    assert_eq!((error.class(), error.next_action()), (FailureClass::Network, PeerAction::TryAgain));
    drop(listener);
    let error = soon(peers.forward(&peer, hello("main"))).await.map(|_| ()).expect_err("nobody listens");
    assert!(matches!(error, PeerError::Unreachable { .. }), "{error}");
    assert_eq!((error.class(), error.next_action()), (FailureClass::Network, PeerAction::TryAgain));
}

#[tokio::test]
async fn a_replica_that_stops_ends_its_conversations_at_once_and_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut owner, peers) = pair(folder.path(), Settings::default()).await;
    let (mut watcher, mut end) = converse(&peers, &owner.peer(), &mut owner).await;
    round_trip(&mut watcher, &mut end, 1).await;
    owner.stop.cancel();
    let why = soon(watcher.ended.wait()).await;
    assert!(why.to_string().contains("this replica stops"), "{why}");
    assert_eq!(soon(end.inbound.recv()).await, None);
    soon(owner.serving).await.expect("no panic").expect("stopped");
}

#[tokio::test]
async fn a_claim_is_offered_and_taken_or_declined() {
    let folder = tempfile::tempdir().expect("a folder");
    let (owner, peers) = pair(folder.path(), Settings::default()).await;
    assert_eq!(peers.offer(&owner.peer(), "upriver-branch-1", 9).await, Ok(()));
    *owner.desk.declines.lock().expect("no panic") = Some("younger than 10 s".to_owned());
    let error = refused(peers.offer(&owner.peer(), "upriver-branch-1", 9).await);
    assert_eq!(error, PeerError::Declined { reason: "younger than 10 s".to_owned() });
    assert_eq!(error.next_action(), PeerAction::KeepClaim);
    let offers = owner.desk.offers.lock().expect("no panic").clone();
    let offer = upriver_peer_io::Offer {
        claim: "upriver-branch-1".to_owned(),
        epoch: 9,
        from: "watcher-1".to_owned(),
    };
    assert_eq!(offers, [offer.clone(), offer]);
}
