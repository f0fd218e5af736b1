//! What does the real operator do when it is killed, frozen, restarted, asked to end?
//!
//! In: a control plane, a Redis, a folder, [`OperatorOptions`]. Out: one running `upriver run` with its own ports, log
//! and mirrors, ready when [`Operator::start`] returns. A restart keeps all of them. Absent: what the operator works
//! on; the standard objects and the Git server are in [`crate::stack`].

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::TestkitError;
use crate::control_plane::{ControlPlane, User};
use crate::peer_certs::PeerCerts;
use crate::ports::free_ports;
use crate::process::{ChildProcess, ProcessSpec, Signal};
use crate::redis::RedisServer;
use crate::wait::try_eventually;

/// Namespace of the operator and its Leases.
pub const NAMESPACE: &str = "upriver-system";

const READY_WITHIN: Duration = Duration::from_secs(60);
/// The operator hands everything over first, and a push may take as long as `--git-timeout`.
const ENDED_WITHIN: Duration = Duration::from_secs(90);
const PORT_TRIES: usize = 5;
/// What the operator prints when a port is taken.
const PORT_TAKEN: &str = "cannot listen on";
/// Longer than any answer of a healthy operator takes; a frozen one must not hold a probe for ever.
const HTTP_TIMEOUT: Duration = Duration::from_secs(5);
/// Unit of the CPU times in `/proc`: fixed for programs on every Linux, whatever the kernel's own tick is.
const TICKS_PER_SECOND: f64 = 100.0;

/// How an operator is started. All of it has safe defaults.
#[derive(Clone, Debug)]
pub struct OperatorOptions {
    /// Name of its pod; also names its folder and its log.
    pub pod_name: String,
    /// Further flags of `upriver run`, for example `--fence-after=5s`. A flag given here replaces ours of that name.
    pub extra_args: Vec<String>,
    /// Further environment variables.
    pub env: Vec<(String, String)>,
    /// The file in which crashes are ordered; one inside the operator's folder if absent.
    pub crash_file: Option<PathBuf>,
    /// Whether it serves and calls other replicas; never without Redis.
    pub peers: bool,
}

impl Default for OperatorOptions {
    fn default() -> Self {
        Self::named("upriver-0")
    }
}

impl OperatorOptions {
    /// Default options for a pod of this name.
    #[must_use]
    pub fn named(pod_name: impl Into<String>) -> Self {
        Self {
            pod_name: pod_name.into(),
            extra_args: Vec::new(),
            env: Vec::new(),
            crash_file: None,
            peers: true,
        }
    }

    /// One more flag.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.extra_args.push(arg.into());
        self
    }
}

/// A running operator; dropping it ends it.
#[derive(Debug)]
pub struct Operator {
    process: Mutex<Option<ChildProcess>>,
    program: PathBuf,
    kubeconfig: PathBuf,
    redis_addr: String,
    dir: PathBuf,
    health_port: u16,
    metrics_port: u16,
    peer_port: u16,
    /// Certificates for the peers, the same for all operators of a folder.
    peer_certs: PathBuf,
    options: OperatorOptions,
}

impl Operator {
    /// Starts an operator with its files in `dir/<pod name>` and waits until it is ready. It needs its namespace and the
    /// CRDs; [`crate::stack::Stack`] makes them.
    ///
    /// # Panics
    /// If it does not get ready; the message ends with its log.
    pub async fn start(
        plane: &ControlPlane,
        redis: &RedisServer,
        dir: &Path,
        options: OperatorOptions,
    ) -> Self {
        match Self::try_start(plane, redis, dir, options).await {
            Ok(operator) => operator,
            Err(error) => panic!("{error}"),
        }
    }

