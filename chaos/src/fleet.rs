//! What runs, and does each replica run that should?
//!
//! In: how many replicas, a folder. Out: real servers, replicas behind their own proxies, targets on several branches, and
//! for each replica a task that does what a kubelet does: it starts what should run and does not. A replica that ends by
//! itself is a mishap, except while it is still starting under a fault: without an API server it cannot start, says so and
//! ends, as many operators do. Absent: faults themselves, see [`crate::faults`].

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use upriver_model::Gvr;
use upriver_testkit::git_server::git;
use upriver_testkit::redis::SentinelTiming;
use upriver_testkit::stack::{MirrorSpec, Progress, resources};
use upriver_testkit::{Mirror, Operator, OperatorOptions, SentinelSet, Signal, Stack, StackOptions, User};

use crate::Failure;
use crate::links::{Ends, ReplicaLinks};

/// A second repository beside the stack's own.
const SECOND: &str = "second";
/// How often a kubelet looks.
const LOOK: Duration = Duration::from_millis(200);
/// Pause before a replica that could not start is tried again.
const START_PAUSE: Duration = Duration::from_secs(1);
/// Longest orderly end; the shipped Deployment grants as much.
const GRACE: Duration = Duration::from_secs(30);
const READY_WITHIN: Duration = Duration::from_secs(90);
/// Waits that are minutes by default, and would make up most of a cycle.
const QUICK: [&str; 3] = ["--fence-after=3s", "--drift-poll-interval=2s", "--git-timeout=5s"];
/// Debian's build of libfaketime for programs with threads, below a folder that is named after the machine's kind.
const FAKETIME: &str = "faketime/libfaketimeMT.so.1";

/// A branch of a repository: what one replica owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Branch {
    /// Name of the repository.
    pub(crate) repo: String,
    /// Name of the branch.
    pub(crate) name: String,
    /// How its claim spells it.
    pub(crate) about: String,
}

/// What the task of a replica knows of it.
#[derive(Debug, Default)]
struct Life {
    /// It should not run at present.
    down: bool,
    /// It was started, and nobody has seen it end.
    started: bool,
    /// It was ready since it was started.
    ready: bool,
    /// Something was wrong with the fleet since it was started.
    troubled: bool,
}

/// A replica beside its [`Operator`].
pub(crate) struct Replica {
    pub(crate) links: ReplicaLinks,
    life: Mutex<Life>,
}

/// Everything that runs.
pub(crate) struct Fleet {
    pub(crate) replicas: Vec<Replica>,
    pub(crate) mirrors: Vec<Mirror>,
    pub(crate) branches: Vec<Branch>,
    pub(crate) stack: Stack,
    pub(crate) sentinels: SentinelSet,
    /// What the clock of the last replica is off by; absent where no program can shift it.
    clock: Option<PathBuf>,
    /// Processes that were started with a clock of their own.
    faked: Mutex<Vec<u32>>,
    troubles: AtomicUsize,
    mishaps: Mutex<Vec<String>>,
}

/// The custom resource that is edited beside ConfigMaps.
pub(crate) fn widgets() -> Gvr {
    Gvr::new("chaos.upriver.test", "v1", "widgets")
}

fn faketime() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").ok()?;
    folders.flatten().map(|folder| folder.path().join(FAKETIME)).find(|library| library.is_file())
}

impl Fleet {
    /// Starts everything, with its files in `dir`, and waits until all targets are ready.
    ///
    /// # Errors
    /// If a part does not get ready.
    pub(crate) async fn start(replicas: usize, dir: &Path) -> Result<Self, Failure> {
        let options = StackOptions {
            operators: Vec::new(),
            dir: Some(dir.to_owned()),
            progress,
            ..StackOptions::default()
        };
        let mut stack = Stack::try_start(options).await?;
        stack.git().create_repo(SECOND);
        for mirrored in [stack.repo(), stack.repo_named(SECOND)] {
            // The judge has to know which commits came in one push.
            git(&["config", "core.logAllRefUpdates", "always"], mirrored.git_dir());
        }
        stack.apply(User::Admin, &[widget_crd()]).await?;
        let redis = dir.join("sentinels");
        println!("starting two Redis and three Sentinels");
        let sentinels = SentinelSet::try_start(SentinelTiming::default(), Some(&redis)).await?;
        let library = faketime();
        let clock = library.is_some().then(|| dir.join("clock"));
        match &clock {
            Some(clock) => std::fs::write(clock, "+0\n")?,
            None => println!("SKIPPED: no fault `clock`, {FAKETIME} is missing: install Debian's faketime"),
        }
        let mut all = Vec::new();
        for index in 0..replicas {
            let mut options = OperatorOptions::named(format!("upriver-{index}"));
            options = QUICK.into_iter().fold(options, OperatorOptions::arg);
            if let (Some(library), Some(clock)) = (&library, &clock)
                && index + 1 == replicas
            {
                options.env.extend(faked_clock(library, clock));
            }
            let ends = Ends { stack: &stack, sentinels: &sentinels };
            let (links, options) = ReplicaLinks::open(&ends, options).await?;
            println!("starting {}", options.pod_name);
            stack.add_operator(options).await?;
            all.push(Replica { links, life: Mutex::default() });
        }
        let mirrors = mirror(&stack).await?;
        let mut branches: Vec<Branch> = Vec::new();
        for mirror in &mirrors {
            let branch = Branch::of(&stack, mirror);
            if !branches.contains(&branch) {
                branches.push(branch);
            }
        }
        let (troubles, mishaps, faked) = (AtomicUsize::new(0), Mutex::default(), Mutex::default());
        Ok(Self { replicas: all, mirrors, branches, stack, sentinels, clock, faked, troubles, mishaps })
    }

