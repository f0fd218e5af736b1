//! Fields that a user may set and that this release does not act on: each says so, never silence.

use upriver_api::git_target::PruneMode;
use upriver_api::{ClusterProviderSpec, GitProviderSpec, GitTargetSpec};

/// A field of a GitProvider that is not built yet.
pub(super) fn git_provider(spec: &GitProviderSpec) -> Option<String> {
    let signing = spec.commit.as_ref()?.signing.as_ref();
    signing.map(|_| unsupported("spec.commit.signing", "remove it to push unsigned commits"))
}

/// A field of a ClusterProvider that is not built yet.
pub(super) fn cluster_provider(spec: &ClusterProviderSpec) -> Option<String> {
    spec.kube_config
        .as_ref()
        .map(|_| unsupported("spec.kubeConfig", "only the cluster that holds this object can be a source"))
}

/// A field of a GitTarget that is not built yet.
pub(super) fn git_target(spec: &GitTargetSpec) -> Option<String> {
    match spec.prune_mode() {
        PruneMode::Never | PruneMode::OnEvent => None,
        PruneMode::Always => Some(unsupported("spec.prune.mode Always", "use OnEvent or Never")),
        PruneMode::Other(text) => {
            Some(format!("spec.prune.mode {text:?} is not known; use OnEvent or Never"))
        }
    }
}

fn unsupported(field: &str, next: &str) -> String {
    format!("{field} is not supported yet: {next}")
}
