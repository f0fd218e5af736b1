//! Carriers between the words of a link and those of the peer protocol, without a network.

use std::time::Duration;

use upriver_engine::branch::WatchHealth;
use upriver_model::{BranchKey, Gvr, Scope};

use super::*;
use crate::tasks::watch::link::WAITING;

/// The link is full, the carrier stands before it with one more in hand, and the next one waits behind it.
const UNTIL_IT_STANDS: usize = WAITING + 2;

/// What never comes fails its test instead of holding up all others.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), what).await.expect("it is carried")
}

fn hello() -> Hello {
    let gvr = Gvr::new("", "v1", "configmaps");
    let watch = WatchKey { cluster: "local".into(), gvr, scope: Scope::Cluster };
    Hello { branch: BranchKey::new("shard"), watch, epoch: 1 }
}

/// An owner that waits for its store takes nothing, and what it has decided before still has to get out.
#[tokio::test]
async fn an_owner_that_takes_nothing_is_heard_all_the_same() {
    let (near, mut owner) = pair(hello());
    let (outbound, mut heard) = mpsc::channel(1);
    let (said, inbound) = mpsc::channel(1);
    let carrier = OwnerCarrier { hello: hello(), openings: Vec::new(), list: None };
    let carrying = tokio::spawn(carrier.carry(near, outbound, inbound));
    let live = || FromKind::Health(wire::health(&WatchHealth::Live));
    for _ in 0..UNTIL_IT_STANDS {
        said.send(live()).await.expect("it carries");
    }
    owner.to.send(ToWatch::Ack(1, 1)).await.expect("it carries");
    assert!(matches!(soon(heard.recv()).await, Some(ToKind::Ack(ack)) if ack.sequence == 1));
    assert!(matches!(owner.from.recv().await, Some(FromWatch::Health(WatchHealth::Live))));
    drop(owner);
    assert!(matches!(carrying.await.expect("no panic"), Over::Closed));
}

/// The same on the other side: a watcher that is busy still hands over what it has read.
#[tokio::test]
async fn a_watcher_that_takes_nothing_is_heard_all_the_same() {
    let (mut watcher, near) = pair(hello());
    let (outbound, mut heard) = mpsc::channel(1);
    let (said, inbound) = mpsc::channel(1);
    let carrier = WatcherCarrier { hello: hello(), opening: Mutex::default() };
    let carrying = tokio::spawn(carrier.carry(near, outbound, inbound));
    let ack = || ToKind::Ack(proto::Ack { stream: 1, sequence: 1 });
    for _ in 0..UNTIL_IT_STANDS {
        said.send(ack()).await.expect("it carries");
    }
    watcher.to.send(FromWatch::Health(WatchHealth::Live)).await.expect("it carries");
    assert!(matches!(soon(heard.recv()).await, Some(FromKind::Health(_))));
    assert!(matches!(watcher.from.recv().await, Some(ToWatch::Ack(1, 1))));
    drop(watcher);
    assert!(matches!(carrying.await.expect("no panic"), Over::Closed));
}
