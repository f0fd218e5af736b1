//! Can a provider's repository be listed with its credentials?

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use kube::{Client, ResourceExt};
use upriver_api::GitProvider;
use upriver_api::git_provider::MessageSpec;
use upriver_git_io::{Credentials, CredentialsError, GitError, Remote, RemoteUrl, Service, Timeouts};
use upriver_model::{Failure, FailureClass};
use upriver_template::MessageKind;

use super::snapshot::ProbeFailure;
use super::support;

/// Reads the data of a Secret.
///
/// # Errors
/// Not found, or the API server does not answer.
pub(crate) async fn secret_data(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<BTreeMap<String, Vec<u8>>, kube::Error> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let secret = api.get(name).await?;
    Ok(secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect())
}

/// Makes a remote from a URL and the data of a Secret. Blocking: the HTTP client starts a thread of its own.
///
/// # Errors
/// If the Secret holds nothing that fits.
pub(crate) fn remote(
    url: &RemoteUrl,
    secret: Option<&BTreeMap<String, Vec<u8>>>,
    timeout: Duration,
) -> Result<Remote, ProbeFailure> {
    let credentials = match secret {
        None => Credentials::Anonymous,
        Some(data) => Credentials::from_secret(data, url).map_err(|error| match error {
            CredentialsError::SshNotYetSupported { .. } | CredentialsError::GitHubAppNotYetSupported => {
                ProbeFailure::NotYetSupported(error.to_string())
            }
            CredentialsError::SchemeMismatch { .. }
            | CredentialsError::UsernameOnly
            | CredentialsError::Nothing
            | CredentialsError::BadValue { .. } => ProbeFailure::SecretMalformed(error.to_string()),
        })?,
    };
    let timeouts = Timeouts { operation: timeout, ..Timeouts::default() };
    let ca = secret.and_then(Credentials::ca_from_secret);
    Remote::with_ca(url.clone(), credentials, timeouts, ca).map_err(|error| git_failure(&error))
}

fn git_failure(error: &GitError) -> ProbeFailure {
    match error {
        GitError::TransportNotSupported { .. } => ProbeFailure::NotYetSupported(error.to_string()),
        other => ProbeFailure::Connection(crate::tasks::failure(other)),
    }
}

/// Connects once. The answer says nothing about the right to write.
pub(super) async fn probe(
    client: &Client,
    provider: &GitProvider,
    timeout: Duration,
) -> Result<(), ProbeFailure> {
    if let Some(message) = invalid_template(&provider.spec.message_templates()) {
        return Err(ProbeFailure::CommitConfigInvalid(message));
    }
    if let Some(message) = support::git_provider(&provider.spec) {
        return Err(ProbeFailure::NotYetSupported(message));
    }
    let config = |message: String| ProbeFailure::Connection(Failure::new(FailureClass::Config, message));
    let url = RemoteUrl::parse(&provider.spec.url).map_err(|error| config(error.to_string()))?;
    let secret = match &provider.spec.secret_ref {
        None => None,
        Some(reference) => Some(read_secret(client, provider, &reference.name).await?),
    };
    let listed = tokio::task::spawn_blocking(move || {
        let remote = remote(&url, secret.as_ref(), timeout)?;
        remote.advertise(Service::UploadPack).map(|_| ()).map_err(|error| git_failure(&error))
    });
    match listed.await {
        Ok(result) => result,
        Err(error) => Err(ProbeFailure::Connection(Failure::new(
            FailureClass::Internal,
            format!("the probe ended: {error}"),
        ))),
    }
}

/// The first message template that fails on samples of its data, by its field. Its targets go on with the default message.
fn invalid_template(templates: &MessageSpec) -> Option<String> {
    let fields = [
        ("eventTemplate", MessageKind::Event, &templates.event_template),
        ("groupTemplate", MessageKind::Group, &templates.group_template),
        ("reconcileTemplate", MessageKind::Reconcile, &templates.reconcile_template),
    ];
    fields.into_iter().find_map(|(field, kind, template)| {
        let template = template.as_deref().filter(|text| !text.is_empty())?;
        let error = upriver_template::check(kind, template).err()?;
        Some(format!(
            "spec.commit.message.{field}: {error}; correct it, until then commits have the default message"
        ))
    })
}

async fn read_secret(
    client: &Client,
    provider: &GitProvider,
    name: &str,
) -> Result<BTreeMap<String, Vec<u8>>, ProbeFailure> {
    let namespace = provider.namespace().unwrap_or_default();
    secret_data(client, &namespace, name).await.map_err(|error| match error {
        kube::Error::Api(status) if status.code == 404 => ProbeFailure::SecretNotFound(format!(
            "Secret {namespace}/{name} does not exist: create it with the keys username and password, or bearerToken"
        )),
        // Only "not found" is definite; anything else passes by itself.
        other => ProbeFailure::Connection(Failure::new(
            FailureClass::Network,
            format!("Secret {namespace}/{name} cannot be read: {other}"),
        )),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_that_fails_is_named_by_its_field() {
        let bad = || Some("{{.Nope}}".to_owned());
        let fine = Some("{{.GitTarget}}".to_owned());
        let templates = |event, group, reconcile| MessageSpec {
            event_template: event,
            group_template: group,
            reconcile_template: reconcile,
        };
        let said = |templates: MessageSpec| invalid_template(&templates).unwrap_or_default();
        let starts = |text: String, field: &str| text.starts_with(&format!("spec.commit.message.{field}: "));
        assert!(starts(said(templates(bad(), bad(), None)), "eventTemplate"));
        assert!(starts(said(templates(None, bad(), fine.clone())), "groupTemplate"));
        assert!(starts(said(templates(fine.clone(), Some(String::new()), bad())), "reconcileTemplate"));
        assert_eq!(invalid_template(&templates(fine.clone(), fine.clone(), fine)), None);
        assert_eq!(invalid_template(&MessageSpec::default()), None);
    }
}
