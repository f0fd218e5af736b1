//! What does a real Git remote answer? In: requests over smart HTTP on loopback. Out: what `git http-backend` says,
//! or a fault that the test asked for. One server owns one thread and one directory of bare repositories; dropping it
//! ends both the thread and any backend that still runs. Absent on purpose: TLS, and any Git logic of our own.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::connect_info::ConnectInfo;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::Response;
use base64::Engine as _;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

mod connection;
mod faults;
mod history;

use connection::{Cut, CuttableListener};
pub use faults::{Fault, Gate, RequestKind, Times};
pub use history::import_history;

/// No test pushes more than this; a larger body is a bug of the client and is refused.
const MAX_BODY: usize = 256 << 20;

/// Who may use the server.
#[derive(Clone, Debug, Default)]
pub enum Access {
    /// Everybody, for reading and writing.
    #[default]
    Open,
    /// Only requests with this basic login.
    Basic {
        /// The user name.
        user: String,
        /// The password.
        password: String,
    },
    /// Only requests with this bearer token.
    Bearer(String),
}

impl Access {
    fn admits(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let wanted = match self {
            Self::Open => return true,
            Self::Basic { user, password } => {
                let login = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
                format!("Basic {login}")
            }
            Self::Bearer(token) => format!("Bearer {token}"),
        };
        given == Some(wanted.as_str())
    }

    fn user(&self) -> &str {
        match self {
            Self::Open => "anonymous",
            Self::Basic { user, .. } => user,
            Self::Bearer(_) => "bearer",
        }
    }
}

#[derive(Default)]
struct Shared {
    root: PathBuf,
    backend: PathBuf,
    access: Mutex<Access>,
    version_zero: AtomicBool,
    faults: Mutex<Vec<(RequestKind, Times, Fault)>>,
    requests: Mutex<HashMap<RequestKind, usize>>,
    sent: Mutex<HashMap<RequestKind, u64>>,
}

impl Shared {
    fn count(&self, kind: RequestKind) {
        *lock(&self.requests).entry(kind).or_default() += 1;
    }

    fn next_fault(&self, kind: RequestKind) -> Option<Fault> {
        let mut faults = lock(&self.faults);
        let at = faults.iter().position(|(on, ..)| *on == kind)?;
        match faults[at].1 {
            Times::Once => Some(faults.remove(at).2),
            Times::Always => Some(faults[at].2.clone()),
        }
    }
}

/// A Git host on 127.0.0.1 that ends with its value.
pub struct GitServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    serving: Mutex<Option<Serving>>,
}

/// The thread that answers.
struct Serving {
    stop: oneshot::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl Serving {
    fn start(socket: std::net::TcpListener, shared: Arc<Shared>) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("git-server".into()).spawn(move || {
            runtime.block_on(async move {
                tokio::select! {
                    _ = serve(socket, shared) => {}
                    _ = stopped => {}
                }
            });
            // Drops every request in flight, and with it the backend process that the request owns.
            runtime.shutdown_timeout(Duration::from_secs(2));
        })?;
        Ok(Self { stop, thread })
    }

    fn end(self) {
        let _ = self.stop.send(());
        let _ = self.thread.join();
    }
}

impl GitServer {
    /// Serves the bare repositories below `root` to everybody.
    ///
    /// # Errors
    /// When `git` is missing or no port can be bound.
    pub fn start(root: impl Into<PathBuf>) -> io::Result<Self> {
        let root = root.into();
        std::fs::create_dir_all(&root)?;
        let exec_path = Command::new("git").arg("--exec-path").output()?;
        let backend =
            PathBuf::from(String::from_utf8_lossy(&exec_path.stdout).trim()).join("git-http-backend");
        let shared = Arc::new(Shared { root, backend, ..Shared::default() });

        let socket = std::net::TcpListener::bind(("127.0.0.1", 0))?;
        let address = socket.local_addr()?;
        let serving = Serving::start(socket, Arc::clone(&shared))?;
        Ok(Self { address, shared, serving: Mutex::new(Some(serving)) })
    }

    /// The host goes away: requests in flight break, connections are refused. The repositories stay.
    pub fn stop(&self) {
        if let Some(serving) = lock(&self.serving).take() {
            serving.end();
        }
    }

    /// It is back on the same port; no effect while it runs.
    ///
    /// # Errors
    /// When somebody took the port meanwhile.
    pub fn start_again(&self) -> io::Result<()> {
        let mut serving = lock(&self.serving);
        if serving.is_none() {
            let socket = std::net::TcpListener::bind(self.address)?;
            *serving = Some(Serving::start(socket, Arc::clone(&self.shared))?);
        }
        Ok(())
    }

    /// `http://127.0.0.1:port`, without a trailing slash.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where a repository would be served.
    #[must_use]
    pub fn url(&self, name: &str) -> String {
        format!("{}/{name}.git", self.base_url())
    }

