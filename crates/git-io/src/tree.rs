//! What does the tree look like after these edits? In: a root, paths, blob ids. Out: the trees that changed, as
//! objects. Only folders on an edited path are read, each once per editor, and only those are written again.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as MapEntry;

use gix::ObjectId;
use gix::objs::{Kind, TreeRefIter};

use crate::error::GitError;
use crate::names::PathError;
use crate::objects::{NewObject, ObjectStore};

pub(crate) const MODE_TREE: u16 = 0o040_000;
pub(crate) const MODE_BLOB: u16 = 0o100_644;
pub(crate) const MODE_EXECUTABLE: u16 = 0o100_755;
pub(crate) const MODE_SYMLINK: u16 = 0o120_000;
pub(crate) const MODE_SUBMODULE: u16 = 0o160_000;

/// Git sorts folders as if their names ended with a slash, so that is how they are kept.
type SortKey = Vec<u8>;

/// A tree being edited.
#[derive(Debug, Default)]
pub(crate) struct TreeEditor {
    root: Folder,
}

/// A folder that was read.
#[derive(Debug, Default)]
struct Folder {
    entries: BTreeMap<SortKey, Node>,
    changed: bool,
}

#[derive(Debug)]
enum Node {
    Leaf {
        mode: u16,
        id: ObjectId,
        fresh: bool,
    },
    /// Not read yet.
    Closed {
        id: ObjectId,
    },
    /// Read; `id` is what it was before the edits, if it existed.
    Open {
        id: Option<ObjectId>,
        folder: Folder,
    },
}

/// What changed trees need to become part of a commit.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub(crate) trees: Vec<NewObject>,
    /// Blobs that were put since the last write and are still in the tree.
    pub(crate) fresh_blobs: Vec<ObjectId>,
}

impl TreeEditor {
    pub(crate) fn open(store: &ObjectStore, root: Option<ObjectId>) -> Result<Self, GitError> {
        let root = match root {
            Some(id) => Folder::read(store, &id)?,
            None => Folder::default(),
        };
        Ok(Self { root })
    }

    /// Sets a file. An executable stays executable; a symbolic link is replaced.
    pub(crate) fn put(
        &mut self,
        store: &ObjectStore,
        path: &str,
        parts: &[&str],
        id: ObjectId,
    ) -> Result<(), GitError> {
        let conflict = |rule| GitError::Path(PathError { path: path.to_owned(), rule });
        let (name, folders) = parts.split_last().ok_or_else(|| conflict("it is empty"))?;
        if !self.root.put(store, folders, name, id)? {
            return Err(conflict("a file or submodule is where a folder is needed, or the reverse"));
        }
        Ok(())
    }

    /// Removes a file and the folders that become empty by it; false when there is none.
    pub(crate) fn remove(
        &mut self,
        store: &ObjectStore,
        path: &str,
        parts: &[&str],
    ) -> Result<bool, GitError> {
        let Some((name, folders)) = parts.split_last() else { return Ok(false) };
        match self.root.remove(store, folders, name)? {
            Removal::Done => Ok(true),
            Removal::Absent => Ok(false),
            Removal::IsFolder => Err(GitError::Path(PathError {
                path: path.to_owned(),
                rule: "it is a folder or submodule, not a file",
            })),
        }
    }

    /// The blob at a path, edits included.
    pub(crate) fn blob_at(
        &mut self,
        store: &ObjectStore,
        parts: &[&str],
    ) -> Result<Option<ObjectId>, GitError> {
        let Some((name, folders)) = parts.split_last() else { return Ok(None) };
        let mut folder = &mut self.root;
        for part in folders {
            match folder.open_child(store, part)? {
                Some(child) => folder = child,
                None => return Ok(None),
            }
        }
        Ok(match folder.entries.get(name.as_bytes()) {
            Some(Node::Leaf { mode, id, .. }) if *mode != MODE_SUBMODULE => Some(*id),
            Some(Node::Leaf { .. } | Node::Closed { .. } | Node::Open { .. }) | None => None,
        })
    }

