//! The Redis store against a real redis-server: the common suite, and what only Redis can do wrong.

mod failover;
mod links;
mod logins;

use upriver_redis_io::{RedisOptions, RedisStore};
use upriver_store::conformance::{self, Fixture};
use upriver_store::{AppendReply, JournalLimits, Store, StoreError};
use upriver_testkit::{RedisServer, eventually};

fn store(server: &RedisServer) -> RedisStore {
    RedisStore::new(&RedisOptions::new(&server.url())).expect("a good address")
}

#[tokio::test]
async fn redis_passes_the_conformance_suite() {
    let server = RedisServer::start().await;
    conformance::all(&store(&server)).await;
}

#[tokio::test]
async fn a_server_that_may_evict_the_journal_is_refused() {
    let server = RedisServer::start().await;
    assert_eq!(store(&server).check().await, Ok(()));
    let mut connection = server.client().get_multiplexed_async_connection().await.expect("the server is up");
    for policy in ["allkeys-lru", "volatile-ttl"] {
        let set = redis::cmd("CONFIG").arg("SET").arg("maxmemory-policy").arg(policy).to_owned();
        set.query_async::<()>(&mut connection).await.expect("settable");
        let Err(StoreError::Unusable { reason }) = store(&server).check().await else {
            panic!("{policy} must be refused");
        };
        assert!(reason.contains(policy) && reason.contains("noeviction"), "{reason}");
    }
}

#[tokio::test]
async fn a_wiped_journal_is_lost_until_it_is_adopted_again() {
    let server = RedisServer::start().await;
    let store = store(&server);
    let f = Fixture::new("wiped");
    let (journal, before) = f.adopt(&store, 1).await.expect("a free journal");
    let mut connection = server.client().get_multiplexed_async_connection().await.expect("the server is up");
    redis::cmd("FLUSHALL").query_async::<()>(&mut connection).await.expect("wiped");
    let lost = journal.open(f.opening(1, 1)).await;
    assert!(matches!(lost, Err(StoreError::Lost { .. })), "{lost:?}");
    let dead = journal.open(f.opening(1, 1)).await;
    assert!(
        matches!(dead, Err(StoreError::Unavailable { .. })),
        "a handle that lost data stays dead: {dead:?}"
    );
    let (_, after) = f.adopt_as(&store, 2, "replica-2").await.expect("adopts");
    assert!(after.created);
    assert_ne!(after.incarnation, before.incarnation);
}

#[tokio::test]
async fn a_rolled_back_journal_is_lost_even_at_the_same_epoch() {
    let server = RedisServer::start().await;
    let store = store(&server);
    let f = Fixture::new("rolled-back");
    let (first, _) = f.adopt(&store, 1).await.expect("a free journal");
    let opening = f.opening(1, 1);
    first.open(opening.clone()).await.expect("opens");
    let snapshot = server.snapshot().await;

    // The snapshot stopped and started the server, so the first handle is dead; a returning owner appends one entry.
    let (second, _) = f.adopt(&store, 1).await.expect("the holder returns");
    let frame = f.frame(&opening, 1, 9, vec![f.entry((1, 1), "a", 9, upriver_model::Operation::Create)]);
    let reply = second.append(frame, JournalLimits::default()).await;
    assert!(matches!(reply, Ok(AppendReply::Appended { .. })), "{reply:?}");

    server.restore(&snapshot).await;
    let broken = second.load().await;
    assert!(matches!(broken, Err(StoreError::Unavailable { .. })), "{broken:?}");
    let (third, adopted) = f.adopt(&store, 1).await.expect("the holder returns");
    assert!(!adopted.created);
    assert!(
        third.load().await.expect("readable").entries.is_empty(),
        "the suffix is gone, and the owner sees it"
    );
}

