use serde_json::json;

use super::*;

fn clean(object: &Value) -> Value {
    let rules = SanitizeRules::default();
    let cleaned = sanitize(&object.to_string(), &rules).expect("an object").document;
    let again = sanitize_value(&cleaned, &rules).expect("an object").document;
    assert_eq!(cleaned, again, "sanitising twice is sanitising once");
    cleaned
}

/// What is left of `rest` in an object of that type.
fn clean_rest(api_version: &str, kind: &str, rest: &Value) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}});
    let root = object.as_object_mut().expect("an object");
    for (key, value) in rest.as_object().expect("an object") {
        root.insert(key.clone(), value.clone());
    }
    let mut cleaned = clean(&object);
    let root = cleaned.as_object_mut().expect("an object");
    root.retain(|key, _| rest.get(key).is_some());
    cleaned
}

#[test]
fn only_what_the_user_wrote_is_left() {
    let live = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "status": {"a": 1}, "immutable": true, "data": {"a": "b"},
        "metadata": {
            "name": "a", "namespace": "b", "uid": "u", "resourceVersion": "1", "generation": 3,
            "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": null, "selfLink": "x",
            "managedFields": [{"manager": "kubectl"}], "ownerReferences": [{}], "finalizers": ["x"],
            "generateName": "a-", "unheardOf": 1, "labels": {}, "annotations": {"kcp.io/cluster": "x"},
        },
    });
    let expected = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "immutable": true, "data": {"a": "b"},
        "metadata": {"name": "a", "namespace": "b"},
    });
    assert_eq!(clean(&live), expected);
}

#[test]
fn every_top_level_field_but_status_is_kept() {
    let rest = json!({"provisioner": "x", "parameters": {"a": "b"}, "value": 7, "handler": "runc",
        "imagePullSecrets": [{"name": "x"}], "automountServiceAccountToken": false});
    assert_eq!(clean_rest("storage.k8s.io/v1", "StorageClass", &rest), rest);
    assert_eq!(clean_rest("v1", "ServiceAccount", &rest), rest);
}

#[test]
fn machine_written_labels_and_annotations_are_dropped_and_others_stay() {
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "a",
            "labels": {"kustomize.toolkit.fluxcd.io/name": "x", "kro.run/owned": "x", "applyset.kubernetes.io/id": "x",
                "helm.toolkit.fluxcd.io/name": "x", "resourceset.fluxcd.controlplane.io/name": "x",
                "app.kubernetes.io/managed-by": "Helm", "blank": ""},
            "annotations": {"argocd.argoproj.io/tracking-id": "x", "argocd.argoproj.io/installation-id": "x",
                "kubectl.kubernetes.io/last-applied-configuration": "{}", "deployment.kubernetes.io/revision": "3",
                "control-plane.alpha.kubernetes.io/leader": "x", "meta.helm.sh/release-name": "x",
                "autoscaling.alpha.kubernetes.io/conditions": "x", "endpoints.kubernetes.io/last-change": "x",
                "argocd.argoproj.io/sync-wave": "2", "argocd.argoproj.io/tracking-id-2": "mine",
                "volume.kubernetes.io/x": "not a claim"}},
        "spec": {"template": {"metadata": {"creationTimestamp": null,
            "annotations": {"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"}}}},
    });
    let expected = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "a",
            "labels": {"app.kubernetes.io/managed-by": "Helm", "blank": ""},
            "annotations": {"argocd.argoproj.io/sync-wave": "2", "argocd.argoproj.io/tracking-id-2": "mine",
                "volume.kubernetes.io/x": "not a claim"}},
        "spec": {"template": {"metadata": {
            "annotations": {"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"}}}},
    });
    assert_eq!(clean(&object), expected);
}

#[test]
fn lists_can_be_added_to() {
    let rules = SanitizeRules::default().drop_label("example.test/").drop_annotation("exact.test/name");
    let json = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a",
        "labels":{"example.test/x":"1","example.testing/x":"2"},
        "annotations":{"exact.test/name":"1","exact.test/name2":"2","kcp.io/cluster":"x"}}}"#;
    let expected =
        json!({"name": "a", "labels": {"example.testing/x": "2"}, "annotations": {"exact.test/name2": "2"}});
    assert_eq!(sanitize(json, &rules).expect("an object").document["metadata"], expected);
}

#[test]
fn nulls_go_from_maps_and_stay_in_lists_and_empty_values_stay() {
    let rest = json!({"spec": {"a": null, "b": {}, "c": [], "d": [{}], "e": "", "f": [null, {"g": null}], "h": [[]]},
        "rules": null});
    let expected = json!({"spec": {"b": {}, "c": [], "d": [{}], "e": "", "f": [null, {}], "h": [[]]}});
    assert_eq!(clean_rest("example.test/v1", "X", &rest), expected);
}

