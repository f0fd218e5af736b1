//! What must always hold, each once, by its number in the design. Input: what is stored, in Git and in the cluster.
//!
//! A store that forgot something begins a new history; a person who writes into the branch sets the order of its files
//! anew. Both are told to [`Checks`], and only what they excuse is excused.

use std::collections::{BTreeMap, BTreeSet};

use upriver_model::{AttemptId, CommitId, IdSet, Incarnation, Outcome, TargetScope};
use upriver_store::Inspection;

use crate::cluster::{self, Cluster, OBJECTS};
use crate::plans;
use crate::remote::{File, Path, Remote, Tree};

/// A rule that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    pub rule: &'static str,
    pub what: String,
}

fn broken<T>(rule: &'static str, what: String) -> Result<T, Broken> {
    Err(Broken { rule, what })
}

/// Versions of lists by scope.
pub type Listed = BTreeMap<TargetScope, u64>;

/// Contents that only people write.
pub const PEOPLES_CONTENT: u64 = 1_000_000;

/// What the checks remember.
#[derive(Clone, Debug, Default)]
pub struct Checks {
    highest_epoch: u64,
    outcomes: BTreeMap<(Incarnation, AttemptId), Outcome>,
    /// Where in its object's history each file is.
    places: BTreeMap<Path, usize>,
    /// Files that a person changed, and that we have not repaired yet.
    drifted: BTreeSet<Path>,
    /// Files of deleted objects that a person brought back: no inventory names them any more.
    brought_back: BTreeSet<Path>,
    committed: IdSet,
    pub losses: u32,
    /// Version of the last list that settled a scope, as the store's history has it.
    pub listed: Listed,
    /// Scopes that left the selection: their old files stay.
    deselected: BTreeSet<TargetScope>,
}

impl Checks {
    /// The store went back to an earlier moment: a new history.
    pub fn store_lost(&mut self, listed: Listed) {
        self.losses += 1;
        self.listed = listed;
        self.highest_epoch = 0;
        self.outcomes.clear();
    }

    /// A scope was settled: files that are as the list says are repaired, whatever a person did before.
    pub fn cleared(&mut self, cluster: &Cluster, remote: &Remote, scope: &TargetScope, list_rv: u64) {
        self.listed.insert(scope.clone(), list_rv);
        let tip = remote.tip.as_ref().and_then(|tip| remote.commits.get(tip));
        if tip.is_none_or(|commit| commit.header.is_none()) {
            // A person was here after us, and nobody has seen it yet.
            return;
        }
        let tree = remote.tip_tree();
        let kind = cluster::kind_of(&scope.gvr);
        for object in (0..OBJECTS.len()).filter(|object| cluster::covers(&scope.scope, *object)) {
            let path = Path::Doc { target: plans::target_number(&scope.target), kind, object };
            let content = match tree.get(&path) {
                None => None,
                Some(File::Ours(content)) => Some(*content),
                Some(File::Foreign(_)) => continue,
            };
            let from = cluster.place_at((kind, object), list_rv);
            if cluster.place((kind, object), from, content).is_some() {
                self.drifted.remove(&path);
            }
        }
    }

    /// The store drops what it knows of a scope.
    pub fn forgotten(&mut self, scope: &TargetScope) {
        self.listed.remove(scope);
        self.deselected.insert(scope.clone());
    }

    /// A person takes a scope out of the selection.
    pub fn deselected(&mut self, scope: &TargetScope) {
        self.deselected.insert(scope.clone());
    }

    /// A person changed one file.
    pub fn person_wrote(&mut self, path: Path) {
        self.places.insert(path, 0);
        self.drifted.insert(path);
    }

