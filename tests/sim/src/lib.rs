//! Seeded schedules that drive the real branch owner through a simulated world.
//!
//! In: a seed, a profile of troubles, maybe a bug to plant. Out: nothing, or the invariant that broke with the event log.
//! One seed is one schedule: the clock jumps, nothing sleeps, no thread runs, so a failing seed fails again. Real are
//! `upriver_engine::branch::Branch` and the embedded store; simulated are the API server, the claim's Lease, the Git
//! remote, the watches and the operator's shell around them. The invariants are those of `invariants.rs`. Absent: session
//! renewal and silence counting, content and placement, more than one branch.

#[allow(missing_docs, reason = "shared with the model check, not an interface for others")]
pub mod cluster;
mod faults;
#[allow(missing_docs, reason = "shared with the model check, not an interface for others")]
pub mod invariants;
mod jobs;
mod owner;
#[allow(missing_docs, reason = "shared with the model check, not an interface for others")]
pub mod plans;
#[allow(missing_docs, reason = "shared with the model check, not an interface for others")]
pub mod remote;
mod rng;
mod shared;
mod storing;
mod watch_claims;
mod watcher;
mod world;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use world::World;

/// Which troubles a schedule has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// None but the order of steps.
    Calm,
    /// Processes die, freeze, hand over; watches break; plans change.
    Crashes,
    /// The store loses a suffix, everything, or is away.
    StoreLoss,
    /// The remote refuses, forgets to answer, and people write into it.
    Remote,
    /// All of them.
    Everything,
    /// Watches move between replicas, and some that have lost theirs do not know it yet; with crashes and losses.
    Fleet,
}

impl Profile {
    /// Every profile.
    pub const ALL: [Self; 6] =
        [Self::Calm, Self::Crashes, Self::StoreLoss, Self::Remote, Self::Everything, Self::Fleet];

    /// Its word in `SIM_SEED`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Calm => "calm",
            Self::Crashes => "crashes",
            Self::StoreLoss => "store-loss",
            Self::Remote => "remote",
            Self::Everything => "everything",
            Self::Fleet => "fleet",
        }
    }

    fn number(self) -> u64 {
        Self::ALL.iter().position(|profile| *profile == self).unwrap_or(0) as u64
    }
}

/// Bugs that are planted in the shell, to show that the checks can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The cursor moves, the entries never follow.
    CursorBeforeEntries,
    /// A push of unknown outcome counts as landed.
    UncertainIsSuccess,
    /// A proof is claimed without a renewal.
    ProofSkipped,
    /// An attempt is settled when its push is sent.
    SettleBeforePush,
    /// Streams are resumed without the opening script.
    OpenSkipped,
    /// The remote moves its ref from anywhere.
    NoCompareAndSwap,
    /// A successor does not see the open attempts.
    AttemptsForgotten,
    /// A successor does not see the entries.
    EntriesForgotten,
    /// A scope counts as settled before the list that settles it is pushed.
    SettledBeforePush,
    /// After a loss nobody asks what our own commits wrote (F27).
    CommitsForgotten,
    /// A watch goes on from now when its cursor has expired.
    ExpiredIgnored,
    /// A frame that the owner could not take is not sent again.
    HeldFrameDropped,
}

/// A schedule that broke an invariant.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The profile.
    pub profile: Profile,
    /// The invariant.
    pub rule: String,
    /// How it broke.
    pub what: String,
    /// What happened, step by step; empty unless asked for.
    pub log: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.log {
            writeln!(f, "{line}")?;
        }
        writeln!(f, "{}: {}", self.rule, self.what)?;
        write!(
            f,
            "SIM_SEED={}-{} cargo test -p upriver-sim one_seed -- --nocapture",
            self.profile.name(),
            self.seed
        )
    }
}

/// Runs one schedule; answers how many steps it took.
///
/// # Errors
/// The invariant that broke; with `logging` also the event log.
pub fn run(seed: u64, profile: Profile, bug: Option<Bug>, logging: bool) -> Result<usize, Box<Failure>> {
    let mut world = World::new(seed, profile, bug, logging);
    let result = catch_unwind(AssertUnwindSafe(|| world.run()));
    let (rule, what) = match result {
        Ok(Ok(())) => return Ok(world.steps),
        Ok(Err(broken)) => (broken.rule.to_owned(), broken.what),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            ("PANIC".to_owned(), text.unwrap_or_default())
        }
    };
    Err(Box::new(Failure { seed, profile, rule, what, log: world.s.take_log() }))
}
