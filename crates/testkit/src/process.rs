//! How is a server started, stopped, paused, killed, and surely gone when its test is?
//!
//! In: program, arguments, folder. Out: a [`ChildProcess`] that ends exactly its own process when dropped. Where
//! `setpriv` exists the kernel kills the child when this process dies, however it dies; elsewhere a small watchdog
//! shell does. Output goes to a log file, never to a pipe that could fill up. No process is ended by name.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use crate::wait;

/// A program could not be started, or did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The program is missing or may not be executed.
    #[error("cannot start {program}: {source}")]
    Spawn {
        /// The program as given.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Its log file cannot be made.
    #[error("cannot write the log {path}: {source}")]
    Log {
        /// The log file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// The signals that tests send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Ask to end.
    Term,
    /// End at once.
    Kill,
    /// Freeze; sockets stay open.
    Stop,
    /// Go on after [`Signal::Stop`].
    Cont,
}

impl Signal {
    fn raw(self) -> rustix::process::Signal {
        match self {
            Self::Term => rustix::process::Signal::TERM,
            Self::Kill => rustix::process::Signal::KILL,
            Self::Stop => rustix::process::Signal::STOP,
            Self::Cont => rustix::process::Signal::CONT,
        }
    }
}

/// What to start. Program and folder have no safe default, the rest has.
#[derive(Clone, Debug)]
pub struct ProcessSpec {
    program: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    dir: PathBuf,
    log_name: String,
    grace: Duration,
}

impl ProcessSpec {
    /// `program`, to run in the folder `dir`, which also gets its log.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>, dir: impl Into<PathBuf>) -> Self {
        let program = program.into();
        let name =
            program.file_name().map_or_else(|| "process".into(), |name| name.to_string_lossy().into_owned());
        Self {
            program,
            args: Vec::new(),
            env: Vec::new(),
            dir: dir.into(),
            log_name: format!("{name}.log"),
            grace: Duration::from_secs(3),
        }
    }

    /// One more argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// More arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// One environment variable; all others are inherited.
    #[must_use]
    pub fn env(mut self, key: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((key.into(), value.into()));
        self
    }

    /// Name of the log file inside the folder, `<program>.log` if not given. An existing log is continued.
    #[must_use]
    pub fn log_name(mut self, name: impl Into<String>) -> Self {
        self.log_name = name.into();
        self
    }

    /// How long a drop waits after SIGTERM before SIGKILL; zero kills at once.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// If the program or its log file cannot be had.
    pub fn spawn(self) -> Result<ChildProcess, ProcessError> {
        let log = self.dir.join(&self.log_name);
        let open = || OpenOptions::new().create(true).append(true).open(&log);
        let (out, err) = open()
            .and_then(|out| Ok((out, open()?)))
            .map_err(|source| ProcessError::Log { path: log.clone(), source })?;
        let child = start(self.command(out, err))
            .map_err(|source| ProcessError::Spawn { program: self.program.clone(), source })?;
        let watchdog = if SETPRIV.is_some() { None } else { Some(Watchdog::of_process(child.id())) };
        Ok(ChildProcess {
            pid: child.id(),
            child: Mutex::new(child),
            log,
            grace: self.grace,
            _watchdog: watchdog,
        })
    }

    fn command(&self, out: File, err: File) -> Command {
        let mut command = match SETPRIV.as_deref() {
            Some(setpriv) => {
                let mut command = Command::new(setpriv);
                command.args(["--pdeathsig", "KILL", "--"]).arg(&self.program);
                command
            }
            None => Command::new(&self.program),
        };
        command
            .args(&self.args)
            .envs(self.env.iter().map(|(key, value)| (key, value)))
            .current_dir(&self.dir);
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        // A group of its own: Ctrl-C in a terminal reaches the test, which then ends its children in its own order.
        command.process_group(0);
        command
    }
}

/// A started program. Dropping it ends the process, also while a panic unwinds.
#[derive(Debug)]
pub struct ChildProcess {
    pid: u32,
    child: Mutex<Child>,
    log: PathBuf,
    grace: Duration,
    // Dropped after the child is reaped: its target is then gone, and it is told so before it could act.
    _watchdog: Option<Watchdog>,
}

