//! Cycle after cycle: edits, faults, rest, judgement. In: the settings. Out: the [`Report`].

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::watch;
use tokio::time::Instant;
use upriver_testkit::try_eventually;

use crate::bound::{Progress, supervise};
use crate::driver::{Driver, World};
use crate::faults::{Cast, Done, Note};
use crate::fleet::Fleet;
use crate::history::Finding;
use crate::judge::{self, Judge, Rest};
use crate::links::{LINKS, PEERS};
use crate::report::{Report, millis};
use crate::schedule::{Cycle, Kind, Setup};
use crate::witness::Witness;
use crate::{Cli, Failure};

/// Edits go on for so long, at most, so that a successor has something to commit.
const SUCCESSOR_WITHIN: Duration = Duration::from_secs(30);
/// The first start on a machine builds servers.
const STARTED_WITHIN: Duration = Duration::from_secs(900);
/// For what a cycle waits for beside edits, successors and rest: servers that start again, people who retry, the judge.
const CYCLE_SLACK: Duration = Duration::from_secs(180);
/// Replicas end in good order, one after the other.
const ENDED_WITHIN: Duration = Duration::from_secs(180);

/// Runs all cycles, in bounded time.
///
/// # Errors
/// If there is no folder for the files of all processes.
pub(crate) async fn run(cli: Cli) -> Result<Report, Failure> {
    let begun = Instant::now();
    let folder = Folder::new(cli.dir.clone())?;
    let doing = "at the start".to_owned();
    let (told, progress) =
        watch::channel(Progress { report: Report::new(cli.seed), doing, until: begun + STARTED_WITHIN });
    let dir = folder.path().to_owned();
    // On a thread of its own: the judge reads repositories with a `git` that it waits for.
    let runtime = tokio::runtime::Handle::current();
    let lane = tokio::task::spawn_blocking(move || runtime.block_on(all_cycles(&cli, &dir, &told)));
    let mut report = supervise(lane, progress).await;
    report.seconds = begun.elapsed().as_secs();
    if !report.is_good() {
        println!("logs and data of all processes are in {}", folder.keep().display());
    }
    Ok(report)
}

async fn all_cycles(cli: &Cli, dir: &Path, told: &watch::Sender<Progress>) -> Result<Report, Failure> {
    let fleet = Arc::new(Fleet::start(usize::from(cli.replicas), dir).await?);
    if cli.only == Some(Kind::Clock) && !fleet.can_shift_clocks() {
        return Err("there is nothing else to do with --only clock".into());
    }
    let mut kubelets = fleet.keep_running();
    let setup = Setup { replicas: fleet.replicas.len(), branches: fleet.branches.len() };
    for (index, branch) in fleet.branches.iter().enumerate() {
        println!("branch {index} is {} of {}", branch.name, branch.repo);
    }
    let mut lane = Lane {
        world: Arc::new(World::new(&fleet)),
        witness: Witness::start(&fleet),
        judge: Judge::default(),
        notes: Mutex::default(),
        report: Report::new(cli.seed),
        rate: cli.rate,
        rest: cli.rest(),
        fleet,
    };
    for number in cli.numbers() {
        let mut cycle = Cycle::draw(cli.seed, number, cli.only, &setup);
        println!("{cycle}");
        if !lane.fleet.can_shift_clocks() {
            cycle.faults.retain(|fault| fault.kind != Kind::Clock);
        }
        let before = lane.report.clone();
        let most = cycle.edits + 2 * SUCCESSOR_WITHIN + lane.rest + CYCLE_SLACK;
        told.send_replace(Progress {
            report: before.clone(),
            doing: cycle.to_string(),
            until: Instant::now() + most,
        });
        lane.cycle(&cycle).await?;
        if !lane.report.is_good_since(&before) {
            println!("FAILED: seed {}, {cycle}", cli.seed);
            println!("again: {}", cli.again(number));
            if !cli.keep_going {
                break;
            }
        }
    }
    told.send_replace(Progress {
        report: lane.report.clone(),
        doing: "at the end".to_owned(),
        until: Instant::now() + ENDED_WITHIN,
    });
    lane.finish();
    kubelets.shutdown().await;
    Ok(lane.report)
}

/// Where everything lives.
enum Folder {
    Given(PathBuf),
    Temporary(TempDir),
}

impl Folder {
    fn new(given: Option<PathBuf>) -> Result<Self, Failure> {
        Ok(match given {
            Some(path) => Self::Given(path),
            None => Self::Temporary(tempfile::Builder::new().prefix("upriver-chaos-").tempdir()?),
        })
    }

    fn path(&self) -> &Path {
        match self {
            Self::Given(path) => path,
            Self::Temporary(dir) => dir.path(),
        }
    }

    fn keep(self) -> PathBuf {
        match self {
            Self::Given(path) => path,
            Self::Temporary(dir) => dir.keep(),
        }
    }
}

/// All that lasts from cycle to cycle.
struct Lane {
    world: Arc<World>,
    // Before the fleet: it looks at it.
    witness: Witness,
    judge: Judge,
    notes: Mutex<Vec<Note>>,
    report: Report,
    rate: u32,
    rest: Duration,
    fleet: Arc<Fleet>,
}

