//! Has everything come to rest, and is it as it has to be?
//!
//! In: a fleet whose faults are healed and whose people rest. Out: a [`Verdict`]. Rest is a condition with a bound and not
//! a time: all replicas ready, Redis whole, every object in Git as it lives and nothing else, journals empty, one live
//! owner per branch, all targets Ready, people's files where they were. Then the commits since the last time are read.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval};
use upriver_model::JournalHeader;
use upriver_testkit::git_server::{git, try_git};
use upriver_testkit::stack::{Problem, Repo, conditions, is_ready};

use crate::driver::{Version, World};
use crate::faults::Note;
use crate::fleet::Fleet;
use crate::history::{By, Commit, Content, Finding, History};
use crate::witness::claims_and_sessions;

/// Between two looks: each lists all objects and reads all files.
const LOOK: Duration = Duration::from_millis(300);
/// Four times what a replica needs here: no queue or cache may grow for as long as a fault lasts.
const MOST_MEMORY_MB: u64 = 200;
/// Committer of the testkit's people.
const PERSON: &str = "Oracle";
const RECORD: char = '\u{1e}';
const FIELD: char = '\u{1f}';

/// What is not as it should be; empty when all is well.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unrest {
    /// Objects whose present state is not in Git, and people's files that are gone.
    pub(crate) lost: Vec<String>,
    /// Files whose object is gone.
    pub(crate) deletes_lost: Vec<String>,
    /// All else.
    pub(crate) other: Vec<String>,
}

impl Unrest {
    fn is_empty(&self) -> bool {
        self.lost.is_empty() && self.deletes_lost.is_empty() && self.other.is_empty()
    }

    /// The first few of everything, for people.
    pub(crate) fn first(&self) -> Vec<String> {
        let few = |what: &str, texts: &[String]| {
            texts.iter().take(4).map(|text| format!("{what}: {text}")).collect::<Vec<_>>()
        };
        [few("LOST", &self.lost), few("DELETE LOST", &self.deletes_lost), few("NOT AT REST", &self.other)]
            .concat()
    }
}

/// Looks once at one aspect of the fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    /// Until something is found, cheap things first.
    First,
    /// At everything.
    All,
}

/// How rest was reached.
#[derive(Clone, Debug)]
pub(crate) struct Rest {
    /// How long it took.
    pub(crate) took: Duration,
    /// What was waited for last.
    pub(crate) last: Option<String>,
}

/// Waits until all is at rest.
///
/// # Errors
/// What is not at rest after `limit`.
pub(crate) async fn settle(fleet: &Fleet, notes: &[Note], limit: Duration) -> Result<Rest, Unrest> {
    let begun = Instant::now();
    let mut last = None;
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        let depth = if begun.elapsed() < limit { Depth::First } else { Depth::All };
        let unrest = look(fleet, notes, depth).await;
        if unrest.is_empty() {
            return Ok(Rest { took: begun.elapsed(), last });
        }
        if depth == Depth::All {
            return Err(unrest);
        }
        last = unrest.first().into_iter().next();
    }
}

async fn look(fleet: &Fleet, notes: &[Note], depth: Depth) -> Unrest {
    let mut unrest = Unrest::default();
    let enough = |unrest: &Unrest| depth == Depth::First && !unrest.is_empty();
    look_at_servers(fleet, &mut unrest).await;
    if !enough(&unrest) {
        look_at_claims(fleet, &mut unrest).await;
    }
    if !enough(&unrest) {
        match journals(fleet).await {
            Ok(waiting) => unrest.other.extend(waiting),
            Err(error) => unrest.other.push(format!("the journals cannot be read: {error}")),
        }
    }
    for mirror in &fleet.mirrors {
        if enough(&unrest) {
            return unrest;
        }
        let (namespace, name) = (&mirror.spec.namespace, &mirror.spec.name);
        match fleet.stack.get("GitTarget", namespace, name).await {
            Ok(target) if is_ready(&target) => {}
            Ok(target) => {
                unrest
                    .other
                    .push(format!("GitTarget {namespace}/{name} is not Ready: {}", conditions(&target)));
            }
            Err(error) => unrest.other.push(format!("GitTarget {namespace}/{name} cannot be read: {error}")),
        }
        match fleet.stack.try_differences(mirror).await {
            Err(error) => unrest.other.push(format!("{namespace} cannot be compared: {error}")),
            Ok(differences) => {
                for difference in differences {
                    let text = format!("{}: {difference}", mirror.spec.branch);
                    match difference.problem {
                        Problem::Leftover => unrest.deletes_lost.push(text),
                        Problem::Missing | Problem::Unreadable(_) | Problem::Differs { .. } => {
                            unrest.lost.push(text)
                        }
                    }
                }
            }
        }
    }
    for note in notes {
        let branch = &fleet.branches[note.branch];
        if fleet.stack.repo_named(&branch.repo).show(&branch.name, &note.path).is_none() {
            unrest.lost.push(format!("{} {}: a person's {} is gone", branch.repo, branch.name, note.path));
        }
    }
    unrest
}

