//! How is each fault done to a running fleet, and how healed?
//!
//! In: a cycle's faults. Out: they have happened and are healed; who was an owner and went, so that the take-over can be
//! timed; whether Redis may have lost something. Several run at once. Waits here are the faults themselves.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use tokio::time::sleep;
use upriver_testkit::git_server::{Fault as GitFault, RequestKind, Times, git, try_git};
use upriver_testkit::proxy::Trouble;
use upriver_testkit::stack::{GIT_PASSWORD, GIT_USER};
use upriver_testkit::wait::until_blocking;
use upriver_testkit::{RedisServer, Signal, try_eventually};

use crate::Failure;
use crate::fleet::Fleet;
use crate::schedule::{Act, Cut, Fault, Kind, Place, Victim};
use crate::witness::{Departure, Witness, pod_of};

/// A person who loses the race against a replica, or meets a host that refuses, tries again for so long.
const PERSON_TRIES: Duration = Duration::from_secs(30);
/// Sentinels that have just started, or a busy machine, may need a moment to answer.
const MASTER_WITHIN: Duration = Duration::from_secs(30);

/// A file that a person committed and nobody may touch.
#[derive(Clone, Debug)]
pub(crate) struct Note {
    /// Place in [`Fleet::branches`].
    pub(crate) branch: usize,
    pub(crate) path: String,
}

/// What faults need.
pub(crate) struct Cast<'a> {
    pub(crate) fleet: &'a Arc<Fleet>,
    pub(crate) witness: &'a Witness,
    pub(crate) notes: &'a Mutex<Vec<Note>>,
}

/// What a fault left behind.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) kind: Kind,
    /// The owner that it took away, if it did that.
    pub(crate) departure: Option<Departure>,
}

