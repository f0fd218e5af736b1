//! A broken reference, URL, credential or branch gives Ready=False with a reason and a next action; what is not built yet
//! says so. Other objects are not affected.

use serde_json::{Value, json};
use upriver_testkit::stack::{self, MirrorSpec, Stack, resources};
use upriver_testkit::{User, eventually};

use crate::foreign_files::condition;
use crate::support::{Edits, SOON, stack as start};

/// Waits for the refusal of an object in `shop`.
pub async fn refused(stack: &Stack, kind: &str, name: &str, type_: &str, reason: &str, says: &str) {
    let what = format!("{kind} {name}: {type_} False, {reason}");
    let found = eventually(&what, SOON, async || {
        let object = stack.get(kind, "shop", name).await?;
        let found = condition(&object, type_, "False")?;
        if found["reason"] == reason { Ok(found) } else { Err(found.to_string()) }
    })
    .await;
    let message = found["message"].as_str().unwrap_or_default();
    assert!(message.contains(says), "{kind} {name}: {message:?} does not say {says:?}");
    let object = stack.get(kind, "shop", name).await.expect("readable");
    condition(&object, "Ready", "False").expect("Ready is False too");
    condition(&object, "Stalled", "True").expect("a person has to act");
}

fn target(name: &str, provider: &str, branch: &str, path: &str, more: Value) -> Value {
    let mut target = stack::git_target("shop", name, provider, branch, path);
    merge(&mut target["spec"], more);
    target
}

fn provider(name: &str, url: &str, more: Value) -> Value {
    let mut provider = stack::git_provider("shop", name, url, "1s");
    merge(&mut provider["spec"], json!({"secretRef": {"name": "git"}}));
    merge(&mut provider["spec"], more);
    provider
}

fn merge(into: &mut Value, more: Value) {
    if let (Value::Object(into), Value::Object(more)) = (into, more) {
        into.extend(more);
    }
}

#[tokio::test]
async fn what_is_wrong_is_named_with_a_next_action_and_the_rest_goes_on() {
    let stack = start(1).await;
    let mirror = stack.mirror(MirrorSpec::new("shop").types([resources::config_maps()])).await;
    let url = stack.repo_url();
    let bad_login = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "wrong", "namespace": "shop"},
        "stringData": {"username": "git", "password": "not-it"}
    });
    let no_password = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "half", "namespace": "shop"},
        "stringData": {"username": "git"}
    });
    let objects = [
        bad_login,
        no_password,
        provider("login", &url, json!({"secretRef": {"name": "wrong"}})),
        provider("half", &url, json!({"secretRef": {"name": "half"}})),
        provider("absent", &url, json!({"secretRef": {"name": "nowhere"}})),
        provider("gone", "http://127.0.0.1:9/none.git", json!({})),
        provider("file", "file:///etc", json!({})),
        provider("ssh", "ssh://git@example.net/a/b.git", json!({})),
        provider("signed", &url, json!({"commit": {"signing": {"secretRef": {"name": "key"}}}})),
        provider("narrow", &url, json!({"allowedBranches": ["release/*"]})),
        target("no-provider", "missing", "main", "a", json!({})),
        target("branch", "narrow", "main", "b", json!({})),
        target("bad-branch", "narrow", "release/..", "b", json!({})),
        target("cluster", "narrow", "release/1", "c", json!({"clusterProviderRef": {"name": "nowhere"}})),
        target("absolute", "narrow", "release/1", "/etc", json!({})),
        target("dots", "narrow", "release/1", "a/../b", json!({})),
        target("git-dir", "narrow", "release/1", "a/.GIT/b", json!({})),
        target("always", "narrow", "release/1", "e", json!({"prune": {"mode": "Always"}})),
        target("template", "narrow", "release/1", "f", json!({"placement": {"default": "{team}/x.yaml"}})),
    ];
    stack.apply(User::Admin, &objects).await.expect("the API server stores all of them");

    refused(&stack, "GitProvider", "login", "Ready", "ConnectionFailed", "configure_credentials").await;
    refused(&stack, "GitProvider", "half", "Ready", "SecretMalformed", "password").await;
    refused(&stack, "GitProvider", "absent", "Ready", "SecretNotFound", "create it").await;
    refused(&stack, "GitProvider", "gone", "Ready", "ConnectionFailed", "next action: wait").await;
    refused(&stack, "GitProvider", "file", "Ready", "ConnectionFailed", "https").await;
    refused(&stack, "GitProvider", "ssh", "Ready", "NotYetSupported", "SSH").await;
    refused(&stack, "GitProvider", "signed", "Ready", "NotYetSupported", "signing").await;
    refused(&stack, "GitTarget", "no-provider", "Validated", "ProviderNotFound", "create it").await;
    refused(&stack, "GitTarget", "branch", "Validated", "BranchNotAllowed", "allowedBranches").await;
    refused(&stack, "GitTarget", "bad-branch", "Validated", "InvalidConfig", "release/..").await;
    refused(&stack, "GitTarget", "cluster", "Validated", "ClusterProviderNotFound", "create it").await;
    refused(&stack, "GitTarget", "absolute", "Validated", "InvalidConfig", "spec.path").await;
    refused(&stack, "GitTarget", "dots", "Validated", "InvalidConfig", "spec.path").await;
    refused(&stack, "GitTarget", "git-dir", "Validated", "InvalidConfig", "spec.path").await;
    refused(&stack, "GitTarget", "always", "Validated", "NotYetSupported", "OnEvent").await;
    refused(&stack, "GitTarget", "template", "Validated", "InvalidConfig", "placement").await;

    Edits::new(stack.client(User::Alice), "shop").create("a", "1").await;
    stack.until_in_git(&mirror, SOON).await;
    rules_and_other_kinds(&stack).await;
    overlap(&stack).await;
}

