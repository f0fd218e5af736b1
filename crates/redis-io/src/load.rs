//! Plain reads of a journal, and the stored forms of its records.

use std::collections::{BTreeMap, HashMap};

use redis::streams::StreamRangeReply;
use redis::{AsyncCommands, RedisResult, aio::MultiplexedConnection};
use upriver_model::{
    Attempt, AttemptId, CommitId, Entry, EntryId, Failure, FailureClass, IdSet, Intend, ObjectKey,
    ResourceVersion, Seen, Settled, StoredEntry, TargetUid, Trigger,
};
use upriver_store::{Deferred, Loaded, Note};

use crate::keys::Keys;

/// Entries per XRANGE page: a few megabytes at most.
const PAGE: usize = 1000;

pub(crate) async fn load(mut connection: MultiplexedConnection, keys: &Keys) -> RedisResult<Loaded> {
    let mut loaded = Loaded::default();
    entries(&mut connection, keys, &mut loaded).await?;
    let cursors: HashMap<String, String> = connection.hgetall(keys.cursors()).await?;
    for (watch, record) in cursors {
        let version = record.lines().next().unwrap_or_default();
        if !version.is_empty() {
            loaded.cursors.insert(watch, ResourceVersion::new(version));
        }
    }
    let settled: HashMap<String, String> = connection.hgetall(keys.settled()).await?;
    for (field, value) in settled {
        if let Some(scope) = field.strip_prefix("g|") {
            loaded.generations.insert(scope.to_owned(), value.parse().unwrap_or(0));
        } else if let Some(scope) = field.strip_prefix("s|")
            && let Some(record) = decode_settled(&value)
        {
            loaded.settled.insert(scope.to_owned(), record);
        }
    }
    let open: Vec<String> = connection.zrange(keys.attempts(), 0, -1).await?;
    for id in open.iter().filter_map(|text| AttemptId::parse(text)) {
        let record: HashMap<String, String> = connection.hgetall(keys.attempt(id)).await?;
        loaded.attempts.push(decode_attempt(id, &record));
    }
    loaded.refused =
        connection.hgetall::<_, HashMap<String, String>>(keys.refused()).await?.into_iter().collect();
    notes(&mut connection, keys, &mut loaded).await?;
    Ok(loaded)
}

/// Field of the failure that is being waited out.
const DEFERRED: &str = "deferred";

async fn notes(connection: &mut MultiplexedConnection, keys: &Keys, loaded: &mut Loaded) -> RedisResult<()> {
    let notes: HashMap<String, String> = connection.hgetall(keys.notes()).await?;
    for (field, value) in &notes {
        if let Some(target) = field.strip_prefix("h|") {
            loaded.handled.insert(TargetUid::new(target), value.clone());
        }
    }
    if let Some(value) = notes.get(DEFERRED) {
        // The moment is one of the server's clock, and so is the question what time it is.
        let (seconds, micros): (i64, i64) = redis::cmd("TIME").query_async(connection).await?;
        loaded.deferred = decode_deferred(value, seconds * 1000 + micros / 1000);
    }
    Ok(())
}

/// Field, value and delay of a note; an empty value deletes it.
pub(crate) fn encode_note(note: &Note) -> (String, String, String) {
    match note {
        Note::Handled { target, value } => {
            (format!("h|{target}"), value.clone().unwrap_or_default(), String::new())
        }
        Note::Deferred(deferred) => {
            let Deferred { failure, failures, delay_ms } = deferred;
            let value = format!("{}\n{failures}\n{}", failure.class.as_str(), failure.message);
            (DEFERRED.to_owned(), value, delay_ms.to_string())
        }
    }
}

fn decode_deferred(text: &str, now_ms: i64) -> Option<Deferred> {
    let mut parts = text.splitn(4, '\n');
    let ends: i64 = parts.next()?.parse().ok()?;
    let class = FailureClass::parse(parts.next()?);
    let failures = parts.next()?.parse().ok()?;
    let failure = Failure::new(class, parts.next()?);
    Some(Deferred { failure, failures, delay_ms: u64::try_from(ends.saturating_sub(now_ms)).unwrap_or(0) })
}

