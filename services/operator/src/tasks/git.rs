//! The Git thread of one branch: one job at a time, all of them blocking.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use upriver_engine::branch::{Base, Built, Fetched, Unit, UnitKind};
use upriver_git_io::{Mirror, ObjectId, Remote};
use upriver_model::{CommitId, Failure, FailureClass, JournalHeader};
use upriver_telemetry::metric;

use super::{failure, planner, push_failure};
use crate::control::plan::BranchSpec;
use crate::crash::{self, Point};

/// Commits that are searched for evidence.
const HISTORY: usize = 200;
/// Commits that are searched for who changed a file last (F27).
const TRACED: usize = 2_000;

/// Data of a credentials Secret; `None` is anonymous.
pub(crate) type SecretData = Option<Arc<BTreeMap<String, Vec<u8>>>>;

/// What the thread can do.
pub(crate) enum Job {
    Fetch {
        secret: SecretData,
        until: Option<CommitId>,
    },
    /// `refused` are the paths that are known not to be ours.
    Build {
        base: Base,
        units: Arc<Vec<(Unit, JournalHeader)>>,
        refused: Vec<String>,
    },
    Push {
        secret: SecretData,
    },
    ReadRef {
        secret: SecretData,
    },
}

impl Job {
    fn name(&self) -> &'static str {
        match self {
            Self::Fetch { .. } => "fetch",
            Self::Build { .. } => "build",
            Self::Push { .. } => "push",
            Self::ReadRef { .. } => "read_ref",
        }
    }
}

/// What came out.
pub(crate) enum Done {
    Fetched(Result<Box<Fetched>, Failure>),
    Built(Result<Box<Built>, Failure>),
    Pushed(Result<(), Failure>),
    RefRead(Result<Option<CommitId>, Failure>),
}

struct Order {
    spec: Arc<BranchSpec>,
    job: Job,
    answer: oneshot::Sender<Done>,
}

/// Handle on the thread; it ends when the handle is dropped and its job is done.
#[derive(Clone)]
pub(crate) struct GitThread {
    orders: SyncSender<Order>,
}

impl GitThread {
    /// Starts the thread. `dir` is made, used and removed by it alone.
    pub(crate) fn start(dir: PathBuf, timeout: Duration) -> std::io::Result<Self> {
        // One job is in flight at most: the engine asks for the next after the answer.
        let (orders, inbox) = sync_channel(1);
        std::thread::Builder::new().name("upriver-git".to_owned()).spawn(move || {
            let mut worker =
                Worker { dir, timeout, mirror: None, remote: None, built: None, own: (0, BTreeSet::new()) };
            worker.run(&inbox);
            let _ = std::fs::remove_dir_all(&worker.dir);
        })?;
        Ok(Self { orders })
    }

    /// Does one job.
    pub(crate) async fn run(self, spec: Arc<BranchSpec>, job: Job) -> Done {
        let (answer, result) = oneshot::channel();
        let name = job.name();
        if self.orders.try_send(Order { spec, job, answer }).is_err() {
            return lost(name);
        }
        result.await.unwrap_or_else(|_| lost(name))
    }
}

/// The thread is gone, which only a panic does.
fn lost(job: &str) -> Done {
    let failure =
        || Failure::new(FailureClass::Internal, format!("the Git thread ended during {job}; see the log"));
    match job {
        "fetch" => Done::Fetched(Err(failure())),
        "build" => Done::Built(Err(failure())),
        "push" => {
            Done::Pushed(Err(Failure::new(FailureClass::Uncertain, "the Git thread ended during a push")))
        }
        _ => Done::RefRead(Err(failure())),
    }
}

struct Worker {
    dir: PathBuf,
    timeout: Duration,
    mirror: Option<Mirror>,
    remote: Option<(SecretData, Remote)>,
    built: Option<upriver_git_io::Built>,
    /// Files that our own commits were the last to change, when a loss of this number was first repaired (F27).
    own: (u32, BTreeSet<String>),
}

impl Worker {
    fn run(&mut self, inbox: &Receiver<Order>) {
        while let Ok(Order { spec, job, answer }) = inbox.recv() {
            let name = job.name();
            let begun = Instant::now();
            let done = self.work(&spec, job);
            metrics::histogram!(metric::GIT_SECONDS, "op" => name).record(begun.elapsed().as_secs_f64());
            if let Some(failure) = failed(&done) {
                let class = format!("{:?}", failure.class);
                metrics::counter!(metric::GIT_FAILURES, "class" => class.clone()).increment(1);
                tracing::warn!(shard = %spec.key, op = name, class, error = %failure.message, "a Git operation failed");
            }
            // Nobody waits any more when the claim was lost.
            let _ = answer.send(done);
        }
    }

    fn work(&mut self, spec: &BranchSpec, job: Job) -> Done {
        match job {
            Job::Fetch { secret, until } => {
                Done::Fetched(self.fetch(spec, secret, until.as_ref()).map(Box::new))
            }
            Job::Build { base, units, refused } => {
                Done::Built(self.build(spec, &base, &units, &refused).map(Box::new))
            }
            Job::Push { secret } => Done::Pushed(self.push(spec, secret)),
            Job::ReadRef { secret } => Done::RefRead(self.read_ref(spec, secret)),
        }
    }

