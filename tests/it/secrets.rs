use std::path::Path;

use serde_json::json;
use upriver_model::Gvr;
use upriver_testkit::stack::{MirrorSpec, resources};
use upriver_testkit::{User, eventually};

use crate::foreign_files::condition;
use crate::support::{Edits, SOON, stack};

const PLANTED: &str = "correct-horse-battery-staple";

#[tokio::test]
async fn a_secret_is_skipped_with_a_condition_and_a_metric_and_never_written() {
    let stack = stack(1).await;
    let types = [resources::config_maps(), Gvr::new("", "v1", "secrets")];
    let mirror = stack.apply_mirror(MirrorSpec::new("shop").types(types)).await.expect("applied");
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "planted", "namespace": "shop"},
        "stringData": {"password": PLANTED}
    });
    stack.apply(User::Alice, &[secret]).await.expect("applied");
    let file = mirror.file_of(&resources::config_maps(), "beside");
    Edits::new(stack.client(User::Alice), "shop").create("beside", "1").await;
    eventually("the ConfigMap beside it", SOON, async || stack.repo().show("main", &file)).await;

    let labels = [("gittarget_namespace", "shop"), ("gittarget_name", "mirror")];
    eventually("the metric", SOON, async || {
        stack
            .operator(0)
            .metric_value("upriver_secrets_skipped_total", &labels)
            .await
            .filter(|count| *count >= 1.0)
    })
    .await;
    let encryption = eventually("the condition", SOON, async || {
        let target = stack.get("GitTarget", "shop", "mirror").await?;
        condition(&target, "EncryptionConfigured", "False")
    })
    .await;
    assert_eq!(encryption["reason"], "NotYetSupported");
    let target = stack.get("GitTarget", "shop", "mirror").await.expect("readable");
    assert!(condition(&target, "Ready", "False").is_ok(), "{target}");

    let encoded = "Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5LXN0YXBsZQ==";
    let objects = stack.repo().git(&["cat-file", "--batch-all-objects", "--batch"]);
    let redis = contents(&stack.dir().join("redis"));
    for text in [PLANTED, encoded] {
        assert!(!objects.contains(text), "in Git");
        assert!(!redis.contains(text), "in Redis");
        assert!(!stack.operator(0).log().contains(text), "in the log");
    }
}

/// All files below a folder as one text.
fn contents(dir: &Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(dir).expect("readable").flatten() {
        let path = entry.path();
        if path.is_dir() {
            text.push_str(&contents(&path));
        } else {
            text.push_str(&String::from_utf8_lossy(&std::fs::read(&path).unwrap_or_default()));
        }
    }
    text
}
