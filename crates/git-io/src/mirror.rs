//! What is on the remote's branch? In: a remote and a branch. Out: the tip, its files and its recent history. The
//! mirror is a bare, shallow repository in a directory of its own; it can be deleted at any time, and deletes itself
//! when it is broken or has grown out of proportion (see [`crate::objects`]). No configuration file is ever read.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use gix::ObjectId;
use gix::objs::{CommitRef, Kind};

use crate::builder::{Builder, tree_of};
use crate::error::GitError;
use crate::fetch::{self, Content};
use crate::names::{split_folder, validate_branch};
use crate::objects::{ObjectStore, write_pack};
use crate::remote::{Remote, Service, Session, full_name};
use crate::trace;
use crate::tree::{self, read_tree};

/// Tells our directories from a user's, and old layouts from this one.
const MARKER: &str = "upriver-mirror";
const LAYOUT: &str = "1\n";
/// The remote needs few commits to see what we have, and each costs a line in every fetch.
const MAX_HAVES: usize = 8;

/// What new commits are built on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The branch exists.
    Branch {
        /// Its tip.
        tip: ObjectId,
    },
    /// The branch does not exist and will start at the default branch's tip.
    New {
        /// The default branch's tip.
        from: ObjectId,
    },
    /// The repository has no commit that a branch could start at.
    Unborn,
}

impl Base {
    /// The parent of the first new commit.
    #[must_use]
    pub fn parent(&self) -> Option<ObjectId> {
        match self {
            Self::Branch { tip } => Some(*tip),
            Self::New { from } => Some(*from),
            Self::Unborn => None,
        }
    }

    /// What the remote's branch must be at when the push arrives.
    #[must_use]
    pub fn expected_old(&self) -> Option<ObjectId> {
        match self {
            Self::Branch { tip } => Some(*tip),
            Self::New { .. } | Self::Unborn => None,
        }
    }
}

/// What a path holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// An ordinary file.
    Blob,
    /// A file with the executable bit.
    Executable,
    /// A symbolic link; its blob is the target.
    Symlink,
    /// A commit of another repository.
    Submodule,
}

/// One file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeEntry {
    /// Blob, or commit for a submodule.
    pub id: ObjectId,
    /// What it is.
    pub kind: EntryKind,
}

/// One commit of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitInfo {
    /// The commit.
    pub id: ObjectId,
    /// Its tree.
    pub tree: ObjectId,
    /// All parents, first one first.
    pub parents: Vec<ObjectId>,
    /// `name <email>`
    pub author: String,
    /// Author time since 1970.
    pub author_seconds: i64,
    /// `name <email>`
    pub committer: String,
    /// The whole message.
    pub message: String,
    /// Headers that git does not know.
    pub extra_headers: Vec<(String, String)>,
}

/// A local copy of one remote's branches.
pub struct Mirror {
    dir: PathBuf,
    store: ObjectStore,
    /// Commits whose whole trees are here, newest last. Survives a restart as git's `shallow` file.
    complete: Vec<ObjectId>,
}

