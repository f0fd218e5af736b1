//! One pass: which targets are valid, what does each branch have to do, what blocks the rest?
//!
//! A pure function of a [`Snapshot`]. The verdicts are kept beside the plan, so that statuses say exactly what was done.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use sha2::{Digest, Sha256};
use upriver_api::{Admission, ClusterProvider, GitProvider, GitTarget, Reason, WatchRule};
use upriver_content::placement::{Placement, TargetPath};
use upriver_content::policy::Selection;
use upriver_engine::branch::{Chosen, Subscription, TargetPlan};
use upriver_engine::window::WindowRule;
use upriver_git_io::{RemoteUrl, branch_key, validate_branch};
use upriver_model::{BranchKey, Gvr, ObjectKey, Scope, TargetScope, TargetUid, WatchKey};

use super::plan::{BranchSpec, Desired, TargetSpec};
use super::snapshot::Snapshot;
use super::{support, types};

/// The source cluster that holds our own kinds.
pub const LOCAL_CLUSTER: &str = "local";

/// Version of what sanitising and placement write; a change replays every scope.
const CONTENT_VERSION: &str = "1";

/// Why something does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Condition reason.
    pub reason: Reason,
    /// What to do, in words.
    pub message: String,
}

impl Refusal {
    fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// What was decided about a target.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetVerdict {
    /// Its branch, if one can be named at all.
    pub branch: Option<BranchKey>,
    /// Why it does not run.
    pub refusal: Option<Refusal>,
    /// Scopes that it wants, in a valid target only.
    pub scopes: Vec<TargetScope>,
}

/// What was decided about a rule.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleVerdict {
    /// Its target, if it exists.
    pub target: Option<ObjectKey>,
    /// Why it does not run.
    pub refusal: Option<Refusal>,
    /// False while discovery is unread.
    pub resolved: bool,
    /// Words that select nothing, with the reason.
    pub unmatched: Vec<String>,
    /// Scopes that it contributes to.
    pub scopes: Vec<TargetScope>,
}

/// The outcome of a pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Compiled {
    /// What has to be owned.
    pub desired: Desired,
    /// By (namespace, name).
    pub targets: BTreeMap<ObjectKey, TargetVerdict>,
    /// By (namespace, name).
    pub rules: BTreeMap<ObjectKey, RuleVerdict>,
    /// Types whose cluster-wide rights are not known yet.
    pub unknown_rights: Vec<Gvr>,
}

struct Valid {
    object: Arc<GitTarget>,
    provider: Arc<GitProvider>,
    url: RemoteUrl,
    key: BranchKey,
    path: TargetPath,
    placement: Placement,
}

/// Key of a namespaced object.
#[must_use]
pub fn key_of(object: &impl ResourceExt) -> ObjectKey {
    ObjectKey::new(&object.namespace().unwrap_or_default(), &object.name_any())
}

/// Compiles a snapshot.
#[must_use]
pub fn compile(snapshot: &Snapshot) -> Compiled {
    let mut compiled = Compiled::default();
    let mut valid: BTreeMap<ObjectKey, Valid> = BTreeMap::new();
    let mut by_age = snapshot.git_targets.clone();
    by_age.sort_by_key(|target| (target.creation_timestamp().map(|time| time.0), key_of(&**target)));
    for target in by_age {
        let key = key_of(&*target);
        let (branch, result) = validate(&target, snapshot, &valid);
        let verdict = TargetVerdict { branch, refusal: result.as_ref().err().cloned(), scopes: Vec::new() };
        compiled.targets.insert(key.clone(), verdict);
        if let Ok(found) = result {
            valid.insert(key, found);
        }
    }
    let mut wanted: BTreeMap<ObjectKey, BTreeMap<TargetScope, types::Selected>> = BTreeMap::new();
    for rule in &snapshot.watch_rules {
        let (verdict, selected) = rule_verdict(rule, snapshot, &valid);
        if let Some(target) = &verdict.target {
            merge(wanted.entry(target.clone()).or_default(), selected);
        }
        compiled.rules.insert(key_of(&**rule), verdict);
    }
    for (key, found) in valid {
        let scopes = wanted.remove(&key).unwrap_or_default();
        if let Some(verdict) = compiled.targets.get_mut(&key) {
            verdict.scopes = scopes.keys().cloned().collect();
        }
        add_target(&mut compiled, snapshot, &found, scopes);
    }
    compiled
}

