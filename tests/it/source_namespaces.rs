//! Which namespaces a WatchRule may read: row 27 of the contract's table, and policies that follow labels.

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use upriver_testkit::stack::{self, Stack, StackOptions};
use upriver_testkit::{OperatorOptions, User, eventually};

use crate::states::{narrow, refused, rule, says, target, until, widen, with_spec};
use crate::support::{Edits, QUICK, SOON, stack as start};

/// Namespaces `shop` (with a GitProvider), `blue` and `red`; the flag of the ClusterProvider as given.
async fn world(may_override: bool) -> Stack {
    fill(start(1).await, may_override).await
}

async fn fill(stack: Stack, may_override: bool) -> Stack {
    for namespace in ["shop", "blue", "red"] {
        stack.plane().create_namespace(namespace).await;
    }
    let objects = [
        cluster_provider(may_override),
        stack::git_secret("shop", "git"),
        stack::git_provider("shop", "git", &stack.repo_url(), "1s"),
    ];
    stack.apply(User::Admin, &objects).await.expect("applied");
    stack
}

fn cluster_provider(may_override: bool) -> Value {
    with_spec(stack::cluster_provider(), &json!({"allowSourceNamespaceOverride": may_override}))
}

fn with_policy(name: &str, policy: &Value) -> Value {
    target("shop", name, "git", name, &json!({"allowedSourceNamespaces": policy}))
}

fn maps(namespace: Option<&str>) -> Value {
    match namespace {
        None => json!([{"resources": ["configmaps"]}]),
        Some(namespace) => json!([{"resources": ["configmaps"], "sourceNamespace": namespace}]),
    }
}

async fn label(stack: &Stack, namespace: &str, value: Option<&str>) {
    let api: Api<Namespace> = Api::all(stack.client(User::Admin));
    let patch = Patch::Merge(json!({"metadata": {"labels": {"mirror": value}}}));
    api.patch(namespace, &PatchParams::default(), &patch).await.expect("labelled");
}

async fn edit(stack: &Stack, namespace: &str, name: &str) {
    Edits::new(stack.client(User::Alice), namespace).create(name, "1").await;
}

async fn until_file(stack: &Stack, path: &str) {
    eventually(path, SOON, async || stack.repo().show("main", path)).await;
}

#[tokio::test]
async fn row_27_a_namespace_that_is_not_granted_stops_the_whole_rule_and_the_file_stays() {
    let stack = world(false).await;
    let two =
        json!([{"resources": ["configmaps"]}, {"resources": ["configmaps"], "sourceNamespace": "blue"}]);
    let objects = [
        target("shop", "free", "git", "free", &json!({})),
        with_policy("bound", &json!({"names": ["blue"]})),
        with_policy(
            "broken",
            &json!({"selector": {"matchExpressions": [{"key": "mirror", "operator": "Like"}]}}),
        ),
        rule("shop", "own", "free", &maps(None)),
        rule("shop", "own-named", "free", &maps(Some("shop"))),
        rule("shop", "no-policy", "free", &maps(Some("blue"))),
        rule("shop", "star-no-policy", "free", &maps(Some("*"))),
        rule("shop", "half", "free", &two),
        rule("shop", "flag-off", "bound", &maps(Some("blue"))),
        rule("shop", "own-excluded", "bound", &maps(None)),
        rule("shop", "broken", "broken", &maps(None)),
    ];
    stack.apply(User::Admin, &objects).await.expect("the API server stores all of them");
    let denied = async |name: &str, part: &str| {
        let wanted = ("SourceNamespaceAuthorized", "SourceNamespaceNotAllowed");
        let object = refused(&stack, "WatchRule", ("shop", name), wanted, part).await;
        assert!(
            says(&object, "Ready").starts_with("False SourceNamespaceNotAllowed"),
            "{}",
            says(&object, "Ready")
        );
        assert!(says(&object, "StreamsRunning").starts_with("False SourceNamespaceNotAllowed"));
        assert_eq!(object["status"]["streams"], Value::Null, "no streams");
    };
    denied("no-policy", "allowedSourceNamespaces").await;
    denied("star-no-policy", "allowedSourceNamespaces").await;
    denied("half", "allowedSourceNamespaces").await;
    denied("flag-off", "allowSourceNamespaceOverride").await;
    denied("own-excluded", "allowedSourceNamespaces").await;
    let wanted = ("SourceNamespaceAuthorized", "SourceNamespacePolicyUnavailable");
    refused(&stack, "WatchRule", ("shop", "broken"), wanted, "Like").await;
    for name in ["own", "own-named"] {
        until(
            &stack,
            "WatchRule",
            "shop",
            name,
            ("SourceNamespaceAuthorized", "True", "LegacySourceNamespace"),
        )
        .await;
        stack.wait_ready("WatchRule", "shop", name, SOON).await;
    }
    // The flag is given: the rule runs; taken away: it stops, and what it wrote stays.
    stack.apply(User::Admin, &[cluster_provider(true)]).await.expect("applied");
    stack.wait_ready("WatchRule", "shop", "flag-off", SOON).await;
    edit(&stack, "blue", "a").await;
    until_file(&stack, "bound/blue/configmaps/a.yaml").await;
    stack.apply(User::Admin, &[cluster_provider(false)]).await.expect("applied");
    denied("flag-off", "allowSourceNamespaceOverride").await;
    edit(&stack, "blue", "late").await;
    edit(&stack, "shop", "marker").await;
    until_file(&stack, "free/shop/configmaps/marker.yaml").await;
    let paths = stack.repo().paths("main", "bound");
    assert_eq!(paths, ["bound/blue/configmaps/a.yaml"]);
}

