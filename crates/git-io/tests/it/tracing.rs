//! Which commit changed a file last? Real git is asked the same.

use upriver_git_io::Mirror;
use upriver_testkit::git_server::git;

use crate::support::{World, id};

/// A person's clone of `main` in which things happen to files, one commit each.
fn make_history(world: &World) -> std::path::PathBuf {
    let clone = world.mirror_dir("clone");
    std::fs::create_dir_all(clone.parent().expect("a folder")).expect("made");
    git(&["clone", "-q", &world.url, &clone.to_string_lossy()], clone.parent().expect("a folder"));
    let write = |path: &str, text: &str| {
        let file = clone.join(path);
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
        std::fs::write(file, text).expect("written");
    };
    let commit = |message: &str| {
        git(&["add", "--all"], &clone);
        git(&["commit", "-q", "--allow-empty", "-m", message], &clone);
    };
    for round in 0..6 {
        write(&format!("app/deep/{}/file", round % 3), &format!("{round}\n"));
        write(&format!("app{round}/beside"), "not in the folder\n");
        commit(&format!("round {round}"));
    }
    write("app/c", "new\n");
    commit("c");
    std::fs::remove_file(clone.join("app/b")).expect("removed");
    commit("without b");
    commit("nothing");
    git(&["checkout", "-q", "-b", "side", "HEAD~4"], &clone);
    write("app/from-side", "side\n");
    commit("side");
    git(&["checkout", "-q", "main"], &clone);
    git(&["merge", "-q", "--no-ff", "-m", "merge", "side"], &clone);
    git(&["push", "-q", "origin", "main"], &clone);
    clone
}

#[test]
fn the_last_change_of_each_file_is_what_git_says_it_is() {
    let world = World::seeded();
    make_history(&world);
    let tip = world.tip("main");
    let mut mirror: Mirror = world.mirror("m");
    let found = mirror.last_changes(&world.remote(), id(&tip), &["app"], 100).expect("traced");
    let mut files = 0;
    for (commit, paths) in &found {
        for path in paths {
            let said = world.ask(&["log", "-1", "--first-parent", "-m", "--format=%H", "main", "--", path]);
            assert_eq!(said, commit.id.to_string(), "{path}");
            files += 1;
        }
    }
    let held = world.ask(&["ls-tree", "-r", "--name-only", "main", "app/"]);
    assert_eq!(files, held.lines().count(), "each file that exists has one commit: {found:?}");
    let whole = mirror.last_changes(&world.remote(), id(&tip), &[""], 100).expect("traced");
    let all: usize = whole.iter().map(|(_, paths)| paths.len()).sum();
    assert_eq!(all, world.ask(&["ls-tree", "-r", "--name-only", "main"]).lines().count());
}

#[test]
fn a_file_older_than_the_depth_has_no_commit_rather_than_a_wrong_one() {
    let world = World::seeded();
    make_history(&world);
    let tip = world.tip("main");
    let found = world.mirror("m").last_changes(&world.remote(), id(&tip), &["app"], 4).expect("traced");
    let named: Vec<&String> = found.iter().flat_map(|(_, paths)| paths).collect();
    assert_eq!(named, ["app/from-side"], "the merge is the newest, `app/c` is the oldest and may be older");
}
