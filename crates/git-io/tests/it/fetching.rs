//! The reading half: what a mirror holds, and that it stays right over many fetches, restarts and accidents.

use std::collections::BTreeMap;

use upriver_git_io::{Base, EntryKind, GitError, Mirror, Service, push};
use upriver_testkit::git_server::RequestKind;

use crate::support::{World, change_main, commit_files, id, meta};

/// `git ls-tree -r` as a map from path to mode and id.
fn ls_tree(world: &World, commit: &str) -> BTreeMap<String, (String, String)> {
    let text = world.ask(&["ls-tree", "-r", "--full-tree", commit]);
    text.lines()
        .map(|line| {
            let (facts, path) = line.split_once('\t').expect("a tab");
            let mut facts = facts.split(' ');
            let mode = facts.next().expect("a mode").to_owned();
            (path.to_owned(), (mode, facts.nth(1).expect("an id").to_owned()))
        })
        .collect()
}

fn mirrored(mirror: &Mirror, tip: &str) -> BTreeMap<String, (String, String)> {
    let entries = mirror.tree_entries(id(tip), "").expect("a complete tree");
    entries
        .into_iter()
        .map(|(path, entry)| {
            let mode = match entry.kind {
                EntryKind::Blob => "100644",
                EntryKind::Executable => "100755",
                EntryKind::Symlink => "120000",
                EntryKind::Submodule => "160000",
            };
            (path, (mode.to_owned(), entry.id.to_string()))
        })
        .collect()
}

fn assert_mirrors(world: &World, mirror: &mut Mirror, branch: &str) {
    let base = mirror.fetch(&world.remote(), branch).expect("fetched");
    let tip = world.tip(branch);
    assert_eq!(base, Base::Branch { tip: id(&tip) });
    let files = ls_tree(world, &tip);
    assert_eq!(mirrored(mirror, &tip), files);
    for (mode, blob) in files.values() {
        if mode != "160000" {
            mirror.read_blob(id(blob)).expect("every file is here");
        }
    }
}

#[test]
fn a_fetched_tip_is_complete_and_without_history() {
    let world = World::seeded();
    world.foreign_commit("second");
    let mut mirror = world.mirror("m");
    assert_mirrors(&world, &mut mirror, "main");
    let commits = world.mirror_dir("m").join("shallow");
    assert_eq!(std::fs::read_to_string(commits).expect("a shallow file").trim(), world.tip("main"));
}

#[test]
fn twenty_pushes_with_foreign_commits_and_fetches_between_them_stay_sound() {
    let world = World::seeded();
    let remote = world.remote();
    let mut mirror = world.mirror("m");
    let mut base = mirror.fetch(&remote, "main").expect("fetched");
    for round in 0..20 {
        let text = format!("{round}\n");
        let built = commit_files(&mut mirror, base, &[("app/a", &text), ("deep/er/file", &text)]);
        push(&remote, "main", built.old, &built).expect("pushed");
        base = Base::Branch { tip: built.new };
        if round % 4 == 3 {
            world.foreign_commit("someone else");
            base = mirror.fetch(&remote, "main").expect("fetched again");
        }
    }
    assert_mirrors(&world, &mut mirror, "main");
    world.assert_sound();
}

#[test]
fn a_mirror_survives_a_restart_and_a_reset_of_the_branch() {
    let world = World::seeded();
    change_main(&world, &mut world.mirror("m"), &[("app/a", "2\n")]).expect("pushed");
    change_main(&world, &mut world.mirror("m"), &[("app/b", "2\n"), ("new/file", "n\n")]).expect("pushed");
    let mut mirror = world.mirror("m");
    assert_mirrors(&world, &mut mirror, "main");

    world.ask(&["update-ref", "refs/heads/main", "refs/heads/main~2"]);
    assert_mirrors(&world, &mut mirror, "main");
    change_main(&world, &mut mirror, &[("app/a", "3\n")]).expect("pushed on the older tip");
    assert_mirrors(&world, &mut world.mirror("m"), "main");
    world.assert_sound();
}

