//! Statuses: computed for every object this replica answers for, written only where something differs.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Client, ResourceExt};
use serde::Serialize;
use serde_json::Value;
use upriver_api::cluster_provider::ClusterProviderStatus;
use upriver_api::condition::{Condition, Finding, Gate, set_condition, trio, types};
use upriver_api::git_provider::GitProviderStatus;
use upriver_api::git_target::{DeliveryStatus, GitTargetStatus, OwnerStatus};
use upriver_api::watch_rule::{RuleStatus, RuleStreams};
use upriver_api::{ConditionStatus, GitTarget, Reason};
use upriver_kube_io::status as write_status;
use upriver_model::ObjectKey;

use super::compile::{Compiled, TargetVerdict, key_of};
use super::conditions::{self, TargetFacts};
use super::snapshot::{OwnedBranch, Snapshot};
use super::support;

/// Computes and writes all statuses of one pass. A failed write is repeated by the next pass.
pub(super) async fn write_all(client: &Client, snapshot: &Snapshot, compiled: &Compiled, housekeeper: bool) {
    if housekeeper {
        providers(client, snapshot).await;
        cluster_providers(client, snapshot).await;
        unsupported_kinds(client, snapshot).await;
    }
    let targets = targets(client, snapshot, compiled, housekeeper).await;
    rules(client, snapshot, compiled, &targets, housekeeper).await;
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

fn note(kind: &str, key: &ObjectKey, result: Result<write_status::StatusWrite, kube::Error>) {
    match result {
        Ok(write_status::StatusWrite::Written) => tracing::debug!(kind, object = %key, "status written"),
        Ok(write_status::StatusWrite::Superseded) => {}
        Err(error) => {
            tracing::warn!(kind, object = %key, %error, "a status was not written; the next pass tries again")
        }
    }
}

async fn providers(client: &Client, snapshot: &Snapshot) {
    for provider in &snapshot.git_providers {
        let key = key_of(&**provider);
        let generation = provider.metadata.generation;
        let gate = conditions::provider_gate(snapshot.probes.get(&key), generation.unwrap_or(0));
        let findings = trio(&[gate], "the repository was listed with these credentials");
        let before = provider.status.clone().unwrap_or_default();
        let status = GitProviderStatus {
            observed_generation: generation,
            conditions: apply(&before.conditions, &findings, generation),
            ..before
        };
        if let Some(patch) = changed(provider.status.as_ref(), &status) {
            note("GitProvider", &key, write_status::write(client, &**provider, &patch).await);
        }
    }
}

async fn cluster_providers(client: &Client, snapshot: &Snapshot) {
    for provider in &snapshot.cluster_providers {
        let key = key_of(&**provider);
        let generation = provider.metadata.generation;
        let (validated, gate) = match support::cluster_provider(&provider.spec) {
            None => {
                let message = "the cluster that holds this object";
                (
                    Finding::new(types::VALIDATED, ConditionStatus::True, Reason::InCluster, message),
                    Gate::Open,
                )
            }
            Some(message) => (
                Finding::new(types::VALIDATED, ConditionStatus::False, Reason::NotYetSupported, &message),
                Gate::blocked(Reason::NotYetSupported, message),
            ),
        };
        let mut findings = vec![validated];
        findings.extend(trio(&[gate], "the source cluster can be used"));
        let before = provider.status.clone().unwrap_or_default();
        let status = ClusterProviderStatus {
            observed_generation: generation,
            conditions: apply(&before.conditions, &findings, generation),
        };
        if let Some(patch) = changed(provider.status.as_ref(), &status) {
            note("ClusterProvider", &key, write_status::write_cluster(client, &**provider, &patch).await);
        }
    }
}

/// Kinds that this release only stores.
async fn unsupported_kinds(client: &Client, snapshot: &Snapshot) {
    let message = "this kind is not supported yet; the object has no effect";
    let findings = trio(&[Gate::blocked(Reason::NotYetSupported, message)], "");
    for rule in &snapshot.cluster_watch_rules {
        let before = rule.status.clone().unwrap_or_default();
        let generation = rule.metadata.generation;
        let status = RuleStatus {
            observed_generation: generation,
            conditions: apply(&before.conditions, &findings, generation),
            streams: None,
        };
        if let Some(patch) = changed(rule.status.as_ref(), &status) {
            note(
                "ClusterWatchRule",
                &key_of(&**rule),
                write_status::write_cluster(client, &**rule, &patch).await,
            );
        }
    }
    for request in &snapshot.commit_requests {
        let before = request.status.clone().unwrap_or_default();
        let generation = request.metadata.generation;
        let mut status = before.clone();
        status.observed_generation = generation;
        status.conditions = apply(&before.conditions, &findings, generation);
        if let Some(patch) = changed(request.status.as_ref(), &status) {
            note("CommitRequest", &key_of(&**request), write_status::write(client, &**request, &patch).await);
        }
    }
}

/// This replica answers for a target if it owns its branch; for one that does not run, the housekeeper does.
fn answers(verdict: &TargetVerdict, owned: Option<&OwnedBranch>, housekeeper: bool) -> bool {
    if verdict.refusal.is_some() { housekeeper } else { owned.is_some() }
}

async fn targets(
    client: &Client,
    snapshot: &Snapshot,
    compiled: &Compiled,
    housekeeper: bool,
) -> BTreeMap<ObjectKey, Vec<Finding>> {
    let mut findings_of = BTreeMap::new();
    for target in &snapshot.git_targets {
        let key = key_of(&**target);
        let Some(verdict) = compiled.targets.get(&key) else { continue };
        let owned = verdict.branch.as_ref().and_then(|branch| snapshot.owned.get(branch));
        if !answers(verdict, owned, housekeeper) {
            continue;
        }
        let (status, findings) = target_status(target, verdict, owned, snapshot, &key);
        if let Some(patch) = changed(target.status.as_ref(), &status) {
            note("GitTarget", &key, write_status::write(client, &**target, &patch).await);
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
    };
    let (findings, streams) = conditions::target(&facts);
    let before = target.status.clone().unwrap_or_default();
    let generation = target.metadata.generation;
    let pushed = owned.and_then(|owned| owned.last_push_s.get(&uid)).and_then(|seconds| time(*seconds));
    let status = GitTargetStatus {
        observed_generation: generation,
        conditions: apply(&before.conditions, &findings, generation),
        streams,
        owner: owned.map(owner),
        delivery: owned.map(|owned| delivery(owned, pushed.clone(), before.delivery.as_ref())),
        last_push_time: pushed.or_else(|| before.last_push_time.clone()),
        last_handled_reconcile_at: view
            .and_then(|view| view.handled.clone())
            .or_else(|| before.last_handled_reconcile_at.clone()),
        ..before
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

async fn rules(
    client: &Client,
    snapshot: &Snapshot,
    compiled: &Compiled,
    targets: &BTreeMap<ObjectKey, Vec<Finding>>,
    housekeeper: bool,
) {
    for rule in &snapshot.watch_rules {
        let key = key_of(&**rule);
        let Some(verdict) = compiled.rules.get(&key) else { continue };
        let target = verdict.target.as_ref().and_then(|target| compiled.targets.get(target));
        let owned =
            target.and_then(|target| target.branch.as_ref()).and_then(|branch| snapshot.owned.get(branch));
        let mine = match target {
            Some(target) => answers(target, owned, housekeeper),
            None => housekeeper,
        };
        if !mine {
            continue;
        }
        let view = owned.filter(|owned| owned.view.running).and_then(|owned| {
            let uid = verdict.scopes.first().map(|scope| &scope.target)?;
            owned.view.targets.get(uid)
        });
        let empty = Default::default();
        let view = view.or_else(|| {
            // A rule that resolves to nothing is followed as soon as its branch is.
            (verdict.scopes.is_empty() && owned.is_some_and(|owned| owned.view.running)).then_some(&empty)
        });
        let findings =
            verdict.target.as_ref().and_then(|target| targets.get(target)).map_or(&[][..], Vec::as_slice);
        let (findings, counts) = conditions::rule(verdict, findings, view);
        let before = rule.status.clone().unwrap_or_default();
        let generation = rule.metadata.generation;
        let status = RuleStatus {
            observed_generation: generation,
            conditions: apply(&before.conditions, &findings, generation),
            streams: counts.map(|counts| RuleStreams {
                total: counts.total,
                ready: counts.ready,
                replaying: counts.replaying,
                blocked: counts.blocked,
                summary: counts.summary,
                pending_sample: Vec::new(),
            }),
        };
        if let Some(patch) = changed(rule.status.as_ref(), &status) {
            note("WatchRule", &key, write_status::write(client, &**rule, &patch).await);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_names_only_what_differs_and_nulls_what_vanished() {
        let old = json!({"a": 1, "b": {"c": 2, "d": 3}, "e": [1]});
        let new = json!({"a": 1, "b": {"c": 4}, "e": [2]});
        assert_eq!(difference(&old, &new), Some(json!({"b": {"c": 4, "d": null}, "e": [2]})));
        assert_eq!(difference(&old, &old), None);
    }
}
