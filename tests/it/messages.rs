//! Commit messages by the user's templates, from the object to the commit.

use serde_json::{Value, json};
use upriver_testkit::git_server::git;
use upriver_testkit::stack::{GIT_OBJECT, MirrorSpec, Stack, git_provider, resources};
use upriver_testkit::{User, eventually};

use crate::foreign_files::condition;
use crate::refusals::refused;
use crate::support::{Edits, SOON, human_clone, human_push, stack};

/// Long enough for a few edits in a row to meet in one window, also on a loaded machine.
const WINDOW: &str = "2s";

/// Sets the provider's templates; what is left out is removed.
async fn set_templates(stack: &Stack, templates: Value) {
    let mut provider = git_provider("shop", GIT_OBJECT, &stack.repo_url(), WINDOW);
    provider["spec"]["commit"] = json!({"message": templates});
    stack.apply(User::Admin, &[provider]).await.expect("stored");
}

/// Waits for a commit with this subject above `tip`; its whole text.
async fn commit_with(stack: &Stack, tip: &str, subject: &str) -> String {
    let what = format!("a commit {subject:?}");
    let found = eventually(&what, SOON, async || {
        let log = stack.repo().log("main");
        let newer: Vec<_> = log.into_iter().take_while(|commit| commit.id != tip).collect();
        let subjects: Vec<String> = newer.iter().map(|commit| commit.subject.clone()).collect();
        newer.into_iter().find(|commit| commit.subject == subject).ok_or(subjects)
    });
    found.await.raw
}

fn tip(stack: &Stack) -> String {
    stack.repo().head("main").expect("a commit")
}

#[tokio::test]
async fn templates_make_the_messages_at_once_and_one_that_fails_costs_no_commit() {
    let stack = stack(1).await;
    let spec = MirrorSpec::new("shop").commit_window(WINDOW).types([resources::config_maps()]);
    let mirror = stack.mirror(spec).await;
    let edits = Edits::new(stack.client(User::Alice), "shop");
    edits.create("a", "1").await;
    stack.until_in_git(&mirror, SOON).await;

    let templates = json!({
        "eventTemplate": "{{.Operation}} of {{.Name}} in {{.Namespace}}\n\n{{.APIVersion}}/{{.Resource}} for {{.GitTarget}}\n",
        // Fine with every sample, and not with a window of two.
        "groupTemplate": "{{if eq .Count 2}}{{.Nope}}{{end}}{{.Count}}: {{.Operations.CREATE}} {{.Operations.UPDATE}} \
                          {{.Operations.DELETE}}{{range .Resources}} {{.Name}}{{end}}",
        "reconcileTemplate": "again {{.Count}} {{.APIVersion}}/{{.Resource}} in {{.Namespace}}",
    });
    set_templates(&stack, templates).await;
    stack.wait_ready("GitProvider", "shop", GIT_OBJECT, SOON).await;
    let before = tip(&stack);
    edits.set("a", "2").await;
    let raw = commit_with(&stack, &before, "UPDATE of a in shop").await;
    assert!(raw.ends_with("\n\nv1/configmaps for mirror\n"), "{raw}");

    let before = tip(&stack);
    for name in ["b", "c"] {
        edits.create(name, "1").await;
    }
    edits.set("a", "3").await;
    commit_with(&stack, &before, "3: 2 1 0 b c a").await;

    a_failing_template_falls_back(&stack, &edits).await;
    a_list_has_its_own_template(&stack).await;
    stack.until_in_git(&mirror, SOON).await;
    a_template_that_fails_on_samples_is_refused_and_its_target_goes_on(&stack, &edits).await;
    stack.until_in_git(&mirror, SOON).await;
}

async fn a_failing_template_falls_back(stack: &Stack, edits: &Edits) {
    let before = tip(stack);
    edits.set("a", "4").await;
    edits.delete("b").await;
    commit_with(stack, &before, "Upriver on mirror: 2 resource(s)").await;
    let counted = "upriver_commit_message_fallbacks_total";
    let operator = stack.operator(0);
    assert_eq!(operator.metric_value(counted, &[("template", "group")]).await, Some(1.0));
    assert!(operator.log().contains("a message template failed"), "{}", operator.tail_log());
    stack.wait_ready("GitTarget", "shop", "mirror", SOON).await;
}

/// A person takes a file away, and the list brings it back.
async fn a_list_has_its_own_template(stack: &Stack) {
    let clone = human_clone(stack);
    git(&["rm", "-q", "shop/shop/configmaps/c.yaml"], &clone);
    human_push(&clone, "away");
    let before = git(&["rev-parse", "HEAD"], &clone);
    commit_with(stack, before.trim(), "again 1 v1/configmaps in shop").await;
}

/// Row 5 of the API's invalid inputs.
async fn a_template_that_fails_on_samples_is_refused_and_its_target_goes_on(stack: &Stack, edits: &Edits) {
    set_templates(stack, json!({"groupTemplate": "{{.Nope}}"})).await;
    let field = "spec.commit.message.groupTemplate";
    refused(stack, "GitProvider", GIT_OBJECT, "Ready", "CommitConfigInvalid", field).await;
    let copied = eventually("the target's copy", SOON, async || {
        let target = stack.get("GitTarget", "shop", "mirror").await?;
        condition(&target, "Delivering", "True")?;
        condition(&target, "GitProviderReady", "False")
    })
    .await;
    assert!(copied["message"].as_str().is_some_and(|text| text.contains(field)), "{copied}");
    let before = tip(stack);
    for name in ["a", "c"] {
        edits.set(name, "5").await;
    }
    commit_with(stack, &before, "Upriver on mirror: 2 resource(s)").await;

    set_templates(stack, json!({"groupTemplate": "{{.Count}} of {{.GitTarget}}"})).await;
    stack.wait_ready("GitTarget", "shop", "mirror", SOON).await;
    let before = tip(stack);
    for name in ["a", "c"] {
        edits.set(name, "6").await;
    }
    commit_with(stack, &before, "2 of mirror").await;
}