    /// Turns all edits since the last write into objects and returns the root's id.
    pub(crate) fn write(&mut self) -> Result<(ObjectId, Written), GitError> {
        let mut written = Written::default();
        let data = self.root.write(&mut written)?;
        let root = NewObject::new(Kind::Tree, data)?;
        let id = root.id;
        written.trees.push(root);
        Ok((id, written))
    }
}

enum Removal {
    Done,
    Absent,
    IsFolder,
}

impl Folder {
    fn read(store: &ObjectStore, id: &ObjectId) -> Result<Self, GitError> {
        let mut entries = BTreeMap::new();
        for entry in read_tree(store, id)? {
            let node = if entry.mode == MODE_TREE {
                Node::Closed { id: entry.id }
            } else {
                Node::Leaf { mode: entry.mode, id: entry.id, fresh: false }
            };
            let key = if entry.mode == MODE_TREE { folder_key(&entry.name) } else { entry.name };
            entries.insert(key, node);
        }
        Ok(Self { entries, changed: false })
    }

    fn open_child(&mut self, store: &ObjectStore, name: &str) -> Result<Option<&mut Folder>, GitError> {
        match self.entries.get_mut(&folder_key(name.as_bytes())) {
            Some(node) => node.open(store),
            None => Ok(None),
        }
    }

    /// False when a name on the way is taken by something of another kind.
    fn put(
        &mut self,
        store: &ObjectStore,
        folders: &[&str],
        name: &str,
        id: ObjectId,
    ) -> Result<bool, GitError> {
        let Some((next, rest)) = folders.split_first() else { return Ok(self.put_leaf(name, id)) };
        if self.entries.contains_key(next.as_bytes()) {
            return Ok(false);
        }
        let done = match self.entries.entry(folder_key(next.as_bytes())) {
            MapEntry::Occupied(mut entry) => match entry.get_mut().open(store)? {
                Some(folder) => folder.put(store, rest, name, id)?,
                None => false,
            },
            MapEntry::Vacant(entry) => {
                let mut folder = Folder::default();
                let done = folder.put(store, rest, name, id)?;
                entry.insert(Node::Open { id: None, folder });
                done
            }
        };
        self.changed |= done;
        Ok(done)
    }

    fn put_leaf(&mut self, name: &str, id: ObjectId) -> bool {
        if self.entries.contains_key(&folder_key(name.as_bytes())) {
            return false;
        }
        let old_mode = match self.entries.get(name.as_bytes()) {
            Some(Node::Leaf { mode: MODE_SUBMODULE, .. } | Node::Closed { .. } | Node::Open { .. }) => {
                return false;
            }
            Some(Node::Leaf { mode, .. }) => Some(*mode),
            None => None,
        };
        let mode = if old_mode == Some(MODE_EXECUTABLE) { MODE_EXECUTABLE } else { MODE_BLOB };
        self.entries.insert(name.as_bytes().to_vec(), Node::Leaf { mode, id, fresh: true });
        self.changed = true;
        true
    }

    fn remove(&mut self, store: &ObjectStore, folders: &[&str], name: &str) -> Result<Removal, GitError> {
        let Some((next, rest)) = folders.split_first() else { return Ok(self.remove_leaf(name)) };
        let key = folder_key(next.as_bytes());
        let Some(node) = self.entries.get_mut(&key) else { return Ok(Removal::Absent) };
        let Some(folder) = node.open(store)? else { return Ok(Removal::Absent) };
        let removal = folder.remove(store, rest, name)?;
        if matches!(removal, Removal::Done) {
            if folder.entries.is_empty() {
                self.entries.remove(&key);
            }
            self.changed = true;
        }
        Ok(removal)
    }

    fn remove_leaf(&mut self, name: &str) -> Removal {
        if self.entries.contains_key(&folder_key(name.as_bytes())) {
            return Removal::IsFolder;
        }
        match self.entries.entry(name.as_bytes().to_vec()) {
            MapEntry::Vacant(_) => Removal::Absent,
            MapEntry::Occupied(entry) => match entry.get() {
                Node::Leaf { mode: MODE_SUBMODULE, .. } | Node::Closed { .. } | Node::Open { .. } => {
                    Removal::IsFolder
                }
                Node::Leaf { .. } => {
                    entry.remove();
                    self.changed = true;
                    Removal::Done
                }
            },
        }
    }

