//! One master, one replica, three Sentinels, and an owner that appends through all of it.

use std::time::{Duration, Instant};

use upriver_model::{EntryId, Operation};
use upriver_redis_io::{RedisOptions, RedisStore, SentinelOptions};
use upriver_store::conformance::{self, Fixture};
use upriver_store::{AppendReply, Journal, JournalLimits, OpenReply, Store, StoreError};
use upriver_testkit::redis::{MASTER, SentinelTiming};
use upriver_testkit::{SentinelSet, eventually};

/// How long writes may fail after the master is gone (RDS-01).
const LIMIT: Duration = Duration::from_secs(15);

fn options(set: &SentinelSet) -> RedisOptions {
    let mut options = RedisOptions::new("redis://sentinel");
    options.sentinel = Some(SentinelOptions {
        addresses: set.addresses(),
        master: MASTER.to_owned(),
        username: None,
        password: None,
    });
    options.response_timeout = Duration::from_secs(2);
    options
}

fn store(set: &SentinelSet) -> RedisStore {
    RedisStore::new(&options(set)).expect("sound options")
}

/// An owner and its only watch: entry n has version n, so the cursor says how many entries there must be.
struct Writer<'a> {
    store: &'a RedisStore,
    fixture: Fixture,
    journal: Box<dyn Journal>,
    stream: u64,
    seq: u64,
    /// Version of the last entry that was acknowledged.
    acknowledged: u64,
    next: u64,
}

