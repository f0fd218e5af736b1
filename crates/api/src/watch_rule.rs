//! WatchRule: which namespaced types a GitTarget mirrors.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::lenient::lenient_enum;
use crate::shared::LocalTargetRef;

/// Which namespaced types a GitTarget of the same namespace mirrors.
#[derive(CustomResource, JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "configbutler.ai",
    version = "v1alpha3",
    kind = "WatchRule",
    plural = "watchrules",
    namespaced,
    status = "RuleStatus",
    derive = "PartialEq",
    doc = "A WatchRule says which namespaced types a GitTarget of its namespace mirrors.",
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
    printcolumn(
        name = "SourceAuthorized",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"SourceNamespaceAuthorized\")].status",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct WatchRuleSpec {
    /// GitTarget that gets the objects.
    pub target_ref: LocalTargetRef,
    /// What to mirror: whatever matches one of these.
    #[schemars(length(min = 1))]
    pub rules: Vec<NamespacedRule>,
}

lenient_enum! {
    /// A kind of live event.
    pub enum Operation {
        /// An object appeared.
        Create = "CREATE",
        /// An object changed.
        Update = "UPDATE",
        /// An object vanished.
        Delete = "DELETE",
        /// All three.
        Any = "*",
    }
}

/// One selection of namespaced types.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamespacedRule {
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
    /// Namespace in the source cluster; the own one if absent, `*` for all that the GitTarget admits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), regex(pattern = r"^(\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$"))]
    pub source_namespace: Option<String>,
}

/// What is known about a rule of either kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuleStatus {
    /// Generation that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, Reconciling, Stalled and one condition per gate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Streams of this rule by state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<RuleStreams>,
}

/// Streams of a rule by state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuleStreams {
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
    /// Up to five types that are not ready, blocked ones first, `plural` or `plural.group`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending_sample: Vec<String>,
}
