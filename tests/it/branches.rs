use upriver_testkit::User;
use upriver_testkit::git_server::git;
use upriver_testkit::stack::{MirrorSpec, Stack, resources};

use crate::support::{Edits, SOON, assert_sound, human_clone, human_push, in_both_stores};

in_both_stores!(
    a_missing_branch_starts_from_the_default_one_and_leaves_it_alone,
    a_branch_that_others_move_rewind_or_delete_converges_by_itself,
);

async fn a_missing_branch_starts_from_the_default_one_and_leaves_it_alone(stack: Stack) {
    let clone = human_clone(&stack);
    std::fs::write(clone.join("README.md"), "ours\n").expect("writable");
    human_push(&clone, "start");
    let start = stack.repo().head("main");

    let mirror =
        stack.mirror(MirrorSpec::new("shop").branch("live-shop").types([resources::config_maps()])).await;
    Edits::new(stack.client(User::Alice), "shop").create("a", "1").await;
    stack.until_in_git(&mirror, SOON).await;
    assert_eq!(stack.repo().head("main"), start);
    assert_eq!(stack.repo().show("live-shop", "README.md").as_deref(), Some("ours\n"));
}

async fn a_branch_that_others_move_rewind_or_delete_converges_by_itself(stack: Stack) {
    let mirror = stack.mirror(MirrorSpec::new("shop").types([resources::config_maps()])).await;
    let edits = Edits::new(stack.client(User::Alice), "shop");
    edits.create("a", "1").await;
    stack.until_in_git(&mirror, SOON).await;
    let early = stack.repo().head("main").expect("a tip");

    // A person commits beside us: rebased upon, and kept.
    let clone = human_clone(&stack);
    git(&["reset", "-q", "--hard", "origin/main"], &clone);
    std::fs::write(clone.join("NOTES.md"), "kept\n").expect("writable");
    human_push(&clone, "notes");
    edits.set("a", "2").await;
    edits.create("b", "1").await;
    stack.until_in_git(&mirror, SOON).await;
    assert_eq!(stack.repo().show("main", "NOTES.md").as_deref(), Some("kept\n"));

    // A person rewinds the branch: what was pushed since is pushed again.
    git(&["push", "-q", "--force", "origin", &format!("{early}:refs/heads/main")], &clone);
    stack.until_in_git(&mirror, SOON).await;
    // A person deletes a mirrored file.
    git(&["fetch", "-q", "origin"], &clone);
    git(&["reset", "-q", "--hard", "origin/main"], &clone);
    git(&["rm", "-q", &mirror.file_of(&resources::config_maps(), "b")], &clone);
    human_push(&clone, "remove");
    stack.until_in_git(&mirror, SOON).await;
    // A person deletes the branch.
    let said = stack.repo().git(&["update-ref", "-d", "refs/heads/main"]);
    assert_eq!(said, "");
    stack.until_in_git(&mirror, SOON).await;
    assert_sound(&stack);
}
