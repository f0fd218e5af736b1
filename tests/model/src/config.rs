//! What is explored: events, bounds, and the rule that is removed.

use upriver_engine::branch::{Chosen, Subscription, TargetPlan};
use upriver_engine::window::WindowRule;
use upriver_model::{Operation, Scope, TargetScope};
use upriver_sim::cluster::{self, ClusterEvent};
use upriver_sim::plans;

/// Whose change a version is, as the simulation's cluster tells.
const ALICE: [u64; 4] = [12, 18, 24, 30];
const BOB: [u64; 4] = [14, 20, 26, 32];

/// What people do in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Script {
    /// alice creates x and deletes it again.
    CreateDelete,
    /// alice updates x, which is in Git already, then bob does.
    TwoPeople,
    /// alice creates x, bob creates y, alice updates y: bob's window closes before alice's.
    Interleaved,
    /// x is in Git; alice updates it, deletes it, and creates it anew.
    Reborn,
}

impl Script {
    /// Every script.
    pub const ALL: [Self; 4] = [Self::CreateDelete, Self::TwoPeople, Self::Interleaved, Self::Reborn];

    /// Events before the search begins; they are in Git by then.
    pub(crate) fn before(self) -> Vec<ClusterEvent> {
        match self {
            Self::CreateDelete | Self::Interleaved => Vec::new(),
            Self::TwoPeople | Self::Reborn => vec![event(6, 0, 1, Operation::Create, Some(1))],
        }
    }

    pub(crate) fn events(self) -> Vec<ClusterEvent> {
        use Operation::{Create, Delete, Update};
        match self {
            Self::CreateDelete => {
                vec![event(ALICE[0], 0, 2, Create, Some(2)), event(ALICE[1], 0, 2, Delete, None)]
            }
            Self::TwoPeople => {
                vec![event(ALICE[0], 0, 1, Update, Some(2)), event(BOB[0], 0, 1, Update, Some(3))]
            }
            Self::Interleaved => vec![
                event(ALICE[0], 0, 2, Create, Some(2)),
                event(BOB[0], 1, 3, Create, Some(3)),
                event(ALICE[1], 1, 3, Update, Some(4)),
            ],
            Self::Reborn => vec![
                event(ALICE[0], 0, 1, Update, Some(2)),
                event(ALICE[1], 0, 1, Delete, None),
                event(ALICE[2], 0, 2, Create, Some(3)),
            ],
        }
    }

    /// Windows that stay open are needed only where their order counts.
    fn silence_ms(self) -> u64 {
        match self {
            Self::CreateDelete | Self::Interleaved => 1_000,
            Self::TwoPeople | Self::Reborn => 0,
        }
    }
}

fn event(rv: u64, object: usize, uid: u64, operation: Operation, content: Option<u64>) -> ClusterEvent {
    ClusterEvent { rv, kind: 0, object, uid, operation, content }
}

/// Rules that can be removed from outside of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bug {
    /// The remote moves its ref from anywhere.
    NoCompareAndSwap,
    /// Scripts do not compare the owner's epoch.
    NoEpochCheck,
    /// A proof is claimed without a renewal.
    ProofSkipped,
    /// Open attempts are forgotten, and every take-over counts as a clean one (F10).
    NoLateLandingBlock,
    /// Every take-over counts as a clean one.
    NoBlockAfterTakeOver,
    /// A successor does not see the open attempts.
    AttemptsForgotten,
    /// A successor does not see the entries.
    EntriesForgotten,
    /// The cursor moves, the entries never follow.
    CursorBeforeEntries,
    /// No connection breaks when the store goes back, so nobody proves anything before going on (F5).
    ConnectionsSurvive,
    /// An owner does not notice that the store went back.
    NoLossDetection,
    /// Neither does it, nor are frames numbered.
    NoLossDetectionNoGap,
    /// A progress frame moves the cursor whatever its number, and losses are not noticed by its owner.
    ProgressWithoutSeq,
    /// The header names the highest consumed entry as the floor (F1).
    HeaderOnePosition,
    /// The header names no entry at all.
    NoHeader,
    /// Streams are resumed without the opening script (F2).
    OpenSkipped,
    /// An attempt is settled when its push is sent.
    SettleBeforePush,
    /// A push of unknown outcome counts as landed.
    UncertainIsSuccess,
    /// A scope counts as settled before the list that settles it is pushed.
    SettledBeforePush,
}

/// One exploration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// The events.
    pub script: Script,
    /// Owners, the first one included.
    pub owners: usize,
    /// Losses of a suffix of the store.
    pub losses: u32,
    /// Own pushes whose answer never comes.
    pub timeouts: u32,
    /// From the first step of the first owner on; else from a moment at which all is quiet.
    pub from_start: bool,
    /// INV-5 is judged across losses too, which it does not survive yet.
    pub order_after_loss: bool,
    /// The rule that is removed.
    pub bug: Option<Bug>,
    /// Longest trace; longer ones are not explored.
    pub depth: usize,
    /// Most states; beyond, the search ends as a partial one.
    pub states: usize,
}

impl Config {
    /// Two owners, no fault but stopping.
    #[must_use]
    pub fn new(script: Script) -> Self {
        let (depth, states) = (usize::MAX, 3_000_000);
        let (from_start, order_after_loss) = (false, false);
        let (owners, losses, timeouts, bug) = (2, 0, 0, None);
        Self { script, owners, losses, timeouts, from_start, order_after_loss, bug, depth, states }
    }

    /// The same without a rule.
    #[must_use]
    pub fn without(self, bug: Bug) -> Self {
        Self { bug: Some(bug), ..self }
    }

    /// The same from the first step of the first owner on.
    #[must_use]
    pub fn from_start(self) -> Self {
        Self { from_start: true, ..self }
    }

    /// The same, ended as a partial search after so many states.
    #[must_use]
    pub fn at_most(self, states: usize) -> Self {
        Self { states, ..self }
    }

    /// The same with so many losses and timeouts.
    #[must_use]
    pub fn with_faults(self, losses: u32, timeouts: u32) -> Self {
        Self { losses, timeouts, ..self }
    }

    pub(crate) fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    pub(crate) fn plan(&self) -> TargetPlan {
        let (scope, spec_hash) = scope();
        TargetPlan {
            uid: scope.target.clone(),
            window: WindowRule { silence_ms: self.script.silence_ms(), max_age_ms: 60_000 },
            never_prune: false,
            suspended: false,
            recheck: None,
            subject: "".into(),
            subscriptions: vec![Subscription {
                scope,
                kind: cluster::kind_name(0).into(),
                watch: plans::watch_key(0),
                operations: vec![Operation::Create, Operation::Update, Operation::Delete],
                chosen: Chosen::ByName,
                spec_hash,
            }],
        }
    }
}

/// The one scope, with what settles it.
pub(crate) fn scope() -> (TargetScope, Box<str>) {
    let target = plans::target_uid(0);
    (TargetScope { target, gvr: cluster::gvr(0), scope: Scope::Cluster }, "spec".into())
}
