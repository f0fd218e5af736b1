//! A control plane that serves our kinds, and objects to start from.

use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::core::response::Status;
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use upriver_api::{GROUP, VERSION};
use upriver_testkit::{ControlPlane, User};

use crate::files::folder;

static CRDS: OnceCell<()> = OnceCell::const_new();

/// The shared control plane with the CRDs of the repository.
pub async fn cluster() -> &'static ControlPlane {
    let plane = ControlPlane::shared().await;
    CRDS.get_or_init(async || plane.apply_crds(&folder()).await.expect("the API server accepts our CRDs"))
        .await;
    plane
}

/// The kinds, each with its plural and whether it lives in a namespace.
pub const KINDS: [(&str, &str, bool); 6] = [
    ("GitProvider", "gitproviders", true),
    ("GitTarget", "gittargets", true),
    ("ClusterProvider", "clusterproviders", false),
    ("WatchRule", "watchrules", true),
    ("ClusterWatchRule", "clusterwatchrules", false),
    ("CommitRequest", "commitrequests", true),
];

/// Untyped access to a kind, so that objects can be wrong.
pub fn api(plane: &ControlPlane, kind: &str, namespace: &str) -> Api<DynamicObject> {
    let (_, plural, namespaced) = KINDS.into_iter().find(|row| row.0 == kind).expect("one of our kinds");
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, VERSION, kind), plural);
    let client = plane.client(User::Alice);
    if namespaced {
        Api::namespaced_with(client, namespace, &resource)
    } else {
        Api::all_with(client, &resource)
    }
}

/// An object of ours. Cluster-scoped ones get a name that no other test uses through `namespace`.
pub fn object(kind: &str, namespace: &str, spec: &Value) -> DynamicObject {
    let metadata = json!({"name": format!("{namespace}-{}", kind.to_lowercase())});
    let value =
        json!({"apiVersion": format!("{GROUP}/{VERSION}"), "kind": kind, "metadata": metadata, "spec": spec});
    serde_json::from_value(value).expect("an object has this shape")
}

/// A small spec that the API server accepts.
pub fn good_spec(kind: &str) -> Value {
    match kind {
        "GitProvider" => json!({"url": "https://git.example.net/a.git", "allowedBranches": ["main"]}),
        "GitTarget" => json!({"providerRef": {"name": "a"}, "branch": "main", "path": "clusters/a"}),
        "ClusterProvider" => json!({}),
        "WatchRule" => json!({"targetRef": {"name": "a"}, "rules": [{"resources": ["configmaps"]}]}),
        "ClusterWatchRule" => {
            json!({"targetRef": {"name": "a", "namespace": "b"}, "rules": [{"resources": ["namespaces"]}]})
        }
        "CommitRequest" => json!({"targetRef": {"name": "a"}}),
        other => panic!("{other} is none of our kinds"),
    }
}

/// `base` with `change` merged in (RFC 7386: null removes).
pub fn merged(mut base: Value, change: &Value) -> Value {
    merge(&mut base, change);
    base
}

fn merge(base: &mut Value, change: &Value) {
    let Value::Object(change) = change else {
        *base = change.clone();
        return;
    };
    if !base.is_object() {
        *base = json!({});
    }
    for (key, value) in change {
        if value.is_null() {
            base.as_object_mut().expect("made an object above").remove(key);
        } else {
            merge(&mut base[key], value);
        }
    }
}

/// The refusal of a create that has to fail.
pub async fn refusal_of_create(api: &Api<DynamicObject>, object: &DynamicObject) -> Result<Status, String> {
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    refusal(api.create(&dry_run, object).await)
}

/// The refusal of a change that has to fail.
pub async fn refusal_of_change(api: &Api<DynamicObject>, name: &str, spec: &Value) -> Result<Status, String> {
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    refusal(api.patch(name, &dry_run, &Patch::Merge(json!({"spec": spec}))).await)
}

fn refusal(outcome: kube::Result<DynamicObject>) -> Result<Status, String> {
    match outcome {
        Err(kube::Error::Api(status)) => Ok(*status),
        Err(error) => Err(format!("no answer: {error}")),
        Ok(object) => Err(format!("it was accepted: {}", object.data)),
    }
}
