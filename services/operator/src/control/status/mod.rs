//! Statuses: computed for every object this replica answers for, written only where something differs. A stored change of
//! Ready's status or reason is told as an Event. This file: what is common, and GitTargets.

mod providers;
mod requests;
mod rules;
mod unowned;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde_json::Value;
use upriver_api::condition::{self, Condition, Finding, Gate, set_condition, types};
use upriver_api::git_target::{DeliveryStatus, GitTargetStatus, OwnerStatus};
use upriver_api::{ConditionStatus, GitTarget};
use upriver_kube_io::events::{Events, Notice, Tone};
use upriver_kube_io::status as write_status;
use upriver_model::ObjectKey;

pub(super) use requests::is_over;

use super::compile::{Compiled, TargetVerdict, key_of};
use super::conditions::{self, TargetFacts, TypesRead};
use super::snapshot::{OwnedBranch, Snapshot};

/// What a pass has, to be written down.
pub(super) struct Pass<'a> {
    pub(super) client: &'a Client,
    pub(super) events: &'a Events,
    pub(super) snapshot: &'a Snapshot,
    pub(super) compiled: &'a Compiled,
    pub(super) housekeeper: bool,
}

impl Pass<'_> {
    /// Computes and writes all statuses of one pass. A failed write is repeated by the next pass.
    pub(super) async fn write(&self) {
        if self.housekeeper {
            providers::git_providers(self).await;
            providers::cluster_providers(self).await;
            requests::commit_requests(self).await;
        }
        unowned::targets(self).await;
        let targets = targets(self).await;
        rules::watch_rules(self, &targets).await;
        rules::cluster_watch_rules(self, &targets).await;
    }

    /// Notes what became of a status write, and tells of a stored change of Ready.
    fn settle<K>(
        &self,
        object: &K,
        change: Change<'_>,
        result: Result<write_status::StatusWrite, kube::Error>,
    ) where
        K: Resource<DynamicType = ()>,
    {
        let kind = K::kind(&());
        let key = key_of(object);
        match result {
            Ok(write_status::StatusWrite::Written) => {
                tracing::debug!(%kind, object = %key, "status written");
                if let Some(notice) = notice(object, &change) {
                    self.events.tell(notice);
                }
            }
            Ok(write_status::StatusWrite::Superseded) => {}
            Err(error) => {
                tracing::warn!(%kind, object = %key, %error, "a status was not written; the next pass tries again");
            }
        }
    }
}

/// Conditions before and after a write.
#[derive(Clone, Copy)]
struct Change<'a> {
    before: &'a [Condition],
    after: &'a [Condition],
}

/// What to tell of a change: Ready has another status or reason. Waiting is no failure, but the contract knows only good
/// and not good.
fn notice<K: Resource<DynamicType = ()>>(object: &K, change: &Change<'_>) -> Option<Notice> {
    let ready = condition::find(change.after, types::READY)?;
    let before = condition::find(change.before, types::READY);
    if before.is_some_and(|before| before.status == ready.status && before.reason == ready.reason) {
        return None;
    }
    let tone = if ready.status == ConditionStatus::True { Tone::Normal } else { Tone::Warning };
    Some(Notice {
        regarding: object.object_ref(&()),
        tone,
        reason: ready.reason.clone(),
        note: ready.message.clone(),
    })
}

