//! Which GitTargets are valid, and who owns a folder that two of them claim?
//!
//! The order of the contract: GitProvider exists, branch pattern, overlap, placement, ClusterProvider exists, namespace
//! admitted. A target *owns* its folder if it has a right to it (provider, branch, path, admission, and no older owner),
//! also while something else keeps it from running: a typo in a placement must not hand the folder to a neighbour. One
//! without that right owns nothing, or anybody could block a folder of others with a target that never runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::ResourceExt;
use upriver_api::{Admission, ClusterProvider, GitProvider, GitTarget, Reason};
use upriver_content::placement::{Placement, TargetPath};
use upriver_git_io::{RemoteUrl, branch_key, validate_branch};
use upriver_model::{BranchKey, ObjectKey, TargetUid};

use super::index::Index;
use super::{Compiled, Refusal, TargetVerdict, key_of};
use crate::control::encryption;
use crate::control::snapshot::NamespacesRead;
use crate::control::support;

/// A target that runs.
pub(super) struct Valid {
    pub(super) object: Arc<GitTarget>,
    pub(super) provider: Arc<GitProvider>,
    pub(super) url: RemoteUrl,
    pub(super) key: BranchKey,
    pub(super) path: TargetPath,
    pub(super) placement: Placement,
}

/// A folder that has an owner.
struct Claim {
    branch: BranchKey,
    path: TargetPath,
}

/// Puts a verdict on every target into `compiled` and returns those that run.
pub(super) fn compile(index: &Index<'_>, compiled: &mut Compiled) -> BTreeMap<ObjectKey, Valid> {
    let mut valid = BTreeMap::new();
    let mut claims = Vec::new();
    let mut by_age = index.snapshot.git_targets.clone();
    by_age.sort_by_key(|target| (target.creation_timestamp().map(|time| time.0), key_of(&**target)));
    for target in by_age {
        let key = key_of(&*target);
        let (branch, result) = validate(&target, index, &mut claims);
        let verdict = TargetVerdict {
            uid: TargetUid::new(target.uid().unwrap_or_default()),
            branch,
            refusal: result.as_ref().err().cloned(),
            secrets: None,
            encryption: encryption::check(&target, index.snapshot.age_keys.get(&key)),
            scopes: Vec::new(),
        };
        compiled.targets.insert(key.clone(), verdict);
        if let Ok(found) = result {
            valid.insert(key, found);
        }
    }
    valid
}

fn validate(
    target: &Arc<GitTarget>,
    index: &Index<'_>,
    claims: &mut Vec<Claim>,
) -> (Option<BranchKey>, Result<Valid, Refusal>) {
    let Some(provider) = index.provider_of(target) else {
        let namespace = target.namespace().unwrap_or_default();
        let name = &target.spec.provider_ref.name;
        let message = format!("GitProvider {namespace}/{name} does not exist: create it in this namespace");
        return (None, Err(Refusal::new(Reason::ProviderNotFound, message)));
    };
    let url = match RemoteUrl::parse(&provider.spec.url) {
        Ok(url) => url,
        Err(error) => {
            let message = format!("GitProvider {} has an unusable URL: {error}", provider.name_any());
            return (None, Err(Refusal::new(Reason::InvalidConfig, message)));
        }
    };
    let key = BranchKey::new(branch_key(&url, &target.spec.branch));
    let result = place(target, provider).and_then(|path| {
        let placement = judge(target, provider, index, (&key, &path), claims)?;
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

/// Branch and path, as far as they can be judged alone.
fn place(target: &GitTarget, provider: &GitProvider) -> Result<TargetPath, Refusal> {
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
    TargetPath::parse(&spec.path)
        .map_err(|error| Refusal::new(Reason::InvalidConfig, format!("spec.path: {error}")))
}

/// Everything after branch and path; claims the folder if the target has a right to it.
fn judge(
    target: &GitTarget,
    provider: &GitProvider,
    index: &Index<'_>,
    (branch, path): (&BranchKey, &TargetPath),
    claims: &mut Vec<Claim>,
) -> Result<Placement, Refusal> {
    check_overlap(branch, path, claims)?;
    let admitted = admit(target, index);
    if admitted.is_ok() {
        claims.push(Claim { branch: branch.clone(), path: path.clone() });
    }
    let placement = placement(target)?;
    let cluster = admitted?;
    if let Some(message) = support::cluster_provider(&cluster.spec) {
        let message = format!("ClusterProvider {}: {message}", cluster.name_any());
        return Err(Refusal::new(Reason::NotYetSupported, message));
    }
    if let Some(message) = support::git_target(&target.spec).or_else(|| support::git_provider(&provider.spec))
    {
        return Err(Refusal::new(Reason::NotYetSupported, message));
    }
    Ok(placement)
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

/// The source cluster, if it exists and admits the target's namespace.
///
/// # Errors
/// `ClusterProviderNotFound` or `NamespaceNotAuthorized`.
pub(super) fn admit<'a>(target: &GitTarget, index: &Index<'a>) -> Result<&'a Arc<ClusterProvider>, Refusal> {
    let name = &target.spec.cluster_provider_ref.name;
    let Some(cluster) = index.cluster_of(target) else {
        let message = format!("ClusterProvider {name} does not exist: create it");
        return Err(Refusal::new(Reason::ClusterProviderNotFound, message));
    };
    let namespace = target.namespace().unwrap_or_default();
    let refuse = |message: String| Err(Refusal::new(Reason::NamespaceNotAuthorized, message));
    let Some(matcher) = &cluster.spec.allowed_namespaces else {
        return refuse(format!("ClusterProvider {name} admits no namespace: set its allowedNamespaces"));
    };
    let none = BTreeMap::new();
    // A namespace that is not there has no labels; one that cannot be read has unknown ones.
    let labels = match (index.snapshot.namespaces.get(&namespace), &index.snapshot.namespaces_read) {
        (Some(labels), _) => Some(labels),
        (None, NamespacesRead::Yes) => Some(&none),
        (None, NamespacesRead::NotYet | NamespacesRead::Forbidden(_)) => None,
    };
    match matcher.admits(&namespace, labels) {
        Admission::Admitted => Ok(cluster),
        Admission::Denied => refuse(format!(
            "ClusterProvider {name} does not admit namespace {namespace}: add it to allowedNamespaces"
        )),
        Admission::NeedsLabels => refuse(format!(
            "ClusterProvider {name} admits by label, and the labels of namespace {namespace} cannot be read: allow the \
             operator to list and watch namespaces, or add {namespace} to allowedNamespaces.names"
        )),
        Admission::Invalid(error) => refuse(format!("ClusterProvider {name}, allowedNamespaces: {error}")),
    }
}

/// Paths are compared per (remote, branch), over all namespaces; the older target wins.
fn check_overlap(branch: &BranchKey, path: &TargetPath, claims: &[Claim]) -> Result<(), Refusal> {
    let taken = claims.iter().any(|claim| claim.branch == *branch && claim.path.overlaps(path));
    if taken {
        // The other one is not named: it may live in a namespace that this user cannot see.
        let message =
            "an older GitTarget writes an equal, outer or inner path of this branch: delete one of the two";
        return Err(Refusal::new(Reason::TargetConflict, message));
    }
    Ok(())
}