impl Lane {
    async fn cycle(&mut self, cycle: &Cycle) -> Result<(), Failure> {
        let master_before = self.master().await;
        let begun = Instant::now();
        let driver = Driver::start(&self.world, cycle.dice, self.rate);
        let cast = Cast { fleet: &self.fleet, witness: &self.witness, notes: &self.notes };
        let done = cast.run(&cycle.faults).await?;
        self.time_departures(&done, cycle).await;
        tokio::time::sleep(cycle.edits.saturating_sub(begun.elapsed())).await;
        driver.stop().await;

        self.report.cycles += 1;
        for Done { kind, .. } in &done {
            *self.report.faults.entry(kind.name()).or_default() += 1;
        }
        self.judge_rest().await;
        let lossy = |done: &Done| matches!(done.kind, Kind::RedisFlush | Kind::RedisFailover);
        let lost_some = done.iter().any(lossy) || self.master().await != master_before;
        self.judge_history(lost_some).await;
        let wrong = [self.fleet.take_mishaps(), self.witness.take_wrong()].concat();
        for text in &wrong {
            println!("  WRONG: {text}");
        }
        self.report.mishaps += wrong.len() as u64;
        let memory = (0..self.fleet.replicas.len()).map(|index| self.fleet.operator(index).rss_mb()).max();
        self.report.max_rss_mb = self.report.max_rss_mb.max(memory.unwrap_or(0));
        let counts = self.world.counts();
        (self.report.edits, self.report.deletes) = (counts.edits, counts.deletes);
        self.report.commits = self.judge.commits;
        Ok(())
    }

    /// Address of the Redis that the Sentinels name.
    async fn master(&self) -> Option<String> {
        self.fleet.sentinels.master_now().await.map(upriver_testkit::RedisServer::addr)
    }

    /// How long branches stood still. Edits are going on, so that their new owners have something to commit. Two faults at
    /// once would time something else.
    async fn time_departures(&mut self, done: &[Done], cycle: &Cycle) {
        for Done { kind, departure } in done {
            let Some(departure) = departure else { continue };
            let seen = async || self.witness.gaps(departure);
            let Ok(gaps) = try_eventually("a successor's commit", SUCCESSOR_WITHIN, seen).await else {
                println!("  {} left, and no successor committed in time", departure.holder);
                continue;
            };
            let longest = gaps.iter().max().copied().unwrap_or_default();
            println!("  {} branches stood still for {} ms at most", gaps.len(), millis(longest));
            if cycle.overlaps() {
                continue;
            }
            match kind {
                Kind::Kill => self.report.takeover_times.extend(gaps),
                _ => self.report.handover_times.extend(gaps),
            }
        }
    }

    async fn judge_rest(&mut self) {
        let notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match judge::settle(&self.fleet, &notes, self.rest).await {
            Ok(Rest { took, last }) => {
                let last =
                    last.as_deref().and_then(|text| text.lines().next()).unwrap_or("nothing was wrong");
                println!("  at rest after {:.1} s; before: {last}", took.as_secs_f64());
                self.report.slowest_rest_ms = self.report.slowest_rest_ms.max(millis(took));
            }
            Err(unrest) => {
                unrest.first().iter().for_each(|text| println!("  {text}"));
                self.report.lost += unrest.lost.len() as u64;
                self.report.deletes_lost += unrest.deletes_lost.len() as u64;
                self.report.mishaps += unrest.other.len() as u64;
            }
        }
    }

    async fn judge_history(&mut self, lost_some: bool) {
        for finding in self.judge.read_on(&self.fleet, &self.world).await {
            match finding {
                Finding::Duplicate(text) => {
                    println!("  TWICE: {text}");
                    self.report.duplicates += 1;
                }
                Finding::Back(text) if lost_some => {
                    println!("  went back after a loss in Redis: {text}");
                    self.report.reverts_after_loss += 1;
                }
                Finding::Broken(text) => {
                    println!("  WRONG: {text}");
                    self.report.mishaps += 1;
                }
                Finding::Back(text) | Finding::Stale(text) => {
                    println!("  STALE: {text}");
                    self.report.stale_overwrites += 1;
                }
            }
        }
    }

    /// What is judged once.
    fn finish(&mut self) {
        let mut wrong = judge::complaints(&self.fleet);
        if self.report.edits == 0 || self.report.commits == 0 {
            wrong.push("nobody edited, or nothing was committed: this run proves nothing".to_owned());
        }
        wrong.extend(self.unused_links());
        for text in &wrong {
            println!("WRONG: {text}");
        }
        self.report.mishaps += wrong.len() as u64;
    }

    /// A link that nothing went over was not under test. Other replicas call one only where it owns what they watch: it is
    /// enough that somebody was called.
    fn unused_links(&self) -> Vec<String> {
        let mut unused = Vec::new();
        for (place, link) in LINKS.iter().enumerate() {
            let opened: Vec<u64> =
                self.fleet.replicas.iter().map(|replica| replica.links.opened()[place]).collect();
            if link.name == PEERS {
                if opened.iter().all(|opened| *opened == 0) {
                    unused.push("no replica ever called another one".to_owned());
                }
                continue;
            }
            let idle = opened.iter().enumerate().filter(|(_, opened)| **opened == 0);
            unused.extend(
                idle.map(|(index, _)| format!("replica {index} never used its link to {}", link.name)),
            );
        }
        unused
    }
}
