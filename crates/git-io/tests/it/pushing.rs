//! The sending half: what arrives, and that nothing is ever overwritten.

use upriver_git_io::{Base, FailureClass, PushError, Standing, push};
use upriver_testkit::git_server::{Fault, Gate, RequestKind, Times};

use crate::support::{PATIENCE, World, change_main, commit_files, id, meta};

#[test]
fn the_first_push_into_an_empty_repository_makes_the_branch() {
    let world = World::new();
    let mut mirror = world.mirror("m");
    assert_eq!(mirror.fetch(&world.remote(), "main").expect("fetched"), Base::Unborn);

    let built = commit_files(&mut mirror, Base::Unborn, &[("a/b.yaml", "x: 1\n"), ("top", "t\n")]);
    let report = push(&world.remote(), "main", None, &built).expect("pushed");

    assert_eq!(report.new.to_string(), world.tip("main"));
    assert_eq!(world.ask(&["show", "main:a/b.yaml"]), "x: 1");
    world.assert_sound();
}

#[test]
fn a_second_push_builds_on_the_first_without_another_fetch() {
    let world = World::seeded();
    let remote = world.remote();
    let mut mirror = world.mirror("m");
    let base = mirror.fetch(&remote, "main").expect("fetched");
    let first = commit_files(&mut mirror, base, &[("app/a", "1\n")]);
    push(&remote, "main", first.old, &first).expect("first push");
    let reads = world.server.requests(RequestKind::UploadPack);

    let second = commit_files(&mut mirror, Base::Branch { tip: first.new }, &[("app/a", "2\n")]);
    push(&remote, "main", second.old, &second).expect("second push");

    assert_eq!(world.server.requests(RequestKind::UploadPack), reads, "nothing was fetched");
    assert_eq!(world.tip("main"), second.new.to_string());
    assert_eq!(world.ask(&["rev-parse", "main^"]), first.new.to_string());
    world.assert_sound();
}

#[test]
fn builds_may_run_ahead_of_their_pushes() {
    let world = World::seeded();
    let remote = world.remote();
    let mut mirror = world.mirror("m");
    let base = mirror.fetch(&remote, "main").expect("fetched");
    let first = commit_files(&mut mirror, base, &[("app/a", "1\n")]);
    let second = commit_files(&mut mirror, Base::Branch { tip: first.new }, &[("app/b", "2\n")]);

    push(&remote, "main", first.old, &first).expect("first push");
    push(&remote, "main", second.old, &second).expect("second push");

    assert_eq!(world.ask(&["show", "main:app/a"]), "1");
    assert_eq!(world.ask(&["show", "main:app/b"]), "2");
    world.assert_sound();
}

#[test]
fn one_push_carries_many_commits_in_order() {
    let world = World::seeded();
    let remote = world.remote();
    let mut mirror = world.mirror("m");
    let base = mirror.fetch(&remote, "main").expect("fetched");
    let mut builder = mirror.build(base).expect("a builder");
    for number in 0..20 {
        builder.put("app/a", format!("{number}\n").as_bytes()).expect("put");
        builder.commit(&meta(&format!("change {number}"))).expect("commit").expect("a difference");
    }
    let built = builder.finish().expect("packed").expect("commits");
    push(&remote, "main", built.old, &built).expect("pushed");

    let ids: Vec<String> = built.commits.iter().rev().map(ToString::to_string).collect();
    assert_eq!(world.ask(&["rev-list", "--max-count=20", "main"]), ids.join("\n"));
    world.assert_sound();
}

#[test]
fn a_missing_branch_starts_at_the_default_branch_and_leaves_it_alone() {
    let world = World::seeded();
    let remote = world.remote();
    let main = world.tip("main");
    let mut mirror = world.mirror("m");
    let base = mirror.fetch(&remote, "env/prod").expect("fetched");
    assert_eq!(base, Base::New { from: id(&main) });

    let built = commit_files(&mut mirror, base, &[("app/a", "prod\n")]);
    assert_eq!(built.old, None, "the branch must not exist when the push arrives");
    push(&remote, "env/prod", built.old, &built).expect("pushed");

    assert_eq!(world.tip("main"), main);
    assert_eq!(world.ask(&["rev-parse", "env/prod^"]), main);
    assert_eq!(world.ask(&["show", "env/prod:README"]), "hello", "the default branch's files are there");
    world.assert_sound();
}

#[test]
fn a_moved_tip_is_refused_before_anything_is_sent() {
    let world = World::seeded();
    let remote = world.remote();
    let mut mirror = world.mirror("m");
    let base = mirror.fetch(&remote, "main").expect("fetched");
    let built = commit_files(&mut mirror, base, &[("app/a", "mine\n")]);
    let theirs = world.foreign_commit("theirs");

    let error = push(&remote, "main", built.old, &built).expect_err("refused");

    assert!(
        matches!(&error, PushError::TipMoved { found: Some(found), .. } if *found == id(&theirs)),
        "{error}"
    );
    assert_eq!(error.class(), FailureClass::Superseded);
    assert_eq!(world.server.requests(RequestKind::ReceivePack), 1, "only the seed was ever sent");
    assert_eq!(world.tip("main"), theirs);
}

