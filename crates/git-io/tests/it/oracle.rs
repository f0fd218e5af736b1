//! Random edits, made by us and by the real git: the trees must be the same after every commit.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use upriver_git_io::{Base, push};
use upriver_testkit::git_server::git_with_input;

use crate::support::{World, meta};

#[derive(Clone, Debug)]
enum Edit {
    Put(String, String),
    Remove(String),
    Commit,
}

/// Few names, so that paths collide; `a` and `a.b` and `a0` sort differently as files and as folders.
fn path() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["a", "a.b", "a0", "b", "a-"]);
    prop::collection::vec(name, 1..4).prop_map(|parts| parts.join("/"))
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        6 => (path(), "[xy]{0,2}").prop_map(|(path, text)| Edit::Put(path, text)),
        3 => path().prop_map(Edit::Remove),
        2 => Just(Edit::Commit),
    ]
}

/// The tree that git builds from these files.
fn git_tree(world: &World, files: &BTreeMap<String, String>) -> String {
    let index = world.mirror_dir("index");
    let _ = std::fs::remove_dir_all(&index);
    std::fs::create_dir_all(&index).expect("a directory");
    let stream: String = files
        .iter()
        .map(|(path, text)| format!("M 100644 inline {path}\ndata {}\n{text}\n", text.len()))
        .collect();
    let stream =
        format!("commit refs/heads/oracle\ncommitter O <o@o> 1 +0000\ndata 0\ndeleteall\n{stream}\n");
    git_with_input(&["fast-import", "--quiet", "--force"], &world.repo(), &stream);
    world.ask(&["rev-parse", "refs/heads/oracle^{tree}"])
}

#[test]
fn random_edits_build_the_trees_that_git_builds() {
    let mut runner = TestRunner::new(Config { cases: 24, failure_persistence: None, ..Config::default() });
    let world = World::new();
    let case = std::cell::Cell::new(0);
    runner
        .run(&prop::collection::vec(edit(), 1..40), |edits| {
            let mut mirror = world.mirror("m");
            mirror.reset().expect("empty again");
            let mut files: BTreeMap<String, String> = BTreeMap::new();
            let mut committed = files.clone();
            let mut expected = Vec::new();
            let mut builder = mirror.build(Base::Unborn).expect("a builder");
            for edit in edits.iter().chain([&Edit::Commit]) {
                match edit {
                    Edit::Put(path, text) => {
                        let below = |other: &str, folder: &str| {
                            other.strip_prefix(folder).is_some_and(|r| r.starts_with('/'))
                        };
                        let blocked = files.keys().any(|other| below(other, path) || below(path, other));
                        prop_assert_eq!(builder.put(path, text.as_bytes()).is_err(), blocked);
                        if !blocked {
                            files.insert(path.clone(), text.clone());
                        }
                    }
                    Edit::Remove(path) => {
                        let removed = files.remove(path).is_some();
                        prop_assert_eq!(builder.remove(path).unwrap_or(false), removed);
                    }
                    Edit::Commit => {
                        let made = builder.commit(&meta("m")).expect("commit");
                        prop_assert_eq!(made.is_some(), files != committed);
                        if let Some(commit) = made {
                            expected.push((commit, git_tree(&world, &files)));
                            committed.clone_from(&files);
                        }
                    }
                }
            }
            let Some(built) = builder.finish().expect("packed") else { return Ok(()) };
            case.set(case.get() + 1);
            push(&world.remote(), &format!("case-{}", case.get()), None, &built).expect("pushed");
            for (commit, tree) in expected {
                prop_assert_eq!(world.ask(&["rev-parse", &format!("{commit}^{{tree}}")]), tree);
            }
            Ok(())
        })
        .expect("all sequences agree");
    world.assert_sound();
}
