//! One master, one replica, three Sentinels, all real and on loopback.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{RedisOptions, RedisServer, io_error};
use crate::TestkitError;
use crate::ports::free_port;
use crate::process::{ChildProcess, ProcessSpec, find_program};
use crate::wait::{eventually, try_eventually};
use crate::workdir::WorkDir;

const READY_WITHIN: Duration = Duration::from_secs(15);

/// Sentinels look at a replica every 10 s, and make one of a returned master when it has called itself one for 8 s.
const SETTLED_WITHIN: Duration = Duration::from_secs(60);

/// The name that the Sentinels know the master by.
pub const MASTER: &str = "upriver";

/// How fast the Sentinels are.
#[derive(Clone, Copy, Debug)]
pub struct SentinelTiming {
    /// A server that is silent for so long is down, milliseconds.
    pub down_after_ms: u64,
    /// Longest failover, milliseconds; one that failed is tried again after twice as long.
    pub failover_ms: u64,
}

impl Default for SentinelTiming {
    fn default() -> Self {
        Self { down_after_ms: 1000, failover_ms: 5000 }
    }
}

/// Two servers and three Sentinels; dropping it ends them.
#[derive(Debug)]
pub struct SentinelSet {
    sentinels: Vec<Sentinel>,
    /// The first is the master at the start.
    servers: [RedisServer; 2],
}

#[derive(Debug)]
struct Sentinel {
    port: u16,
    // Before the folder: the process ends first.
    process: ChildProcess,
    _dir: WorkDir,
}

impl SentinelSet {
    /// Starts all of them and waits until the replica is in sync and every Sentinel knows it and the other Sentinels.
    ///
    /// # Panics
    /// If redis-server is not installed or something does not get ready.
    pub async fn start(timing: SentinelTiming) -> Self {
        match Self::try_start(timing, None).await {
            Ok(set) => set,
            Err(error) => panic!("{error}"),
        }
    }

    /// As [`SentinelSet::start`], for callers that report errors themselves. All files are below `dir`, which is kept, or in
    /// temporary folders.
    ///
    /// # Errors
    /// If redis-server is not installed or something does not get ready.
    pub async fn try_start(timing: SentinelTiming, dir: Option<&Path>) -> Result<Self, TestkitError> {
        let folder = |name: String| dir.map(|dir| dir.join(name));
        // A replica is fed at once, and not after the 5 s in which others might ask for the same copy.
        let soon = ["--repl-diskless-sync-delay", "0"].map(str::to_owned).to_vec();
        let master = RedisServer::try_start(RedisOptions {
            extra_args: soon.clone(),
            dir: folder("redis-0".into()),
            ..RedisOptions::default()
        })
        .await?;
        let replica = RedisServer::try_start(RedisOptions {
            extra_args: [
                soon,
                ["--replicaof", "127.0.0.1", &master.port.to_string()].map(str::to_owned).to_vec(),
            ]
            .concat(),
            dir: folder("redis-1".into()),
            ..RedisOptions::default()
        })
        .await?;
        let mut sentinels = Vec::new();
        for index in 0..3 {
            sentinels.push(sentinel(master.port, timing, folder(format!("sentinel-{index}")))?);
        }
        let set = Self { sentinels, servers: [master, replica] };
        for index in 0..set.sentinels.len() {
            let ready = try_eventually("a Sentinel that knows all others", READY_WITHIN, async || {
                let seen = set.counts(index).await.map_err(|error| error.to_string())?;
                if seen == (1, 2) { Ok(()) } else { Err(format!("{seen:?} replicas and Sentinels")) }
            });
            if let Err(late) = ready.await {
                let log = set.sentinels[index].process.tail_log();
                return Err(TestkitError::NotReady { server: "redis-sentinel", why: late.to_string(), log });
            }
        }
        set.becomes_replica(&set.servers[1]).await;
        Ok(set)
    }