    /// Where a repository lies on disk.
    #[must_use]
    pub fn repo_path(&self, name: &str) -> PathBuf {
        self.shared.root.join(format!("{name}.git"))
    }

    /// Makes an empty bare repository that accepts pushes, with `main` as its default branch, and returns its URL.
    pub fn create_repo(&self, name: &str) -> String {
        let path = self.repo_path(name);
        let path_text = path.to_string_lossy();
        git(&["init", "--quiet", "--bare", "--initial-branch=main", &path_text], &self.shared.root);
        git(&["config", "http.receivepack", "true"], &path);
        self.url(name)
    }

    /// Installs an executable hook, for example `pre-receive`.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn set_hook(&self, name: &str, hook: &str, script: &str) -> io::Result<()> {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.repo_path(name).join("hooks").join(hook);
        std::fs::create_dir_all(self.repo_path(name).join("hooks"))?;
        std::fs::write(&path, script)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))
    }

    /// Changes who may use the server, at once.
    pub fn set_access(&self, access: Access) {
        *lock(&self.shared.access) = access;
    }

    /// From now on the server ignores a client's wish for protocol version 2, as old hosts do.
    pub fn speak_only_version_zero(&self) {
        self.shared.version_zero.store(true, Ordering::SeqCst);
    }

    /// Adds a fault; the oldest matching one strikes first.
    pub fn inject(&self, on: RequestKind, times: Times, fault: Fault) {
        lock(&self.shared.faults).push((on, times, fault));
    }

    /// Forgets all faults that have not struck yet.
    pub fn clear_faults(&self) {
        lock(&self.shared.faults).clear();
    }

    /// How many requests of this kind have come so far.
    #[must_use]
    pub fn requests(&self, kind: RequestKind) -> usize {
        lock(&self.shared.requests).get(&kind).copied().unwrap_or_default()
    }

    /// Bytes with which requests of this kind have been answered so far, headers of the backend included.
    #[must_use]
    pub fn bytes_sent(&self, kind: RequestKind) -> u64 {
        lock(&self.shared.sent).get(&kind).copied().unwrap_or_default()
    }
}

impl Drop for GitServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Runs the real `git` as an oracle, isolated from the user's configuration, and returns its standard output.
///
/// # Panics
/// When git fails: an oracle that cannot answer is a broken test.
pub fn git(args: &[&str], cwd: &Path) -> String {
    git_with_input(args, cwd, "")
}

/// As [`git`], for what may fail, such as a push that loses a race.
///
/// # Errors
/// What git printed.
pub fn try_git(args: &[&str], cwd: &Path) -> Result<String, String> {
    run_git(args, cwd, "")
}

/// As [`git`], with text on standard input.
///
/// # Panics
/// When git fails.
pub fn git_with_input(args: &[&str], cwd: &Path, input: &str) -> String {
    match run_git(args, cwd, input) {
        Ok(output) => output,
        Err(stderr) => panic!("git {args:?} failed: {stderr}"),
    }
}

fn run_git(args: &[&str], cwd: &Path, input: &str) -> Result<String, String> {
    use std::io::Write as _;
    let mut child = Command::new("git")
        .args(args)
        .current_dir(cwd)
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .envs([
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_AUTHOR_NAME", "Oracle"),
            ("GIT_AUTHOR_EMAIL", "oracle@example.invalid"),
            ("GIT_AUTHOR_DATE", "1700000000 +0000"),
            ("GIT_COMMITTER_NAME", "Oracle"),
            ("GIT_COMMITTER_EMAIL", "oracle@example.invalid"),
            ("GIT_COMMITTER_DATE", "1700000000 +0000"),
            ("LC_ALL", "C"),
        ])
        .env("HOME", cwd)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("git is installed");
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let input = input.to_owned();
    let feeder = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("git runs to its end");
    let _ = feeder.join();
    let stderr = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(stderr.into_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A lock that outlives a panicking test thread: the data are counters and lists, never half written.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

async fn serve(socket: std::net::TcpListener, shared: Arc<Shared>) -> io::Result<()> {
    let listener = CuttableListener(TcpListener::from_std(socket)?);
    let app = Router::new().fallback(answer).with_state(shared);
    axum::serve(listener, app.into_make_service_with_connect_info::<Cut>()).await
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(cut): ConnectInfo<Cut>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let kind = kind_of(&parts.method, parts.uri.path(), parts.uri.query().unwrap_or_default());
    shared.count(kind);
    let Ok(body) = axum::body::to_bytes(body, MAX_BODY).await else {
        return plain(StatusCode::PAYLOAD_TOO_LARGE, "body not read");
    };
    let fault = shared.next_fault(kind);
    match &fault {
        Some(Fault::Refuse { status, retry_after }) => return refusal(*status, *retry_after),
        Some(Fault::Redirect { location }) => return redirect(location),
        Some(Fault::Delay(delay)) => tokio::time::sleep(*delay).await,
        Some(Fault::Hang) => std::future::pending().await,
        Some(Fault::CutBeforeBackend) => return cut.now(),
        Some(Fault::HoldBeforeBackend(gate)) => gate.pass().await,
        Some(Fault::CutAfterBackend | Fault::HoldAfterBackend(_)) | None => {}
    }
    let access = lock(&shared.access).clone();
    if !access.admits(&parts.headers) {
        let mut response = plain(StatusCode::UNAUTHORIZED, "credentials wanted");
        response
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Basic realm=\"git\""));
        return response;
    }
    let response = match run_backend(&shared, &access, &parts, &body).await {
        Ok(output) => {
            *lock(&shared.sent).entry(kind).or_default() += output.len() as u64;
            parse_cgi(&output)
        }
        Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    };
    match fault {
        Some(Fault::CutAfterBackend) => return cut.now(),
        Some(Fault::HoldAfterBackend(gate)) => gate.pass().await,
        Some(
            Fault::Refuse { .. }
            | Fault::Redirect { .. }
            | Fault::Delay(_)
            | Fault::Hang
            | Fault::CutBeforeBackend
            | Fault::HoldBeforeBackend(_),
        )
        | None => {}
    }
    response
}

