//! One API watch, line by line, from a version of our choice.
//!
//! `kube::runtime::watcher` always begins with a list and hides bookmarks; a take-over has to resume after a stored
//! version instead. In: type, scope, start. Out: items with the object as raw JSON text; only the envelope is decoded.
//! Every end has a name: expired, forbidden, closed, silent. Absent: reconnecting, cursors, meaning.

use std::time::Duration;

use futures::io::{AsyncBufRead, AsyncBufReadExt};
use http::Request;
use kube::Client;
use serde::Deserialize;
use serde_json::value::RawValue;
use upriver_model::{Gvr, ResourceVersion, Scope};

/// What to watch.
#[derive(Clone, Debug)]
pub struct WatchSpec {
    /// The type.
    pub gvr: Gvr,
    /// Kind; list items of built-in types do not carry it.
    pub kind: String,
    /// Whole cluster or one namespace.
    pub scope: Scope,
    /// Ends a watch that says nothing at all for so long. Bookmarks come about once a minute.
    pub idle_limit: Duration,
    /// Asks the server to close the watch after so long.
    pub server_timeout: Duration,
}

/// How to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begin {
    /// After this version.
    After(ResourceVersion),
    /// With every object, closed by a bookmark (`sendInitialEvents`).
    Initial,
}

/// One line of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// ADDED, with the object as JSON.
    Added(Box<str>),
    /// MODIFIED.
    Modified(Box<str>),
    /// DELETED, with the last state.
    Deleted(Box<str>),
    /// Nothing happened up to this version. `initial_end` closes the initial events.
    Bookmark {
        /// The version.
        rv: ResourceVersion,
        /// True for the bookmark that ends the initial events.
        initial_end: bool,
    },
}

/// Why a watch or a list ended.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// 410: the version is too old.
    #[error("the version is too old: {message}")]
    Expired {
        /// The server's words.
        message: String,
    },
    /// 401 or 403.
    #[error("not allowed: {message}")]
    Forbidden {
        /// The server's words.
        message: String,
    },
    /// 404: the type is not served.
    #[error("not served: {message}")]
    NotServed {
        /// The server's words.
        message: String,
    },
    /// 400 or 422 on the streaming list: this server or type does not know it.
    #[error("the streaming list is not supported: {message}")]
    NoStreamingList {
        /// The server's words.
        message: String,
    },
    /// The server closed it, as it does after its timeout.
    #[error("closed by the server")]
    Closed,
    /// Nothing came for the idle limit.
    #[error("silent for {seconds} s")]
    Silent {
        /// The limit.
        seconds: u64,
    },
    /// Anything else: connection, 5xx, nonsense.
    #[error("{message}")]
    Failed {
        /// What happened.
        message: String,
    },
}

