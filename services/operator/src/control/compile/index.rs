//! The objects of a snapshot by key: thousands of rules look up their targets, and targets their providers.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::ResourceExt;
use upriver_api::{ClusterProvider, GitProvider, GitTarget};
use upriver_model::ObjectKey;

use super::key_of;
use crate::control::snapshot::Snapshot;

/// See the module.
pub(super) struct Index<'a> {
    pub(super) snapshot: &'a Snapshot,
    targets: BTreeMap<ObjectKey, &'a Arc<GitTarget>>,
    providers: BTreeMap<ObjectKey, &'a Arc<GitProvider>>,
    clusters: BTreeMap<String, &'a Arc<ClusterProvider>>,
}

impl<'a> Index<'a> {
    pub(super) fn new(snapshot: &'a Snapshot) -> Self {
        Self {
            snapshot,
            targets: snapshot.git_targets.iter().map(|target| (key_of(&**target), target)).collect(),
            providers: snapshot.git_providers.iter().map(|found| (key_of(&**found), found)).collect(),
            clusters: snapshot.cluster_providers.iter().map(|found| (found.name_any(), found)).collect(),
        }
    }

    pub(super) fn target(&self, key: &ObjectKey) -> Option<&'a Arc<GitTarget>> {
        self.targets.get(key).copied()
    }

    /// The GitProvider that a target names.
    pub(super) fn provider_of(&self, target: &GitTarget) -> Option<&'a Arc<GitProvider>> {
        let key = ObjectKey::new(&target.namespace().unwrap_or_default(), &target.spec.provider_ref.name);
        self.providers.get(&key).copied()
    }

    /// The ClusterProvider that a target names.
    pub(super) fn cluster_of(&self, target: &GitTarget) -> Option<&'a Arc<ClusterProvider>> {
        self.clusters.get(&target.spec.cluster_provider_ref.name).copied()
    }
}