#[tokio::test]
async fn a_star_follows_labels_namespaces_come_and_go_and_files_stay() {
    let stack = world(true).await;
    let policy = json!({"selector": {"matchLabels": {"mirror": "yes"}}});
    let objects = [with_policy("all", &policy), rule("shop", "star", "all", &maps(Some("*")))];
    stack.apply(User::Admin, &objects).await.expect("applied");
    let source = "SourceNamespaceAuthorized";
    let rule_now =
        until(&stack, "WatchRule", "shop", "star", (source, "True", "NoAdmittedSourceNamespaces")).await;
    assert!(says(&rule_now, source).contains("label"), "{}", says(&rule_now, source));
    stack.wait_ready("WatchRule", "shop", "star", SOON).await;

    // One that is labelled, one that is created with the label.
    edit(&stack, "blue", "old").await;
    label(&stack, "blue", Some("yes")).await;
    until_file(&stack, "all/blue/configmaps/old.yaml").await;
    let new = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new", "labels": {"mirror": "yes"}}});
    stack.apply(User::Admin, &[new]).await.expect("created");
    edit(&stack, "new", "a").await;
    until_file(&stack, "all/new/configmaps/a.yaml").await;
    until(&stack, "WatchRule", "shop", "star", (source, "True", "SourceNamespaceAllowed")).await;
    edit(&stack, "red", "never").await;

    // One leaves the policy: its scope stops, its files stay, also those of objects deleted later.
    label(&stack, "blue", None).await;
    eventually("one admitted namespace", SOON, async || {
        let object = stack.get("WatchRule", "shop", "star").await?;
        let text = says(&object, source);
        if text.contains(": 1 source") { Ok(()) } else { Err(text) }
    })
    .await;
    let blue = Edits::new(stack.client(User::Alice), "blue");
    blue.delete("old").await;
    edit(&stack, "new", "b").await;
    until_file(&stack, "all/new/configmaps/b.yaml").await;
    let paths = stack.repo().paths("main", "all");
    let expected = ["all/blue/configmaps/old.yaml", "all/new/configmaps/a.yaml", "all/new/configmaps/b.yaml"];
    assert_eq!(paths, expected);

    // A policy that cannot be evaluated any more keeps what it granted, and says so.
    let broken = json!({"selector": {"matchExpressions": [{"key": "mirror", "operator": "Like"}]}});
    stack.apply(User::Admin, &[with_policy("all", &broken)]).await.expect("applied");
    let kept =
        until(&stack, "WatchRule", "shop", "star", (source, "Unknown", "SourceNamespacePolicyUnavailable"))
            .await;
    assert!(says(&kept, source).contains("go on"), "{}", says(&kept, source));
    assert!(says(&kept, "Ready").starts_with("False SourceNamespacePolicyUnavailable"));
    edit(&stack, "new", "c").await;
    until_file(&stack, "all/new/configmaps/c.yaml").await;
}

