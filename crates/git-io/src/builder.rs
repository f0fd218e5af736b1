//! Which objects make these commits? In: a base, paths and bytes, who and why. Out: commits stacked on the base, and a
//! pack of exactly the objects that are new. Nothing is sent here. Equal inputs give equal ids: no clock, no dice.

use std::collections::{HashMap, HashSet};

use gix::ObjectId;
use gix::objs::{CommitRefIter, Kind};

use crate::error::GitError;
use crate::mirror::Base;
use crate::names::split_path;
use crate::objects::{NewObject, ObjectStore};
use crate::pack::{self, PackData};
use crate::tree::TreeEditor;

/// Headers that git itself writes; another of that name would change the commit's meaning.
const RESERVED_HEADERS: [&str; 8] =
    ["tree", "parent", "author", "committer", "encoding", "gpgsig", "gpgsig-sha256", "mergetag"];

/// Who and when. Time is in UTC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Not empty, one line, without `<` and `>`.
    pub name: String,
    /// One line, without `<` and `>`.
    pub email: String,
    /// Since 1970.
    pub seconds: u64,
}

/// All of a commit but its tree and parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitMeta {
    /// Who changed the content.
    pub author: Signature,
    /// Who wrote the commit.
    pub committer: Signature,
    /// Kept as it is; only a missing line break at its end is added, as git does.
    pub message: String,
    /// Headers after the committer's, which `git log` does not show.
    pub extra_headers: Vec<(String, String)>,
}

/// Stacks commits on a base.
pub struct Builder<'m> {
    store: &'m mut ObjectStore,
    editor: TreeEditor,
    base: Base,
    tip: Option<ObjectId>,
    tip_tree: ObjectId,
    /// Blobs that were put since the last commit; only those that the commit's tree holds become part of it.
    put: HashMap<ObjectId, NewObject>,
    seen: HashSet<ObjectId>,
    objects: Vec<NewObject>,
    commits: Vec<ObjectId>,
}

/// Commits that are ready to be pushed.
#[derive(Clone, Debug)]
pub struct Built {
    /// What the branch must be at; nothing when it must not exist.
    pub old: Option<ObjectId>,
    /// The new tip.
    pub new: ObjectId,
    /// The commits, oldest first.
    pub commits: Vec<ObjectId>,
    /// Their objects.
    pub pack: PackData,
}

impl<'m> Builder<'m> {
    pub(crate) fn new(store: &'m mut ObjectStore, base: Base) -> Result<Self, GitError> {
        let tip = base.parent();
        let tree = tip.map(|tip| tree_of(store, &tip)).transpose()?;
        let editor = TreeEditor::open(store, tree)?;
        Ok(Self {
            store,
            editor,
            base,
            tip,
            tip_tree: tree.unwrap_or_else(|| ObjectId::empty_tree(gix::hash::Kind::Sha1)),
            put: HashMap::new(),
            seen: HashSet::new(),
            objects: Vec::new(),
            commits: Vec::new(),
        })
    }

    /// Writes a file in the next commit and returns its blob's id.
    ///
    /// # Errors
    /// A path that is not allowed, or that collides with a file, folder or submodule.
    pub fn put(&mut self, path: &str, bytes: &[u8]) -> Result<ObjectId, GitError> {
        let parts = split_path(path)?;
        let blob = NewObject::new(Kind::Blob, bytes.to_vec())?;
        let id = blob.id;
        self.editor.put(self.store, path, &parts, id)?;
        self.put.insert(id, blob);
        Ok(id)
    }

    /// Removes a file in the next commit; false when there is none.
    ///
    /// # Errors
    /// A path that is not allowed, or that is a folder.
    pub fn remove(&mut self, path: &str) -> Result<bool, GitError> {
        self.editor.remove(self.store, path, &split_path(path)?)
    }

    /// The blob at a path, with all edits so far.
    ///
    /// # Errors
    /// A path that is not allowed, or an unreadable mirror.
    pub fn blob_at(&mut self, path: &str) -> Result<Option<ObjectId>, GitError> {
        self.editor.blob_at(self.store, &split_path(path)?)
    }

    /// A file's bytes, with all edits so far.
    ///
    /// # Errors
    /// A path that is not allowed, or an unreadable mirror.
    pub fn read(&mut self, path: &str) -> Result<Option<Vec<u8>>, GitError> {
        let Some(id) = self.blob_at(path)? else { return Ok(None) };
        if let Some(blob) = self.put.get(&id) {
            return Ok(Some(blob.data.to_vec()));
        }
        self.store.read(&id, Kind::Blob).map(Some)
    }

