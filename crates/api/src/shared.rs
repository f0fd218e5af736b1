//! What do the kinds have in common? References to other objects, and the policy that admits namespaces. Evaluation
//! of that policy is in [`crate::matcher`].

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::GROUP;
use crate::lenient::lenient_enum;

fn our_group() -> String {
    GROUP.to_owned()
}

fn git_provider() -> String {
    "GitProvider".to_owned()
}

fn cluster_provider() -> String {
    "ClusterProvider".to_owned()
}

fn git_target() -> String {
    "GitTarget".to_owned()
}

fn secret() -> String {
    "Secret".to_owned()
}

fn config_map() -> KnownHostsKind {
    KnownHostsKind::ConfigMap
}

/// Names a GitProvider in the namespace of the object that refers to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProviderRef {
    /// API group of the referent.
    #[serde(default = "our_group")]
    #[schemars(extend("enum" = ["configbutler.ai"]))]
    pub group: String,
    /// Kind of the referent.
    #[serde(default = "git_provider")]
    #[schemars(extend("enum" = ["GitProvider"]))]
    pub kind: String,
    /// Name of the GitProvider.
    #[schemars(length(min = 1))]
    pub name: String,
}

/// Names a ClusterProvider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterProviderRef {
    /// API group of the referent.
    #[serde(default = "our_group")]
    #[schemars(extend("enum" = ["configbutler.ai"]))]
    pub group: String,
    /// Kind of the referent.
    #[serde(default = "cluster_provider")]
    #[schemars(extend("enum" = ["ClusterProvider"]))]
    pub kind: String,
    /// Name of the ClusterProvider, which is cluster-scoped.
    #[schemars(length(min = 1))]
    pub name: String,
}

impl Default for ClusterProviderRef {
    /// What an omitted reference points at.
    fn default() -> Self {
        Self { group: our_group(), kind: cluster_provider(), name: "default".to_owned() }
    }
}

/// Names a GitTarget in the namespace of the object that refers to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalTargetRef {
    /// API group of the referent.
    #[serde(default = "our_group")]
    #[schemars(extend("enum" = ["configbutler.ai"]))]
    pub group: String,
    /// Kind of the referent.
    #[serde(default = "git_target")]
    #[schemars(extend("enum" = ["GitTarget"]))]
    pub kind: String,
    /// Name of the GitTarget.
    #[schemars(length(min = 1))]
    pub name: String,
}

/// Names a GitTarget in any namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamespacedTargetRef {
    /// API group of the referent.
    #[serde(default = "our_group")]
    #[schemars(extend("enum" = ["configbutler.ai"]))]
    pub group: String,
    /// Kind of the referent.
    #[serde(default = "git_target")]
    #[schemars(extend("enum" = ["GitTarget"]))]
    pub kind: String,
    /// Name of the GitTarget.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Namespace of the GitTarget.
    #[schemars(length(min = 1))]
    pub namespace: String,
}

/// Names a Secret in the namespace of the object that refers to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretRef {
    /// API group of the referent, empty for the core group.
    #[serde(default)]
    pub group: String,
    /// Kind of the referent.
    #[serde(default = "secret")]
    #[schemars(extend("enum" = ["Secret"]))]
    pub kind: String,
    /// Name of the Secret.
    #[schemars(length(min = 1))]
    pub name: String,
}

lenient_enum! {
    /// What may hold SSH host keys.
    pub enum KnownHostsKind {
        /// A ConfigMap: host keys are public.
        ConfigMap = "ConfigMap",
        /// A Secret.
        Secret = "Secret",
    }
}

/// Names the ConfigMap or Secret with SSH host keys, in the namespace of the object that refers to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KnownHostsRef {
    /// Kind of the referent.
    #[serde(default = "config_map")]
    pub kind: KnownHostsKind,
    /// Name of the referent, whose key `known_hosts` or `ssh_known_hosts` is read.
    #[schemars(length(min = 1))]
    pub name: String,
}

/// Admits namespaces by name or by label; either suffices. Present but empty admits none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceMatcher {
    /// Exact namespace names. No patterns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")))]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub names: Vec<String>,
    /// Labels of the Namespace object. An empty selector admits every namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub selector: Option<LabelSelector>,
}

/// A Kubernetes label selector: all of its parts have to match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// Requirements on labels and sets of values, ANDed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub match_expressions: Vec<LabelSelectorRequirement>,
    /// Labels with the exact value that they need to have, ANDed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
}

/// One requirement of a label selector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelectorRequirement {
    /// The label.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`. Checked when the selector is evaluated.
    pub operator: String,
    /// Values for `In` and `NotIn`, none for the other two.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub values: Vec<String>,
}

/// Streams of a GitTarget or a rule, counted by type and scope.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StreamCounts {
    /// All that are tracked.
    pub total: i32,
    /// Those that follow live changes.
    pub ready: i32,
    /// Those whose initial list is in flight.
    pub replaying: i32,
    /// Those that cannot run.
    pub blocked: i32,
    /// `ready/total`, for the printer column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
}

impl StreamCounts {
    /// Counts with their summary.
    #[must_use]
    pub fn new(ready: i32, replaying: i32, blocked: i32) -> Self {
        let total = ready + replaying + blocked;
        Self { total, ready, replaying, blocked, summary: Some(format!("{ready}/{total}")) }
    }
}
