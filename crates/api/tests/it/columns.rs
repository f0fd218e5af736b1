//! What does `kubectl get` print? Asked as kubectl asks: for a Table.

use http::Request;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use upriver_api::condition::{Finding, Gate, set_condition, trio};
use upriver_api::git_target::{DeliveryStatus, OwnerStatus};
use upriver_api::shared::StreamCounts;
use upriver_api::{ConditionStatus, GitTarget, GitTargetStatus, crds};
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

/// Where a column reads, by the contract's rule: a column that is named like a condition shows its status.
fn source(kind: &str, column: &str) -> String {
    let of = |type_: &str, field: &str| format!(".status.conditions[?(@.type==\"{type_}\")].{field}");
    match (kind, column) {
        (_, "Age") => ".metadata.creationTimestamp".to_owned(),
        (_, "Reason") => of("Ready", "reason"),
        (_, "Status") => of("Ready", "message"),
        (_, "SourceReachable") => of("SourceClusterReachable", "reason"),
        (_, "ProviderReady") => of("GitProviderReady", "status"),
        (_, "SourceAuthorized") => of("SourceNamespaceAuthorized", "status"),
        (_, "Streams") => ".status.streams.summary".to_owned(),
        (_, "URL") => ".spec.url".to_owned(),
        (_, "Encryption") => ".spec.encryption.provider".to_owned(),
        (_, "Provider") => ".spec.providerRef.name".to_owned(),
        ("CommitRequest", "Branch") => ".status.branch".to_owned(),
        (_, "Branch") => ".spec.branch".to_owned(),
        (_, "Path") => ".spec.path".to_owned(),
        (_, "Target" | "GitTarget") => ".spec.targetRef.name".to_owned(),
        (_, "SHA") => ".status.sha".to_owned(),
        (_, condition) => of(condition, "status"),
    }
}

#[test]
fn every_column_reads_where_the_contract_says_and_the_rest_of_the_crd_is_as_plain() {
    for crd in crds::all() {
        let kind = &crd.spec.names.kind;
        let version = &crd.spec.versions[0];
        for column in version.additional_printer_columns.iter().flatten() {
            assert_eq!(column.json_path, source(kind, &column.name), "{kind} {}", column.name);
            assert_eq!(column.type_, if column.name == "Age" { "date" } else { "string" }, "{kind}");
        }
        assert_eq!(crd.spec.versions.len(), 1, "{kind}");
        assert!(version.name == "v1alpha3" && version.served && version.storage, "{kind}");
        let subresources = version.subresources.as_ref().expect("a status subresource");
        assert!(subresources.status.is_some() && subresources.scale.is_none(), "{kind}");
        let names = &crd.spec.names;
        assert!(names.short_names.is_none() && names.categories.is_none(), "{kind}");
        assert_eq!(names.singular.as_deref(), Some(&*kind.to_lowercase()));
        let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
        assert_eq!(schema.expect("a schema").required.as_deref(), Some(&["spec".to_owned()][..]), "{kind}");
        let (_, plural, namespaced) = KINDS.into_iter().find(|row| row.0 == kind).expect("one of our kinds");
        let scope = if namespaced { "Namespaced" } else { "Cluster" };
        assert_eq!((names.plural.as_str(), crd.spec.scope.as_str()), (plural, scope));
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