    /// A person moved the branch to somewhere else.
    pub fn person_moved_the_branch(&mut self, before: &Tree, after: &Tree) {
        let moved = after.iter().filter(|(path, file)| before.get(path) != Some(file));
        self.brought_back.extend(moved.map(|(path, _)| *path));
        for target in 0..2 {
            for kind in 0..2 {
                for object in 0..OBJECTS.len() {
                    self.person_wrote(Path::Doc { target, kind, object });
                }
            }
        }
        self.committed = IdSet::new();
    }

    /// INV-1: at most one epoch per claim is accepted in one store history.
    pub fn accepted(&mut self, epoch: u64) -> Result<(), Broken> {
        if epoch < self.highest_epoch {
            let highest = self.highest_epoch;
            return broken("INV-1", format!("epoch {epoch} was accepted after epoch {highest}"));
        }
        self.highest_epoch = epoch;
        Ok(())
    }

    /// INV-2: a cursor never passes an event that is neither journaled nor dirty. What was journaled or replayed is in the
    /// inventory.
    pub fn cursor(
        &self,
        stored: &Inspection,
        cluster: &Cluster,
        scopes: &[(TargetScope, Box<str>)],
    ) -> Result<(), Broken> {
        for (scope, spec_hash) in scopes {
            let kind = cluster::kind_of(&scope.gvr);
            let cursor = stored.loaded.cursors.get(&plans::watch_key(kind).to_string());
            let Some(cursor) = cursor.and_then(upriver_model::ResourceVersion::number) else { continue };
            if !is_settled(stored, scope, spec_hash) {
                continue;
            }
            let inventory = stored.inventories.get(&scope.as_key());
            for object in (0..OBJECTS.len()).filter(|object| cluster::covers(&scope.scope, *object)) {
                let seen = inventory.and_then(|inventory| inventory.get(&cluster::key(object)));
                let states = cluster.history(kind, object);
                let mut place = cluster.place_at((kind, object), cursor);
                // An update that changes nothing need not be journaled.
                while place > 1 && states[place - 1].content == states[place].content {
                    place -= 1;
                }
                let was = states[place];
                let listed = self.listed.get(scope).is_some_and(|list| *list >= was.rv);
                let seen_rv = seen.and_then(|seen| seen.rv.number());
                let known = listed || seen_rv.is_some_and(|rv| rv >= was.rv);
                let gone = was.content.is_none() && seen.is_none_or(|seen| seen.deleted);
                if !known && !gone {
                    let what = format!(
                        "cursor {cursor} of {scope} has passed {} {} at rv {}; inventory: {seen:?}",
                        cluster::kind_name(kind),
                        cluster::key(object),
                        was.rv
                    );
                    return broken("INV-2", what);
                }
            }
        }
        Ok(())
    }

    /// INV-3: the floor never passes an event whose state is not in the remote or dirty.
    pub fn floor(
        &self,
        stored: &Inspection,
        cluster: &Cluster,
        remote: &Remote,
        scopes: &[(TargetScope, Box<str>)],
    ) -> Result<(), Broken> {
        let tree = remote.tip_tree();
        for (scope, spec_hash) in scopes {
            if !is_settled(stored, scope, spec_hash) {
                continue;
            }
            let kind = cluster::kind_of(&scope.gvr);
            for (key, seen) in stored.inventories.get(&scope.as_key()).into_iter().flatten() {
                let owed = stored.loaded.entries.iter().any(|entry| {
                    let same = entry.entry.target == scope.target
                        && entry.entry.gvr == scope.gvr
                        && entry.entry.key == *key;
                    same && entry.id > stored.floor && !stored.done.contains(entry.id)
                });
                let object = cluster::object_of(key);
                let path = Path::Doc { target: plans::target_number(&scope.target), kind, object };
                let content = match tree.get(&path) {
                    None => None,
                    Some(File::Ours(content)) => Some(*content),
                    // Refused: a person owns it.
                    Some(File::Foreign(_)) => continue,
                };
                let from = cluster.place_at((kind, object), seen.rv.number().unwrap_or(0));
                let there = cluster.place((kind, object), from, content).is_some();
                let excused = self.drifted.contains(&path) || self.brought_back.contains(&path);
                if !there && !owed && !excused {
                    let what = format!("{path} holds {content:?}, but rv {} was passed", seen.rv);
                    return broken("INV-3", what);
                }
            }
        }
        Ok(())
    }

