//! What all processes of a schedule see: cluster, store, remote, claim, clock, plans.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll, Waker};

use upriver_model::{BranchKey, FleetId};
use upriver_store::{EmbeddedStore, Inspection, StoreSnapshot};

use crate::cluster::Cluster;
use crate::invariants::{Broken, Checks, Listed};
use crate::plans::Plans;
use crate::remote::Remote;
use crate::rng::Rng;
use crate::watch_claims::WatchClaims;
use crate::{Bug, Profile};

/// The claim's Lease, with the session of its holder: who may act, since which epoch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lease {
    pub(crate) holder: Option<usize>,
    pub(crate) epoch: u64,
    pub(crate) clean: bool,
}

pub(crate) struct Shared {
    pub(crate) rng: Rng,
    pub(crate) now: u64,
    pub(crate) cluster: Cluster,
    pub(crate) store: EmbeddedStore,
    pub(crate) store_down_until: u64,
    /// Rises when every connection breaks: handles of an earlier one answer nothing any more.
    pub(crate) connections: u64,
    pub(crate) incarnations: u64,
    pub(crate) moments: Vec<(StoreSnapshot, Listed)>,
    pub(crate) remote: Remote,
    pub(crate) lease: Lease,
    pub(crate) watch_claims: WatchClaims,
    pub(crate) plans: Plans,
    pub(crate) plan_version: u64,
    pub(crate) profile: Profile,
    pub(crate) bug: Option<Bug>,
    /// False once the faults have stopped.
    pub(crate) troubles: bool,
    pub(crate) checks: Checks,
    clock: Arc<AtomicI64>,
    log: Option<Vec<String>>,
}

pub(crate) fn branch_key() -> BranchKey {
    BranchKey::new("branch")
}

pub(crate) fn fleet() -> FleetId {
    FleetId::new("fleet")
}

/// The embedded store never waits.
pub(crate) fn ready<T>(reply: impl Future<Output = T>) -> T {
    match pin!(reply).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the embedded store waited"),
    }
}

impl Shared {
    pub(crate) fn new(seed: u64, profile: Profile, bug: Option<Bug>, logging: bool) -> Self {
        let mut rng = Rng::new(seed.wrapping_mul(8).wrapping_add(profile.number()));
        let clock = Arc::new(AtomicI64::new(0));
        let told = clock.clone();
        Self {
            plans: Plans::new(&mut rng),
            rng,
            now: 1,
            cluster: Cluster::default(),
            store: EmbeddedStore::with_clock(move || told.load(Ordering::Relaxed)),
            store_down_until: 0,
            connections: 1,
            incarnations: 0,
            moments: Vec::new(),
            remote: Remote::default(),
            lease: Lease::default(),
            watch_claims: WatchClaims::default(),
            plan_version: 1,
            profile,
            bug,
            troubles: true,
            checks: Checks::default(),
            clock,
            log: logging.then(Vec::new),
        }
    }

    pub(crate) fn move_clock(&mut self, to: u64) {
        self.now = self.now.max(to);
        self.clock.store(i64::try_from(self.now).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    /// A line of the event log; the text is made only when somebody reads it.
    pub(crate) fn say(&mut self, text: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push(format!("{:>9} {}", self.now, text()));
        }
    }

    pub(crate) fn take_log(&mut self) -> Vec<String> {
        self.log.take().unwrap_or_default()
    }

    pub(crate) fn is_logging(&self) -> bool {
        self.log.is_some()
    }

    pub(crate) fn has_bug(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    pub(crate) fn is_store_down(&self) -> bool {
        self.now < self.store_down_until
    }

    pub(crate) fn inspect(&self) -> Option<Inspection> {
        self.store.inspect(&branch_key())
    }

    /// After the store or the ref has changed.
    pub(crate) fn check_state(&mut self) -> Result<(), Broken> {
        let Some(stored) = self.inspect() else { return Ok(()) };
        self.checks.settled_attempts(&stored)?;
        let scopes = self.plans.scopes();
        self.checks.cursor(&stored, &self.cluster, &scopes)?;
        self.checks.floor(&stored, &self.cluster, &self.remote, &scopes)
    }
}