#[test]
fn fields_that_the_server_or_a_controller_fills_in_are_dropped() {
    let ports = json!([{"port": 80, "nodePort": 30080}]);
    let table = [
        ("v1", "Namespace", json!({"spec": {"finalizers": ["kubernetes"]}}), json!({})),
        ("v1", "Namespace", json!({"spec": {}}), json!({"spec": {}})),
        (
            "v1",
            "Service",
            json!({"spec": {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "healthCheckNodePort": 1,
                "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster",
                "ports": ports}}),
            json!({"spec": {"ports": ports}}),
        ),
        (
            "v1",
            "Service",
            json!({"spec": {"clusterIP": "None", "clusterIPs": ["None"], "ipFamilyPolicy": "RequireDualStack",
                "internalTrafficPolicy": "Local"}}),
            json!({"spec": {"clusterIP": "None", "ipFamilyPolicy": "RequireDualStack",
                "internalTrafficPolicy": "Local"}}),
        ),
        (
            "v1",
            "PersistentVolumeClaim",
            json!({"spec": {"volumeName": "pv-1", "volumeMode": "Filesystem", "accessModes": []}}),
            json!({"spec": {"accessModes": []}}),
        ),
        (
            "v1",
            "PersistentVolumeClaim",
            json!({"spec": {"volumeMode": "Block"}}),
            json!({"spec": {"volumeMode": "Block"}}),
        ),
        (
            "v1",
            "ServiceAccount",
            json!({"secrets": [{"name": "a-token-x9k2p"}, {"name": "a-dockercfg-x9k2p"}, {"name": "mine"},
                {"name": "a-token-for-me"}]}),
            json!({"secrets": [{"name": "mine"}, {"name": "a-token-for-me"}]}),
        ),
        ("v1", "ServiceAccount", json!({"secrets": [{"name": "a-token-x9k2p"}]}), json!({})),
        ("v1", "ServiceAccount", json!({"secrets": []}), json!({"secrets": []})),
        (
            "rbac.authorization.k8s.io/v1",
            "ClusterRole",
            json!({"aggregationRule": {"clusterRoleSelectors": []}, "rules": [{}]}),
            json!({"aggregationRule": {"clusterRoleSelectors": []}}),
        ),
        ("rbac.authorization.k8s.io/v1", "ClusterRole", json!({"rules": [{}]}), json!({"rules": [{}]})),
        (
            "v1",
            "Pod",
            json!({"spec": {"nodeName": "n", "containers": []}}),
            json!({"spec": {"containers": []}}),
        ),
    ];
    for (api_version, kind, rest, expected) in table {
        assert_eq!(clean_rest(api_version, kind, &rest), expected, "{kind} {rest}");
    }
}

#[test]
fn kind_alone_never_triggers_a_rule() {
    let rest = json!({"spec": {"clusterIP": "10.0.0.1", "volumeName": "x", "finalizers": ["x"], "nodeName": "n"},
        "secrets": [{"name": "a-token-x9k2p"}], "aggregationRule": {}, "rules": []});
    for kind in ["Service", "PersistentVolumeClaim", "Namespace", "Pod", "ServiceAccount", "ClusterRole"] {
        assert_eq!(clean_rest("serving.knative.dev/v1", kind, &rest), rest, "{kind}");
    }
}

#[test]
fn injected_certificates_are_dropped_only_where_an_annotation_says_so() {
    let config = json!({"url": "https://x", "caBundle": "eA=="});
    let bare = json!({"url": "https://x"});
    let objects = [
        (
            "admissionregistration.k8s.io/v1",
            "ValidatingWebhookConfiguration",
            "webhooks",
            json!([{"name": "h", "clientConfig": config}]),
            json!([{"name": "h", "clientConfig": bare}]),
        ),
        (
            "admissionregistration.k8s.io/v1",
            "MutatingWebhookConfiguration",
            "webhooks",
            json!([{"clientConfig": config}, {}]),
            json!([{"clientConfig": bare}, {}]),
        ),
        (
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            "spec",
            json!({"conversion": {"webhook": {"clientConfig": config}}}),
            json!({"conversion": {"webhook": {"clientConfig": bare}}}),
        ),
        (
            "apiregistration.k8s.io/v1",
            "APIService",
            "spec",
            json!({"caBundle": "eA==", "group": "x"}),
            json!({"group": "x"}),
        ),
        ("example.test/v1", "APIService", "spec", json!({"caBundle": "eA=="}), json!({"caBundle": "eA=="})),
    ];
    for (api_version, kind, field, before, after) in objects {
        let cleaned = |annotations: Value| {
            clean(&json!({"apiVersion": api_version, "kind": kind,
                "metadata": {"name": "a", "annotations": annotations}, field: before}))[field]
                .clone()
        };
        assert_eq!(cleaned(json!({"cert-manager.io/inject-ca-from": "ns/cert"})), after, "{kind}");
        assert_eq!(cleaned(json!({"cert-manager.io/inject-apiserver-ca": "true"})), after, "{kind}");
        assert_eq!(cleaned(json!({"cert-manager.io/inject-apiserver-ca": "false"})), before, "{kind}");
        assert_eq!(cleaned(json!({"other": "x"})), before, "{kind}");
    }
}

