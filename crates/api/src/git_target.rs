//! GitTarget: one folder on one branch, fed from one source cluster.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::condition::Condition;
use crate::lenient::lenient_enum;
use crate::shared::{ClusterProviderRef, NamespaceMatcher, ProviderRef, SecretRef, StreamCounts};

/// A folder on a branch of a repository, fed from a source cluster.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "configbutler.ai",
    version = "v1alpha3",
    kind = "GitTarget",
    plural = "gittargets",
    namespaced,
    status = "GitTargetStatus",
    derive = "PartialEq",
    doc = "A GitTarget is one folder on one branch of a repository, fed from one source cluster.",
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
        name = "GitPathAccepted",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"GitPathAccepted\")].status",
        priority = 1
    ),
    printcolumn(
        name = "RenderMatchesLive",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"RenderMatchesLive\")].status",
        priority = 1
    ),
    printcolumn(
        name = "StreamsRunning",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"StreamsRunning\")].status",
        priority = 1
    ),
    printcolumn(
        name = "SourceReachable",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"SourceClusterReachable\")].reason",
        priority = 1
    ),
    printcolumn(
        name = "ProviderReady",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"GitProviderReady\")].status",
        priority = 1
    ),
    printcolumn(
        name = "ClusterProviderReady",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"ClusterProviderReady\")].status",
        priority = 1
    ),
    printcolumn(
        name = "Status",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        priority = 1
    ),
    printcolumn(
        name = "Encryption",
        type_ = "string",
        json_path = ".spec.encryption.provider",
        priority = 1
    ),
    printcolumn(name = "Provider", type_ = "string", json_path = ".spec.providerRef.name", priority = 1),
    printcolumn(name = "Branch", type_ = "string", json_path = ".spec.branch", priority = 1),
    printcolumn(name = "Path", type_ = "string", json_path = ".spec.path", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.providerRef == oldSelf.providerRef")
        .message("providerRef cannot change: create another GitTarget"),
    validation = Rule::new("self.branch == oldSelf.branch")
        .message("branch cannot change: create another GitTarget"),
    validation = Rule::new("self.path == oldSelf.path")
        .message("path cannot change: create another GitTarget"),
    validation = Rule::new("self.clusterProviderRef == oldSelf.clusterProviderRef")
        .message("clusterProviderRef cannot change: create another GitTarget")
)]
pub struct GitTargetSpec {
    /// Repository to write to. Cannot change.
    pub provider_ref: ProviderRef,
    /// Branch to write to; has to match a pattern of the GitProvider. Cannot change.
    #[schemars(length(min = 1))]
    pub branch: String,
    /// Folder relative to the root of the repository, `.` for the root itself. Cannot change.
    #[schemars(length(min = 1))]
    pub path: String,
    /// Source cluster. Cannot change.
    #[serde(default)]
    #[schemars(default = "cluster_provider_default")]
    pub cluster_provider_ref: ClusterProviderRef,
    /// Encryption of sensitive types.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<EncryptionSpec>,
    /// Where new documents go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<PlacementSpec>,
    /// Bound on the source namespaces of WatchRules. It decides alone, the own namespace included. ClusterWatchRules
    /// are not bound by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_source_namespaces: Option<NamespaceMatcher>,
    /// When documents are removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prune: Option<PruneSpec>,
    /// Stop writing while true. Changes of that time are found by the resync afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
}

fn cluster_provider_default() -> serde_json::Value {
    // The other members have defaults of their own.
    json!({"name": "default"})
}

impl GitTargetSpec {
    /// The deletion policy: absent and empty mean `OnEvent`.
    #[must_use]
    pub fn prune_mode(&self) -> PruneMode {
        match &self.prune {
            Some(PruneSpec { mode }) if !mode.as_str().is_empty() => mode.clone(),
            _ => PruneMode::OnEvent,
        }
    }

    /// True if the user asked to stop writing.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.suspend == Some(true)
    }
}

lenient_enum! {
    /// How sensitive documents are encrypted.
    pub enum EncryptionProvider {
        /// SOPS with age keys.
        Sops = "sops",
    }
}

fn sops() -> EncryptionProvider {
    EncryptionProvider::Sops
}

/// Encryption of sensitive types.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["provider"]))]
pub struct EncryptionSpec {
    /// How.
    #[serde(default = "sops")]
    pub provider: EncryptionProvider,
    /// Secret with age keys, needed to extract or generate recipients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
    /// To whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age: Option<AgeSpec>,
}

/// Encryption with age.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgeSpec {
    /// Encrypt. While false, sensitive documents are not written at all.
    #[serde(default)]
    pub enabled: bool,
    /// Who can decrypt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipients: Option<AgeRecipients>,
}

/// Who can decrypt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgeRecipients {
    /// Public keys, `age1…`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(min = 1)))]
    pub public_keys: Vec<String>,
    /// Also the owners of the private keys in the Secret's `*.agekey` entries.
    #[serde(default)]
    pub extract_from_secret: bool,
    /// Make a key in the Secret if it has none. Needs `extractFromSecret` and a Secret name.
    #[serde(default)]
    pub generate_when_missing: bool,
}

