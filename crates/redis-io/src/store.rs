//! Connecting, checking the server's settings, adopting journals.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::{Connection, Manager, Pool, Runtime};
use redis::{AsyncCommands, AsyncConnectionConfig, IntoConnectionInfo, Value, aio::MultiplexedConnection};
use upriver_model::{BranchKey, EntryId, IdSet, Incarnation};
use upriver_store::{Adopt, Adopted, Journal, Reply, Store, StoreError};

use crate::gate::Gate;
use crate::journal::RedisJournal;
use crate::keys::Keys;
use crate::scripts::{ADOPT, Answer, protocol, unavailable};

/// How to reach Redis.
#[derive(Clone, Debug)]
pub struct RedisOptions {
    /// `redis://[user:password@]host:port[/db]`.
    pub url: String,
    /// First part of every key.
    pub prefix: String,
    /// Longest wait for one answer. Scripts over large inventories take some tens of milliseconds.
    pub response_timeout: Duration,
    /// Accept a server that does not let us read its eviction policy.
    pub allow_unknown_policy: bool,
}

impl RedisOptions {
    /// Options for a server, with the default prefix.
    #[must_use]
    pub fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            prefix: "upriver".to_owned(),
            response_timeout: Duration::from_secs(5),
            allow_unknown_policy: false,
        }
    }
}

/// Journals in one Redis.
pub struct RedisStore {
    pool: Pool,
    prefix: String,
    allow_unknown_policy: bool,
    gate: Arc<Gate>,
}

impl RedisStore {
    /// Prepares the pool; connects only when used.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] if the address cannot be read.
    pub fn new(options: &RedisOptions) -> Result<Self, StoreError> {
        let unusable = |what: String| StoreError::Unusable { reason: what };
        let info = options.url.as_str().into_connection_info().map_err(|error| {
            unusable(format!("the Redis address cannot be read: {error}; use redis://host:port"))
        })?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(Duration::from_secs(3)))
            .set_response_timeout(Some(options.response_timeout));
        let manager = Manager::new_with_config(info, config).map_err(|error| unusable(error.to_string()))?;
        // Handles take their connection out of the pool, so its size bounds only short reads.
        let pool = Pool::builder(manager)
            .max_size(4)
            .wait_timeout(Some(Duration::from_secs(5)))
            .create_timeout(Some(Duration::from_secs(5)))
            .recycle_timeout(Some(Duration::from_secs(5)))
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(|error| unusable(error.to_string()))?;
        Ok(Self {
            pool,
            prefix: options.prefix.clone(),
            allow_unknown_policy: options.allow_unknown_policy,
            gate: Arc::new(Gate::new()),
        })
    }

    async fn connection(&self) -> Result<Connection, StoreError> {
        self.pool.get().await.map_err(|error| StoreError::Unavailable { reason: error.to_string() })
    }

    /// A connection that belongs to one journal handle from now on.
    async fn own_connection(&self) -> Result<MultiplexedConnection, StoreError> {
        Ok(Connection::take(self.connection().await?))
    }

    async fn read_policy(&self) -> Result<(), StoreError> {
        let mut connection = self.connection().await?;
        let answer: Result<HashMap<String, String>, _> =
            redis::cmd("CONFIG").arg("GET").arg("maxmemory-policy").query_async(&mut connection).await;
        if answer.is_err() {
            discard(connection);
        }
        judge_policy(answer, self.allow_unknown_policy)
    }

    async fn read_epoch(&self, branch: &BranchKey) -> Result<u64, StoreError> {
        let mut connection = self.connection().await?;
        let epoch: redis::RedisResult<Option<u64>> =
            connection.hget(Keys::new(&self.prefix, branch).meta(), "epoch").await;
        epoch.map(Option::unwrap_or_default).map_err(|error| {
            discard(connection);
            unavailable(&error)
        })
    }

    async fn take_over(&self, adopt: Adopt) -> Result<(Box<dyn Journal>, Adopted), StoreError> {
        let mut connection = self.own_connection().await?;
        let keys = Keys::new(&self.prefix, &adopt.branch);
        let value: Value = ADOPT
            .key(keys.meta())
            .arg(adopt.epoch.as_key())
            .arg(adopt.holder.as_str())
            .arg(adopt.fresh.as_str())
            .arg(1)
            .invoke_async(&mut connection)
            .await
            .map_err(|error| unavailable(&error))?;
        let answer = Answer::read(value)?;
        let (adopted, op) = read_adopted(&answer)?;
        let incarnation = adopted.incarnation.clone();
        let journal = RedisJournal::new(connection, keys, incarnation, adopt.epoch, op, self.gate.clone());
        Ok((Box::new(journal), adopted))
    }
}

/// Ends a connection that failed: given back to the pool, it would cost a PING before the next attempt finds out.
fn discard(connection: Connection) {
    drop(Connection::take(connection));
}

impl Store for RedisStore {
    fn check(&self) -> Reply<'_, ()> {
        Box::pin(self.gate.pass(self.read_policy()))
    }

    fn stored_epoch<'a>(&'a self, branch: &'a BranchKey) -> Reply<'a, u64> {
        Box::pin(self.gate.pass(self.read_epoch(branch)))
    }

    fn adopt(&self, adopt: Adopt) -> Reply<'_, (Box<dyn Journal>, Adopted)> {
        Box::pin(self.gate.pass(self.take_over(adopt)))
    }
}

fn judge_policy(
    answer: Result<HashMap<String, String>, redis::RedisError>,
    allow_unknown: bool,
) -> Result<(), StoreError> {
    let unknown = |why: String| {
        if allow_unknown {
            return Ok(());
        }
        Err(StoreError::Unusable {
            reason: format!(
                "the eviction policy of Redis cannot be read ({why}): allow `CONFIG GET`, or set \
                 --redis-allow-unknown-policy after checking that maxmemory-policy is noeviction"
            ),
        })
    };
    match answer {
        Ok(settings) => match settings.get("maxmemory-policy").map(String::as_str) {
            Some("noeviction") => Ok(()),
            Some(other) => Err(StoreError::Unusable {
                reason: format!(
                    "Redis may evict the journal: maxmemory-policy is {other}; set it to noeviction \
                     (`CONFIG SET maxmemory-policy noeviction` and the same in redis.conf)"
                ),
            }),
            None => unknown("no such setting".to_owned()),
        },
        Err(error) if error.is_io_error() || error.is_timeout() || error.code() == Some("LOADING") => {
            Err(unavailable(&error))
        }
        Err(error) => unknown(error.to_string()),
    }
}

fn read_adopted(answer: &Answer) -> Result<(Adopted, u64), StoreError> {
    let schema = answer.text(6)?;
    if schema != "1" {
        return Err(StoreError::Unusable {
            reason: format!(
                "the journal was written by a newer release (schema {schema}): upgrade this replica"
            ),
        });
    }
    let floor = EntryId::parse(&answer.text(3)?).ok_or_else(|| protocol("the floor is not an entry id"))?;
    let done = IdSet::parse(&answer.text(4)?).ok_or_else(|| protocol("`done` is not a set of ids"))?;
    let tip = answer.text(5)?;
    let adopted = Adopted {
        created: answer.text(0)? == "created",
        incarnation: Incarnation::new(answer.text(1)?),
        floor,
        done,
        subtrees: crate::load::decode_subtrees(&answer.text(7)?),
        tip: (!tip.is_empty()).then(|| upriver_model::CommitId::new(tip)),
    };
    Ok((adopted, answer.number(2)?))
}
