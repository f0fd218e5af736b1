//! What the control part has seen, at one moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use upriver_api::matcher::Labels;
use upriver_api::{ClusterProvider, ClusterWatchRule, CommitRequest, GitProvider, GitTarget, WatchRule};
use upriver_engine::branch::BranchView;
use upriver_engine::registry::Catalog;
use upriver_model::{BranchKey, Failure, Gvr, ObjectKey};

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
    /// Labels of the namespaces of the control cluster.
    pub namespaces: BTreeMap<String, Labels>,
    /// Connection probes by provider.
    pub probes: BTreeMap<ObjectKey, Probe>,
    /// Known types; `None` before the API has been read once.
    pub types: Option<Arc<Catalog>>,
    /// Types that we may watch in every namespace.
    pub cluster_wide: BTreeMap<Gvr, bool>,
    /// Views of the branches that this replica owns.
    pub owned: BTreeMap<BranchKey, OwnedBranch>,
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
