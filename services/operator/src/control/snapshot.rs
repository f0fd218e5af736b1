//! What the control part has seen, at one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use upriver_api::matcher::Labels;
use upriver_api::{ClusterProvider, ClusterWatchRule, CommitRequest, GitProvider, GitTarget, WatchRule};
use upriver_engine::branch::BranchView;
use upriver_engine::lease::Directory;
use upriver_engine::registry::Catalog;
use upriver_model::{BranchKey, Failure, Gvr, ObjectKey};

use super::compile::Refusal;
use super::compile::namespaces::Grants;
use super::encryption::AgeKeys;

/// All inputs of one pass.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Our kinds.
    pub git_providers: Vec<Arc<GitProvider>>,
    /// Our kinds.
    pub cluster_providers: Vec<Arc<ClusterProvider>>,
    /// Our kinds.
    pub git_targets: Vec<Arc<GitTarget>>,
    /// Our kinds.
    pub watch_rules: Vec<Arc<WatchRule>>,
    /// Our kinds.
    pub cluster_watch_rules: Vec<Arc<ClusterWatchRule>>,
    /// Our kinds.
    pub commit_requests: Vec<Arc<CommitRequest>>,
    /// Labels of the namespaces of the control cluster, those included that vanished lately: their last deletions are
    /// still on the way.
    pub namespaces: BTreeMap<String, Labels>,
    /// Whether these labels are known to be all and current.
    pub namespaces_read: NamespacesRead,
    /// What WatchRules could read in the last pass.
    pub grants: Grants,
    /// What the Secrets with age keys hold, by target; none where it has not been read.
    pub age_keys: BTreeMap<ObjectKey, AgeKeys>,
    /// What the kubeconfigs are worth, by ClusterProvider; none where nothing definite is known.
    pub kube_configs: BTreeMap<String, KubeConfigs>,
    /// Uids of CommitRequests whose target was absent for as long as one is waited for.
    pub overdue_requests: BTreeSet<String>,
    /// Connection probes by provider.
    pub probes: BTreeMap<ObjectKey, Probe>,
    /// Known types; `None` before the API has been read once.
    pub types: Option<Arc<Catalog>>,
    /// Types that we may watch in every namespace.
    pub cluster_wide: BTreeMap<Gvr, bool>,
    /// Views of the branches that this replica owns.
    pub owned: BTreeMap<BranchKey, OwnedBranch>,
    /// Who holds what, as of the last look at the Leases.
    pub directory: Arc<Directory>,
}

/// Whether the labels of namespaces are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NamespacesRead {
    /// They are.
    #[default]
    Yes,
    /// Not yet.
    NotYet,
    /// The API server refuses to tell, with its words.
    Forbidden(String),
}

/// What is known about a kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeConfigs {
    /// Generation of the ClusterProvider that was looked at.
    pub generation: i64,
    /// Usable, or why not.
    pub result: Result<(), Refusal>,
}

/// Result of a connection probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Generation of the provider that was probed.
    pub generation: i64,
    /// What came out.
    pub result: Result<(), ProbeFailure>,
}

/// Why a provider cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeFailure {
    /// `spec.commit` cannot be used; nothing else was looked at.
    CommitConfigInvalid(String),
    /// The Secret does not exist.
    SecretNotFound(String),
    /// The Secret cannot be used.
    SecretMalformed(String),
    /// Something that this release cannot do.
    NotYetSupported(String),
    /// The remote said no, or nothing.
    Connection(Failure),
}

/// A branch that this replica owns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnedBranch {
    /// Our name.
    pub replica: String,
    /// Our epoch.
    pub epoch: u64,
    /// Since when, seconds since 1970.
    pub since_s: i64,
    /// How it is doing.
    pub view: BranchView,
    /// Secrets that were not written, by target uid.
    pub skipped_secrets: BTreeMap<String, usize>,
    /// When a failed attempt is tried again, seconds since 1970.
    pub next_attempt_s: Option<i64>,
    /// When the last push of a target landed, seconds since 1970.
    pub last_push_s: BTreeMap<String, i64>,
}