#[test]
fn claims_lose_the_binders_annotations_and_keep_the_old_class_name() {
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a", "annotations": {
        "pv.kubernetes.io/bind-completed": "yes", "volume.kubernetes.io/selected-node": "n",
        "volume.beta.kubernetes.io/storage-provisioner": "x", "volume.beta.kubernetes.io/storage-class": "fast"}}});
    let expected = json!({"volume.beta.kubernetes.io/storage-class": "fast"});
    assert_eq!(clean(&claim)["metadata"]["annotations"], expected);
    let bound = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "a", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}});
    assert_eq!(clean(&bound)["metadata"], json!({"name": "a"}));
}

#[test]
fn generated_secret_names_are_recognised_even_where_the_base_was_cut() {
    let account = "b".repeat(60);
    let secret = format!("{}abc12", "b".repeat(58));
    let object = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account},
        "secrets": [{"name": secret}]});
    assert_eq!(clean(&object).get("secrets"), None);
}

#[test]
fn list_items_get_their_type_from_the_list() {
    let rules = SanitizeRules::default();
    let json = r#"{"metadata":{"name":"a"},"spec":{"finalizers":["kubernetes"]}}"#;
    let hint = TypeHint { api_version: "v1", kind: "Namespace" };
    let found = sanitize_item(json, hint, &rules).expect("complete");
    assert_eq!(found.document, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}));
    assert_eq!(sanitize(json, &rules), Err(SanitizeError::Incomplete { field: "apiVersion" }));
}

#[test]
fn unusable_input_is_named_without_its_content() {
    let rules = SanitizeRules::default();
    let table = [
        (r#"{"data":{"password":"hunter2"#, None),
        ("[]", None),
        ("{} {}", None),
        (r#"{"apiVersion":"v1","metadata":{"name":"a"}}"#, Some("kind")),
        (r#"{"apiVersion":"v1","kind":"K","metadata":{}}"#, Some("metadata.name")),
        (
            r#"{"apiVersion":"v1","kind":"K","metadata":{"name":"a","namespace":7}}"#,
            Some("metadata.namespace"),
        ),
    ];
    for (json, field) in table {
        let error = sanitize(json, &rules).expect_err(json);
        match field {
            Some(field) => assert_eq!(error, SanitizeError::Incomplete { field }),
            None => assert!(matches!(error, SanitizeError::NotAnObject { .. }), "{json}: {error}"),
        }
        assert!(!format!("{error:?} {error}").contains("hunter2"));
    }
}

#[test]
fn numbers_keep_their_value() {
    let json = r#"{"apiVersion":"v1","kind":"K","metadata":{"name":"a"},
        "spec":{"a":9223372036854775807,"b":0.30000000000000004,"c":18446744073709551615,"d":122.416294033786585}}"#;
    let found = sanitize(json, &SanitizeRules::default()).expect("an object").to_yaml();
    assert!(
        found.ends_with(
            "spec:\n  a: 9223372036854775807\n  b: 0.30000000000000004\n  c: 18446744073709551615\n  \
             d: 122.41629403378658\n"
        ),
        "{found}"
    );
}

#[test]
fn objects_as_deep_as_json_allows_are_sanitised() {
    let depth = 120;
    let spec = format!("{}1{}", r#"{"k":["#.repeat(depth / 2), "]}".repeat(depth / 2));
    let json = format!(r#"{{"apiVersion":"v1","kind":"K","metadata":{{"name":"a"}},"spec":{spec}}}"#);
    let found = sanitize(&json, &SanitizeRules::default()).expect("an object");
    assert_eq!(crate::yaml::read_document(&found.to_yaml()), Ok(found.document));
    let too_deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let json = format!(r#"{{"apiVersion":"v1","kind":"K","metadata":{{"name":"a"}},"spec":{too_deep}}}"#);
    assert!(matches!(sanitize(&json, &SanitizeRules::default()), Err(SanitizeError::NotAnObject { .. })));
}
