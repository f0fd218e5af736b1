//! What does a run come to? In: verdicts and times. Out: a line for machines, and the exit code's reason.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

/// All figures of a run; serialised in this order.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) lane: &'static str,
    pub(crate) cycles: u64,
    pub(crate) seed: u64,
    pub(crate) edits: u64,
    pub(crate) deletes: u64,
    pub(crate) commits: u64,
    /// Objects whose last state was not in Git at the end of a cycle, and people's files that were gone.
    pub(crate) lost: u64,
    /// Files whose object was gone.
    pub(crate) deletes_lost: u64,
    pub(crate) duplicates: u64,
    pub(crate) stale_overwrites: u64,
    /// Those in cycles in which Redis lost, or may have lost, part of the journal.
    pub(crate) reverts_after_loss: u64,
    /// Whatever else was wrong: not at rest in time, a replica that ended by itself, an epoch that fell.
    pub(crate) mishaps: u64,
    /// Owner killed to the first commit of its successor, `null` if no cycle had that alone.
    pub(crate) takeover_p99_ms: Option<u64>,
    pub(crate) takeovers: usize,
    /// Owner asked to end to the first commit of its successor.
    pub(crate) handover_p99_ms: Option<u64>,
    pub(crate) handovers: usize,
    /// Longest wait for rest.
    pub(crate) slowest_rest_ms: u64,
    pub(crate) max_rss_mb: u64,
    pub(crate) faults: BTreeMap<String, u64>,
    pub(crate) seconds: u64,
    #[serde(skip)]
    pub(crate) takeover_times: Vec<Duration>,
    #[serde(skip)]
    pub(crate) handover_times: Vec<Duration>,
}

impl Report {
    pub(crate) fn new(seed: u64) -> Self {
        Self { lane: "chaos", seed, ..Self::default() }
    }

    /// True if nothing of what must not be was.
    pub(crate) fn is_good(&self) -> bool {
        self.bad() == [0; 5]
    }

    /// True if nothing was added to that since.
    pub(crate) fn is_good_since(&self, before: &Self) -> bool {
        self.bad() == before.bad()
    }

    fn bad(&self) -> [u64; 5] {
        [self.lost, self.deletes_lost, self.duplicates, self.stale_overwrites, self.mishaps]
    }

    /// The line for machines.
    pub(crate) fn line(mut self) -> String {
        (self.takeover_p99_ms, self.takeovers) =
            (p99_ms(&mut self.takeover_times), self.takeover_times.len());
        (self.handover_p99_ms, self.handovers) =
            (p99_ms(&mut self.handover_times), self.handover_times.len());
        serde_json::to_string(&self).expect("figures and names are always JSON")
    }
}

/// A duration in whole milliseconds.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The smallest time that 99 of 100 do not exceed: with less than a hundred the longest.
fn p99_ms(times: &mut [Duration]) -> Option<u64> {
    times.sort_unstable();
    let rank = (times.len() * 99).div_ceil(100);
    times.get(rank.checked_sub(1)?).copied().map(millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_time_that_occurred() {
        let mut times: Vec<Duration> = (1..=200).rev().map(Duration::from_millis).collect();
        assert_eq!(p99_ms(&mut times), Some(198));
        assert_eq!(p99_ms(&mut times[..3]), Some(3));
        assert_eq!(p99_ms(&mut []), None);
    }

    #[test]
    fn reverts_after_a_loss_alone_are_not_failure() {
        let report = Report { reverts_after_loss: 3, ..Report::new(1) };
        assert!(report.is_good());
        assert!(!Report { mishaps: 1, ..Report::new(1) }.is_good());
        assert!(!Report { duplicates: 1, ..Report::new(1) }.is_good());
    }
}
