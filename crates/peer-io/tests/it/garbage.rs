//! What is not the protocol, from somebody who has a certificate: an error for him, nothing for others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::client::conn::http2::SendRequest;
use rand::rngs::StdRng;
use rand::{Rng as _, RngCore as _, SeedableRng as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tonic::body::Body;
use upriver_peer_io::proto::{ForwardRequest, FromWatcher, forward_request};
use upriver_peer_io::{PeerError, Settings};
use upriver_testkit::{PeerCerts, eventually};

use crate::fleet::{Replica, SOON, converse, frame, hello, peers, round_trip, soon, tls};
use crate::raw;

const FORWARD: &str = "https://upriver-peer/upriver.peer.v1.ForwardService/Forward";

/// One gRPC message on the wire.
fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("short");
    [&[0], length.to_be_bytes().as_slice(), message].concat()
}

fn encoded(request: &ForwardRequest) -> Vec<u8> {
    use prost::Message as _;
    request.encode_to_vec()
}

fn first() -> Vec<u8> {
    framed(&encoded(&ForwardRequest {
        message_bytes: 0,
        part: Some(forward_request::Part::Hello(hello("main"))),
    }))
}

fn said(claimed: u64, bytes: usize) -> Vec<u8> {
    let message = FromWatcher { kind: Some(frame(1, bytes)) };
    let part = Some(forward_request::Part::Message(message));
    framed(&encoded(&ForwardRequest { message_bytes: claimed, part }))
}

/// Calls with this body; the gRPC status, in the headers or the trailers.
async fn call(sender: &mut SendRequest<Body>, body: Vec<u8>) -> Option<String> {
    use http_body_util::BodyExt as _;
    let request = http::Request::post(FORWARD)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("upriver-from", "watcher-1")
        .header("upriver-to", "owner-1")
        .body(Body::new(http_body_util::Full::new(body.into())))
        .expect("a request");
    let response = soon(sender.send_request(request)).await.expect("an answer");
    let in_headers = response.headers().get("grpc-status").cloned();
    let rest = soon(response.into_body().collect()).await.expect("an end in good order");
    let in_trailers = rest.trailers().and_then(|trailers| trailers.get("grpc-status")).cloned();
    in_headers.or(in_trailers).and_then(|value| value.to_str().ok().map(str::to_owned))
}

#[tokio::test]
async fn a_peer_that_does_not_keep_to_the_protocol_is_told_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let certs = PeerCerts::make(folder.path());
    let settings = Settings { credit: 1000, ..Settings::default() };
    let mut owner = Replica::start("owner-1", &tls(&certs), settings).await;
    let mut sender = raw::http(&owner, &certs).await;
    let invalid = Some("3".to_owned());
    assert_eq!(call(&mut sender, said(0, 10)).await, invalid, "no Hello");
    assert_eq!(call(&mut sender, Vec::new()).await, invalid, "nothing at all");
    assert!(owner.ends.try_recv().is_err());
    // The answers are read to their end, so the owner's side has to be gone first: these bodies break the protocol.
    for body in [[first(), first()].concat(), [first(), said(0, 900), said(0, 900), said(0, 900)].concat()] {
        assert_eq!(call(&mut sender, body).await, invalid);
        let end = owner.accepted().await;
        assert!(matches!(soon(end.ended.wait()).await, PeerError::Protocol { .. }));
    }
    let lie = [first(), said(u64::MAX, 10), said(1, 10)].concat();
    assert_eq!(call(&mut sender, lie).await, invalid, "costs are counted without overflow");
}

#[tokio::test]
async fn truncated_and_random_bytes_are_no_panic_and_no_harm_to_others() {
    let panics = Arc::new(AtomicU64::new(0));
    let (counter, before, ours) = (panics.clone(), std::panic::take_hook(), std::thread::current().id());
    // The server's tasks run on this thread too.
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().id() == ours {
            counter.fetch_add(1, Ordering::SeqCst);
        }
        before(info);
    }));
    let folder = tempfile::tempdir().expect("a folder");
    let certs = PeerCerts::make(folder.path());
    let tls = tls(&certs);
    let mut owner = Replica::start("owner-1", &tls, Settings::default()).await;
    let peers = peers("watcher-1", &tls, Settings::default());
    let (mut other, mut other_end) = converse(&peers, &owner.peer(), &mut owner).await;
    let mut dice = StdRng::seed_from_u64(9445);
    let mut sender = raw::http(&owner, &certs).await;
    let good = [first(), said(0, 50)].concat();
    for round in 0..300 {
        let mut body = good.clone();
        match round % 3 {
            // Cut anywhere: a part of a length, of a Hello, of a message.
            0 => body.truncate(dice.random_range(0..good.len())),
            // Some bytes changed.
            1 => (0..4).for_each(|_| {
                let at = dice.random_range(0..body.len());
                body[at] = dice.random();
            }),
            // A good frame around noise.
            _ => {
                let mut noise = vec![0; dice.random_range(0..200)];
                dice.fill_bytes(&mut noise);
                body = [first(), framed(&noise)].concat();
            }
        }
        // Any status, but an end.
        call(&mut sender, body).await;
    }
    for _ in 0..20 {
        let mut stream = raw::connect(&owner, &certs, Some(&certs)).await;
        let mut noise = vec![0; dice.random_range(1..4000)];
        dice.fill_bytes(&mut noise);
        // It may be closed before everything is written.
        let _ = stream.write_all(&noise).await;
        let _ = stream.shutdown().await;
        let mut rest = Vec::new();
        // However it ends, it ends.
        let _ = soon(stream.read_to_end(&mut rest)).await;
    }
    round_trip(&mut other, &mut other_end, 1).await;
    let mut ends = Vec::new();
    while let Ok(end) = owner.ends.try_recv() {
        ends.push(end);
    }
    assert!(ends.len() >= 100, "many got as far as a conversation: {}", ends.len());
    eventually("all of those are over", SOON, async || {
        ends.iter().all(|end| end.outbound.is_closed()).then_some(())
    })
    .await;
    assert_eq!(panics.load(Ordering::SeqCst), 0);
}
