//! Can a provider's repository be listed with its credentials?

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use kube::{Client, ResourceExt};
use upriver_api::GitProvider;
use upriver_git_io::{Credentials, CredentialsError, GitError, Remote, RemoteUrl, Service, Timeouts};
use upriver_model::{Failure, FailureClass};

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
