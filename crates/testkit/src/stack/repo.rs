//! What is in the repository? In: a Git folder on disk, bare or a clone. Out: commits, files, contents, as the real
//! `git` reads them. Absent: writing; tests that play other writers use [`crate::git_server::git`] in a clone.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::git_server::git;

/// Between fields and between commits of our log format: no message holds them.
const FIELD: char = '\u{1f}';
const RECORD: char = '\u{1e}';

/// A repository that is only read.
#[derive(Clone, Debug)]
pub struct Repo {
    git_dir: PathBuf,
}

/// One commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitInfo {
    /// Its id.
    pub id: String,
    /// Ids of its parents.
    pub parents: Vec<String>,
    /// `name <mail>` of the author.
    pub author: String,
    /// `name <mail>` of the committer.
    pub committer: String,
    /// Commit time, seconds since 1970.
    pub time: i64,
    /// First line of the message.
    pub subject: String,
    /// The commit as stored, extra headers included.
    pub raw: String,
    /// Paths that differ from the first parent.
    pub paths: Vec<String>,
}

impl Repo {
    /// The bare repository, or the `.git` folder of a clone, at this path.
    #[must_use]
    pub fn open(git_dir: impl Into<PathBuf>) -> Self {
        Self { git_dir: git_dir.into() }
    }

    /// Where it lies.
    #[must_use]
    pub fn git_dir(&self) -> &Path {
        &self.git_dir
    }

    /// Commit at the tip of a branch; `None` while the branch does not exist.
    ///
    /// # Panics
    /// If git fails, as all methods here do: a reader that cannot answer is a broken test.
    #[must_use]
    pub fn head(&self, branch: &str) -> Option<String> {
        let reference = format!("refs/heads/{branch}");
        // What a push wrote last is a file of its own, and reading it costs no process: this is polled.
        if let Ok(id) = std::fs::read_to_string(self.git_dir.join(&reference)) {
            return Some(id.trim().to_owned()).filter(|id| !id.is_empty());
        }
        if !self.git_dir.join("packed-refs").exists() {
            return None;
        }
        let found = self.git(&["for-each-ref", "--format=%(objectname)", &reference]);
        found.lines().next().map(str::to_owned)
    }

