//! Starts everything, lets two people work, and shows what came out in Git.
//!
//! In: a machine with the servers of `upriver_testkit`. Out: text for people, and as the last line one JSON object for
//! machines. The exit code is 0 only if every edit is in Git.

pub mod keep;
pub mod story;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use serde::Serialize;
use upriver_testkit::stack::{MirrorSpec, Progress};
use upriver_testkit::{Mirror, Stack, StackOptions};

use story::Told;

/// Namespace in which the story plays.
const NAMESPACE: &str = "shop";

/// The demo: changes of two people in a real cluster become commits in a real repository.
#[derive(Debug, Parser)]
#[command(name = "upriver-demo", version, about)]
pub struct Cli {
    /// Leave everything running in the background, and print how to use it.
    #[arg(long, conflicts_with = "down")]
    keep: bool,
    /// End what `--keep` left running.
    #[arg(long)]
    down: bool,
    /// Folder for what `--keep` leaves running.
    #[arg(long, default_value = ".run")]
    state: PathBuf,
    /// Be what `--keep` leaves running.
    #[arg(long, hide = true)]
    hold: bool,
}

/// The whole program.
#[must_use]
pub fn main(cli: &Cli) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a process that cannot start threads cannot start servers");
    let ended = runtime.block_on(async {
        if cli.down {
            keep::down(&cli.state)
        } else if cli.hold {
            keep::hold(&cli.state).await
        } else if cli.keep {
            keep::up(&cli.state).await
        } else {
            play().await
        }
    });
    match ended {
        Ok(code) => code,
        Err(error) => {
            eprintln!("upriver-demo: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The last line; serialised in this order.
#[derive(Debug, Serialize)]
struct Verdict {
    lane: &'static str,
    edits: usize,
    in_git: usize,
    lost: usize,
    commits: usize,
    seconds: f64,
}

/// What stops a demo, in words.
type Failure = Box<dyn std::error::Error>;

async fn play() -> Result<ExitCode, Failure> {
    let begun = Instant::now();
    let (stack, mirror) = start(None).await?;
    let told = story::tell(&stack, &mirror).await?;
    show(&stack, &mirror);
    step("ending the operator, which hands over first", async {
        for operator in stack.operators() {
            operator.terminate().await;
        }
        Ok(())
    })
    .await?;
    let Told { edits, lost } = told;
    let commits = stack.repo().count_commits(&mirror.spec.branch);
    drop(stack);
    let seconds = (begun.elapsed().as_secs_f64() * 10.0).round() / 10.0;
    let verdict = Verdict { lane: "demo", edits, in_git: edits - lost, lost, commits, seconds };
    println!("{}", serde_json::to_string(&verdict)?);
    Ok(if lost == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// All parts, and a mirror of the namespace.
async fn start(dir: Option<PathBuf>) -> Result<(Stack, Mirror), Failure> {
    let stack = Stack::try_start(StackOptions { dir, progress, ..StackOptions::default() }).await?;
    let spec = MirrorSpec::new(NAMESPACE).path("live");
    let what = format!("mirroring namespace {NAMESPACE} to folder {} of branch {}", spec.path, spec.branch);
    let mirror = step(&what, async { Ok(stack.try_mirror(spec).await?) }).await?;
    Ok((stack, mirror))
}

fn progress(progress: Progress<'_>) {
    match progress {
        Progress::Starting(what) => announce(&format!("starting {what}")),
        Progress::Ready(took) => println!("ready in {:.1} s", took.as_secs_f64()),
    }
}

/// Announces a step, and says how long it took.
async fn step<T>(what: &str, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    announce(what);
    let begun = Instant::now();
    let done = work.await?;
    println!("done in {:.1} s", begun.elapsed().as_secs_f64());
    Ok(done)
}

fn announce(what: &str) {
    print!("{what}… ");
    // Lost output is no reason to stop.
    let _ = std::io::stdout().flush();
}

fn show(stack: &Stack, mirror: &Mirror) {
    let repo = stack.repo();
    let branch = mirror.spec.branch.as_str();
    println!("\n$ git log --stat -n 5 {branch}");
    println!("{}", repo.git(&["log", "--stat", "-n", "5", branch]));
    let file = mirror.file_of(&upriver_testkit::stack::resources::deployments(), story::WEB);
    println!("$ git show {branch}:{file}");
    println!("{}", repo.show(branch, &file).unwrap_or_else(|| "(there is no such file)\n".into()));
}
