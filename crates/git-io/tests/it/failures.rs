//! What goes wrong, told apart: each failure of the host has its class, its facts and no secret in it.

use std::time::{Duration, Instant};

use upriver_git_io::{
    Credentials, FailureClass, GitError, Mirror, PushError, Remote, RemoteUrl, Service, Timeouts, push,
};
use upriver_testkit::git_server::{Access, Fault, RequestKind, Times};

use crate::support::{World, change_main, commit_files};

const LOGIN: &str = "s3cret-word";

fn basic(password: &str) -> Credentials {
    Credentials::Basic { username: "ada".into(), password: password.into() }
}

fn guarded() -> World {
    let world = World::seeded();
    world.server.set_access(Access::Basic { user: "ada".into(), password: LOGIN.into() });
    world
}

fn refused(status: u16, retry_after: Option<u64>) -> GitError {
    let world = World::seeded();
    world.server.inject(RequestKind::UploadPackRefs, Times::Once, Fault::Refuse { status, retry_after });
    world.remote().read_ref("main").expect_err("refused")
}

#[test]
fn the_right_login_works_for_reading_and_writing() {
    let world = guarded();
    let remote = world.remote_with(basic(LOGIN), Timeouts::default());
    let mut mirror = world.mirror("m");
    let base = mirror.fetch(&remote, "main").expect("fetched");
    let built = commit_files(&mut mirror, base, &[("app/a", "2\n")]);
    push(&remote, "main", built.old, &built).expect("pushed");

    world.server.set_access(Access::Bearer(LOGIN.into()));
    let remote = world.remote_with(Credentials::Bearer(LOGIN.into()), Timeouts::default());
    remote.advertise(Service::ReceivePack).expect("the token is accepted");
}

#[test]
fn a_wrong_or_missing_login_is_an_authentication_failure_without_the_secret() {
    let world = guarded();
    for credentials in [basic("wrong-w0rd"), Credentials::Bearer("wrong-w0rd".into()), Credentials::Anonymous]
    {
        let remote = world.remote_with(credentials, Timeouts::default());
        let error = remote.advertise(Service::ReceivePack).expect_err("refused");
        assert!(matches!(error, GitError::Unauthorized { .. }), "{error:?}");
        assert_eq!(error.class(), FailureClass::Auth);
        let shown = format!("{error} {error:?} {remote:?}");
        assert!(!shown.contains("wrong-w0rd") && shown.contains(&world.url), "{shown}");
    }
}

#[test]
fn a_login_that_is_revoked_between_advertisement_and_push_leaves_no_doubt() {
    let world = World::seeded();
    let refusal = Fault::Refuse { status: 401, retry_after: None };
    world.server.inject(RequestKind::ReceivePack, Times::Once, refusal);
    let error = change_main(&world, &mut world.mirror("m"), &[("app/a", "2\n")]).expect_err("refused");
    assert!(matches!(error, PushError::NotSent(GitError::Unauthorized { .. })), "{error:?}");
}

#[test]
fn too_many_requests_carry_the_hosts_floor() {
    let error = refused(429, Some(17));
    assert_eq!(error.class(), FailureClass::RateLimited);
    assert_eq!(error.retry_after(), Some(Duration::from_secs(17)));
    assert_eq!(refused(429, None).class(), FailureClass::RateLimited);
    assert_eq!(refused(403, Some(60)).retry_after(), Some(Duration::from_secs(60)), "as GitHub says it");
}

#[test]
fn a_rate_limit_on_the_push_itself_leaves_no_doubt() {
    let world = World::seeded();
    let refusal = Fault::Refuse { status: 429, retry_after: Some(9) };
    world.server.inject(RequestKind::ReceivePack, Times::Once, refusal);
    let error = change_main(&world, &mut world.mirror("m"), &[("app/a", "2\n")]).expect_err("refused");
    assert_eq!(
        (error.class(), error.retry_after()),
        (FailureClass::RateLimited, Some(Duration::from_secs(9)))
    );
}

#[test]
fn statuses_fall_into_their_classes() {
    assert_eq!(refused(503, None).class(), FailureClass::Network);
    assert_eq!(refused(500, None).class(), FailureClass::Network);
    assert_eq!(refused(404, None).class(), FailureClass::Auth, "hosts hide what an account may not see");
    assert_eq!(refused(403, None).class(), FailureClass::Auth);
    assert_eq!(refused(413, None).class(), FailureClass::Policy);
    assert_eq!(refused(418, None).class(), FailureClass::Unknown);
}

