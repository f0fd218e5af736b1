//! One branch's journal through one connection.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use redis::{AsyncCommands, RedisError, ScriptInvocation, Value, aio::MultiplexedConnection};
use upriver_model::{
    Attempt, AttemptId, EntryId, Epoch, Incarnation, Intend, ObjectKey, ResourceVersion, Seen,
};
use upriver_model::{TargetScope, WatchKey};
use upriver_store::{
    AppendReply, Clear, ClearReply, Frame, Journal, JournalLimits, Loaded, Note, OpenReply, Opening, Reply,
    Settle, StoreError,
};

use crate::connect::{Connector, Origin};
use crate::errors::{breaks_link, protocol, unavailable};
use crate::keys::Keys;
use crate::load;
use crate::replicas::Replicas;
use crate::scripts::{self, Answer};

/// Seven days: how long a settled attempt can be looked up.
const SETTLED_ATTEMPT_LIFE_S: u64 = 7 * 24 * 3600;

/// Inventory fields per staging command: keeps one command well below a megabyte.
const STAGE_CHUNK: usize = 1000;

/// A connection of one handle, and whom to tell when it breaks.
pub(crate) struct Link {
    pub(crate) connection: MultiplexedConnection,
    pub(crate) origin: Origin,
    pub(crate) connector: Arc<Connector>,
}

/// Who has adopted, and the operation counter after that.
pub(crate) struct Owner {
    pub(crate) incarnation: Incarnation,
    pub(crate) epoch: Epoch,
    pub(crate) op: u64,
}

/// See [`Journal`].
pub(crate) struct RedisJournal {
    link: Link,
    replicas: Arc<Replicas>,
    keys: Keys,
    incarnation: Incarnation,
    epoch: Epoch,
    /// Highest operation counter that was acknowledged; the scripts compare it with theirs.
    op: AtomicU64,
    /// Set by the first failure: nothing is known any more, the owner has to adopt again.
    dead: AtomicBool,
}

impl RedisJournal {
    pub(crate) fn new(link: Link, replicas: Arc<Replicas>, keys: Keys, owner: Owner) -> Self {
        let Owner { incarnation, epoch, op } = owner;
        let (op, dead) = (AtomicU64::new(op), AtomicBool::new(false));
        Self { link, replicas, keys, incarnation, epoch, op, dead }
    }

    fn start<'a>(&self, script: &'a redis::Script) -> ScriptInvocation<'a> {
        let mut call = script.prepare_invoke();
        call.key(self.keys.meta());
        call.arg(self.incarnation.as_str());
        call.arg(self.epoch.as_key());
        call.arg(self.op.load(Ordering::Acquire));
        call
    }

    async fn run(&self, call: ScriptInvocation<'_>) -> Result<Answer, StoreError> {
        let result = self.attempt(call).await;
        if result.is_err() {
            self.dead.store(true, Ordering::Release);
        }
        result
    }

    async fn attempt(&self, call: ScriptInvocation<'_>) -> Result<Answer, StoreError> {
        self.alive()?;
        let mut connection = self.link.connection.clone();
        let value: Value =
            call.invoke_async(&mut connection).await.map_err(|error| self.link_failed(&error))?;
        let answer = Answer::read(value)?;
        self.op.fetch_max(answer.number(0)?, Ordering::AcqRel);
        Ok(answer)
    }

    fn alive(&self) -> Result<(), StoreError> {
        if self.dead.load(Ordering::Acquire) {
            return Err(StoreError::Unavailable {
                reason: "this connection failed before; adopt again".to_owned(),
            });
        }
        if !self.link.connector.is_current(self.link.origin) {
            // The old server may still be there and take writes that nobody will ever see.
            self.dead.store(true, Ordering::Release);
            return Err(StoreError::Unavailable {
                reason: "another Redis has become the master; adopt again".to_owned(),
            });
        }
        Ok(())
    }

    /// The error as it is told; a link that it speaks against is dropped for all handles.
    fn link_failed(&self, error: &RedisError) -> StoreError {
        if breaks_link(error) {
            self.link.connector.broke(self.link.origin, &error.to_string());
        }
        unavailable(error)
    }

    /// Waits for replicas to hold all that this connection has written, if that is asked for. Whatever comes of it, what was
    /// answered stands; a connection that breaks here ends the handle with its next call.
    async fn confirm(&self) {
        let mut connection = self.link.connection.clone();
        if let Err(error) = self.replicas.confirm(&mut connection).await {
            self.dead.store(true, Ordering::Release);
            let error = self.link_failed(&error);
            tracing::warn!(%error, "the journal is written, and the link broke while waiting for replicas");
        }
    }

    /// A plain read or staging write on our connection; a failure ends the handle like a script's does.
    async fn plain<T>(&self, work: impl Future<Output = redis::RedisResult<T>>) -> Result<T, StoreError> {
        self.alive()?;
        work.await.map_err(|error| {
            self.dead.store(true, Ordering::Release);
            self.link_failed(&error)
        })
    }

    async fn stage_inventory(&self, clear: &Clear) -> Result<(), StoreError> {
        let staged = self.keys.staged_inventory(&clear.scope);
        let mut connection = self.link.connection.clone();
        self.plain(connection.del::<_, ()>(&staged)).await?;
        for chunk in clear.inventory.chunks(STAGE_CHUNK) {
            let fields: Vec<(String, String)> =
                chunk.iter().map(|(key, seen)| (field(key), load::encode_seen(seen))).collect();
            // Not `hset_multiple`: that sends HMSET, a right more to grant.
            let command = redis::cmd("HSET").arg(&staged).arg(&fields).to_owned();
            self.plain(command.query_async::<()>(&mut connection)).await?;
        }
        Ok(())
    }
}