async fn look_at_servers(fleet: &Fleet, unrest: &mut Unrest) {
    for index in 0..fleet.replicas.len() {
        let operator = fleet.operator(index);
        match operator.health("/readyz").await {
            Ok((200, _)) => {}
            Ok((status, body)) => {
                unrest.other.push(format!("{} answers {status}: {}", operator.pod_name(), body.trim()));
            }
            Err(error) => unrest.other.push(format!("{} does not answer: {error}", operator.pod_name())),
        }
        let memory = operator.rss_mb();
        if memory > MOST_MEMORY_MB {
            unrest.other.push(format!("{} holds {memory} MiB", operator.pod_name()));
        }
    }
    let Some(master) = fleet.sentinels.master_now().await else {
        unrest.other.push("the Sentinels name no master".to_owned());
        return;
    };
    if fleet.sentinels.is_replica_now(fleet.sentinels.other(master)).await.is_none() {
        unrest.other.push("Redis has no replica that could take over".to_owned());
    }
}

async fn look_at_claims(fleet: &Fleet, unrest: &mut Unrest) {
    let (claims, sessions) = match claims_and_sessions(fleet).await {
        Ok(found) => found,
        Err(error) => {
            unrest.other.push(format!("the Leases cannot be read: {error}"));
            return;
        }
    };
    for branch in &fleet.branches {
        match claims.get(&branch.about) {
            Some(held) if sessions.contains(&held.holder) => {}
            held => unrest.other.push(format!("{} has no live owner: {held:?}", branch.about)),
        }
    }
    let mut owned = 0.0;
    for index in 0..fleet.replicas.len() {
        owned += fleet.operator(index).metric_value("upriver_branches_owned", &[]).await.unwrap_or(0.0);
    }
    let wanted = f64::from(u32::try_from(fleet.branches.len()).unwrap_or(u32::MAX));
    if (owned - wanted).abs() > 0.1 {
        unrest.other.push(format!("{owned} branches are owned, of {wanted}"));
    }
}

/// Journals with entries that are not in the remote.
async fn journals(fleet: &Fleet) -> Result<Vec<String>, String> {
    let master = fleet.sentinels.master_now().await.ok_or("no master")?;
    let failed = |error: redis::RedisError| error.to_string();
    let mut connection = master.client().get_multiplexed_async_connection().await.map_err(failed)?;
    let keys: Vec<String> =
        redis::cmd("KEYS").arg("upriver:j1:*:log").query_async(&mut connection).await.map_err(failed)?;
    let mut waiting = Vec::new();
    for key in keys {
        let count: u64 = redis::cmd("XLEN").arg(&key).query_async(&mut connection).await.map_err(failed)?;
        if count > 0 {
            waiting.push(format!("{count} entries wait in {key}"));
        }
    }
    Ok(waiting)
}

/// Reads each branch from where it was read last.
#[derive(Default)]
pub(crate) struct Judge {
    branches: BTreeMap<usize, (Option<String>, History)>,
    /// Commits of ours that were read.
    pub(crate) commits: u64,
}

impl Judge {
    /// The findings in the commits since the last call.
    pub(crate) async fn read_on(&mut self, fleet: &Fleet, world: &World) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (index, branch) in fleet.branches.iter().enumerate() {
            let mut versions: BTreeMap<String, Vec<Version>> = BTreeMap::new();
            for mirror in fleet.mirrors.iter().filter(|mirror| branch.has(&fleet.stack, mirror)) {
                versions.extend(world.versions(mirror).await);
            }
            let repo = fleet.stack.repo_named(&branch.repo);
            let (read_to, history) = self.branches.entry(index).or_default();
            let Some(tip) = repo.head(&branch.name) else { continue };
            if let Some(before) = read_to.as_deref().filter(|before| !is_above(&repo, before, &tip)) {
                findings.push(Finding::Broken(format!("{} lost the commit {before}", branch.about)));
                *read_to = None;
                *history = History::default();
            }
            let commits = commits(&repo, &branch.name, read_to.as_deref(), &tip);
            self.commits += commits.iter().filter(|commit| commit.by == By::Us).count() as u64;
            findings.extend(history.read(&commits, &versions));
            *read_to = Some(tip);
        }
        findings
    }
}

