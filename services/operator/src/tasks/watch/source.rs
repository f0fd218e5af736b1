//! Opens a watch behind a version, and says what every way of not getting one means.

use std::time::Duration;

use kube::Client;
use tokio::time::Instant;
use upriver_engine::Dice;
use upriver_engine::branch::WatchHealth;
use upriver_kube_io::watch::{Begin, Watch, WatchError, WatchSpec, list_page};
use upriver_model::{ResourceVersion, WatchKey};
use upriver_telemetry::metric;

/// Longest wait for a list of one object; a connection that died unnoticed must not hold up a resume for longer.
const VERSION_DEADLINE: Duration = Duration::from_secs(15);

/// Reasons of a blocked watch.
pub(super) const NOT_PERMITTED: &str = "WatchNotPermitted";
pub(super) const FAILED: &str = "WatchError";

/// What became of opening a watch behind a version.
pub(super) enum Opened {
    Watch(Watch),
    /// The version is of no use; `rewound` if the source went back in time (F18).
    Expired {
        rewound: bool,
    },
}

/// Opens a watch after `cursor`, without a list.
pub(super) async fn open_after(
    client: &Client,
    spec: &WatchSpec,
    cursor: &ResourceVersion,
) -> Result<Opened, WatchError> {
    // A source that was set back answers a watch from the future with silence (F18).
    if went_back(cursor, &source_version(client, spec).await?) {
        return Ok(Opened::Expired { rewound: true });
    }
    match Watch::open(client, spec, &Begin::After(cursor.clone())).await {
        Ok(watch) => Ok(Opened::Watch(watch)),
        Err(WatchError::Expired { .. }) => Ok(Opened::Expired { rewound: false }),
        Err(error) => Err(error),
    }
}

async fn source_version(client: &Client, spec: &WatchSpec) -> Result<ResourceVersion, WatchError> {
    match tokio::time::timeout(VERSION_DEADLINE, list_page(client, spec, 1, None)).await {
        Ok(page) => page.map(|page| page.rv),
        Err(_) => Err(WatchError::Silent { seconds: VERSION_DEADLINE.as_secs() }),
    }
}

fn went_back(cursor: &ResourceVersion, current: &ResourceVersion) -> bool {
    match (cursor.number(), current.number()) {
        (Some(cursor), Some(current)) => current < cursor,
        (None, _) | (_, None) => false,
    }
}

/// Counts an ended watch; true if it ended as watches do, and is to be opened again at once.
pub(super) fn ended_as_usual(error: &WatchError) -> bool {
    let (reason, usual) = match error {
        WatchError::Expired { .. } => ("expired", false),
        WatchError::Closed => ("closed", true),
        // A connection that died unnoticed. If nobody answers, opening the next one says so.
        WatchError::Silent { .. } => ("silent", true),
        WatchError::Forbidden { .. } => ("forbidden", false),
        WatchError::NotServed { .. } => ("not_served", false),
        WatchError::NoStreamingList { .. } | WatchError::Failed { .. } => ("failed", false),
    };
    metrics::counter!(metric::WATCH_ENDS, "reason" => reason).increment(1);
    usual
}

/// Failures of one source in a row: how long to wait, and what to say.
pub(super) struct Trouble {
    dice: Dice,
    failures: u32,
}

impl Trouble {
    pub(super) fn new() -> Self {
        Self { dice: Dice::new(rand::random()), failures: 0 }
    }

    pub(super) fn is_over(&mut self) {
        self.failures = 0;
    }

    /// A little while, so that watches that end together do not begin together.
    pub(super) fn spread(&mut self) -> Duration {
        Duration::from_millis(self.dice.between(0, 300))
    }

    /// Somewhere between half of it and all of it.
    pub(super) fn about(&mut self, millis: u64) -> Duration {
        Duration::from_millis(self.dice.between(millis / 2, millis))
    }

    /// Notes a failure: when to try again, and the health to show meanwhile.
    pub(super) fn next(&mut self, watch: &WatchKey, error: &WatchError) -> (Instant, WatchHealth) {
        self.failures += 1;
        let (reason, longest) = match error {
            // An API server that has just started forbids everything until it has read its roles.
            WatchError::Forbidden { .. } => (NOT_PERMITTED, 500 << self.failures.min(7)),
            // Short enough to follow a type again soon after it was installed again, long enough not to be a load.
            WatchError::NotServed { .. } => (FAILED, 4_000),
            WatchError::Closed
            | WatchError::Expired { .. }
            | WatchError::NoStreamingList { .. }
            | WatchError::Silent { .. }
            | WatchError::Failed { .. } => (FAILED, 500 << self.failures.min(6)),
        };
        let pause = self.about(longest.min(60_000));
        // The same trouble is told less and less often.
        if self.failures.is_power_of_two() {
            tracing::warn!(%watch, %error, retry = ?pause, "a watch cannot run");
        } else {
            tracing::debug!(%watch, %error, retry = ?pause, "a watch cannot run");
        }
        (Instant::now() + pause, WatchHealth::Blocked { reason, message: error.to_string() })
    }
}

/// Counts an open watch while it lives.
pub(super) struct Counted(&'static str);

impl Counted {
    pub(super) fn new(mode: &'static str) -> Self {
        metrics::gauge!(metric::WATCHES_OPEN, "mode" => mode).increment(1.0);
        Self(mode)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        metrics::gauge!(metric::WATCHES_OPEN, "mode" => self.0).decrement(1.0);
    }
}

#[cfg(test)]
mod tests {
    use upriver_model::{Gvr, Scope};

    use super::*;

    #[test]
    fn what_is_forbidden_for_a_moment_costs_a_moment_and_for_long_is_asked_rarely() {
        let watch = WatchKey {
            cluster: "local".into(),
            gvr: Gvr::new("", "v1", "configmaps"),
            scope: Scope::Cluster,
        };
        let error = WatchError::Forbidden { message: "not yet".to_owned() };
        let mut trouble = Trouble::new();
        let mut pause = || trouble.next(&watch, &error).0 - Instant::now();
        assert!(pause() <= Duration::from_secs(1), "an API server that has just started knows no roles yet");
        let tenth = (0..9).map(|_| pause()).last().expect("nine more");
        assert!(tenth > Duration::from_secs(25), "{tenth:?}");
    }
}