    /// Starts the task of each replica; they end with the set.
    pub(crate) fn keep_running(self: &Arc<Self>) -> JoinSet<()> {
        let mut kubelets = JoinSet::new();
        for index in 0..self.replicas.len() {
            let fleet = Arc::clone(self);
            *self.life(index) = Life { started: true, ready: true, ..Life::default() };
            self.note_process(index);
            kubelets.spawn(async move { fleet.keep_one_running(index).await });
        }
        kubelets
    }

    /// The process of a replica.
    pub(crate) fn operator(&self, index: usize) -> &Operator {
        self.stack.operator(index)
    }

    /// True if it should run and does.
    pub(crate) fn is_up(&self, index: usize) -> bool {
        !self.life(index).down && self.operator(index).is_running()
    }

    /// From now on it should not run; the caller ends it.
    pub(crate) fn want_down(&self, index: usize) {
        let mut life = self.life(index);
        (life.down, life.started) = (true, false);
    }

    /// From now on it should run; its task starts it.
    pub(crate) fn want_up(&self, index: usize) {
        self.life(index).down = false;
    }

    /// Asks a replica to end and waits until it has, at most as long as a kubelet would.
    pub(crate) async fn end_in_good_order(&self, index: usize) {
        self.want_down(index);
        let operator = self.operator(index);
        if !operator.try_signal(Signal::Term) {
            return;
        }
        let ended = upriver_testkit::try_eventually("the end", GRACE, async || operator.exit_status()).await;
        match ended {
            Ok(status) if status.success() => {}
            Ok(status) => self.note_mishap(format!("{} was asked to end: {status}", operator.pod_name())),
            Err(_) => self.note_mishap(format!(
                "{} was asked to end and still ran after {} s",
                operator.pod_name(),
                GRACE.as_secs()
            )),
        }
        operator.kill();
    }

    /// Something is wrong with the fleet until the guard is dropped.
    pub(crate) fn trouble(&self) -> impl Drop {
        self.troubles.fetch_add(1, Ordering::SeqCst);
        Troubled(&self.troubles)
    }

    /// Whether the clock of a process can be shifted here.
    pub(crate) fn can_shift_clocks(&self) -> bool {
        self.clock.is_some()
    }

    /// The clock of the last replica is off by so much.
    ///
    /// # Errors
    /// If clocks cannot be shifted here, or the file that says so cannot be written.
    pub(crate) fn shift_clock(&self, seconds: i64) -> Result<(), Failure> {
        let clock = self.clock.as_ref().ok_or("no program here can shift a clock")?;
        // Renamed into place: the reader never sees half of it.
        let next = clock.with_extension("next");
        std::fs::write(&next, format!("{seconds:+}\n"))?;
        Ok(std::fs::rename(next, clock)?)
    }

    /// Notes what must not happen.
    pub(crate) fn note_mishap(&self, text: String) {
        println!("  MISHAP: {text}");
        self.mishaps.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }

