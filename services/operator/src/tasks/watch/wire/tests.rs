//! Whatever one replica says, another one reads as exactly that.

use proptest::prelude::*;

use super::*;

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[a-z0-9.|/-]{1,12}", "\\PC{1,20}"]
}

fn a_gvr() -> impl Strategy<Value = Gvr> {
    (text(), text(), text()).prop_map(|(group, version, resource)| Gvr::new(&group, &version, &resource))
}

fn a_scope() -> impl Strategy<Value = Scope> {
    prop_oneof![Just(Scope::Cluster), text().prop_map(|name| Scope::Namespace(name.into()))]
}

fn a_target_scope() -> impl Strategy<Value = TargetScope> {
    (text(), a_gvr(), a_scope()).prop_map(|(target, gvr, scope)| TargetScope {
        target: TargetUid::new(target.as_str()),
        gvr,
        scope,
    })
}

fn an_operation() -> impl Strategy<Value = Operation> {
    prop_oneof![Just(Operation::Create), Just(Operation::Update), Just(Operation::Delete)]
}

fn an_author() -> impl Strategy<Value = Author> {
    prop_oneof![
        Just(Author::NotAttempted),
        Just(Author::Unresolved),
        text().prop_map(|username| Author::Resolved { username: username.into() }),
    ]
}

fn a_key() -> impl Strategy<Value = ObjectKey> {
    (text(), text()).prop_map(|(namespace, name)| ObjectKey::new(&namespace, &name))
}

fn an_event() -> impl Strategy<Value = WatchedEvent> {
    let scopes = proptest::collection::vec(a_target_scope(), 0..3);
    let object = (a_key(), text(), text(), text());
    (scopes, object, an_operation(), proptest::option::of(text()), an_author(), any::<i64>()).prop_map(
        |(scopes, (key, kind, uid, rv), operation, payload, author, observed_at_ms)| WatchedEvent {
            scopes,
            key,
            kind: kind.into(),
            uid: uid.into(),
            rv: ResourceVersion::new(&rv),
            operation,
            payload: payload.map(Into::into),
            author,
            observed_at_ms,
        },
    )
}

fn a_watch() -> impl Strategy<Value = WatchKey> {
    (text(), a_gvr(), a_scope()).prop_map(|(cluster, gvr, scope)| WatchKey {
        cluster: cluster.into(),
        gvr,
        scope,
    })
}

fn a_subscribe() -> impl Strategy<Value = (Subscribe, WatchKey)> {
    let operations = proptest::collection::vec(an_operation(), 0..4);
    let chosen = prop_oneof![Just(Chosen::ByName), Just(Chosen::ByWildcard)];
    let one = (a_target_scope(), text(), operations, chosen, text());
    let names = proptest::collection::btree_map(text(), (text(), text()), 0..3);
    (proptest::collection::vec(one, 0..4), text(), names, a_watch()).prop_map(
        |(wanted, hash, names, watch)| {
            let subscriptions =
                wanted.into_iter().map(|(scope, kind, operations, chosen, spec_hash)| Subscription {
                    scope,
                    kind: kind.into(),
                    watch: watch.clone(),
                    operations,
                    chosen,
                    spec_hash: spec_hash.into(),
                });
            let subscribe = Subscribe {
                subscriptions: subscriptions.collect(),
                scope_hash: hash,
                names: names
                    .into_iter()
                    .map(|(target, name)| (TargetUid::new(target.as_str()), name))
                    .collect(),
            };
            (subscribe, watch)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_greeting_reads_back(branch in text(), watch in a_watch(), epoch in any::<u64>()) {
        let said = Hello { branch: BranchKey::new(branch), watch, epoch };
        prop_assert_eq!(read_hello(&hello(&said)), Ok(said));
    }

    #[test]
    fn a_frame_reads_back(
        events in proptest::collection::vec(an_event(), 0..4),
        (stream, seq) in any::<(u64, u64)>(),
        cursor in proptest::option::of(text()),
        watch in a_watch(),
    ) {
        let opening = Opening { watch, watch_epoch: 3, stream, scope_hash: "hash".to_owned() };
        let cursor = cursor.map(|cursor| ResourceVersion::new(&cursor));
        let said = WatchFrame { opening: opening.clone(), seq, cursor, events };
        prop_assert_eq!(frame(&said).stream, stream);
        prop_assert_eq!(read_frame(frame(&said), opening), Ok(said));
    }

    #[test]
    fn a_member_reads_back(key in a_key(), words in (text(), text(), text()), payload in proptest::option::of(text())) {
        let (kind, uid, rv) = words;
        let payload = payload.map(Into::into);
        let said = Member { key, kind: kind.into(), uid: uid.into(), rv: ResourceVersion::new(&rv), payload };
        prop_assert_eq!(read_member(member(&said)), Ok(said));
    }

    #[test]
    fn what_is_wanted_reads_back((said, watch) in a_subscribe()) {
        prop_assert_eq!(read_subscribe(subscribe(&said), &watch), Ok(said));
    }

    #[test]
    fn what_was_left_out_reads_back(target in text(), key in a_key(), gone in any::<bool>()) {
        let said = vec![LeftOut { target: TargetUid::new(target.as_str()), key, gone }];
        prop_assert_eq!(read_left_out(left_out(&said)), Ok(said));
    }
}

#[test]
fn every_health_reads_back() {
    let blocked = |reason| WatchHealth::Blocked { reason, message: "no".to_owned() };
    let all = [
        WatchHealth::Replaying,
        WatchHealth::Live,
        blocked(super::super::source::NOT_PERMITTED),
        blocked(super::super::source::FAILED),
    ];
    for said in all {
        assert_eq!(read_health(health(&said)), Ok(said));
    }
}

#[test]
fn what_is_missing_is_named() {
    assert_eq!(read_hello(&proto::Hello::default()), Err(Unreadable("watch key")));
    assert_eq!(read_health(proto::Health::default()), Err(Unreadable("health")));
    assert_eq!(read_member(proto::Member::default()), Err(Unreadable("object")));
}