impl<'a> Writer<'a> {
    async fn start(store: &'a RedisStore, name: &str) -> Writer<'a> {
        let fixture = Fixture::new(name);
        let (journal, _) = fixture.adopt(store, 1).await.expect("a free journal");
        journal.open(fixture.opening(1, 1)).await.expect("opens");
        Self { store, fixture, journal, stream: 1, seq: 0, acknowledged: 0, next: 1 }
    }

    async fn append(&mut self) -> Result<(), StoreError> {
        let n = self.next;
        let entry = self.fixture.entry((1, n), &format!("o{n}"), n, Operation::Create);
        let frame = self.fixture.frame(&self.fixture.opening(1, self.stream), self.seq + 1, n, vec![entry]);
        let reply = self.journal.append(frame, JournalLimits::default()).await?;
        assert!(matches!(reply, AppendReply::Appended { .. }), "{reply:?}");
        (self.seq, self.acknowledged, self.next) = (self.seq + 1, n, n + 1);
        Ok(())
    }

    /// What an owner does after a failure: adopt, load, open, go on from the cursor. Returns how many acknowledged entries
    /// the new master has never seen.
    async fn recover(&mut self) -> Result<u64, StoreError> {
        let (journal, adopted) = self.fixture.adopt(self.store, 1).await?;
        let loaded = journal.load().await?;
        assert!(!adopted.created, "the journal itself survives");
        let kept = loaded.entries.len() as u64;
        let ids: Vec<EntryId> = loaded.entries.iter().map(|stored| stored.id).collect();
        assert_eq!(ids, (1..=kept).map(|n| EntryId { epoch: 1, n }).collect::<Vec<_>>(), "no hole");
        let cursor = loaded.cursors.get(&self.fixture.watch.to_string()).and_then(|rv| rv.number());
        assert_eq!(cursor.unwrap_or(0), kept, "the cursor never runs ahead of the entries");
        self.stream += 1;
        let opened = journal.open(self.fixture.opening(1, self.stream)).await?;
        assert!(matches!(opened, OpenReply::Opened { .. }), "{opened:?}");
        let lost = self.acknowledged.saturating_sub(kept);
        (self.journal, self.seq, self.acknowledged, self.next) = (journal, 0, kept, kept + 1);
        Ok(lost)
    }

    /// Appends until a call fails.
    async fn until_it_fails(&mut self) -> StoreError {
        let start = Instant::now();
        while start.elapsed() < LIMIT {
            if let Err(error) = self.append().await {
                return error;
            }
        }
        panic!("{} appends, and none failed", self.acknowledged);
    }

    /// Recovers until appends work again; returns the lost suffix.
    async fn goes_on(&mut self) -> u64 {
        let lost = eventually("a journal at the new master", LIMIT, async || self.recover().await).await;
        for _ in 0..10 {
            self.append().await.expect("the new master takes it");
        }
        lost
    }
}

#[tokio::test]
async fn redis_behind_sentinels_passes_the_conformance_suite() {
    let set = SentinelSet::start(SentinelTiming::default()).await;
    assert_eq!(store(&set).check().await, Ok(()));
    conformance::all(&store(&set)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn appends_go_on_after_the_master_is_killed_and_after_the_next_one_is() {
    let set = SentinelSet::start(SentinelTiming::default()).await;
    let store = store(&set);
    let mut writer = Writer::start(&store, "killed").await;
    for round in ["first", "second"] {
        let old = set.master().await;
        let sure = writer.acknowledged + 100;
        while writer.acknowledged < sure {
            writer.append().await.expect("the master is well");
        }
        let killed = Instant::now();
        let (error, ()) = tokio::join!(writer.until_it_fails(), async {
            tokio::task::yield_now().await;
            old.stop();
        });
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
        let lost = writer.goes_on().await;
        println!(
            "{round} failover: appends again after {:.1} s, {lost} acknowledged entries came again from the watch",
            killed.elapsed().as_secs_f64()
        );
        assert!(killed.elapsed() < LIMIT, "{:?}", killed.elapsed());
        // The old master comes back as it was started, and the Sentinels make a replica of it.
        old.start_again().await;
        set.becomes_replica(old).await;
        writer.append().await.expect("the return of the old master disturbs nobody");
    }
}

/// RDS-01: the old master lives on as a replica.
#[tokio::test(flavor = "multi_thread")]
async fn appends_go_on_after_a_master_was_demoted_and_lives_on() {
    let set = SentinelSet::start(SentinelTiming::default()).await;
    let store = store(&set);
    let mut writer = Writer::start(&store, "demoted").await;
    let old = set.master().await;
    set.fail_over().await;
    let asked = Instant::now();
    let error = writer.until_it_fails().await;
    println!("after the demotion: {error}");
    let lost = writer.goes_on().await;
    println!("demotion: appends again after {:.1} s, {lost} entries again", asked.elapsed().as_secs_f64());
    // The Sentinels leave the old master as it is for ten seconds; we do not wait for that.
    assert!(asked.elapsed() < LIMIT / 2, "{:?}", asked.elapsed());
    assert_ne!(set.master().await.addr(), old.addr());
}

/// A frozen master keeps all sockets open. What one handle finds out holds for all others at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_handle_to_a_former_master_is_dead_once_a_new_one_is_known() {
    let set = SentinelSet::start(SentinelTiming::default()).await;
    let store = store(&set);
    let mut writer = Writer::start(&store, "first").await;
    let mut idle = Writer::start(&store, "second").await;
    let old = set.master().await;
    old.pause();
    writer.until_it_fails().await;
    writer.goes_on().await;
    let start = Instant::now();
    let error = idle.append().await.expect_err("its master is none any more").to_string();
    assert!(error.contains("another Redis"), "{error}");
    assert!(start.elapsed() < Duration::from_millis(500), "and it is not even asked: {:?}", start.elapsed());
    // The journal of the idle branch may have been lost with the frozen master, but for what is replicated.
    old.resume();
    set.becomes_replica(old).await;
    idle.goes_on().await;
}

/// The user of the guide at the Sentinels.
#[tokio::test]
async fn a_user_with_one_right_suffices_at_the_sentinels() {
    let set = SentinelSet::start(SentinelTiming::default()).await;
    let guide = include_str!("../../../../docs/redis.md");
    let line = guide.lines().find_map(|line| line.strip_prefix("ACL SETUSER watcher ")).expect("the line");
    for address in set.addresses() {
        let client = redis::Client::open(format!("redis://{address}/")).expect("an address");
        let mut connection = client.get_multiplexed_async_connection().await.expect("a Sentinel");
        let words: Vec<String> = line.split(' ').map(|word| word.replace("PASSWORD", "hush")).collect();
        let mut command = redis::cmd("ACL");
        command.arg("SETUSER").arg("watcher").arg(words);
        command.query_async::<()>(&mut connection).await.expect("a sound ACL line");
    }
    let mut options = options(&set);
    let login = options.sentinel.as_mut().expect("set above");
    (login.username, login.password) = (Some("watcher".to_owned()), Some("hush".to_owned()));
    assert_eq!(RedisStore::new(&options).expect("sound options").check().await, Ok(()));
    options.sentinel.as_mut().expect("set above").password = Some("wrong".to_owned());
    assert!(RedisStore::new(&options).expect("sound options").check().await.is_err());
}

#[tokio::test]
async fn sentinels_that_know_nothing_are_named() {
    let set = SentinelSet::start(SentinelTiming::default()).await;
    let mut options = options(&set);
    options.sentinel.as_mut().expect("set above").master = "nobody".to_owned();
    let store = RedisStore::new(&options).expect("sound options");
    let message = store.check().await.expect_err("no such master").to_string();
    assert!(set.addresses().iter().all(|address| message.contains(address)), "{message}");
    assert!(message.contains("\"nobody\""), "{message}");
}
