//! What both ends of a conversation may rely on.

use std::collections::HashMap;
use std::time::Duration;

use upriver_peer_io::proto::from_watcher;
use upriver_peer_io::{PeerError, Settings};
use upriver_testkit::proxy::TcpProxy;
use upriver_testkit::{PeerCerts, eventually};

use crate::fleet::{Replica, SOON, ack, converse, frame, hello, pair, peers, round_trip, soon, tls};

#[tokio::test]
async fn the_owner_learns_who_speaks_of_what_and_both_directions_keep_their_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut owner, peers) = pair(folder.path(), Settings::default()).await;
    let (mut watcher, mut end) = converse(&peers, &owner.peer(), &mut owner).await;
    assert_eq!((end.from.as_str(), &end.hello), ("watcher-1", &hello("main")));
    let (to_owner, to_watcher) = (watcher.outbound.clone(), end.outbound.clone());
    let frames = async {
        for n in 1..=200 {
            to_owner.send(frame(n, 10)).await.expect("open")
        }
    };
    let acks = async {
        for n in 1..=200 {
            to_watcher.send(ack(n)).await.expect("open")
        }
    };
    let frames_arrive = async {
        for n in 1..=200 {
            assert_eq!(end.inbound.recv().await, Some(frame(n, 10)))
        }
    };
    let acks_arrive = async {
        for n in 1..=200 {
            assert_eq!(watcher.inbound.recv().await, Some(ack(n)))
        }
    };
    soon(async { tokio::join!(frames, acks, frames_arrive, acks_arrive) }).await;
}

#[tokio::test]
async fn a_watcher_that_drops_its_end_ends_the_owners() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut owner, peers) = pair(folder.path(), Settings::default()).await;
    let (mut watcher, mut end) = converse(&peers, &owner.peer(), &mut owner).await;
    round_trip(&mut watcher, &mut end, 1).await;
    drop(watcher);
    assert_eq!(soon(end.inbound.recv()).await, None);
    soon(end.outbound.closed()).await;
    assert!(matches!(soon(end.ended.wait()).await, PeerError::Closed { .. }));
}

#[tokio::test]
async fn an_owner_that_drops_its_end_ends_the_watchers() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut owner, peers) = pair(folder.path(), Settings::default()).await;
    let (mut watcher, mut end) = converse(&peers, &owner.peer(), &mut owner).await;
    round_trip(&mut watcher, &mut end, 1).await;
    drop(end);
    assert_eq!(soon(watcher.inbound.recv()).await, None);
    soon(watcher.outbound.closed()).await;
    assert!(matches!(soon(watcher.ended.wait()).await, PeerError::Closed { .. }));
}

#[tokio::test]
async fn what_was_sent_before_a_sender_is_dropped_still_arrives() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut owner, peers) = pair(folder.path(), Settings::default()).await;
    let (mut watcher, mut end) = converse(&peers, &owner.peer(), &mut owner).await;
    for n in 1..=3 {
        soon(watcher.outbound.send(frame(n, 10))).await.expect("open");
    }
    drop(watcher.outbound);
    soon(end.ended.wait()).await;
    for n in 1..=3 {
        assert_eq!(soon(end.inbound.recv()).await, Some(frame(n, 10)));
    }
    assert_eq!(soon(end.inbound.recv()).await, None);
    assert_eq!(soon(watcher.inbound.recv()).await, None);

    let (mut watcher, end) = converse(&peers, &owner.peer(), &mut owner).await;
    for n in 1..=3 {
        soon(end.outbound.send(ack(n))).await.expect("open");
    }
    drop(end.outbound);
    for n in 1..=3 {
        assert_eq!(soon(watcher.inbound.recv()).await, Some(ack(n)));
    }
    assert_eq!(soon(watcher.inbound.recv()).await, None);
}