async fn entries(
    connection: &mut MultiplexedConnection,
    keys: &Keys,
    loaded: &mut Loaded,
) -> RedisResult<()> {
    let mut from = "-".to_owned();
    loop {
        let page: StreamRangeReply = connection.xrange_count(keys.log(), &from, "+", PAGE).await?;
        let Some(last) = page.ids.last() else { return Ok(()) };
        from = format!("({}", last.id);
        for item in &page.ids {
            let Some(id) = EntryId::parse(&item.id) else { continue };
            let text: Option<String> = item.get("e");
            match text.as_deref().and_then(decode_entry) {
                Some(entry) => {
                    let stamped_ms = item.get("t").unwrap_or(0);
                    loaded.entries.push(StoredEntry { id, stamped_ms, entry });
                }
                None => loaded.undecodable.push(id),
            }
        }
    }
}

pub(crate) async fn inventory(
    mut connection: MultiplexedConnection,
    key: String,
) -> RedisResult<BTreeMap<ObjectKey, Seen>> {
    let fields: HashMap<String, String> = connection.hgetall(key).await?;
    Ok(fields
        .iter()
        .filter_map(|(field, value)| {
            let (namespace, name) = field.split_once('/')?;
            Some((ObjectKey::new(namespace, name), decode_seen(value)?))
        })
        .collect())
}

pub(crate) fn encode_entry(entry: &Entry) -> String {
    serde_json::to_string(entry).expect("an entry holds only text and numbers")
}

/// `None` also for a schema that this release does not know.
fn decode_entry(text: &str) -> Option<Entry> {
    serde_json::from_str(text).ok().filter(|entry: &Entry| entry.schema == Entry::SCHEMA)
}

/// Three lines: uid, resourceVersion, and for a tombstone its time in milliseconds.
pub(crate) fn encode_seen(seen: &Seen) -> String {
    format!("{}\n{}\n{}", seen.uid, seen.rv, if seen.deleted { "0" } else { "" })
}

fn decode_seen(text: &str) -> Option<Seen> {
    let mut lines = text.split('\n');
    Some(Seen {
        uid: lines.next()?.into(),
        rv: ResourceVersion::new(lines.next()?),
        deleted: lines.next().is_some_and(|time| !time.is_empty()),
    })
}

/// `target=tree` pairs joined by commas; `-` for a folder that does not exist.
pub(crate) fn encode_subtrees(subtrees: &BTreeMap<TargetUid, Option<CommitId>>) -> String {
    let pairs: Vec<String> = subtrees
        .iter()
        .map(|(target, tree)| format!("{target}={}", tree.as_ref().map_or("-", CommitId::as_str)))
        .collect();
    pairs.join(",")
}

pub(crate) fn decode_subtrees(text: &str) -> BTreeMap<TargetUid, Option<CommitId>> {
    text.split(',')
        .filter_map(|pair| pair.split_once('='))
        .map(|(target, tree)| (TargetUid::new(target), (tree != "-").then(|| CommitId::new(tree))))
        .collect()
}

fn decode_settled(text: &str) -> Option<Settled> {
    let (generation, spec_hash) = text.split_once('\n')?;
    Some(Settled { generation: generation.parse().ok()?, spec_hash: spec_hash.into() })
}

fn decode_attempt(id: AttemptId, record: &HashMap<String, String>) -> Attempt {
    let entries = record.get("entries").and_then(|text| IdSet::parse(text)).unwrap_or_default();
    let intend = record.get("new").map(|new| Intend {
        base: record.get("base").filter(|base| !base.is_empty()).map(|base| CommitId::new(base.as_str())),
        new: CommitId::new(new.as_str()),
    });
    // Written by a release that did not know triggers.
    let trigger = record.get("trigger").and_then(|text| Trigger::parse(text)).unwrap_or_default();
    Attempt { id, trigger, entries, intend }
}
