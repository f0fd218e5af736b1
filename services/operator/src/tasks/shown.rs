//! What a branch shows of itself: at once what matters, counts now and then.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;
use upriver_engine::Tick;
use upriver_engine::branch::BranchView;
use upriver_model::{BranchKey, Epoch, ReplicaId, TargetUid};
use upriver_telemetry::metric;

use super::wall_ms;
use crate::control::snapshot::OwnedBranch;

/// Small changes of a view are shown this often; it bounds the status writes of a busy branch.
const SHOW_EVERY_MS: u64 = 5_000;
/// A target's last push is shown at most this often.
const PUSH_EVERY_S: i64 = 60;

/// The view of one branch, for statuses and metrics.
pub(super) struct Shown {
    key: BranchKey,
    epoch: Epoch,
    replica: ReplicaId,
    since_s: i64,
    owned: Arc<Mutex<BTreeMap<BranchKey, OwnedBranch>>>,
    wake: Arc<Notify>,
    view: Option<BranchView>,
    skipped: BTreeMap<String, usize>,
    pushed: BTreeMap<String, i64>,
    at: Tick,
}

impl Shown {
    pub(super) fn new(
        key: BranchKey,
        epoch: Epoch,
        replica: ReplicaId,
        owned: Arc<Mutex<BTreeMap<BranchKey, OwnedBranch>>>,
        wake: Arc<Notify>,
    ) -> Self {
        Self {
            key,
            epoch,
            replica,
            since_s: wall_ms() / 1000,
            owned,
            wake,
            view: None,
            skipped: BTreeMap::new(),
            pushed: BTreeMap::new(),
            at: Tick(0),
        }
    }

    /// Commits of these targets are in the remote.
    pub(super) fn note_push(&mut self, targets: &[TargetUid]) {
        let now_s = wall_ms() / 1000;
        for target in targets {
            let shown = self.pushed.entry(target.to_string()).or_insert(0);
            if now_s - *shown >= PUSH_EVERY_S {
                *shown = now_s;
            }
        }
    }

    /// Publishes a view if it differs enough from what is shown.
    pub(super) fn show(&mut self, now: Tick, view: BranchView, skipped: &BTreeMap<TargetUid, usize>) {
        let skipped: BTreeMap<String, usize> =
            skipped.iter().map(|(target, count)| (target.to_string(), *count)).collect();
        let minor = self.view.as_ref().is_some_and(|shown| quiet(shown) == quiet(&view));
        let same = self.view.as_ref() == Some(&view) && self.skipped == skipped;
        if same || (minor && now.since(self.at) < SHOW_EVERY_MS) {
            return;
        }
        self.at = now;
        self.skipped = skipped;
        self.view = Some(view.clone());
        self.publish(now, view);
    }

    fn publish(&self, now: Tick, view: BranchView) {
        let shard = self.key.to_string();
        let number = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
        metrics::gauge!(metric::JOURNAL_DEPTH, "shard" => shard.clone()).set(number(view.depth));
        metrics::gauge!(metric::REFUSED_FILES, "shard" => shard.clone()).set(number(view.refused.len()));
        let epoch = u32::try_from(self.epoch.as_key()).unwrap_or(u32::MAX);
        metrics::gauge!(metric::OWNERSHIP_EPOCH, "shard" => shard).set(f64::from(epoch));
        let next = view.next_attempt.map(|tick| {
            let wait = i64::try_from(tick.since(now)).unwrap_or(0);
            (wall_ms() + wait) / 1000
        });
        let owned = OwnedBranch {
            replica: self.replica.to_string(),
            epoch: self.epoch.as_key(),
            since_s: self.since_s,
            view,
            skipped_secrets: self.skipped.clone(),
            next_attempt_s: next,
            last_push_s: self.pushed.clone(),
        };
        self.owned.lock().unwrap_or_else(PoisonError::into_inner).insert(self.key.clone(), owned);
        self.wake.notify_one();
    }

    /// The branch is no longer owned here.
    pub(super) fn clear(&self) {
        self.owned.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
        self.wake.notify_one();
        let shard = self.key.to_string();
        for name in [metric::OWNERSHIP_EPOCH, metric::JOURNAL_DEPTH, metric::REFUSED_FILES] {
            metrics::gauge!(name, "shard" => shard.clone()).set(0.0);
        }
    }
}

/// A view without what changes all the time.
fn quiet(view: &BranchView) -> BranchView {
    let mut view = view.clone();
    view.depth = 0;
    view.oldest_ms = None;
    view.tip = None;
    view.targets.values_mut().for_each(|target| target.waiting = 0);
    view
}