impl ChildProcess {
    /// Its process id. `setpriv` replaces itself by the program, so this is the program's.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends a signal, unless the process has ended already. True if it was sent.
    pub fn signal(&self, signal: Signal) -> bool {
        let mut child = self.lock();
        // Checked under the lock: a pid that was reaped may belong to somebody else.
        if !matches!(child.try_wait(), Ok(None)) {
            return false;
        }
        raw_pid(self.pid).is_some_and(|pid| rustix::process::kill_process(pid, signal.raw()).is_ok())
    }

    /// How it ended, if it has.
    #[must_use]
    pub fn exit_status(&self) -> Option<ExitStatus> {
        self.lock().try_wait().ok().flatten()
    }

    /// True while it has not ended; a paused process counts as running.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.exit_status().is_none()
    }

    /// Waits for its end; `None` if it still runs after `timeout`.
    pub async fn wait_exit(&self, timeout: Duration) -> Option<ExitStatus> {
        wait::try_eventually("the end of a process", timeout, async || self.exit_status()).await.ok()
    }

    /// SIGKILL, and gone when this returns.
    pub fn kill_now(&self) {
        self.signal(Signal::Kill);
        // SIGKILL cannot be refused, so this wait is bounded by the kernel.
        let _ = self.lock().wait();
    }

    /// The log file with what it printed.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The last lines of its log.
    #[must_use]
    pub fn tail_log(&self) -> String {
        tail(&self.log, 30)
    }

    /// Resident memory in MiB, 0 if it cannot be read.
    #[must_use]
    pub fn rss_mb(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).map_or(0, |kb| kb / 1024)
    }

    fn lock(&self) -> MutexGuard<'_, Child> {
        // A panic in another thread leaves the handle usable: all it holds is a pid.
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        if !self.grace.is_zero() && self.signal(Signal::Term) {
            // A paused process would see SIGTERM only once it goes on.
            self.signal(Signal::Cont);
            if wait::until_blocking(self.grace, || self.exit_status()).is_some() {
                return;
            }
        }
        self.kill_now();
    }
}

/// The last `lines` lines of a file, or why it cannot be read.
#[must_use]
pub fn tail(path: &Path, lines: usize) -> String {
    match std::fs::read(path) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let mut last = VecDeque::with_capacity(lines + 1);
            for line in text.lines() {
                last.push_back(line);
                if last.len() > lines {
                    last.pop_front();
                }
            }
            last.into_iter().collect::<Vec<_>>().join("\n")
        }
        Err(error) => format!("({} cannot be read: {error})", path.display()),
    }
}

/// Where a program lies on `PATH`.
#[must_use]
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    // Debian keeps servers in sbin, which the PATH of a plain user lacks.
    let extra = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(extra).map(|dir| dir.join(name)).find(|file| file.is_file())
}

static SETPRIV: LazyLock<Option<PathBuf>> = LazyLock::new(|| find_program("setpriv"));

type SpawnJob = (Command, mpsc::Sender<io::Result<Child>>);

/// The kernel's death signal fires when the *thread* that spawned the child ends, and test threads end early. So one
/// thread that lives as long as the process spawns them all.
static SPAWNER: LazyLock<Mutex<mpsc::Sender<SpawnJob>>> = LazyLock::new(|| {
    let (jobs, inbox) = mpsc::channel::<SpawnJob>();
    std::thread::Builder::new()
        .name("spawner".into())
        .spawn(move || {
            for (mut command, answer) in inbox {
                // The caller is waiting for it, and if it is gone the child is dropped with the answer.
                let _ = answer.send(command.spawn());
            }
        })
        .expect("a process that cannot start one thread cannot start servers");
    Mutex::new(jobs)
});

fn start(command: Command) -> io::Result<Child> {
    let (answer, result) = mpsc::channel();
    SPAWNER
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .send((command, answer))
        .map_err(|_| io::Error::other("the spawner thread has ended"))?;
    result.recv().map_err(|_| io::Error::other("the spawner thread has ended"))?
}

fn raw_pid(pid: u32) -> Option<rustix::process::Pid> {
    rustix::process::Pid::from_raw(i32::try_from(pid).ok()?)
}

/// A shell that waits for this process to vanish (its end of a pipe closes) and then acts once. It ignores the
/// terminal's signals, because it has to outlive us by a moment.
#[derive(Debug)]
pub(crate) struct Watchdog {
    shell: Child,
}

