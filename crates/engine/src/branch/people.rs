//! What people ask for: other targets, a pause, another look.

use std::collections::{BTreeMap, BTreeSet};

use upriver_model::{TargetScope, TargetUid};
use upriver_store::{Loaded, Note};

use super::{Branch, Command, Phase, TargetPlan};
use crate::time::Tick;

impl Branch {
    pub(super) fn configure(&mut self, now: Tick, plans: Vec<TargetPlan>) {
        self.configured = true;
        let before = std::mem::take(&mut self.plans);
        self.plans = plans.into_iter().map(|plan| (plan.uid.clone(), plan)).collect();
        for plan in self.plans.values() {
            self.windows.set_rule(&plan.uid, plan.window);
        }
        // A backoff is kept over changes that cannot have mended it; what waits for a person takes any for an answer.
        if subjects(&before) != subjects(&self.plans) || self.is_parked() || self.is_asked() {
            self.retry_now(now);
        }
        if self.phase != Phase::Running {
            return;
        }
        let gone = before.keys().filter(|uid| !self.plans.contains_key(*uid)).cloned();
        let mut stopped: BTreeSet<TargetUid> = gone.collect();
        stopped.extend(self.plans.values().filter(|plan| plan.suspended).map(|plan| plan.uid.clone()));
        self.install(&Loaded::default(), false);
        self.drop_work(&stopped);
        self.forget_requests();
        self.resume(&before);
        self.recheck(now);
    }

    /// Work of deleted and of suspended targets passes. The files of deleted ones stay as they are; the scopes of suspended
    /// ones are dirty by now, and what is dropped here comes back with their next list.
    fn drop_work(&mut self, stopped: &BTreeSet<TargetUid>) {
        if stopped.is_empty() {
            return;
        }
        let closed = self.windows.close_targets(stopped);
        self.enqueue(closed);
        let (dropped, kept) =
            std::mem::take(&mut self.queue).into_iter().partition(|unit| stopped.contains(&unit.target));
        self.queue = kept;
        for unit in dropped {
            self.pass_all(&unit);
        }
        self.pending_replays.retain(|replay| !stopped.contains(replay.target()));
    }

    /// Scopes of paused targets.
    pub(super) fn paused_scopes(&self) -> BTreeSet<TargetScope> {
        let paused = self.plans.values().filter(|plan| plan.suspended);
        paused.flat_map(|plan| &plan.subscriptions).map(|subscription| subscription.scope.clone()).collect()
    }

    /// A target that was paused while nobody ran: dirty before any entry of it passes.
    pub(super) fn raise_paused(&mut self, loaded: &Loaded) {
        let settled = |key: &TargetScope| loaded.settled.contains_key(&key.as_key());
        let trusted: Vec<TargetScope> = self.paused_scopes().into_iter().filter(settled).collect();
        if !trusted.is_empty() {
            self.out.push(Command::Raise(trusted, false));
        }
    }

    /// Targets that go on after a pause: the store's count of their obligations is not known here, so each gets a new one.
    fn resume(&mut self, before: &BTreeMap<TargetUid, TargetPlan>) {
        let resumed = |uid: &TargetUid| {
            before.get(uid).is_some_and(|plan| plan.suspended)
                && self.plans.get(uid).is_some_and(|plan| !plan.suspended)
        };
        let scopes: Vec<TargetScope> =
            self.scopes.keys().filter(|scope| resumed(&scope.target)).cloned().collect();
        if !scopes.is_empty() {
            // The journal may have been lost while nobody looked at them.
            self.reclaim(&scopes);
            self.raise(scopes);
        }
    }

    /// True if a person asks for another look and nobody has looked yet.
    pub(super) fn is_asked(&self) -> bool {
        self.plans.values().any(|plan| self.request_of(plan).is_some())
    }

    fn request_of(&self, plan: &TargetPlan) -> Option<String> {
        let value = plan.recheck.as_deref().filter(|_| !plan.suspended)?;
        (self.handled.get(&plan.uid).map(String::as_str) != Some(value)).then(|| value.to_owned())
    }

    /// Each new request lists every scope of its target once more and ends any wait. Durable after the obligations are: a
    /// crash between the two only repeats the list.
    pub(super) fn recheck(&mut self, now: Tick) {
        let asked: Vec<(TargetUid, String)> =
            self.plans.values().filter_map(|plan| Some((plan.uid.clone(), self.request_of(plan)?))).collect();
        for (target, value) in asked {
            let scopes: Vec<TargetScope> =
                self.scopes.keys().filter(|scope| scope.target == target).cloned().collect();
            if !scopes.is_empty() {
                self.raise(scopes);
            }
            self.out
                .push(Command::Note(Note::Handled { target: target.clone(), value: Some(value.clone()) }));
            self.handled.insert(target, value);
            self.retry_now(now);
        }
    }

    /// Notes of targets that are gone would stay for ever.
    pub(super) fn forget_requests(&mut self) {
        let gone: Vec<TargetUid> =
            self.handled.keys().filter(|uid| !self.plans.contains_key(*uid)).cloned().collect();
        for target in gone {
            self.handled.remove(&target);
            self.out.push(Command::Note(Note::Handled { target, value: None }));
        }
    }
}

fn subjects(plans: &BTreeMap<TargetUid, TargetPlan>) -> BTreeMap<&TargetUid, &str> {
    plans.iter().map(|(uid, plan)| (uid, &*plan.subject)).collect()
}
