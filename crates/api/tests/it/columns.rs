//! What does `kubectl get` print? Asked as kubectl asks: for a Table.

use http::Request;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use upriver_api::condition::{Finding, Gate, set_condition, trio};
use upriver_api::git_target::{DeliveryStatus, OwnerStatus};
use upriver_api::shared::StreamCounts;
use upriver_api::{ConditionStatus, GitTarget, GitTargetStatus};
use upriver_testkit::{ControlPlane, User};

use crate::setup::{KINDS, api, cluster, good_spec, object};

async fn table(plane: &ControlPlane, path: &str) -> Value {
    let request = Request::get(path).header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let request = request.body(Vec::new()).expect("a constant request is well formed");
    plane.client(User::Alice).request(request).await.expect("a Table")
}

/// Names of the columns after Name, `*` marking those of `-o wide`.
fn columns(table: &Value) -> String {
    let definitions = table["columnDefinitions"].as_array().expect("a Table has columns");
    let names = definitions.iter().skip(1).map(|column| {
        let wide = if column["priority"] == 0 { "" } else { "*" };
        format!("{}{wide}", column["name"].as_str().expect("a column has a name"))
    });
    names.collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn every_kind_has_the_columns_of_the_contract() {
    let plane = cluster().await;
    let expected = [
        ("GitProvider", "URL Ready Reason Status* Age"),
        (
            "GitTarget",
            "Ready Reason Streams GitPathAccepted* RenderMatchesLive* StreamsRunning* SourceReachable* ProviderReady* \
             ClusterProviderReady* Status* Encryption* Provider* Branch* Path* Age",
        ),
        ("ClusterProvider", "Ready Reason Validated* Status* Age"),
        ("WatchRule", "Target Ready Reason Streams GitTargetReady* StreamsRunning* SourceAuthorized* Age"),
        ("ClusterWatchRule", "Target Ready Reason Streams GitTargetReady* StreamsRunning* Age"),
        ("CommitRequest", "GitTarget Ready Reason SHA AuthorAttributed* Pushed* Branch* Age"),
    ];
    for (kind, expected) in expected {
        let (_, plural, _) = KINDS.into_iter().find(|row| row.0 == kind).expect("one of our kinds");
        let table = table(plane, &format!("/apis/configbutler.ai/v1alpha3/{plural}")).await;
        assert_eq!(columns(&table), expected, "{kind}");
    }
}

fn status(now: &Time) -> GitTargetStatus {
    let mut status = GitTargetStatus { observed_generation: Some(1), ..GitTargetStatus::default() };
    for finding in trio(&[Gate::waiting("Replaying", "2 of 5 types are live")], "") {
        set_condition(&mut status.conditions, &finding, Some(1), now);
    }
    let gates = [
        ("GitPathAccepted", ConditionStatus::Unknown, "NotChecked"),
        ("RenderMatchesLive", ConditionStatus::Unknown, "Rechecking"),
        ("StreamsRunning", ConditionStatus::False, "Replaying"),
        ("SourceClusterReachable", ConditionStatus::True, "LocalCluster"),
        ("GitProviderReady", ConditionStatus::True, "GitProviderReady"),
        ("ClusterProviderReady", ConditionStatus::False, "ClusterProviderNotReady"),
    ];
    for (type_, answer, reason) in gates {
        set_condition(&mut status.conditions, &Finding::new(type_, answer, reason, ""), Some(1), now);
    }
    status.streams = Some(StreamCounts::new(2, 3, 0));
    status.owner =
        Some(OwnerStatus { replica: Some("upriver-0".into()), epoch: Some(7), since: Some(now.clone()) });
    status.delivery = Some(DeliveryStatus {
        journal_depth: Some(4),
        last_pushed_sha: Some("abc".into()),
        ..DeliveryStatus::default()
    });
    status
}

#[tokio::test]
async fn a_git_target_prints_its_status() {
    let plane = cluster().await;
    let namespace = plane.fresh_namespace("columns").await;
    let target = object("GitTarget", &namespace, &good_spec("GitTarget"));
    let name = target.metadata.name.clone().expect("it was given a name");
    api(plane, "GitTarget", &namespace).create(&PostParams::default(), &target).await.expect("a good object");
    let targets = Api::<GitTarget>::namespaced(plane.client(User::Upriver), &namespace);
    let now = Time(Timestamp::from_second(1_790_000_000).expect("a time"));
    let status = status(&now);
    let patch = Patch::Merge(json!({"status": status}));
    let written =
        targets.patch_status(&name, &PatchParams::default(), &patch).await.expect("the schema accepts it");
    assert_eq!(written.status, Some(status), "what is read back is what was written");
    let path = format!("/apis/configbutler.ai/v1alpha3/namespaces/{namespace}/gittargets");
    let table = table(plane, &path).await;
    let cells = table["rows"][0]["cells"].as_array().expect("one row");
    let printed: Vec<&str> = cells.iter().take(15).map(|cell| cell.as_str().unwrap_or_default()).collect();
    assert_eq!(
        printed,
        [
            name.as_str(),
            "False",
            "Replaying",
            "2/5",
            "Unknown",
            "Unknown",
            "False",
            "LocalCluster",
            "True",
            "False",
            "2 of 5 types are live",
            "",
            "a",
            "main",
            "clusters/a",
        ]
    );
}
