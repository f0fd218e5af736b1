//! The Git remote: commits, one branch, compare-and-swap pushes that may land late, and people who push too.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use upriver_engine::branch::{Base, Built, Fetched, Unit, UnitKind, UnitResult};
use upriver_model::{Author, CommitId, IdSet, JournalHeader, TargetUid};

use crate::cluster;
use crate::plans;

/// Commits that are searched for evidence, as in the operator.
const HISTORY: usize = 200;

/// A file's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Path {
    /// The canonical place of an object's document in a target's folder.
    Doc { target: usize, kind: usize, object: usize },
    /// A file of somebody else in a target's folder.
    Beside { target: usize, number: usize },
    /// Outside of every folder.
    Elsewhere(usize),
}

impl Path {
    fn target(self) -> Option<usize> {
        match self {
            Self::Doc { target, .. } | Self::Beside { target, .. } => Some(target),
            Self::Elsewhere(_) => None,
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Doc { target, kind, object } => {
                write!(f, "t{target}/{}/{}", cluster::gvr(*kind).resource, cluster::key(*object))
            }
            Self::Beside { target, number } => write!(f, "t{target}/notes-{number}"),
            Self::Elsewhere(number) => write!(f, "readme-{number}"),
        }
    }
}

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum File {
    /// One document, as our emitter writes it.
    Ours(u64),
    /// Anything else.
    Foreign(u64),
}

pub type Tree = Arc<BTreeMap<Path, File>>;

#[derive(Clone, Debug)]
pub struct Commit {
    pub parent: Option<CommitId>,
    pub tree: Tree,
    pub header: Option<JournalHeader>,
    /// Entries of its own window, without those that earlier commits stand for.
    pub entries: IdSet,
    pub author: Option<Author>,
    pub window: bool,
}

/// A push on its way.
#[derive(Clone, Debug)]
pub struct Flight {
    pub number: u64,
    pub owner: usize,
    pub old: Option<CommitId>,
    pub new: CommitId,
}

#[derive(Clone, Debug, Default)]
pub struct Remote {
    pub commits: BTreeMap<CommitId, Commit>,
    pub tip: Option<CommitId>,
    /// Tip of the default branch, for a branch that does not exist yet.
    pub default_tip: Option<CommitId>,
    pub flights: Vec<Flight>,
    pub sent: u64,
}

fn hash_of(value: impl Hash) -> CommitId {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    CommitId::new(format!("{:016x}", hasher.finish()))
}

impl Remote {
    pub fn tree(&self, commit: Option<&CommitId>) -> Tree {
        commit.and_then(|id| self.commits.get(id)).map(|commit| commit.tree.clone()).unwrap_or_default()
    }

    pub fn tip_tree(&self) -> Tree {
        self.tree(self.tip.as_ref())
    }

    pub fn add(&mut self, commit: Commit, salt: &str) -> CommitId {
        let header = commit.header.as_ref().map(ToString::to_string);
        let id = hash_of((&commit.parent, &*commit.tree, header, &commit.author, salt));
        self.commits.insert(id.clone(), commit);
        id
    }

    /// Commits from a tip down to, but without, an ancestor.
    pub fn chain(&self, tip: Option<&CommitId>, until: Option<&CommitId>) -> Vec<CommitId> {
        let mut chain = Vec::new();
        let mut next = tip.cloned();
        while let Some(id) = next
            && Some(&id) != until
            && chain.len() < HISTORY
        {
            next = self.commits.get(&id).and_then(|commit| commit.parent.clone());
            chain.push(id);
        }
        chain
    }

    /// Files that our own commits were the last to change (F27).
    pub fn own_files(&self, tip: Option<&CommitId>) -> BTreeSet<Path> {
        let mut decided = BTreeSet::new();
        let mut own = BTreeSet::new();
        for id in self.chain(tip, None) {
            let Some(commit) = self.commits.get(&id) else { continue };
            let before = self.tree(commit.parent.as_ref());
            let changed = before
                .keys()
                .chain(commit.tree.keys())
                .filter(|path| before.get(path) != commit.tree.get(path) && !decided.contains(*path));
            for path in changed.copied().collect::<BTreeSet<Path>>() {
                decided.insert(path);
                let target = commit.header.as_ref().map(|header| plans::target_number(&header.target));
                if target.is_some() && target == path.target() {
                    own.insert(path);
                }
            }
        }
        own
    }

