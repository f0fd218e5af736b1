//! Row 24 of the contract's table: what a kubeconfig may not do. Nothing is dialled to find out.

use serde_json::{Value, json};
use upriver_testkit::User;
use upriver_testkit::stack::{MirrorSpec, Stack, StackOptions, resources};

use crate::states::{delete, narrow, ours, refused, says, target, until, until_event, widen, with_spec};
use crate::support::{Edits, QUICK, SOON, stack as start};

const TOKEN: &str = "planted-token-of-a-cluster";

fn kubeconfig(cluster: &Value, user: &Value) -> String {
    let mut value = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        // Nobody answers there, and nobody is asked.
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": {"token": TOKEN}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}]
    });
    for (into, from) in [("/clusters/0/cluster", cluster), ("/users/0/user", user)] {
        for (key, given) in from.as_object().into_iter().flatten() {
            value.pointer_mut(into).expect("it is there")[key] = given.clone();
        }
    }
    value.to_string()
}

fn secret(name: &str, data: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "namespace": "upriver-system"}, "stringData": data
    })
}

fn provider(name: &str, key: Option<&str>) -> Value {
    let mut reference = json!({"name": name});
    if let Some(key) = key {
        reference["key"] = json!(key);
    }
    let spec = json!({"kubeConfig": {"secretRef": reference}, "allowedNamespaces": {"selector": {}}});
    ours("ClusterProvider", "", name, &spec)
}

fn exec() -> Value {
    json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/false"}})
}

async fn validated(stack: &Stack, name: &str, reason: &str, part: &str) {
    let object = refused(stack, "ClusterProvider", ("", name), ("Validated", reason), part).await;
    let ready = says(&object, "Ready");
    assert!(ready.starts_with(&format!("False {reason}")), "{ready}");
    assert!(!object.to_string().contains(TOKEN), "{object}");
}

fn secrets() -> Vec<Value> {
    let none = json!({});
    let good = kubeconfig(&none, &none);
    vec![
        secret("exec", &json!({"value": kubeconfig(&none, &exec())})),
        secret("plugin", &json!({"value": kubeconfig(&none, &json!({"auth-provider": {"name": "gcp"}}))})),
        secret(
            "ca-file",
            &json!({"value": kubeconfig(&json!({"certificate-authority": "/etc/ca.pem"}), &none)}),
        ),
        secret("token-file", &json!({"value": kubeconfig(&none, &json!({"tokenFile": "/var/run/token"}))})),
        secret("key-file", &json!({"value": kubeconfig(&none, &json!({"client-key": "a.pem"}))})),
        secret("blind", &json!({"value": kubeconfig(&json!({"insecure-skip-tls-verify": true}), &none)})),
        secret("garbage", &json!({"value": format!("{TOKEN}: [")})),
        secret("empty", &json!({"value": ""})),
        secret("other-key", &json!({"value": good})),
        secret("first", &json!({"value": good, "value.yaml": "garbage"})),
        secret("second", &json!({"value.yaml": good})),
        secret("explicit", &json!({"value": "garbage", "config": good})),
    ]
}

#[tokio::test]
async fn row_24_a_kubeconfig_that_would_run_read_or_trust_too_much_is_refused_by_name() {
    let stack = start(1).await;
    let mirror = stack.mirror(MirrorSpec::new("shop").types([resources::config_maps()])).await;
    stack.apply(User::Admin, &secrets()).await.expect("stored");
    let names = [
        "exec",
        "plugin",
        "ca-file",
        "token-file",
        "key-file",
        "blind",
        "garbage",
        "empty",
        "first",
        "second",
    ];
    let mut providers: Vec<Value> = names.iter().map(|name| provider(name, None)).collect();
    providers.extend([
        provider("nowhere", None),
        provider("other-key", Some("config")),
        provider("explicit", Some("config")),
    ]);
    stack.apply(User::Admin, &providers).await.expect("stored");

    validated(&stack, "exec", "KubeConfigExecNotAllowed", "--insecure-kubeconfig-exec").await;
    validated(&stack, "plugin", "KubeConfigExecNotAllowed", "--insecure-kubeconfig-exec").await;
    validated(&stack, "ca-file", "KubeConfigFileReferenceNotAllowed", "certificate-authority").await;
    validated(&stack, "token-file", "KubeConfigFileReferenceNotAllowed", "tokenFile").await;
    validated(&stack, "key-file", "KubeConfigFileReferenceNotAllowed", "client-key").await;
    validated(&stack, "blind", "KubeConfigInsecureTLSNotAllowed", "--insecure-kubeconfig-tls").await;
    validated(&stack, "garbage", "KubeConfigInvalid", "kubectl config view").await;
    validated(&stack, "empty", "KubeConfigKeyNotFound", "value or value.yaml").await;
    validated(&stack, "other-key", "KubeConfigKeyNotFound", "under config").await;
    validated(&stack, "nowhere", "KubeConfigSecretNotFound", "upriver-system/nowhere").await;
    until_event(&stack, "", "ClusterProvider", "exec", "Warning KubeConfigExecNotAllowed").await;
    for name in ["first", "second", "explicit"] {
        until(&stack, "ClusterProvider", "", name, ("Validated", "True", "Validated")).await;
        stack.wait_ready("ClusterProvider", "", name, SOON).await;
    }
    until(&stack, "ClusterProvider", "", "default", ("Validated", "True", "InCluster")).await;

    // Targets of another cluster are not built yet, and say so.
    let remote = target("shop", "remote", "git", "remote", &json!({"clusterProviderRef": {"name": "first"}}));
    stack.apply(User::Admin, &[remote]).await.expect("stored");
    refused(&stack, "GitTarget", ("shop", "remote"), ("Validated", "NotYetSupported"), "kubeConfig").await;

    let good = kubeconfig(&json!({}), &json!({}));
    // Contents change without an event: a Secret that comes, one that goes bad, one that goes.
    let changed = [secret("nowhere", &json!({"value": good})), secret("exec", &json!({"value": good}))];
    stack.apply(User::Admin, &changed).await.expect("stored");
    for name in ["nowhere", "exec"] {
        until(&stack, "ClusterProvider", "", name, ("Validated", "True", "Validated")).await;
    }
    Edits::new(stack.client(User::Alice), "shop").create("a", "1").await;
    stack.until_in_git(&mirror, SOON).await;
    assert!(!stack.operator(0).log().contains(TOKEN));
}

