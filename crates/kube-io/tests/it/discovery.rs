use std::time::Duration;

use kube::Client;
use kube::api::{Api, DeleteParams};
use upriver_kube_io::discovery::{ApiScan, Discovery, GroupVersionAnswer, ServedType};
use upriver_kube_io::rights::may_watch_everywhere;
use upriver_model::Gvr;
use upriver_testkit::{ControlPlane, User, eventually};

use crate::watch::nobody;

/// An API whose backend does not exist.
fn orphan(group: &str, version: &str) -> String {
    format!(
        "apiVersion: apiregistration.k8s.io/v1\nkind: APIService\nmetadata: {{name: {version}.{group}}}\n\
         spec: {{group: {group}, version: {version}, groupPriorityMinimum: 100, versionPriority: 10, \
         insecureSkipTLSVerify: true, service: {{namespace: default, name: nowhere}}}}\n"
    )
}

async fn remove(client: &Client, name: &str) {
    use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
    Api::<APIService>::all(client.clone()).delete(name, &DeleteParams::default()).await.expect("deleted");
}

fn of<'a>(scan: &'a ApiScan, group: &str) -> Option<&'a GroupVersionAnswer> {
    scan.groups.iter().find(|answer| answer.group == group)
}

fn find(scan: &ApiScan, gvr: &Gvr) -> Option<ServedType> {
    scan.groups.iter().flat_map(|answer| &answer.types).find(|served| served.gvr == *gvr).cloned()
}

fn by_name(scan: ApiScan) -> Vec<ServedType> {
    let mut types: Vec<ServedType> = scan.groups.into_iter().flat_map(|answer| answer.types).collect();
    types.sort_by(|a, b| a.gvr.cmp(&b.gvr));
    types
}

#[tokio::test]
async fn both_forms_of_discovery_tell_the_same_types_with_scope_verbs_and_subresources() {
    let plane = ControlPlane::start().await;
    let client = plane.client(User::Upriver);
    let mut discovery = Discovery::new(client.clone());
    let scan = discovery.scan().await;
    assert_eq!((&scan.core_failure, &scan.named_failure), (&None, &None));
    assert!(scan.groups.iter().all(|answer| answer.failure.is_none()), "{scan:?}");
    let deployments = find(&scan, &Gvr::new("apps", "v1", "deployments")).expect("served");
    assert_eq!((deployments.kind.as_str(), deployments.namespaced), ("Deployment", Some(true)));
    assert_eq!(deployments.subresources, ["scale", "status"]);
    assert!(
        ["get", "list", "watch"].iter().all(|verb| deployments.verbs.iter().any(|offered| offered == verb))
    );
    assert_eq!(find(&scan, &Gvr::new("", "v1", "nodes")).expect("served").namespaced, Some(false));
    assert_eq!(discovery.scan().await, scan, "an unchanged answer is the same answer");
    let plain = Discovery::plain(client).scan().await;
    assert_eq!(by_name(plain), by_name(scan));
}

#[tokio::test]
async fn a_group_version_whose_backend_is_down_is_named_and_hides_nothing_else() {
    let plane = ControlPlane::start().await;
    let client = plane.client(User::Upriver);
    let mut discovery = Discovery::new(client.clone());
    let before = by_name(discovery.scan().await);
    plane.apply_yaml(User::Admin, &orphan("away.example.net", "v1")).await.expect("applied");
    for mut looked in [discovery, Discovery::plain(client.clone())] {
        let scan = eventually("the orphan to be listed", Duration::from_secs(20), async || {
            let scan = looked.scan().await;
            of(&scan, "away.example.net").is_some().then_some(scan)
        })
        .await;
        let orphan = of(&scan, "away.example.net").expect("listed");
        assert!(orphan.failure.is_some() && orphan.types.is_empty(), "{orphan:?}");
        println!("the failure: {:?}", orphan.failure);
        assert_eq!(by_name(scan), before, "the rest is as it was");
    }
    remove(&client, "v1.away.example.net").await;
}

#[tokio::test]
async fn a_server_that_is_away_leaves_both_roots_unread() {
    let plane = ControlPlane::start().await;
    let mut discovery = Discovery::new(plane.client(User::Upriver));
    plane.stop_apiserver();
    let scan = discovery.scan().await;
    assert!(
        scan.core_failure.is_some() && scan.named_failure.is_some() && scan.groups.is_empty(),
        "{scan:?}"
    );
}

#[tokio::test]
async fn rights_are_known_for_one_type_and_for_many() {
    let plane = ControlPlane::shared().await;
    let types = [Gvr::new("apps", "v1", "deployments"), Gvr::new("", "v1", "nodes")];
    for (client, expected) in [(plane.client(User::Upriver), true), (nobody(plane).await, false)] {
        for asked in [&types[..], &types[..1]] {
            let rights = may_watch_everywhere(&client, asked).await;
            let answers: Vec<_> = rights.iter().map(|(gvr, allowed)| (gvr, allowed.as_ref().ok())).collect();
            let wanted: Vec<_> = asked.iter().map(|gvr| (gvr, Some(&expected))).collect();
            assert_eq!(answers, wanted);
        }
    }
}