/// The server's own check of all objects; empty if it finds nothing.
pub(crate) fn complaints(fleet: &Fleet) -> Vec<String> {
    let mut repos: Vec<&str> = fleet.branches.iter().map(|branch| branch.repo.as_str()).collect();
    repos.dedup();
    let check = |repo: &str| {
        let repo = fleet.stack.repo_named(repo);
        let checked = try_git(&["fsck", "--full", "--strict", "--no-dangling"], repo.git_dir());
        checked.unwrap_or_else(|error| error).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    repos.into_iter().flat_map(check).collect()
}

fn is_above(repo: &Repo, before: &str, tip: &str) -> bool {
    try_git(&["merge-base", "--is-ancestor", before, tip], repo.git_dir()).is_ok()
}

/// Commits along first parents above `from`, oldest first.
fn commits(repo: &Repo, branch: &str, from: Option<&str>, tip: &str) -> Vec<Commit> {
    // One line for each push.
    let log = git(&["reflog", "show", "--format=%H", &format!("refs/heads/{branch}")], repo.git_dir());
    let tips: BTreeSet<&str> = log.lines().collect();
    let range = from.map_or_else(|| tip.to_owned(), |from| format!("{from}..{tip}"));
    let format = format!("--format={RECORD}%H{FIELD}%cn{FIELD}");
    let args =
        ["log", "--first-parent", "--reverse", "--no-renames", "--raw", "--no-abbrev", &format, &range];
    let output = git(&args, repo.git_dir());
    let records: Vec<(&str, &str, &str)> = output.split(RECORD).skip(1).filter_map(record).collect();
    let ids: Vec<&str> = records.iter().map(|(id, ..)| *id).collect();
    let raw = repo.objects(&ids);
    let blobs: Vec<&str> =
        records.iter().flat_map(|(.., changes)| changed(changes)).filter_map(|(id, _)| id).collect();
    let contents: BTreeMap<&str, Content> =
        blobs.iter().copied().zip(repo.objects(&blobs).iter().map(|bytes| content(bytes))).collect();
    let commit = |((id, committer, changes), raw): (&(&str, &str, &str), &Vec<u8>)| Commit {
        id: (*id).to_owned(),
        tip: tips.contains(id),
        by: if *committer == PERSON { By::Person } else { By::Us },
        header: header(&String::from_utf8_lossy(raw)),
        changes: changed(changes)
            .map(|(blob, path)| {
                let content = blob.and_then(|blob| contents.get(blob).cloned()).unwrap_or(Content::Gone);
                (path.to_owned(), content)
            })
            .collect(),
    };
    records.iter().zip(&raw).map(commit).collect()
}

fn record(text: &str) -> Option<(&str, &str, &str)> {
    let mut fields = text.splitn(3, FIELD);
    Some((fields.next()?, fields.next()?, fields.next()?))
}

/// Blob, `None` for a file that is gone, and path of each changed file.
fn changed(lines: &str) -> impl Iterator<Item = (Option<&str>, &str)> {
    lines.lines().filter_map(|line| {
        let (meta, path) = line.strip_prefix(':')?.split_once('\t')?;
        let blob = meta.split(' ').nth(3)?;
        Some((Some(blob).filter(|blob| blob.bytes().any(|byte| byte != b'0')), path))
    })
}

fn header(raw: &str) -> Option<JournalHeader> {
    let value = raw.lines().find_map(|line| line.strip_prefix(JournalHeader::NAME)?.strip_prefix(' '))?;
    JournalHeader::parse(value)
}

fn content(bytes: &[u8]) -> Content {
    let text = String::from_utf8_lossy(bytes);
    let value = text.lines().find_map(|line| line.trim().strip_prefix("value: "));
    let value = value.map(|value| value.trim_matches('"'));
    match value.and_then(|value| value.parse().ok()) {
        Some(stamp) => Content::Stamp(stamp),
        None => Content::Other(value.unwrap_or("no value").to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_shows_the_write_that_it_holds() {
        assert_eq!(content(b"data:\n  by: bob\n  value: \"17\"\n"), Content::Stamp(17));
        assert_eq!(content(b"data:\n  value: hand-3\n"), Content::Other("hand-3".to_owned()));
        assert_eq!(content(b"x: 1\n"), Content::Other("no value".to_owned()));
    }

    #[test]
    fn changed_files_come_with_their_blob_or_none() {
        let zero = "0".repeat(40);
        let blob = "a".repeat(40);
        let lines =
            format!("\n:100644 000000 {blob} {zero} D\tx/a.yaml\n:000000 100644 {zero} {blob} A\tx/b.yaml\n");
        assert_eq!(changed(&lines).collect::<Vec<_>>(), [(None, "x/a.yaml"), (Some(&*blob), "x/b.yaml")]);
    }
}