fn kind_of(method: &Method, path: &str, query: &str) -> RequestKind {
    let refs = *method == Method::GET && path.ends_with("/info/refs");
    let post = *method == Method::POST;
    if refs && query.contains("service=git-upload-pack") {
        RequestKind::UploadPackRefs
    } else if refs && query.contains("service=git-receive-pack") {
        RequestKind::ReceivePackRefs
    } else if post && path.ends_with("/git-upload-pack") {
        RequestKind::UploadPack
    } else if post && path.ends_with("/git-receive-pack") {
        RequestKind::ReceivePack
    } else {
        RequestKind::Other
    }
}

async fn run_backend(
    shared: &Shared,
    access: &Access,
    parts: &axum::http::request::Parts,
    body: &[u8],
) -> io::Result<Vec<u8>> {
    let header =
        |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let version_zero = shared.version_zero.load(Ordering::SeqCst);
    let mut child = tokio::process::Command::new(&shared.backend)
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .env("HOME", &shared.root)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_PROJECT_ROOT", &shared.root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("REQUEST_METHOD", parts.method.as_str())
        .env("PATH_INFO", parts.uri.path())
        .env("QUERY_STRING", parts.uri.query().unwrap_or_default())
        .env("CONTENT_TYPE", header("content-type"))
        .env("CONTENT_LENGTH", body.len().to_string())
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .env("GIT_PROTOCOL", if version_zero { "" } else { header("git-protocol") })
        .env("REMOTE_USER", access.user())
        .env("REMOTE_ADDR", "127.0.0.1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let mut stdin = child.stdin.take().ok_or_else(|| io::Error::other("no stdin"))?;
    let feed = async move {
        // The backend may refuse early and close its input: its answer counts, not this error.
        let _ = stdin.write_all(body).await;
        drop(stdin);
    };
    let ((), output) = tokio::join!(feed, child.wait_with_output());
    output.map(|output| output.stdout)
}

fn parse_cgi(output: &[u8]) -> Response {
    let Some((head, body)) = split_head(output) else {
        return plain(StatusCode::BAD_GATEWAY, "the backend sent no header");
    };
    let mut response = Response::builder().status(StatusCode::OK);
    for line in String::from_utf8_lossy(head).lines() {
        match line.split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("status") => {
                let code = value.split_whitespace().next().and_then(|code| code.parse::<u16>().ok());
                response = response.status(code.unwrap_or(500));
            }
            Some((name, value)) => response = response.header(name.trim(), value.trim()),
            None => {}
        }
    }
    response
        .body(Body::from(body.to_vec()))
        .unwrap_or_else(|_| plain(StatusCode::BAD_GATEWAY, "the backend sent a bad header"))
}

fn split_head(output: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = output.windows(4).position(|window| window == b"\r\n\r\n")?;
    Some((&output[..at], &output[at + 4..]))
}

fn plain(status: StatusCode, text: &str) -> Response {
    let mut response = Response::new(Body::from(text.to_owned()));
    *response.status_mut() = status;
    response
}

fn refusal(status: u16, retry_after: Option<u64>) -> Response {
    let mut response =
        plain(StatusCode::from_u16(status).unwrap_or(StatusCode::IM_A_TEAPOT), "refused by the test");
    if let Some(seconds) = retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

fn redirect(location: &str) -> Response {
    let mut response = plain(StatusCode::MOVED_PERMANENTLY, "moved");
    if let Ok(location) = location.parse() {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}
