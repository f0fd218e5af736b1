//! RPC-03: a peer that vanished is noticed, one that is only quiet is not taken for it.

use std::sync::mpsc as blocking;
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use upriver_peer_io::{PeerError, Settings};
use upriver_testkit::proxy::TcpProxy;
use upriver_testkit::{PeerCerts, eventually};

use crate::fleet::{Replica, SOON, converse, hello, pair, peers, refused, round_trip, soon, tls};

fn fast() -> Settings {
    Settings {
        keepalive_every: Duration::from_millis(20),
        keepalive_timeout: Duration::from_secs(1),
        ..Settings::default()
    }
}

#[test]
fn a_vanished_peer_is_noticed_within_five_seconds_by_default() {
    let settings = Settings::default();
    assert!(settings.keepalive_every + settings.keepalive_timeout < Duration::from_secs(5));
}

#[tokio::test]
async fn an_idle_conversation_outlives_any_number_of_pings_on_one_connection() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut owner, peers) = pair(folder.path(), fast()).await;
    let proxy = TcpProxy::start(owner.address).await.expect("a proxy");
    let (mut watcher, mut end) = converse(&peers, &owner.peer_at(proxy.address()), &mut owner).await;
    round_trip(&mut watcher, &mut end, 1).await;
    let quiet = proxy.sent();
    // A ping has 17 bytes, TLS adds 22; answers to the server's pings are as long. So these are 50 of them at least.
    eventually("many pings were sent", SOON, async || {
        let pinged = proxy.sent() - quiet;
        if pinged >= 50 * 39 { Ok(()) } else { Err(pinged) }
    })
    .await;
    round_trip(&mut watcher, &mut end, 2).await;
    assert_eq!(proxy.opened(), 1);
}

#[tokio::test]
async fn both_sides_notice_a_connection_that_fell_silent_and_the_next_call_has_a_new_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut owner, peers) = pair(folder.path(), fast()).await;
    let proxy = TcpProxy::start(owner.address).await.expect("a proxy");
    let peer = owner.peer_at(proxy.address());
    let (mut watcher, mut end) = converse(&peers, &peer, &mut owner).await;
    round_trip(&mut watcher, &mut end, 1).await;
    proxy.silence_open_connections();
    let since = Instant::now();
    assert_eq!(soon(watcher.inbound.recv()).await, None);
    assert!(matches!(soon(watcher.ended.wait()).await, PeerError::Closed { .. }));
    assert_eq!(soon(end.inbound.recv()).await, None);
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    let (mut watcher, mut end) = converse(&peers, &peer, &mut owner).await;
    round_trip(&mut watcher, &mut end, 1).await;
    assert_eq!(proxy.opened(), 2);
}

/// Runs one side on a thread of its own, which then does nothing until it may end: no socket is closed, nothing is read.
fn frozen_after<F: Future<Output = ()>>(
    work: impl FnOnce() -> F + Send + 'static,
) -> (blocking::Receiver<()>, blocking::Sender<()>, thread::JoinHandle<()>) {
    let ((froze, frozen), (thaw, thawed)) = (blocking::channel(), blocking::channel::<()>());
    let thread = thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(work());
        froze.send(()).expect("the test waits");
        // An error means that the test is over.
        let _ = thawed.recv();
    });
    (frozen, thaw, thread)
}

#[tokio::test]
async fn an_owner_notices_a_frozen_watcher() {
    let folder = tempfile::tempdir().expect("a folder");
    let tls = tls(&PeerCerts::make(folder.path()));
    let mut owner = Replica::start("owner-1", &tls, fast()).await;
    let peer = owner.peer();
    let (_frozen, thaw, thread) = frozen_after(move || async move {
        let peers = peers("watcher-1", &tls, fast());
        let end = peers.forward(&peer, hello("main")).await.expect("accepted");
        // Neither is dropped: a frozen process closes nothing.
        std::mem::forget((peers, end));
    });
    let mut end = owner.accepted().await;
    assert_eq!(soon(end.inbound.recv()).await, None);
    soon(end.outbound.closed()).await;
    drop(thaw);
    thread.join().expect("no panic");
}

#[tokio::test]
async fn a_watcher_notices_a_frozen_owner() {
    let folder = tempfile::tempdir().expect("a folder");
    let tls = tls(&PeerCerts::make(folder.path()));
    let (tell, told) = tokio::sync::oneshot::channel();
    let at_owner = tls.clone();
    let (_frozen, thaw, thread) = frozen_after(move || async move {
        let mut owner = Replica::start("owner-1", &at_owner, fast()).await;
        tell.send(owner.peer()).expect("the test waits");
        let mut end = owner.accepted().await;
        end.inbound.recv().await.expect("a frame");
        std::mem::forget((owner, end));
    });
    let peer = soon(told).await.expect("it serves");
    let hasty = Settings { start_timeout: Duration::from_millis(500), ..fast() };
    let [peers, hasty] = [fast(), hasty].map(|settings| peers("watcher-1", &tls, settings));
    let mut watcher = soon(peers.forward(&peer, hello("main"))).await.expect("accepted");
    soon(watcher.outbound.send(crate::fleet::frame(1, 10))).await.expect("open");
    assert_eq!(soon(watcher.inbound.recv()).await, None);
    let error = refused(soon(hasty.forward(&peer, hello("main"))).await);
    assert!(matches!(error, PeerError::Deadline { .. }), "{error}");
    drop(thaw);
    thread.join().expect("no panic");
}
