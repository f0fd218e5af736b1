//! What the tests of the contract share: objects of ours with a twist, and waiting for what they say.

use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use upriver_testkit::stack::{self, Stack};
use upriver_testkit::{User, eventually};

use crate::support::SOON;

/// A condition as a test wants it: type, status, reason.
pub type Wanted<'a> = (&'a str, &'a str, &'a str);

fn find<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == type_)
}

/// What a condition says now, as `status reason: message`.
pub fn says(object: &Value, type_: &str) -> String {
    let Some(found) = find(object, type_) else { return "nothing".to_owned() };
    let text = |field: &str| found[field].as_str().unwrap_or("?").to_owned();
    format!("{} {}: {}", text("status"), text("reason"), text("message"))
}

/// Waits until a condition of an object (namespace `""` for cluster-scoped kinds) is as wanted at its present generation,
/// and returns the object.
pub async fn until(stack: &Stack, kind: &str, namespace: &str, name: &str, wanted: Wanted<'_>) -> Value {
    let (type_, status, reason) = wanted;
    let what = format!("{kind} {namespace}/{name}: {type_} {status} {reason}");
    eventually(&what, SOON, async || {
        let object = stack.get(kind, namespace, name).await?;
        let found = find(&object, type_).ok_or_else(|| "no such condition".to_owned())?;
        let current = found["observedGeneration"] == object["metadata"]["generation"];
        let fits = current && found["status"] == status && found["reason"] == reason;
        if fits { Ok(object.clone()) } else { Err(says(&object, type_)) }
    })
    .await
}

/// As [`until`]; the message has to hold `part`, and the object is stalled.
pub async fn refused(stack: &Stack, kind: &str, at: (&str, &str), wanted: (&str, &str), part: &str) -> Value {
    let (namespace, name) = at;
    let (type_, reason) = wanted;
    let object = until(stack, kind, namespace, name, (type_, "False", reason)).await;
    let message = says(&object, type_);
    assert!(message.contains(part), "{kind} {namespace}/{name}: {message:?} does not say {part:?}");
    assert!(says(&object, "Ready").starts_with("False"), "{}", says(&object, "Ready"));
    assert!(says(&object, "Stalled").starts_with("True"), "{}", says(&object, "Stalled"));
    object
}

/// An object of ours with this spec; namespace `""` for cluster-scoped kinds.
pub fn ours(kind: &str, namespace: &str, name: &str, spec: &Value) -> Value {
    let mut metadata = json!({"name": name});
    if !namespace.is_empty() {
        metadata["namespace"] = json!(namespace);
    }
    json!({"apiVersion": "configbutler.ai/v1alpha3", "kind": kind, "metadata": metadata, "spec": spec})
}

/// A GitTarget on `main` with further fields in its spec.
pub fn target(namespace: &str, name: &str, provider: &str, path: &str, more: &Value) -> Value {
    with_spec(stack::git_target(namespace, name, provider, "main", path), more)
}

/// The object with further fields in its spec; one that is there is replaced.
pub fn with_spec(mut object: Value, more: &Value) -> Value {
    for (key, value) in more.as_object().into_iter().flatten() {
        object["spec"][key] = value.clone();
    }
    object
}

/// A WatchRule with these items.
pub fn rule(namespace: &str, name: &str, target: &str, items: &Value) -> Value {
    ours("WatchRule", namespace, name, &json!({"targetRef": {"name": target}, "rules": items}))
}

/// Events about an object, as `type reason`, with how often each was seen.
pub async fn events_of(stack: &Stack, namespace: &str, kind: &str, name: &str) -> Vec<(String, i32)> {
    // Those of cluster-scoped objects lie here.
    let namespace = if namespace.is_empty() { "default" } else { namespace };
    let api: Api<Event> = Api::namespaced(stack.client(User::Admin), namespace);
    let events = api.list(&ListParams::default()).await.expect("events are listed");
    let about = |event: &Event| {
        event.regarding.as_ref().is_some_and(|object| {
            object.kind.as_deref() == Some(kind) && object.name.as_deref() == Some(name)
        })
    };
    let line = |event: Event| {
        let text = format!("{} {}", event.type_.unwrap_or_default(), event.reason.unwrap_or_default());
        (text, event.series.map_or(1, |series| series.count))
    };
    events.items.into_iter().filter(about).map(line).collect()
}

/// Waits for an Event, given as `type reason`.
pub async fn until_event(stack: &Stack, namespace: &str, kind: &str, name: &str, wanted: &str) {
    eventually(&format!("Event {wanted} about {kind} {namespace}/{name}"), SOON, async || {
        let events = events_of(stack, namespace, kind, name).await;
        if events.iter().any(|(text, _)| text == wanted) { Ok(()) } else { Err(format!("{events:?}")) }
    })
    .await;
}

/// Deletes an object of ours.
pub async fn delete(stack: &Stack, kind: &str, namespace: &str, name: &str) {
    let folder = if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
    let path = format!("/apis/configbutler.ai/v1alpha3{folder}/{}s/{name}", kind.to_lowercase());
    let request = http::Request::delete(path).body(Vec::new()).expect("a well-formed path");
    stack.client(User::Admin).request_text(request).await.expect("deleted");
}

/// From now on the operator may work with our kinds, get namespaces, and read these core resources; nothing else.
pub async fn narrow(stack: &Stack, core: &[&str]) {
    let groups = ["configbutler.ai", "coordination.k8s.io", "events.k8s.io", "authorization.k8s.io"];
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "narrow"},
        "rules": [
            {"apiGroups": groups, "resources": ["*"], "verbs": ["*"]},
            {"apiGroups": [""], "resources": core, "verbs": ["get", "list", "watch"]},
            {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]}
        ]
    });
    stack.apply(User::Admin, &[role, binding("narrow", "narrow")]).await.expect("applied");
    stack.plane().take_operator_rights().await.expect("taken");
}

/// The operator may do everything again.
pub async fn widen(stack: &Stack) {
    stack.apply(User::Admin, &[binding("wide", "cluster-admin")]).await.expect("applied");
}

fn binding(name: &str, role: &str) -> Value {
    let group = "rbac.authorization.k8s.io";
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "name": User::Upriver.name(), "apiGroup": group}]
    })
}
