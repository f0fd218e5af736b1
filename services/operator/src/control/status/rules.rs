//! WatchRules and ClusterWatchRules: those of a running target are its owner's, the others the housekeeper's.

use std::collections::BTreeMap;

use kube::ResourceExt;
use upriver_api::condition::Finding;
use upriver_api::watch_rule::RuleStatus;
use upriver_engine::branch::TargetView;
use upriver_kube_io::status as write_status;
use upriver_model::ObjectKey;

use super::{Change, Pass, answers, apply, changed};
use crate::control::compile::{RuleVerdict, key_of};
use crate::control::conditions::{self, RuleFacts, RuleKind};

type Findings = BTreeMap<ObjectKey, Vec<Finding>>;

pub(super) async fn watch_rules(pass: &Pass<'_>, targets: &Findings) {
    for rule in &pass.snapshot.watch_rules {
        let Some(verdict) = pass.compiled.rules.get(&key_of(&**rule)) else { continue };
        let before = rule.status.clone().unwrap_or_default();
        let Some(status) =
            status(pass, targets, (verdict, RuleKind::WatchRule), &before, rule.metadata.generation)
        else {
            continue;
        };
        if let Some(patch) = changed(rule.status.as_ref(), &status) {
            let written = write_status::write(pass.client, &**rule, &patch).await;
            let change = Change { before: &before.conditions, after: &status.conditions };
            pass.settle(&**rule, change, written);
        }
    }
}

pub(super) async fn cluster_watch_rules(pass: &Pass<'_>, targets: &Findings) {
    for rule in &pass.snapshot.cluster_watch_rules {
        let Some(verdict) = pass.compiled.cluster_rules.get(&rule.name_any()) else { continue };
        let before = rule.status.clone().unwrap_or_default();
        let kind = RuleKind::ClusterWatchRule;
        let Some(status) = status(pass, targets, (verdict, kind), &before, rule.metadata.generation) else {
            continue;
        };
        if let Some(patch) = changed(rule.status.as_ref(), &status) {
            let written = write_status::write_cluster(pass.client, &**rule, &patch).await;
            let change = Change { before: &before.conditions, after: &status.conditions };
            pass.settle(&**rule, change, written);
        }
    }
}

/// `None` for a rule that another replica answers for.
fn status(
    pass: &Pass<'_>,
    targets: &Findings,
    (verdict, kind): (&RuleVerdict, RuleKind),
    before: &RuleStatus,
    generation: Option<i64>,
) -> Option<RuleStatus> {
    let key = verdict.target.as_ref();
    let target = key.and_then(|key| pass.compiled.targets.get(key));
    let owned =
        target.and_then(|target| target.branch.as_ref()).and_then(|branch| pass.snapshot.owned.get(branch));
    let mine = match target {
        Some(target) => answers(target, owned, pass.housekeeper),
        None => pass.housekeeper,
    };
    if !mine {
        return None;
    }
    let not_taken_up = TargetView::default();
    // While the branch runs, a scope that its owner has not taken up yet is one that is coming.
    let view = owned
        .filter(|owned| owned.view.running)
        .map(|owned| target.and_then(|target| owned.view.targets.get(&target.uid)).unwrap_or(&not_taken_up));
    let findings = key.and_then(|key| targets.get(key)).map_or(&[][..], Vec::as_slice);
    let (findings, streams) = conditions::rule(&RuleFacts { verdict, kind, target: findings, view });
    Some(RuleStatus {
        observed_generation: generation,
        conditions: apply(&before.conditions, &findings, generation),
        streams,
    })
}
