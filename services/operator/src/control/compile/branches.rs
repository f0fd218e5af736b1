//! From a valid target and its selections to what the owner of its branch has to do.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use sha2::{Digest, Sha256};
use upriver_api::GitProvider;
use upriver_content::policy::Selection;
use upriver_engine::branch::{Chosen, Subscription, TargetPlan};
use upriver_engine::window::WindowRule;
use upriver_model::{Scope, TargetScope, TargetUid, WatchKey};

use super::targets::Valid;
use super::{Compiled, LOCAL_CLUSTER, Wanted, key_of};
use crate::control::plan::{BranchSpec, TargetSpec};
use crate::control::snapshot::Snapshot;

/// Version of what sanitising and placement write; a change replays every scope.
const CONTENT_VERSION: &str = "1";

pub(super) fn add_target(compiled: &mut Compiled, snapshot: &Snapshot, found: &Valid, scopes: Wanted) {
    let committer = found.provider.spec.committer();
    let mut subscriptions = Vec::new();
    for (scope, selected) in scopes {
        let Some(cluster_wide) = snapshot.cluster_wide.get(&scope.gvr) else {
            compiled.unknown_rights.push(scope.gvr);
            continue;
        };
        // One watch serves everybody where we may; else one per namespace.
        let watched = if *cluster_wide { Scope::Cluster } else { scope.scope.clone() };
        subscriptions.push(Subscription {
            watch: WatchKey { cluster: LOCAL_CLUSTER.into(), gvr: scope.gvr.clone(), scope: watched },
            spec_hash: spec_hash(found, &scope, selected.selection),
            chosen: match selected.selection {
                Selection::Named => Chosen::ByName,
                Selection::Wildcard => Chosen::ByWildcard,
            },
            kind: selected.kind.into(),
            operations: selected.operations,
            scope,
        });
    }
    let plan = TargetPlan {
        uid: TargetUid::new(found.object.uid().unwrap_or_default()),
        window: window(&found.provider),
        never_prune: !found.object.spec.prune_mode().removes_on_event(),
        suspended: found.object.spec.is_suspended(),
        recheck: found.object.requested_recheck().map(Into::into),
        subject: subject(snapshot, found),
        subscriptions,
    };
    let target = TargetSpec {
        plan,
        namespace: found.object.namespace().unwrap_or_default(),
        name: found.object.name_any(),
        path: found.path.clone(),
        placement: found.placement.clone(),
        committer_name: committer.name,
        committer_email: committer.email,
        messages: found.provider.spec.message_templates(),
    };
    put_on_branch(compiled, found, target);
}

/// Whatever a person may have changed to mend a failed push. The Secret is not watched, but its provider is probed: when the
/// probe succeeds again, this changes too.
fn subject(snapshot: &Snapshot, found: &Valid) -> Box<str> {
    let of = |object: &kube::core::ObjectMeta| format!("{:?}/{:?}", object.uid, object.generation);
    let connected = snapshot.probes.get(&key_of(&*found.provider)).is_some_and(|probe| probe.result.is_ok());
    format!("{} {} {connected}", of(&found.object.metadata), of(&found.provider.metadata)).into()
}

fn put_on_branch(compiled: &mut Compiled, found: &Valid, target: TargetSpec) {
    let secret = found.provider.spec.secret_ref.as_ref();
    let branch = compiled.desired.branches.entry(found.key.clone()).or_insert_with(|| {
        Arc::new(BranchSpec {
            key: found.key.clone(),
            url: found.url.clone(),
            branch: found.object.spec.branch.clone(),
            secret: secret
                .map(|secret| (found.provider.namespace().unwrap_or_default(), secret.name.clone())),
            targets: Vec::new(),
        })
    });
    Arc::make_mut(branch).targets.push(target);
}

fn window(provider: &GitProvider) -> WindowRule {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    WindowRule {
        silence_ms: millis(provider.spec.commit_window().value),
        max_age_ms: millis(provider.spec.max_window_age().value),
    }
}

/// Everything that decides what a scope's files hold and where they lie.
fn spec_hash(found: &Valid, scope: &TargetScope, selection: Selection) -> Box<str> {
    let placement = found.object.spec.placement.as_ref().map(|spec| serde_json::json!(spec).to_string());
    let (mut hash, scope_key) = (Sha256::new(), scope.as_key());
    let mut parts = vec![
        CONTENT_VERSION,
        found.key.as_str(),
        found.path.as_str(),
        &scope_key,
        &scope.gvr.version,
        placement.as_deref().unwrap_or_default(),
    ];
    if selection == Selection::Wildcard {
        parts.push("*");
    }
    for part in parts {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    let digest = hash.finalize();
    digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect::<String>().into()
}