#[test]
fn a_branch_that_appeared_meanwhile_is_not_overwritten() {
    let world = World::seeded();
    let remote = world.remote();
    let mut mirror = world.mirror("m");
    let base = mirror.fetch(&remote, "new").expect("fetched");
    let built = commit_files(&mut mirror, base, &[("app/a", "mine\n")]);
    let theirs = world.foreign_commit("theirs");
    world.ask(&["branch", "new", &theirs]);

    let error = push(&remote, "new", built.old, &built).expect_err("refused");

    assert!(matches!(&error, PushError::TipMoved { expected: None, found: Some(_), .. }), "{error}");
    assert_eq!(world.tip("new"), theirs);
}

#[test]
fn a_race_after_the_advertisement_is_lost_although_the_remote_says_unpack_ok() {
    let world = World::seeded();
    let remote = world.remote();
    let mut mirror = world.mirror("m");
    let base = mirror.fetch(&remote, "main").expect("fetched");
    let built = commit_files(&mut mirror, base, &[("app/a", "mine\n")]);
    let gate = Gate::new();
    world.server.inject(RequestKind::ReceivePack, Times::Once, Fault::HoldBeforeBackend(gate.clone()));

    let (error, theirs) = std::thread::scope(|scope| {
        let pushing = scope.spawn(|| push(&remote, "main", built.old, &built));
        assert!(gate.wait_reached(PATIENCE), "our push stands at the server");
        let theirs = world.foreign_commit("theirs");
        gate.open();
        (pushing.join().expect("no panic").expect_err("refused"), theirs)
    });

    match &error {
        PushError::Rejected { reason, .. } => {
            assert!(!reason.contains("unpack"), "unpacking went well: {reason}")
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(world.tip("main"), theirs, "their commit stands");
    let found = remote.read_ref("main").expect("read");
    assert_eq!(built.standing(found), Standing::Moved);
    world.assert_sound();
}

#[test]
fn a_hook_that_declines_is_reported_with_its_words() {
    let world = World::seeded();
    let main = world.tip("main");
    let hook = "#!/bin/sh\nprintf 'Signed commits only.\\033[31m\\n' >&2\nexit 1\n";
    world.server.set_hook("repo", "pre-receive", hook).expect("a hook");

    let error = change_main(&world, &mut world.mirror("m"), &[("app/a", "2\n")]).expect_err("refused");

    match &error {
        PushError::Rejected { reason, messages, .. } => {
            assert_eq!(reason, "pre-receive hook declined");
            assert_eq!(messages, "Signed commits only.[31m", "printable characters only");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(error.class(), FailureClass::Policy);
    assert_eq!(world.tip("main"), main);
}

#[test]
fn a_talkative_hook_is_cut_and_success_still_counts() {
    let world = World::seeded();
    let hook = "#!/bin/sh\ni=0; while [ $i -lt 2000 ]; do echo 'one more line of advice'; i=$((i+1)); done\n";
    world.server.set_hook("repo", "post-receive", hook).expect("a hook");

    let report = change_main(&world, &mut world.mirror("m"), &[("app/a", "2\n")]).expect("pushed");

    assert!(report.messages.starts_with("one more line of advice\n"));
    assert!(report.messages.len() <= 4096, "{}", report.messages.len());
    assert_eq!(world.tip("main"), report.new.to_string());
}

#[test]
fn a_connection_cut_before_the_remote_acted_is_uncertain_and_the_ref_tells() {
    cut(Fault::CutBeforeBackend, Standing::Unmoved);
}

#[test]
fn a_connection_cut_after_the_remote_acted_is_uncertain_and_the_ref_tells() {
    cut(Fault::CutAfterBackend, Standing::Landed);
}

fn cut(fault: Fault, standing: Standing) {
    let world = World::seeded();
    let remote = world.remote();
    let mut mirror = world.mirror("m");
    let base = mirror.fetch(&remote, "main").expect("fetched");
    let built = commit_files(&mut mirror, base, &[("app/a", "2\n")]);
    world.server.inject(RequestKind::ReceivePack, Times::Once, fault);

    let error = push(&remote, "main", built.old, &built).expect_err("cut");

    assert!(matches!(&error, PushError::Uncertain { new, .. } if *new == built.new), "{error:?}");
    assert_eq!(error.class(), FailureClass::Uncertain);
    let found = remote.read_ref("main").expect("read");
    assert_eq!(built.standing(found), standing);
    assert_eq!(
        world.server.requests(RequestKind::ReceivePack),
        2,
        "the seed and one attempt: never sent twice"
    );
}

#[test]
fn three_thousand_files_in_one_commit_arrive() {
    let world = World::seeded();
    let remote = world.remote();
    let mut mirror = world.mirror("m");
    let base = mirror.fetch(&remote, "main").expect("fetched");
    let mut builder = mirror.build(base).expect("a builder");
    for number in 0..3000 {
        let path = format!("ns-{}/config-{number}.yaml", number % 60);
        builder.put(&path, format!("data:\n  key: value-{number}\n").as_bytes()).expect("put");
    }
    builder.commit(&meta("snapshot")).expect("commit").expect("a difference");
    let built = builder.finish().expect("packed").expect("one commit");
    assert_eq!(built.pack.objects(), 3000 + 60 + 1 + 1, "files, folders, root, commit");
    push(&remote, "main", built.old, &built).expect("pushed");

    assert_eq!(world.ask(&["ls-tree", "-r", "--name-only", "main"]).lines().count(), 3003);
    world.assert_sound();
}