#[test]
fn an_unchanged_branch_costs_no_pack() {
    let world = World::seeded();
    let mut mirror = world.mirror("m");
    let remote = world.remote();
    mirror.fetch(&remote, "main").expect("fetched");
    let packs = || std::fs::read_dir(world.mirror_dir("m").join("objects/pack")).expect("packs").count();
    let (before, requests) = (packs(), world.server.requests(RequestKind::UploadPack));
    mirror.fetch(&remote, "main").expect("fetched");
    assert_eq!(packs(), before);
    assert_eq!(world.server.requests(RequestKind::UploadPack), requests + 1, "the refs, and no pack");
}

#[test]
fn a_broken_mirror_is_made_anew() {
    let world = World::seeded();
    let dir = world.mirror_dir("m");
    world.mirror("m").fetch(&world.remote(), "main").expect("fetched");
    for entry in std::fs::read_dir(dir.join("objects/pack")).expect("packs") {
        std::fs::remove_file(entry.expect("an entry").path()).expect("removed");
    }
    assert_mirrors(&world, &mut world.mirror("m"), "main");

    std::fs::write(dir.join("shallow"), "rubbish\n").expect("written");
    assert_mirrors(&world, &mut world.mirror("m"), "main");
}

#[test]
fn a_directory_that_is_no_mirror_is_not_touched() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("thesis.txt"), "years of work").expect("written");
    assert!(matches!(Mirror::open(dir.path()), Err(GitError::Local { .. })));
    assert!(dir.path().join("thesis.txt").exists());
}

#[test]
fn a_base_that_is_not_here_is_an_error_and_not_an_empty_tree() {
    let world = World::seeded();
    let tip = id(&world.tip("main"));
    let mut mirror = world.mirror("m");
    assert!(matches!(mirror.build(Base::Branch { tip }), Err(GitError::MissingObject { .. })));
}

#[test]
fn a_remote_without_protocol_version_two_works_the_same() {
    let world = World::seeded();
    world.server.speak_only_version_zero();
    let mut mirror = world.mirror("m");
    assert_mirrors(&world, &mut mirror, "main");
    change_main(&world, &mut mirror, &[("app/a", "2\n")]).expect("pushed");
    let theirs = world.foreign_commit("theirs");
    assert_mirrors(&world, &mut mirror, "main");
    assert_eq!(world.remote().read_ref("main").expect("read"), Some(id(&theirs)));
    let history = mirror.first_parent_history(&world.remote(), id(&theirs), 10).expect("history");
    assert_eq!(history.len(), 3);
}

#[test]
fn history_is_fetched_only_when_the_mirror_lacks_it_and_never_harms_the_mirror() {
    let world = World::seeded();
    let remote = world.remote();
    let mut mirror = world.mirror("m");
    let base = mirror.fetch(&remote, "main").expect("fetched");
    let mut builder = mirror.build(base).expect("a builder");
    let mut marked = meta("marked");
    marked.extra_headers.push(("upriver-position".into(), "7 epoch\nline two".into()));
    builder.put("app/a", b"2\n").expect("put");
    let ours = builder.commit(&marked).expect("commit").expect("a difference");
    let built = builder.finish().expect("packed").expect("a commit");
    push(&remote, "main", built.old, &built).expect("pushed");
    for number in 0..5 {
        world.foreign_commit(&format!("foreign {number}"));
    }
    world.ask(&["config", "uploadpack.allowFilter", "true"]);

    let mut fresh = world.mirror("fresh");
    let tip = id(&world.tip("main"));
    fresh.fetch(&remote, "main").expect("fetched");
    let history = fresh.first_parent_history(&remote, tip, 200).expect("history");

    let ids: Vec<String> = history.iter().map(|commit| commit.id.to_string()).collect();
    assert_eq!(ids.join("\n"), world.ask(&["rev-list", "--first-parent", "main"]));
    let found = history.iter().find(|commit| commit.id == ours).expect("ours is among them");
    assert_eq!(found.extra_headers, marked.extra_headers);
    assert_eq!(found.message, "marked\n");
    assert_eq!(found.author, "Ada <ada@example.invalid>");

    let limited = fresh.first_parent_history(&remote, tip, 3).expect("history");
    assert_eq!(limited, history[..3]);
    let base = fresh.fetch(&remote, "main").expect("fetched");
    let next = commit_files(&mut fresh, base, &[("app/b", "3\n")]);
    push(&remote, "main", next.old, &next).expect("the mirror is still complete");

    let requests = world.server.requests(RequestKind::UploadPackRefs);
    let local = fresh.first_parent_history(&remote, next.new, 2).expect("history");
    assert_eq!(local.len(), 2);
    assert_eq!(world.server.requests(RequestKind::UploadPackRefs), requests, "both were here");
    world.assert_sound();
}

