//! The contract's table of invalid inputs, where the API server stores the object and a condition has to name the error.
//! Numbers in names are its rows; those that the API server refuses are tested beside the CRDs. Other objects go on.

use serde_json::{Value, json};
use upriver_testkit::User;
use upriver_testkit::stack::{self, MirrorSpec, Stack, resources};

use crate::states::{delete, ours, refused, says, target, until, until_event, with_spec};
use crate::support::{Edits, SOON, stack as start};

async fn mirror(stack: &Stack) -> stack::Mirror {
    stack.mirror(MirrorSpec::new("shop").types([resources::config_maps()])).await
}

/// The mirror beside the broken objects still mirrors.
async fn goes_on(stack: &Stack, mirror: &stack::Mirror, name: &str) {
    Edits::new(stack.client(User::Alice), "shop").create(name, "1").await;
    stack.until_in_git(mirror, SOON).await;
}

fn provider(name: &str, url: &str, more: &Value) -> Value {
    let provider = stack::git_provider("shop", name, url, "1s");
    with_spec(with_spec(provider, &json!({"secretRef": {"name": "git"}})), more)
}

#[tokio::test]
async fn rows_6_and_7_a_half_secret_and_a_window_that_is_no_duration() {
    let stack = start(1).await;
    let mirror = mirror(&stack).await;
    let half = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "half", "namespace": "shop"},
        "stringData": {"username": "git"}
    });
    let url = stack.repo_url();
    let objects = [
        half,
        provider("half", &url, &json!({"secretRef": {"name": "half"}})),
        provider("spaced", &url, &json!({"push": {"commitWindow": "5 s"}})),
        provider("days", &url, &json!({"push": {"commitWindow": "1d"}})),
        target("shop", "days", "days", "days", &json!({})),
        stack::watch_rule("shop", "days", "days", &[resources::config_maps()]),
    ];
    stack.apply(User::Admin, &objects).await.expect("the API server stores all of them");
    refused(&stack, "GitProvider", ("shop", "half"), ("Ready", "SecretMalformed"), "password").await;
    for name in ["spaced", "days"] {
        until(&stack, "GitProvider", "shop", name, ("Ready", "True", "Succeeded")).await;
        until_event(&stack, "shop", "GitProvider", name, "Warning CommitWindowInvalid").await;
    }
    // It runs as five seconds, and not as a day.
    goes_on(&stack, &mirror, "a").await;
    stack.wait_ready("WatchRule", "shop", "days", SOON).await;
    goes_on(&stack, &mirror, "b").await;
    let file = "days/shop/configmaps/b.yaml";
    upriver_testkit::eventually("the odd window to close", SOON, async || stack.repo().show("main", file))
        .await;
}