impl Mirror {
    /// Opens the mirror in `dir`, or makes one. A broken mirror is replaced; a directory that is something else is not
    /// touched. One mirror value per directory: nothing guards against a second.
    ///
    /// # Errors
    /// [`GitError::Local`]
    pub fn open(dir: &Path) -> Result<Self, GitError> {
        let marker = fs::read_to_string(dir.join(MARKER)).ok();
        if marker.is_none() && fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some()) {
            let detail = format!("{} is not empty and no mirror of ours", dir.display());
            return Err(GitError::Local { what: "open its directory", detail });
        }
        if marker.as_deref() == Some(LAYOUT)
            && let Ok(mirror) = Self::load(dir)
        {
            return Ok(mirror);
        }
        Self::make(dir)
    }

    /// Throws all content away. The next fetch brings it back.
    ///
    /// # Errors
    /// [`GitError::Local`]
    pub fn reset(&mut self) -> Result<(), GitError> {
        *self = Self::make(&self.dir)?;
        Ok(())
    }

    fn load(dir: &Path) -> Result<Self, GitError> {
        let store = ObjectStore::open(&dir.join("objects"))?;
        store.remove_leftovers()?;
        // A process that was killed while it fetched leaves its lock, which would stop every later fetch.
        match fs::remove_file(dir.join("shallow.lock")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(GitError::local("clear its leftovers", &error));
            }
            Ok(()) | Err(_) => {}
        }
        let complete = read_shallow(&dir.join("shallow"))?;
        for commit in &complete {
            tree::read_tree(&store, &tree_of(&store, commit)?)?;
        }
        Ok(Self { dir: dir.to_owned(), store, complete })
    }

    fn make(dir: &Path) -> Result<Self, GitError> {
        let cannot = |error: io::Error| GitError::local("make its directory", &error);
        fs::create_dir_all(dir).map_err(cannot)?;
        // The marker goes first and comes last: a half-made mirror stays recognisable and is made again.
        fs::write(dir.join(MARKER), "unfinished\n").map_err(cannot)?;
        for entry in fs::read_dir(dir).map_err(cannot)? {
            let path = entry.map_err(cannot)?.path();
            if path.is_dir() {
                fs::remove_dir_all(&path).map_err(cannot)?;
            } else if path.file_name().is_none_or(|name| name != MARKER) {
                fs::remove_file(&path).map_err(cannot)?;
            }
        }
        // So that a person can look inside with git.
        fs::create_dir_all(dir.join("refs/heads")).map_err(cannot)?;
        fs::write(dir.join("HEAD"), "ref: refs/heads/main\n").map_err(cannot)?;
        let config = "[core]\n\trepositoryformatversion = 0\n\tbare = true\n";
        fs::write(dir.join("config"), config).map_err(cannot)?;
        let store = ObjectStore::open(&dir.join("objects"))?;
        fs::write(dir.join(MARKER), LAYOUT).map_err(cannot)?;
        Ok(Self { dir: dir.to_owned(), store, complete: Vec::new() })
    }

    /// Brings the branch's tip here, or, if the branch is missing, the default branch's. Without history.
    ///
    /// # Errors
    /// See [`GitError`].
    pub fn fetch(&mut self, remote: &Remote, branch: &str) -> Result<Base, GitError> {
        validate_branch(branch)?;
        let mut session = Session::open(remote, Service::UploadPack)?;
        let refs = session.refs(remote, Some(&["HEAD".to_owned(), full_name(branch)]))?;
        let base = match (refs.branch(branch), refs.default_tip()) {
            (Some(tip), _) => Base::Branch { tip },
            (None, Some(from)) => Base::New { from },
            (None, None) => return Ok(Base::Unborn),
        };
        if let Some(tip) = base.parent().filter(|tip| !self.store.contains(tip)) {
            if self.store.is_bloated()? {
                self.reset()?;
            }
            self.receive(remote, &mut session, tip)?;
        }
        Ok(base)
    }

    fn receive(&mut self, remote: &Remote, session: &mut Session, tip: ObjectId) -> Result<(), GitError> {
        // Deltas may lean on anything that we say we have, so it must be on disk before the pack is.
        self.store.spill()?;
        let from = self.complete.len().saturating_sub(MAX_HAVES);
        let request = fetch::Request {
            want: tip,
            haves: &self.complete[from..],
            depth: NonZeroU32::MIN,
            content: Content::Everything,
            shallow_file: self.dir.join("shallow"),
        };
        request.run(remote, session, |pack| self.store.write_pack(pack))?;
        tree_of(&self.store, &tip)?;
        self.complete.push(tip);
        Ok(())
    }

    /// Up to `limit` commits from `tip` along first parents, newest first. Asks the remote only for what is not here.
    ///
    /// # Errors
    /// See [`GitError`].
    pub fn first_parent_history(
        &mut self,
        remote: &Remote,
        tip: ObjectId,
        limit: usize,
    ) -> Result<Vec<CommitInfo>, GitError> {
        let known = walk(&self.store, tip, limit)?;
        let more_exists = known.last().is_none_or(|commit| !commit.parents.is_empty());
        if known.len() >= limit || !more_exists {
            return Ok(known);
        }
        self.with_history(remote, tip, limit, Content::Commits, |store| walk(store, tip, limit))
    }

    /// Which commit was the last to change each file of a tip? Looks at up to `limit` commits along first parents, newest
    /// first; each comes with the files, below one of `folders`, that no newer one has changed and that the tip holds. A
    /// file that none of them changed is in no list.
    ///
    /// # Errors
    /// See [`GitError`].
    pub fn last_changes(
        &mut self,
        remote: &Remote,
        tip: ObjectId,
        folders: &[&str],
        limit: usize,
    ) -> Result<Vec<(CommitInfo, Vec<String>)>, GitError> {
        let folders = folders.iter().map(|folder| split_folder(folder)).collect::<Result<Vec<_>, _>>()?;
        self.with_history(remote, tip, limit, Content::Trees, |store| {
            trace::last_changes(store, &walk(store, tip, limit)?, &folders)
        })
    }

    /// Fetches history into a place of its own: commits that are not whole must never be taken for a complete base.
    fn with_history<T>(
        &self,
        remote: &Remote,
        tip: ObjectId,
        limit: usize,
        content: Content,
        read: impl FnOnce(&ObjectStore) -> Result<T, GitError>,
    ) -> Result<T, GitError> {
        let dir = self.dir.join("history");
        let _ = fs::remove_dir_all(&dir);
        let objects = dir.join("objects");
        ObjectStore::open(&objects)?;
        let mut session = Session::open(remote, Service::UploadPack)?;
        // In protocol version 1 the refs are part of the handshake and must be taken before the next request.
        session.refs(remote, Some(&["HEAD".to_owned()]))?;
        let depth = u32::try_from(limit).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN);
        let request =
            fetch::Request { want: tip, haves: &[], depth, content, shallow_file: dir.join("shallow") };
        let result = request
            .run(remote, &mut session, |pack| {
                write_pack(&objects, pack, None).map_err(|error| GitError::local("store a pack", &error))
            })
            .and_then(|()| ObjectStore::open(&objects))
            .and_then(|store| read(&store));
        let _ = fs::remove_dir_all(&dir);
        result
    }

    /// All files below a folder of a commit, by their path relative to it. A missing folder has no files.
    ///
    /// # Errors
    /// A folder that is not allowed, or an unreadable mirror.
    pub fn tree_entries(
        &self,
        commit: ObjectId,
        folder: &str,
    ) -> Result<BTreeMap<String, TreeEntry>, GitError> {
        let mut entries = BTreeMap::new();
        // A list instead of recursion: how deep a foreign tree goes is not ours to say.
        let mut open: Vec<(ObjectId, String)> = Vec::new();
        open.extend(self.subtree_id(commit, folder)?.map(|tree| (tree, String::new())));
        while let Some((tree, prefix)) = open.pop() {
            for entry in read_tree(&self.store, &tree)? {
                let path = format!("{prefix}{}", String::from_utf8_lossy(&entry.name));
                let kind = match entry.mode {
                    tree::MODE_TREE => {
                        open.push((entry.id, format!("{path}/")));
                        continue;
                    }
                    tree::MODE_EXECUTABLE => EntryKind::Executable,
                    tree::MODE_SYMLINK => EntryKind::Symlink,
                    tree::MODE_SUBMODULE => EntryKind::Submodule,
                    // `read_tree` leaves no other mode.
                    _ => EntryKind::Blob,
                };
                entries.insert(path, TreeEntry { id: entry.id, kind });
            }
        }
        Ok(entries)
    }

    /// The tree of a folder of a commit.
    ///
    /// # Errors
    /// A folder that is not allowed, or an unreadable mirror.
    pub fn subtree_id(&self, commit: ObjectId, folder: &str) -> Result<Option<ObjectId>, GitError> {
        let mut id = tree_of(&self.store, &commit)?;
        for part in split_folder(folder)? {
            let entries = read_tree(&self.store, &id)?;
            let found =
                entries.iter().find(|entry| entry.mode == tree::MODE_TREE && entry.name == part.as_bytes());
            match found {
                Some(entry) => id = entry.id,
                None => return Ok(None),
            }
        }
        Ok(Some(id))
    }

    /// A file's bytes.
    ///
    /// # Errors
    /// [`GitError::MissingObject`] or an unreadable mirror.
    pub fn read_blob(&self, id: ObjectId) -> Result<Vec<u8>, GitError> {
        self.store.read(&id, Kind::Blob)
    }

    /// Begins to stack commits. The base is a fetched one, or the tip of an earlier build, pushed or not.
    ///
    /// # Errors
    /// [`GitError::MissingObject`] when the base is not here: fetch.
    pub fn build(&mut self, base: Base) -> Result<Builder<'_>, GitError> {
        self.store.spill_if_large()?;
        Builder::new(&mut self.store, base)
    }
}

