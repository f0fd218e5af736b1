//! What the tests share: edits as real users, and what must hold of a history.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use upriver_testkit::git_server::git;
use upriver_testkit::stack::{Repo, Stack, StackOptions};

/// Long enough for a loaded machine; no test waits for it when all is well.
pub const SOON: Duration = Duration::from_secs(60);

/// Flags that shorten waits which are minutes by default.
pub const QUICK: [&str; 2] = ["--fence-after=3s", "--drift-poll-interval=2s"];

pub async fn stack(operators: usize) -> Stack {
    Stack::start(StackOptions::default().operators(operators, &QUICK)).await
}

/// One operator without Redis: its journal lives in its own memory.
pub async fn embedded_stack() -> Stack {
    let flags: Vec<&str> = QUICK.into_iter().chain(["--store=embedded"]).collect();
    Stack::start(StackOptions::default().operators(1, &flags)).await
}

/// Makes two tests of each function: with Redis, and with the embedded store.
macro_rules! in_both_stores {
    ($($name:ident),+ $(,)?) => {
        mod redis {
            $(#[tokio::test]
            async fn $name() {
                super::$name(crate::support::stack(1).await).await;
            })+
        }
        mod embedded {
            $(#[tokio::test]
            async fn $name() {
                super::$name(crate::support::embedded_stack().await).await;
            })+
        }
    };
}
pub(crate) use in_both_stores;

/// A person's clone of a repository that may still be empty, on `main`.
pub fn human_clone(stack: &Stack) -> PathBuf {
    let clone = stack.dir().join("human");
    git(&["clone", "--quiet", &stack.login_url(), &clone.to_string_lossy()], stack.dir());
    git(&["checkout", "-q", "-B", "main"], &clone);
    clone
}

/// Commits everything in a clone and pushes it to `main`.
pub fn human_push(clone: &Path, message: &str) {
    git(&["add", "--all"], clone);
    git(&["commit", "-q", "-m", message], clone);
    git(&["push", "-q", "origin", "HEAD:main"], clone);
}

/// The remote's `git fsck` finds nothing.
pub fn assert_sound(stack: &Stack) {
    let complaints = stack.repo().git(&["fsck", "--full", "--strict", "--no-dangling"]);
    assert_eq!(complaints.trim(), "", "the repository is sound");
}

pub fn config_map(name: &str, value: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([("value".to_owned(), value.to_owned())])),
        ..ConfigMap::default()
    }
}

pub struct Edits {
    api: Api<ConfigMap>,
}

impl Edits {
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { api: Api::namespaced(client, namespace) }
    }

    pub async fn create(&self, name: &str, value: &str) {
        self.api.create(&PostParams::default(), &config_map(name, value)).await.expect("created");
    }

    pub async fn set(&self, name: &str, value: &str) {
        let patch = Patch::Merge(serde_json::json!({"data": {"value": value}}));
        self.api.patch(name, &PatchParams::default(), &patch).await.expect("patched");
    }

    pub async fn delete(&self, name: &str) {
        self.api.delete(name, &DeleteParams::default()).await.expect("deleted");
    }
}

/// The values that a file had, oldest first; `None` where it was deleted.
pub fn values_of(repo: &Repo, branch: &str, path: &str) -> Vec<Option<String>> {
    let mut commits = repo.log(branch);
    commits.reverse();
    let value_at = |commit: &str| {
        let tree = repo.ls_tree_at(commit, "");
        let text = tree.get(path).map(|bytes| String::from_utf8_lossy(bytes).into_owned())?;
        let line = text.lines().find_map(|line| line.trim().strip_prefix("value: "))?;
        Some(line.trim_matches('"').to_owned())
    };
    let mut values: Vec<Option<String>> = Vec::new();
    for commit in commits.iter().filter(|commit| commit.paths.iter().any(|changed| changed == path)) {
        values.push(value_at(&commit.id));
    }
    values
}

/// The journal entries that each commit is the first to stand for, by the header that `git log` does not show.
pub fn entries_of_commits(repo: &Repo, branch: &str) -> Vec<(String, BTreeSet<String>)> {
    let mut commits = repo.log(branch);
    commits.reverse();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut fresh = Vec::new();
    for commit in commits {
        let ids = header_ids(&commit.raw);
        let new: BTreeSet<String> = ids.difference(&seen).cloned().collect();
        seen.extend(ids);
        fresh.push((commit.id, new));
    }
    fresh
}

fn header_ids(raw: &str) -> BTreeSet<String> {
    let Some(line) = raw.lines().find(|line| line.starts_with("upriver-journal ")) else {
        return BTreeSet::new();
    };
    let ids = line.split(' ').find_map(|word| word.strip_prefix("ids=")).unwrap_or_default();
    let set = upriver_model::IdSet::parse(ids).expect("the header's ids are a set");
    set.iter().map(|id| id.to_string()).collect()
}