async fn rules_and_other_kinds(stack: &Stack) {
    let rule = |name: &str, target: &str, item: Value| {
        json!({
            "apiVersion": "configbutler.ai/v1alpha3", "kind": "WatchRule",
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {"targetRef": {"name": target}, "rules": [item]}
        })
    };
    let objects = [
        rule("orphan", "nowhere", json!({"resources": ["configmaps"]})),
        rule("elsewhere", "mirror", json!({"resources": ["configmaps"], "sourceNamespace": "other"})),
        json!({
            "apiVersion": "configbutler.ai/v1alpha3", "kind": "CommitRequest",
            "metadata": {"name": "save", "namespace": "shop"},
            "spec": {"targetRef": {"name": "mirror"}}
        }),
    ];
    stack.apply(User::Admin, &objects).await.expect("stored");
    refused(stack, "WatchRule", "orphan", "GitTargetReady", "GitTargetNotFound", "create it").await;
    refused(stack, "WatchRule", "elsewhere", "Ready", "SourceNamespaceNotAllowed", "allowedSourceNamespaces")
        .await;
    refused(stack, "CommitRequest", "save", "Ready", "NotYetSupported", "not supported yet").await;
}

/// The younger of two targets on one path loses, whatever its provider is called, and runs when the older one goes.
async fn overlap(stack: &Stack) {
    let url = stack.repo_url();
    let twin = provider("twin", &format!("{}/", url.trim_end_matches(".git")), json!({}));
    let inner = target("inner", "twin", "main", "shop/inner", json!({}));
    stack.apply(User::Admin, &[twin, inner]).await.expect("stored");
    refused(stack, "GitTarget", "inner", "Validated", "TargetConflict", "delete one").await;
    let targets: kube::Api<upriver_api::GitTarget> = kube::Api::namespaced(stack.client(User::Admin), "shop");
    targets.delete("mirror", &kube::api::DeleteParams::default()).await.expect("deleted");
    stack.wait_ready("GitTarget", "shop", "inner", SOON).await;
}