    /// As [`Operator::start`], for callers that report errors themselves.
    ///
    /// # Errors
    /// If it cannot be started or is not ready within a minute.
    pub async fn try_start(
        plane: &ControlPlane,
        redis: &RedisServer,
        dir: &Path,
        options: OperatorOptions,
    ) -> Result<Self, TestkitError> {
        let peer_certs = dir.join("peer-tls");
        if !peer_certs.exists() {
            // The files are enough.
            let _ = PeerCerts::make(&peer_certs);
        }
        let dir = dir.join(&options.pod_name);
        std::fs::create_dir_all(dir.join("mirrors"))
            .map_err(|source| TestkitError::Io { what: format!("make {}", dir.display()), source })?;
        let mut operator = Self {
            process: Mutex::new(None),
            program: crate::upriver_binary(),
            kubeconfig: plane.kubeconfig(User::Upriver),
            redis_addr: redis.url(),
            dir,
            health_port: 0,
            metrics_port: 0,
            peer_port: 0,
            peer_certs,
            options,
        };
        for _ in 1..PORT_TRIES {
            [operator.health_port, operator.metrics_port, operator.peer_port] = free_ports();
            match operator.launch().await {
                Err(TestkitError::NotReady { log, .. }) if log.contains(PORT_TAKEN) => {}
                outcome => return outcome.map(|()| operator),
            }
        }
        [operator.health_port, operator.metrics_port, operator.peer_port] = free_ports();
        operator.launch().await.map(|()| operator)
    }