#[tokio::test]
async fn labels_that_may_not_be_read_stop_what_needs_them_and_nothing_else_until_they_may() {
    let stack = Stack::start(StackOptions::default().operators(0, &[])).await;
    let mut stack = fill(stack, true).await;
    narrow(&stack, &["secrets", "configmaps"]).await;
    label(&stack, "red", Some("yes")).await;
    let by_name = json!({"allowedNamespaces": {"names": ["shop"]}});
    let objects = [
        with_spec(cluster_provider(true), &by_name),
        with_policy("names", &json!({"names": ["blue"]})),
        with_policy("labels", &json!({"selector": {"matchLabels": {"mirror": "yes"}}})),
        rule("shop", "names", "names", &maps(Some("*"))),
        rule("shop", "labels", "labels", &maps(Some("*"))),
    ];
    stack.apply(User::Admin, &objects).await.expect("applied");
    let operator = QUICK.iter().fold(OperatorOptions::default(), |options, flag| options.arg(*flag));
    stack.add_operator(operator).await.expect("it starts without that right");

    edit(&stack, "blue", "a").await;
    until_file(&stack, "names/blue/configmaps/a.yaml").await;
    stack.wait_ready("WatchRule", "shop", "names", SOON).await;
    let wanted = ("SourceNamespaceAuthorized", "SourceNamespacePolicyUnavailable");
    refused(
        &stack,
        "WatchRule",
        ("shop", "labels"),
        wanted,
        "allow the operator to list and watch namespaces",
    )
    .await;
    // Given back, it is used without a restart.
    edit(&stack, "red", "a").await;
    widen(&stack).await;
    until_file(&stack, "labels/red/configmaps/a.yaml").await;
    until(
        &stack,
        "WatchRule",
        "shop",
        "labels",
        ("SourceNamespaceAuthorized", "True", "SourceNamespaceAllowed"),
    )
    .await;
}

/// What the namespace controller does once a namespace is empty; there is none beside a bare API server.
async fn finalize(stack: &Stack, name: &str) {
    let client = stack.client(User::Admin);
    let api: Api<Namespace> = Api::all(client.clone());
    api.delete(name, &DeleteParams::default()).await.expect("deleted");
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "spec": {"finalizers": []}});
    let request = http::Request::put(format!("/api/v1/namespaces/{name}/finalize"))
        .header("content-type", "application/json")
        .body(body.to_string().into_bytes())
        .expect("a well-formed path");
    client.request_text(request).await.expect("finalized");
    eventually("the namespace to be gone", SOON, async || match api.get_opt(name).await {
        Ok(None) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
}

#[tokio::test]
async fn a_namespace_deleted_with_all_that_is_in_it_leaves_no_file_behind() {
    let stack = world(true).await;
    let policy = json!({"selector": {"matchLabels": {"mirror": "yes"}}});
    let objects = [with_policy("all", &policy), rule("shop", "star", "all", &maps(Some("*")))];
    stack.apply(User::Admin, &objects).await.expect("applied");
    for namespace in ["blue", "red"] {
        label(&stack, namespace, Some("yes")).await;
        edit(&stack, namespace, "a").await;
        until_file(&stack, &format!("all/{namespace}/configmaps/a.yaml")).await;
    }
    // Namespace and content are gone before the operator hears of either.
    stack.operator(0).pause();
    Edits::new(stack.client(User::Alice), "blue").delete("a").await;
    finalize(&stack, "blue").await;
    stack.operator(0).resume();
    eventually("the file to go", SOON, async || {
        let left = stack.repo().paths("main", "all");
        if left == ["all/red/configmaps/a.yaml"] { Ok(()) } else { Err(left) }
    })
    .await;
    edit(&stack, "red", "b").await;
    until_file(&stack, "all/red/configmaps/b.yaml").await;
}
