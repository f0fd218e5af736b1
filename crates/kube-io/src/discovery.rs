//! Which types does the API server serve, and may we watch them cluster-wide?

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::Client;
use kube::api::{Api, PostParams};
use kube::discovery::{Discovery, Scope as ApiScope};
use upriver_model::Gvr;

/// One served type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedType {
    /// Group, version, resource.
    pub gvr: Gvr,
    /// Kind.
    pub kind: String,
    /// True if its objects live in namespaces.
    pub namespaced: bool,
    /// True for the version that the server prefers in its group.
    pub preferred: bool,
    /// Verbs that it offers.
    pub verbs: Vec<String>,
}

impl ServedType {
    /// True if it can be listed and watched.
    #[must_use]
    pub fn watchable(&self) -> bool {
        ["get", "list", "watch"].iter().all(|verb| self.verbs.iter().any(|offered| offered == verb))
    }
}

/// All served types, in two requests.
///
/// # Errors
/// If the API server does not answer.
pub async fn served_types(client: &Client) -> Result<Vec<ServedType>, kube::Error> {
    let discovery = Discovery::new(client.clone()).run_aggregated().await?;
    let mut types = Vec::new();
    for group in discovery.groups() {
        let preferred = group.preferred_version_or_latest();
        for version in group.versions() {
            for (resource, capabilities) in group.versioned_resources(version) {
                types.push(ServedType {
                    gvr: Gvr::new(&resource.group, &resource.version, &resource.plural),
                    kind: resource.kind,
                    namespaced: capabilities.scope == ApiScope::Namespaced,
                    preferred: version == preferred,
                    verbs: capabilities.operations,
                });
            }
        }
    }
    Ok(types)
}

/// True if we may list and watch a type in every namespace.
///
/// # Errors
/// If the API server does not answer.
pub async fn may_watch_everywhere(client: &Client, gvr: &Gvr) -> Result<bool, kube::Error> {
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    for verb in ["list", "watch"] {
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    group: Some(gvr.group.to_string()),
                    resource: Some(gvr.resource.to_string()),
                    verb: Some(verb.to_owned()),
                    ..ResourceAttributes::default()
                }),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let answer = api.create(&PostParams::default(), &review).await?;
        if !answer.status.is_some_and(|status| status.allowed) {
            return Ok(false);
        }
    }
    Ok(true)
}
