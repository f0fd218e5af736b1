//! Does anything stay behind when a test binary ends, in order or not? In: this binary, run again as a child that
//! starts every server. Out: no process and no folder of it is left.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use upriver_testkit::{ControlPlane, RedisServer, eventually};

const REPORT: &str = "UPRIVER_LEFTOVERS_REPORT";
const HANG: &str = "UPRIVER_LEFTOVERS_HANG";

/// Not a test by itself: the child of the tests below. Without their variable it does nothing.
#[test]
fn child_that_starts_servers() {
    let Some(report) = std::env::var_os(REPORT) else { return };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let redis = runtime.block_on(async {
        let plane = ControlPlane::shared().await;
        let redis = RedisServer::start().await;
        let pids = plane.pids().into_iter().chain(redis.pid()).map(|pid| pid.to_string());
        let lines = pids.chain([plane.dir().display().to_string()]).collect::<Vec<_>>();
        // Written whole under another name first, so that the parent never reads a part.
        let draft = Path::new(&report).with_extension("draft");
        std::fs::write(&draft, lines.join("\n")).expect("a report");
        std::fs::rename(&draft, &report).expect("a report");
        redis
    });
    if std::env::var_os(HANG).is_some() {
        runtime.block_on(std::future::pending::<()>());
    }
    // As in a static: never dropped.
    std::mem::forget(redis);
}

fn rerun(report: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a running program has a path"));
    command.args(["--exact", "child_that_starts_servers", "--nocapture"]).env(REPORT, report);
    command
}

fn alive(pid: &str) -> bool {
    // A zombie has ended; who reaps it is up to the init of this machine.
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|rest| !rest.starts_with('Z')))
}

async fn nothing_is_left(report: &str) {
    let (pids, folders): (Vec<&str>, Vec<&str>) =
        report.lines().partition(|line| line.parse::<u32>().is_ok());
    assert_eq!((pids.len(), folders.len()), (3, 1), "{report}");
    eventually("the end of every server and folder", Duration::from_secs(10), async || {
        let mut left: Vec<&str> = pids.iter().copied().filter(|pid| alive(pid)).collect();
        left.extend(folders.iter().filter(|folder| PathBuf::from(folder).exists()));
        if left.is_empty() { Ok(()) } else { Err(left) }
    })
    .await;
}

#[tokio::test]
async fn nothing_is_left_after_a_test_binary_ends() {
    let dir = tempfile::tempdir().expect("a folder");
    let report = dir.path().join("report");
    let output = rerun(&report).output().expect("this binary runs again");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    nothing_is_left(&std::fs::read_to_string(report).expect("the child has written it")).await;
}

#[tokio::test]
async fn nothing_is_left_after_a_test_binary_is_killed() {
    let dir = tempfile::tempdir().expect("a folder");
    let report = dir.path().join("report");
    let mut child = rerun(&report).env(HANG, "1").spawn().expect("this binary runs again");
    let text = eventually("the child's report", Duration::from_secs(90), async || {
        assert!(child.try_wait().expect("our own child").is_none(), "the child ended before its report");
        std::fs::read_to_string(&report)
    })
    .await;
    child.kill().expect("it hangs, so it can be killed");
    child.wait().expect("a killed child ends");
    nothing_is_left(&text).await;
}
