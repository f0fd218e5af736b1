//! GitTargets whose branch nobody owns. Their owner would tell their status, so the housekeeper does; the next owner's
//! first status ends it.

use upriver_api::GitTarget;
use upriver_api::git_target::GitTargetStatus;
use upriver_engine::lease::{ClaimKey, Directory};
use upriver_kube_io::status as write_status;
use upriver_model::BranchKey;
use upriver_telemetry::metric;

use super::{Change, Pass, apply, changed};
use crate::control::compile::key_of;
use crate::control::conditions;

pub(super) async fn targets(pass: &Pass<'_>) {
    let mut unowned = 0_u32;
    for target in pass.snapshot.git_targets.iter().filter(|_| pass.housekeeper) {
        let Some(verdict) = pass.compiled.targets.get(&key_of(&**target)) else { continue };
        let Some(branch) = verdict.branch.as_ref().filter(|_| verdict.refusal.is_none()) else { continue };
        // A paused target waits for nobody.
        if target.spec.is_suspended() || !is_unowned(target, branch, &pass.snapshot.directory) {
            continue;
        }
        unowned += 1;
        let status = status(target);
        if let Some(patch) = changed(target.status.as_ref(), &status) {
            let before = target.status.as_ref().map_or(&[][..], |status| &status.conditions);
            let change = Change { before, after: &status.conditions };
            pass.settle(&**target, change, write_status::write(pass.client, &**target, &patch).await);
        }
    }
    metrics::gauge!(metric::UNOWNED_TARGETS).set(f64::from(unowned));
}

/// Nobody holds its claim, and the status is not that of an owner that the last look has not seen yet.
fn is_unowned(target: &GitTarget, branch: &BranchKey, directory: &Directory) -> bool {
    let claim = ClaimKey::Branch(branch.clone());
    let seen = directory.epochs.get(&claim.lease_name()).copied().unwrap_or(0);
    let owner = target.status.as_ref().and_then(|status| status.owner.as_ref()?.epoch);
    let newer = owner.and_then(|epoch| u64::try_from(epoch).ok()).is_some_and(|epoch| epoch > seen);
    directory.unowned.contains(&claim) && !newer
}

fn status(target: &GitTarget) -> GitTargetStatus {
    let before = target.status.clone().unwrap_or_default();
    let findings = conditions::unowned_target();
    let conditions = apply(&before.conditions, &findings, target.metadata.generation);
    GitTargetStatus { conditions, owner: None, ..before }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn target(owner_epoch: Option<i64>) -> GitTarget {
        let owner = owner_epoch.map(|epoch| json!({"replica": "r", "epoch": epoch}));
        let object = json!({
            "apiVersion": "configbutler.ai/v1alpha3", "kind": "GitTarget", "metadata": {"name": "a", "namespace": "n"},
            "spec": {"providerRef": {"name": "p"}, "branch": "main", "path": "a"},
            "status": {"conditions": [], "owner": owner}
        });
        serde_json::from_value(object).expect("a target")
    }

    #[test]
    fn a_target_is_nobodys_until_an_owner_of_a_later_epoch_has_written_its_status() {
        let branch = BranchKey::new("b");
        let claim = ClaimKey::Branch(branch.clone());
        let mut directory = Directory::default();
        directory.epochs.insert(claim.lease_name(), 3);
        assert!(!is_unowned(&target(Some(3)), &branch, &directory), "somebody has it");
        directory.unowned.insert(claim);
        assert!(is_unowned(&target(Some(3)), &branch, &directory));
        assert!(is_unowned(&target(None), &branch, &directory));
        assert!(!is_unowned(&target(Some(4)), &branch, &directory), "taken since the last look");
    }

    #[test]
    fn a_target_without_an_owner_is_not_ready_and_names_nobody() {
        let status = status(&target(Some(3)));
        let rows: Vec<String> = status
            .conditions
            .iter()
            .map(|condition| format!("{}={} {}", condition.type_, condition.status, condition.reason))
            .collect();
        let expected = [
            "Owned=False NoOwner",
            "Delivering=False NoOwner",
            "Ready=False NoOwner",
            "Reconciling=True NoOwner",
            "Stalled=False Progressing",
        ];
        assert_eq!(rows, expected);
        assert!(status.owner.is_none());
    }
}
