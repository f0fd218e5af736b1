//! The one way to a connection: who is asked, how often, and when is all of it dropped?
//!
//! In: [`RedisOptions`]. Out: connections to a server that has just said that it is the master. A *link* is a pool for one
//! server; the first sign that the server is gone or demoted closes it, whoever sees that sign. A new link is looked for by
//! one caller at a time, at the times that [`Pace`] allows, and all others get that round's outcome. So a process with many
//! branches and a dead Redis knocks like one with a single branch.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use deadpool_redis::{Connection, Manager, Pool, PoolError, Runtime};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, RedisError, Value};
use upriver_store::StoreError;
use upriver_telemetry::metric;

use crate::errors::{unavailable, unreachable};
use crate::options::{RedisOptions, address_like};
use crate::pace::Pace;
use crate::sentinel;

/// Longest wait for a TCP connection with its TLS and login.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);
/// Longest wait for a connection of the pool, whatever it waits for.
const LEND_WITHIN: Duration = Duration::from_secs(5);
/// Longest round: some Sentinels that hang, then a server that does.
const ROUND_WITHIN: Duration = Duration::from_secs(10);
/// Handles take their connection out of the pool for good, so its size bounds how many are being made or lent for
/// short reads at a time, not how many exist: that is one per branch and these.
const POOL_SIZE: usize = 4;

/// Makes and lends connections to the master.
pub(crate) struct Connector {
    options: RedisOptions,
    info: ConnectionInfo,
    /// Held by the one that looks for a new link.
    turn: tokio::sync::Mutex<()>,
    state: Mutex<State>,
    /// How often another server became the master. A handle from before such a change is dead.
    failovers: AtomicU64,
}

#[derive(Default)]
struct State {
    pace: Pace,
    link: Option<Link>,
    links: u64,
    /// Rounds that failed, and why the last one did.
    failed: u64,
    reason: String,
    /// The server of the last good link.
    server: Option<String>,
    /// The Sentinel to begin with.
    sentinel: usize,
    /// A task looks after the Sentinels already.
    watched: bool,
}

#[derive(Clone)]
struct Link {
    number: u64,
    pool: Pool,
}

/// Where a connection came from, for [`Connector::broke`] and [`Connector::is_current`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    link: u64,
    failovers: u64,
}

/// Whether a caller waits for the next attempt while the server is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// It has nothing else to do.
    Waits,
    /// It asks for many branches in a row and has a Lease to renew meanwhile: an outage costs it one attempt, not one each.
    None,
}

/// A lent connection; it goes back to the pool when dropped.
pub(crate) struct Lent {
    pub(crate) connection: Connection,
    pub(crate) origin: Origin,
}