    pub fn fetch(&self, until: Option<&CommitId>, targets: &[TargetUid]) -> Fetched {
        let base = match (&self.tip, &self.default_tip) {
            (Some(tip), _) => Base::Branch(tip.clone()),
            (None, Some(from)) => Base::New(from.clone()),
            (None, None) => Base::Unborn,
        };
        let history = self
            .chain(self.tip.as_ref(), until)
            .into_iter()
            .map(|id| {
                let header = self.commits.get(&id).and_then(|commit| commit.header.clone());
                (id, header)
            })
            .collect();
        let subtrees = subtrees(&self.tree(parent(&base)), targets);
        let joined = until.is_some() && {
            let known = self.chain(self.tip.as_ref(), None);
            until.is_some_and(|until| known.contains(until))
        };
        Fetched { base, history, joined, subtrees }
    }

    /// Stacks one commit per unit on the base, as the operator's planner does.
    pub fn build(
        &mut self,
        base: &Base,
        units: &[(Unit, JournalHeader)],
        targets: &[TargetUid],
        own: &BTreeSet<Path>,
    ) -> Built {
        let mut tip = parent(base).cloned();
        let mut tree = (*self.tree(tip.as_ref())).clone();
        let mut new = None;
        let mut results = Vec::new();
        for (unit, header) in units {
            let mut result = UnitResult::default();
            if targets.contains(&unit.target) {
                let before = tree.clone();
                apply(&mut tree, unit, &mut result);
                reclaim(&mut tree, unit, own);
                let fence = unit.kind == UnitKind::Fence;
                if tree != before || fence {
                    let commit = Commit {
                        parent: tip.clone(),
                        tree: Arc::new(tree.clone()),
                        header: Some(header.clone()),
                        entries: unit.entries.clone(),
                        author: Some(unit.author.clone()),
                        window: unit.kind == UnitKind::Window,
                    };
                    let id = self.add(commit, &format!("{} {fence}", unit.time_ms));
                    result.commit = Some(id.clone());
                    tip = Some(id.clone());
                    new = Some(id);
                }
            }
            results.push(result);
        }
        Built { new, results, subtrees: subtrees(&Arc::new(tree), targets) }
    }

    pub fn send(&mut self, owner: usize, old: Option<CommitId>, new: CommitId) -> u64 {
        self.sent += 1;
        self.flights.push(Flight { number: self.sent, owner, old, new });
        self.sent
    }
}

pub fn parent(base: &Base) -> Option<&CommitId> {
    match base {
        Base::Branch(tip) | Base::New(tip) => Some(tip),
        Base::Unborn => None,
    }
}

fn subtrees(tree: &Tree, targets: &[TargetUid]) -> BTreeMap<TargetUid, Option<CommitId>> {
    let folder = |number: usize| {
        let files: Vec<_> = tree.iter().filter(|(path, _)| path.target() == Some(number)).collect();
        if files.is_empty() { None } else { Some(hash_of(files)) }
    };
    targets.iter().map(|uid| (uid.clone(), folder(plans::target_number(uid)))).collect()
}

/// As the operator does: what the list lacks, and only our own commits have touched, goes (F27).
fn reclaim(tree: &mut BTreeMap<Path, File>, unit: &Unit, own: &BTreeSet<Path>) {
    let UnitKind::Replay(replayed) = &unit.kind else { return };
    if replayed.reclaim.is_none() {
        return;
    }
    let number = plans::target_number(&unit.target);
    let listed: BTreeSet<usize> = replayed.inventory.iter().map(|(key, _)| cluster::object_of(key)).collect();
    tree.retain(|path, file| {
        let Path::Doc { target, kind, object } = *path else { return true };
        let here = target == number
            && kind == cluster::kind_of(&replayed.scope.gvr)
            && cluster::covers(&replayed.scope.scope, object);
        let gone = here && own.contains(path) && !listed.contains(&object);
        !(gone && matches!(file, File::Ours(_)))
    });
}

fn apply(tree: &mut BTreeMap<Path, File>, unit: &Unit, result: &mut UnitResult) {
    for change in &unit.changes {
        let path = Path::Doc {
            target: plans::target_number(&unit.target),
            kind: cluster::kind_of(&change.gvr),
            object: cluster::object_of(&change.key),
        };
        let wanted = change.payload.as_deref().map(|payload| File::Ours(cluster::content(payload)));
        let found = tree.get(&path).copied();
        match (found, wanted) {
            (found, wanted) if found == wanted => result.refused.push((path.to_string(), None)),
            (Some(File::Foreign(_)), _) => {
                result.refused.push((path.to_string(), Some("not ours".to_owned())));
            }
            (_, Some(file)) => drop(tree.insert(path, file)),
            (_, None) => drop(tree.remove(&path)),
        }
    }
}
