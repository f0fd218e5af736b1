//! Repositories as they are found: empty, with another default branch, with a long history.

use upriver_git_io::{Base, Mirror, push};
use upriver_testkit::git_server::{RequestKind, git, import_history};

use crate::support::{World, commit_files, id};

/// Commits of the long history.
const DEPTH: usize = 20_000;
/// What the operator asks of a history at most.
const HISTORY: usize = 200;
/// And after a loss.
const TRACED: usize = 2_000;

#[test]
fn git_04_an_empty_repository_gets_the_branch_that_is_asked_for_whatever_its_head_says() {
    for branch in ["main", "env/prod"] {
        let world = World::new();
        world.ask(&["symbolic-ref", "HEAD", "refs/heads/trunk"]);
        let mut mirror = world.mirror("m");
        assert_eq!(mirror.fetch(&world.remote(), branch).expect("fetched"), Base::Unborn);
        let built = commit_files(&mut mirror, Base::Unborn, &[("app/a", "1\n")]);
        push(&world.remote(), branch, built.old, &built).expect("pushed");

        assert_eq!(world.ask(&["for-each-ref", "--format=%(refname)"]), format!("refs/heads/{branch}"));
        assert_eq!(world.ask(&["symbolic-ref", "HEAD"]), "refs/heads/trunk");
        let again = mirror.fetch(&world.remote(), branch).expect("fetched again");
        assert_eq!(again, Base::Branch { tip: built.new });
        world.assert_sound();
    }
}

#[test]
fn git_04_another_default_branch_is_where_the_target_branch_begins_and_stays_as_it_is() {
    let world = World::new();
    world.ask(&["symbolic-ref", "HEAD", "refs/heads/trunk"]);
    let trunk = import_history(&world.repo(), "trunk", 3);
    let mut mirror = world.mirror("m");
    let mut base = mirror.fetch(&world.remote(), "mirror").expect("fetched");
    assert_eq!(base, Base::New { from: id(&trunk) });
    for round in 0..3 {
        let built = commit_files(&mut mirror, base, &[("app/a", &format!("{round}\n"))]);
        push(&world.remote(), "mirror", built.old, &built).expect("pushed");
        base = mirror.fetch(&world.remote(), "mirror").expect("fetched");
        assert_eq!(base, Base::Branch { tip: built.new });
    }
    assert_eq!(world.tip("trunk"), trunk);
    assert_eq!(world.ask(&["rev-list", "--count", "trunk..mirror"]), "3");
    world.assert_sound();
}

/// A commit with a file of its own, by somebody else, from another clone.
fn somebody_commits(world: &World, round: usize) {
    let clone = world.mirror_dir("person");
    if !clone.exists() {
        let parent = clone.parent().expect("a folder").to_owned();
        std::fs::create_dir_all(&parent).expect("made");
        git(&["clone", "-q", "--depth=1", &world.url, &clone.to_string_lossy()], &parent);
    }
    git(&["fetch", "-q", "origin", "main"], &clone);
    git(&["reset", "-q", "--hard", "FETCH_HEAD"], &clone);
    std::fs::write(clone.join(format!("NOTES-{round}")), "kept\n").expect("written");
    git(&["add", "--all"], &clone);
    git(&["commit", "-q", "-m", "a note"], &clone);
    git(&["push", "-q", "origin", "HEAD:main"], &clone);
}

/// Commits among all objects of a mirror, as git counts them.
fn commits_in(world: &World, mirror: &str) -> usize {
    let listed =
        git(&["cat-file", "--batch-all-objects", "--batch-check=%(objecttype)"], &world.mirror_dir(mirror));
    listed.lines().filter(|kind| *kind == "commit").count()
}

#[test]
fn git_04_fifty_pushes_into_a_long_history_never_download_it() {
    let world = World::new();
    let deep = import_history(&world.repo(), "main", DEPTH);
    let whole = pack_bytes(&world);
    let remote = world.remote();
    // What the person's clone downloads is not counted with ours.
    let (mut received, mut most) = (0, 0);
    let mut counted = |work: &mut dyn FnMut()| {
        let before = world.server.bytes_sent(RequestKind::UploadPack);
        work();
        let bytes = world.server.bytes_sent(RequestKind::UploadPack) - before;
        received += bytes;
        most = bytes.max(most);
    };
    let mut mirror = world.mirror("m");
    let mut base = Base::Unborn;
    counted(&mut || base = mirror.fetch(&remote, "main").expect("fetched"));
    let mut notes = 0;
    for round in 0..50 {
        let text = format!("{round}\n");
        let built = commit_files(&mut mirror, base, &[("app/a", &text), ("history/0/0.yaml", &text)]);
        push(&remote, "main", built.old, &built).expect("pushed");
        base = Base::Branch { tip: built.new };
        if round % 5 == 4 {
            somebody_commits(&world, round);
            notes += 1;
            counted(&mut || {
                if round % 10 == 9 {
                    mirror = Mirror::open(&world.mirror_dir("m")).expect("opens again");
                }
                base = mirror.fetch(&remote, "main").expect("fetched again");
                let tip = base.parent().expect("a tip");
                let history = mirror.first_parent_history(&remote, tip, HISTORY).expect("recent history");
                assert_eq!(history.len(), HISTORY);
            });
        }
    }
    assert_eq!(world.ask(&["rev-list", "--count", &format!("{deep}..main")]), (50 + notes).to_string());
    assert_eq!(world.ask(&["ls-tree", "-r", "--name-only", "main", "history/"]).lines().count(), 200);
    world.assert_sound();
    let commits = commits_in(&world, "m");
    let told = format!("{received} bytes in {} fetches, {most} at most, of {whole}", notes + 1);
    println!("{told}; {commits} commits in the mirror");
    assert!(commits <= 1 + notes + 50, "{commits} commits in the mirror");
    assert!(most < whole / 20 && received < whole / 4, "{told}");
    a_long_look_back(&world, &mut mirror, whole);
    assert_eq!(commits_in(&world, "m"), commits, "none of it stays");
}

/// The longest one that there is, after a lost journal.
fn a_long_look_back(world: &World, mirror: &mut Mirror, whole: u64) {
    let before = world.server.bytes_sent(RequestKind::UploadPack);
    let tip = id(&world.tip("main"));
    let traced = mirror.last_changes(&world.remote(), tip, &["app"], TRACED).expect("traced");
    assert_eq!(traced.iter().map(|(_, files)| files.len()).sum::<usize>(), 1, "our only file");
    let bytes = world.server.bytes_sent(RequestKind::UploadPack) - before;
    println!("{bytes} bytes for {TRACED} commits back");
    assert!(bytes < whole / 4, "{bytes} of {whole} bytes");
}

/// Size of what the server's repository has packed.
fn pack_bytes(world: &World) -> u64 {
    let counted = world.ask(&["count-objects", "-v"]);
    let kib = counted.lines().find_map(|line| line.strip_prefix("size-pack: ")).expect("a size");
    kib.parse::<u64>().expect("a number") * 1024
}
