//! What do the two lists of moments say together?

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use clap::ValueEnum as _;
use serde::Serialize;

use crate::Cli;
use crate::arrivals::Arrivals;
use crate::traffic::Accepted;

/// What the run cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// CPU seconds of the operator.
    pub(crate) cpu_s: f64,
    /// Its memory at the end.
    pub(crate) rss_mb: u64,
    /// Commits that were made.
    pub(crate) commits: usize,
}

/// All figures of a run; serialised in this order.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    lane: &'static str,
    scenario: String,
    edits: usize,
    in_git: usize,
    pub(crate) lost: usize,
    accept_per_s: f64,
    last_accept_to_last_in_git_s: f64,
    p50_s: f64,
    p90_s: f64,
    p99_s: f64,
    commits: usize,
    operator_cpu_s: f64,
    operator_rss_mb: u64,
}

impl Report {
    /// Joins accepted changes with the files that arrived. A change whose file is missing or differs is lost.
    pub(crate) fn new(
        cli: &Cli,
        accepted: &Accepted,
        arrived: &Arrivals,
        wrong: &[String],
        cost: &Cost,
        file_of: impl Fn(&str) -> String,
    ) -> Self {
        let wrong: BTreeSet<&str> = wrong.iter().map(String::as_str).collect();
        let mut delays = Vec::with_capacity(accepted.at.len());
        let mut last = accepted.last();
        for (name, at) in &accepted.at {
            let file = file_of(name);
            if let Some(seen) = arrived.get(&file).filter(|_| !wrong.contains(file.as_str())) {
                delays.push(seen.saturating_duration_since(*at));
                last = last.max(*seen);
            }
        }
        delays.sort_unstable();
        let edits = accepted.at.len();
        let scenario = cli.scenario.to_possible_value().map(|value| value.get_name().to_owned());
        Self {
            lane: "load",
            scenario: scenario.unwrap_or_default(),
            edits,
            in_git: delays.len(),
            lost: edits - delays.len(),
            accept_per_s: round(per_second(edits, accepted.took()), 1),
            last_accept_to_last_in_git_s: seconds(last.saturating_duration_since(accepted.last())),
            p50_s: seconds(percentile(&delays, 50)),
            p90_s: seconds(percentile(&delays, 90)),
            p99_s: seconds(percentile(&delays, 99)),
            commits: cost.commits,
            operator_cpu_s: round(cost.cpu_s, 2),
            operator_rss_mb: cost.rss_mb,
        }
    }

    pub(crate) fn for_people(&self) -> String {
        let mut text = String::from("\n");
        let mut line = |what: &str, value: String| {
            let _ = writeln!(text, "{what:<34} {value}");
        };
        line("changes accepted", format!("{} at {}/s", self.edits, self.accept_per_s));
        line("of these in Git, as they live", self.in_git.to_string());
        line("lost", self.lost.to_string());
        line("last accepted to last in Git", format!("{} s", self.last_accept_to_last_in_git_s));
        line("accepted to in Git, p50/p90/p99", format!("{}/{}/{} s", self.p50_s, self.p90_s, self.p99_s));
        line("commits", self.commits.to_string());
        line("CPU of the operator", format!("{} s", self.operator_cpu_s));
        line("memory of the operator", format!("{} MiB", self.operator_rss_mb));
        text
    }

    pub(crate) fn for_machines(&self) -> String {
        serde_json::to_string(self).expect("figures and names are always JSON")
    }
}

/// The smallest delay that so many percent do not exceed; zero of nothing.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

fn per_second(count: usize, took: Duration) -> f64 {
    let count = u32::try_from(count).map_or(f64::MAX, f64::from);
    count / took.as_secs_f64().max(0.001)
}

fn seconds(duration: Duration) -> f64 {
    round(duration.as_secs_f64(), 3)
}

fn round(value: f64, digits: i32) -> f64 {
    let factor = 10_f64.powi(digits);
    (value * factor).round() / factor
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_delay_that_occurred() {
        let delays: Vec<Duration> = (1..=10).map(Duration::from_secs).collect();
        assert_eq!(percentile(&delays, 50), Duration::from_secs(5));
        assert_eq!(percentile(&delays, 90), Duration::from_secs(9));
        assert_eq!(percentile(&delays, 99), Duration::from_secs(10));
        assert_eq!(percentile(&delays[..1], 50), Duration::from_secs(1));
        assert_eq!(percentile(&[], 50), Duration::ZERO);
    }
}
