//! Who is let in, and whom we talk to.

use tokio::io::AsyncReadExt as _;
use upriver_model::FailureClass;
use upriver_peer_io::{PeerAction, PeerError, PeerTls, Settings, TlsError};
use upriver_testkit::peer_certs::PEER_NAME;
use upriver_testkit::{PeerCa, PeerCerts};

use crate::fleet::{Replica, converse, files, hello, peers, refused, round_trip, soon, tls};
use crate::raw;

/// What the server says to a client that it does not want.
async fn alert(owner: &Replica, trusted: &PeerCerts, shown: Option<&PeerCerts>) -> String {
    let mut stream = raw::connect(owner, trusted, shown).await;
    let error = soon(stream.read_u8()).await.expect_err("no byte for a stranger");
    error.to_string()
}

#[tokio::test]
async fn a_client_needs_a_certificate_of_our_ca_for_the_name_of_the_peers() {
    let folder = tempfile::tempdir().expect("a folder");
    let ca = PeerCa::new("ours");
    let certs = ca.issue(&folder.path().join("owner"), PEER_NAME);
    let foreign = PeerCa::new("theirs").issue(&folder.path().join("foreign"), PEER_NAME);
    let named = ca.issue(&folder.path().join("named"), "grafana");
    let mut owner = Replica::start("owner-1", &tls(&certs), Settings::default()).await;
    assert!(alert(&owner, &certs, None).await.contains("CertificateRequired"));
    assert!(alert(&owner, &certs, Some(&foreign)).await.contains("UnknownCA"));
    let other_name = alert(&owner, &certs, Some(&named)).await;
    assert!(other_name.contains("fatal alert"), "{other_name}");
    let peers = peers("watcher-1", &tls(&certs), Settings::default());
    let (mut watcher, mut end) = converse(&peers, &owner.peer(), &mut owner).await;
    round_trip(&mut watcher, &mut end, 1).await;
}

#[tokio::test]
async fn a_caller_learns_that_its_certificate_is_not_wanted() {
    let folder = tempfile::tempdir().expect("a folder");
    let ca = PeerCa::new("ours");
    let certs = ca.issue(&folder.path().join("owner"), PEER_NAME);
    let foreign = PeerCa::new("theirs").issue(&folder.path().join("foreign"), PEER_NAME);
    foreign.trust(&[&ca]);
    let mut owner = Replica::start("owner-1", &tls(&certs), Settings::default()).await;
    let peers = peers("watcher-1", &tls(&foreign), Settings::default());
    for _ in 0..5 {
        let error = refused(peers.forward(&owner.peer(), hello("main")).await);
        assert!(
            matches!(&error, PeerError::Tls { reason, server_name, .. }
                if reason.contains("UnknownCA") && server_name == PEER_NAME),
            "{error}"
        );
        assert_eq!((error.class(), error.next_action()), (FailureClass::Config, PeerAction::FixCertificates));
    }
    assert!(owner.ends.try_recv().is_err(), "nobody was accepted");
}

#[tokio::test]
async fn a_server_with_a_foreign_certificate_is_told_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let ca = PeerCa::new("ours");
    let certs = ca.issue(&folder.path().join("watcher"), PEER_NAME);
    let foreign = PeerCa::new("theirs").issue(&folder.path().join("foreign"), PEER_NAME);
    // It would take us.
    foreign.trust(&[&ca]);
    let mut owner = Replica::start("owner-1", &tls(&foreign), Settings::default()).await;
    let peers = peers("watcher-1", &tls(&certs), Settings::default());
    let error = refused(peers.forward(&owner.peer(), hello("main")).await);
    assert!(matches!(&error, PeerError::Tls { reason, .. } if reason.contains("UnknownIssuer")), "{error}");
    let error = refused(peers.offer(&owner.peer(), "claim", 1).await);
    assert!(matches!(error, PeerError::Tls { .. }), "{error}");
    assert!(owner.ends.try_recv().is_err() && owner.desk.offers.lock().expect("no panic").is_empty());
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let good = PeerCerts::make(folder.path());
    let load = |change: fn(&mut upriver_peer_io::TlsFiles)| {
        let mut files = files(&good, PEER_NAME);
        change(&mut files);
        PeerTls::load(files).map(|_| ()).expect_err("refused")
    };
    let missing = load(|files| files.key = "nowhere/tls.key".into());
    assert!(matches!(missing, TlsError::Unreadable { .. }), "{missing}");
    assert!(missing.to_string().starts_with("nowhere/tls.key cannot be read"), "{missing}");
    let swapped = load(|files| std::mem::swap(&mut files.key, &mut files.ca));
    assert!(swapped.to_string().contains("ca.crt is not usable: no PEM private key"), "{swapped}");
    let name = load(|files| files.server_name = "other".to_owned());
    assert!(matches!(name, TlsError::WrongName { .. }), "{name}");
    let no_name = load(|files| files.server_name = "a b".to_owned());
    assert!(matches!(no_name, TlsError::NoName { .. }), "{no_name}");
    let other = PeerCerts::make(&folder.path().join("other"));
    let mixed = PeerTls::load(upriver_peer_io::TlsFiles { key: other.key, ..files(&good, PEER_NAME) });
    let mixed = mixed.map(|_| ()).expect_err("the key is of another certificate").to_string();
    assert!(mixed.contains("tls.crt is not usable: with ") && mixed.contains("other/tls.key"), "{mixed}");
}