impl Connector {
    pub(crate) fn new(options: &RedisOptions) -> Result<Self, StoreError> {
        let info = options.parse()?;
        metrics::gauge!(metric::STORE_UP).set(0.0);
        metrics::counter!(metric::STORE_FAILOVERS).absolute(0);
        Ok(Self {
            options: options.clone(),
            info,
            turn: tokio::sync::Mutex::new(()),
            state: Mutex::default(),
            failovers: AtomicU64::new(0),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection to a server that has just answered that it is the master.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] after at most [`ROUND_WITHIN`] and the pause before it.
    pub(crate) async fn lend(self: &Arc<Self>, patience: Patience) -> Result<Lent, StoreError> {
        let seen = self.state().failed;
        if let Some(lent) = self.through_link().await? {
            return Ok(lent);
        }
        let _turn = self.turn.lock().await;
        // Somebody was faster, with one outcome or the other.
        if let Some(lent) = self.through_link().await? {
            return Ok(lent);
        }
        {
            let state = self.state();
            if state.failed != seen {
                return Err(StoreError::Unavailable { reason: state.reason.clone() });
            }
        }
        self.round(patience).await
    }

    /// True while no other server has become the master since.
    pub(crate) fn is_current(&self, origin: Origin) -> bool {
        self.failovers.load(Ordering::Acquire) == origin.failovers
    }

    /// Drops the link that a connection came from, unless that has happened already.
    pub(crate) fn broke(&self, origin: Origin, why: &str) {
        let link = {
            let mut state = self.state();
            if state.link.as_ref().is_none_or(|link| link.number != origin.link) {
                return;
            }
            state.pace.broke(Instant::now(), rand::random());
            why.clone_into(&mut state.reason);
            state.link.take()
        };
        if let Some(link) = link {
            // Whoever waits for the pool looks for a new link now.
            link.pool.close();
            metrics::gauge!(metric::STORE_UP).set(0.0);
            tracing::warn!(reason = why, "the link to Redis is dropped");
        }
    }

    /// `None` if there is no link, or it turned out to be broken.
    async fn through_link(&self) -> Result<Option<Lent>, StoreError> {
        let (link, origin) = {
            let state = self.state();
            let Some(link) = state.link.clone() else { return Ok(None) };
            let origin = Origin { link: link.number, failovers: self.failovers.load(Ordering::Acquire) };
            (link, origin)
        };
        let why = match link.pool.get().await {
            Ok(mut connection) => match ask_role(&mut connection).await {
                Ok(()) => return Ok(Some(Lent { connection, origin })),
                Err(why) => why,
            },
            Err(PoolError::Closed) => return Ok(None),
            Err(PoolError::Timeout(deadpool_redis::TimeoutType::Wait)) => {
                let reason = "all connections of the pool are in use".to_owned();
                return Err(StoreError::Unavailable { reason });
            }
            Err(error) => pool_error(&error, false),
        };
        self.broke(origin, &why.to_string());
        Ok(None)
    }

    /// One look for the master, and a link to it. The caller holds the turn.
    async fn round(self: &Arc<Self>, patience: Patience) -> Result<Lent, StoreError> {
        let (delay, failing, reason) = {
            let state = self.state();
            (state.pace.delay(Instant::now()), state.pace.is_failing(), state.reason.clone())
        };
        if patience == Patience::None && failing && !delay.is_zero() {
            return Err(StoreError::Unavailable { reason });
        }
        tokio::time::sleep(delay).await;
        self.state().pace.begins(Instant::now(), rand::random());
        let mut opened = 0;
        let found = match tokio::time::timeout(ROUND_WITHIN, self.open(&mut opened)).await {
            Ok(found) => found,
            Err(_) => Err(StoreError::Unavailable { reason: "no answer in time".to_owned() }),
        };
        match found {
            Ok((pool, connection, server)) => Ok(self.linked(pool, connection, server)),
            Err(error) => {
                let reason = match error {
                    StoreError::Unavailable { reason } | StoreError::Unusable { reason } => reason,
                    other @ (StoreError::Fenced { .. } | StoreError::Lost { .. }) => other.to_string(),
                };
                let mut state = self.state();
                state.pace.failed(Instant::now(), opened, rand::random());
                state.failed += 1;
                state.reason.clone_from(&reason);
                // Another Sentinel may know better.
                state.sentinel = state.sentinel.wrapping_add(1);
                Err(StoreError::Unavailable { reason })
            }
        }
    }

    fn linked(self: &Arc<Self>, pool: Pool, connection: Connection, server: String) -> Lent {
        let mut state = self.state();
        state.pace.connected(Instant::now());
        state.links += 1;
        if state.server.as_ref().is_some_and(|before| *before != server) {
            self.count_failover();
        }
        let origin = Origin { link: state.links, failovers: self.failovers.load(Ordering::Acquire) };
        tracing::info!(server, failovers = origin.failovers, "linked to Redis");
        state.server = Some(server);
        state.link = Some(Link { number: state.links, pool });
        metrics::gauge!(metric::STORE_UP).set(1.0);
        if self.options.sentinel.is_some() && !state.watched {
            state.watched = true;
            tokio::spawn(crate::watch::run(Arc::downgrade(self)));
        }
        Lent { connection, origin }
    }

    /// The server that the link leads to; `None` without a link.
    pub(crate) fn linked_to(&self) -> Option<String> {
        let state = self.state();
        state.link.as_ref().and_then(|_| state.server.clone())
    }

    /// Most Sentinels name another server than `from`: all links and handles to that one end here and now, though it may
    /// still take writes. `by` is one of those Sentinels.
    pub(crate) fn moved(&self, from: &str, to: &str, by: usize) {
        let origin = {
            let mut state = self.state();
            let Some(link) = state.link.as_ref() else { return };
            if state.server.as_deref() != Some(from) {
                return;
            }
            let origin = Origin { link: link.number, failovers: self.failovers.load(Ordering::Acquire) };
            state.sentinel = by;
            state.server = Some(to.to_owned());
            self.count_failover();
            origin
        };
        self.broke(origin, &format!("most Sentinels name {to} as the master, not {from}"));
    }

    fn count_failover(&self) {
        self.failovers.fetch_add(1, Ordering::AcqRel);
        metrics::counter!(metric::STORE_FAILOVERS).increment(1);
    }

    pub(crate) fn options(&self) -> &RedisOptions {
        &self.options
    }

    /// How all servers are spoken to.
    pub(crate) fn address(&self) -> &ConnectionAddr {
        self.info.addr()
    }

    async fn open(&self, opened: &mut u32) -> Result<(Pool, Connection, String), StoreError> {
        let like = self.info.addr();
        let secure = matches!(like, ConnectionAddr::TcpTls { .. });
        let certificates = self.options.certificates(secure)?;
        let mut info = self.info.clone();
        if let Some(options) = &self.options.sentinel {
            let first = self.state().sentinel;
            let named = sentinel::master(options, like, certificates.as_ref(), first, opened).await?;
            self.state().sentinel = named.by;
            info = info.set_addr(address_like(like, named.host, named.port));
        }
        let server = info.addr().to_string();
        let told = |error: StoreError| match error {
            StoreError::Unavailable { reason } => {
                StoreError::Unavailable { reason: format!("{server}: {reason}") }
            }
            other => other,
        };
        let client = sentinel::client(info, certificates.as_ref()).map_err(|error| unavailable(&error))?;
        let pool = pool(client.get_connection_info().clone(), self.options.response_timeout)?;
        *opened += 1;
        let mut connection = pool.get().await.map_err(|error| told(pool_error(&error, secure)))?;
        ask_role(&mut connection).await.map_err(told)?;
        Ok((pool, connection, server))
    }
}

impl Lent {
    /// A connection that belongs to one journal handle from now on.
    pub(crate) fn keep(self) -> (MultiplexedConnection, Origin) {
        (Connection::take(self.connection), self.origin)
    }
}

fn pool(info: ConnectionInfo, response_timeout: Duration) -> Result<Pool, StoreError> {
    let unusable = |reason: String| StoreError::Unusable { reason };
    // The library's defaults, 500 ms for an answer among them, are too short for a script over a large inventory.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_WITHIN))
        .set_response_timeout(Some(response_timeout));
    let manager = Manager::new_with_config(info, config).map_err(|error| unusable(error.to_string()))?;
    Pool::builder(manager)
        .max_size(POOL_SIZE)
        .wait_timeout(Some(LEND_WITHIN))
        .create_timeout(Some(LEND_WITHIN))
        .recycle_timeout(Some(LEND_WITHIN))
        .runtime(Runtime::Tokio1)
        .build()
        .map_err(|error| unusable(error.to_string()))
}

fn pool_error(error: &PoolError, secure: bool) -> StoreError {
    match error {
        PoolError::Backend(error) => unreachable(error, secure),
        PoolError::Timeout(_)
        | PoolError::Closed
        | PoolError::NoRuntimeSpecified
        | PoolError::PostCreateHook(_) => StoreError::Unavailable { reason: error.to_string() },
    }
}

/// A replica answers PING like a master, and a server that is still loading answers ROLE: both are asked.
async fn ask_role(connection: &mut Connection) -> Result<(), StoreError> {
    let asked: Result<((), Vec<Value>), RedisError> =
        redis::pipe().cmd("PING").cmd("ROLE").query_async(connection).await;
    let ((), role) = asked.map_err(|error| unavailable(&error))?;
    let text = |index: usize| -> String {
        role.get(index).and_then(|value| redis::from_redis_value_ref(value).ok()).unwrap_or_default()
    };
    let name = text(0);
    if name == "master" {
        return Ok(());
    }
    #[cfg(feature = "seeded-bugs")]
    if std::env::var("UPRIVER_SEEDED_BUG").is_ok_and(|bug| bug == "ping-recycle") {
        return Ok(());
    }
    let reason = format!("this server is a {name} of {}:{}, not the master", text(1), text(2));
    Err(StoreError::Unavailable { reason })
}