    /// `host:port` of each Sentinel.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port)).collect()
    }

    /// The server that says that it is the master and is named so by the first Sentinel.
    ///
    /// # Panics
    /// If there is none within half a minute.
    pub async fn master(&self) -> &RedisServer {
        eventually("a master", Duration::from_secs(30), async || self.master_now().await).await
    }

    /// As [`SentinelSet::master`] at one look.
    pub async fn master_now(&self) -> Option<&RedisServer> {
        let (_, port) = self.named().await.ok()?;
        let server = self.servers.iter().find(|server| server.port == port)?;
        (role(server).await? == "master").then_some(server)
    }

    /// Both servers; the first was the master at the start.
    #[must_use]
    pub fn servers(&self) -> &[RedisServer; 2] {
        &self.servers
    }

    /// The other one.
    #[must_use]
    pub fn other(&self, than: &RedisServer) -> &RedisServer {
        &self.servers[usize::from(self.servers[0].port == than.port)]
    }

    /// Waits until `server` is a replica whose link to its master is up.
    ///
    /// # Panics
    /// If that takes more than a minute.
    pub async fn becomes_replica(&self, server: &RedisServer) {
        let what = "a replica in sync, which the Sentinels would promote";
        eventually(what, SETTLED_WITHIN, async || self.is_replica_now(server).await).await;
    }

    /// As [`SentinelSet::becomes_replica`] at one look; `None` if it is not.
    pub async fn is_replica_now(&self, server: &RedisServer) -> Option<()> {
        let mut connection = server.client().get_multiplexed_async_connection().await.ok()?;
        let info: String = ::redis::cmd("INFO").arg("replication").query_async(&mut connection).await.ok()?;
        (info.contains("role:slave") && info.contains("master_link_status:up")).then_some(())?;
        // And the Sentinels must see it so, or they have nothing to fail over to.
        for index in 0..self.sentinels.len() {
            let replicas = self.fields(index, "REPLICAS").await.ok()?;
            let port = server.port.to_string();
            let of = |name: &str, from: &[String]| {
                from.iter().position(|text| text == name).and_then(|at| from.get(at + 1)).cloned()
            };
            let seen = replicas.iter().find(|fields| of("port", fields).as_ref() == Some(&port))?;
            let fit = of("flags", seen)? == "slave" && of("master-link-status", seen)? == "ok";
            fit.then_some(())?;
        }
        Some(())
    }

    /// Asks for a failover while all are well, as an operator does for maintenance. The old master lives on as a replica.
    ///
    /// # Panics
    /// If the Sentinels refuse it for half a minute.
    pub async fn fail_over(&self) {
        eventually("a failover that is accepted", Duration::from_secs(30), async || {
            let mut connection = self.client(0).get_multiplexed_async_connection().await?;
            let mut command = ::redis::cmd("SENTINEL");
            command.arg("FAILOVER").arg(MASTER).query_async::<()>(&mut connection).await
        })
        .await;
    }

    fn client(&self, index: usize) -> ::redis::Client {
        let url = format!("redis://127.0.0.1:{}/", self.sentinels[index].port);
        ::redis::Client::open(url).expect("our own URL is well formed")
    }

    async fn named(&self) -> ::redis::RedisResult<(String, u16)> {
        let mut connection = self.client(0).get_multiplexed_async_connection().await?;
        let mut command = ::redis::cmd("SENTINEL");
        command.arg("GET-MASTER-ADDR-BY-NAME").arg(MASTER).query_async(&mut connection).await
    }

    async fn fields(&self, index: usize, what: &str) -> ::redis::RedisResult<Vec<Vec<String>>> {
        let mut connection = self.client(index).get_multiplexed_async_connection().await?;
        ::redis::cmd("SENTINEL").arg(what).arg(MASTER).query_async(&mut connection).await
    }

    async fn counts(&self, index: usize) -> ::redis::RedisResult<(usize, usize)> {
        Ok((self.fields(index, "REPLICAS").await?.len(), self.fields(index, "SENTINELS").await?.len()))
    }
}

async fn role(server: &RedisServer) -> Option<String> {
    let mut connection = server.client().get_multiplexed_async_connection().await.ok()?;
    let role: Vec<::redis::Value> = ::redis::cmd("ROLE").query_async(&mut connection).await.ok()?;
    ::redis::from_redis_value_ref(role.first()?).ok()
}

fn sentinel(master: u16, timing: SentinelTiming, dir: Option<PathBuf>) -> Result<Sentinel, TestkitError> {
    let program = find_program("redis-server")
        .ok_or(TestkitError::NotInstalled { program: "redis-server", package: "redis-server" })?;
    let dir = WorkDir::new("sentinel", dir).map_err(io_error("make a folder for a Sentinel"))?;
    let port = free_port();
    let config = dir.path().join("sentinel.conf");
    let SentinelTiming { down_after_ms, failover_ms } = timing;
    // It rewrites this file itself.
    let text = format!(
        "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor {MASTER} 127.0.0.1 {master} 2\n\
         sentinel down-after-milliseconds {MASTER} {down_after_ms}\n\
         sentinel failover-timeout {MASTER} {failover_ms}\nsentinel parallel-syncs {MASTER} 1\n",
        dir.path().display(),
    );
    std::fs::write(&config, text).map_err(io_error("write a Sentinel's configuration"))?;
    let args = [config.to_string_lossy().into_owned(), "--sentinel".to_owned()];
    let process = ProcessSpec::new(program, dir.path()).args(args).grace(Duration::ZERO).spawn()?;
    Ok(Sentinel { port, process, _dir: dir })
}
