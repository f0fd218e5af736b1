//! Messages as the first release with peers sent them: every later one reads them, and sends nothing that it could not.

use prost::Message as _;
use upriver_peer_io::proto::{
    self, AuthorResolved, Credit, Event, ForwardRequest, Frame, FromWatcher, Gvr, Hello, ObjectKey, Scope,
    TargetScope, WatchKey, author, forward_request, from_watcher, scope,
};

fn shown(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")).collect()
}

fn gvr() -> Gvr {
    Gvr { group: String::new(), version: "v1".to_owned(), resource: "configmaps".to_owned() }
}

fn hello() -> ForwardRequest {
    let key = WatchKey {
        cluster: "local".to_owned(),
        gvr: Some(gvr()),
        scope: Some(Scope { kind: Some(scope::Kind::Namespace("shop".to_owned())) }),
    };
    let hello = Hello {
        branch_key: "adef".to_owned(),
        watch_key: Some(key),
        watch_epoch: 7,
        credit: Some(Credit { bytes: 2 << 20 }),
    };
    ForwardRequest { message_bytes: 0, part: Some(forward_request::Part::Hello(hello)) }
}

fn frame() -> ForwardRequest {
    let target = TargetScope {
        target_uid: "t".to_owned(),
        gvr: Some(gvr()),
        scope: Some(Scope { kind: Some(scope::Kind::ClusterWide(proto::ClusterWide {})) }),
    };
    let event = Event {
        scopes: vec![target],
        key: Some(ObjectKey { namespace: "shop".to_owned(), name: "a".to_owned() }),
        kind: "ConfigMap".to_owned(),
        uid: "u".to_owned(),
        resource_version: "41".to_owned(),
        operation: proto::Operation::Update.into(),
        payload: Some("{}".to_owned()),
        author: Some(proto::Author {
            kind: Some(author::Kind::Resolved(AuthorResolved { username: "jane".to_owned() })),
        }),
        observed_at_ms: 1_700_000_000_000,
    };
    let frame = Frame { stream: 3, sequence: 9, cursor: Some("42".to_owned()), events: vec![event] };
    let message = FromWatcher { kind: Some(from_watcher::Kind::Frame(frame)) };
    ForwardRequest { message_bytes: 70, part: Some(forward_request::Part::Message(message)) }
}

#[test]
fn a_greeting_and_a_frame_are_what_they_were() {
    for (message, frozen) in [(hello(), HELLO), (frame(), FRAME)] {
        assert_eq!(shown(&message.encode_to_vec()), frozen);
        assert_eq!(ForwardRequest::decode(bytes(frozen).as_slice()).expect("read"), message);
    }
}

#[test]
fn a_field_that_a_later_release_adds_is_passed_over() {
    let mut later = bytes(FRAME);
    // Field 200, a text.
    later.extend_from_slice(&[0xc2, 0x0c, 0x02, b'h', b'i']);
    assert_eq!(ForwardRequest::decode(later.as_slice()).expect("read"), frame());
}

const HELLO: &str = "0a320a046164656612210a056c6f63616c1210120276311a0a636f6e6669676d6170731a06120473686f70180722050880808001";
const FRAME: &str = "125b1259080310091a023432224f0a190a01741210120276311a0a636f6e6669676d6170731a020a0012090a0473686f701201611a09436f6e6669674d61702201752a02343130023a027b7d42081a060a046a616e654880d095ffbc312046";