/// Inventory field of an object: `namespace/name`, both may not hold a slash.
pub(crate) fn field(key: &ObjectKey) -> String {
    format!("{}/{}", key.namespace, key.name)
}

fn append_arguments(call: &mut ScriptInvocation<'_>, keys: &Keys, frame: &Frame, limits: JournalLimits) {
    let mut scopes: Vec<&TargetScope> = Vec::new();
    let mut index_of: BTreeMap<&TargetScope, usize> = BTreeMap::new();
    for item in &frame.entries {
        index_of.entry(&item.scope).or_insert_with(|| {
            scopes.push(&item.scope);
            scopes.len()
        });
    }
    call.key(keys.cursors()).key(keys.log());
    for scope in &scopes {
        call.key(keys.inventory(scope));
    }
    call.arg(frame.opening.watch.to_string())
        .arg(frame.opening.watch_epoch)
        .arg(frame.opening.stream)
        .arg(frame.seq)
        .arg(&frame.opening.scope_hash)
        .arg(frame.cursor.as_ref().map_or("", ResourceVersion::as_str))
        .arg(limits.entries)
        .arg(limits.bytes);
    for item in &frame.entries {
        let deleted = item.entry.operation == upriver_model::Operation::Delete;
        call.arg(item.id.to_string())
            .arg(index_of[&item.scope])
            .arg(field(&item.entry.key))
            .arg(&*item.entry.uid)
            .arg(item.entry.rv.as_str())
            .arg(if deleted { "1" } else { "0" })
            .arg(item.entry.size())
            .arg(load::encode_entry(&item.entry));
    }
}

fn read_append(answer: &Answer) -> Result<AppendReply, StoreError> {
    Ok(match answer.status.as_str() {
        "OK" => AppendReply::Appended {
            stamped_ms: answer.text(1)?.parse().map_err(|_| protocol("the stamp is not a number"))?,
            kept: answer.text(2)?.bytes().map(|flag| flag == b'1').collect(),
        },
        "DUP" => AppendReply::Duplicate,
        "GAP" => AppendReply::Gap,
        "STALE" => AppendReply::Stale,
        "RESCOPE" => AppendReply::Rescope,
        "FULL" => AppendReply::Full,
        _ => return Err(answer.unexpected()),
    })
}

/// The stream id just above `floor`: what XTRIM MINID keeps from.
fn keep_from(floor: EntryId) -> String {
    if floor == EntryId::ZERO {
        return String::new();
    }
    EntryId { epoch: floor.epoch, n: floor.n.saturating_add(1) }.to_string()
}