#[test]
fn both_services_advertise_the_refs() {
    let world = World::seeded();
    let remote = world.remote();
    let tip = id(&world.tip("main"));
    let read = remote.advertise(Service::UploadPack).expect("readable");
    assert_eq!(read.branch("main"), Some(tip));
    assert_eq!(read.default_tip(), Some(tip));
    assert_eq!(read.head_symref.as_deref(), Some("refs/heads/main"));
    let write = remote.advertise(Service::ReceivePack).expect("writable");
    assert_eq!(write.branch("main"), Some(tip));
    assert!(write.capabilities.contains_key("report-status-v2"));
    assert_eq!(remote.read_ref("nowhere").expect("read"), None);
}

#[test]
fn a_subtree_has_the_id_that_git_gives_it() {
    let world = World::seeded();
    let mut mirror = world.mirror("m");
    mirror.fetch(&world.remote(), "main").expect("fetched");
    let tip = id(&world.tip("main"));
    let app = mirror.subtree_id(tip, "app").expect("readable").expect("it exists");
    assert_eq!(app.to_string(), world.ask(&["rev-parse", "main:app"]));
    let root = mirror.subtree_id(tip, ".").expect("readable").expect("it exists");
    assert_eq!(root.to_string(), world.ask(&["rev-parse", "main^{tree}"]));
    assert_eq!(mirror.subtree_id(tip, "nowhere").expect("readable"), None);
    let files: Vec<String> = mirror.tree_entries(tip, "app").expect("readable").into_keys().collect();
    assert_eq!(files, ["a", "b"]);
}

#[test]
fn a_mirror_that_has_gathered_many_packs_starts_afresh() {
    let world = World::seeded();
    let mut mirror = world.mirror("m");
    let mut most = 0;
    for _ in 0..52 {
        world.foreign_commit("theirs");
        mirror.fetch(&world.remote(), "main").expect("fetched");
        let packs = std::fs::read_dir(world.mirror_dir("m").join("objects/pack")).expect("packs");
        most = most.max(
            packs
                .filter(|entry| entry.as_ref().is_ok_and(|e| e.path().extension() == Some("pack".as_ref())))
                .count(),
        );
    }
    assert!((40..50).contains(&most), "{most} packs");
    assert_mirrors(&world, &mut mirror, "main");
}

#[test]
fn what_a_killed_process_left_does_not_stop_the_next_one() {
    let world = World::seeded();
    let dir = world.mirror_dir("m");
    world.mirror("m").fetch(&world.remote(), "main").expect("fetched");
    std::fs::write(dir.join("shallow.lock"), "").expect("written");
    std::fs::write(dir.join("objects/pack/.tmp123"), "half a pack").expect("written");
    world.foreign_commit("theirs");
    assert_mirrors(&world, &mut world.mirror("m"), "main");
    assert!(!dir.join("objects/pack/.tmp123").exists());
}

#[test]
fn objects_that_were_spilled_to_disk_are_still_a_base() {
    let world = World::seeded();
    let remote = world.remote();
    let mut mirror = world.mirror("m");
    let mut base = mirror.fetch(&remote, "main").expect("fetched");
    let large = "0123456789abcdef".repeat(1 << 18);
    for round in 0..4 {
        let built = commit_files(&mut mirror, base, &[("large", &format!("{round}{large}"))]);
        base = Base::Branch { tip: built.new };
        if round == 3 {
            let packs = std::fs::read_dir(world.mirror_dir("m").join("objects/pack")).expect("packs").count();
            assert_eq!(packs, 4, "the fetched pack and a spilled one, with their indices");
        }
    }
    let tip = base.parent().expect("a tip");
    assert_eq!(mirror.tree_entries(tip, "").expect("readable").len(), 4);
}