#[tokio::test]
async fn rows_9_14_16_17_and_18_targets_that_cannot_run() {
    let stack = start(1).await;
    let mirror = mirror(&stack).await;
    stack.plane().create_namespace("outside").await;
    let url = stack.repo_url();
    let placement = |value: Value| json!({"placement": value});
    let secrets = "{namespace}/{name}{sensitiveSuffix}";
    let bad_places = [
        ("team", placement(json!({"default": "{team}/x.yaml"})), "team"),
        ("outward", placement(json!({"default": "../x.yaml"})), ".."),
        ("text", placement(json!({"default": "x.txt"})), "x.txt"),
        ("key", placement(json!({"byType": {"deployments": "{name}.yaml"}})), "deployments"),
        ("all", placement(json!({"default": "all.yaml"})), "v1/secrets"),
        (
            "all-flat",
            placement(json!({"default": "all.yaml", "byType": {"v1/secrets": "{name}.yaml"}})),
            "v1/secrets",
        ),
    ];
    let mut objects = vec![
        with_spec(stack::cluster_provider(), &json!({"allowedNamespaces": {"names": ["shop"]}})),
        provider("one-level", &url, &json!({"allowedBranches": ["*"]})),
        target("shop", "absolute", "git", "/etc", &json!({})),
        target("shop", "dots", "git", "a/../b", &json!({})),
        stack::git_target("shop", "deep", "one-level", "dev/x", "deep"),
        stack::git_secret("outside", "git"),
        stack::git_provider("outside", "git", &url, "1s"),
        target("outside", "stranger", "git", "stranger", &json!({})),
        target("shop", "nowhere", "git", "nowhere", &json!({"clusterProviderRef": {"name": "nowhere"}})),
        // Several objects in one file, but Secrets apart: a good placement that is not built yet.
        target(
            "shop",
            "bundle",
            "git",
            "bundle",
            &placement(json!({"default": "all.yaml", "byType": {"v1/secrets": secrets}})),
        ),
    ];
    objects.extend(bad_places.iter().map(|(name, more, _)| target("shop", name, "git", name, more)));
    stack.apply(User::Admin, &objects).await.expect("the API server stores all of them");

    let validated = async |at: (&str, &str), reason: &str, part: &str| {
        let object = refused(&stack, "GitTarget", at, ("Validated", reason), part).await;
        let ready = says(&object, "Ready");
        assert!(ready.starts_with("False ValidationFailed"), "{ready}");
        assert!(says(&object, "StreamsRunning").starts_with("Unknown NotReady"));
        assert!(says(&object, "GitPathAccepted").starts_with("Unknown NotChecked"));
        assert!(says(&object, "SourceClusterReachable").starts_with("Unknown Blocked"));
        assert_eq!(object["status"]["streams"], Value::Null);
    };
    validated(("shop", "absolute"), "InvalidConfig", "spec.path").await;
    validated(("shop", "dots"), "InvalidConfig", "spec.path").await;
    validated(("shop", "deep"), "BranchNotAllowed", "allowedBranches").await;
    validated(("outside", "stranger"), "NamespaceNotAuthorized", "allowedNamespaces").await;
    validated(("shop", "nowhere"), "ClusterProviderNotFound", "create it").await;
    for (name, _, part) in &bad_places {
        validated(("shop", name), "InvalidConfig", part).await;
    }
    refused(&stack, "GitTarget", ("shop", "bundle"), ("Validated", "NotYetSupported"), "{name}").await;
    goes_on(&stack, &mirror, "a").await;
    admission_by_label(&stack, &mirror).await;
}

/// Admission is looked at in every pass: by label, it comes and goes without an edit of ours.
async fn admission_by_label(stack: &Stack, mirror: &stack::Mirror) {
    let by_label =
        json!({"allowedNamespaces": {"names": ["shop"], "selector": {"matchLabels": {"admit": "yes"}}}});
    stack.apply(User::Admin, &[with_spec(stack::cluster_provider(), &by_label)]).await.expect("stored");
    let labelled = |value: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "outside", "labels": {"admit": value}}});
    stack.apply(User::Admin, &[labelled("yes")]).await.expect("labelled");
    stack.wait_ready("GitTarget", "outside", "stranger", SOON).await;
    stack.apply(User::Admin, &[labelled("no")]).await.expect("labelled");
    let wanted = ("Validated", "NamespaceNotAuthorized");
    refused(stack, "GitTarget", ("outside", "stranger"), wanted, "allowedNamespaces").await;
    goes_on(stack, mirror, "b").await;
}

#[tokio::test]
async fn row_15_one_folder_has_one_owner_over_all_namespaces() {
    let stack = start(1).await;
    stack.plane().create_namespace("yard").await;
    stack.plane().create_namespace("outside").await;
    stack.plane().create_namespace("shop").await;
    let url = stack.repo_url();
    // The same repository in other words.
    let twin = format!("{}/", url.trim_end_matches(".git"));
    let admitted = json!({"allowedNamespaces": {"names": ["shop", "yard"]}});
    let broken = json!({"placement": {"default": "x.txt"}});
    let objects = [
        with_spec(stack::cluster_provider(), &admitted),
        stack::git_secret("shop", "git"),
        stack::git_provider("shop", "git", &url, "1s"),
        stack::git_secret("yard", "git"),
        stack::git_provider("yard", "git", &twin, "1s"),
        stack::git_secret("outside", "git"),
        stack::git_provider("outside", "git", &url, "1s"),
        // The oldest of all wants everything, and has no right to anything.
        target("outside", "greedy", "git", ".", &json!({})),
    ];
    stack.apply(User::Admin, &objects).await.expect("stored");
    refused(
        &stack,
        "GitTarget",
        ("outside", "greedy"),
        ("Validated", "NamespaceNotAuthorized"),
        "allowedNamespaces",
    )
    .await;

    stack
        .apply(User::Admin, &[target("shop", "outer", "git", "clusters", &json!({}))])
        .await
        .expect("stored");
    stack.wait_ready("GitTarget", "shop", "outer", SOON).await;
    let younger = [
        target("yard", "inner", "git", "clusters/a", &json!({})),
        target("yard", "same", "git", "./clusters/", &json!({})),
        target("yard", "sibling", "git", "clusters-a", &json!({})),
        stack::git_target("yard", "branch", "git", "side", "clusters"),
    ];
    stack.apply(User::Admin, &younger).await.expect("stored");
    for name in ["inner", "same"] {
        let object =
            refused(&stack, "GitTarget", ("yard", name), ("Validated", "TargetConflict"), "delete one").await;
        assert!(!says(&object, "Validated").contains("shop"), "names nothing of another namespace");
    }
    stack.wait_ready("GitTarget", "yard", "sibling", SOON).await;
    stack.wait_ready("GitTarget", "yard", "branch", SOON).await;

    // A typo in the owner does not hand its folder over; its end does, to the older of the two that wait.
    stack.apply(User::Admin, &[target("shop", "outer", "git", "clusters", &broken)]).await.expect("stored");
    refused(&stack, "GitTarget", ("shop", "outer"), ("Validated", "InvalidConfig"), "placement").await;
    refused(&stack, "GitTarget", ("yard", "inner"), ("Validated", "TargetConflict"), "delete one").await;
    delete(&stack, "GitTarget", "shop", "outer").await;
    stack.wait_ready("GitTarget", "yard", "inner", SOON).await;
    refused(&stack, "GitTarget", ("yard", "same"), ("Validated", "TargetConflict"), "delete one").await;
}