fn merge(
    into: &mut BTreeMap<TargetScope, types::Selected>,
    selected: BTreeMap<TargetScope, types::Selected>,
) {
    for (scope, found) in selected {
        let entry = into.entry(scope).or_insert_with(|| found.clone());
        entry.operations.extend(found.operations);
        entry.operations.sort_unstable();
        entry.operations.dedup();
        if found.selection == Selection::Named {
            entry.selection = Selection::Named;
        }
    }
}

fn validate(
    target: &Arc<GitTarget>,
    snapshot: &Snapshot,
    older: &BTreeMap<ObjectKey, Valid>,
) -> (Option<BranchKey>, Result<Valid, Refusal>) {
    let namespace = target.namespace().unwrap_or_default();
    let name = &target.spec.provider_ref.name;
    let provider = snapshot
        .git_providers
        .iter()
        .find(|provider| provider.name_any() == *name && provider.namespace().as_deref() == Some(&namespace));
    let Some(provider) = provider else {
        let message = format!("GitProvider {namespace}/{name} does not exist: create it in this namespace");
        return (None, Err(Refusal::new(Reason::ProviderNotFound, message)));
    };
    let url = match RemoteUrl::parse(&provider.spec.url) {
        Ok(url) => url,
        Err(error) => {
            let message = format!("GitProvider {name} has an unusable URL: {error}");
            return (None, Err(Refusal::new(Reason::InvalidConfig, message)));
        }
    };
    let key = BranchKey::new(branch_key(&url, &target.spec.branch));
    let result = check_target(target, provider, snapshot).and_then(|(path, placement)| {
        check_overlap(&key, &path, older)?;
        Ok(Valid {
            object: target.clone(),
            provider: provider.clone(),
            url,
            key: key.clone(),
            path,
            placement,
        })
    });
    (Some(key), result)
}

fn check_target(
    target: &GitTarget,
    provider: &GitProvider,
    snapshot: &Snapshot,
) -> Result<(TargetPath, Placement), Refusal> {
    let spec = &target.spec;
    if let Err(error) = validate_branch(&spec.branch) {
        return Err(Refusal::new(Reason::InvalidConfig, error.to_string()));
    }
    if !provider.spec.allows_branch(&spec.branch) {
        let message = format!(
            "GitProvider {} does not allow branch {}: extend its allowedBranches, or recreate this target on an allowed one",
            provider.name_any(),
            spec.branch
        );
        return Err(Refusal::new(Reason::BranchNotAllowed, message));
    }
    let path = TargetPath::parse(&spec.path)
        .map_err(|error| Refusal::new(Reason::InvalidConfig, format!("spec.path: {error}")))?;
    let placement = placement(target)?;
    admit(target, snapshot)?;
    if let Some(message) = support::git_target(spec).or_else(|| support::git_provider(&provider.spec)) {
        return Err(Refusal::new(Reason::NotYetSupported, message));
    }
    Ok((path, placement))
}

fn placement(target: &GitTarget) -> Result<Placement, Refusal> {
    let Some(spec) = &target.spec.placement else { return Ok(Placement::canonical()) };
    let compiled = Placement::compile(&spec.by_type, spec.default.as_deref())
        .map_err(|error| Refusal::new(Reason::InvalidConfig, format!("spec.placement: {error}")))?;
    if compiled.may_bundle() {
        let message = "spec.placement puts several objects into one file, which is not supported yet: use {name} \
                       together with {namespaceOrCluster}, {groupPath}, {version} and {resource}";
        return Err(Refusal::new(Reason::NotYetSupported, message));
    }
    Ok(compiled)
}

