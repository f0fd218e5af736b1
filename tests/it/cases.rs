//! Recorded cases of other projects, end to end: GIT-04 (repositories as they are found), RDS-07 (a Redis that loads).

use std::time::{Duration, Instant};

use upriver_testkit::git_server::{RequestKind, import_history, try_git};
use upriver_testkit::loading_redis::LoadingRedis;
use upriver_testkit::stack::{Mirror, MirrorSpec, Repo, Stack, resources};
use upriver_testkit::stack::{git_provider, git_secret, git_target, watch_rule};
use upriver_testkit::{User, eventually, holds_for};

use crate::faults::not_delivering;
use crate::support::{Edits, SOON, stack};

/// A wait of a branch that began at the end of an outage may last half a minute more.
const AFTER_BACKOFF: Duration = Duration::from_secs(120);

/// Targets of one operator, each on a branch of its own.
const BRANCHES: usize = 30;

fn spec() -> MirrorSpec {
    MirrorSpec::new("shop").commit_window("200ms").types([resources::config_maps()])
}

/// One more repository, mirrored from `shop` into a branch by objects of its name.
async fn mirror_into(stack: &Stack, name: &str, branch: &str) -> Repo {
    let objects = [
        git_secret("shop", name),
        git_provider("shop", name, &stack.git().url(name), "200ms"),
        git_target("shop", name, name, branch, "shop"),
        watch_rule("shop", name, name, &[resources::config_maps()]),
    ];
    stack.apply(User::Admin, &objects).await.expect("stored");
    stack.wait_ready("GitTarget", "shop", name, SOON).await;
    Repo::open(stack.git().repo_path(name))
}

/// A commit by somebody else, who may lose the race against the operator and tries again.
async fn somebody_commits(repo: &Repo) {
    eventually("somebody's commit", SOON, async || {
        let tip = repo.head("main").ok_or("no branch")?;
        let tree = format!("{tip}^{{tree}}");
        let commit = try_git(&["commit-tree", &tree, "-p", &tip, "-m", "theirs"], repo.git_dir())?;
        try_git(&["update-ref", "refs/heads/main", commit.trim(), &tip], repo.git_dir())
    })
    .await;
}

#[tokio::test]
async fn git_04_an_empty_repository_another_default_branch_and_a_long_history() {
    let stack = stack(1).await;
    stack.git().create_repo("other");
    let at = |name: &str| stack.git().repo_path(name);
    for repo in ["fleet", "other"] {
        Repo::open(at(repo)).git(&["symbolic-ref", "HEAD", "refs/heads/trunk"]);
    }
    let trunk = import_history(&at("other"), "trunk", 3);
    stack.git().create_repo("deep");
    import_history(&at("deep"), "main", 20_000);

    let mirror = stack.mirror(spec()).await;
    let other = mirror_into(&stack, "other", "mirror").await;
    let deep = mirror_into(&stack, "deep", "main").await;
    let (before, kib) = (stack.git().bytes_sent(RequestKind::UploadPack), pack_kib(&deep));

    let edits = Edits::new(stack.client(User::Alice), "shop");
    edits.create("a", "0").await;
    let file = mirror.file_of(&resources::config_maps(), "a");
    let empty = stack.repo();
    let places = [(&empty, "main"), (&other, "mirror"), (&deep, "main")];
    for round in 1..8 {
        let value = round.to_string();
        edits.set("a", &value).await;
        for (repo, branch) in places {
            eventually(&format!("edit {round} in {branch}"), SOON, async || {
                let found = repo.show(branch, &file).unwrap_or_default();
                if found.contains(&format!("value: \"{value}\"")) { Ok(()) } else { Err(found) }
            })
            .await;
        }
        if round % 2 == 0 {
            somebody_commits(&deep).await;
        }
    }
    stack.until_in_git(&mirror, SOON).await;

    assert_eq!(empty.git(&["for-each-ref", "--format=%(refname)"]), "refs/heads/main\n");
    assert_eq!(other.head("trunk"), Some(trunk), "the default branch stays as it is");
    assert_eq!(other.git(&["merge-base", "trunk", "mirror"]), other.git(&["rev-parse", "trunk"]));
    let count = deep.count_commits("main");
    assert!(count >= 20_000 + 3 + 7, "{count} commits: every edit and every note of somebody else");
    let files = deep.git(&["ls-tree", "-r", "--name-only", "main", "history/"]);
    assert_eq!(files.lines().count(), 200, "what was there stays");
    let received = stack.git().bytes_sent(RequestKind::UploadPack) - before;
    println!("{received} bytes were fetched; the long history has {kib} KiB");
    assert!(received < kib * 1024 / 4, "{received} bytes of {kib} KiB");
}

fn pack_kib(repo: &Repo) -> u64 {
    let counted = repo.git(&["count-objects", "-v"]);
    let line = counted.lines().find_map(|line| line.strip_prefix("size-pack: "));
    line.and_then(|kib| kib.parse().ok()).expect("git counts its packs")
}