fn now() -> Time {
    // Conditions carry whole seconds.
    let now = Timestamp::now();
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

fn apply(before: &[Condition], findings: &[Finding], generation: Option<i64>) -> Vec<Condition> {
    let mut conditions = before.to_vec();
    let now = now();
    for finding in findings {
        set_condition(&mut conditions, finding, generation, &now);
    }
    conditions
}

/// A merge patch from `old` to `new`: what vanished becomes null. `None` if they are equal.
fn difference(old: &Value, new: &Value) -> Option<Value> {
    if old == new {
        return None;
    }
    let (Value::Object(before), Value::Object(after)) = (old, new) else { return Some(new.clone()) };
    let mut patch = serde_json::Map::new();
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in after {
        if let Some(change) = difference(before.get(key).unwrap_or(&Value::Null), value) {
            patch.insert(key.clone(), change);
        }
    }
    Some(Value::Object(patch))
}

fn changed(old: Option<&impl Serialize>, new: &impl Serialize) -> Option<Value> {
    let text = |error: serde_json::Error| tracing::error!(%error, "a status cannot be written as JSON");
    let old = serde_json::to_value(old).map_err(text).ok()?;
    let new = serde_json::to_value(new).map_err(text).ok()?;
    let old = if old.is_null() { Value::Object(serde_json::Map::new()) } else { old };
    difference(&old, &new)
}

/// This replica answers for a target if it owns its branch; for one that does not run, the housekeeper does.
fn answers(verdict: &TargetVerdict, owned: Option<&OwnedBranch>, housekeeper: bool) -> bool {
    if verdict.refusal.is_some() { housekeeper } else { owned.is_some() }
}

/// Findings of the targets this replica answers for, for their rules.
async fn targets(pass: &Pass<'_>) -> BTreeMap<ObjectKey, Vec<Finding>> {
    let mut findings_of = BTreeMap::new();
    for target in &pass.snapshot.git_targets {
        let key = key_of(&**target);
        let Some(verdict) = pass.compiled.targets.get(&key) else { continue };
        let owned = verdict.branch.as_ref().and_then(|branch| pass.snapshot.owned.get(branch));
        if !answers(verdict, owned, pass.housekeeper) {
            continue;
        }
        let (status, findings) = target_status(target, verdict, owned, pass.snapshot, &key);
        if let Some(patch) = changed(target.status.as_ref(), &status) {
            let before = target.status.as_ref().map_or(&[][..], |status| &status.conditions);
            let change = Change { before, after: &status.conditions };
            pass.settle(&**target, change, write_status::write(pass.client, &**target, &patch).await);
        }
        findings_of.insert(key, findings);
    }
    findings_of
}

fn target_status(
    target: &GitTarget,
    verdict: &TargetVerdict,
    owned: Option<&OwnedBranch>,
    snapshot: &Snapshot,
    key: &ObjectKey,
) -> (GitTargetStatus, Vec<Finding>) {
    let uid = target.uid().unwrap_or_default();
    let view = owned.and_then(|owned| {
        owned.view.targets.iter().find(|(target, _)| target.as_str() == uid).map(|(_, view)| view)
    });
    let path = upriver_content::TargetPath::parse(&target.spec.path)
        .map_or(String::new(), |path| path.as_str().to_owned());
    let facts = TargetFacts {
        verdict,
        provider: provider_of(target, snapshot, key),
        owned,
        view: view.filter(|_| owned.is_some_and(|owned| owned.view.running)),
        path: &path,
        suspended: target.spec.is_suspended(),
        skipped_secrets: owned.and_then(|owned| owned.skipped_secrets.get(&uid)).copied().unwrap_or(0),
        types: if snapshot.types.is_some() { TypesRead::Yes } else { TypesRead::NotYet },
    };
    let (findings, streams) = conditions::target(&facts);
    let before = target.status.clone().unwrap_or_default();
    let generation = target.metadata.generation;
    let pushed = owned.and_then(|owned| owned.last_push_s.get(&uid)).and_then(|seconds| time(*seconds));
    let status = GitTargetStatus {
        observed_generation: generation,
        conditions: apply(&before.conditions, &findings, generation),
        streams,
        // Measured while it ran; what does not run has no measure.
        retention: before.retention.clone().filter(|_| verdict.refusal.is_none()),
        owner: owned.map(owner),
        delivery: owned.map(|owned| delivery(owned, pushed.clone(), before.delivery.as_ref())),
        last_push_time: pushed.or_else(|| before.last_push_time.clone()),
        last_handled_reconcile_at: view
            .and_then(|view| view.handled.clone())
            .or_else(|| before.last_handled_reconcile_at.clone()),
    };
    (status, findings)
}

fn provider_of(target: &GitTarget, snapshot: &Snapshot, key: &ObjectKey) -> Option<Gate> {
    let name = ObjectKey::new(&key.namespace, &target.spec.provider_ref.name);
    let provider = snapshot.git_providers.iter().find(|provider| key_of(&***provider) == name)?;
    Some(conditions::provider_gate(snapshot.probes.get(&name), provider.metadata.generation.unwrap_or(0)))
}

fn time(seconds: i64) -> Option<Time> {
    Timestamp::from_second(seconds).ok().map(Time)
}

fn owner(owned: &OwnedBranch) -> OwnerStatus {
    OwnerStatus {
        replica: Some(owned.replica.clone()),
        epoch: i64::try_from(owned.epoch).ok(),
        since: time(owned.since_s),
    }
}

fn delivery(owned: &OwnedBranch, pushed: Option<Time>, before: Option<&DeliveryStatus>) -> DeliveryStatus {
    let view = &owned.view;
    DeliveryStatus {
        journal_depth: i64::try_from(view.depth).ok(),
        last_pushed_sha: view
            .tip
            .as_ref()
            .map(|tip| tip.as_str().to_owned())
            .or_else(|| before.and_then(|before| before.last_pushed_sha.clone())),
        last_error: view.failure.as_ref().map(ToString::to_string),
        next_retry: owned.next_attempt_s.and_then(time),
        oldest_pending: view.oldest_ms.and_then(|ms| time(ms / 1000)),
        last_push_time: pushed.or_else(|| before.and_then(|before| before.last_push_time.clone())),
        consecutive_failures: (view.failures > 0).then(|| i32::try_from(view.failures).unwrap_or(i32::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use upriver_api::condition::trio;

    use super::*;

    fn conditions(gate: Gate, message: &str) -> Vec<Condition> {
        apply(&[], &trio(&[gate], message), Some(1))
    }

    #[test]
    fn only_another_status_or_reason_of_ready_is_told() {
        let target: GitTarget = serde_json::from_value(json!({
            "apiVersion": "configbutler.ai/v1alpha3", "kind": "GitTarget", "metadata": {"name": "a", "namespace": "n"},
            "spec": {"providerRef": {"name": "p"}, "branch": "main", "path": "a"}
        }))
        .expect("a target");
        let told = |before: &[Condition], after: &[Condition]| {
            notice(&target, &Change { before, after }).map(|notice| (notice.tone, notice.reason))
        };
        let good = conditions(Gate::Open, "all is well");
        let replaying = conditions(Gate::waiting("Replaying", "1 of 2"), "");
        let stuck = conditions(Gate::blocked("WatchError", "grant list"), "");
        assert_eq!(told(&[], &good), Some((Tone::Normal, "Succeeded".to_owned())));
        assert_eq!(told(&good, &conditions(Gate::Open, "other words")), None);
        assert_eq!(told(&good, &replaying), Some((Tone::Warning, "Replaying".to_owned())));
        assert_eq!(told(&replaying, &conditions(Gate::waiting("Replaying", "2 of 2"), "")), None);
        assert_eq!(told(&replaying, &stuck), Some((Tone::Warning, "WatchError".to_owned())));
    }

    #[test]
    fn a_patch_names_only_what_differs_and_nulls_what_vanished() {
        let old = json!({"a": 1, "b": {"c": 2, "d": 3}, "e": [1]});
        let new = json!({"a": 1, "b": {"c": 4}, "e": [2]});
        assert_eq!(difference(&old, &new), Some(json!({"b": {"c": 4, "d": null}, "e": [2]})));
        assert_eq!(difference(&old, &old), None);
    }
}
