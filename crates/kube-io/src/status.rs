//! Status patches: only on the version that was read, only when something differs.

use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What became of a status write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusWrite {
    /// Stored.
    Written,
    /// The object changed or went away: whoever won has woken us again.
    Superseded,
}

/// Merge-patches `status` of exactly the version in `object`.
///
/// # Errors
/// Anything but 404 and 409.
pub async fn write<K, S>(client: &Client, object: &K, status: &S) -> Result<StatusWrite, kube::Error>
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + DeserializeOwned
        + Clone
        + std::fmt::Debug,
    S: Serialize + Sync,
{
    let api: Api<K> = Api::namespaced(client.clone(), &object.namespace().unwrap_or_default());
    patch(&api, object, status).await
}

/// The same for a cluster-scoped kind.
///
/// # Errors
/// Anything but 404 and 409.
pub async fn write_cluster<K, S>(client: &Client, object: &K, status: &S) -> Result<StatusWrite, kube::Error>
where
    K: Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope>
        + DeserializeOwned
        + Clone
        + std::fmt::Debug,
    S: Serialize + Sync,
{
    let api: Api<K> = Api::all(client.clone());
    patch(&api, object, status).await
}

/// Removes one finalizer of a cluster-scoped object, from exactly the version in `object`.
///
/// # Errors
/// Anything but 404 and 409.
pub async fn drop_finalizer<K>(client: &Client, object: &K, name: &str) -> Result<StatusWrite, kube::Error>
where
    K: Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope>
        + DeserializeOwned
        + Clone
        + std::fmt::Debug,
{
    let left: Vec<&String> = object.finalizers().iter().filter(|finalizer| *finalizer != name).collect();
    let body = serde_json::json!({
        "metadata": { "resourceVersion": object.resource_version(), "uid": object.uid(), "finalizers": left },
    });
    let api: Api<K> = Api::all(client.clone());
    match api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(&body)).await {
        Ok(_) => Ok(StatusWrite::Written),
        Err(kube::Error::Api(error)) if matches!(error.code, 404 | 409) => Ok(StatusWrite::Superseded),
        Err(error) => Err(error),
    }
}

async fn patch<K, S>(api: &Api<K>, object: &K, status: &S) -> Result<StatusWrite, kube::Error>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + std::fmt::Debug,
    S: Serialize + Sync,
{
    let body = serde_json::json!({
        "metadata": { "resourceVersion": object.resource_version(), "uid": object.uid() },
        "status": status,
    });
    match api.patch_status(&object.name_any(), &PatchParams::default(), &Patch::Merge(&body)).await {
        Ok(_) => Ok(StatusWrite::Written),
        Err(kube::Error::Api(error)) if matches!(error.code, 404 | 409) => Ok(StatusWrite::Superseded),
        Err(error) => Err(error),
    }
}