const RECIPIENT: &str = "age1qqqsyqcyq5rqwzqfpg9scrgwpugpzysnzs23v9ccrydpk8qarc0savhh7m";
const IDENTITY: &str = "AGE-SECRET-KEY-1QQQSYQCYQ5RQWZQFPG9SCRGWPUGPZYSNZS23V9CCRYDPK8QARC0SWRYDWG";

fn age(secret: Option<&str>, recipients: &Value) -> Value {
    let mut encryption = json!({"age": {"enabled": true, "recipients": recipients}});
    if let Some(name) = secret {
        encryption["secretRef"] = json!({"name": name});
    }
    json!({"encryption": encryption})
}

fn keys(name: &str, entry: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "shop"},
        "stringData": {entry: value}
    })
}

#[tokio::test]
async fn row_19_encryption_that_cannot_work_is_named_and_everything_but_secrets_is_written() {
    let stack = start(1).await;
    let mirror = mirror(&stack).await;
    let extract = json!({"extractFromSecret": true});
    let cases = [
        ("nobody", age(None, &json!({})), "InvalidConfig", "publicKeys"),
        (
            "lonely",
            age(Some("good"), &json!({"generateWhenMissing": true})),
            "InvalidConfig",
            "extractFromSecret",
        ),
        (
            "nameless",
            age(None, &json!({"extractFromSecret": true, "generateWhenMissing": true})),
            "InvalidConfig",
            "secretRef",
        ),
        ("typo", age(None, &json!({"publicKeys": ["age1typo"]})), "InvalidConfig", "publicKeys[0]"),
        ("damaged", age(Some("damaged"), &extract), "InvalidConfig", "b.agekey"),
        ("absent", age(Some("absent"), &extract), "MissingSecret", "create it"),
        ("empty", age(Some("git"), &extract), "InvalidConfig", ".agekey"),
        ("listed", age(None, &json!({"publicKeys": [RECIPIENT]})), "NotYetSupported", "remove it"),
        ("extracted", age(Some("good"), &extract), "NotYetSupported", "remove it"),
    ];
    let mut objects = vec![
        keys("good", "a.agekey", &format!("# a comment\n{IDENTITY}\n")),
        keys("damaged", "b.agekey", "AGE-SECRET-KEY-1PLANTED"),
    ];
    for (name, more, ..) in &cases {
        objects.push(target("shop", name, "git", name, more));
        objects.push(stack::watch_rule("shop", name, name, &[resources::config_maps()]));
    }
    stack.apply(User::Admin, &objects).await.expect("stored");
    Edits::new(stack.client(User::Alice), "shop").create("a", "1").await;
    for (name, _, reason, part) in &cases {
        let object =
            refused(&stack, "GitTarget", ("shop", name), ("EncryptionConfigured", reason), part).await;
        let trio = if *reason == "NotYetSupported" { reason } else { "EncryptionNotConfigured" };
        assert!(says(&object, "Ready").starts_with(&format!("False {trio}")), "{}", says(&object, "Ready"));
        assert!(says(&object, "Validated").starts_with("True"));
        let file = format!("{name}/shop/configmaps/a.yaml");
        upriver_testkit::eventually(&file, SOON, async || stack.repo().show("main", &file)).await;
    }
    // A Secret that is created is noticed, without an edit of the target.
    stack.apply(User::Admin, &[keys("absent", "a.agekey", IDENTITY)]).await.expect("stored");
    until(&stack, "GitTarget", "shop", "absent", ("EncryptionConfigured", "False", "NotYetSupported")).await;
    goes_on(&stack, &mirror, "b").await;
    assert!(!stack.operator(0).log().contains("PLANTED") && !stack.operator(0).log().contains(IDENTITY));
}

