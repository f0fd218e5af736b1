//! How long does a change take from the API server to Git, what does it cost, and is any lost?
//!
//! In: a scenario. Out: text for people, and as the last line one JSON object for machines; the exit code is 0 only if
//! nothing was lost. [`traffic`] makes the changes and notes when the API server accepted each, [`arrivals`] watches
//! the repository and notes when each is in it, [`report`] puts the two together. Contents are compared by the testkit,
//! which reads both ends itself. Figures depend on the machine: compare only what was measured in one run.

mod arrivals;
mod report;
mod traffic;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use upriver_testkit::stack::{MirrorSpec, Problem, Progress, resources};
use upriver_testkit::{Mirror, RedisOptions, Stack, StackOptions};

use report::{Cost, Report};

/// Namespace that gets the objects.
const NAMESPACE: &str = "load";

/// How changes come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scenario {
    /// As fast as the API server takes them.
    Burst,
    /// At an even rate.
    Steady,
}

/// Makes many changes at once and measures how they reach Git.
#[derive(Clone, Debug, Parser)]
#[command(name = "upriver-loadtest", version, about)]
struct Cli {
    /// How changes come.
    #[arg(long, value_enum, default_value = "burst")]
    scenario: Scenario,
    /// How many objects are created [default: 3000 for burst, 200 for steady].
    #[arg(long)]
    count: Option<usize>,
    /// `push.commitWindow` of the repository.
    #[arg(long, default_value = "1s")]
    window: String,
    /// Changes per second, for steady.
    #[arg(long, default_value_t = 50)]
    rate: u32,
    /// Requests in flight at once.
    #[arg(long, default_value_t = 32)]
    in_flight: usize,
    /// How many people make the changes in turn, 1 to 3 [default: 1 for burst, 2 for steady].
    #[arg(long)]
    users: Option<usize>,
    /// Seconds to wait for the last change after it was accepted.
    #[arg(long, default_value_t = 300)]
    timeout: u64,
    /// Further flag of `upriver run`; may be repeated.
    #[arg(long = "operator-flag", allow_hyphen_values = true)]
    operator_flags: Vec<String>,
}

impl Cli {
    fn count(&self) -> usize {
        self.count.unwrap_or(match self.scenario {
            Scenario::Burst => 3000,
            Scenario::Steady => 200,
        })
    }

    fn users(&self) -> usize {
        let default = match self.scenario {
            Scenario::Burst => 1,
            Scenario::Steady => 2,
        };
        self.users.unwrap_or(default).clamp(1, traffic::PEOPLE.len())
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a process that cannot start threads cannot start servers");
    match runtime.block_on(run(&cli)) {
        Ok(report) => {
            print!("{}", report.for_people());
            println!("{}", report.for_machines());
            if report.lost == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("upriver-loadtest: {error}");
            ExitCode::FAILURE
        }
    }
}

type Failure = Box<dyn std::error::Error>;

async fn run(cli: &Cli) -> Result<Report, Failure> {
    let (stack, mirror) = start(cli).await?;
    let operator = stack.operator(0);
    let (cpu_before, commits_before) = (operator.cpu_seconds(), commits(&stack, &mirror));
    println!("creating {} ConfigMaps, {:?}", cli.count(), cli.scenario);

    let watcher = arrivals::Watcher::start(&stack, &mirror, cli.count());
    let accepted = traffic::run(&stack, cli).await?;
    println!("accepted in {:.1} s; waiting for the last in Git", accepted.took().as_secs_f64());
    let arrived = watcher.finish(Duration::from_secs(cli.timeout)).await;
    let cost = Cost {
        cpu_s: operator.cpu_seconds() - cpu_before,
        rss_mb: operator.rss_mb(),
        commits: commits(&stack, &mirror) - commits_before,
    };
    let wrong = wrong_files(&stack, &mirror).await;
    let report = Report::new(cli, &accepted, &arrived, &wrong, &cost, |name| {
        mirror.file_of(&resources::config_maps(), name)
    });
    if report.lost > 0 {
        eprintln!("{}", stack.operator_logs());
    }
    Ok(report)
}

async fn start(cli: &Cli) -> Result<(Stack, Mirror), Failure> {
    let flags: Vec<&str> = cli.operator_flags.iter().map(String::as_str).collect();
    // What a production Redis does; the default of the testkit waits for the disk on every write.
    let redis = RedisOptions { append_fsync: "everysec".into(), ..RedisOptions::default() };
    let options = StackOptions { redis, progress, ..StackOptions::default() }.operators(1, &flags);
    let stack = Stack::try_start(options).await?;
    let spec = MirrorSpec::new(NAMESPACE).types([resources::config_maps()]).commit_window(&cli.window);
    let begun = Instant::now();
    let mirror = stack.try_mirror(spec).await?;
    println!("target and rule ready in {:.1} s", begun.elapsed().as_secs_f64());
    Ok((stack, mirror))
}

fn progress(progress: Progress<'_>) {
    match progress {
        Progress::Starting(what) => println!("starting {what}"),
        Progress::Ready(took) => println!("  ready in {:.1} s", took.as_secs_f64()),
    }
}

fn commits(stack: &Stack, mirror: &Mirror) -> usize {
    stack.repo().count_commits(&mirror.spec.branch)
}

/// Files that are not as their objects live. The first few are shown.
async fn wrong_files(stack: &Stack, mirror: &Mirror) -> Vec<String> {
    let differences = stack.differences(mirror).await;
    for difference in differences.iter().take(5) {
        eprintln!("NOT AS IT LIVES: {difference}");
    }
    let leftovers = differences.iter().filter(|difference| difference.problem == Problem::Leftover).count();
    if leftovers > 0 {
        eprintln!("{leftovers} files belong to no object");
    }
    differences.into_iter().map(|difference| difference.path).collect()
}
