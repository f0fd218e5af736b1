//! A slow end bounds what the other can send, and nobody else notices.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use upriver_peer_io::{OwnerEnd, Settings, WatcherEnd};
use upriver_testkit::eventually;
use upriver_testkit::proxy::TcpProxy;

use crate::fleet::{SOON, ack, converse, frame, pair, round_trip, soon};

const FRAMES: u64 = 400;
const FRAME: usize = 64 << 10;

/// Sends frames as fast as it may, and counts.
fn pour(watcher: &WatcherEnd) -> Arc<AtomicU64> {
    let (sent, outbound) = (Arc::new(AtomicU64::new(0)), watcher.outbound.clone());
    let counter = sent.clone();
    tokio::spawn(async move {
        for n in 0..FRAMES {
            outbound.send(frame(n, FRAME)).await.expect("open");
            counter.fetch_add(1, Ordering::SeqCst);
        }
    });
    sent
}

/// Frames that may be under way with this credit: the credit and a message more, one that the owner's channel holds, and
/// on the watcher's side one that waits for credit and one in its channel.
fn most(settings: &Settings) -> u64 {
    settings.credit / u64::try_from(FRAME).expect("small") + 4
}

#[tokio::test]
async fn a_slow_owner_bounds_what_its_watcher_sends_and_everything_arrives_in_the_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = Settings { credit: 1 << 20, ..Settings::default() };
    let (mut owner, peers) = pair(folder.path(), settings).await;
    let (mut other, mut other_end) = converse(&peers, &owner.peer(), &mut owner).await;
    let (slow, mut slow_end) = converse(&peers, &owner.peer(), &mut owner).await;
    let sent = pour(&slow);
    eventually("the credit is used up", SOON, async || {
        (sent.load(Ordering::SeqCst) * 64 >= (1 << 10)).then_some(())
    })
    .await;
    for n in 0..200 {
        round_trip(&mut other, &mut other_end, n).await;
        assert!(sent.load(Ordering::SeqCst) <= most(&settings), "{sent:?}");
    }
    for n in 0..FRAMES {
        assert!(soon(slow_end.inbound.recv()).await == Some(frame(n, FRAME)), "frame {n}");
        assert!(sent.load(Ordering::SeqCst) <= n + 1 + most(&settings), "{sent:?} when {n} was taken");
    }
}

#[tokio::test]
async fn slow_conversations_that_hold_more_than_a_connections_window_hold_up_no_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = Settings { credit: 1 << 20, ..Settings::default() };
    let (mut owner, peers) = pair(folder.path(), settings).await;
    let proxy = TcpProxy::start(owner.address).await.expect("a proxy");
    let peer = owner.peer_at(proxy.address());
    let (mut other, mut other_end) = converse(&peers, &peer, &mut owner).await;
    // 24 MiB that nobody takes; the window of a connection is 8 MiB.
    let mut slow: Vec<(WatcherEnd, OwnerEnd, Arc<AtomicU64>)> = Vec::new();
    for _ in 0..24 {
        let (watcher, end) = converse(&peers, &peer, &mut owner).await;
        let sent = pour(&watcher);
        slow.push((watcher, end, sent));
    }
    eventually("all credit is used up", SOON, async || {
        slow.iter().all(|(_, _, sent)| sent.load(Ordering::SeqCst) >= 16).then_some(())
    })
    .await;
    for n in 0..100 {
        round_trip(&mut other, &mut other_end, n).await;
    }
    assert!(slow.iter().all(|(_, _, sent)| sent.load(Ordering::SeqCst) <= most(&settings)));
    assert_eq!(proxy.opened(), 1);
}

#[tokio::test]
async fn a_slow_watcher_bounds_its_owner_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = Settings { credit: 512, ..Settings::default() };
    let (mut owner, peers) = pair(folder.path(), settings).await;
    let (mut slow, slow_end) = converse(&peers, &owner.peer(), &mut owner).await;
    let (mut other, mut other_end) = converse(&peers, &owner.peer(), &mut owner).await;
    let sent = Arc::new(AtomicU64::new(0));
    let counter = sent.clone();
    let pouring = tokio::spawn(async move {
        for n in 1..=1000 {
            slow_end.outbound.send(ack(n)).await.expect("open");
            counter.fetch_add(1, Ordering::SeqCst);
        }
        slow_end
    });
    // An acknowledgement takes 6 bytes or more.
    eventually("the credit is used up", SOON, async || (sent.load(Ordering::SeqCst) >= 64).then_some(()))
        .await;
    for n in 0..50 {
        round_trip(&mut other, &mut other_end, n).await;
    }
    assert!(sent.load(Ordering::SeqCst) <= 512 / 6 + 4, "{sent:?}");
    for n in 1..=1000 {
        assert_eq!(soon(slow.inbound.recv()).await, Some(ack(n)));
    }
    soon(pouring).await.expect("everything was sent");
}
