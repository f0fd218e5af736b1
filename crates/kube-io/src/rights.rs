//! May we list and watch a type in every namespace?
//!
//! A SelfSubjectRulesReview cannot tell: it answers for one namespace and does not say which of its rules hold in all of
//! them. So the question is put for all types at once first, then for the remaining ones, some at a time.

use futures::StreamExt;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::Client;
use kube::api::{Api, PostParams};
use upriver_model::Gvr;

/// Types that are asked about at the same time.
const AT_ONCE: usize = 8;

/// For each type, whether we may list and watch it in every namespace. Two requests in all if we may read everything,
/// else one or two more for each type.
pub async fn may_watch_everywhere(client: &Client, types: &[Gvr]) -> Vec<(Gvr, Result<bool, kube::Error>)> {
    if types.len() > 1 && may(client, &Gvr::new("*", "*", "*")).await.is_ok_and(|allowed| allowed) {
        return types.iter().map(|gvr| (gvr.clone(), Ok(true))).collect();
    }
    futures::stream::iter(types.to_vec())
        .map(|gvr| async move {
            let allowed = may(client, &gvr).await;
            (gvr, allowed)
        })
        .buffered(AT_ONCE)
        .collect()
        .await
}

async fn may(client: &Client, gvr: &Gvr) -> Result<bool, kube::Error> {
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