/// Readiness and its body, while the process says that it lives.
async fn readiness(stack: &Stack) -> Result<(u16, String), String> {
    let operator = stack.operator(0);
    let (alive, _) = operator.health("/healthz").await.map_err(|error| error.to_string())?;
    let ready = operator.health("/readyz").await.map_err(|error| error.to_string())?;
    if alive == 200 { Ok(ready) } else { Err(format!("/healthz says {alive}")) }
}

/// Looks until readiness has this status and a body with all of these words.
async fn says(stack: &Stack, status: u16, words: &[&str]) -> Result<(), String> {
    let (found, body) = readiness(stack).await?;
    if found == status && words.iter().all(|word| body.contains(word)) {
        Ok(())
    } else {
        Err(format!("{found}: {body}"))
    }
}

/// What reached a loading Redis since `begun`, per second.
fn assert_gentle(loading: &LoadingRedis, begun: Instant) {
    let seconds = begun.elapsed().as_secs_f64();
    let (connections, commands) = (loading.connections(), loading.refused());
    println!("{connections} connections, {commands} commands in {seconds:.1} s");
    assert!(connections > 0, "it was asked");
    let most = f64::from(u32::try_from(connections.max(commands)).expect("few")) / seconds;
    assert!(most < 2.0, "{most:.1}/s: {connections} connections, {commands} commands in {seconds:.1} s");
}

#[tokio::test]
async fn rds_07_a_redis_that_loads_for_long_is_asked_gently_and_nothing_is_lost() {
    let stack = stack(1).await;
    let mut mirrors: Vec<Mirror> = vec![stack.mirror(spec()).await];
    for number in 1..BRANCHES {
        let name = format!("m{number}");
        let more = stack.apply_mirror(spec().branch(&name).name(&name)).await.expect("stored");
        mirrors.push(more);
    }
    for mirror in &mirrors {
        stack.wait_ready("GitTarget", "shop", &mirror.spec.name, AFTER_BACKOFF).await;
    }
    let edits = Edits::new(stack.client(User::Alice), "shop");
    for name in ["kept", "gone"] {
        edits.create(name, "1").await;
    }
    for mirror in &mirrors {
        stack.until_in_git(mirror, SOON).await;
    }

    stack.redis().stop();
    let loading = LoadingRedis::start(&stack.redis().addr()).await.expect("the port is free");
    let begun = Instant::now();
    edits.create("new", "1").await;
    edits.set("kept", "2").await;
    edits.delete("gone").await;
    let said = not_delivering(&stack, &["JournalUnavailable"]).await;
    assert!(said["message"].as_str().is_some_and(|text| text.contains("next action: wait")), "{said}");
    let degraded = ["store: degraded", "loading the dataset"];
    eventually("a body that says degraded", SOON, async || says(&stack, 200, &degraded).await).await;
    let lasts = Duration::from_secs(25);
    holds_for("ready and degraded", lasts, async || says(&stack, 200, &degraded).await).await;
    assert_gentle(&loading, begun);
    for mirror in &mirrors {
        let new = mirror.file_of(&resources::config_maps(), "new");
        assert_eq!(stack.repo().show(&mirror.spec.branch, &new), None, "nothing advances without a journal");
    }

    loading.stop().await;
    stack.redis().start_again().await;
    for mirror in &mirrors {
        stack.until_in_git(mirror, AFTER_BACKOFF).await;
        stack.wait_ready("GitTarget", "shop", &mirror.spec.name, SOON).await;
    }
    eventually("a body that says ok", SOON, async || says(&stack, 200, &["store: ok"]).await).await;
    assert!(stack.operator(0).is_running());
}

#[tokio::test]
async fn rds_07_an_operator_that_starts_while_redis_loads_lives_and_gets_ready_with_it() {
    let stack = stack(1).await;
    let mirror = stack.mirror(spec()).await;
    let edits = Edits::new(stack.client(User::Alice), "shop");
    edits.create("early", "1").await;
    stack.until_in_git(&mirror, SOON).await;
    stack.operator(0).kill();
    stack.redis().stop();
    let loading = LoadingRedis::start(&stack.redis().addr()).await.expect("the port is free");
    let begun = Instant::now();
    edits.create("late", "1").await;
    let watching = async {
        let waits = ["store: degraded, waiting for Redis", "loading the dataset"];
        eventually("a process that waits", SOON, async || says(&stack, 503, &waits).await).await;
        let lasts = Duration::from_secs(10);
        holds_for("alive and not ready", lasts, async || says(&stack, 503, &waits).await).await;
        assert_gentle(&loading, begun);
        loading.stop().await;
        stack.redis().start_again().await;
    };
    // Fails if the process ends instead of getting ready.
    tokio::join!(stack.operator(0).restart(), watching);
    says(&stack, 200, &["store: ok"]).await.expect("ready, and the store is fine");
    stack.until_in_git(&mirror, SOON).await;
}