    fn remote(&mut self, spec: &BranchSpec, secret: SecretData) -> Result<Remote, Failure> {
        if let Some((known, remote)) = &self.remote
            && *known == secret
            && remote.url() == &spec.url
        {
            return Ok(remote.clone());
        }
        let remote = crate::control::remote_for(&spec.url, secret.as_deref(), self.timeout)?;
        self.remote = Some((secret, remote.clone()));
        Ok(remote)
    }

    fn mirror(&mut self) -> Result<&mut Mirror, Failure> {
        if self.mirror.is_none() {
            make_dir(&self.dir)?;
            self.mirror = Some(Mirror::open(&self.dir).map_err(|error| failure(&error))?);
        }
        self.mirror.as_mut().ok_or_else(|| Failure::new(FailureClass::Internal, "no mirror"))
    }

    fn fetch(
        &mut self,
        spec: &BranchSpec,
        secret: SecretData,
        until: Option<&CommitId>,
    ) -> Result<Fetched, Failure> {
        let remote = self.remote(spec, secret)?;
        let mirror = self.mirror()?;
        let base = mirror.fetch(&remote, &spec.branch).map_err(|error| failure(&error))?;
        let unchanged = until.is_some() && until == base.expected_old().map(commit_id).as_ref();
        let tip = base.expected_old().filter(|_| !unchanged);
        let history = match tip {
            Some(tip) => {
                mirror.first_parent_history(&remote, tip, HISTORY).map_err(|error| failure(&error))?
            }
            None => Vec::new(),
        };
        let joined = unchanged || history.iter().any(|commit| until == Some(&commit_id(commit.id)));
        let history: Vec<(CommitId, Option<JournalHeader>)> = history
            .into_iter()
            .map(|commit| (commit_id(commit.id), header_of(&commit)))
            .take_while(|(id, _)| until != Some(id))
            .collect();
        let subtrees = subtrees(mirror, spec, base.parent()).map_err(|error| failure(&error))?;
        Ok(Fetched { base: engine_base(base), history, joined, subtrees })
    }

    fn build(
        &mut self,
        spec: &BranchSpec,
        base: &Base,
        units: &[(Unit, JournalHeader)],
        refused: &[String],
    ) -> Result<Built, Failure> {
        let base = git_base(base)?;
        self.trace(spec, &base, units)?;
        // Handed back below: the mirror is borrowed as long as the builder lives.
        let own = std::mem::take(&mut self.own);
        let built = self.build_with(spec, base, units, refused, &own.1);
        self.own = own;
        built
    }

    /// Asks the history once per loss, before the first unit that repairs it is built.
    fn trace(
        &mut self,
        spec: &BranchSpec,
        base: &upriver_git_io::Base,
        units: &[(Unit, JournalHeader)],
    ) -> Result<(), Failure> {
        let number = |(unit, _): &(Unit, JournalHeader)| match &unit.kind {
            UnitKind::Replay(replayed) => replayed.reclaim,
            UnitKind::Window | UnitKind::Fence => None,
        };
        let Some(loss) = units.iter().filter_map(number).max().filter(|loss| *loss != self.own.0) else {
            return Ok(());
        };
        let own = match (base.parent(), self.remote.clone()) {
            (Some(tip), Some((_, remote))) => {
                own_files(self.mirror()?, &remote, spec, tip).map_err(|error| failure(&error))?
            }
            // A new repository; every base that holds anything was fetched from a remote.
            (None, _) | (_, None) => BTreeSet::new(),
        };
        self.own = (loss, own);
        Ok(())
    }

    fn build_with(
        &mut self,
        spec: &BranchSpec,
        base: upriver_git_io::Base,
        units: &[(Unit, JournalHeader)],
        refused: &[String],
        own: &BTreeSet<String>,
    ) -> Result<Built, Failure> {
        let mirror = self.mirror()?;
        let mut builder = mirror.build(base).map_err(|error| failure(&error))?;
        let results =
            planner::plan(&mut builder, spec, units, refused, own).map_err(|error| failure(&error))?;
        let tip = builder.tip();
        let built = builder.finish().map_err(|error| failure(&error))?;
        let new = built.as_ref().map(|built| commit_id(built.new));
        let subtrees = subtrees(mirror, spec, tip).map_err(|error| failure(&error))?;
        self.built = built;
        if new.is_some() {
            crash::reached(Point::AfterCommit);
        }
        Ok(Built { new, results, subtrees })
    }

    fn push(&mut self, spec: &BranchSpec, secret: SecretData) -> Result<(), Failure> {
        let remote = self.remote(spec, secret)?;
        let Some(built) = &self.built else {
            return Err(Failure::new(FailureClass::Internal, "nothing was built"));
        };
        match upriver_git_io::push(&remote, &spec.branch, built.old, built) {
            Ok(report) => {
                crash::reached(Point::AfterPush);
                let count = built.commits.len() as u64;
                metrics::counter!(metric::COMMITS).increment(count);
                let commit = report.new.to_string();
                tracing::info!(shard = %spec.key, branch = %spec.branch, commit, commits = count, "pushed");
                Ok(())
            }
            Err(error) => Err(self.judge(spec, &remote, &error)),
        }
    }