    /// Commits the edits; nothing when they change nothing.
    ///
    /// # Errors
    /// Text that a commit cannot hold.
    pub fn commit(&mut self, meta: &CommitMeta) -> Result<Option<ObjectId>, GitError> {
        let header_end = CommitText::check(meta)?;
        let (tree, written) = self.editor.write()?;
        let put = std::mem::take(&mut self.put);
        if tree == self.tip_tree {
            return Ok(None);
        }
        for id in written.fresh_blobs {
            if let Some(blob) = put.get(&id) {
                self.keep(blob.clone());
            }
        }
        for tree in written.trees {
            self.keep(tree);
        }
        self.tip_tree = tree;
        self.seal(&header_end).map(Some)
    }

    /// Makes a commit that changes nothing, whatever edits are pending for the next one.
    ///
    /// # Errors
    /// Text that a commit cannot hold.
    pub fn commit_empty(&mut self, meta: &CommitMeta) -> Result<ObjectId, GitError> {
        let header_end = CommitText::check(meta)?;
        if self.tip.is_none() {
            // The root of an unborn branch: its empty tree has to be sent too.
            self.keep(NewObject::new(Kind::Tree, Vec::new())?);
        }
        self.seal(&header_end)
    }

    /// The newest commit, or the base.
    #[must_use]
    pub fn tip(&self) -> Option<ObjectId> {
        self.tip
    }

    /// Packs the commits; nothing when there are none. Edits that were not committed are dropped.
    ///
    /// # Errors
    /// Only internal ones.
    pub fn finish(self) -> Result<Option<Built>, GitError> {
        let Some(new) = self.commits.last().copied() else { return Ok(None) };
        let pack = pack::encode(self.objects.iter())?;
        Ok(Some(Built { old: self.base.expected_old(), new, commits: self.commits, pack }))
    }

    fn seal(&mut self, text: &CommitText) -> Result<ObjectId, GitError> {
        let mut data = format!("tree {}\n", self.tip_tree).into_bytes();
        if let Some(parent) = self.tip {
            data.extend_from_slice(format!("parent {parent}\n").as_bytes());
        }
        data.extend_from_slice(text.0.as_bytes());
        let commit = NewObject::new(Kind::Commit, data)?;
        let id = commit.id;
        self.keep(commit);
        self.commits.push(id);
        self.tip = Some(id);
        Ok(id)
    }

    fn keep(&mut self, object: NewObject) {
        if self.seen.insert(object.id) {
            self.store.insert(object.clone());
            self.objects.push(object);
        }
    }
}

/// The part of a commit that does not depend on where it is put.
struct CommitText(String);

impl CommitText {
    fn check(meta: &CommitMeta) -> Result<Self, GitError> {
        check_signature("author", &meta.author)?;
        check_signature("committer", &meta.committer)?;
        let mut text = format!("author {}\ncommitter {}\n", line(&meta.author), line(&meta.committer));
        for (name, value) in &meta.extra_headers {
            let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
            if name.is_empty() || !plain || RESERVED_HEADERS.contains(&name.as_str()) {
                return Err(GitError::CommitText { field: "extra header name" });
            }
            if value.contains('\0') || value.is_empty() {
                return Err(GitError::CommitText { field: "extra header value" });
            }
            // A further line of a header begins with a blank.
            text.push_str(&format!("{name} {}\n", value.trim_end_matches('\n').replace('\n', "\n ")));
        }
        if meta.message.contains('\0') {
            return Err(GitError::CommitText { field: "message" });
        }
        text.push('\n');
        text.push_str(&meta.message);
        if !meta.message.is_empty() && !meta.message.ends_with('\n') {
            text.push('\n');
        }
        Ok(Self(text))
    }
}

fn check_signature(field: &'static str, signature: &Signature) -> Result<(), GitError> {
    let breaks = |text: &str| text.chars().any(|c| c.is_control() || c == '<' || c == '>');
    let blank_edge = |text: &str| text != text.trim();
    let name = &signature.name;
    if name.is_empty()
        || breaks(name)
        || blank_edge(name)
        || breaks(&signature.email)
        || blank_edge(&signature.email)
    {
        return Err(GitError::CommitText { field });
    }
    Ok(())
}

fn line(signature: &Signature) -> String {
    format!("{} <{}> {} +0000", signature.name, signature.email, signature.seconds)
}

/// The tree of a commit.
pub(crate) fn tree_of(store: &ObjectStore, commit: &ObjectId) -> Result<ObjectId, GitError> {
    let data = store.read(commit, Kind::Commit)?;
    CommitRefIter::from_bytes(&data, gix::hash::Kind::Sha1)
        .tree_id()
        .map_err(|error| GitError::local("decode a commit", &error))
}
