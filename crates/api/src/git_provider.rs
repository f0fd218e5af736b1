//! GitProvider: a repository, and how to talk to it.

use std::time::Duration;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::duration::{self, DurationError};
use crate::shared::{KnownHostsRef, SecretRef};

/// Silence that closes a commit window when `commitWindow` says nothing usable.
const COMMIT_WINDOW: Duration = Duration::from_secs(5);
/// Age that closes a commit window when `maxWindowAge` says nothing usable.
const MAX_WINDOW_AGE: Duration = Duration::from_secs(60);

/// A Git repository and how to talk to it.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "configbutler.ai",
    version = "v1alpha3",
    kind = "GitProvider",
    plural = "gitproviders",
    namespaced,
    status = "GitProviderStatus",
    derive = "PartialEq",
    doc = "A GitProvider is a Git repository and how to talk to it: address, credentials, commit identity, batching.",
    printcolumn(name = "URL", type_ = "string", json_path = ".spec.url"),
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
        name = "Status",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.url == oldSelf.url")
    .message("url cannot change: create another GitProvider for another repository"))]
pub struct GitProviderSpec {
    /// HTTP(S) or SSH address of the repository. Cannot change.
    #[schemars(length(min = 1))]
    pub url: String,
    /// Glob patterns, one of which the branch of a GitTarget has to match. `*` does not match `/`.
    #[schemars(length(min = 1), inner(length(min = 1)))]
    pub allowed_branches: Vec<String>,
    /// Credentials. Anonymous access if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
    /// SSH host keys. Not used for HTTP(S).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_hosts_ref: Option<KnownHostsRef>,
    /// How changes are gathered into commits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push: Option<PushSpec>,
    /// Identity, messages and signing of commits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitSpec>,
}

/// How changes are gathered into commits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PushSpec {
    /// Silence after which the open window of an author and a GitTarget is committed, as a Go duration. 5s if absent
    /// or unusable; 0s makes one commit per event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit_window: Option<String>,
    /// Age at which a window is committed even if changes keep coming, as a Go duration. 60s if absent or unusable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_window_age: Option<String>,
}

/// A duration to work with, and why the text in the object was not it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// What to use.
    pub value: Duration,
    /// Why the text was not used, for a Warning Event.
    pub rejected: Option<DurationError>,
}

impl PushSpec {
    /// The silence that closes a window. Negative acts as zero.
    #[must_use]
    pub fn commit_window(&self) -> Window {
        window(self.commit_window.as_deref(), COMMIT_WINDOW, Some(Duration::ZERO))
    }

    /// The age that closes a window. Zero and negative make no sense and are rejected.
    #[must_use]
    pub fn max_window_age(&self) -> Window {
        window(self.max_window_age.as_deref(), MAX_WINDOW_AGE, None)
    }
}

/// `floor` is what zero and negative durations act as; without one they are rejected.
fn window(text: Option<&str>, default: Duration, floor: Option<Duration>) -> Window {
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Window { value: default, rejected: None };
    };
    let parsed = duration::parse(text).and_then(|nanos| match u64::try_from(nanos) {
        Ok(nanos) if nanos > 0 => Ok(Duration::from_nanos(nanos)),
        _ => floor.ok_or_else(|| DurationError::NotPositive { text: text.into() }),
    });
    match parsed {
        Ok(value) => Window { value, rejected: None },
        Err(error) => Window { value: default, rejected: Some(error) },
    }
}

impl GitProviderSpec {
    /// The silence that closes a window of this repository.
    #[must_use]
    pub fn commit_window(&self) -> Window {
        self.push.clone().unwrap_or_default().commit_window()
    }

    /// The age that closes a window of this repository.
    #[must_use]
    pub fn max_window_age(&self) -> Window {
        self.push.clone().unwrap_or_default().max_window_age()
    }

    /// True if one of the patterns admits `branch`. A malformed pattern admits nothing.
    #[must_use]
    pub fn allows_branch(&self, branch: &str) -> bool {
        crate::glob::any_matches(&self.allowed_branches, branch)
    }
}