#[test]
fn a_missing_repository_is_told_by_the_real_server_too() {
    let world = World::new();
    let url = RemoteUrl::parse(&world.server.url("nowhere")).expect("a URL");
    let remote = Remote::new(url, Credentials::Anonymous, Timeouts::default()).expect("a remote");
    let error = remote.advertise(Service::UploadPack).expect_err("missing");
    assert!(matches!(error, GitError::NotFound { .. }), "{error:?}");
}

#[test]
fn a_missing_right_to_write_is_a_matter_of_policy() {
    let world = World::seeded();
    world.ask(&["config", "http.receivepack", "false"]);
    let error = world.remote().advertise(Service::ReceivePack).expect_err("refused");
    assert!(matches!(error, GitError::Forbidden { service: Service::ReceivePack, .. }), "{error:?}");
    assert_eq!(error.class(), FailureClass::Policy);
    world.remote().advertise(Service::UploadPack).expect("reading still works");
}

#[test]
fn a_gateway_error_on_the_push_is_uncertain() {
    let world = World::seeded();
    let refusal = Fault::Refuse { status: 504, retry_after: None };
    world.server.inject(RequestKind::ReceivePack, Times::Once, refusal);
    let error = change_main(&world, &mut world.mirror("m"), &[("app/a", "2\n")]).expect_err("refused");
    assert!(matches!(error, PushError::Uncertain { .. }), "{error:?}");
}

#[test]
fn a_server_that_never_answers_costs_no_more_than_the_deadline() {
    let world = World::seeded();
    let limits = Timeouts { operation: Duration::from_millis(300), ..Timeouts::default() };
    let remote = world.remote_with(Credentials::Anonymous, limits);
    world.server.inject(RequestKind::UploadPackRefs, Times::Once, Fault::Hang);
    let start = Instant::now();
    let error = remote.read_ref("main").expect_err("no answer");
    assert!(matches!(error, GitError::TimedOut { .. }), "{error:?}");
    assert_eq!(error.class(), FailureClass::Network);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());

    let mut mirror = world.mirror("m");
    let base = mirror.fetch(&world.remote(), "main").expect("fetched");
    let built = commit_files(&mut mirror, base, &[("app/a", "2\n")]);
    world.server.inject(RequestKind::ReceivePack, Times::Once, Fault::Hang);
    let start = Instant::now();
    let error = push(&remote, "main", built.old, &built).expect_err("no answer");
    assert!(matches!(error, PushError::Uncertain { .. }), "{error:?}");
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[test]
fn a_host_that_is_down_is_unreachable() {
    // A port that was free a moment ago; nobody listens there.
    let port = std::net::TcpListener::bind(("127.0.0.1", 0))
        .expect("a port")
        .local_addr()
        .expect("its number")
        .port();
    let url = RemoteUrl::parse(&format!("http://127.0.0.1:{port}/r")).expect("a URL");
    let remote = Remote::new(url, Credentials::Anonymous, Timeouts::default()).expect("a remote");
    let error = remote.read_ref("main").expect_err("nobody there");
    assert!(
        matches!(&error, GitError::Unreachable { detail, .. } if detail.contains("refused")),
        "{error:?}"
    );
}

#[test]
fn a_fetch_that_breaks_off_leaves_a_usable_mirror() {
    let world = World::seeded();
    let mut mirror = world.mirror("m");
    // The first request lists the refs, the second brings the pack.
    world.server.inject(RequestKind::UploadPack, Times::Once, Fault::Delay(Duration::ZERO));
    world.server.inject(RequestKind::UploadPack, Times::Once, Fault::CutAfterBackend);
    let error = mirror.fetch(&world.remote(), "main").expect_err("cut");
    assert_eq!(error.class(), FailureClass::Network, "{error:?}");
    change_main(&world, &mut mirror, &[("app/a", "2\n")]).expect("the next try works");
    world.assert_sound();
}

#[test]
fn an_ssh_address_is_refused_as_not_yet_supported() {
    let url = RemoteUrl::parse("git@example.invalid:team/repo.git").expect("a URL");
    let error = Remote::new(url, Credentials::Anonymous, Timeouts::default()).expect_err("refused");
    assert!(matches!(error, GitError::TransportNotSupported { .. }), "{error:?}");
    assert_eq!(error.class(), FailureClass::Config);
}

