//! Checking the server's settings, adopting journals.

use std::collections::HashMap;
use std::sync::Arc;

use redis::{AsyncCommands, RedisError, Value};
use upriver_model::{BranchKey, EntryId, IdSet, Incarnation};
use upriver_store::{Adopt, Adopted, Journal, Reply, Store, StoreError};

use crate::connect::{Connector, Origin, Patience};
use crate::errors::{breaks_link, is_refused, protocol, unavailable};
use crate::journal::{Link, Owner, RedisJournal};
use crate::keys::Keys;
use crate::options::RedisOptions;
use crate::replicas::Replicas;
use crate::rights;
use crate::scripts::{ADOPT, Answer};

/// Journals in one Redis.
pub struct RedisStore {
    connector: Arc<Connector>,
    replicas: Arc<Replicas>,
    prefix: String,
    allow_unknown_policy: bool,
}

impl RedisStore {
    /// Checks the options and reads the TLS files; connects only when used.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] if an address or a file cannot be read.
    pub fn new(options: &RedisOptions) -> Result<Self, StoreError> {
        Ok(Self {
            connector: Arc::new(Connector::new(options)?),
            replicas: Arc::new(Replicas::new(options.wait)),
            prefix: options.prefix.clone(),
            allow_unknown_policy: options.allow_unknown_policy,
        })
    }

    /// The error as it is told; a link that it speaks against is dropped.
    fn failed(&self, origin: Origin, error: &RedisError) -> StoreError {
        if breaks_link(error) {
            self.connector.broke(origin, &error.to_string());
        }
        unavailable(error)
    }
}

impl Store for RedisStore {
    fn check(&self) -> Reply<'_, ()> {
        Box::pin(async move {
            let mut lent = self.connector.lend(Patience::Waits).await?;
            let answer: Result<HashMap<String, String>, _> = redis::cmd("CONFIG")
                .arg("GET")
                .arg("maxmemory-policy")
                .query_async(&mut lent.connection)
                .await;
            if let Err(error) = &answer
                && breaks_link(error)
            {
                return Err(self.failed(lent.origin, error));
            }
            judge_policy(answer, self.allow_unknown_policy)?;
            rights::check(&mut lent.connection, &self.prefix, self.replicas.wanted()).await
        })
    }

    fn stored_epoch<'a>(&'a self, branch: &'a BranchKey) -> Reply<'a, u64> {
        Box::pin(async move {
            let mut lent = self.connector.lend(Patience::None).await?;
            let epoch: Option<u64> = lent
                .connection
                .hget(Keys::new(&self.prefix, branch).meta(), "epoch")
                .await
                .map_err(|error| self.failed(lent.origin, &error))?;
            Ok(epoch.unwrap_or(0))
        })
    }

    fn adopt(&self, adopt: Adopt) -> Reply<'_, (Box<dyn Journal>, Adopted)> {
        Box::pin(async move {
            let mut lent = self.connector.lend(Patience::Waits).await?;
            let keys = Keys::new(&self.prefix, &adopt.branch);
            let value: Value = ADOPT
                .key(keys.meta())
                .arg(adopt.epoch.as_key())
                .arg(adopt.holder.as_str())
                .arg(adopt.fresh.as_str())
                .arg(1)
                .invoke_async(&mut lent.connection)
                .await
                .map_err(|error| self.failed(lent.origin, &error))?;
            let (adopted, op) = read_adopted(&Answer::read(value)?)?;
            // Taken out of the pool only now: a refused owner tries again, and needs no new connection for that.
            let (connection, origin) = lent.keep();
            let link = Link { connection, origin, connector: self.connector.clone() };
            let owner = Owner { incarnation: adopted.incarnation.clone(), epoch: adopt.epoch, op };
            let journal = RedisJournal::new(link, self.replicas.clone(), keys, owner);
            Ok((Box::new(journal) as Box<dyn Journal>, adopted))
        })
    }
}

fn judge_policy(
    answer: Result<HashMap<String, String>, RedisError>,
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
        Err(error) if is_refused(&error) => {
            unknown(format!("{error}; docs/redis.md has the ACL line, with +config|get"))
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
