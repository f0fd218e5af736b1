//! ClusterProvider: a source cluster, and which namespaces may use it.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::shared::NamespaceMatcher;

/// A cluster whose objects are mirrored.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "configbutler.ai",
    version = "v1alpha3",
    kind = "ClusterProvider",
    plural = "clusterproviders",
    status = "ClusterProviderStatus",
    derive = "PartialEq",
    doc = "A ClusterProvider is a source cluster: how to reach it, and which namespaces may hold GitTargets that use it.",
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
    printcolumn(
        name = "Validated",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Validated\")].status",
        priority = 1
    ),
    printcolumn(
        name = "Status",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.kubeConfig) == has(oldSelf.kubeConfig) && \
        (!has(self.kubeConfig) || self.kubeConfig == oldSelf.kubeConfig)")
        .message("kubeConfig cannot be added, removed or changed: rotate credentials inside the Secret"),
    validation = Rule::new("!has(self.kubeConfig) || !has(self.kubeConfig.configMapRef)")
        .message("kubeConfig.configMapRef is not supported: use kubeConfig.secretRef"),
    validation = Rule::new("!has(self.kubeConfig) || !has(self.kubeConfig.secretRef) || \
        size(self.kubeConfig.secretRef.name) > 0")
        .message("kubeConfig.secretRef.name must not be empty")
)]
pub struct ClusterProviderSpec {
    /// How to reach the cluster. The cluster the operator runs in if absent. Cannot change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kube_config: Option<KubeConfigSource>,
    /// Namespaces that may hold GitTargets using this cluster. Nobody may if absent or empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_namespaces: Option<NamespaceMatcher>,
    /// Let WatchRules of admitted GitTargets name other source namespaces than their own, within the GitTarget's policy.
    #[serde(default)]
    pub allow_source_namespace_override: bool,
    /// Requests per second to the cluster. The operator's flag if absent; not used for its own cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub qps: Option<i32>,
    /// Requests at once on top of that. The operator's flag if absent; not used for its own cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub burst: Option<i32>,
    /// How changes in the cluster get their authors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attribution: Option<AttributionSpec>,
}

impl ClusterProviderSpec {
    /// The audit route whose facts name the authors of this cluster's changes.
    #[must_use]
    pub fn audit_route<'a>(&'a self, name: &'a str) -> &'a str {
        let route = self.attribution.as_ref().and_then(|attribution| attribution.audit_route.as_deref());
        route.filter(|route| !route.is_empty()).unwrap_or(name)
    }
}

/// Where the kubeconfig is. Exactly one member.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.configMapRef) || has(self.secretRef)")
        .message("exactly one of secretRef and configMapRef is needed, neither is given"),
    validation = Rule::new("!has(self.configMapRef) || !has(self.secretRef)")
        .message("exactly one of secretRef and configMapRef is needed, both are given")
)]
pub struct KubeConfigSource {
    /// In a Secret of the operator's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<KubeConfigSecretRef>,
    /// Not supported; known only so that it is refused by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<KubeConfigMapRef>,
}

/// A Secret with a kubeconfig.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeConfigSecretRef {
    /// Name of the Secret in the operator's namespace.
    pub name: String,
    /// Key of the kubeconfig; `value`, then `value.yaml` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// A ConfigMap with a kubeconfig. Not supported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeConfigMapRef {
    /// Name of the ConfigMap.
    pub name: String,
}

/// How changes get their authors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttributionSpec {
    /// Last part of the address to which the cluster posts its audit events; this object's name if absent. Several
    /// ClusterProviders may share one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = AUDIT_ROUTE))]
    pub audit_route: Option<String>,
}

const AUDIT_ROUTE: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

/// What is known about the source cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterProviderStatus {
    /// Generation that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, Reconciling, Stalled and Validated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