    /// Writes changed folders below, and returns this one's own bytes.
    fn write(&mut self, written: &mut Written) -> Result<Vec<u8>, GitError> {
        let mut data = Vec::with_capacity(self.entries.len() * 40);
        for (key, node) in &mut self.entries {
            let (mode, name, id) = match node {
                Node::Leaf { mode, id, fresh } => {
                    if std::mem::take(fresh) {
                        written.fresh_blobs.push(*id);
                    }
                    (*mode, key.as_slice(), *id)
                }
                Node::Closed { id } => (MODE_TREE, &key[..key.len() - 1], *id),
                Node::Open { id, folder } => {
                    let new_id = folder.write_child(*id, written)?;
                    *id = Some(new_id);
                    (MODE_TREE, &key[..key.len() - 1], new_id)
                }
            };
            data.extend_from_slice(mode_text(mode));
            data.extend_from_slice(name);
            data.push(0);
            data.extend_from_slice(id.as_slice());
        }
        self.changed = false;
        Ok(data)
    }

    fn write_child(&mut self, before: Option<ObjectId>, written: &mut Written) -> Result<ObjectId, GitError> {
        if let Some(id) = before.filter(|_| !self.changed) {
            return Ok(id);
        }
        let object = NewObject::new(Kind::Tree, self.write(written)?)?;
        let id = object.id;
        if before != Some(id) {
            written.trees.push(object);
        }
        Ok(id)
    }
}

impl Node {
    fn open(&mut self, store: &ObjectStore) -> Result<Option<&mut Folder>, GitError> {
        if let Self::Closed { id } = self {
            *self = Self::Open { id: Some(*id), folder: Folder::read(store, id)? };
        }
        match self {
            Self::Open { folder, .. } => Ok(Some(folder)),
            Self::Leaf { .. } | Self::Closed { .. } => Ok(None),
        }
    }
}

fn mode_text(mode: u16) -> &'static [u8] {
    match mode {
        MODE_TREE => b"40000 ",
        MODE_EXECUTABLE => b"100755 ",
        MODE_SYMLINK => b"120000 ",
        MODE_SUBMODULE => b"160000 ",
        // `read_tree` and `put_leaf` make no other mode.
        _ => b"100644 ",
    }
}

fn folder_key(name: &[u8]) -> SortKey {
    let mut key = Vec::with_capacity(name.len() + 1);
    key.extend_from_slice(name);
    key.push(b'/');
    key
}

/// One line of a stored tree.
pub(crate) struct RawEntry {
    pub(crate) mode: u16,
    pub(crate) name: Vec<u8>,
    pub(crate) id: ObjectId,
}

/// Reads one tree object.
pub(crate) fn read_tree(store: &ObjectStore, id: &ObjectId) -> Result<Vec<RawEntry>, GitError> {
    // The empty tree is known to git without being stored.
    if id.is_empty_tree() {
        return Ok(Vec::new());
    }
    let data = store.read(id, Kind::Tree)?;
    TreeRefIter::from_bytes(&data, gix::hash::Kind::Sha1)
        .map(|entry| {
            let entry = entry.map_err(|error| GitError::local("decode a tree", &error))?;
            // Old repositories hold odd permission bits; only these five kinds mean anything.
            let mode = match entry.mode.kind() {
                gix::objs::tree::EntryKind::Tree => MODE_TREE,
                gix::objs::tree::EntryKind::Blob => MODE_BLOB,
                gix::objs::tree::EntryKind::BlobExecutable => MODE_EXECUTABLE,
                gix::objs::tree::EntryKind::Link => MODE_SYMLINK,
                gix::objs::tree::EntryKind::Commit => MODE_SUBMODULE,
            };
            Ok(RawEntry { mode, name: entry.filename.to_vec(), id: entry.oid.to_owned() })
        })
        .collect()
}