    /// Its process id, if it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process().as_ref().map(ChildProcess::pid)
    }

    /// Where it listens for other replicas.
    #[must_use]
    pub fn peer_address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.peer_port))
    }

    /// Name of its pod.
    #[must_use]
    pub fn pod_name(&self) -> &str {
        &self.options.pod_name
    }

    /// True while its process has not ended.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.process().as_ref().is_some_and(ChildProcess::is_running)
    }

    /// Its log file, which restarts continue.
    #[must_use]
    pub fn log_path(&self) -> PathBuf {
        self.dir.join("upriver.log")
    }

    /// Everything it has printed so far.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read(self.log_path())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// The last lines of its log.
    #[must_use]
    pub fn tail_log(&self) -> String {
        crate::process::tail(&self.log_path(), 30)
    }

    /// Status and body of a GET on the health port, for example of `/readyz`.
    ///
    /// # Errors
    /// If it does not answer within five seconds.
    pub async fn health(&self, path: &str) -> io::Result<(u16, String)> {
        get(self.health_port, path).await
    }

    /// The text of `/metrics`; empty if it does not answer.
    pub async fn metrics(&self) -> String {
        get(self.metrics_port, "/metrics").await.map(|(_, body)| body).unwrap_or_default()
    }

    /// Sum of all series of a metric that carry these labels, `None` if there is none.
    pub async fn metric_value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        metric_value(&self.metrics().await, name, labels)
    }

    /// CPU seconds that the running process has used, 0 if it does not run. A restart begins at 0.
    #[must_use]
    pub fn cpu_seconds(&self) -> f64 {
        let stat = self.pid().and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).ok());
        stat.as_deref().and_then(cpu_ticks).unwrap_or_default() / TICKS_PER_SECOND
    }

    /// Resident memory in MiB, 0 if it does not run.
    #[must_use]
    pub fn rss_mb(&self) -> u64 {
        self.process().as_ref().map_or(0, ChildProcess::rss_mb)
    }

    /// Kills it (SIGKILL), as a crash would; it is gone when this returns. Its files stay.
    pub fn kill(&self) {
        if let Some(process) = self.process().take() {
            process.kill_now();
        }
    }

    /// Asks it to end (SIGTERM) and waits until it has.
    ///
    /// # Panics
    /// If it does not run or does not end.
    pub async fn terminate(&self) -> ExitStatus {
        self.signal(Signal::Term);
        self.await_exit(ENDED_WITHIN).await
    }

    /// Waits until it ends by itself, for example after [`Operator::order_crash`].
    ///
    /// # Panics
    /// If it does not run or still runs after `timeout`.
    pub async fn await_exit(&self, timeout: Duration) -> ExitStatus {
        let pid = self.pid();
        let ended = try_eventually("the end of the operator", timeout, async || {
            self.process().as_ref().and_then(ChildProcess::exit_status)
        });
        let status = match ended.await {
            Ok(status) => status,
            Err(late) => panic!("{late} (process {pid:?})\n{}", self.tail_log()),
        };
        *self.process() = None;
        status
    }

    /// Freezes it: connections stay open, nothing is renewed, nobody answers.
    ///
    /// # Panics
    /// If it does not run.
    pub fn pause(&self) {
        self.signal(Signal::Stop);
    }

    /// Goes on after [`Operator::pause`].
    ///
    /// # Panics
    /// If it does not run.
    pub fn resume(&self) {
        self.signal(Signal::Cont);
    }

    /// Starts it again with the same pod name, ports and files; kills it first if it runs.
    ///
    /// # Panics
    /// If it does not get ready.
    pub async fn restart(&self) {
        self.kill();
        if let Err(error) = self.launch().await {
            panic!("{error}");
        }
    }

    /// Starts it again as [`Operator::restart`] does, without waiting for it; no effect while it runs.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn begin_again(&self) -> Result<(), TestkitError> {
        let mut process = self.process();
        if !process.as_ref().is_some_and(ChildProcess::is_running) {
            *process = Some(self.spec().spawn()?);
        }
        Ok(())
    }

    /// Sends a signal. False if it does not run.
    pub fn try_signal(&self, signal: Signal) -> bool {
        self.process().as_ref().is_some_and(|process| process.signal(signal))
    }

    /// How the process that was started last ended, if it has; `None` after [`Operator::kill`].
    #[must_use]
    pub fn exit_status(&self) -> Option<ExitStatus> {
        self.process().as_ref().and_then(ChildProcess::exit_status)
    }

    /// Makes the operator kill itself when it reaches this point next, once. Needs a binary with the feature
    /// `failpoints`; points are `before-append`, `after-append`, `after-commit`, `after-push`.
    ///
    /// # Panics
    /// If the order cannot be written.
    pub fn order_crash(&self, point: &str) {
        std::fs::write(self.crash_file(), point).expect("the crash file can be written");
    }

    /// True while an ordered crash has not happened.
    #[must_use]
    pub fn crash_is_pending(&self) -> bool {
        self.crash_file().exists()
    }

    fn crash_file(&self) -> PathBuf {
        self.options.crash_file.clone().unwrap_or_else(|| self.dir.join("crash"))
    }

    fn process(&self) -> MutexGuard<'_, Option<ChildProcess>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn signal(&self, signal: Signal) {
        let sent = self.try_signal(signal);
        assert!(sent, "{signal:?} was sent to an operator that does not run\n{}", self.tail_log());
    }

    async fn launch(&self) -> Result<(), TestkitError> {
        let process = self.spec().spawn()?;
        let ready = try_eventually("/readyz of the operator", READY_WITHIN, async || {
            if let Some(status) = process.exit_status() {
                return Ok(Err(format!("it ended with {status}")));
            }
            match self.health("/readyz").await {
                Ok((200, _)) => Ok(Ok(())),
                Ok((status, body)) => Err(format!("{status}: {}", body.trim().replace('\n', ", "))),
                Err(error) => Err(error.to_string()),
            }
        })
        .await;
        let why = match ready {
            Ok(Ok(())) => {
                *self.process() = Some(process);
                return Ok(());
            }
            Ok(Err(ended)) => ended,
            Err(late) => late.to_string(),
        };
        Err(TestkitError::NotReady { server: "the operator", why, log: process.tail_log() })
    }

    fn spec(&self) -> ProcessSpec {
        let spec = ProcessSpec::new(&self.program, &self.dir)
            .args(self.args())
            .env("UPRIVER_CRASH_FILE", self.crash_file())
            .env("NO_COLOR", "1")
            .log_name("upriver.log");
        // Sentinels say where Redis is, and an address beside them is refused.
        let sentinels = self.options.extra_args.iter().any(|arg| arg.starts_with("--redis-sentinel-addrs="));
        let spec = if sentinels { spec } else { spec.env("REDIS_ADDR", &self.redis_addr) };
        self.options.env.iter().fold(spec, |spec, (key, value)| spec.env(key, value))
    }

    fn args(&self) -> Vec<String> {
        let ours = [
            ("--kubeconfig", self.kubeconfig.display().to_string()),
            ("--namespace", NAMESPACE.to_owned()),
            ("--pod-name", self.options.pod_name.clone()),
            ("--health-probe-bind-address", format!("127.0.0.1:{}", self.health_port)),
            ("--metrics-bind-address", format!("127.0.0.1:{}", self.metrics_port)),
            ("--data-dir", self.dir.join("mirrors").display().to_string()),
            ("--log-encoding", "text".to_owned()),
        ];
        let given = &self.options.extra_args;
        // Without Redis it serves alone, and settings for peers are refused.
        let alone = !self.options.peers || given.iter().any(|arg| arg == "--store=embedded");
        let peers = [
            ("--peer-cert-path", self.peer_certs.display().to_string()),
            ("--peer-bind-address", format!("127.0.0.1:{}", self.peer_port)),
        ];
        let ours = ours.into_iter().chain(peers.into_iter().filter(|_| !alone));
        let replaced = |flag: &str| given.iter().any(|arg| arg.split('=').next() == Some(flag));
        let ours = ours.filter(|(flag, _)| !replaced(flag)).map(|(flag, value)| format!("{flag}={value}"));
        ["run".to_owned()].into_iter().chain(ours).chain(given.iter().cloned()).collect()
    }
}

