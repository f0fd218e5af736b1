//! Named crash points for tests and chaos runs. Compiled out unless the feature `failpoints` is on.
//!
//! A point fires when the file named by `UPRIVER_CRASH_FILE` holds its name: the file is removed and the process kills
//! itself with SIGKILL, so nothing is cleaned up.

/// Where a crash can be ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    /// A frame was received, nothing is durable.
    BeforeAppend,
    /// The frame is durable, its watcher does not know yet.
    AfterAppend,
    /// Commits exist in the local mirror only.
    AfterCommit,
    /// The push was sent and has succeeded, nothing is settled.
    AfterPush,
}

impl Point {
    #[cfg_attr(
        not(feature = "failpoints"),
        allow(dead_code, reason = "names are only read when points can fire")
    )]
    fn name(self) -> &'static str {
        match self {
            Self::BeforeAppend => "before-append",
            Self::AfterAppend => "after-append",
            Self::AfterCommit => "after-commit",
            Self::AfterPush => "after-push",
        }
    }
}

/// Kills this process if a crash at this point was ordered.
#[cfg(feature = "failpoints")]
pub(crate) fn reached(point: Point) {
    let Some(path) = std::env::var_os("UPRIVER_CRASH_FILE") else { return };
    let ordered = std::fs::read_to_string(&path).is_ok_and(|text| text.trim() == point.name());
    if ordered && std::fs::remove_file(&path).is_ok() {
        let killed = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        tracing::error!(?killed, point = point.name(), "an ordered crash did not happen");
    }
}

/// Crash points are compiled out.
#[cfg(not(feature = "failpoints"))]
pub(crate) fn reached(_: Point) {}