/// The source cluster exists, is one that this release can watch, and admits the target's namespace.
fn admit(target: &GitTarget, snapshot: &Snapshot) -> Result<(), Refusal> {
    let name = &target.spec.cluster_provider_ref.name;
    let found: Option<&Arc<ClusterProvider>> =
        snapshot.cluster_providers.iter().find(|provider| provider.name_any() == *name);
    let Some(cluster) = found else {
        let message = format!("ClusterProvider {name} does not exist: create it");
        return Err(Refusal::new(Reason::ClusterProviderNotFound, message));
    };
    let namespace = target.namespace().unwrap_or_default();
    let refuse = |message: String| Err(Refusal::new(Reason::NamespaceNotAuthorized, message));
    let Some(matcher) = &cluster.spec.allowed_namespaces else {
        return refuse(format!("ClusterProvider {name} admits no namespace: set its allowedNamespaces"));
    };
    let empty = BTreeMap::new();
    let labels = snapshot.namespaces.get(&namespace).unwrap_or(&empty);
    match matcher.admits(&namespace, Some(labels)) {
        Admission::Admitted => {}
        Admission::Denied | Admission::NeedsLabels => {
            return refuse(format!(
                "ClusterProvider {name} does not admit namespace {namespace}: add it to allowedNamespaces"
            ));
        }
        Admission::Invalid(error) => {
            return refuse(format!("ClusterProvider {name}, allowedNamespaces: {error}"));
        }
    }
    support::cluster_provider(&cluster.spec).map_or(Ok(()), |message| {
        Err(Refusal::new(Reason::NotYetSupported, format!("ClusterProvider {name}: {message}")))
    })
}

/// Paths are compared per (remote, branch), over all namespaces; the older target wins.
fn check_overlap(
    key: &BranchKey,
    path: &TargetPath,
    older: &BTreeMap<ObjectKey, Valid>,
) -> Result<(), Refusal> {
    let taken = older.values().any(|other| other.key == *key && other.path.overlaps(path));
    if taken {
        // The other one is not named: it may live in a namespace that this user cannot see.
        let message =
            "an older GitTarget writes an equal, outer or inner path of this branch: delete one of the two";
        return Err(Refusal::new(Reason::TargetConflict, message));
    }
    Ok(())
}

fn rule_verdict(
    rule: &WatchRule,
    snapshot: &Snapshot,
    valid: &BTreeMap<ObjectKey, Valid>,
) -> (RuleVerdict, BTreeMap<TargetScope, types::Selected>) {
    let namespace = rule.namespace().unwrap_or_default();
    let key = ObjectKey::new(&namespace, &rule.spec.target_ref.name);
    let exists = snapshot.git_targets.iter().any(|target| key_of(&**target) == key);
    let mut verdict = RuleVerdict {
        target: exists.then(|| key.clone()),
        refusal: None,
        resolved: snapshot.types.is_some(),
        unmatched: Vec::new(),
        scopes: Vec::new(),
    };
    if !exists {
        let message = format!("GitTarget {key} does not exist: create it in this namespace");
        verdict.refusal = Some(Refusal::new(Reason::GitTargetNotFound, message));
        return (verdict, BTreeMap::new());
    }
    if let Some(message) = support::watch_rule(&rule.spec, &namespace) {
        verdict.refusal = Some(Refusal::new(Reason::NotYetSupported, message));
        return (verdict, BTreeMap::new());
    }
    let (Some(found), Some(types)) = (valid.get(&key), &snapshot.types) else {
        return (verdict, BTreeMap::new());
    };
    let uid = TargetUid::new(found.object.uid().unwrap_or_default());
    let mut selected: BTreeMap<TargetScope, types::Selected> = BTreeMap::new();
    for item in &rule.spec.rules {
        let selector = types::Selector {
            resources: &item.resources,
            operations: &item.operations,
            api_groups: &item.api_groups,
            api_versions: &item.api_versions,
            scope: types::RuleScope::Namespaced,
        };
        let resolution = types::resolve(&selector, types);
        verdict.unmatched.extend(resolution.unmatched);
        let scopes = resolution.selected.into_iter().map(|found| {
            let scope = Scope::Namespace(namespace.as_str().into());
            (TargetScope { target: uid.clone(), gvr: found.gvr.clone(), scope }, found)
        });
        merge(&mut selected, scopes.collect());
    }
    verdict.scopes = selected.keys().cloned().collect();
    (verdict, selected)
}

fn add_target(
    compiled: &mut Compiled,
    snapshot: &Snapshot,
    found: &Valid,
    scopes: BTreeMap<TargetScope, types::Selected>,
) {
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
