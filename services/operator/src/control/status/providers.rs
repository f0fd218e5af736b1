//! GitProviders and ClusterProviders: the housekeeper's.

use kube::{Resource, ResourceExt};
use upriver_api::cluster_provider::ClusterProviderStatus;
use upriver_api::condition::trio;
use upriver_api::git_provider::GitProviderStatus;
use upriver_api::{ClusterProvider, GitProvider, Reason};
use upriver_kube_io::events::{Notice, Tone};
use upriver_kube_io::status as write_status;

use super::{Change, Pass, apply, changed};
use crate::control::compile::key_of;
use crate::control::conditions;

/// A finalizer that ClusterProviders of the former operator carry; nobody else removes it.
const RETIRED_FINALIZER: &str = "configbutler.ai/clusterprovider-fact-purge";

pub(super) async fn git_providers(pass: &Pass<'_>) {
    for provider in &pass.snapshot.git_providers {
        let key = key_of(&**provider);
        let generation = provider.metadata.generation;
        let gate = conditions::provider_gate(pass.snapshot.probes.get(&key), generation.unwrap_or(0));
        let findings = trio(&[gate], "the repository was listed with these credentials");
        let before = provider.status.clone().unwrap_or_default();
        let status = GitProviderStatus {
            observed_generation: generation,
            conditions: apply(&before.conditions, &findings, generation),
            ..before.clone()
        };
        let Some(patch) = changed(provider.status.as_ref(), &status) else { continue };
        let written = write_status::write(pass.client, &**provider, &patch).await;
        let first = before.observed_generation != generation;
        if first && matches!(written, Ok(write_status::StatusWrite::Written)) {
            warn_about_windows(pass, provider);
        }
        let change = Change { before: &before.conditions, after: &status.conditions };
        pass.settle(&**provider, change, written);
    }
}

/// Once per generation, with the write that shows that it was looked at: a restart says nothing again.
fn warn_about_windows(pass: &Pass<'_>, provider: &GitProvider) {
    let windows = [
        ("spec.push.commitWindow", provider.spec.commit_window()),
        ("spec.push.maxWindowAge", provider.spec.max_window_age()),
    ];
    for (field, window) in windows {
        let Some(error) = window.rejected else { continue };
        let seconds = window.value.as_secs();
        pass.events.tell(Notice {
            regarding: provider.object_ref(&()),
            tone: Tone::Warning,
            reason: Reason::CommitWindowInvalid.into(),
            note: format!("{field}: {error}; {seconds}s is used until it is corrected"),
        });
    }
}

pub(super) async fn cluster_providers(pass: &Pass<'_>) {
    for provider in &pass.snapshot.cluster_providers {
        drop_retired_finalizer(pass, provider).await;
        let generation = provider.metadata.generation;
        let known = conditions::cluster_provider(
            &provider.spec,
            pass.snapshot.kube_configs.get(&provider.name_any()),
            generation.unwrap_or(0),
        );
        let Some((validated, gate)) = known else { continue };
        let mut findings = vec![validated];
        findings.extend(trio(&[gate], "the source cluster can be used"));
        let before = provider.status.clone().unwrap_or_default();
        let status = ClusterProviderStatus {
            observed_generation: generation,
            conditions: apply(&before.conditions, &findings, generation),
        };
        if let Some(patch) = changed(provider.status.as_ref(), &status) {
            let written = write_status::write_cluster(pass.client, &**provider, &patch).await;
            let change = Change { before: &before.conditions, after: &status.conditions };
            pass.settle(&**provider, change, written);
        }
    }
}

async fn drop_retired_finalizer(pass: &Pass<'_>, provider: &ClusterProvider) {
    if !provider.finalizers().iter().any(|name| name == RETIRED_FINALIZER) {
        return;
    }
    match write_status::drop_finalizer(pass.client, provider, RETIRED_FINALIZER).await {
        Ok(_) => {
            tracing::info!(provider = provider.name_any(), "a finalizer of the former operator is removed")
        }
        Err(error) => {
            tracing::warn!(provider = provider.name_any(), %error,
                "a finalizer of the former operator was not removed; the next pass tries again");
        }
    }
}
