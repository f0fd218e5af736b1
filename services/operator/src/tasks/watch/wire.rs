//! Between the words of a link and the messages of the peer protocol. Whatever does not read back ends the conversation.

use upriver_engine::branch::{Chosen, Member, Start, Subscription, WatchFrame, WatchHealth, WatchedEvent};
use upriver_model::{
    Author, BranchKey, Gvr, ObjectKey, Operation, ResourceVersion, Scope, TargetScope, TargetUid, WatchKey,
};
use upriver_peer_io::proto;
use upriver_peer_io::proto::to_watcher::Kind as ToKind;
use upriver_store::Opening;

use super::link::{Hello, LeftOut, Names, Subscribe, ToWatch};

/// A message of another release, or of nobody we know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message without its {0}; are all replicas of the same release?")]
pub(crate) struct Unreadable(pub(super) &'static str);

type Read<T> = Result<T, Unreadable>;

pub(super) fn hello(hello: &Hello) -> proto::Hello {
    proto::Hello {
        branch_key: hello.branch.to_string(),
        watch_key: Some(proto::WatchKey {
            cluster: hello.watch.cluster.to_string(),
            gvr: Some(gvr(&hello.watch.gvr)),
            scope: Some(scope(&hello.watch.scope)),
        }),
        watch_epoch: hello.epoch,
        credit: None,
    }
}

pub(super) fn read_hello(hello: &proto::Hello) -> Read<Hello> {
    let key = hello.watch_key.as_ref().ok_or(Unreadable("watch key"))?;
    Ok(Hello {
        branch: BranchKey::new(hello.branch_key.clone()),
        watch: WatchKey {
            cluster: key.cluster.as_str().into(),
            gvr: read_gvr(key.gvr.as_ref())?,
            scope: read_scope(key.scope.as_ref())?,
        },
        epoch: hello.watch_epoch,
    })
}

fn gvr(gvr: &Gvr) -> proto::Gvr {
    proto::Gvr {
        group: gvr.group.to_string(),
        version: gvr.version.to_string(),
        resource: gvr.resource.to_string(),
    }
}

fn read_gvr(gvr: Option<&proto::Gvr>) -> Read<Gvr> {
    let gvr = gvr.ok_or(Unreadable("type"))?;
    Ok(Gvr::new(&gvr.group, &gvr.version, &gvr.resource))
}

fn scope(scope: &Scope) -> proto::Scope {
    let kind = match scope {
        Scope::Cluster => proto::scope::Kind::ClusterWide(proto::ClusterWide {}),
        Scope::Namespace(namespace) => proto::scope::Kind::Namespace(namespace.to_string()),
    };
    proto::Scope { kind: Some(kind) }
}

fn read_scope(scope: Option<&proto::Scope>) -> Read<Scope> {
    match scope.and_then(|scope| scope.kind.as_ref()) {
        Some(proto::scope::Kind::ClusterWide(_)) => Ok(Scope::Cluster),
        Some(proto::scope::Kind::Namespace(namespace)) => Ok(Scope::Namespace(namespace.as_str().into())),
        None => Err(Unreadable("scope")),
    }
}

fn target_scope(of: &TargetScope) -> proto::TargetScope {
    proto::TargetScope {
        target_uid: of.target.to_string(),
        gvr: Some(gvr(&of.gvr)),
        scope: Some(scope(&of.scope)),
    }
}

fn read_target_scope(of: &proto::TargetScope) -> Read<TargetScope> {
    Ok(TargetScope {
        target: TargetUid::new(of.target_uid.as_str()),
        gvr: read_gvr(of.gvr.as_ref())?,
        scope: read_scope(of.scope.as_ref())?,
    })
}

pub(super) fn target_scopes(of: &[TargetScope]) -> Vec<proto::TargetScope> {
    of.iter().map(target_scope).collect()
}

pub(super) fn read_target_scopes(of: &[proto::TargetScope]) -> Read<Vec<TargetScope>> {
    of.iter().map(read_target_scope).collect()
}

fn object_key(key: &ObjectKey) -> proto::ObjectKey {
    proto::ObjectKey { namespace: key.namespace.to_string(), name: key.name.to_string() }
}

fn read_object_key(key: Option<&proto::ObjectKey>) -> Read<ObjectKey> {
    let key = key.ok_or(Unreadable("object"))?;
    Ok(ObjectKey::new(&key.namespace, &key.name))
}

fn operation(operation: Operation) -> proto::Operation {
    match operation {
        Operation::Create => proto::Operation::Create,
        Operation::Update => proto::Operation::Update,
        Operation::Delete => proto::Operation::Delete,
    }
}

fn read_operation(operation: i32) -> Read<Operation> {
    match proto::Operation::try_from(operation) {
        Ok(proto::Operation::Create) => Ok(Operation::Create),
        Ok(proto::Operation::Update) => Ok(Operation::Update),
        Ok(proto::Operation::Delete) => Ok(Operation::Delete),
        Ok(proto::Operation::Unspecified) | Err(_) => Err(Unreadable("operation")),
    }
}

fn author(author: &Author) -> proto::Author {
    use proto::author::Kind;
    let kind = match author {
        Author::NotAttempted => Kind::NotAttempted(proto::AuthorNotAttempted {}),
        Author::Unresolved => Kind::Unresolved(proto::AuthorUnresolved {}),
        Author::Resolved { username } => {
            Kind::Resolved(proto::AuthorResolved { username: username.to_string() })
        }
    };
    proto::Author { kind: Some(kind) }
}

fn read_author(author: Option<&proto::Author>) -> Read<Author> {
    use proto::author::Kind;
    match author.and_then(|author| author.kind.as_ref()) {
        Some(Kind::NotAttempted(_)) => Ok(Author::NotAttempted),
        Some(Kind::Unresolved(_)) => Ok(Author::Unresolved),
        Some(Kind::Resolved(resolved)) => {
            Ok(Author::Resolved { username: resolved.username.as_str().into() })
        }
        // A wrong author is worse than none.
        None => Err(Unreadable("author")),
    }
}

pub(super) fn frame(frame: &WatchFrame) -> proto::Frame {
    proto::Frame {
        stream: frame.opening.stream,
        sequence: frame.seq,
        cursor: frame.cursor.as_ref().map(|cursor| cursor.as_str().to_owned()),
        events: frame.events.iter().map(event).collect(),
    }
}

fn event(event: &WatchedEvent) -> proto::Event {
    proto::Event {
        scopes: target_scopes(&event.scopes),
        key: Some(object_key(&event.key)),
        kind: event.kind.to_string(),
        uid: event.uid.to_string(),
        resource_version: event.rv.as_str().to_owned(),
        operation: operation(event.operation).into(),
        payload: event.payload.as_ref().map(ToString::to_string),
        author: Some(author(&event.author)),
        observed_at_ms: event.observed_at_ms,
    }
}

pub(super) fn read_frame(frame: proto::Frame, opening: Opening) -> Read<WatchFrame> {
    let events: Read<Vec<WatchedEvent>> = frame.events.into_iter().map(read_event).collect();
    let cursor = frame.cursor.map(|cursor| ResourceVersion::new(&cursor));
    Ok(WatchFrame { opening, seq: frame.sequence, cursor, events: events? })
}

fn read_event(event: proto::Event) -> Read<WatchedEvent> {
    Ok(WatchedEvent {
        scopes: read_target_scopes(&event.scopes)?,
        key: read_object_key(event.key.as_ref())?,
        kind: event.kind.into(),
        uid: event.uid.into(),
        rv: ResourceVersion::new(&event.resource_version),
        operation: read_operation(event.operation)?,
        payload: event.payload.map(Into::into),
        author: read_author(event.author.as_ref())?,
        observed_at_ms: event.observed_at_ms,
    })
}

pub(super) fn member(member: &Member) -> proto::Member {
    proto::Member {
        key: Some(object_key(&member.key)),
        kind: member.kind.to_string(),
        uid: member.uid.to_string(),
        resource_version: member.rv.as_str().to_owned(),
        payload: member.payload.as_ref().map(ToString::to_string),
    }
}

pub(super) fn read_member(member: proto::Member) -> Read<Member> {
    Ok(Member {
        key: read_object_key(member.key.as_ref())?,
        kind: member.kind.into(),
        uid: member.uid.into(),
        rv: ResourceVersion::new(&member.resource_version),
        payload: member.payload.map(Into::into),
    })
}

pub(super) fn health(health: &WatchHealth) -> proto::Health {
    use proto::health::Kind;
    let kind = match health {
        WatchHealth::Replaying => Kind::Replaying(proto::Replaying {}),
        WatchHealth::Live => Kind::Live(proto::Live {}),
        WatchHealth::Blocked { reason, message } => {
            let reason = if *reason == super::source::NOT_PERMITTED {
                proto::blocked::Reason::WatchNotPermitted
            } else {
                proto::blocked::Reason::WatchError
            };
            Kind::Blocked(proto::Blocked { reason: reason.into(), message: message.clone() })
        }
    };
    proto::Health { kind: Some(kind) }
}

pub(super) fn read_health(health: proto::Health) -> Read<WatchHealth> {
    use proto::blocked::Reason;
    use proto::health::Kind;
    match health.kind.ok_or(Unreadable("health"))? {
        Kind::Replaying(_) => Ok(WatchHealth::Replaying),
        Kind::Live(_) => Ok(WatchHealth::Live),
        Kind::Blocked(blocked) => {
            let reason = match Reason::try_from(blocked.reason) {
                Ok(Reason::WatchNotPermitted) => super::source::NOT_PERMITTED,
                Ok(Reason::WatchError) => super::source::FAILED,
                Ok(Reason::Unspecified) | Err(_) => return Err(Unreadable("reason")),
            };
            Ok(WatchHealth::Blocked { reason, message: blocked.message })
        }
    }
}

pub(super) fn left_out(secrets: &[LeftOut]) -> proto::LeftOut {
    let secrets = secrets.iter().map(|secret| proto::left_out::Secret {
        target_uid: secret.target.to_string(),
        key: Some(object_key(&secret.key)),
        gone: secret.gone,
    });
    proto::LeftOut { secrets: secrets.collect() }
}

pub(super) fn read_left_out(left_out: proto::LeftOut) -> Read<Vec<LeftOut>> {
    let read = |secret: proto::left_out::Secret| {
        Ok(LeftOut {
            target: TargetUid::new(secret.target_uid.as_str()),
            key: read_object_key(secret.key.as_ref())?,
            gone: secret.gone,
        })
    };
    left_out.secrets.into_iter().map(read).collect()
}

pub(super) fn to_watcher(message: ToWatch) -> ToKind {
    match message {
        ToWatch::Subscribe(wanted) => ToKind::Subscribe(subscribe(&wanted)),
        ToWatch::Begin(opening, start) => {
            let resume_after = match start {
                Start::Resume(rv) => Some(rv.as_str().to_owned()),
                Start::Replay => None,
            };
            ToKind::Begin(proto::Begin { stream: opening.stream, resume_after })
        }
        ToWatch::Continue(opening) => ToKind::Continue(proto::Continue { stream: opening.stream }),
        ToWatch::Backfill(opening, scopes) => {
            ToKind::Backfill(proto::Backfill { stream: opening.stream, scopes: target_scopes(&scopes) })
        }
        ToWatch::Ack(stream, sequence) => ToKind::Ack(proto::Ack { stream, sequence }),
        ToWatch::Hold(stream, sequence) => ToKind::Hold(proto::Hold { stream, sequence }),
        ToWatch::Stale(epoch) => ToKind::Stale(proto::Stale { epoch }),
    }
}

fn subscribe(wanted: &Subscribe) -> proto::Subscribe {
    let subscriptions = wanted.subscriptions.iter().map(|subscription| proto::Subscription {
        scope: Some(target_scope(&subscription.scope)),
        kind: subscription.kind.to_string(),
        operations: subscription.operations.iter().map(|of| operation(*of).into()).collect(),
        chosen: match subscription.chosen {
            Chosen::ByName => proto::Chosen::ByName.into(),
            Chosen::ByWildcard => proto::Chosen::ByWildcard.into(),
        },
        spec_hash: subscription.spec_hash.to_string(),
    });
    let names = wanted.names.iter().map(|(target, (namespace, name))| {
        (target.to_string(), proto::ObjectKey { namespace: namespace.clone(), name: name.clone() })
    });
    proto::Subscribe {
        subscriptions: subscriptions.collect(),
        scope_hash: wanted.scope_hash.clone(),
        names: names.collect(),
    }
}

pub(super) fn read_subscribe(wanted: proto::Subscribe, watch: &WatchKey) -> Read<Subscribe> {
    let read = |subscription: proto::Subscription| {
        let operations: Read<Vec<Operation>> =
            subscription.operations.iter().map(|of| read_operation(*of)).collect();
        Ok(Subscription {
            scope: read_target_scope(subscription.scope.as_ref().ok_or(Unreadable("scope"))?)?,
            kind: subscription.kind.into(),
            watch: watch.clone(),
            operations: operations?,
            chosen: match proto::Chosen::try_from(subscription.chosen) {
                Ok(proto::Chosen::ByName) => Chosen::ByName,
                Ok(proto::Chosen::ByWildcard) => Chosen::ByWildcard,
                Ok(proto::Chosen::Unspecified) | Err(_) => return Err(Unreadable("choice")),
            },
            spec_hash: subscription.spec_hash.into(),
        })
    };
    let subscriptions: Read<Vec<Subscription>> = wanted.subscriptions.into_iter().map(read).collect();
    let names: Names = wanted
        .names
        .into_iter()
        .map(|(target, key)| (TargetUid::new(target.as_str()), (key.namespace, key.name)))
        .collect();
    Ok(Subscribe { subscriptions: subscriptions?, scope_hash: wanted.scope_hash, names })
}

#[cfg(test)]
mod tests;
