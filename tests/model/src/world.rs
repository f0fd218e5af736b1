//! All that a step can see or change.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use upriver_model::{BranchKey, CommitId, FleetId};
use upriver_sim::cluster::{Cluster, ClusterEvent};
use upriver_sim::invariants::{Broken, Checks, Listed};
use upriver_sim::remote::Remote;
use upriver_store::{Inspection, StoreSnapshot};

use crate::config::{Bug, Config, scope};
use crate::moves::Action;
use crate::owner::Owner;
use crate::part::{Digest, Part, hash_text};
use crate::quiet;

/// Steps after which a fleet without faults is quiet, many times over.
const QUIET_WITHIN: usize = 300;

pub(crate) fn branch_key() -> BranchKey {
    BranchKey::new("branch")
}

pub(crate) fn fleet() -> FleetId {
    FleetId::new("fleet")
}

/// A push on its way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Flight {
    pub(crate) owner: usize,
    pub(crate) old: Option<CommitId>,
    pub(crate) new: CommitId,
}

/// The claim: who may act, since which epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lease {
    pub(crate) holder: Option<usize>,
    pub(crate) epoch: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Stored(pub(crate) StoreSnapshot);

impl Digest for Stored {
    fn digest(&self, state: &mut impl Hasher) {
        hash_text(&self.0, state);
    }
}

impl Digest for Checks {
    fn digest(&self, state: &mut impl Hasher) {
        hash_text(self, state);
    }
}

/// One state of the search.
#[derive(Clone)]
pub struct World {
    pub(crate) config: Config,
    pub(crate) owners: Vec<Part<Owner>>,
    pub(crate) store: Part<Stored>,
    /// An earlier moment of the store that it may go back to.
    pub(crate) remembered: Option<(Part<Stored>, Listed)>,
    /// Commits are named by their content, so its tip alone tells remotes apart.
    pub(crate) remote: Arc<Remote>,
    pub(crate) flights: Vec<Flight>,
    /// Follows from the number of events that have happened.
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) happened: usize,
    pub(crate) lease: Lease,
    pub(crate) losses: u32,
    pub(crate) timeouts: u32,
    pub(crate) checks: Part<Checks>,
    pub(crate) broken: Option<Broken>,
}

impl World {
    /// The first state of an exploration.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let mut cluster = Cluster::default();
        for event in config.script.before() {
            cluster.record(event);
        }
        let mut world = Self {
            config: Config { owners: 1, bug: config.bug.filter(|_| config.from_start), ..config },
            owners: Vec::new(),
            store: Part::new(Stored(crate::storing::empty())),
            remembered: None,
            remote: Arc::default(),
            flights: Vec::new(),
            cluster: Arc::new(cluster),
            happened: 0,
            lease: Lease { holder: None, epoch: 0 },
            losses: 0,
            timeouts: 0,
            checks: Part::new(Checks::default()),
            broken: None,
        };
        world.take_over();
        if !config.from_start {
            world.become_quiet();
        }
        world.config = config;
        world.seal();
        world
    }

    /// Lets the first owner finish what the cluster holds at first.
    fn become_quiet(&mut self) {
        for _ in 0..QUIET_WITHIN {
            let next = self.actions().into_iter().find(|action| {
                !matches!(action, Action::Change | Action::Store { remember: true, .. } | Action::Timeout(_))
            });
            let Some(next) = next else { break };
            self.make(next);
        }
        assert!(quiet::is_quiet(self), "nothing disturbs the first owner: {:?}", self.broken);
    }

    /// Owners whose every script will be refused from now on: what they still do, nobody can observe. Their pushes stay.
    fn bury(&mut self) {
        if self.losses < self.config.losses || self.has(Bug::NoEpochCheck) {
            return;
        }
        let stored = self.store.0.guard(&branch_key()).map_or(0, |(_, epoch, _)| epoch);
        for owner in &mut self.owners {
            if !owner.gone && owner.epoch.as_key() < stored {
                owner.edit().end();
            }
        }
    }

    /// Forgets what nobody can observe, and hashes what was changed.
    pub(crate) fn seal(&mut self) {
        self.bury();
        if !self.has(Bug::NoCompareAndSwap) {
            let (tip, owners) = (&self.remote.tip, &self.owners);
            // A push that is refused and that nobody waits for.
            self.flights.retain(|flight| flight.old == *tip || owners[flight.owner].awaits(&flight.new));
        }
        self.flights.sort();
        for owner in &mut self.owners {
            owner.seal();
        }
        self.store.seal();
        self.checks.seal();
    }

    pub(crate) fn has(&self, bug: Bug) -> bool {
        self.config.has(bug)
    }

    /// True if nothing is left to do for the holder of the claim.
    pub(crate) fn is_quiet(&self) -> bool {
        self.broken.is_none() && quiet::is_quiet(self)
    }

    /// The invariant that this state breaks.
    #[must_use]
    pub fn violation(&self) -> Option<(&'static str, &str)> {
        self.broken.as_ref().map(|broken| (broken.rule, &*broken.what))
    }

    pub(crate) fn note(&mut self, result: Result<(), Broken>) {
        // Known and open: after a loss, a change that is sent again may show once more before what came after it (F5).
        let open = self.losses > 0 && !self.config.order_after_loss;
        if let Err(broken) = result
            && !(open && broken.rule == "INV-5")
        {
            self.broken.get_or_insert(broken);
        }
    }

    pub(crate) fn inspect(&self) -> Option<Inspection> {
        self.store.0.inspect(&branch_key())
    }

    /// After the store or the ref has changed.
    pub(crate) fn check_state(&mut self) {
        let Some(stored) = self.inspect() else { return };
        let scopes = [scope()];
        let result = self.checks.edit().settled_attempts(&stored);
        self.note(result);
        let result = self.checks.cursor(&stored, &self.cluster, &scopes);
        self.note(result);
        let result = self.checks.floor(&stored, &self.cluster, &self.remote, &scopes);
        self.note(result);
    }

    pub(crate) fn next_change(&self) -> Option<ClusterEvent> {
        self.config.script.events().into_iter().nth(self.happened)
    }

    /// Nobody can take the claim from its present holder any more.
    pub(crate) fn holds_for_good(&self, owner: usize) -> bool {
        self.lease.holder == Some(owner) && self.owners.len() >= self.config.owners
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (owners, happened) = (self.owners.len(), self.happened);
        write!(f, "{owners} owners, {happened} events, tip {:?}, {:?}", self.remote.tip, self.flights)
    }
}

/// As the search tells states apart: by what is hashed.
impl PartialEq for World {
    fn eq(&self, other: &Self) -> bool {
        let hash_of = |world: &Self| {
            let mut hasher = DefaultHasher::new();
            world.hash(&mut hasher);
            hasher.finish()
        };
        hash_of(self) == hash_of(other)
    }
}

impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.owners.hash(state);
        self.store.hash(state);
        if let Some((store, listed)) = &self.remembered {
            store.hash(state);
            for (scope, list) in listed {
                (scope, list).hash(state);
            }
        }
        let counts = (self.happened, self.losses, self.timeouts, self.remembered.is_some());
        (&self.remote.tip, &self.flights, self.lease, counts).hash(state);
        self.checks.hash(state);
        self.broken.as_ref().map(|broken| broken.rule).hash(state);
    }
}
