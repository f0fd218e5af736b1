//! CommitRequest: "save now", once.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::shared::LocalTargetRef;

/// A request to commit the open window of its author at once.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "configbutler.ai",
    version = "v1alpha3",
    kind = "CommitRequest",
    plural = "commitrequests",
    namespaced,
    status = "CommitRequestStatus",
    derive = "PartialEq",
    doc = "A CommitRequest asks once to commit what its author has changed. Make a new one for each save.",
    printcolumn(name = "GitTarget", type_ = "string", json_path = ".spec.targetRef.name"),
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
    printcolumn(name = "SHA", type_ = "string", json_path = ".status.sha"),
    printcolumn(
        name = "AuthorAttributed",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"AuthorAttributed\")].status",
        priority = 1
    ),
    printcolumn(
        name = "Pushed",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Pushed\")].status",
        priority = 1
    ),
    printcolumn(name = "Branch", type_ = "string", json_path = ".status.branch", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self == oldSelf").message("spec cannot change: create another CommitRequest"))]
pub struct CommitRequestSpec {
    /// GitTarget whose open window is committed.
    pub target_ref: LocalTargetRef,
    /// Commit message, used as it is; the message template if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^[^\x00-\x09\x0B-\x1F\x7F]*$"))]
    pub message: Option<String>,
    /// Seconds to gather further changes before the commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 300))]
    pub close_delay_seconds: Option<i32>,
}

/// What became of the request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommitRequestStatus {
    /// Generation that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, Reconciling, Stalled, AuthorAttributed and Pushed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Branch of the commit, once the request has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The commit, if one was pushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha: Option<String>,
}
