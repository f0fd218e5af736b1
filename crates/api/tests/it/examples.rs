//! Are good objects accepted, and do they read back as the types that the operator uses?

use kube::api::{Api, ListParams};
use upriver_api::condition::types;
use upriver_api::git_target::PruneMode;
use upriver_api::{
    ClusterProvider, ClusterWatchRule, CommitRequest, Condition, ConditionStatus, GitProvider, GitTarget,
    WatchRule, crds,
};
use upriver_testkit::User;

use crate::setup::cluster;

#[tokio::test]
async fn every_crd_is_established() {
    let plane = cluster().await;
    for crd in crds::all() {
        let name = crd.metadata.name.expect("a CRD has a name");
        plane.await_established(&name).await.expect("the API server serves it");
    }
}

#[tokio::test]
async fn one_good_object_of_each_kind_is_accepted_and_reads_back() {
    let plane = cluster().await;
    plane.create_namespace("harbor").await;
    plane.apply_yaml(User::Alice, include_str!("examples.yaml")).await.expect("good objects are accepted");
    let client = plane.client(User::Upriver);

    let provider =
        Api::<GitProvider>::namespaced(client.clone(), "harbor").get("harbor-repo").await.expect("stored");
    assert!(provider.spec.allows_branch("hotfix/7") && !provider.spec.allows_branch("hotfix/7/a"));
    assert_eq!(provider.spec.commit_window().value.as_secs(), 8);
    assert_eq!(provider.spec.max_window_age().value.as_secs(), 120);
    assert_eq!(provider.spec.committer().name, "Mirror Bot");

    let cluster = Api::<ClusterProvider>::all(client.clone()).get("pier-west").await.expect("stored");
    assert_eq!(cluster.spec.audit_route("pier-west"), "pier-west");
    assert_eq!(cluster.spec.qps, Some(40));

    let target =
        Api::<GitTarget>::namespaced(client.clone(), "harbor").get("pier-west-apps").await.expect("stored");
    assert_eq!(target.spec.prune_mode(), PruneMode::OnEvent);
    assert_eq!(target.spec.suspend, Some(false));
    let placement = target.spec.placement.expect("as applied");
    assert!(placement.by_type.contains_key("v1/secrets"));

    let rule =
        Api::<WatchRule>::namespaced(client.clone(), "harbor").get("berths-config").await.expect("stored");
    assert_eq!(rule.spec.rules[1].source_namespace.as_deref(), Some("*"));
    Api::<ClusterWatchRule>::all(client.clone()).get("pier-west-rbac").await.expect("stored");
    let request =
        Api::<CommitRequest>::namespaced(client, "harbor").get("berth-save-1").await.expect("stored");
    assert_eq!(request.spec.message.as_deref(), Some("Raise crane limits\n\nAgreed in shift 7."));
}

#[tokio::test]
async fn kinds_of_a_fresh_cluster_list_as_typed_objects() {
    let plane = cluster().await;
    let client = plane.client(User::Upriver);
    let all = ListParams::default();
    Api::<GitProvider>::all(client.clone()).list(&all).await.expect("a list");
    Api::<GitTarget>::all(client.clone()).list(&all).await.expect("a list");
    Api::<WatchRule>::all(client.clone()).list(&all).await.expect("a list");
    Api::<CommitRequest>::all(client).list(&all).await.expect("a list");
}

#[test]
fn a_condition_reads_as_kubernetes_writes_it() {
    let text = r#"{"type":"Ready","status":"True","reason":"Succeeded","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}"#;
    let condition: Condition = serde_json::from_str(text).expect("a condition");
    assert_eq!((condition.type_.as_str(), &condition.status), (types::READY, &ConditionStatus::True));
}