#[tokio::test]
async fn row_30_a_request_for_a_target_that_never_comes_fails_and_stays_failed() {
    let stack = start(1).await;
    let mirror = mirror(&stack).await;
    let request = |name: &str, target: &str| {
        ours("CommitRequest", "shop", name, &json!({"targetRef": {"name": target}}))
    };
    let objects = [request("orphan", "nowhere"), request("early", "late"), request("save", "mirror")];
    stack.apply(User::Admin, &objects).await.expect("stored");
    until(&stack, "CommitRequest", "shop", "orphan", ("Ready", "False", "WaitingForCloseDelay")).await;
    refused(&stack, "CommitRequest", ("shop", "save"), ("Ready", "NotYetSupported"), "not supported").await;
    stack.apply(User::Admin, &[target("shop", "late", "git", "late", &json!({}))]).await.expect("stored");
    refused(&stack, "CommitRequest", ("shop", "early"), ("Ready", "NotYetSupported"), "not supported").await;
    let failed =
        refused(&stack, "CommitRequest", ("shop", "orphan"), ("Ready", "FinalizeFailed"), "shop/nowhere")
            .await;
    assert!(says(&failed, "Pushed").starts_with("False FinalizeFailed"));
    stack
        .apply(User::Admin, &[target("shop", "nowhere", "git", "nowhere", &json!({}))])
        .await
        .expect("stored");
    stack.wait_ready("GitTarget", "shop", "nowhere", SOON).await;
    goes_on(&stack, &mirror, "a").await;
    let after = stack.get("CommitRequest", "shop", "orphan").await.expect("readable");
    assert_eq!(after["status"], failed["status"], "an end is an end");
    let events = crate::states::events_of(&stack, "shop", "CommitRequest", "orphan").await;
    assert!(events.is_empty(), "no Events about requests: {events:?}");
}

#[tokio::test]
async fn a_provider_that_becomes_ready_wakes_its_target_and_rule_at_once() {
    // The replica that shows the provider and the one that owns the branch need not be the same.
    let stack = start(2).await;
    let mirror = mirror(&stack).await;
    let mut wrong = stack::git_secret("shop", "late");
    wrong["stringData"]["password"] = json!("not-it");
    let objects = [
        wrong,
        provider("late", &stack.repo_url(), &json!({"secretRef": {"name": "late"}})),
        target("shop", "late", "late", "late", &json!({})),
        stack::watch_rule("shop", "late", "late", &[resources::config_maps()]),
    ];
    stack.apply(User::Admin, &objects).await.expect("stored");
    until(&stack, "GitProvider", "shop", "late", ("Ready", "False", "ConnectionFailed")).await;
    until(&stack, "GitTarget", "shop", "late", ("GitProviderReady", "False", "GitProviderNotReady")).await;
    // The right password, and an edit so that it is tried at once.
    stack.apply(User::Admin, &[stack::git_secret("shop", "late")]).await.expect("stored");
    let change = json!({"secretRef": {"name": "late"}, "push": {"commitWindow": "2s"}});
    stack.apply(User::Admin, &[provider("late", &stack.repo_url(), &change)]).await.expect("stored");
    until(&stack, "GitProvider", "shop", "late", ("Ready", "True", "Succeeded")).await;
    let ready = std::time::Instant::now();
    until(&stack, "GitTarget", "shop", "late", ("GitProviderReady", "True", "GitProviderReady")).await;
    // Far below the ten seconds after which every object is looked at anyway.
    assert!(ready.elapsed() < std::time::Duration::from_secs(5), "{:?}", ready.elapsed());
    stack.wait_ready("WatchRule", "shop", "late", SOON).await;
    goes_on(&stack, &mirror, "a").await;
}