    /// INV-7: a settled attempt never changes.
    pub fn settled_attempts(&mut self, stored: &Inspection) -> Result<(), Broken> {
        for (id, attempt) in &stored.attempts {
            let Some(outcome) = attempt.outcome else { continue };
            let before = *self.outcomes.entry((stored.incarnation.clone(), *id)).or_insert(outcome);
            if before != outcome {
                return broken("INV-7", format!("attempt {id} was {before}, now {outcome}"));
            }
        }
        Ok(())
    }

    /// INV-5, INV-6, ONCE and the hands of people, for the commits of a push that has landed.
    pub fn landed(
        &mut self,
        cluster: &Cluster,
        remote: &Remote,
        old: Option<&CommitId>,
        new: &CommitId,
    ) -> Result<(), Broken> {
        for id in remote.chain(Some(new), old).iter().rev() {
            let Some(commit) = remote.commits.get(id) else { continue };
            let before = remote.tree(commit.parent.as_ref());
            let paths: BTreeSet<Path> = before.keys().chain(commit.tree.keys()).copied().collect();
            for path in paths {
                let (from, to) = (before.get(&path).copied(), commit.tree.get(&path).copied());
                if from != to {
                    self.file_moved(cluster, path, from, to)?;
                    check_author(cluster, commit, path, to)?;
                }
            }
            if let Some(twice) = commit.entries.iter().find(|entry| self.committed.contains(*entry))
                && self.losses == 0
            {
                return broken("ONCE", format!("entry {twice} is in two commits, the second is {id}"));
            }
            self.committed.extend(&commit.entries);
        }
        Ok(())
    }

    /// INV-5: per file, Git order = cluster order.
    fn file_moved(
        &mut self,
        cluster: &Cluster,
        path: Path,
        from: Option<File>,
        to: Option<File>,
    ) -> Result<(), Broken> {
        let (Path::Doc { kind, object, .. }, None | Some(File::Ours(_))) = (path, from) else {
            return broken("HANDS-OFF", format!("{path} is a person's file ({from:?}) and was changed"));
        };
        let content = match to {
            None => None,
            Some(File::Ours(content)) => Some(content),
            Some(File::Foreign(_)) => return broken("HANDS-OFF", format!("{path}: we wrote {to:?}")),
        };
        let place = self.places.get(&path).copied().unwrap_or(0);
        let Some(next) = cluster.place((kind, object), place, content) else {
            let what = format!("{path} went from {from:?} (place {place}) back to {content:?}");
            return broken("INV-5", what);
        };
        self.places.insert(path, next);
        Ok(())
    }

