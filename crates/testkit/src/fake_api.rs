//! What does a watcher do when the API server says this?
//!
//! In: a script per resource path: list answers and watch lines, as recorded. Out: a plain HTTP server on loopback that
//! plays them, and the requests that it got. Only for what a real kube-apiserver cannot be made to say at a chosen
//! moment; everything else is tested against a real one ([`crate::ControlPlane`]).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::response::Response;
use http::{StatusCode, Uri};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// How a scripted watch goes on after its lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The server closes it.
    Close,
    /// It stays open and silent.
    Stay,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Path, without the query.
    pub path: String,
    /// Parameters of the query.
    pub query: BTreeMap<String, String>,
    /// When.
    pub at: Instant,
}

impl Seen {
    /// True for a watch, false for a list.
    #[must_use]
    pub fn is_watch(&self) -> bool {
        self.query.get("watch").is_some_and(|value| value == "1" || value == "true")
    }

    /// A parameter, or `""`.
    #[must_use]
    pub fn parameter(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }
}

#[derive(Default)]
struct Script {
    lists: HashMap<String, String>,
    watches: HashMap<String, VecDeque<(Vec<String>, Ending)>>,
    seen: Vec<Seen>,
}

type Shared = Arc<Mutex<Script>>;

fn locked(script: &Shared) -> MutexGuard<'_, Script> {
    script.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A running fake; dropping it ends it.
pub struct FakeApi {
    address: SocketAddr,
    script: Shared,
    serving: JoinHandle<()>,
}

impl FakeApi {
    /// Starts it on a free port, with an empty script: every list is answered with 404, every watch stays silent.
    ///
    /// # Errors
    /// If no port can be had.
    pub async fn start() -> io::Result<Self> {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let script = Shared::default();
        let router = Router::new().fallback(answer).with_state(script.clone());
        let serving = tokio::spawn(async move {
            // It ends with its owner only.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { address, script, serving })
    }

    /// A client for it. It retries nothing by itself.
    ///
    /// # Panics
    /// If the library refuses the address.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        crate::init_tls();
        let url = format!("http://{}", self.address).parse().expect("our own URL is well formed");
        let mut config = kube::Config::new(url);
        config.default_retry = false;
        kube::Client::try_from(config).expect("an address without TLS needs nothing else")
    }

    /// What a list of this path answers from now on, for example `/api/v1/configmaps`; `body` is JSON.
    pub fn set_list(&self, path: &str, body: impl Into<String>) {
        locked(&self.script).lists.insert(path.to_owned(), body.into());
    }

    /// One more watch of this path: its lines (JSON, one event each), and how it goes on. Each is played once, in order.
    /// When none is left, a watch stays open and silent. A watch that asks for initial events gets none of them: it is
    /// refused as unsupported, so that the client lists.
    pub fn add_watch(&self, path: &str, lines: impl IntoIterator<Item = String>, ending: Ending) {
        let mut script = locked(&self.script);
        let watch = (lines.into_iter().collect(), ending);
        script.watches.entry(path.to_owned()).or_default().push_back(watch);
    }

    /// Every request so far, in order.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        locked(&self.script).seen.clone()
    }
}

impl Drop for FakeApi {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn answer(
    State(script): State<Shared>,
    uri: Uri,
    Query(query): Query<BTreeMap<String, String>>,
) -> Response {
    let seen = Seen { path: uri.path().to_owned(), query, at: Instant::now() };
    let mut script = locked(&script);
    script.seen.push(seen.clone());
    if seen.is_watch() {
        if seen.query.contains_key("sendInitialEvents") {
            return status(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", "sendInitialEvents is forbidden");
        }
        let next = script.watches.get_mut(&seen.path).and_then(VecDeque::pop_front);
        let (lines, ending) = next.unwrap_or((Vec::new(), Ending::Stay));
        return stream(lines, ending);
    }
    match script.lists.get(&seen.path) {
        Some(body) => json_answer(StatusCode::OK, body.clone()),
        None => status(StatusCode::NOT_FOUND, "NotFound", "the server could not find the requested resource"),
    }
}

fn stream(lines: Vec<String>, ending: Ending) -> Response {
    let (sender, receiver) = mpsc::channel::<Result<Bytes, Infallible>>(1);
    tokio::spawn(async move {
        for line in lines {
            if sender.send(Ok(Bytes::from(format!("{}\n", line.trim_end())))).await.is_err() {
                return;
            }
        }
        match ending {
            Ending::Close => {}
            Ending::Stay => sender.closed().await,
        }
    });
    let body = futures::stream::unfold(receiver, async |mut receiver| {
        let chunk = receiver.recv().await?;
        Some((chunk, receiver))
    });
    respond(StatusCode::OK, Body::from_stream(body))
}

fn status(code: StatusCode, reason: &str, message: &str) -> Response {
    let body: Value = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason,
        "message": message, "code": code.as_u16()});
    json_answer(code, body.to_string())
}

fn json_answer(code: StatusCode, body: String) -> Response {
    respond(code, Body::from(body))
}

fn respond(code: StatusCode, body: Body) -> Response {
    let built = Response::builder().status(code).header("content-type", "application/json").body(body);
    built.expect("a status and one constant header make a response")
}