fn walk(store: &ObjectStore, tip: ObjectId, limit: usize) -> Result<Vec<CommitInfo>, GitError> {
    let mut history = Vec::new();
    let mut next = Some(tip);
    while let Some(id) = next.filter(|id| history.len() < limit && store.contains(id)) {
        let commit = read_commit(store, id)?;
        next = commit.parents.first().copied();
        history.push(commit);
    }
    Ok(history)
}

fn read_commit(store: &ObjectStore, id: ObjectId) -> Result<CommitInfo, GitError> {
    let data = store.read(&id, Kind::Commit)?;
    let bad = |error: &dyn std::fmt::Display| GitError::Local {
        what: "decode a commit",
        detail: error.to_string(),
    };
    let commit = CommitRef::from_bytes(&data, gix::hash::Kind::Sha1).map_err(|error| bad(&error))?;
    let author = commit.author().map_err(|error| bad(&error))?;
    let committer = commit.committer().map_err(|error| bad(&error))?;
    Ok(CommitInfo {
        id,
        tree: commit.tree(),
        parents: commit.parents().collect(),
        author: format!("{} <{}>", author.name, author.email),
        author_seconds: author.seconds(),
        committer: format!("{} <{}>", committer.name, committer.email),
        message: commit.message.to_string(),
        extra_headers: commit
            .extra_headers
            .iter()
            // Of a value with several lines gix also hands out the last line's end.
            .map(|(name, value)| (name.to_string(), value.to_string().trim_end_matches('\n').to_owned()))
            .collect(),
    })
}

fn read_shallow(file: &Path) -> Result<Vec<ObjectId>, GitError> {
    match fs::read_to_string(file) {
        Ok(text) => text
            .lines()
            .map(|line| {
                ObjectId::from_hex(line.as_bytes())
                    .map_err(|error| GitError::local("read its shallow file", &error))
            })
            .collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(GitError::local("read its shallow file", &error)),
    }
}
