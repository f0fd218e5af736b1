//! Is each bad input refused by the API server, at the path that the contract names? Numbers are rows of the contract's
//! table of invalid inputs.

use kube::api::PostParams;
use serde_json::{Value, json};

use crate::setup::{api, cluster, good_spec, merged, object, refusal_of_change, refusal_of_create};

/// A create that has to fail: row, kind, change to a good spec (null removes), path, part of the message.
type Create = (u32, &'static str, Value, &'static str, &'static str);

fn providers() -> Vec<Create> {
    vec![
        (1, "GitProvider", json!({"url": null}), "spec.url", "Required"),
        (1, "GitProvider", json!({"url": ""}), "spec.url", "at least 1 chars"),
        (2, "GitProvider", json!({"allowedBranches": []}), "spec.allowedBranches", "at least 1 items"),
        (2, "GitProvider", json!({"allowedBranches": [""]}), "spec.allowedBranches[0]", "at least 1 chars"),
        (2, "GitProvider", json!({"allowedBranches": null}), "spec.allowedBranches", "Required"),
        (
            4,
            "GitProvider",
            json!({"secretRef": {"name": "a", "kind": "ConfigMap"}}),
            "spec.secretRef.kind",
            "\"Secret\"",
        ),
        (4, "GitProvider", json!({"secretRef": {"name": ""}}), "spec.secretRef.name", "at least 1 chars"),
        (
            4,
            "GitProvider",
            json!({"knownHostsRef": {"name": "a", "kind": "File"}}),
            "spec.knownHostsRef.kind",
            "\"ConfigMap\"",
        ),
    ]
}

fn clusters() -> Vec<Create> {
    vec![
        (20, "ClusterProvider", json!({"kubeConfig": {}}), "spec.kubeConfig", "neither is given"),
        (
            20,
            "ClusterProvider",
            json!({"kubeConfig": {"secretRef": {"name": "a"}, "configMapRef": {"name": "a"}}}),
            "spec.kubeConfig",
            "both are given",
        ),
        (
            21,
            "ClusterProvider",
            json!({"kubeConfig": {"configMapRef": {"name": "a"}}}),
            "spec",
            "not supported",
        ),
        // Both references break the rule of row 21 too.
        (
            21,
            "ClusterProvider",
            json!({"kubeConfig": {"secretRef": {"name": "a"}, "configMapRef": {"name": "a"}}}),
            "spec",
            "not supported",
        ),
        (
            22,
            "ClusterProvider",
            json!({"kubeConfig": {"secretRef": {"name": ""}}}),
            "spec",
            "must not be empty",
        ),
        (
            22,
            "ClusterProvider",
            json!({"kubeConfig": {"secretRef": {}}}),
            "spec.kubeConfig.secretRef.name",
            "Required",
        ),
        (23, "ClusterProvider", json!({"qps": 0}), "spec.qps", "greater than or equal to 1"),
        (23, "ClusterProvider", json!({"burst": 0}), "spec.burst", "greater than or equal to 1"),
        (
            23,
            "ClusterProvider",
            json!({"attribution": {"auditRoute": "Pier_West"}}),
            "spec.attribution.auditRoute",
            "should match",
        ),
        (
            23,
            "ClusterProvider",
            json!({"attribution": {"auditRoute": "a".repeat(254)}}),
            "spec.attribution.auditRoute",
            "253",
        ),
    ]
}

/// The two policies have one matcher; a bad selector is a matter of the reconciler.
fn matchers() -> Vec<Create> {
    let both = [("GitTarget", "allowedSourceNamespaces"), ("ClusterProvider", "allowedNamespaces")];
    let rows = |(kind, field): (&'static str, &'static str)| {
        let at = |index: usize| -> &'static str {
            match (field, index) {
                ("allowedSourceNamespaces", 0) => "spec.allowedSourceNamespaces.names[0]",
                ("allowedSourceNamespaces", _) => "spec.allowedSourceNamespaces.names[1]",
                (_, 0) => "spec.allowedNamespaces.names[0]",
                (_, _) => "spec.allowedNamespaces.names[1]",
            }
        };
        let names = |list: Value| json!({field: {"names": list}});
        [
            (13, kind, names(json!(["*"])), at(0), "should match"),
            (13, kind, names(json!(["Team"])), at(0), "should match"),
            (13, kind, names(json!([""])), at(0), "at least 1 chars"),
            (13, kind, names(json!(["a".repeat(64)])), at(0), "63"),
            (13, kind, names(json!(["a", "a"])), at(1), "Duplicate"),
        ]
    };
    both.into_iter().flat_map(rows).collect()
}