    /// What must not happen and did since the last call.
    pub(crate) fn take_mishaps(&self) -> Vec<String> {
        std::mem::take(&mut *self.mishaps.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn life(&self, index: usize) -> MutexGuard<'_, Life> {
        self.replicas[index].life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn keep_one_running(&self, index: usize) {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut not_before = Instant::now();
        loop {
            looks.tick().await;
            if self.troubles.load(Ordering::SeqCst) > 0 {
                self.life(index).troubled = true;
            }
            let operator = self.operator(index);
            let (down, started, ready) = {
                let life = self.life(index);
                (life.down, life.started, life.ready)
            };
            if down {
                continue;
            }
            match (operator.is_running(), started) {
                (true, _) if ready => {}
                (true, _) => {
                    let answered = operator.health("/readyz").await.is_ok_and(|(status, _)| status == 200);
                    self.life(index).ready = answered;
                }
                (false, true) => {
                    self.judge_end(index);
                    not_before = Instant::now() + START_PAUSE;
                }
                (false, false) if Instant::now() >= not_before => self.launch(index),
                (false, false) => {}
            }
        }
    }

    fn launch(&self, index: usize) {
        let troubled = self.troubles.load(Ordering::SeqCst) > 0;
        let mut life = self.life(index);
        // Looked at under the lock: a fault may just have taken it down.
        if life.down {
            return;
        }
        match self.operator(index).begin_again() {
            Ok(()) => {
                *life = Life { down: false, started: true, ready: false, troubled };
                self.note_process(index);
            }
            Err(error) => self.note_mishap(format!("replica {index} cannot be started: {error}")),
        }
    }

    fn note_process(&self, index: usize) {
        let pid = self.operator(index).pid().filter(|_| index + 1 == self.replicas.len());
        self.faked.lock().unwrap_or_else(PoisonError::into_inner).extend(pid);
    }

    fn judge_end(&self, index: usize) {
        let mut life = self.life(index);
        if life.down {
            return;
        }
        life.started = false;
        let excused = !life.ready && life.troubled;
        drop(life);
        let operator = self.operator(index);
        let status = operator.exit_status().map_or_else(|| "unknown".to_owned(), |status| status.to_string());
        if excused {
            println!("  {} could not start while something was wrong ({status}); again", operator.pod_name());
        } else {
            self.note_mishap(format!(
                "{} ended by itself ({status})\n{}",
                operator.pod_name(),
                operator.tail_log()
            ));
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // libfaketime leaves two files per process.
        for pid in &*self.faked.lock().unwrap_or_else(PoisonError::into_inner) {
            for name in ["faketime_shm", "sem.faketime_sem"] {
                // There are none without the library.
                let _ = std::fs::remove_file(format!("/dev/shm/{name}_{pid}"));
            }
        }
    }
}

struct Troubled<'a>(&'a AtomicUsize);

impl Drop for Troubled<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Branch {
    fn of(stack: &Stack, mirror: &Mirror) -> Self {
        let repo = mirror.spec.repo.clone();
        let url = repo.as_ref().map_or_else(|| stack.repo_url(), |repo| stack.git().url(repo));
        let stem = url.rsplit('/').next().unwrap_or_default().trim_end_matches(".git").to_owned();
        let name = mirror.spec.branch.clone();
        Self { about: format!("{url} {name}"), repo: stem, name }
    }

    /// True if the mirror writes to it.
    pub(crate) fn has(&self, stack: &Stack, mirror: &Mirror) -> bool {
        *self == Self::of(stack, mirror)
    }
}

/// The library reads the file again each second. Time that only goes forward is left alone: it is not the clock of a wall
/// that can be wrong there.
fn faked_clock(library: &Path, file: &Path) -> Vec<(String, String)> {
    [
        ("LD_PRELOAD", library.display().to_string()),
        ("FAKETIME_TIMESTAMP_FILE", file.display().to_string()),
        ("FAKETIME_CACHE_DURATION", "1".to_owned()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// Two targets share a branch, two share a namespace, one has a repository for itself.
async fn mirror(stack: &Stack) -> Result<Vec<Mirror>, Failure> {
    let spec = |namespace: &str| {
        MirrorSpec::new(namespace).types([resources::config_maps(), widgets()]).commit_window("300ms")
    };
    let specs = [
        spec("alpha"),
        spec("beta"),
        spec("gamma").branch("release"),
        spec("alpha").name("copy").branch("release").path("alpha-copy"),
        spec("delta").repo(SECOND),
    ];
    let mut mirrors = Vec::new();
    for spec in specs {
        mirrors.push(stack.apply_mirror(spec).await?);
    }
    let ready = mirrors.iter().map(|mirror| {
        let MirrorSpec { namespace, name, .. } = &mirror.spec;
        stack.try_wait_ready("GitTarget", namespace, name, READY_WITHIN)
    });
    try_join_all(ready).await?;
    Ok(mirrors)
}

fn widget_crd() -> Value {
    let Gvr { group, version, resource } = widgets();
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{resource}.{group}")},
        "spec": {
            "group": &*group, "scope": "Namespaced",
            "names": {"plural": &*resource, "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": &*version, "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema}}],
        }
    })
}

fn progress(progress: Progress<'_>) {
    match progress {
        Progress::Starting(what) => println!("starting {what}"),
        Progress::Ready(took) => println!("  ready in {:.1} s", took.as_secs_f64()),
    }
}