#[tokio::test]
async fn an_epoch_that_redis_forgot_is_lost_not_accepted() {
    let server = RedisServer::start().await;
    let store = store(&server);
    let f = Fixture::new("forgot");
    f.adopt(&store, 1).await.expect("a free journal");
    let (owner, _) = f.adopt_as(&store, 5, "replica-2").await.expect("a higher epoch");
    let mut connection = server.client().get_multiplexed_async_connection().await.expect("the server is up");
    let meta = format!("upriver:j1:{{{}}}:meta", f.branch);
    let set = redis::cmd("HSET").arg(&meta).arg("epoch").arg(1).to_owned();
    set.query_async::<()>(&mut connection).await.expect("settable");
    let answer = owner.open(f.opening(5, 1)).await;
    assert!(matches!(answer, Err(StoreError::Lost { .. })), "{answer:?}");
}

#[tokio::test]
async fn an_unknown_record_is_named_not_skipped() {
    let server = RedisServer::start().await;
    let store = store(&server);
    let f = Fixture::new("undecodable");
    let (journal, _) = f.adopt(&store, 1).await.expect("a free journal");
    let opening = f.opening(1, 1);
    journal.open(opening.clone()).await.expect("opens");
    let mut newer = f.entry((1, 1), "a", 1, upriver_model::Operation::Create);
    newer.entry.schema = 9;
    let frame = f.frame(&opening, 1, 1, vec![newer]);
    journal.append(frame, JournalLimits::default()).await.expect("appended");
    let loaded = journal.load().await.expect("readable");
    assert_eq!((loaded.entries.len(), loaded.undecodable.len()), (0, 1));
}

#[tokio::test]
async fn entries_that_the_guard_drops_do_not_count_towards_the_limit() {
    let server = RedisServer::start().await;
    let store = store(&server);
    let f = Fixture::new("bytes");
    let (journal, _) = f.adopt(&store, 1).await.expect("a free journal");
    let opening = f.opening(1, 1);
    journal.open(opening.clone()).await.expect("opens");
    let bytes = async || {
        let mut connection =
            server.client().get_multiplexed_async_connection().await.expect("the server is up");
        let meta = format!("upriver:j1:{{{}}}:meta", f.branch);
        let get = redis::cmd("HGET").arg(&meta).arg("bytes").to_owned();
        get.query_async::<u64>(&mut connection).await.expect("a number")
    };
    let entry = f.entry((1, 1), "a", 5, upriver_model::Operation::Create);
    let one = entry.entry.size() as u64;
    journal.append(f.frame(&opening, 1, 5, vec![entry]), JournalLimits::default()).await.expect("appended");
    assert_eq!(bytes().await, one);
    let again = f.entry((1, 2), "a", 5, upriver_model::Operation::Update);
    journal.append(f.frame(&opening, 2, 5, vec![again]), JournalLimits::default()).await.expect("answered");
    assert_eq!(bytes().await, one, "the version was known");
}

#[tokio::test]
async fn a_server_that_falls_silent_costs_one_wait_and_not_one_per_branch() {
    let server = RedisServer::start().await;
    let store = store(&server);
    let branches: Vec<Fixture> = (0..30).map(|number| Fixture::new(&format!("silent-{number}"))).collect();
    assert_eq!(store.check().await, Ok(()));
    server.pause();
    let first = store.stored_epoch(&branches[0].branch).await;
    assert!(matches!(first, Err(StoreError::Unavailable { .. })), "{first:?}");
    let begun = std::time::Instant::now();
    for branch in &branches[1..] {
        let next = store.stored_epoch(&branch.branch).await;
        assert_eq!(next, first, "what the first one found");
    }
    assert!(begun.elapsed() < std::time::Duration::from_secs(1), "{:?}", begun.elapsed());
    server.resume();
    eventually("the server is back", std::time::Duration::from_secs(20), async || {
        store.stored_epoch(&branches[0].branch).await
    })
    .await;
    for branch in &branches {
        branch.adopt(&store, 1).await.expect("a free journal");
    }
}