/// Where new documents go. Documents that exist stay where they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlacementSpec {
    /// Path template by type, the key being `version/resource` or `group/version/resource`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_type: BTreeMap<String, String>,
    /// Path template for all other types.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
}

lenient_enum! {
    /// When documents are removed. Ranked by strictness; a mode that this version does not know removes nothing.
    pub enum PruneMode {
        /// Never.
        Never = "Never",
        /// When a delete was observed.
        OnEvent = "OnEvent",
        /// Also when a full snapshot no longer lists the object.
        Always = "Always",
    }
}

impl GitTarget {
    /// The request of [`crate::RECONCILE_ANNOTATION`], if there is one.
    #[must_use]
    pub fn requested_recheck(&self) -> Option<&str> {
        let annotations = self.metadata.annotations.as_ref()?;
        annotations.get(crate::RECONCILE_ANNOTATION).map(String::as_str).filter(|value| !value.is_empty())
    }
}

impl PruneMode {
    /// May an observed delete remove its document?
    #[must_use]
    pub fn removes_on_event(&self) -> bool {
        match self {
            Self::OnEvent | Self::Always => true,
            Self::Never | Self::Other(_) => false,
        }
    }

    /// May a snapshot sweep documents that it does not list?
    #[must_use]
    pub fn sweeps(&self) -> bool {
        match self {
            Self::Always => true,
            Self::Never | Self::OnEvent | Self::Other(_) => false,
        }
    }

    /// The stricter of the modes under which a write was planned and is applied.
    #[must_use]
    pub fn stricter(self, other: Self) -> Self {
        let rank = |mode: &Self| match mode {
            Self::Never | Self::Other(_) => 0,
            Self::OnEvent => 1,
            Self::Always => 2,
        };
        if rank(&other) < rank(&self) { other } else { self }
    }
}

fn on_event() -> PruneMode {
    PruneMode::OnEvent
}

/// When documents are removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PruneSpec {
    /// `Never`, `OnEvent` (observed deletes), or `Always` (also what a snapshot no longer lists).
    #[serde(default = "on_event")]
    pub mode: PruneMode,
}

/// What is known about the folder and its sources.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitTargetStatus {
    /// Generation that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, Reconciling, Stalled and one condition per gate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// When the last push landed; written at most once a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_push_time: Option<Time>,
    /// Tracked types by state; a type has the state of its worst scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<StreamCounts>,
    /// Documents that the prune mode keeps. Absent until measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<RetentionStatus>,
    /// The replica that writes this folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<OwnerStatus>,
    /// Changes on their way to the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<DeliveryStatus>,
    /// The value of the annotation `reconcile.configbutler.ai/requestedAt` that was acted upon last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
}

/// Documents that the prune mode keeps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetentionStatus {
    /// How many; 0 means that folder and cluster agree.
    pub retained_documents: i32,
    /// The mode in effect when measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// When measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_time: Option<Time>,
}

/// The replica that writes a folder.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OwnerStatus {
    /// Its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<String>,
    /// Fencing number of its claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

/// Changes on their way to the repository.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeliveryStatus {
    /// Changes that are durable but not pushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal_depth: Option<i64>,
    /// When the oldest of them was received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_pending: Option<Time>,
    /// Commit of the last push.
    #[serde(default, rename = "lastPushedSHA", skip_serializing_if = "Option::is_none")]
    pub last_pushed_sha: Option<String>,
    /// When it landed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_push_time: Option<Time>,
    /// Why the last attempt failed; absent after a success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// When the next attempt is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_retry: Option<Time>,
    /// Attempts that failed in a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consecutive_failures: Option<i32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_mode_of_another_version_is_kept_and_removes_nothing() {
        let read: PruneSpec = serde_json::from_value(json!({"mode": "Sometimes"})).expect("it still lists");
        assert_eq!(read.mode, PruneMode::Other("Sometimes".into()));
        assert!(!read.mode.removes_on_event() && !read.mode.sweeps());
        assert_eq!(serde_json::to_value(&read).expect("it is written back"), json!({"mode": "Sometimes"}));
    }

    #[test]
    fn the_stricter_mode_wins() {
        let stricter = |a: &str, b: &str| PruneMode::from(a).stricter(PruneMode::from(b));
        assert_eq!(stricter("Always", "OnEvent"), PruneMode::OnEvent);
        assert_eq!(stricter("Never", "Always"), PruneMode::Never);
        assert_eq!(stricter("OnEvent", "OnEvent"), PruneMode::OnEvent);
        assert!(!stricter("Always", "Sometimes").sweeps());
    }

    #[test]
    fn defaults_are_filled_when_an_object_is_read() {
        let spec: GitTargetSpec = serde_json::from_value(
            json!({"providerRef": {"name": "a"}, "branch": "main", "path": ".", "prune": {}}),
        )
        .expect("a minimal spec");
        assert_eq!(spec.provider_ref.kind, "GitProvider");
        assert_eq!(spec.cluster_provider_ref, ClusterProviderRef::default());
        assert_eq!(spec.prune_mode(), PruneMode::OnEvent);
        assert!(!spec.is_suspended());
    }
}
