//! May our user do all that we shall ask of it? Asked once, at the start, so that a missing right is named before work is
//! accepted and not when the first attempt is settled.

use std::collections::BTreeMap;

use deadpool_redis::Connection;
use redis::RedisError;
use upriver_store::StoreError;

use crate::errors::{is_refused, unavailable};
use crate::keys;
use crate::options::unusable;
use crate::scripts::RIGHTS;

/// Fails with [`StoreError::Unusable`] and the names of all rights that are missing.
pub(crate) async fn check(
    connection: &mut Connection,
    prefix: &str,
    wait_replicas: u32,
) -> Result<(), StoreError> {
    let mut missing = Missing::default();
    missing.note("unwatch", redis::cmd("UNWATCH").query_async::<()>(connection).await)?;
    if wait_replicas > 0 {
        missing.note("wait", redis::cmd("WAIT").arg(0).arg(1).query_async::<u64>(connection).await)?;
    }
    // Not left to the first NOSCRIPT, which comes after a restart of the server and not now.
    let loaded = RIGHTS.prepare_invoke().load_async(connection).await;
    if missing.note("script|load", loaded)?.is_some() {
        let mut call = RIGHTS.prepare_invoke();
        call.key(keys::scratch(prefix).to_vec());
        let refused = call.invoke_async::<Vec<(String, String)>>(connection).await;
        for (command, words) in missing.note("evalsha", refused)?.unwrap_or_default() {
            missing.note_words(&command, words)?;
        }
    }
    missing.judge(prefix)
}

/// Refusals by the command that was tried.
#[derive(Default)]
struct Missing(BTreeMap<String, String>);

impl Missing {
    /// What was answered, or `None` after a refusal.
    fn note<T>(&mut self, command: &str, answer: Result<T, RedisError>) -> Result<Option<T>, StoreError> {
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if is_refused(&error) => {
                self.0.insert(command.to_owned(), error.to_string());
                Ok(None)
            }
            Err(error) => Err(unavailable(&error)),
        }
    }

    /// A refusal of a command in the script.
    fn note_words(&mut self, command: &str, words: String) -> Result<(), StoreError> {
        // The words of 7.0 and before, and those since.
        let refused = ["script can't", "NOPERM", "ACL failure"].iter().any(|part| words.contains(part));
        if !refused {
            return Err(StoreError::Unavailable { reason: format!("{command}: {words}") });
        }
        self.0.insert(command.to_lowercase(), words);
        Ok(())
    }

    fn judge(self, prefix: &str) -> Result<(), StoreError> {
        let Some(words) = self.0.values().next() else { return Ok(()) };
        let commands: Vec<String> = self.0.keys().map(|command| format!("+{command}")).collect();
        Err(unusable(&format!(
            "the Redis user lacks rights: {} on ~{prefix}:* ({words}); docs/redis.md has the whole ACL line",
            commands.join(" ")
        )))
    }
}
