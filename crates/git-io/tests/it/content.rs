//! What a commit holds: exactly the edits, exactly the text, the same id for the same input.

use upriver_git_io::{Base, Built, CommitMeta, GitError, push};

use crate::support::{World, commit_files, id, meta};

#[test]
fn equal_inputs_make_equal_commits() {
    let world = World::seeded();
    let remote = world.remote();
    let build = |name: &str| -> Built {
        let mut mirror = world.mirror(name);
        let base = mirror.fetch(&remote, "main").expect("fetched");
        commit_files(&mut mirror, base, &[("app/a", "2\n"), ("x/y/z", "3\n")])
    };
    let (one, two) = (build("one"), build("two"));
    assert_eq!(one.new, two.new);
    assert_eq!(one.pack.bytes(), two.pack.bytes());
}

#[test]
fn a_commit_has_the_id_that_git_gives_it() {
    let world = World::seeded();
    let remote = world.remote();
    let mut mirror = world.mirror("m");
    let base = mirror.fetch(&remote, "main").expect("fetched");
    let built = commit_files(&mut mirror, base, &[("app/a", "2\n")]);
    push(&remote, "main", built.old, &built).expect("pushed");
    let text = world.ask(&["cat-file", "commit", "main"]);
    let again = upriver_testkit::git_server::git_with_input(
        &["hash-object", "-t", "commit", "--stdin"],
        &world.repo(),
        &format!("{text}\n"),
    );
    assert_eq!(again.trim(), built.new.to_string());
}

#[test]
fn edits_that_change_nothing_make_no_commit_and_leave_nothing_behind() {
    let world = World::seeded();
    let mut mirror = world.mirror("m");
    let base = mirror.fetch(&world.remote(), "main").expect("fetched");
    let mut builder = mirror.build(base).expect("a builder");
    builder.put("app/a", b"a\n").expect("put");
    builder.put("fleeting/secret", b"never to be seen\n").expect("put");
    assert!(builder.remove("fleeting/secret").expect("removed"));
    assert!(!builder.remove("nowhere/at/all").expect("nothing there"));
    assert_eq!(builder.commit(&meta("nothing")).expect("commit"), None);
    assert_eq!(builder.tip(), base.parent());
    assert!(builder.finish().expect("finished").is_none());
}

#[test]
fn a_pack_holds_only_what_its_commits_hold() {
    let world = World::seeded();
    let mut mirror = world.mirror("m");
    let base = mirror.fetch(&world.remote(), "main").expect("fetched");
    let mut builder = mirror.build(base).expect("a builder");
    builder.put("fleeting/secret", b"never to be seen\n").expect("put");
    builder.remove("fleeting/secret").expect("removed");
    builder.put("app/a", b"overwritten\n").expect("put");
    builder.put("app/a", b"2\n").expect("put");
    builder.commit(&meta("one file")).expect("commit").expect("a difference");
    let built = builder.finish().expect("packed").expect("a commit");
    assert_eq!(built.pack.objects(), 4, "a file, its folder, the root and the commit");
}

#[test]
fn an_empty_commit_can_be_made_on_purpose() {
    let world = World::new();
    let remote = world.remote();
    let mut mirror = world.mirror("m");
    let mut builder = mirror.build(Base::Unborn).expect("a builder");
    builder.commit_empty(&meta("root")).expect("commit");
    builder.commit_empty(&meta("fence")).expect("commit");
    builder.put("a", b"a\n").expect("put");
    builder.commit(&meta("file")).expect("commit").expect("a difference");
    builder.commit_empty(&meta("fence")).expect("commit");
    let built = builder.finish().expect("packed").expect("commits");
    push(&remote, "main", None, &built).expect("pushed");
    assert_eq!(world.ask(&["log", "--format=%s", "main"]), "fence\nfile\nfence\nroot");
    world.assert_sound();
}

#[test]
fn an_extra_header_is_stored_and_not_shown() {
    let world = World::seeded();
    let remote = world.remote();
    let mut mirror = world.mirror("m");
    let base = mirror.fetch(&remote, "main").expect("fetched");
    let mut builder = mirror.build(base).expect("a builder");
    let mut wanted = meta("subject\n\nbody without a last line break");
    wanted.extra_headers =
        vec![("upriver-epoch".into(), "7".into()), ("upriver-journal".into(), "1-0\n2-0".into())];
    builder.put("app/a", b"2\n").expect("put");
    builder.commit(&wanted).expect("commit").expect("a difference");
    let built = builder.finish().expect("packed").expect("a commit");
    push(&remote, "main", built.old, &built).expect("pushed");

    let raw = world.ask(&["cat-file", "commit", "main"]);
    let expected = "committer Upriver <noreply@upriver.invalid> 1700000001 +0000\n\
                    upriver-epoch 7\nupriver-journal 1-0\n 2-0\n\nsubject\n\nbody without a last line break";
    assert!(raw.ends_with(expected), "{raw}");
    assert!(!world.ask(&["log", "-1", "--format=fuller", "main"]).contains("upriver-epoch"));
    world.assert_sound();
}

