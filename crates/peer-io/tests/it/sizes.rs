//! RPC-02: what is large passes, and what is too large is named.

use upriver_peer_io::proto::{self, from_watcher, to_watcher};
use upriver_peer_io::{PeerAction, PeerError, Settings, fits};
use upriver_testkit::PeerCerts;

use crate::fleet::{Replica, converse, frame, pair, peers, round_trip, soon, tls};

const OBJECT: usize = 2 << 20;

#[tokio::test]
async fn objects_of_two_mebibytes_pass_in_frames_and_in_snapshots() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut owner, peers) = pair(folder.path(), Settings::default()).await;
    let (watcher, mut end) = converse(&peers, &owner.peer(), &mut owner).await;
    let member = proto::Member {
        kind: "ConfigMap".to_owned(),
        payload: Some("x".repeat(OBJECT)),
        ..Default::default()
    };
    let members = from_watcher::Kind::SnapshotMembers(proto::SnapshotMembers { members: vec![member; 3] });
    let sent = [frame(1, OBJECT), members, frame(2, 3 * OBJECT), frame(3, OBJECT)];
    let sending = async {
        for message in &sent {
            watcher.outbound.send(message.clone()).await.expect("open");
        }
    };
    let arriving = async {
        for message in &sent {
            assert!(end.inbound.recv().await.as_ref() == Some(message));
        }
    };
    soon(async { tokio::join!(sending, arriving) }).await;
}

#[tokio::test]
async fn a_message_that_does_not_fit_ends_the_conversation_with_its_size_and_no_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut owner, peers) = pair(folder.path(), Settings::default()).await;
    let (mut other, mut other_end) = converse(&peers, &owner.peer(), &mut owner).await;
    let (watcher, mut end) = converse(&peers, &owner.peer(), &mut owner).await;
    let fat = frame(7, 9 << 20);
    let expected = fits(&fat, Settings::default().message_limit).expect_err("too large");
    soon(watcher.outbound.send(fat)).await.expect("open");
    let why = soon(watcher.ended.wait()).await;
    assert_eq!(why, expected);
    assert_eq!(why.next_action(), PeerAction::LeaveOut);
    assert!(why.to_string().contains("frame 7 with ConfigMap team/object-7 (94"), "{why}");
    assert_eq!(soon(end.inbound.recv()).await, None);
    round_trip(&mut other, &mut other_end, 1).await;

    let (watcher, end) = converse(&peers, &owner.peer(), &mut owner).await;
    let names =
        [("uid".to_owned(), proto::ObjectKey { namespace: String::new(), name: "x".repeat(9 << 20) })];
    let fat = proto::Subscribe { names: names.into(), ..Default::default() };
    soon(end.outbound.send(to_watcher::Kind::Subscribe(fat))).await.expect("open");
    for why in [soon(end.ended.wait()).await, soon(watcher.ended.wait()).await] {
        assert!(
            matches!(&why, PeerError::TooLarge { what, bytes: 9_437_200.., limit: 8_388_608 } if what == "a list of subscriptions"),
            "both sides know: {why}"
        );
    }
}

#[tokio::test]
async fn a_server_does_not_take_what_a_client_with_another_limit_sends() {
    let folder = tempfile::tempdir().expect("a folder");
    let tls = tls(&PeerCerts::make(folder.path()));
    let mut owner = Replica::start("owner-1", &tls, Settings::default()).await;
    let generous = Settings { message_limit: 32 << 20, credit: 32 << 20, ..Settings::default() };
    let peers = peers("watcher-1", &tls, generous);
    let (watcher, mut end) = converse(&peers, &owner.peer(), &mut owner).await;
    soon(watcher.outbound.send(frame(1, 9 << 20))).await.expect("open");
    let why = soon(end.ended.wait()).await;
    assert!(matches!(why, PeerError::Protocol { .. }), "{why}");
    assert!(why.to_string().contains("94") && why.to_string().contains("8389632"), "{why}");
    assert_eq!(soon(end.inbound.recv()).await, None);
    assert!(matches!(soon(watcher.ended.wait()).await, PeerError::Protocol { .. }));
}
