//! What the control part tells the data part.

use std::collections::BTreeMap;
use std::sync::Arc;

use upriver_api::git_provider::MessageSpec;
use upriver_content::placement::{Placement, TargetPath};
use upriver_engine::branch::TargetPlan;
use upriver_git_io::RemoteUrl;
use upriver_model::BranchKey;

/// Everything that somebody has to own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Desired {
    /// Branches by key.
    pub branches: BTreeMap<BranchKey, Arc<BranchSpec>>,
}

/// One branch and its targets.
#[derive(Clone, Debug, PartialEq)]
pub struct BranchSpec {
    /// The key.
    pub key: BranchKey,
    /// Where to push.
    pub url: RemoteUrl,
    /// Branch name.
    pub branch: String,
    /// (namespace, name) of the credentials Secret; `None` is anonymous.
    pub secret: Option<(String, String)>,
    /// The targets, by age.
    pub targets: Vec<TargetSpec>,
}

/// One target as its writer needs it.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetSpec {
    /// What the engine needs.
    pub plan: TargetPlan,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// Folder.
    pub path: TargetPath,
    /// Rules for new documents.
    pub placement: Placement,
    /// Committer name.
    pub committer_name: String,
    /// Committer mail.
    pub committer_email: String,
    /// Templates of commit messages, as the provider has them; one that is absent or fails acts as the default.
    pub messages: MessageSpec,
}