#[test]
fn text_that_would_forge_a_commit_header_is_refused() {
    let world = World::new();
    let mut mirror = world.mirror("m");
    let mut builder = mirror.build(Base::Unborn).expect("a builder");
    builder.put("a", b"a\n").expect("put");
    let edits: [fn(&mut CommitMeta); 8] = [
        |meta| meta.author.name = "a\nparent 0".into(),
        |meta| meta.author.name = String::new(),
        |meta| meta.author.email = "a> 1 +0000\nx <b".into(),
        |meta| meta.committer.name = "a <b>".into(),
        |meta| meta.message = "a\0b".into(),
        |meta| meta.extra_headers.push(("tree".into(), "x".into())),
        |meta| meta.extra_headers.push(("a b".into(), "x".into())),
        |meta| meta.extra_headers.push(("ok".into(), "a\0".into())),
    ];
    for edit in edits {
        let mut bad = meta("m");
        edit(&mut bad);
        assert!(matches!(builder.commit(&bad), Err(GitError::CommitText { .. })), "{bad:?}");
    }
    builder.commit(&meta("m")).expect("the edits are still there").expect("a difference");
}

#[test]
fn a_file_never_takes_a_folders_place_nor_the_reverse() {
    let world = World::seeded();
    let mut mirror = world.mirror("m");
    let base = mirror.fetch(&world.remote(), "main").expect("fetched");
    let mut builder = mirror.build(base).expect("a builder");
    for path in ["app", "README/x", "app/a/x", "../x", ".git/config"] {
        assert!(matches!(builder.put(path, b"x"), Err(GitError::Path(_))), "{path}");
    }
    assert!(matches!(builder.remove("app"), Err(GitError::Path(_))));
    assert_eq!(builder.commit(&meta("nothing")).expect("commit"), None, "refused edits leave no trace");
    assert!(builder.remove("README").expect("removed"));
    builder.put("README/x", b"x").expect("now there is room");
}

#[test]
fn a_builder_sees_its_own_edits() {
    let world = World::seeded();
    let mut mirror = world.mirror("m");
    let base = mirror.fetch(&world.remote(), "main").expect("fetched");
    let mut builder = mirror.build(base).expect("a builder");
    let before = builder.blob_at("app/a").expect("readable");
    assert_eq!(before, Some(id(&world.ask(&["rev-parse", "main:app/a"]))));
    let new = builder.put("app/a", b"2\n").expect("put");
    assert_eq!(builder.blob_at("app/a").expect("readable"), Some(new));
    builder.commit(&meta("m")).expect("commit").expect("a difference");
    builder.remove("app/a").expect("removed");
    assert_eq!(builder.blob_at("app/a").expect("readable"), None);
    assert_eq!(builder.blob_at("app").expect("readable"), None, "a folder is no blob");
}

#[test]
fn modes_of_other_files_are_kept() {
    let world = World::seeded();
    let blob = world.ask(&["rev-parse", "main:README"]);
    let elsewhere = "1".repeat(40);
    let tree = upriver_testkit::git_server::git_with_input(
        &["mktree", "--missing"],
        &world.repo(),
        &format!("100755 blob {blob}\trun.sh\n120000 blob {blob}\tlink\n160000 commit {elsewhere}\tsub\n"),
    );
    let commit = world.ask(&["commit-tree", tree.trim(), "-p", &world.tip("main"), "-m", "modes"]);
    world.ask(&["update-ref", "refs/heads/main", &commit]);
    let remote = world.remote();
    let mut mirror = world.mirror("m");
    let base = mirror.fetch(&remote, "main").expect("fetched");
    {
        let mut builder = mirror.build(base).expect("a builder");
        assert!(matches!(builder.put("sub", b"x"), Err(GitError::Path(_))), "a submodule is not overwritten");
        assert!(matches!(builder.remove("sub"), Err(GitError::Path(_))));
    }
    let built = commit_files(&mut mirror, base, &[("run.sh", "echo\n"), ("link", "plain\n")]);
    push(&remote, "main", built.old, &built).expect("pushed");
    let modes: Vec<String> = world
        .ask(&["ls-tree", "main"])
        .lines()
        .map(|line| line.split(' ').next().unwrap_or("").to_owned())
        .collect();
    assert_eq!(modes, ["100644", "100755", "160000"], "link, run.sh, sub");
}
