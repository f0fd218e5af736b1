//! Who changed a file last? In: commits with their trees, newest first. Out: the files that each was the last to change.
//! Folders whose ids are equal are never opened, so the cost is that of the changes, not of the tree.

use std::collections::{BTreeMap, BTreeSet};

use gix::ObjectId;

use crate::error::GitError;
use crate::mirror::CommitInfo;
use crate::objects::ObjectStore;
use crate::tree::{MODE_TREE, read_tree};

/// See [`crate::Mirror::last_changes`].
pub(crate) fn last_changes(
    store: &ObjectStore,
    history: &[CommitInfo],
    folders: &[Vec<&str>],
) -> Result<Vec<(CommitInfo, Vec<String>)>, GitError> {
    let mut decided: BTreeSet<String> = BTreeSet::new();
    let mut found = Vec::new();
    let mut newest: Option<BTreeSet<String>> = None;
    for (index, commit) in history.iter().enumerate() {
        let before = match (commit.parents.is_empty(), history.get(index + 1)) {
            (true, _) => None,
            (false, Some(parent)) => Some(parent.tree),
            // Older than what was asked for: nobody knows what this one changed.
            (false, None) => break,
        };
        let changed = Difference { store, folders }.between(before, Some(commit.tree))?;
        let held = match &newest {
            Some(held) => held,
            None => newest.insert(Difference { store, folders }.between(None, Some(commit.tree))?),
        };
        let mine: Vec<String> =
            changed.into_iter().filter(|path| held.contains(path) && !decided.contains(path)).collect();
        decided.extend(mine.iter().cloned());
        found.push((commit.clone(), mine));
        if decided.len() == held.len() {
            break;
        }
    }
    Ok(found)
}

struct Difference<'a> {
    store: &'a ObjectStore,
    folders: &'a [Vec<&'a str>],
}

impl Difference<'_> {
    /// Files below the folders that differ between two trees.
    fn between(&self, old: Option<ObjectId>, new: Option<ObjectId>) -> Result<BTreeSet<String>, GitError> {
        let mut changed = BTreeSet::new();
        // A list instead of recursion: how deep a foreign tree goes is not ours to say.
        let mut open: Vec<(Option<ObjectId>, Option<ObjectId>, String)> = vec![(old, new, String::new())];
        while let Some((old, new, prefix)) = open.pop() {
            if old == new {
                continue;
            }
            let (old, new) = (self.entries(old)?, self.entries(new)?);
            let names: BTreeSet<&Vec<u8>> = old.keys().chain(new.keys()).collect();
            for name in names {
                let (before, after) = (old.get(name), new.get(name));
                let path = format!("{prefix}{}", String::from_utf8_lossy(name));
                if before == after || !self.leads_to_a_folder(&path) {
                    continue;
                }
                let tree = |entry: Option<&(u16, ObjectId)>| {
                    entry.filter(|(mode, _)| *mode == MODE_TREE).map(|(_, id)| *id)
                };
                let leaf =
                    |entry: Option<&(u16, ObjectId)>| entry.copied().filter(|(mode, _)| *mode != MODE_TREE);
                if leaf(before) != leaf(after) && self.is_inside(&path) {
                    changed.insert(path.clone());
                }
                open.push((tree(before), tree(after), format!("{path}/")));
            }
        }
        Ok(changed)
    }

    fn entries(&self, tree: Option<ObjectId>) -> Result<BTreeMap<Vec<u8>, (u16, ObjectId)>, GitError> {
        let Some(tree) = tree else { return Ok(BTreeMap::new()) };
        let entries = read_tree(self.store, &tree)?;
        Ok(entries.into_iter().map(|entry| (entry.name, (entry.mode, entry.id))).collect())
    }

    fn is_inside(&self, path: &str) -> bool {
        self.folders.iter().any(|folder| path.split('/').count() > folder.len() && starts(path, folder))
    }

    /// True for what is inside of a folder and for the folders above it.
    fn leads_to_a_folder(&self, path: &str) -> bool {
        self.folders.iter().any(|folder| starts(path, folder))
    }
}

/// True if neither goes another way than the other, as far as both go.
fn starts(path: &str, folder: &[&str]) -> bool {
    path.split('/').zip(folder).all(|(part, wanted)| part == *wanted)
}
