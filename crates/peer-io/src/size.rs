//! How large is a message, and which object makes it so?

use prost::Message;

use crate::error::PeerError;
use crate::proto::{FromWatcher, ObjectKey, ToWatcher, from_watcher, to_watcher};

/// Encoded bytes of a message of the watcher, so that a sender can cut its batches.
#[must_use]
pub fn message_bytes(kind: &from_watcher::Kind) -> usize {
    kind.encoded_len()
}

/// May this message be sent? Ask before, if an object in it may be too large: a conversation ends at such a message.
///
/// # Errors
/// [`PeerError::TooLarge`] names the largest object.
pub fn fits(kind: &from_watcher::Kind, limit: usize) -> Result<(), PeerError> {
    refuse_above(limit, kind.encoded_len(), || what_watcher_says(kind))
}

pub(crate) fn check_from_watcher(message: &FromWatcher, limit: usize) -> Result<u64, PeerError> {
    let bytes = message.encoded_len();
    refuse_above(limit, bytes, || message.kind.as_ref().map(what_watcher_says).unwrap_or_default())?;
    Ok(count(bytes))
}

pub(crate) fn check_to_watcher(message: &ToWatcher, limit: usize) -> Result<u64, PeerError> {
    let bytes = message.encoded_len();
    refuse_above(limit, bytes, || message.kind.as_ref().map(what_owner_says).unwrap_or_default().to_owned())?;
    Ok(count(bytes))
}

pub(crate) fn count(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

fn refuse_above(limit: usize, bytes: usize, what: impl FnOnce() -> String) -> Result<(), PeerError> {
    if bytes <= limit {
        return Ok(());
    }
    Err(PeerError::TooLarge { what: what(), bytes: count(bytes), limit: count(limit) })
}

fn what_watcher_says(kind: &from_watcher::Kind) -> String {
    match kind {
        from_watcher::Kind::Opening(_) => "an opening".to_owned(),
        from_watcher::Kind::Frame(frame) => {
            let largest = frame.events.iter().max_by_key(|event| event.encoded_len());
            let largest = largest.map(|event| (event.kind.as_str(), event.key.as_ref(), event.encoded_len()));
            within(&format!("frame {}", frame.sequence), largest)
        }
        from_watcher::Kind::SnapshotBegin(_) => "the begin of a snapshot".to_owned(),
        from_watcher::Kind::SnapshotMembers(chunk) => {
            let largest = chunk.members.iter().max_by_key(|member| member.encoded_len());
            let largest =
                largest.map(|member| (member.kind.as_str(), member.key.as_ref(), member.encoded_len()));
            within("a part of a snapshot", largest)
        }
        from_watcher::Kind::SnapshotEnd(_) => "the end of a snapshot".to_owned(),
        from_watcher::Kind::Expired(_) => "an expired cursor".to_owned(),
        from_watcher::Kind::Health(_) => "the health of a watch".to_owned(),
        from_watcher::Kind::LeftOut(_) => "a list of Secrets that were left out".to_owned(),
    }
}

fn within(message: &str, largest: Option<(&str, Option<&ObjectKey>, usize)>) -> String {
    let Some((kind, key, bytes)) = largest else { return message.to_owned() };
    let place = match key {
        Some(key) if key.namespace.is_empty() => key.name.clone(),
        Some(key) => format!("{}/{}", key.namespace, key.name),
        None => String::new(),
    };
    format!("{message} with {kind} {place} ({bytes} bytes)")
}

fn what_owner_says(kind: &to_watcher::Kind) -> &'static str {
    match kind {
        to_watcher::Kind::Subscribe(_) => "a list of subscriptions",
        to_watcher::Kind::Begin(_) => "a begin",
        to_watcher::Kind::Continue(_) => "a continue",
        to_watcher::Kind::Backfill(_) => "a list of scopes",
        to_watcher::Kind::Ack(_) => "an acknowledgement",
        to_watcher::Kind::Hold(_) => "a hold",
        to_watcher::Kind::Stale(_) => "a newer epoch",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{Event, Frame};

    #[test]
    fn a_message_that_does_not_fit_names_its_largest_object() {
        let event = |name: &str, bytes: usize| Event {
            key: Some(ObjectKey { namespace: "team".to_owned(), name: name.to_owned() }),
            kind: "ConfigMap".to_owned(),
            payload: Some("x".repeat(bytes)),
            ..Event::default()
        };
        let events = vec![event("small", 10), event("fat", 5000), event("other", 20)];
        let kind = from_watcher::Kind::Frame(Frame { stream: 1, sequence: 3, cursor: None, events });
        assert_eq!(fits(&kind, message_bytes(&kind)), Ok(()));
        let error = fits(&kind, 4096).expect_err("too large");
        assert!(
            error.to_string().starts_with("frame 3 with ConfigMap team/fat (5027 bytes) has 5127"),
            "{error}"
        );
    }
}
