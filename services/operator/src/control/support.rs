//! Fields that a user may set and that this release does not act on: each says so, never silence.

use upriver_api::git_target::PruneMode;
use upriver_api::{ClusterProviderSpec, GitProviderSpec, GitTargetSpec, WatchRuleSpec};

/// A field of a GitProvider that is not built yet.
pub(super) fn git_provider(spec: &GitProviderSpec) -> Option<String> {
    let commit = spec.commit.as_ref()?;
    if commit.signing.is_some() {
        return Some(unsupported("spec.commit.signing", "remove it to push unsigned commits"));
    }
    commit
        .message
        .as_ref()
        .map(|_| unsupported("spec.commit.message", "remove it to use the default messages"))
}

/// A field of a ClusterProvider that is not built yet.
pub(super) fn cluster_provider(spec: &ClusterProviderSpec) -> Option<String> {
    spec.kube_config
        .as_ref()
        .map(|_| unsupported("spec.kubeConfig", "only the cluster that holds this object can be a source"))
}

/// A field of a GitTarget that is not built yet.
pub(super) fn git_target(spec: &GitTargetSpec) -> Option<String> {
    // Without age enabled nothing is encrypted, and Secrets are left out as they are without the field.
    let age = spec.encryption.as_ref().and_then(|encryption| encryption.age.as_ref());
    if age.is_some_and(|age| age.enabled) {
        return Some(unsupported("spec.encryption.age.enabled", "remove it; Secrets are then left out"));
    }
    if spec.allowed_source_namespaces.is_some() {
        return Some(unsupported(
            "spec.allowedSourceNamespaces",
            "remove it; rules select their own namespace",
        ));
    }
    match spec.prune_mode() {
        PruneMode::Never | PruneMode::OnEvent => None,
        PruneMode::Always => Some(unsupported("spec.prune.mode Always", "use OnEvent or Never")),
        PruneMode::Other(text) => {
            Some(format!("spec.prune.mode {text:?} is not known; use OnEvent or Never"))
        }
    }
}

/// A field of a WatchRule that is not built yet. `namespace` is the rule's own.
pub(super) fn watch_rule(spec: &WatchRuleSpec, namespace: &str) -> Option<String> {
    for (index, rule) in spec.rules.iter().enumerate() {
        let at = |field: &str| format!("spec.rules[{index}].{field}");
        if rule.source_namespace.as_deref().is_some_and(|name| name != namespace) {
            return Some(unsupported(
                &at("sourceNamespace"),
                "only the rule's own namespace can be a source",
            ));
        }
    }
    None
}

fn unsupported(field: &str, next: &str) -> String {
    format!("{field} is not supported yet: {next}")
}