#[tokio::test]
async fn two_flags_permit_programs_and_unchecked_certificates_and_none_permits_files() {
    let flags = [QUICK[0], QUICK[1], "--insecure-kubeconfig-exec", "--insecure-kubeconfig-tls=true"];
    let stack = Stack::start(StackOptions::default().operators(1, &flags)).await;
    let none = json!({});
    let objects = [
        secret("exec", &json!({"value": kubeconfig(&none, &exec())})),
        secret("blind", &json!({"value": kubeconfig(&json!({"insecure-skip-tls-verify": true}), &none)})),
        secret(
            "ca-file",
            &json!({"value": kubeconfig(&json!({"certificate-authority": "/etc/ca.pem"}), &none)}),
        ),
        provider("exec", None),
        provider("blind", None),
        provider("ca-file", None),
    ];
    stack.apply(User::Admin, &objects).await.expect("stored");
    for name in ["exec", "blind"] {
        until(&stack, "ClusterProvider", "", name, ("Validated", "True", "Validated")).await;
    }
    validated(&stack, "ca-file", "KubeConfigFileReferenceNotAllowed", "certificate-authority").await;
}

#[tokio::test]
async fn the_finalizer_of_the_former_operator_does_not_hold_a_provider_back() {
    let stack = start(1).await;
    let mut old = ours("ClusterProvider", "", "old", &json!({}));
    old["metadata"]["finalizers"] = json!(["configbutler.ai/clusterprovider-fact-purge", "example.net/kept"]);
    stack.apply(User::Admin, &[old]).await.expect("stored");
    delete(&stack, "ClusterProvider", "", "old").await;
    let finalizers = upriver_testkit::eventually("the finalizer to go", SOON, async || {
        let object = stack.get("ClusterProvider", "", "old").await?;
        let finalizers = object["metadata"]["finalizers"].clone();
        if finalizers.to_string().contains("fact-purge") {
            Err(finalizers.to_string())
        } else {
            Ok(finalizers)
        }
    })
    .await;
    assert_eq!(finalizers, json!(["example.net/kept"]), "only ours is removed");
}

#[tokio::test]
async fn a_secret_that_cannot_be_read_now_changes_no_status() {
    let stack = start(1).await;
    let good = kubeconfig(&json!({}), &json!({}));
    let objects = [secret("known", &json!({"value": good})), secret("dark", &json!({"value": good}))];
    stack.apply(User::Admin, &objects).await.expect("stored");
    stack.apply(User::Admin, &[provider("known", None)]).await.expect("stored");
    stack.wait_ready("ClusterProvider", "", "known", SOON).await;

    narrow(&stack, &["configmaps"]).await;
    stack.apply(User::Admin, &[provider("dark", None)]).await.expect("stored");
    // An edit, so that the known one is read again as well.
    let touched = with_spec(provider("known", None), &json!({"allowedNamespaces": {"names": ["shop"]}}));
    stack.apply(User::Admin, &[touched]).await.expect("stored");
    upriver_testkit::eventually("both refusals in the log", SOON, async || {
        let log = stack.operator(0).log();
        let refused = |name: &str| {
            log.lines().any(|line| line.contains("could not be read; trying again") && line.contains(name))
        };
        if refused("dark") && refused("known") { Ok(()) } else { Err(stack.operator(0).tail_log()) }
    })
    .await;
    let dark = stack.get("ClusterProvider", "", "dark").await.expect("readable");
    assert_eq!(dark["status"]["conditions"], Value::Null, "nothing definite is known");
    let known = stack.get("ClusterProvider", "", "known").await.expect("readable");
    assert!(says(&known, "Validated").starts_with("True Validated"), "{known}");
    widen(&stack).await;
    for name in ["dark", "known"] {
        stack.wait_ready("ClusterProvider", "", name, SOON).await;
    }
}
