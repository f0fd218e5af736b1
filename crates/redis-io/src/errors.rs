//! What an error of the client library means for the link, and how it is told.

use redis::RedisError;
use upriver_store::StoreError;

/// Answers of a server that is not, or not now, the one to write to.
const WRONG_SERVER: [&str; 5] = ["READONLY", "MASTERDOWN", "LOADING", "NOREPLICAS", "CLUSTERDOWN"];

/// True if the link has to be dropped: the connection broke, or this server may not be the master any more.
pub(crate) fn breaks_link(error: &RedisError) -> bool {
    error.is_io_error()
        || error.is_timeout()
        || error.is_connection_dropped()
        || error.is_unrecoverable_error()
        || error.code().is_some_and(|code| WRONG_SERVER.contains(&code))
}

/// True for an answer that this user may not do that.
pub(crate) fn is_refused(error: &RedisError) -> bool {
    error.code() == Some("NOPERM")
}

pub(crate) fn unavailable(error: &RedisError) -> StoreError {
    let reason = if is_refused(error) {
        let words = error.to_string();
        // "… no permissions to run the 'ping' command"
        let command = words.split_once("run the '").and_then(|(_, rest)| rest.split_once('\''));
        let right = command.map_or_else(|| "to its keys".to_owned(), |(command, _)| format!("+{command}"));
        format!("the Redis user lacks a right: {right} ({words}); docs/redis.md has the whole ACL line")
    } else {
        error.to_string()
    };
    StoreError::Unavailable { reason }
}

/// As [`unavailable`], for a connection that should have been made.
pub(crate) fn unreachable(error: &RedisError, secure: bool) -> StoreError {
    match unavailable(error) {
        // A server without TLS takes the greeting for the beginning of a command, and waits for its end.
        StoreError::Unavailable { reason } if secure && error.is_timeout() => StoreError::Unavailable {
            reason: format!("{reason}; if this Redis speaks no TLS, use redis:// or --redis-insecure"),
        },
        other => other,
    }
}

pub(crate) fn protocol(what: &str) -> StoreError {
    StoreError::Unavailable { reason: format!("unexpected answer: {what}") }
}
