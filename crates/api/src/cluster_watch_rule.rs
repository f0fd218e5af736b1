//! ClusterWatchRule: which cluster-scoped types a GitTarget mirrors.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::lenient::lenient_enum;
use crate::shared::NamespacedTargetRef;
use crate::watch_rule::{Operation, RuleStatus};

/// Which cluster-scoped types a GitTarget mirrors.
#[derive(CustomResource, JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "configbutler.ai",
    version = "v1alpha3",
    kind = "ClusterWatchRule",
    plural = "clusterwatchrules",
    status = "RuleStatus",
    derive = "PartialEq",
    doc = "A ClusterWatchRule says which cluster-scoped types a GitTarget mirrors.",
    printcolumn(name = "Target", type_ = "string", json_path = ".spec.targetRef.name"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    ),
    printcolumn(name = "Streams", type_ = "string", json_path = ".status.streams.summary"),
    printcolumn(
        name = "GitTargetReady",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"GitTargetReady\")].status",
        priority = 1
    ),
    printcolumn(
        name = "StreamsRunning",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"StreamsRunning\")].status",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterWatchRuleSpec {
    /// GitTarget that gets the objects.
    pub target_ref: NamespacedTargetRef,
    /// What to mirror: whatever matches one of these.
    #[schemars(length(min = 1))]
    pub rules: Vec<ClusterRule>,
}

lenient_enum! {
    /// Scope of the types that a rule selects.
    pub enum RuleScope {
        /// Cluster-scoped types.
        Cluster = "Cluster",
    }
}

fn cluster() -> RuleScope {
    RuleScope::Cluster
}

/// One selection of cluster-scoped types.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterRule {
    /// Plural names, or `*`. No subresources, no patterns.
    #[schemars(length(min = 1), inner(length(min = 1), regex(pattern = r"^[^/]*$")))]
    pub resources: Vec<String>,
    /// Live events to follow; all if absent. Replays are not filtered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<Operation>,
    /// API groups, `""` for core, `*` for any; any if absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    /// API versions, `*` for any; the preferred one if absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub api_versions: Vec<String>,
    /// Deprecated: only `Cluster` is left, and `Namespaced` is refused. Use a WatchRule for namespaced types.
    #[serde(default = "cluster")]
    pub scope: RuleScope,
}