impl Watchdog {
    /// Kills `pid` when this process is gone.
    fn of_process(pid: u32) -> Self {
        Self::new("kill -KILL \"$1\" 2>/dev/null", OsStr::new(&pid.to_string()))
    }

    /// Removes a folder when this process is gone. The servers in it are being killed at the same moment, hence the
    /// few tries.
    pub(crate) fn of_folder(path: &Path) -> Self {
        Self::new(
            "for i in 1 2 3 4 5; do rm -rf -- \"$1\" 2>/dev/null && break; sleep 0.2; done",
            path.as_os_str(),
        )
    }

    fn new(action: &str, argument: &OsStr) -> Self {
        let script = format!("trap '' INT TERM HUP; while read -r _; do :; done; {action}");
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(script).arg("upriver-watchdog").arg(argument);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        Self { shell: start(command).expect("/bin/sh exists on every system that runs these tests") }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // Killed before its pipe closes: an orderly end leaves nothing for it to do.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(dir: &Path, script: &str) -> ChildProcess {
        ProcessSpec::new("/bin/sh", dir).args(["-c", script]).spawn().expect("a shell starts")
    }

    fn alive(pid: u32) -> bool {
        rustix::process::test_kill_process(raw_pid(pid).expect("a child's pid is positive")).is_ok()
    }

    #[tokio::test]
    async fn output_and_exit_code_are_kept() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let child = shell(dir.path(), "echo out; echo err >&2; exit 3");
        let status = child.wait_exit(Duration::from_secs(10)).await.expect("it ends by itself");
        assert_eq!(status.code(), Some(3));
        assert_eq!(child.tail_log(), "out\nerr");
        assert!(!child.signal(Signal::Term), "an ended process gets no signal");
    }

    #[test]
    fn a_drop_ends_a_process_that_ignores_sigterm() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let child = ProcessSpec::new("/bin/sh", dir.path())
            .args(["-c", "trap '' TERM; while :; do sleep 1; done"])
            .grace(Duration::from_millis(100))
            .spawn()
            .expect("a shell starts");
        let pid = child.pid();
        drop(child);
        assert!(!alive(pid));
    }

    #[test]
    fn a_panic_ends_the_process() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let child = shell(dir.path(), "exec sleep 60");
        let pid = child.pid();
        let outcome = std::thread::spawn(move || {
            let _held = child;
            std::panic::resume_unwind(Box::new("unwinding with a child in hand"));
        })
        .join();
        assert!(outcome.is_err());
        assert!(!alive(pid));
    }

    #[tokio::test]
    async fn a_paused_process_goes_on_after_cont() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let child = shell(dir.path(), "exec sleep 60");
        let state = || {
            let stat =
                std::fs::read_to_string(format!("/proc/{}/stat", child.pid())).expect("/proc of a child");
            stat.rsplit(") ").next().and_then(|rest| rest.chars().next()).expect("a state letter")
        };
        assert!(child.signal(Signal::Stop));
        wait::eventually("state T", Duration::from_secs(5), async || (state() == 'T').then_some(())).await;
        assert!(child.is_running());
        assert!(child.signal(Signal::Cont));
        wait::eventually("state S", Duration::from_secs(5), async || (state() == 'S').then_some(())).await;
    }

    #[tokio::test]
    async fn a_child_outlives_the_thread_that_asked_for_it() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = dir.path().to_owned();
        let child =
            std::thread::spawn(move || shell(&path, "exec sleep 60")).join().expect("the thread ends well");
        wait::holds_for("a running child", Duration::from_millis(300), async || {
            child.is_running().then_some(())
        })
        .await;
    }

    #[test]
    fn a_watchdog_acts_when_its_pipe_closes_and_not_after_an_orderly_drop() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let kept = dir.path().join("kept");
        let doomed = dir.path().join("doomed");
        std::fs::create_dir(&kept).expect("a folder");
        std::fs::create_dir(&doomed).expect("a folder");
        drop(Watchdog::of_folder(&kept));
        let mut dog = Watchdog::of_folder(&doomed);
        drop(dog.shell.stdin.take());
        let gone = wait::until_blocking(Duration::from_secs(10), || (!doomed.exists()).then_some(()));
        assert!(gone.is_some() && kept.exists());
    }
}
