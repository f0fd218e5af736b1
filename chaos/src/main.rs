//! Is anything lost, repeated or set back when parts of a real fleet fail?
//!
//! In: a number of cycles and a seed. Out: what happened in words, and as the last line one JSON object for machines; the
//! exit code is 0 only if nothing was lost, repeated or set back and each cycle came to rest. A cycle is some seconds of
//! edits ([`driver`]) with one or two faults ([`schedule`], [`faults`]) on a fleet of real processes ([`fleet`]) whose
//! every link ([`links`]) can fail; then rest is waited for and all is judged ([`judge`], [`history`], [`witness`]). Nothing
//! is waited for without end ([`bound`]).

mod bound;
mod driver;
mod faults;
mod fleet;
mod history;
mod judge;
mod links;
mod report;
mod run;
mod schedule;
mod witness;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use schedule::Kind;

/// Why the lane itself could not go on.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Breaks parts of a real fleet while people edit, and judges what is in Git afterwards.
#[derive(Clone, Debug, Parser)]
#[command(name = "upriver-chaos", version, about)]
struct Cli {
    /// How many cycles.
    #[arg(long, default_value_t = 20)]
    cycles: u64,
    /// What happens when is made of this number.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only this cycle of the run with that seed, from 0, with new servers.
    #[arg(long)]
    cycle: Option<u64>,
    /// Only faults of this kind, for example `freeze`; a wrong word shows them all.
    #[arg(long, value_parser = kind)]
    only: Option<Kind>,
    /// Replicas of the operator.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=9))]
    replicas: u16,
    /// Edits per second, of all people together.
    #[arg(long, default_value_t = 25)]
    rate: u32,
    /// Longest wait for rest after a cycle, seconds. A backoff of a minute may have begun in it.
    #[arg(long, default_value_t = 150)]
    rest: u64,
    /// Go on after a cycle that failed.
    #[arg(long)]
    keep_going: bool,
    /// Folder for data and logs of all processes, kept; else a temporary one, kept only after a failure.
    #[arg(long)]
    dir: Option<PathBuf>,
}

impl Cli {
    fn numbers(&self) -> std::ops::Range<u64> {
        self.cycle.map_or(0..self.cycles, |number| number..number + 1)
    }

    fn rest(&self) -> Duration {
        Duration::from_secs(self.rest)
    }

    /// The command for one cycle of this run alone.
    fn again(&self, number: u64) -> String {
        let only = self.only.map(|kind| format!(" --only {}", kind.name())).unwrap_or_default();
        let Self { seed, replicas, rate, .. } = self;
        format!("upriver-chaos --seed {seed} --replicas {replicas} --rate {rate}{only} --cycle {number}")
    }
}

fn kind(name: &str) -> Result<Kind, String> {
    let kinds = Kind::all();
    let names: Vec<String> = kinds.iter().map(|kind| kind.name()).collect();
    let found = kinds.into_iter().find(|kind| kind.name() == name);
    found.ok_or_else(|| format!("use one of {}", names.join(", ")))
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a process that cannot start threads cannot start servers");
    let ended = runtime.block_on(run::run(cli));
    // A thread that hangs must not hold up the end.
    runtime.shutdown_background();
    match ended {
        Ok(report) => {
            let good = report.is_good();
            println!("{}", report.line());
            if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("upriver-chaos: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_can_be_named_and_other_words_show_them_all() {
        for wanted in Kind::all() {
            assert_eq!(kind(&wanted.name()), Ok(wanted));
        }
        let told = kind("earthquake").expect_err("no such kind");
        assert!(told.contains("partition-redis") && told.contains("freeze"), "{told}");
    }

    #[test]
    fn a_cycle_is_run_again_with_the_same_settings() {
        let cli = Cli::parse_from(["upriver-chaos", "--seed", "5", "--only", "kill", "--cycles", "9"]);
        let again = "upriver-chaos --seed 5 --replicas 3 --rate 25 --only kill --cycle 4";
        assert_eq!(cli.again(4), again);
        assert_eq!(Cli::parse_from(again.split(' ')).only, Some(Kind::Kill));
    }

    #[test]
    fn one_cycle_alone_or_all_of_them() {
        let numbers = |args: &[&str]| Cli::parse_from([&["upriver-chaos"], args].concat()).numbers();
        assert_eq!(numbers(&["--cycles", "3"]), 0..3);
        assert_eq!(numbers(&["--cycle", "7"]), 7..8);
    }
}
