//! What people want: one or two GitTargets on one branch, with one or two types each.

use upriver_engine::branch::{Chosen, Subscription, TargetPlan};
use upriver_engine::window::WindowRule;
use upriver_model::{Operation, Scope, TargetScope, TargetUid, WatchKey};

use crate::cluster;
use crate::rng::Rng;

/// Scopes that a target may select, by number: type and namespace.
const SCOPES: [(usize, Option<&str>); 4] = [(0, None), (1, None), (0, Some("shop")), (1, Some("blog"))];

#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    number: usize,
    /// Bits over the type: 0 none, 1 the whole cluster, 2 one namespace.
    kinds: [u8; 2],
    spec: u32,
    silence_ms: u64,
    present: bool,
    suspended: bool,
    /// Requests for a recheck so far.
    recheck: u32,
    /// Repairs so far.
    mended: u32,
}

/// The wanted targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plans {
    targets: Vec<Wanted>,
}

pub fn target_uid(number: usize) -> TargetUid {
    TargetUid::new(format!("target-{number}"))
}

pub fn target_number(uid: &TargetUid) -> usize {
    uid.as_str().rsplit('-').next().and_then(|text| text.parse().ok()).unwrap_or(0)
}

pub fn watch_key(kind: usize) -> WatchKey {
    WatchKey { cluster: "local".into(), gvr: cluster::gvr(kind), scope: Scope::Cluster }
}

impl Plans {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let one = |number: usize, rng: &mut Rng| Wanted {
            number,
            kinds: [1 + rng.below(2) as u8, rng.below(3) as u8],
            spec: 1,
            silence_ms: [0, 1_000, 5_000][rng.below(3)],
            present: number == 0 || rng.once_in(2),
            suspended: false,
            recheck: 0,
            mended: 0,
        };
        Self { targets: vec![one(0, rng), one(1, rng)] }
    }

    /// A person edits a manifest.
    pub(crate) fn change(&mut self, rng: &mut Rng) {
        let index = rng.below(self.targets.len());
        let target = &mut self.targets[index];
        match rng.below(6) {
            0 if index == 1 => target.present = !target.present,
            0 | 1 => target.spec += 1,
            2 => {
                let kind = rng.below(2);
                target.kinds[kind] = (target.kinds[kind] + 1 + rng.below(2) as u8) % 3;
            }
            3 => target.suspended = !target.suspended,
            4 => target.recheck += 1,
            _ => target.silence_ms = [0, 1_000, 5_000][rng.below(3)],
        }
    }

    /// A person mends what waits for a person, pauses included.
    pub(crate) fn mend(&mut self) {
        for target in &mut self.targets {
            target.mended += 1;
            target.suspended = false;
        }
    }

    pub(crate) fn as_plans(&self) -> Vec<TargetPlan> {
        self.targets.iter().filter(|target| target.present).map(Wanted::as_plan).collect()
    }

    /// Every selected scope with what settles it.
    pub(crate) fn scopes(&self) -> Vec<(TargetScope, Box<str>)> {
        self.as_plans()
            .into_iter()
            .flat_map(|plan| plan.subscriptions)
            .map(|subscription| (subscription.scope, subscription.spec_hash))
            .collect()
    }
}

impl Wanted {
    fn as_plan(&self) -> TargetPlan {
        let uid = target_uid(self.number);
        let subscriptions = (0..2)
            .filter_map(|kind| match self.kinds[kind] {
                0 => None,
                1 => Some(SCOPES[kind]),
                _ => Some(SCOPES[kind + 2]),
            })
            .map(|(kind, namespace)| Subscription {
                scope: TargetScope {
                    target: uid.clone(),
                    gvr: cluster::gvr(kind),
                    scope: namespace.map_or(Scope::Cluster, |name| Scope::Namespace(name.into())),
                },
                kind: cluster::kind_name(kind).into(),
                watch: watch_key(kind),
                operations: vec![Operation::Create, Operation::Update, Operation::Delete],
                chosen: Chosen::ByName,
                spec_hash: format!("spec-{}", self.spec).into(),
            })
            .collect();
        let window = WindowRule { silence_ms: self.silence_ms, max_age_ms: 60_000 };
        TargetPlan {
            uid,
            window,
            never_prune: false,
            suspended: self.suspended,
            recheck: (self.recheck > 0).then(|| self.recheck.to_string().into()),
            subject: self.mended.to_string().into(),
            subscriptions,
        }
    }
}