fn targets() -> Vec<Create> {
    vec![
        (8, "GitTarget", json!({"path": null}), "spec.path", "Required"),
        (8, "GitTarget", json!({"path": ""}), "spec.path", "at least 1 chars"),
        (8, "GitTarget", json!({"branch": ""}), "spec.branch", "at least 1 chars"),
        (8, "GitTarget", json!({"providerRef": null}), "spec.providerRef", "Required"),
        (11, "GitTarget", json!({"prune": {"mode": "always"}}), "spec.prune.mode", "\"Always\""),
        (12, "GitTarget", json!({"prune": {"mode": ""}}), "spec.prune.mode", "\"Never\""),
        (
            12,
            "GitTarget",
            json!({"encryption": {"provider": "vault"}}),
            "spec.encryption.provider",
            "\"sops\"",
        ),
        // The later dialect of the same version fails loudly.
        (
            8,
            "GitTarget",
            json!({"providerRef": null, "gitProviderRef": {"name": "a"}}),
            "spec.providerRef",
            "Required",
        ),
    ]
}

/// What both kinds of rules have in common.
fn selections(kind: &'static str) -> Vec<Create> {
    let rule = |change: Value| json!({"rules": [merged(json!({"resources": ["configmaps"]}), &change)]});
    let (resource, operation) = ("spec.rules[0].resources[0]", "spec.rules[0].operations[0]");
    vec![
        (25, kind, json!({"rules": []}), "spec.rules", "at least 1 items"),
        (25, kind, json!({"rules": null}), "spec.rules", "Required"),
        (25, kind, rule(json!({"resources": []})), "spec.rules[0].resources", "at least 1 items"),
        (25, kind, rule(json!({"resources": null})), "spec.rules[0].resources", "Required"),
        (25, kind, rule(json!({"resources": [""]})), resource, "at least 1 chars"),
        (25, kind, rule(json!({"resources": ["deployments/scale"]})), resource, "should match"),
        (25, kind, rule(json!({"operations": ["PATCH"]})), operation, "\"CREATE\""),
        (25, kind, json!({"targetRef": null}), "spec.targetRef", "Required"),
        (25, kind, json!({"targetRef": {"name": ""}}), "spec.targetRef.name", "at least 1 chars"),
        (25, kind, json!({"targetRef": {"kind": "GitProvider"}}), "spec.targetRef.kind", "\"GitTarget\""),
    ]
}

fn rules() -> Vec<Create> {
    let rule = |change: Value| json!({"rules": [merged(json!({"resources": ["configmaps"]}), &change)]});
    let namespace = "spec.rules[0].sourceNamespace";
    vec![
        (26, "WatchRule", rule(json!({"sourceNamespace": "team-*"})), namespace, "should match"),
        (26, "WatchRule", rule(json!({"sourceNamespace": ""})), namespace, "should match"),
        (26, "WatchRule", rule(json!({"sourceNamespace": "a".repeat(64)})), namespace, "63"),
        (28, "ClusterWatchRule", rule(json!({"scope": "Namespaced"})), "spec.rules[0].scope", "\"Cluster\""),
        (
            28,
            "ClusterWatchRule",
            json!({"targetRef": {"namespace": null}}),
            "spec.targetRef.namespace",
            "Required",
        ),
        (
            28,
            "ClusterWatchRule",
            json!({"targetRef": {"namespace": ""}}),
            "spec.targetRef.namespace",
            "at least 1",
        ),
    ]
}

fn requests() -> Vec<Create> {
    let message = "spec.message";
    vec![
        (29, "CommitRequest", json!({"targetRef": null}), "spec.targetRef", "Required"),
        (
            29,
            "CommitRequest",
            json!({"closeDelaySeconds": 301}),
            "spec.closeDelaySeconds",
            "less than or equal to 300",
        ),
        (
            29,
            "CommitRequest",
            json!({"closeDelaySeconds": -1}),
            "spec.closeDelaySeconds",
            "greater than or equal to 0",
        ),
        (29, "CommitRequest", json!({"message": ""}), message, "at least 1 chars"),
        (29, "CommitRequest", json!({"message": "a\tb"}), message, "should match"),
        (29, "CommitRequest", json!({"message": "a\rb"}), message, "should match"),
        (29, "CommitRequest", json!({"message": "a\u{7f}b"}), message, "should match"),
        (29, "CommitRequest", json!({"message": "a".repeat(1025)}), message, "1024"),
    ]
}

