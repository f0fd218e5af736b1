//! What the process does to a Redis that is dead, demoted, loading, or slow to replicate.

use std::sync::Arc;
use std::time::{Duration, Instant};

use upriver_model::Operation;
use upriver_redis_io::{RedisOptions, RedisStore, WaitOptions};
use upriver_store::conformance::Fixture;
use upriver_store::{AppendReply, JournalLimits, Store, StoreError};
use upriver_testkit::proxy::TcpProxy;
use upriver_testkit::{RedisServer, eventually};

const LONG: Duration = Duration::from_secs(30);

pub(crate) async fn ask(server: &RedisServer, words: &[&str]) {
    let mut connection = server.client().get_multiplexed_async_connection().await.expect("the server is up");
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command.query_async::<redis::Value>(&mut connection).await.unwrap_or_else(|e| panic!("{words:?}: {e}"));
}

async fn in_sync(replica: &RedisServer) {
    eventually("a replica in sync", LONG, async || {
        let mut connection = replica.client().get_multiplexed_async_connection().await.ok()?;
        let info: String = redis::cmd("INFO").arg("replication").query_async(&mut connection).await.ok()?;
        info.contains("master_link_status:up").then_some(())
    })
    .await;
}

async fn replica_of(master: &RedisServer, replica: &RedisServer) {
    let address = master.addr();
    let port = address.rsplit(':').next().expect("host:port");
    ask(replica, &["REPLICAOF", "127.0.0.1", port]).await;
    in_sync(replica).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_branches_and_a_dead_redis_make_fewer_than_two_attempts_per_second() {
    let server = RedisServer::start().await;
    let proxy = TcpProxy::start(server.addr().parse().expect("an address")).await.expect("a proxy");
    let store = Arc::new(
        RedisStore::new(&RedisOptions::new(&format!("redis://{}", proxy.address()))).expect("sound"),
    );
    let mut handles = Vec::new();
    for branch in 0..50 {
        let f = Fixture::new(&format!("branch-{branch}"));
        handles.push((f.adopt(&*store, 1).await.expect("a free journal").0, f));
    }
    server.stop();
    let before = proxy.opened();
    let start = Instant::now();
    let span = Duration::from_secs(10);
    // Each branch knocks without any pause of its own.
    let mut branches = tokio::task::JoinSet::new();
    for (journal, f) in handles {
        let store = store.clone();
        branches.spawn(async move {
            assert!(journal.open(f.opening(1, 1)).await.is_err());
            while start.elapsed() < span {
                assert!(f.adopt(&*store, 1).await.is_err(), "nobody is there");
            }
            f
        });
    }
    let branches = branches.join_all().await;
    let (attempts, elapsed) = (proxy.opened() - before, start.elapsed());
    println!("{attempts} attempts in {:.1} s", elapsed.as_secs_f64());
    assert!(attempts as f64 / elapsed.as_secs_f64() < 2.0, "{attempts} attempts in {elapsed:?}");

    server.start_again().await;
    let back = Instant::now();
    for f in &branches {
        eventually("the journal again", LONG, async || f.adopt(&*store, 1).await.map(|_| ())).await;
    }
    println!("all 50 are back after {:.1} s", back.elapsed().as_secs_f64());
    assert!(back.elapsed() < Duration::from_secs(10));
}

/// RDS-01 without Sentinel: nobody closes our sockets at the demotion.
#[tokio::test]
async fn a_master_that_was_demoted_and_keeps_its_sockets_is_noticed() {
    let (server, other) = (RedisServer::start().await, RedisServer::start().await);
    let store = RedisStore::new(&RedisOptions::new(&server.url())).expect("sound");
    let f = Fixture::new("demoted");
    let (journal, _) = f.adopt(&store, 1).await.expect("a free journal");
    // The pool has an idle connection now, which the next call gets.
    assert_eq!(store.stored_epoch(&f.branch).await, Ok(1));
    replica_of(&server, &other).await;
    ask(&other, &["REPLICAOF", "NO", "ONE"]).await;
    replica_of(&other, &server).await;
    let Err(StoreError::Unavailable { reason }) = journal.open(f.opening(1, 1)).await else {
        panic!("a replica takes no writes");
    };
    assert!(reason.contains("ReadOnly"), "{reason}");
    // Its data would be read without an error; it must not be.
    eventually("it says that it is not the master", LONG, async || {
        match store.stored_epoch(&f.branch).await {
            Err(StoreError::Unavailable { reason }) if reason.contains("not the master") => Ok(()),
            // The next attempt is not due yet.
            Err(StoreError::Unavailable { reason }) => Err(reason),
            other => panic!("a replica must not be read: {other:?}"),
        }
    })
    .await;
    ask(&server, &["REPLICAOF", "NO", "ONE"]).await;
    eventually("the master again", LONG, async || f.adopt(&store, 1).await.map(|_| ())).await;
}

/// A failover loses a suffix and the handle does not even notice a broken connection: the counter tells.
#[tokio::test]
async fn a_suffix_that_a_failover_lost_is_lost_at_a_handle_that_survived_it() {
    let (server, other) = (RedisServer::start().await, RedisServer::start().await);
    let store = RedisStore::new(&RedisOptions::new(&server.url())).expect("sound");
    let f = Fixture::new("suffix");
    let (journal, _) = f.adopt(&store, 1).await.expect("a free journal");
    let opening = f.opening(1, 1);
    journal.open(opening.clone()).await.expect("opens");
    let append = async |n: u64| {
        let entry = f.entry((1, n), &format!("o{n}"), n, Operation::Create);
        journal.append(f.frame(&opening, n, n, vec![entry]), JournalLimits::default()).await
    };
    assert!(matches!(append(1).await, Ok(AppendReply::Appended { .. })));
    replica_of(&server, &other).await;
    ask(&other, &["REPLICAOF", "NO", "ONE"]).await;
    assert!(matches!(append(2).await, Ok(AppendReply::Appended { .. })), "the old master still takes it");
    replica_of(&other, &server).await;
    ask(&server, &["REPLICAOF", "NO", "ONE"]).await;
    let answer = append(3).await;
    let Err(StoreError::Lost { what }) = answer else { panic!("{answer:?}") };
    assert!(what.contains("counter"), "{what}");
    let (again, adopted) = f.adopt(&store, 1).await.expect("the holder returns");
    assert!(!adopted.created);
    let loaded = again.load().await.expect("readable");
    assert_eq!(loaded.entries.len(), 1);
    let cursor = loaded.cursors[&f.watch.to_string()].as_str();
    assert_eq!(cursor, "1", "the watch goes on after what is left");
}

/// RDS-07, with a server that really loads.
#[tokio::test]
async fn a_server_that_is_loading_is_waited_for_with_few_attempts() {
    let options = upriver_testkit::RedisOptions {
        append_fsync: "no".to_owned(),
        // Microseconds per command that is read back.
        extra_args: vec!["--key-load-delay".to_owned(), "1000".to_owned()],
        ..Default::default()
    };
    let server = RedisServer::start_with(options).await;
    let proxy = TcpProxy::start(server.addr().parse().expect("an address")).await.expect("a proxy");
    let store = RedisStore::new(&RedisOptions::new(&format!("redis://{}", proxy.address()))).expect("sound");
    assert_eq!(store.check().await, Ok(()));
    let mut connection = server.client().get_multiplexed_async_connection().await.expect("the server is up");
    let mut many = redis::pipe();
    for n in 0..5000 {
        many.cmd("SET").arg(format!("filler:{n}")).arg(n).ignore();
    }
    many.query_async::<()>(&mut connection).await.expect("written");
    server.stop();
    let before = proxy.opened();
    let start = Instant::now();
    let mut answers = std::collections::BTreeSet::new();
    let asked = async {
        eventually("a loaded server", LONG, async || {
            let answer = store.check().await;
            if let Err(error) = &answer {
                answers.insert(error.to_string());
            }
            answer
        })
        .await;
    };
    tokio::join!(server.start_again(), asked);
    let (attempts, elapsed) = (proxy.opened() - before, start.elapsed());
    println!("{attempts} attempts in {:.1} s; {answers:?}", elapsed.as_secs_f64());
    assert!(answers.iter().any(|text| text.contains("Redis is loading")), "it was seen loading: {answers:?}");
    assert!((attempts as f64) < 2.0 * elapsed.as_secs_f64() + 1.0, "{attempts} attempts in {elapsed:?}");
}

/// RDS-04, the part about us: what a full server refuses is not half written, and nothing is evicted for it.
#[tokio::test]
async fn a_full_server_refuses_a_frame_as_a_whole() {
    let server = RedisServer::start().await;
    let store = RedisStore::new(&RedisOptions::new(&server.url())).expect("sound");
    let f = Fixture::new("oom");
    let (journal, _) = f.adopt(&store, 1).await.expect("a free journal");
    journal.open(f.opening(1, 1)).await.expect("opens");
    ask(&server, &["CONFIG", "SET", "maxmemory", "1"]).await;
    let frame = f.frame(&f.opening(1, 1), 1, 1, vec![f.entry((1, 1), "a", 1, Operation::Create)]);
    let Err(StoreError::Unavailable { reason }) = journal.append(frame, JournalLimits::default()).await
    else {
        panic!("there is no room");
    };
    assert!(reason.contains("OOM"), "{reason}");
    ask(&server, &["CONFIG", "SET", "maxmemory", "0"]).await;
    let (again, adopted) = f.adopt(&store, 1).await.expect("room again");
    let loaded = again.load().await.expect("readable");
    assert!(!adopted.created && loaded.entries.is_empty() && loaded.cursors.is_empty());
}

#[tokio::test]
async fn too_few_replicas_are_counted_and_the_frame_stays_appended() {
    let recorder = upriver_telemetry::recorder().expect("a recorder");
    let metrics = recorder.handle();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let short = || {
        let text = metrics.render();
        let line = text.lines().find_map(|line| line.strip_prefix("upriver_redis_wait_short_total "));
        line.map(|count| count.parse::<u64>().expect("a count"))
    };
    let (server, replica) = (RedisServer::start().await, RedisServer::start().await);
    replica_of(&server, &replica).await;
    let mut options = RedisOptions::new(&server.url());
    options.wait = WaitOptions { replicas: 1, timeout: LONG / 10 };
    let store = RedisStore::new(&options).expect("sound");
    let f = Fixture::new("wait");
    let (journal, _) = f.adopt(&store, 1).await.expect("a free journal");
    let opening = f.opening(1, 1);
    journal.open(opening.clone()).await.expect("opens");
    let append = async |n: u64| {
        let entry = f.entry((1, n), &format!("o{n}"), n, Operation::Create);
        journal.append(f.frame(&opening, n, n, vec![entry]), JournalLimits::default()).await
    };
    assert!(matches!(append(1).await, Ok(AppendReply::Appended { .. })));
    assert_eq!(short(), Some(0), "the replica has it");
    let mut copy = replica.client().get_multiplexed_async_connection().await.expect("the replica is up");
    let log = format!("upriver:j1:{{{}}}:log", f.branch);
    let length: u64 = redis::cmd("XLEN").arg(&log).query_async(&mut copy).await.expect("readable");
    assert_eq!(length, 1, "and had it before the append was answered");
    replica.stop();
    let start = Instant::now();
    assert!(matches!(append(2).await, Ok(AppendReply::Appended { .. })));
    assert!(start.elapsed() >= LONG / 10 && start.elapsed() < LONG / 5, "{:?}", start.elapsed());
    assert_eq!(short(), Some(1));
    let progress = f.frame(&opening, 3, 3, vec![]);
    let reply = journal.append(progress, JournalLimits::default()).await;
    assert!(matches!(reply, Ok(AppendReply::Appended { .. })));
    assert_eq!(short(), Some(1), "a frame without entries waits for nobody");
    assert_eq!(journal.load().await.expect("readable").entries.len(), 2);
}