    /// `ng` may mean that the ref moved: the ref itself tells, not the remote's words.
    fn judge(&self, spec: &BranchSpec, remote: &Remote, error: &upriver_git_io::PushError) -> Failure {
        use upriver_git_io::{PushError, Standing};
        let failure = push_failure(error);
        let Some(built) = &self.built else { return failure };
        match error {
            PushError::Rejected { .. } => {
                match remote.read_ref(&spec.branch).map(|found| built.standing(found)) {
                    Ok(Standing::Moved) => Failure { class: FailureClass::Superseded, ..failure },
                    Ok(Standing::Landed) => Failure { class: FailureClass::Uncertain, ..failure },
                    Ok(Standing::Unmoved) | Err(_) => failure,
                }
            }
            // Our own earlier push has landed: reading the ref settles it.
            PushError::TipMoved { found, .. } if *found == Some(built.new) => {
                Failure { class: FailureClass::Uncertain, ..failure }
            }
            PushError::TipMoved { .. } | PushError::Uncertain { .. } | PushError::NotSent(_) => failure,
        }
    }

    fn read_ref(&mut self, spec: &BranchSpec, secret: SecretData) -> Result<Option<CommitId>, Failure> {
        let remote = self.remote(spec, secret)?;
        let found = remote.read_ref(&spec.branch).map_err(|error| failure(&error))?;
        Ok(found.map(commit_id))
    }
}

fn failed(done: &Done) -> Option<&Failure> {
    match done {
        Done::Fetched(result) => result.as_ref().err(),
        Done::Built(result) => result.as_ref().err(),
        Done::Pushed(result) => result.as_ref().err(),
        Done::RefRead(result) => result.as_ref().err(),
    }
}

fn header_of(commit: &upriver_git_io::CommitInfo) -> Option<JournalHeader> {
    let header = commit.extra_headers.iter().find(|(name, _)| name == JournalHeader::NAME);
    header.and_then(|(_, value)| JournalHeader::parse(value))
}

/// Files in the targets' folders that a commit of this fleet, for that target, was the last to change, whatever journal it
/// came from (F27). Without any such commit in sight, nothing is asked of the remote.
fn own_files(
    mirror: &mut Mirror,
    remote: &Remote,
    spec: &BranchSpec,
    tip: ObjectId,
) -> Result<BTreeSet<String>, upriver_git_io::GitError> {
    let ours = |header: &JournalHeader| header.branch == spec.key;
    let folders: Vec<&str> = spec.targets.iter().map(|target| target.path.as_str()).collect();
    let mut own = BTreeSet::new();
    for (commit, files) in mirror.last_changes(remote, tip, &folders, TRACED)? {
        let Some(header) = header_of(&commit).filter(ours) else { continue };
        let target = spec.targets.iter().find(|target| target.plan.uid == header.target);
        let inside = |file: &String| target.is_some_and(|target| target.path.contains(file));
        own.extend(files.into_iter().filter(inside));
    }
    Ok(own)
}

fn make_dir(dir: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(dir).map_err(|error| {
        let message = format!("the folder {} cannot be made: {error}; set --data-dir", dir.display());
        Failure::new(FailureClass::Storage, message)
    })
}

fn subtrees(
    mirror: &Mirror,
    spec: &BranchSpec,
    tip: Option<ObjectId>,
) -> Result<BTreeMap<upriver_model::TargetUid, Option<CommitId>>, upriver_git_io::GitError> {
    let mut trees = BTreeMap::new();
    for target in &spec.targets {
        let tree = match tip {
            Some(tip) => mirror.subtree_id(tip, target.path.as_str())?,
            None => None,
        };
        trees.insert(target.plan.uid.clone(), tree.map(commit_id));
    }
    Ok(trees)
}

fn commit_id(id: ObjectId) -> CommitId {
    CommitId::new(id.to_string())
}

fn engine_base(base: upriver_git_io::Base) -> Base {
    match base {
        upriver_git_io::Base::Branch { tip } => Base::Branch(commit_id(tip)),
        upriver_git_io::Base::New { from } => Base::New(commit_id(from)),
        upriver_git_io::Base::Unborn => Base::Unborn,
    }
}

fn git_base(base: &Base) -> Result<upriver_git_io::Base, Failure> {
    let parse = |id: &CommitId| {
        let text = id.as_str();
        ObjectId::from_hex(text.as_bytes())
            .map_err(|_| Failure::new(FailureClass::Internal, format!("{text} is not a commit id")))
    };
    Ok(match base {
        Base::Branch(tip) => upriver_git_io::Base::Branch { tip: parse(tip)? },
        Base::New(from) => upriver_git_io::Base::New { from: parse(from)? },
        Base::Unborn => upriver_git_io::Base::Unborn,
    })
}