#[tokio::test]
async fn bad_objects_are_refused_at_the_path_of_the_contract() {
    let plane = cluster().await;
    let namespace = plane.fresh_namespace("refused").await;
    let mut wrong = Vec::new();
    let both = ["WatchRule", "ClusterWatchRule"].map(selections).concat();
    let all = [providers(), clusters(), targets(), matchers(), both, rules(), requests()].concat();
    for (row, kind, change, path, part) in all {
        let bad = object(kind, &namespace, &merged(good_spec(kind), &change));
        let outcome = refusal_of_create(&api(plane, kind, &namespace), &bad).await;
        if let Some(why) = mismatch(outcome, path, part) {
            wrong.push(format!("row {row}, {kind} {change}: {why}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A change that has to fail: row, kind, change to a good spec first, the bad change, part of the message.
type Change = (u32, &'static str, Value, Value, &'static str);

fn changes() -> Vec<Change> {
    let remote = json!({"kubeConfig": {"secretRef": {"name": "a", "key": "k"}}});
    let none = json!({});
    vec![
        (
            3,
            "GitProvider",
            none.clone(),
            json!({"url": "https://git.example.net/b.git"}),
            "url cannot change",
        ),
        (10, "GitTarget", none.clone(), json!({"branch": "other"}), "branch cannot change"),
        (10, "GitTarget", none.clone(), json!({"path": "clusters/b"}), "path cannot change"),
        (10, "GitTarget", none.clone(), json!({"providerRef": {"name": "b"}}), "providerRef cannot change"),
        (
            10,
            "GitTarget",
            none.clone(),
            json!({"clusterProviderRef": {"name": "b"}}),
            "clusterProviderRef cannot change",
        ),
        (22, "ClusterProvider", none.clone(), remote.clone(), "kubeConfig cannot be"),
        (22, "ClusterProvider", remote.clone(), json!({"kubeConfig": null}), "kubeConfig cannot be"),
        (
            22,
            "ClusterProvider",
            remote.clone(),
            json!({"kubeConfig": {"secretRef": {"key": "l"}}}),
            "kubeConfig cannot be",
        ),
        (
            22,
            "ClusterProvider",
            remote,
            json!({"kubeConfig": {"secretRef": {"name": "b"}}}),
            "kubeConfig cannot be",
        ),
        (29, "CommitRequest", none.clone(), json!({"message": "later"}), "spec cannot change"),
        (29, "CommitRequest", none.clone(), json!({"targetRef": {"name": "b"}}), "spec cannot change"),
        (29, "CommitRequest", none, json!({"closeDelaySeconds": 1}), "spec cannot change"),
    ]
}

#[tokio::test]
async fn forbidden_changes_are_refused_at_spec_with_a_message_that_names_the_field() {
    let plane = cluster().await;
    let mut wrong = Vec::new();
    for (row, kind, first, change, part) in changes() {
        let namespace = plane.fresh_namespace("changed").await;
        let api = api(plane, kind, &namespace);
        let good = object(kind, &namespace, &merged(good_spec(kind), &first));
        api.create(&PostParams::default(), &good).await.expect("a good object is accepted");
        let name = good.metadata.name.as_deref().expect("it was given a name");
        let outcome = refusal_of_change(&api, name, &change).await;
        if let Some(why) = mismatch(outcome, "spec", part) {
            wrong.push(format!("row {row}, {kind} {change}: {why}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn mismatch(outcome: Result<kube::core::Status, String>, path: &str, part: &str) -> Option<String> {
    let status = match outcome {
        Ok(status) => status,
        Err(why) => return Some(why),
    };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let named = causes.clone().any(|cause| cause.field == path && cause.message.contains(part));
    if status.code == 422 && named {
        None
    } else {
        Some(format!("{} {:?}", status.code, causes.collect::<Vec<_>>()))
    }
}
