use upriver_testkit::git_server::git;
use upriver_testkit::stack::{MirrorSpec, resources};
use upriver_testkit::{User, eventually};

use crate::support::{Edits, SOON, human_clone, human_push, stack};

#[tokio::test]
async fn a_file_that_is_not_ours_is_never_touched_and_the_rest_goes_on() {
    let stack = stack(1).await;
    let clone = human_clone(&stack);
    let foreign =
        "# written by hand\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: taken, namespace: shop}\n";
    std::fs::create_dir_all(clone.join("shop/shop/configmaps")).expect("writable");
    std::fs::write(clone.join("shop/shop/configmaps/taken.yaml"), foreign).expect("writable");
    human_push(&clone, "by hand");

    let mirror = stack.mirror(MirrorSpec::new("shop").types([resources::config_maps()])).await;
    let edits = Edits::new(stack.client(User::Alice), "shop");
    edits.create("taken", "1").await;
    edits.create("free", "1").await;
    let free = mirror.file_of(&resources::config_maps(), "free");
    eventually("the other file", SOON, async || stack.repo().show("main", &free)).await;
    assert_eq!(stack.repo().show("main", "shop/shop/configmaps/taken.yaml").as_deref(), Some(foreign));
    let accepted = eventually("the refusal in a condition", SOON, async || {
        let target = stack.get("GitTarget", "shop", "mirror").await?;
        condition(&target, "GitPathAccepted", "False")
    })
    .await;
    assert_eq!(accepted["reason"], "UnsupportedContent");
    let message = accepted["message"].as_str().unwrap_or_default();
    assert!(message.contains("taken.yaml") && message.contains("delete"), "{message}");
    edits.delete("taken").await;
    edits.set("free", "2").await;
    eventually("the edit", SOON, async || {
        stack.repo().show("main", &free).filter(|text| text.contains("value: \"2\"")).map(|_| ())
    })
    .await;
    assert_eq!(stack.repo().show("main", "shop/shop/configmaps/taken.yaml").as_deref(), Some(foreign));

    // The person clears the way while the object is gone: nothing is refused any more.
    git(&["fetch", "-q", "origin"], &clone);
    git(&["reset", "-q", "--hard", "origin/main"], &clone);
    git(&["rm", "-q", "shop/shop/configmaps/taken.yaml"], &clone);
    human_push(&clone, "make way");
    stack.wait_ready("GitTarget", "shop", "mirror", SOON).await;
    edits.create("taken", "2").await;
    stack.until_in_git(&mirror, SOON).await;
}

pub fn condition(object: &serde_json::Value, type_: &str, status: &str) -> Result<serde_json::Value, String> {
    let empty = Vec::new();
    let conditions = object["status"]["conditions"].as_array().unwrap_or(&empty);
    conditions
        .iter()
        .find(|condition| condition["type"] == type_ && condition["status"] == status)
        .cloned()
        .ok_or_else(|| format!("{conditions:?}"))
}