#[tokio::test]
async fn a_receiver_that_is_dropped_ends_the_conversation_although_its_sender_lives() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut owner, peers) = pair(folder.path(), Settings::default()).await;
    let (watcher, mut end) = converse(&peers, &owner.peer(), &mut owner).await;
    drop(watcher.inbound);
    assert_eq!(soon(end.inbound.recv()).await, None);
    soon(watcher.outbound.closed()).await;

    let (mut watcher, end) = converse(&peers, &owner.peer(), &mut owner).await;
    drop(end.inbound);
    assert_eq!(soon(watcher.inbound.recv()).await, None);
    soon(end.outbound.closed()).await;
}

#[tokio::test]
async fn five_hundred_conversations_share_one_connection_and_may_all_be_dropped_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    // All begin at once, so the last one waits for all others, and so does the answer to a ping.
    let settings = Settings { start_timeout: SOON, keepalive_timeout: SOON, ..Settings::default() };
    let (mut owner, peers) = pair(folder.path(), settings).await;
    let proxy = TcpProxy::start(owner.address).await.expect("a proxy");
    let peer = owner.peer_at(proxy.address());
    let begun = (0..500).map(|_| peers.forward(&peer, hello("main")));
    let mut watchers: Vec<_> =
        soon(futures::future::join_all(begun)).await.into_iter().map(|end| end.expect("accepted")).collect();
    let mut ends = HashMap::new();
    // Which end belongs to which is told by the first frame.
    for (n, watcher) in (0..).zip(&watchers) {
        soon(watcher.outbound.send(frame(n, 10))).await.expect("open");
    }
    for _ in 0..500 {
        let mut end = owner.accepted().await;
        let Some(from_watcher::Kind::Frame(first)) = soon(end.inbound.recv()).await else {
            panic!("a frame")
        };
        assert!(ends.insert(first.sequence, end).is_none());
    }
    for (n, watcher) in (0..).zip(&mut watchers) {
        round_trip(watcher, ends.get_mut(&n).expect("all began"), 1000 + n).await;
    }
    drop(watchers);
    for end in ends.values_mut() {
        assert_eq!(soon(end.inbound.recv()).await, None);
    }
    let (mut watcher, mut end) = converse(&peers, &peer, &mut owner).await;
    round_trip(&mut watcher, &mut end, 1).await;
    assert_eq!(proxy.opened(), 1);
}

#[tokio::test]
async fn callers_that_are_dropped_end_their_conversations() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut owner, peers) = pair(folder.path(), Settings::default()).await;
    let (mut watcher, mut end) = converse(&peers, &owner.peer(), &mut owner).await;
    round_trip(&mut watcher, &mut end, 1).await;
    drop(peers);
    assert_eq!(soon(watcher.inbound.recv()).await, None);
    assert_eq!(soon(end.inbound.recv()).await, None);
}

#[tokio::test]
async fn a_connection_that_nobody_uses_is_closed_and_one_in_use_is_not() {
    let recorder = upriver_telemetry::recorder().expect("our buckets");
    let _recording = metrics::set_default_local_recorder(&recorder);
    let folder = tempfile::tempdir().expect("a folder");
    let tls = tls(&PeerCerts::make(folder.path()));
    let settings = Settings { idle: Duration::ZERO, ..Settings::default() };
    let mut first = Replica::start("owner-1", &tls, settings).await;
    let mut second = Replica::start("owner-2", &tls, settings).await;
    let third = Replica::start("owner-3", &tls, settings).await;
    let peers = peers("watcher-1", &tls, settings);
    let (mut used, mut used_end) = converse(&peers, &first.peer(), &mut first).await;
    drop(converse(&peers, &second.peer(), &mut second).await);
    eventually("two connections are left, of three", SOON, async || {
        // Each call looks for connections that are not needed.
        peers.offer(&third.peer(), "claim", 1).await.expect("consent");
        let text = recorder.handle().render();
        text.contains(r#"upriver_peer_connections{state="accepted"} 2"#).then_some(()).ok_or(text)
    })
    .await;
    round_trip(&mut used, &mut used_end, 1).await;
}