/// Identity, messages and signing of commits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommitSpec {
    /// Who commits. The author of a commit is the person who made the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub committer: Option<CommitterSpec>,
    /// Go templates for commit messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<MessageSpec>,
    /// SSH signatures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signing: Option<SigningSpec>,
}

fn committer_name() -> String {
    "Upriver".to_owned()
}

fn committer_email() -> String {
    "noreply@upriver.invalid".to_owned()
}

/// Who commits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommitterSpec {
    /// Name. A blank one acts as the default.
    #[serde(default = "committer_name")]
    pub name: String,
    /// Mail address. For signed commits the Git host has to know it as verified.
    #[serde(default = "committer_email")]
    pub email: String,
}

impl Default for CommitterSpec {
    fn default() -> Self {
        Self { name: committer_name(), email: committer_email() }
    }
}

impl GitProviderSpec {
    /// The committer to use: blank parts replaced by their defaults.
    #[must_use]
    pub fn committer(&self) -> CommitterSpec {
        let given = self.commit.as_ref().and_then(|commit| commit.committer.clone()).unwrap_or_default();
        let filled =
            |text: String, default: fn() -> String| if text.trim().is_empty() { default() } else { text };
        CommitterSpec {
            name: filled(given.name, committer_name),
            email: filled(given.email, committer_email),
        }
    }
}

impl GitProviderSpec {
    /// The templates of commit messages; an absent one means the default.
    #[must_use]
    pub fn message_templates(&self) -> MessageSpec {
        self.commit.as_ref().and_then(|commit| commit.message.clone()).unwrap_or_default()
    }
}

/// Go templates for commit messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MessageSpec {
    /// For a commit of one event (window 0s). Fields: Operation, Group, Version, Resource, Namespace, Name, APIVersion,
    /// Username, GitTarget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_template: Option<String>,
    /// For a commit of a window. Fields: Author, GitTarget, Count, Operations, Resources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_template: Option<String>,
    /// For a commit of a resync. Fields: Count, GitTarget, Group, Version, Resource, APIVersion, Namespace, Revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reconcile_template: Option<String>,
}

/// SSH signatures on commits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SigningSpec {
    /// Secret with the signing key.
    pub secret_ref: SecretRef,
    /// Make an ed25519 key if the Secret or its key is missing. The Secret outlives this object.
    #[serde(default)]
    pub generate_when_missing: bool,
}

/// What is known about the repository.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitProviderStatus {
    /// Generation that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, Reconciling and Stalled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Public half of the signing key, as a line for authorized_keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signing_public_key: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(commit_window: Option<&str>, max_window_age: Option<&str>) -> PushSpec {
        PushSpec {
            commit_window: commit_window.map(Into::into),
            max_window_age: max_window_age.map(Into::into),
        }
    }

    #[test]
    fn an_unusable_window_acts_as_the_default_and_says_so() {
        for text in ["5 s", "1d", "5", "s"] {
            let window = push(Some(text), Some(text)).commit_window();
            assert_eq!(window.value, Duration::from_secs(5), "{text}");
            assert!(window.rejected.is_some(), "{text}");
            let age = push(Some(text), Some(text)).max_window_age();
            assert_eq!((age.value, age.rejected.is_some()), (Duration::from_secs(60), true), "{text}");
        }
    }

    #[test]
    fn a_negative_window_acts_as_zero() {
        let zero = Window { value: Duration::ZERO, rejected: None };
        assert_eq!(push(Some("-3s"), None).commit_window(), zero);
        assert_eq!(push(Some("0s"), None).commit_window(), zero);
        assert_eq!(push(None, Some("0s")).max_window_age().value, Duration::from_secs(60));
    }

    #[test]
    fn an_absent_window_is_the_default_without_complaint() {
        assert_eq!(push(None, None).commit_window(), Window { value: COMMIT_WINDOW, rejected: None });
        assert_eq!(push(Some(""), None).commit_window(), Window { value: COMMIT_WINDOW, rejected: None });
        assert_eq!(push(None, Some("2m")).max_window_age().value, Duration::from_secs(120));
    }
}