    /// Content of a file at the tip of a branch; `None` if there is no such file.
    #[must_use]
    pub fn show(&self, branch: &str, path: &str) -> Option<String> {
        let bytes = self.ls_tree(branch, path).remove(path)?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Every file below `path` at the tip of a branch with its content; `""` is the whole tree.
    #[must_use]
    pub fn ls_tree(&self, branch: &str, path: &str) -> BTreeMap<String, Vec<u8>> {
        self.head(branch).map(|tip| self.ls_tree_at(&tip, path)).unwrap_or_default()
    }

    /// As [`Repo::ls_tree`], of a commit.
    #[must_use]
    pub fn ls_tree_at(&self, commit: &str, path: &str) -> BTreeMap<String, Vec<u8>> {
        let listed = self.list(commit, path);
        let ids: Vec<&str> = listed.iter().map(|(id, _)| id.as_str()).collect();
        let contents = self.objects(&ids);
        listed.into_iter().map(|(_, path)| path).zip(contents).collect()
    }

    /// Contents of these objects, in their order.
    #[must_use]
    pub fn objects(&self, ids: &[&str]) -> Vec<Vec<u8>> {
        let input: String = ids.iter().map(|id| format!("{id}\n")).collect();
        let mut contents = Batch { bytes: self.run(&["cat-file", "--batch"], &input), at: 0 };
        ids.iter().map(|_| contents.next_blob()).collect()
    }

    /// Paths of every file below `path` at the tip of a branch.
    #[must_use]
    pub fn paths(&self, branch: &str, path: &str) -> Vec<String> {
        let listed = self.head(branch).map(|tip| self.list(&tip, path)).unwrap_or_default();
        listed.into_iter().map(|(_, path)| path).collect()
    }

    /// Paths that differ between two commits; against an empty tree if `from` is `None`.
    #[must_use]
    pub fn changed(&self, from: Option<&str>, to: &str) -> Vec<String> {
        match from {
            None => self.list(to, "").into_iter().map(|(_, path)| path).collect(),
            Some(from) => {
                let output = self.git(&["diff-tree", "-r", "-z", "--name-only", from, to]);
                output.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect()
            }
        }
    }

    /// Commits of a branch, newest first.
    #[must_use]
    pub fn log(&self, branch: &str) -> Vec<CommitInfo> {
        let Some(tip) = self.head(branch) else { return Vec::new() };
        let fields = ["%H", "%P", "%an <%ae>", "%cn <%ce>", "%ct", "%s"].join("%x1f");
        let format = format!("--format=%x1e{fields}%x1f");
        let output = self.git(&["log", "--first-parent", "--name-only", "--no-renames", &format, &tip]);
        output.split(RECORD).skip(1).filter_map(|record| self.commit(record)).collect()
    }

    /// How many commits a branch has.
    #[must_use]
    pub fn count_commits(&self, branch: &str) -> usize {
        let Some(tip) = self.head(branch) else { return 0 };
        self.git(&["rev-list", "--count", &tip]).trim().parse().expect("rev-list --count prints a number")
    }

    /// Output of any other git command in this repository.
    pub fn git(&self, args: &[&str]) -> String {
        git(args, &self.git_dir)
    }

    fn commit(&self, record: &str) -> Option<CommitInfo> {
        let mut fields = record.split(FIELD);
        let mut next = || fields.next().map(str::to_owned);
        let id = next()?;
        Some(CommitInfo {
            raw: self.git(&["cat-file", "commit", &id]),
            id,
            parents: next()?.split_whitespace().map(str::to_owned).collect(),
            author: next()?,
            committer: next()?,
            time: next()?.parse().ok()?,
            subject: next()?,
            paths: next()?.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect(),
        })
    }

    /// Blob ids and paths.
    fn list(&self, commit: &str, path: &str) -> Vec<(String, String)> {
        let mut args = vec!["ls-tree", "-r", "-z", "--full-tree", commit];
        if !path.is_empty() {
            args.extend(["--", path]);
        }
        let output = self.git(&args);
        let entry = |line: &str| {
            let (meta, path) = line.split_once('\t')?;
            Some((meta.split(' ').nth(2)?.to_owned(), path.to_owned()))
        };
        output.split('\0').filter_map(entry).collect()
    }

    /// As [`Repo::git`], with input and for output that need not be text.
    fn run(&self, args: &[&str], input: &str) -> Vec<u8> {
        let mut child = Command::new("git")
            .args(args)
            .current_dir(&self.git_dir)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("git is installed");
        let mut stdin = child.stdin.take().expect("stdin is piped");
        let input = input.to_owned();
        // Fed beside the reading: both pipes are smaller than what goes through them.
        let feeder = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
        let output = child.wait_with_output().expect("git runs to its end");
        let _ = feeder.join();
        assert!(output.status.success(), "git {args:?} failed: {}", output.status);
        output.stdout
    }
}

/// What `git cat-file --batch` printed: a line with the size, then the bytes and a newline, again and again.
struct Batch {
    bytes: Vec<u8>,
    at: usize,
}

impl Batch {
    fn next_blob(&mut self) -> Vec<u8> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|byte| *byte == b'\n').expect("a line for each object");
        let line = String::from_utf8_lossy(&rest[..end]);
        let size: usize =
            line.rsplit(' ').next().and_then(|size| size.parse().ok()).expect("the line ends in the size");
        let blob = rest[end + 1..=end + size].to_vec();
        self.at += end + 1 + size + 1;
        blob
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repo_with_two_commits(dir: &Path) -> Repo {
        git(&["init", "--quiet", "--initial-branch=main", "."], dir);
        std::fs::create_dir(dir.join("a b")).expect("a folder");
        std::fs::write(dir.join("a b/one.yaml"), "one\n").expect("a file");
        std::fs::write(dir.join("a b/bytes"), [0xff, b'\n', 0xfe]).expect("a file");
        git(&["add", "."], dir);
        git(&["commit", "--quiet", "-m", "first\n\nbody"], dir);
        std::fs::write(dir.join("two.yaml"), "two\n").expect("a file");
        git(&["add", "."], dir);
        git(&["commit", "--quiet", "-m", "second"], dir);
        Repo::open(dir.join(".git"))
    }

    #[test]
    fn files_are_read_with_their_bytes() {
        let dir = tempfile::tempdir().expect("a folder");
        let repo = repo_with_two_commits(dir.path());
        let tree = repo.ls_tree("main", "a b");
        assert_eq!(tree.keys().collect::<Vec<_>>(), ["a b/bytes", "a b/one.yaml"]);
        assert_eq!(tree["a b/bytes"], [0xff, b'\n', 0xfe]);
        assert_eq!(repo.show("main", "two.yaml").as_deref(), Some("two\n"));
        assert_eq!(repo.show("main", "three.yaml"), None);
        assert_eq!(repo.ls_tree("main", "").len(), 3);
    }

    #[test]
    fn a_branch_that_does_not_exist_is_empty() {
        let dir = tempfile::tempdir().expect("a folder");
        let repo = repo_with_two_commits(dir.path());
        assert_eq!((repo.head("other"), repo.count_commits("other")), (None, 0));
        assert!(repo.ls_tree("other", "").is_empty() && repo.log("other").is_empty());
    }

    #[test]
    fn commits_come_newest_first_with_their_paths() {
        let dir = tempfile::tempdir().expect("a folder");
        let repo = repo_with_two_commits(dir.path());
        let log = repo.log("main");
        let subjects: Vec<_> = log.iter().map(|commit| commit.subject.as_str()).collect();
        assert_eq!((subjects, repo.count_commits("main")), (vec!["second", "first"], 2));
        assert_eq!(log[0].paths, ["two.yaml"]);
        assert_eq!(log[1].paths, ["a b/bytes", "a b/one.yaml"]);
        assert_eq!(log[0].parents, [log[1].id.clone()]);
        assert!(log[1].raw.ends_with("first\n\nbody\n"), "{}", log[1].raw);
        assert_eq!(repo.changed(Some(&log[1].id), &log[0].id), ["two.yaml"]);
        assert_eq!(repo.changed(None, &log[1].id).len(), 2);
    }
}