/// An open watch.
pub struct Watch {
    lines: Box<dyn AsyncBufRead + Send + Unpin>,
    buffer: Vec<u8>,
    idle_limit: Duration,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct BookmarkObject {
    metadata: BookmarkMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BookmarkMeta {
    resource_version: String,
    #[serde(default)]
    annotations: std::collections::BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct ErrorObject {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    message: String,
    #[serde(default)]
    reason: String,
}

/// Longest wait for the head of an answer: it comes at once, however long the list behind it is.
const OPEN_DEADLINE: Duration = Duration::from_secs(30);

impl Watch {
    /// Opens a watch.
    ///
    /// # Errors
    /// See [`WatchError`].
    pub async fn open(client: &Client, spec: &WatchSpec, begin: &Begin) -> Result<Self, WatchError> {
        let mut query =
            format!("watch=1&allowWatchBookmarks=true&timeoutSeconds={}", spec.server_timeout.as_secs());
        match begin {
            Begin::After(rv) => query.push_str(&format!("&resourceVersion={}", rv.as_str())),
            Begin::Initial => query.push_str("&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"),
        }
        let request = get(&spec.gvr, &spec.scope, &query)?;
        let limit = spec.idle_limit.min(OPEN_DEADLINE);
        let opened = tokio::time::timeout(limit, client.request_stream(request)).await;
        let stream = match opened {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(classify(error, *begin == Begin::Initial)),
            Err(_) => return Err(WatchError::Silent { seconds: limit.as_secs() }),
        };
        Ok(Self { lines: Box::new(Box::pin(stream)), buffer: Vec::new(), idle_limit: spec.idle_limit })
    }

    /// The next item. Safe to drop and call again: a line read in part is kept.
    ///
    /// # Errors
    /// See [`WatchError`]; after an error the watch is over.
    pub async fn next(&mut self) -> Result<Item, WatchError> {
        let read = tokio::time::timeout(self.idle_limit, read_line(&mut self.lines, &mut self.buffer)).await;
        match read {
            Err(_) => Err(WatchError::Silent { seconds: self.idle_limit.as_secs() }),
            Ok(Err(error)) => Err(WatchError::Failed { message: format!("reading the watch: {error}") }),
            Ok(Ok(false)) => Err(WatchError::Closed),
            Ok(Ok(true)) => {
                let line = std::mem::take(&mut self.buffer);
                parse(&line)
            }
        }
    }
}

/// Reads up to a newline into `buffer`, which survives a cancelled call; false at the end of the stream.
async fn read_line(
    lines: &mut (dyn AsyncBufRead + Send + Unpin),
    buffer: &mut Vec<u8>,
) -> std::io::Result<bool> {
    loop {
        let chunk = lines.fill_buf().await?;
        if chunk.is_empty() {
            return Ok(false);
        }
        let newline = chunk.iter().position(|byte| *byte == b'\n');
        let take = newline.map_or(chunk.len(), |at| at + 1);
        buffer.extend_from_slice(chunk.get(..take).unwrap_or_default());
        lines.consume_unpin(take);
        if newline.is_some() {
            return Ok(true);
        }
    }
}

fn parse(line: &[u8]) -> Result<Item, WatchError> {
    let failed =
        |error: serde_json::Error| WatchError::Failed { message: format!("an unreadable line: {error}") };
    let envelope: Envelope<'_> = serde_json::from_slice(line).map_err(failed)?;
    let text = envelope.object.get();
    match envelope.r#type {
        "ADDED" => Ok(Item::Added(text.into())),
        "MODIFIED" => Ok(Item::Modified(text.into())),
        "DELETED" => Ok(Item::Deleted(text.into())),
        "BOOKMARK" => {
            let object: BookmarkObject = serde_json::from_str(text).map_err(failed)?;
            let end = object.metadata.annotations.get("k8s.io/initial-events-end");
            Ok(Item::Bookmark {
                rv: ResourceVersion::new(&object.metadata.resource_version),
                initial_end: end.is_some_and(|value| value == "true"),
            })
        }
        "ERROR" => {
            let object: ErrorObject = serde_json::from_str(text).map_err(failed)?;
            Err(by_code(object.code, &object.reason, object.message, false))
        }
        other => Err(WatchError::Failed { message: format!("an unknown watch event {other}") }),
    }
}

fn by_code(code: u16, reason: &str, message: String, streaming_list: bool) -> WatchError {
    match code {
        410 => WatchError::Expired { message },
        _ if matches!(reason, "Expired" | "Gone") => WatchError::Expired { message },
        401 | 403 => WatchError::Forbidden { message },
        404 => WatchError::NotServed { message },
        400 | 422 if streaming_list => WatchError::NoStreamingList { message },
        _ => WatchError::Failed { message },
    }
}

fn classify(error: kube::Error, streaming_list: bool) -> WatchError {
    match error {
        kube::Error::Api(status) => {
            by_code(status.code, &status.reason, status.message.clone(), streaming_list)
        }
        other => WatchError::Failed { message: other.to_string() },
    }
}

fn get(gvr: &Gvr, scope: &Scope, query: &str) -> Result<Request<Vec<u8>>, WatchError> {
    let root = if gvr.group.is_empty() {
        format!("/api/{}", gvr.version)
    } else {
        format!("/apis/{}/{}", gvr.group, gvr.version)
    };
    let path = match scope {
        Scope::Cluster => format!("{root}/{}", gvr.resource),
        Scope::Namespace(namespace) => format!("{root}/namespaces/{namespace}/{}", gvr.resource),
    };
    Request::get(format!("{path}?{query}")).body(Vec::new()).map_err(|error| WatchError::Failed {
        message: format!("a request cannot be made for {gvr}: {error}"),
    })
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Version of the whole list.
    pub rv: ResourceVersion,
    /// Token for the next page.
    pub next: Option<String>,
    /// The objects as JSON; `apiVersion` and `kind` may be missing in items of built-in types.
    pub items: Vec<Box<str>>,
}

#[derive(Deserialize)]
struct ListObject<'a> {
    metadata: ListMeta,
    #[serde(borrow, default)]
    items: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    resource_version: String,
    #[serde(default)]
    r#continue: Option<String>,
}

/// Longest wait for one page.
const PAGE_DEADLINE: Duration = Duration::from_secs(60);

/// One page of a consistent list (the resourceVersion is unset).
///
/// # Errors
/// [`WatchError::Expired`] if the continue token is too old: start over, a partial list is never a snapshot.
pub async fn list_page(
    client: &Client,
    spec: &WatchSpec,
    limit: u32,
    next: Option<&str>,
) -> Result<Page, WatchError> {
    let mut query = format!("limit={limit}");
    if let Some(token) = next {
        query.push_str("&continue=");
        query.push_str(token);
    }
    let request = get(&spec.gvr, &spec.scope, &query)?;
    let text = match tokio::time::timeout(PAGE_DEADLINE, client.request_text(request)).await {
        Ok(Ok(text)) => text,
        Ok(Err(error)) => return Err(classify(error, false)),
        Err(_) => return Err(WatchError::Silent { seconds: PAGE_DEADLINE.as_secs() }),
    };
    let list: ListObject<'_> = serde_json::from_str(&text)
        .map_err(|error| WatchError::Failed { message: format!("an unreadable list: {error}") })?;
    Ok(Page {
        rv: ResourceVersion::new(&list.metadata.resource_version),
        next: list.metadata.r#continue.filter(|token| !token.is_empty()),
        items: list.items.iter().map(|item| item.get().into()).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(line: &str) -> Result<Item, WatchError> {
        parse(line.as_bytes())
    }

    #[test]
    fn events_keep_the_object_as_it_was_sent() {
        let object = r#"{"kind":"ConfigMap", "metadata":{"name":"a"}}"#;
        let line = format!("{{\"type\":\"MODIFIED\",\"object\":{object}}}\n");
        assert_eq!(item(&line).expect("readable"), Item::Modified(object.into()));
    }

    #[test]
    fn only_the_annotated_bookmark_ends_the_initial_events() {
        let plain = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}"#;
        let end = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}}}}"#;
        let bookmark = |initial_end| Item::Bookmark { rv: ResourceVersion::new("7"), initial_end };
        assert_eq!(item(plain).expect("readable"), bookmark(false));
        assert_eq!(item(end).expect("readable"), bookmark(true));
    }

    #[test]
    fn every_error_event_has_a_name() {
        let error = |code: u16, reason: &str| {
            item(&format!(
                r#"{{"type":"ERROR","object":{{"code":{code},"reason":"{reason}","message":"m"}}}}"#
            ))
            .expect_err("an error")
        };
        assert!(matches!(error(410, "Expired"), WatchError::Expired { .. }));
        assert!(matches!(error(0, "Gone"), WatchError::Expired { .. }));
        assert!(matches!(error(403, ""), WatchError::Forbidden { .. }));
        assert!(matches!(error(500, ""), WatchError::Failed { .. }));
        assert!(matches!(by_code(422, "", String::new(), true), WatchError::NoStreamingList { .. }));
        assert!(matches!(by_code(422, "", String::new(), false), WatchError::Failed { .. }));
    }
}
