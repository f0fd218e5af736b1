//! The few types of which a field is not the user's (C3.7 to C3.9). In: a document of known identity. Out: the same
//! without fields that the API server or a controller allocates. Group and kind must both match: a custom resource may
//! be called `Service` too. A map that gets empty *here* is removed; one that came empty stays.

use serde_json::{Map, Value};

use super::rules::SanitizeRules;
use crate::identity::DocumentIdentity;

type Object = Map<String, Value>;

pub(super) fn apply(root: &mut Object, identity: &DocumentIdentity, rules: &SanitizeRules) {
    match (&*identity.group, &*identity.kind) {
        ("", "Namespace") => namespace(root),
        ("", "Pod") => remove_at(root, &["spec"], "nodeName"),
        ("", "Service") => service(root),
        ("", "PersistentVolumeClaim") => claim(root, rules),
        ("", "ServiceAccount") => service_account(root, &identity.name),
        ("rbac.authorization.k8s.io", "ClusterRole") => cluster_role(root),
        (
            "admissionregistration.k8s.io",
            "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration",
        ) if injected(root, rules) => webhooks(root),
        ("apiextensions.k8s.io", "CustomResourceDefinition") if injected(root, rules) => {
            remove_at(root, &["spec", "conversion", "webhook", "clientConfig"], "caBundle");
            remove_at(root, &["spec", "conversion", "webhookClientConfig"], "caBundle");
        }
        ("apiregistration.k8s.io", "APIService") if injected(root, rules) => {
            remove_at(root, &["spec"], "caBundle");
        }
        _ => {}
    }
}

/// `spec.finalizers` is how the API server empties a namespace; the user never sets it.
fn namespace(root: &mut Object) {
    remove_at(root, &["spec"], "finalizers");
}

/// Addresses and the health-check port are allocated. `clusterIP: None` is a choice (headless) and stays; so do both
/// policies where they are not the default, and node ports, since firewalls are opened for them.
fn service(root: &mut Object) {
    edit_at(root, &["spec"], |spec| {
        if spec.get("clusterIP").and_then(Value::as_str) != Some("None") {
            spec.remove("clusterIP");
        }
        for field in ["clusterIPs", "healthCheckNodePort", "ipFamilies"] {
            spec.remove(field);
        }
        remove_default(spec, "ipFamilyPolicy", "SingleStack");
        remove_default(spec, "internalTrafficPolicy", "Cluster");
    });
}

/// The bound volume is the binder's doing; `volumeMode: Block` is a choice.
fn claim(root: &mut Object, rules: &SanitizeRules) {
    edit_at(root, &["spec"], |spec| {
        spec.remove("volumeName");
        remove_default(spec, "volumeMode", "Filesystem");
    });
    edit_at(root, &["metadata", "annotations"], |annotations| {
        annotations.retain(|name, _| !rules.drops_claim_annotation(name));
    });
}

/// Older API servers and OpenShift add the token and pull Secrets that they made; the user's own entries stay.
fn service_account(root: &mut Object, name: &str) {
    let Some(Value::Array(secrets)) = root.get_mut("secrets") else { return };
    let count = secrets.len();
    secrets.retain(|secret| {
        let secret = secret.get("name").and_then(Value::as_str).unwrap_or_default();
        !["-token-", "-dockercfg-"].iter().any(|part| is_generated(secret, &format!("{name}{part}")))
    });
    if secrets.is_empty() && count > 0 {
        root.remove("secrets");
    }
}

/// True if the API server's name generator made `name` from `base`: the base cut to 58 bytes, then five characters.
fn is_generated(name: &str, base: &str) -> bool {
    let cut = base.len().min(58);
    let Some(suffix) = base.get(..cut).and_then(|base| name.strip_prefix(base)) else { return false };
    suffix.len() == 5 && suffix.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

/// The rules of an aggregated role are a controller's sum of other roles.
fn cluster_role(root: &mut Object) {
    if root.contains_key("aggregationRule") {
        root.remove("rules");
    }
}

fn webhooks(root: &mut Object) {
    let Some(Value::Array(webhooks)) = root.get_mut("webhooks") else { return };
    for webhook in webhooks.iter_mut().filter_map(Value::as_object_mut) {
        remove_at(webhook, &["clientConfig"], "caBundle");
    }
}

/// True if an annotation says that a controller fills in `caBundle`.
fn injected(root: &Object, rules: &SanitizeRules) -> bool {
    let annotations = root.get("metadata").and_then(|metadata| metadata.get("annotations"));
    let value = |name: &str| annotations.and_then(|map| map.get(name)).and_then(Value::as_str);
    rules.injectors().filter_map(value).any(|value| !value.is_empty() && value != "false")
}

fn remove_default(map: &mut Object, field: &str, default: &str) {
    if map.get(field).and_then(Value::as_str) == Some(default) {
        map.remove(field);
    }
}

fn remove_at(root: &mut Object, path: &[&str], field: &str) {
    edit_at(root, path, |map| {
        map.remove(field);
    });
}

/// Edits the map at `path`, if there is one, and removes it if the edit took its last entry.
fn edit_at(root: &mut Object, path: &[&str], edit: impl FnOnce(&mut Object)) {
    let Some((first, rest)) = path.split_first() else { return edit(root) };
    let Some(Value::Object(inner)) = root.get_mut(*first) else { return };
    let was_empty = inner.is_empty();
    edit_at(inner, rest, edit);
    if inner.is_empty() && !was_empty {
        root.remove(*first);
    }
}