#[test]
fn a_page_that_is_no_repository_is_no_git_remote() {
    let world = World::new();
    let refusal = Fault::Refuse { status: 200, retry_after: None };
    world.server.inject(RequestKind::UploadPackRefs, Times::Once, refusal);
    let error = world.remote().read_ref("main").expect_err("refused");
    assert!(matches!(error, GitError::Protocol { .. }), "{error:?}");
}

#[test]
fn an_unusable_certificate_authority_is_refused_at_once() {
    let url = RemoteUrl::parse("https://example.invalid/r").expect("a URL");
    let error = Remote::with_ca(url, Credentials::Anonymous, Timeouts::default(), Some(b"rubbish"));
    assert!(matches!(error, Err(GitError::BadCertificate { .. })), "{error:?}");
}

#[test]
fn a_repository_of_another_hash_is_refused() {
    let world = World::new();
    let path = world.repo();
    std::fs::remove_dir_all(&path).expect("removed");
    let text = path.to_string_lossy();
    let args = ["init", "--quiet", "--bare", "--object-format=sha256", &text];
    upriver_testkit::git_server::git(&args, path.parent().expect("a parent"));
    let error = Mirror::fetch(&mut world.mirror("m"), &world.remote(), "main").expect_err("refused");
    assert!(matches!(&error, GitError::ObjectFormat { format, .. } if format == "sha256"), "{error:?}");
}

#[test]
fn a_renamed_repository_is_followed_on_the_same_host_for_reading_and_writing() {
    let world = World::seeded();
    let old = RemoteUrl::parse(&world.server.url("old-name")).expect("a URL");
    let remote = Remote::new(old, Credentials::Anonymous, Timeouts::default()).expect("a remote");
    for (kind, service) in
        [(RequestKind::UploadPackRefs, "git-upload-pack"), (RequestKind::ReceivePackRefs, "git-receive-pack")]
    {
        let location = format!("{}/info/refs?service={service}", world.url);
        world.server.inject(kind, Times::Once, Fault::Redirect { location });
    }
    let mut mirror = world.mirror("m");
    let base = mirror.fetch(&remote, "main").expect("fetched");
    let built = commit_files(&mut mirror, base, &[("app/a", "2\n")]);
    push(&remote, "main", built.old, &built).expect("pushed");
    assert_eq!(world.tip("main"), built.new.to_string());
}

#[test]
fn a_redirect_to_another_host_is_not_followed() {
    let (world, other) = (guarded(), World::seeded());
    let location = format!("{}/info/refs?service=git-upload-pack", other.url);
    world.server.inject(RequestKind::UploadPackRefs, Times::Once, Fault::Redirect { location });
    let before = other.server.requests(RequestKind::UploadPackRefs);
    let remote = world.remote_with(basic(LOGIN), Timeouts::default());
    let error = remote.read_ref("main").expect_err("refused");
    assert!(matches!(&error, GitError::Redirected { target, .. } if *target == other.url), "{error:?}");
    assert_eq!(other.server.requests(RequestKind::UploadPackRefs), before, "the login went nowhere else");
}

#[test]
fn a_connection_that_breaks_while_reading_refs_is_tried_once_more() {
    let world = World::seeded();
    world.server.inject(RequestKind::UploadPackRefs, Times::Once, Fault::CutBeforeBackend);
    world.remote().read_ref("main").expect("the second attempt is answered");
    world.server.inject(RequestKind::UploadPackRefs, Times::Always, Fault::CutBeforeBackend);
    let before = world.server.requests(RequestKind::UploadPackRefs);
    let error = world.remote().read_ref("main").expect_err("cut");
    assert!(matches!(error, GitError::Unreachable { .. }), "{error:?}");
    assert_eq!(world.server.requests(RequestKind::UploadPackRefs), before + 2, "and not more often");
}

#[test]
fn a_new_login_can_use_the_old_connections() {
    let world = guarded();
    let remote = world.remote_with(basic("wrong-w0rd"), Timeouts::default());
    remote.read_ref("main").expect_err("refused");
    remote.with_credentials(basic(LOGIN)).read_ref("main").expect("accepted");
}