impl Journal for RedisJournal {
    fn load(&self) -> Reply<'_, Loaded> {
        Box::pin(self.plain(load::load(self.link.connection.clone(), &self.keys)))
    }

    fn open(&self, opening: Opening) -> Reply<'_, OpenReply> {
        Box::pin(async move {
            let mut call = self.start(&scripts::OPEN);
            call.key(self.keys.cursors())
                .arg(opening.watch.to_string())
                .arg(opening.watch_epoch)
                .arg(opening.stream)
                .arg(&opening.scope_hash);
            let answer = self.run(call).await?;
            match answer.status.as_str() {
                "OK" => {
                    let cursor = answer.text(1)?;
                    Ok(OpenReply::Opened {
                        cursor: (!cursor.is_empty()).then(|| ResourceVersion::new(&cursor)),
                    })
                }
                "STALE" => Ok(OpenReply::Stale { epoch: answer.number(1)? }),
                _ => Err(answer.unexpected()),
            }
        })
    }

    fn append(&self, frame: Frame, limits: JournalLimits) -> Reply<'_, AppendReply> {
        Box::pin(async move {
            let mut call = self.start(&scripts::APPEND);
            append_arguments(&mut call, &self.keys, &frame, limits);
            let reply = read_append(&self.run(call).await?)?;
            if matches!(reply, AppendReply::Appended { .. }) && !frame.entries.is_empty() {
                self.confirm().await;
            }
            Ok(reply)
        })
    }

    fn reserve(&self, attempt: Attempt) -> Reply<'_, ()> {
        Box::pin(async move {
            let mut call = self.start(&scripts::RESERVE);
            call.key(self.keys.attempts())
                .key(self.keys.attempt(attempt.id))
                .arg(attempt.id.to_string())
                .arg(attempt.id.n)
                .arg(attempt.entries.to_string())
                .arg(attempt.trigger.as_str());
            self.run(call).await.map(|_| ())
        })
    }

    fn intend(&self, attempt: AttemptId, intend: Intend) -> Reply<'_, bool> {
        Box::pin(async move {
            let mut call = self.start(&scripts::INTEND);
            call.key(self.keys.attempt(attempt))
                .arg(intend.base.as_ref().map_or("", |id| id.as_str()))
                .arg(intend.new.as_str());
            let open = self.run(call).await?.status == "OK";
            if open {
                // The last moment before the push: with it a lost settlement and a lost append need two faults.
                self.confirm().await;
            }
            Ok(open)
        })
    }

    fn settle(&self, settle: Settle) -> Reply<'_, ()> {
        Box::pin(async move {
            let mut call = self.start(&scripts::SETTLE);
            call.key(self.keys.attempts())
                .key(self.keys.attempt(settle.attempt))
                .key(self.keys.log())
                .key(self.keys.refused())
                .key(self.keys.notes())
                .arg(settle.attempt.to_string())
                .arg(settle.outcome.as_str())
                .arg(settle.floor.to_string())
                .arg(keep_from(settle.floor))
                .arg(settle.done.to_string())
                .arg(settle.tip.as_ref().map_or("", |id| id.as_str()))
                .arg(settle.freed_bytes)
                .arg(SETTLED_ATTEMPT_LIFE_S)
                .arg(load::encode_subtrees(&settle.subtrees));
            for (path, reason) in &settle.refused {
                call.arg(path).arg(reason.as_deref().unwrap_or(""));
            }
            self.run(call).await.map(|_| ())
        })
    }

    fn raise(&self, scopes: Vec<TargetScope>, anew: bool) -> Reply<'_, Vec<u64>> {
        Box::pin(async move {
            let mut call = self.start(&scripts::RAISE);
            call.key(self.keys.settled()).arg(if anew { "1" } else { "0" });
            for scope in &scopes {
                call.arg(scope.as_key());
            }
            let answer = self.run(call).await?;
            (0..scopes.len()).map(|index| answer.number(index + 1)).collect()
        })
    }

    fn clear(&self, clear: Clear) -> Reply<'_, ClearReply> {
        Box::pin(async move {
            self.stage_inventory(&clear).await?;
            let mut call = self.start(&scripts::CLEAR);
            let opening = clear.opening.as_ref();
            call.key(self.keys.settled())
                .key(self.keys.cursors())
                .key(self.keys.inventory(&clear.scope))
                .key(self.keys.staged_inventory(&clear.scope))
                .arg(clear.scope.as_key())
                .arg(clear.generation)
                .arg(&clear.spec_hash)
                .arg(opening.map_or_else(String::new, |opening| opening.watch.to_string()))
                .arg(opening.map_or(0, |opening| opening.watch_epoch))
                .arg(opening.map_or(0, |opening| opening.stream))
                .arg(clear.list_rv.as_str())
                .arg(clear.list_rv.number().map_or_else(String::new, |number| number.to_string()));
            let answer = self.run(call).await?;
            match answer.status.as_str() {
                "OK" => Ok(ClearReply::Cleared),
                "RAISED" => Ok(ClearReply::Raised(answer.number(1)?)),
                "STALE" => Ok(ClearReply::Stale),
                _ => Err(answer.unexpected()),
            }
        })
    }

    fn inventory<'a>(&'a self, scope: &'a TargetScope) -> Reply<'a, BTreeMap<ObjectKey, Seen>> {
        Box::pin(self.plain(load::inventory(self.link.connection.clone(), self.keys.inventory(scope))))
    }

    fn forget(&self, scope: TargetScope) -> Reply<'_, ()> {
        Box::pin(async move {
            let mut call = self.start(&scripts::FORGET);
            call.key(self.keys.settled()).key(self.keys.inventory(&scope)).arg(scope.as_key());
            self.run(call).await.map(|_| ())
        })
    }

    fn note(&self, note: Note) -> Reply<'_, ()> {
        Box::pin(async move {
            let (field, value, delay) = load::encode_note(&note);
            let mut call = self.start(&scripts::NOTE);
            call.key(self.keys.notes()).arg(field).arg(value).arg(delay);
            self.run(call).await.map(|_| ())
        })
    }

    fn drop_cursor(&self, watch: WatchKey, remove: bool) -> Reply<'_, ()> {
        Box::pin(async move {
            let mut call = self.start(&scripts::DROP_CURSOR);
            call.key(self.keys.cursors()).arg(watch.to_string()).arg(if remove { "1" } else { "0" });
            self.run(call).await.map(|_| ())
        })
    }
}
