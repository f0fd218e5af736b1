//! Certificates change while replicas talk.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use upriver_peer_io::{PeerError, Reload, Settings};
use upriver_testkit::peer_certs::PEER_NAME;
use upriver_testkit::proxy::TcpProxy;
use upriver_testkit::{PeerCa, PeerCerts, eventually};

use crate::fleet::{Replica, SOON, converse, hello, peers, refused, round_trip, tls};

#[tokio::test]
async fn a_new_ca_and_certificate_serve_new_conversations_while_a_running_one_goes_on() {
    let recorder = upriver_telemetry::recorder().expect("our buckets");
    let _recording = metrics::set_default_local_recorder(&recorder);
    let folder = tempfile::tempdir().expect("a folder");
    let (old, new) = (PeerCa::new("old"), PeerCa::new("new"));
    let [at_owner, at_watcher, left] = ["owner", "watcher", "left"].map(|name| folder.path().join(name));
    let certs = [old.issue(&at_owner, PEER_NAME), old.issue(&at_watcher, PEER_NAME)];
    let (owner_tls, watcher_tls) = (tls(&certs[0]), tls(&certs[1]));
    let mut owner = Replica::start("owner-1", &owner_tls, Settings::default()).await;
    let peers_ = peers("watcher-1", &watcher_tls, Settings::default());
    let proxy = TcpProxy::start(owner.address).await.expect("a proxy");
    let peer = owner.peer_at(proxy.address());
    let (mut running, mut running_end) = converse(&peers_, &peer, &mut owner).await;
    round_trip(&mut running, &mut running_end, 1).await;

    new.issue(&at_owner, PEER_NAME);
    new.issue(&at_watcher, PEER_NAME);
    // Only now, so that each sees one change: the files are written one by one here.
    let stop = CancellationToken::new();
    for tls in [&owner_tls, &watcher_tls] {
        tokio::spawn(tls.clone().follow(Duration::from_millis(10), stop.clone()));
    }
    eventually("both have read the new files", SOON, async || {
        recorder
            .handle()
            .render()
            .contains(r#"upriver_peer_tls_reloads_total{outcome="loaded"} 2"#)
            .then_some(())
    })
    .await;
    let (mut next, mut next_end) = converse(&peers_, &peer, &mut owner).await;
    round_trip(&mut running, &mut running_end, 2).await;
    round_trip(&mut next, &mut next_end, 1).await;
    assert_eq!(proxy.opened(), 2, "the new conversation has a connection with the new certificates");
    let (mut third, mut third_end) = converse(&peers_, &peer, &mut owner).await;
    round_trip(&mut third, &mut third_end, 1).await;
    assert_eq!(proxy.opened(), 2, "which others share");
    let left = tls(&old.issue(&left, PEER_NAME));
    let error =
        refused(peers("left-1", &left, Settings::default()).forward(&owner.peer(), hello("main")).await);
    assert!(
        matches!(error, PeerError::Tls { .. }),
        "the old CA is not believed any more, on either side: {error}"
    );

    drop((running, running_end));
    eventually("the old connection ends with its last conversation", SOON, async || {
        let text = recorder.handle().render();
        let counts = [r#"{state="open"} 1"#, r#"{state="accepted"} 1"#];
        counts
            .iter()
            .all(|count| text.contains(&format!("upriver_peer_connections{count}")))
            .then_some(())
            .ok_or(text)
    })
    .await;
    round_trip(&mut third, &mut third_end, 2).await;
    stop.cancel();
}

#[tokio::test]
async fn a_ca_is_changed_replica_by_replica_and_no_conversation_is_lost_or_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let (old, new) = (PeerCa::new("old"), PeerCa::new("new"));
    let [at_owner, at_watcher] = ["owner", "watcher"].map(|name| folder.path().join(name));
    let certs = [old.issue(&at_owner, PEER_NAME), old.issue(&at_watcher, PEER_NAME)];
    let (owner_tls, watcher_tls) = (tls(&certs[0]), tls(&certs[1]));
    let mut owner = Replica::start("owner-1", &owner_tls, Settings::default()).await;
    let peers = peers("watcher-1", &watcher_tls, Settings::default());
    let mut running = vec![converse(&peers, &owner.peer(), &mut owner).await];

    let both = |certs: &PeerCerts| certs.trust(&[&old, &new]);
    let renewed = |certs: &PeerCerts| both(&new.issue(&certs.folder, PEER_NAME));
    let only_new = |certs: &PeerCerts| certs.trust(&[&new]);
    let steps: [&dyn Fn(&PeerCerts); 3] = [&both, &renewed, &only_new];
    for step in steps {
        for (certs, tls) in certs.iter().zip([&owner_tls, &watcher_tls]) {
            step(certs);
            assert_eq!(tls.reload(), Reload::Loaded);
            running.push(converse(&peers, &owner.peer(), &mut owner).await);
            for (number, (watcher, end)) in (0..).zip(&mut running) {
                round_trip(watcher, end, number).await;
            }
        }
    }
}

#[tokio::test]
async fn files_that_cannot_be_used_keep_the_old_ones_and_are_told_once() {
    let recorder = upriver_telemetry::recorder().expect("our buckets");
    let _recording = metrics::set_default_local_recorder(&recorder);
    let folder = tempfile::tempdir().expect("a folder");
    let certs = PeerCerts::make(folder.path());
    let tls = tls(&certs);
    let mut owner = Replica::start("owner-1", &tls, Settings::default()).await;
    let peers = peers("watcher-1", &tls, Settings::default());
    assert_eq!(tls.reload(), Reload::Same);
    let good = std::fs::read(&certs.certificate).expect("readable");
    for broken in [None, Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), Some("")] {
        match broken {
            None => std::fs::remove_file(&certs.certificate).expect("removable"),
            Some(text) => std::fs::write(&certs.certificate, text).expect("writable"),
        }
        let Reload::Kept(error) = tls.reload() else { panic!("{broken:?} is no certificate") };
        assert!(error.to_string().contains("tls.crt"), "{error}");
        assert_eq!(tls.reload(), Reload::Same, "told once");
        let (mut watcher, mut end) = converse(&peers, &owner.peer(), &mut owner).await;
        round_trip(&mut watcher, &mut end, 1).await;
    }
    std::fs::write(&certs.certificate, good).expect("writable");
    assert_eq!(tls.reload(), Reload::Loaded);
    let text = recorder.handle().render();
    assert!(text.contains(r#"upriver_peer_tls_reloads_total{outcome="refused"} 3"#), "{text}");
    assert!(text.contains(r#"upriver_peer_tls_reloads_total{outcome="loaded"} 1"#), "{text}");
}
