//! The thin shell: each task carries out what the engine asks for and reports what happened.
//!
//! | task | started by | ends when | writes |
//! |---|---|---|---|
//! | [`ownership`] | `wiring` | the process stops | session and claim Leases |
//! | [`branch`] | `ownership`, one per held claim | the claim is lost, or the process stops | its journal, its ref |
//! | [`watch`] | `ownership`, one per held watch claim | the claim is lost, or the process stops | nothing |
//! | [`peers`] | `wiring`, if there are peers | the process stops | nothing |
//! | [`git`] | `branch`, one thread | `branch` drops it | its mirror, its ref |
//! | [`housekeeper`] | `wiring` | the process stops | the election's Lease |

pub(crate) mod branch;
mod commands;
pub(crate) mod git;
pub(crate) mod housekeeper;
mod leases;
mod message;
mod orphans;
pub(crate) mod ownership;
pub(crate) mod peers;
mod planner;
pub(crate) mod shared;
mod shown;
pub(crate) mod watch;

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use upriver_engine::Tick;
use upriver_model::{Failure, FailureClass};

/// The only place of the data part where a clock is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now() }
    }

    pub(crate) fn now(self) -> Tick {
        Tick(u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// The monotonic moment of a tick.
    pub(crate) fn at(self, tick: Tick) -> tokio::time::Instant {
        tokio::time::Instant::from_std(self.start + std::time::Duration::from_millis(tick.0))
    }
}

/// Milliseconds since 1970.
pub(crate) fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

fn class(class: upriver_git_io::FailureClass) -> FailureClass {
    use upriver_git_io::FailureClass as Git;
    match class {
        Git::Superseded => FailureClass::Superseded,
        Git::Network => FailureClass::Network,
        Git::RateLimited => FailureClass::RateLimited,
        Git::Auth => FailureClass::Auth,
        Git::Policy => FailureClass::Policy,
        Git::Config => FailureClass::Config,
        Git::Content => FailureClass::Content,
        Git::Storage => FailureClass::Storage,
        Git::Uncertain => FailureClass::Uncertain,
        Git::Unknown => FailureClass::Unknown,
        Git::Internal => FailureClass::Internal,
    }
}

/// A Git error in the words of the domain.
pub(crate) fn failure(error: &upriver_git_io::GitError) -> Failure {
    Failure {
        class: class(error.class()),
        message: error.to_string().into(),
        floor_s: error.retry_after().map(|wait| wait.as_secs()),
    }
}

/// The same for a push.
pub(crate) fn push_failure(error: &upriver_git_io::PushError) -> Failure {
    Failure {
        class: class(error.class()),
        message: error.to_string().into(),
        floor_s: error.retry_after().map(|wait| wait.as_secs()),
    }
}