/// One HTTP GET on loopback. Version 1.0, so that the answer ends with the connection and is never chunked.
async fn get(port: u16, path: &str) -> io::Result<(u16, String)> {
    let exchange = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        let mut request = String::new();
        let _ = write!(request, "GET {path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        parse_answer(&String::from_utf8_lossy(&answer))
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not an HTTP answer"))
    };
    tokio::time::timeout(HTTP_TIMEOUT, exchange)
        .await
        .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer")))
}

fn parse_answer(answer: &str) -> Option<(u16, String)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}

/// User and system time out of `/proc/<pid>/stat`; the program's name before them may hold anything.
fn cpu_ticks(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ').skip(11);
    let mut next = || fields.next()?.parse::<f64>().ok();
    Some(next()? + next()?)
}

fn metric_value(text: &str, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let wanted: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value:?}")).collect();
    let values = text.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let (found, rest) = series.split_once('{').unwrap_or((series, "}"));
        let carried: Vec<&str> = rest.trim_end_matches('}').split(',').collect();
        let fits = found == name && wanted.iter().all(|label| carried.contains(&label.as_str()));
        fits.then(|| value.parse::<f64>().ok())?
    });
    values.fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_the_sum_of_the_series_that_carry_the_labels() {
        let text = "# TYPE a_total counter\na_total{kind=\"x\",to=\"y\"} 2\na_total{kind=\"x\",to=\"z\"} 3\n\
                    a_total_more 9\nplain 1.5\n";
        assert_eq!(metric_value(text, "a_total", &[]), Some(5.0));
        assert_eq!(metric_value(text, "a_total", &[("to", "z"), ("kind", "x")]), Some(3.0));
        assert_eq!(metric_value(text, "a_total", &[("to", "w")]), None);
        assert_eq!(metric_value(text, "plain", &[]), Some(1.5));
    }

    #[test]
    fn cpu_time_is_read_behind_a_name_with_blanks_and_brackets() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194304 100 0 0 0 120 30 0 0 20 0 4 0 100 1 2";
        assert_eq!(cpu_ticks(stat), Some(150.0));
    }

    #[test]
    fn an_answer_is_status_and_body() {
        let answer = "HTTP/1.0 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nno\r\n";
        assert_eq!(parse_answer(answer), Some((503, "no\r\n".to_owned())));
        assert_eq!(parse_answer("garbage"), None);
    }
}
