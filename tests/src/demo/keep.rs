//! How does the demo stay up after its command has returned, and end again?
//!
//! [`up`] starts this program once more as the holder, which owns all servers, and waits for its word. [`down`] asks
//! exactly that process to end; the servers end with it, even if it is killed. The folder `.run` holds its state:
//! `holder` (process id and start time, so that a pid that was given out again is never mistaken for it), `ready` (what
//! to tell the user), `demo.log`, and the servers' folders. Absent: a second holder at the same time.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use upriver_testkit::wait::until_blocking;
use upriver_testkit::{Stack, User, try_eventually};

use super::{Failure, NAMESPACE, start, story};

/// The first start on a machine builds the servers, which takes minutes.
const UP_WITHIN: Duration = Duration::from_secs(1200);
/// An orderly end pushes what is pending first.
const DOWN_WITHIN: Duration = Duration::from_secs(120);

/// Starts the holder and returns when everything is up.
///
/// # Errors
/// If it does not get that far; its log is printed as it comes.
pub async fn up(state: &Path) -> Result<ExitCode, Failure> {
    if let Some(holder) = Holder::of(state) {
        println!("already up, held by process {}", holder.pid);
        print!("{}", fs::read_to_string(state.join("ready")).unwrap_or_default());
        return Ok(ExitCode::SUCCESS);
    }
    remove(state)?;
    fs::create_dir_all(state)?;
    let mut child = spawn_holder(state)?;
    let ready = state.join("ready");
    let mut log = File::open(state.join("demo.log"))?;
    let waited = try_eventually("the demo to be up", UP_WITHIN, async || {
        let ended = child.try_wait().map_err(|error| error.to_string())?;
        // Asked first, printed afterwards: whatever it said before its end is shown.
        let is_up = ready.exists();
        let mut text = String::new();
        let _ = log.read_to_string(&mut text);
        print!("{text}");
        match ended {
            Some(status) => Ok(Err(format!("it ended with {status}"))),
            None if is_up => Ok(Ok(())),
            None => Err("it is still starting".to_owned()),
        }
    });
    let outcome = waited.await.map_err(|late| late.to_string()).and_then(|ended| ended);
    if let Err(why) = outcome {
        let _ = child.kill();
        let _ = child.wait();
        return Err(format!("{why}; see {}", state.join("demo.log").display()).into());
    }
    print!("{}", fs::read_to_string(ready)?);
    Ok(ExitCode::SUCCESS)
}

fn spawn_holder(state: &Path) -> Result<Child, Failure> {
    let log = File::create(state.join("demo.log"))?;
    let errors = log.try_clone()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--hold").arg("--state").arg(state);
    command.stdin(Stdio::null()).stdout(log).stderr(errors);
    // A group of its own: Ctrl-C in this terminal later on must not reach it.
    command.process_group(0);
    Ok(command.spawn()?)
}

/// Owns everything until it is asked to end.
///
/// # Errors
/// If a part does not start.
pub async fn hold(state: &Path) -> Result<ExitCode, Failure> {
    let state = state.canonicalize()?;
    let mut asked = signal(SignalKind::terminate())?;
    fs::write(state.join("holder"), Holder::me()?.to_text())?;
    let work = async {
        let (stack, mirror) = start(Some(state.clone())).await?;
        story::tell(&stack, &mirror).await?;
        // Written whole under another name first, so that nobody reads a part.
        fs::write(state.join("ready.draft"), usage(&stack))?;
        fs::rename(state.join("ready.draft"), state.join("ready"))?;
        Ok::<Stack, Failure>(stack)
    };
    let stack = tokio::select! {
        stack = work => stack?,
        _ = asked.recv() => return Ok(ExitCode::SUCCESS),
    };
    asked.recv().await;
    for operator in stack.operators().iter().filter(|operator| operator.is_running()) {
        operator.terminate().await;
    }
    Ok(ExitCode::SUCCESS)
}

fn usage(stack: &Stack) -> String {
    let plane = stack.plane();
    let others = plane.kubeconfig(User::Bob);
    let logs: String = stack
        .operators()
        .iter()
        .map(|operator| format!("tail -f {}\n", operator.log_path().display()))
        .collect();
    format!(
        "\nEverything is up. Copy what you need:\n\n\
         export KUBECONFIG={alice}   # alice; bob is {bob}\n\
         git clone {clone}\n\
         kubectl -n {NAMESPACE} create configmap hello --from-literal=who=me\n\
         kubectl -n {NAMESPACE} get gittargets,watchrules\n\
         {logs}\n\
         `make down` ends it.\n",
        alice = plane.kubeconfig(User::Alice).display(),
        bob = others.display(),
        clone = stack.login_url(),
    )
}

/// Ends the holder, and with it everything.
///
/// # Errors
/// If it does not end.
pub fn down(state: &Path) -> Result<ExitCode, Failure> {
    match Holder::of(state) {
        None => println!("nothing is up"),
        Some(holder) => {
            println!("asking process {} to end", holder.pid);
            holder.terminate();
            let gone = until_blocking(DOWN_WITHIN, || (!holder.is_alive()).then_some(()));
            gone.ok_or_else(|| format!("process {} does not end", holder.pid))?;
            println!("everything has ended");
        }
    }
    remove(state)?;
    Ok(ExitCode::SUCCESS)
}

fn remove(state: &Path) -> std::io::Result<()> {
    match fs::remove_dir_all(state) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

/// One certain process: pids are given out again, start times are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holder {
    pid: u32,
    started: u64,
}

impl Holder {
    fn me() -> Result<Self, Failure> {
        let pid = std::process::id();
        let started = start_time(pid).ok_or("/proc does not show this process")?;
        Ok(Self { pid, started })
    }

    /// The holder of a folder, if it still runs.
    fn of(state: &Path) -> Option<Self> {
        let text = fs::read_to_string(state.join("holder")).ok()?;
        let (pid, started) = text.trim().split_once(' ')?;
        let holder = Self { pid: pid.parse().ok()?, started: started.parse().ok()? };
        holder.is_alive().then_some(holder)
    }

    fn to_text(self) -> String {
        format!("{} {}\n", self.pid, self.started)
    }

    fn is_alive(self) -> bool {
        start_time(self.pid) == Some(self.started)
    }

    fn terminate(self) {
        let pid = i32::try_from(self.pid).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            // It may have ended a moment ago, which is what we want.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
    }
}

/// Start time of a process in the kernel's ticks; `None` if there is none, or only what is left of one.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    if rest.starts_with('Z') {
        return None;
    }
    rest.split(' ').nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_known_by_its_start_time_too() {
        let me = Holder::me().expect("this process runs");
        assert!(me.is_alive());
        assert!(!Holder { started: me.started + 1, ..me }.is_alive());
    }
}