impl Cast<'_> {
    /// Does all of them, each at its moment, and returns those that happened when the last is healed.
    ///
    /// # Errors
    /// If one could not be done: that is a failure of the lane, not of what it judges.
    pub(crate) async fn run(&self, faults: &[Fault]) -> Result<Vec<Done>, Failure> {
        let all = join_all(faults.iter().map(|fault| self.one(fault))).await;
        all.into_iter().filter_map(Result::transpose).collect()
    }

    async fn one(&self, fault: &Fault) -> Result<Option<Done>, Failure> {
        sleep(fault.at).await;
        let _trouble = self.fleet.trouble();
        let (plane, stack) = (self.fleet.stack.plane(), &self.fleet.stack);
        let mut departure = None;
        match fault.act {
            Act::Kill(victim) => departure = self.kill(victim, fault.lasts).await,
            Act::Roll(victim) => departure = self.roll(victim, fault.lasts).await,
            Act::Freeze(victim) => self.freeze(victim, fault.lasts).await,
            Act::Trouble { victim, link, trouble } => self.trouble(victim, link, trouble, fault.lasts).await,
            Act::ApiRestart => {
                plane.stop_apiserver();
                sleep(fault.lasts).await;
                plane.start_apiserver().await;
            }
            Act::RedisFailover => {
                let master = self.master().await?;
                master.stop();
                sleep(fault.lasts).await;
                master.start_again().await;
            }
            Act::RedisFlush => {
                let mut connection = self.master().await?.client().get_multiplexed_async_connection().await?;
                redis::cmd("FLUSHALL").query_async::<()>(&mut connection).await?;
            }
            Act::RedisFreeze => {
                let master = self.master().await?;
                master.pause();
                sleep(fault.lasts).await;
                master.resume();
            }
            Act::GitRefuse => {
                let refuse = || GitFault::Refuse { status: 503, retry_after: None };
                stack.git().inject(RequestKind::ReceivePackRefs, Times::Always, refuse());
                stack.git().inject(RequestKind::UploadPackRefs, Times::Always, refuse());
                sleep(fault.lasts).await;
                stack.git().clear_faults();
            }
            Act::GitCut(cut) => {
                let fault_of_git = match cut {
                    Cut::BeforeItLands => GitFault::CutBeforeBackend,
                    Cut::AfterItLanded => GitFault::CutAfterBackend,
                };
                stack.git().inject(RequestKind::ReceivePack, Times::Once, fault_of_git);
                sleep(fault.lasts).await;
                stack.git().clear_faults();
            }
            Act::BranchMoved { branch, place } => {
                if !self.move_branch(branch, place).await? {
                    return Ok(None);
                }
            }
            Act::Clock { seconds } => {
                self.fleet.shift_clock(seconds)?;
                sleep(fault.lasts).await;
                self.fleet.shift_clock(0)?;
            }
        }
        Ok(Some(Done { kind: fault.kind, departure }))
    }

    /// A victim that is away already is spared for another one.
    fn find(&self, victim: Victim) -> Option<usize> {
        let count = self.fleet.replicas.len();
        let wanted = match victim {
            Victim::Replica(index) => Some(index),
            Victim::OwnerOf(branch) => self.witness.holder(branch).and_then(|holder| {
                let pod = pod_of(&holder)?.to_owned();
                (0..count).find(|index| self.fleet.operator(*index).pod_name() == pod)
            }),
        };
        let found = wanted.into_iter().chain(0..count).find(|index| self.fleet.is_up(*index));
        if found != wanted || found.is_none() {
            println!("  {victim} is not there: hits {found:?} instead");
        }
        found
    }

    async fn kill(&self, victim: Victim, lasts: Duration) -> Option<Departure> {
        let index = self.find(victim)?;
        let departure = self.witness.departure(self.fleet.operator(index).pod_name());
        self.fleet.want_down(index);
        self.fleet.operator(index).kill();
        sleep(lasts).await;
        self.fleet.want_up(index);
        departure
    }

    async fn roll(&self, victim: Victim, lasts: Duration) -> Option<Departure> {
        let index = self.find(victim)?;
        let departure = self.witness.departure(self.fleet.operator(index).pod_name());
        self.fleet.end_in_good_order(index).await;
        sleep(lasts).await;
        self.fleet.want_up(index);
        departure
    }

    async fn freeze(&self, victim: Victim, lasts: Duration) {
        let Some(index) = self.find(victim) else { return };
        self.fleet.operator(index).try_signal(Signal::Stop);
        sleep(lasts).await;
        // Another fault may have killed it meanwhile; then there is nothing to wake.
        self.fleet.operator(index).try_signal(Signal::Cont);
    }

    async fn trouble(&self, victim: Victim, link: usize, trouble: Trouble, lasts: Duration) {
        let Some(index) = self.find(victim) else { return };
        self.fleet.replicas[index].links.set(link, trouble);
        sleep(lasts).await;
        self.fleet.replicas[index].links.set(link, Trouble::None);
    }

    async fn master(&self) -> Result<&RedisServer, Failure> {
        let now = async || self.fleet.sentinels.master_now().await;
        Ok(try_eventually("a Redis master", MASTER_WITHIN, now).await?)
    }

    /// False if the person lost every race: on a busy machine the branch may move faster than `git` starts.
    async fn move_branch(&self, branch: usize, place: Place) -> Result<bool, Failure> {
        let fleet = Arc::clone(self.fleet);
        let pushed = tokio::task::spawn_blocking(move || {
            let clone = clone_of(&fleet, branch)?;
            let mut last = String::new();
            let pushed =
                until_blocking(PERSON_TRIES, || match commit_and_push(&fleet, branch, place, &clone) {
                    Ok(note) => Some(note),
                    Err(why) => {
                        last = why;
                        None
                    }
                });
            pushed.ok_or(last)
        });
        match pushed.await? {
            Ok(note) => self.notes.lock().unwrap_or_else(PoisonError::into_inner).extend(note),
            Err(why) => {
                println!("  SKIPPED: a person could not push: {}", why.lines().next().unwrap_or_default());
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// A person's clone of the branch's repository, made once.
fn clone_of(fleet: &Fleet, branch: usize) -> Result<PathBuf, String> {
    let repo = &fleet.branches[branch].repo;
    let clone = fleet.stack.dir().join(format!("person-{repo}"));
    if !clone.exists() {
        let login = format!("http://{GIT_USER}:{GIT_PASSWORD}@");
        let url = fleet.stack.git().url(repo).replacen("http://", &login, 1);
        // From the server's disk: the host itself may be refusing at this moment.
        let on_disk = fleet.stack.git().repo_path(repo);
        let (from, to) = (on_disk.to_string_lossy(), clone.to_string_lossy());
        try_git(&["clone", "--quiet", "--no-checkout", &from, &to], fleet.stack.dir())?;
        git(&["remote", "set-url", "origin", &url], &clone);
    }
    Ok(clone)
}

fn commit_and_push(fleet: &Fleet, branch: usize, place: Place, clone: &Path) -> Result<Option<Note>, String> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = &fleet.branches[branch].name;
    try_git(&["fetch", "--quiet", "origin"], clone)?;
    try_git(&["checkout", "--quiet", "--force", "-B", name, &format!("origin/{name}")], clone)?;
    let mut note = None;
    match (place, one_of_ours(fleet, branch, clone, number)) {
        (Place::EditsOurs, Some(file)) => {
            let text = std::fs::read_to_string(&file).map_err(|error| error.to_string())?;
            std::fs::write(&file, by_hand(&text, number)).map_err(|error| error.to_string())?;
        }
        (Place::RemovesOurs, Some(file)) => {
            std::fs::remove_file(&file).map_err(|error| error.to_string())?;
        }
        // A branch without a file of ours has nothing to edit yet.
        (Place::Beside, _) | (_, None) => {
            let path = format!("people/note-{number}.md");
            std::fs::create_dir_all(clone.join("people")).map_err(|error| error.to_string())?;
            std::fs::write(clone.join(&path), "kept\n").map_err(|error| error.to_string())?;
            note = Some(Note { branch, path });
        }
    }
    try_git(&["add", "--all"], clone)?;
    try_git(&["commit", "--quiet", "-m", "by hand"], clone)?;
    try_git(&["push", "--quiet", "origin", &format!("HEAD:{name}")], clone)?;
    Ok(note)
}

fn one_of_ours(fleet: &Fleet, branch: usize, clone: &Path, number: usize) -> Option<PathBuf> {
    let branch = &fleet.branches[branch];
    let folders = fleet.mirrors.iter().filter(|mirror| branch.has(&fleet.stack, mirror));
    let folders: Vec<String> = folders.map(|mirror| format!("{}/*.yaml", mirror.spec.path)).collect();
    let mut args = vec!["ls-files", "--"];
    args.extend(folders.iter().map(String::as_str));
    let listed = git(&args, clone);
    let files: Vec<&str> = listed.lines().collect();
    let index = number.checked_rem(files.len())?;
    Some(clone.join(files[index]))
}

/// The same document in the form that the operator writes, with another value: a plain word needs no quotes.
fn by_hand(text: &str, number: usize) -> String {
    let line = |line: &str| match line.split_once("value: ") {
        Some((before, _)) => format!("{before}value: hand-{number}\n"),
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_by_hand_changes_the_value_alone() {
        let text = "apiVersion: v1\ndata:\n  by: bob\n  value: \"17\"\nkind: ConfigMap\n";
        assert_eq!(by_hand(text, 3), "apiVersion: v1\ndata:\n  by: bob\n  value: hand-3\nkind: ConfigMap\n");
    }
}
