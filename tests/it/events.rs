//! Events: one for each stored change of Ready, a series where it flaps, and no harm where they cannot be written.

use serde_json::json;
use upriver_testkit::stack::{MirrorSpec, resources};
use upriver_testkit::{User, eventually};

use crate::states::{events_of, target, until, until_event};
use crate::support::{Edits, SOON, stack as start};

#[tokio::test]
async fn a_change_of_ready_is_told_once_and_a_flapping_one_is_counted() {
    let stack = start(1).await;
    let mirror = stack.mirror(MirrorSpec::new("shop").types([resources::config_maps()])).await;
    for (namespace, kind, name) in [
        ("shop", "GitProvider", "git"),
        ("shop", "GitTarget", "mirror"),
        ("shop", "WatchRule", "mirror"),
        ("", "ClusterProvider", "default"),
    ] {
        until_event(&stack, namespace, kind, name, "Normal Succeeded").await;
    }
    let good = json!({});
    let bad = json!({"placement": {"default": "x.txt"}});
    for _ in 0..3 {
        stack.apply(User::Admin, &[target("shop", "flap", "git", "flap", &bad)]).await.expect("applied");
        until(&stack, "GitTarget", "shop", "flap", ("Ready", "False", "ValidationFailed")).await;
        let mut fixed = target("shop", "flap", "git", "flap", &good);
        fixed["spec"]["placement"] =
            json!({"default": "{namespaceOrCluster}/{groupPath}/{version}/{resource}/{name}.yaml"});
        stack.apply(User::Admin, &[fixed]).await.expect("applied");
        until(&stack, "GitTarget", "shop", "flap", ("Ready", "True", "Succeeded")).await;
    }
    let events = eventually("three times each", SOON, async || {
        let events = events_of(&stack, "shop", "GitTarget", "flap").await;
        let seen = |text: &str| events.iter().any(|(found, count)| found == text && *count == 3);
        if seen("Warning ValidationFailed") && seen("Normal Succeeded") {
            Ok(events)
        } else {
            Err(format!("{events:?}"))
        }
    })
    .await;
    let failures = events.iter().filter(|(text, _)| text == "Warning ValidationFailed").count();
    assert_eq!(failures, 1, "one Event with a series, not three: {events:?}");

    // Nothing changed, so nothing is told: an edit that is mirrored makes no Event.
    let before = events_of(&stack, "shop", "GitTarget", "mirror").await;
    Edits::new(stack.client(User::Alice), "shop").create("a", "1").await;
    stack.until_in_git(&mirror, SOON).await;
    assert_eq!(events_of(&stack, "shop", "GitTarget", "mirror").await, before);
}

#[tokio::test]
async fn events_that_are_refused_disturb_nothing() {
    let stack = start(1).await;
    let mirror = stack.mirror(MirrorSpec::new("shop").types([resources::config_maps()])).await;
    let events = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: no-events}\n\
        spec:\n  failurePolicy: Fail\n  matchConstraints:\n    resourceRules:\n    - apiGroups: [events.k8s.io]\n      \
        apiVersions: [v1]\n      operations: [CREATE, UPDATE]\n      resources: [events]\n  validations:\n  \
        - {expression: 'false', message: no events here}\n---\n\
        apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {name: no-events}\n\
        spec: {policyName: no-events, validationActions: [Deny]}\n";
    stack.plane().apply_yaml(User::Admin, events).await.expect("applied");
    for round in 0..5 {
        let bad = target("shop", &format!("bad-{round}"), "git", "/etc", &json!({}));
        stack.apply(User::Admin, &[bad]).await.expect("applied");
        until(&stack, "GitTarget", "shop", &format!("bad-{round}"), ("Ready", "False", "ValidationFailed"))
            .await;
    }
    Edits::new(stack.client(User::Alice), "shop").create("a", "1").await;
    stack.until_in_git(&mirror, SOON).await;
    stack.wait_ready("GitTarget", "shop", "mirror", SOON).await;
}