    /// FINAL: quiet implies Git = cluster, for every document and nothing else in our part of the folders.
    pub fn finally(
        &self,
        stored: &Inspection,
        cluster: &Cluster,
        remote: &Remote,
        scopes: &[(TargetScope, Box<str>)],
    ) -> Result<(), Broken> {
        let owed = stored.loaded.entries.iter().filter(|entry| !stored.done.contains(entry.id)).count();
        // A push that never arrived may still do so while its base stands; with nothing to do, nobody ends it.
        let open = stored.loaded.attempts.iter().filter(|attempt| {
            attempt.intend.as_ref().is_none_or(|intend| intend.base.as_ref() != remote.tip.as_ref())
        });
        let open = open.count();
        // With nothing selected nobody asks the store for anything, so what it lost at the end is noticed later.
        if owed > 0 || (open > 0 && !scopes.is_empty()) {
            return broken("FINAL", format!("{owed} entries are owed and {open} attempts are open"));
        }
        let tree = remote.tip_tree();
        let own = remote.own_files(remote.tip.as_ref());
        for (scope, spec_hash) in scopes {
            if !is_settled(stored, scope, spec_hash) {
                return broken("FINAL", format!("{scope} is not settled"));
            }
            let kind = cluster::kind_of(&scope.gvr);
            for object in (0..OBJECTS.len()).filter(|object| cluster::covers(&scope.scope, *object)) {
                let path = Path::Doc { target: plans::target_number(&scope.target), kind, object };
                let wanted = cluster.live.get(&(kind, object)).map(|live| File::Ours(live.content));
                let found = tree.get(&path).copied();
                // What a person's own commit brought back is a person's; what our commits wrote is ours to take away.
                let theirs = self.brought_back.contains(&path) && !own.contains(&path);
                let unknown = self.was_deselected(scope, object) || theirs;
                let left = wanted.is_none() && unknown;
                let refused = match found {
                    Some(File::Foreign(_)) => true,
                    // Somebody's document of an object that never was.
                    Some(File::Ours(content)) => wanted.is_none() && content >= PEOPLES_CONTENT,
                    None => false,
                };
                if found != wanted && !refused && !left {
                    return broken("FINAL", format!("{path} holds {found:?}, the cluster {wanted:?}"));
                }
            }
        }
        Ok(())
    }

    /// Configuration is not a deletion: what was selected before, in whatever scope, keeps its files.
    fn was_deselected(&self, scope: &TargetScope, object: usize) -> bool {
        self.deselected.iter().any(|old| {
            old.target == scope.target
                && old.gvr.resource == scope.gvr.resource
                && cluster::covers(&old.scope, object)
        })
    }
}

fn is_settled(stored: &Inspection, scope: &TargetScope, spec_hash: &str) -> bool {
    let key = scope.as_key();
    let generation = stored.loaded.generations.get(&key).copied().unwrap_or(0);
    let record = stored.loaded.settled.get(&key);
    record.is_some_and(|record| {
        let paid = record.spec_hash.rsplit_once('@').map(|(paid, _)| paid);
        record.generation == generation && paid == Some(spec_hash)
    })
}

/// INV-6: an author in Git is the author of that change or "unresolved".
fn check_author(
    cluster: &Cluster,
    commit: &crate::remote::Commit,
    path: Path,
    to: Option<File>,
) -> Result<(), Broken> {
    let (Some(author), Path::Doc { kind, object, .. }, true) = (&commit.author, path, commit.window) else {
        return Ok(());
    };
    let content = match to {
        Some(File::Ours(content)) => Some(content),
        Some(File::Foreign(_)) | None => None,
    };
    let theirs = cluster
        .history(kind, object)
        .iter()
        .any(|was| was.content == content && cluster::author(was.rv) == *author);
    if theirs {
        return Ok(());
    }
    broken("INV-6", format!("{path} became {content:?} under {author:?}"))
}

/// INV-4: a ref is only moved from the base it was built on, by a holder proven after the fetch, or whose own push left
/// that tip. This half is checked when a push is sent.
pub fn proven_before_push(owner: usize, proven: bool) -> Result<(), Broken> {
    if proven {
        return Ok(());
    }
    broken("INV-4", format!("owner {owner} pushes onto a fetched tip without a proof sent after the fetch"))
}

/// INV-4, the other half: checked when the ref moves.
pub fn moved_from_its_base(
    remote: &Remote,
    tip: Option<&CommitId>,
    old: Option<&CommitId>,
    new: &CommitId,
) -> Result<(), Broken> {
    let first = remote.chain(Some(new), old).pop();
    let parent = first.and_then(|id| remote.commits.get(&id)).and_then(|commit| commit.parent.clone());
    if tip == old && (old.is_none() || parent.as_ref() == old) {
        return Ok(());
    }
    broken("INV-4", format!("the ref moved from {tip:?} to {new}, which was built on {old:?}"))
}
