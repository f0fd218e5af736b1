//! Do the launched servers behave as tests need them to: users, restarts, pauses, data that stays or goes?

use std::time::Duration;

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ObjectMeta, PostParams};
use upriver_testkit::{
    ControlPlane, ControlPlaneOptions, RedisOptions, RedisServer, User, eventually, holds_for,
};

fn config_map(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    }
}

#[tokio::test]
async fn a_control_plane_is_ready_soon_and_small() {
    let plane = ControlPlane::start().await;
    println!("control plane ready after {} ms, {} MiB resident", plane.startup_ms(), plane.rss_mb());
    assert!(plane.rss_mb() < 600, "{} MiB", plane.rss_mb());
    let version = plane.client(User::Admin).apiserver_version().await.expect("it is ready");
    assert_eq!((version.major.as_str(), version.minor.as_str()), ("1", "36"));
}

#[tokio::test]
async fn every_user_edits_everywhere_under_its_own_name() {
    let plane = ControlPlane::shared().await;
    let namespace = plane.fresh_namespace("users").await;
    for user in User::ALL {
        let maps = Api::<ConfigMap>::namespaced(plane.client(user), &namespace);
        maps.create(&PostParams::default(), &config_map(user.name())).await.expect("an editor may create");
        maps.delete(user.name(), &kube::api::DeleteParams::default()).await.expect("an editor may delete");
    }
    let kubeconfig = std::fs::read_to_string(plane.kubeconfig(User::Alice)).expect("it was just written");
    assert!(kubeconfig.contains("alice-") && kubeconfig.contains(&plane.url()), "{kubeconfig}");
}

const CHILD: &str = "UPRIVER_NAMED_CLUSTER_CHILD";

/// Not a test by itself: the child of the next one, which names a cluster for it.
#[tokio::test]
async fn child_that_uses_a_named_cluster() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let plane = ControlPlane::shared().await;
    assert!(plane.pids().is_empty(), "nothing is started");
    for user in [User::Alice, User::Upriver] {
        let maps = Api::<ConfigMap>::namespaced(plane.client(user), "default");
        maps.create(&PostParams::default(), &config_map(user.name())).await.expect("everybody may edit");
        let review = Api::<SelfSubjectReview>::all(plane.client(user));
        let review =
            review.create(&PostParams::default(), &SelfSubjectReview::default()).await.expect("it knows us");
        let seen = review.status.and_then(|status| status.user_info).and_then(|info| info.username);
        assert_eq!(seen.as_deref(), Some(user.name()));
    }
}

#[tokio::test]
async fn a_cluster_that_the_user_names_is_used_instead() {
    let plane = ControlPlane::start().await;
    let mut child =
        tokio::process::Command::new(std::env::current_exe().expect("a running program has a path"));
    child.args(["--exact", "child_that_uses_a_named_cluster", "--nocapture"]).env(CHILD, "1");
    child.env("UPRIVER_TEST_KUBECONFIG", plane.kubeconfig(User::Admin));
    let output = child.output().await.expect("this binary runs again");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let maps = Api::<ConfigMap>::namespaced(plane.client(User::Admin), "default");
    maps.get("alice").await.expect("the child made it here");
}

#[tokio::test]
async fn objects_port_and_certificate_survive_a_killed_apiserver() {
    let plane = ControlPlane::start().await;
    let maps = Api::<ConfigMap>::namespaced(plane.client(User::Alice), "default");
    maps.create(&PostParams::default(), &config_map("kept")).await.expect("it is ready");
    plane.stop_apiserver();
    assert!(maps.get("kept").await.is_err(), "nobody listens");
    plane.start_apiserver().await;
    let kept = maps.get("kept").await.expect("the same client works again");
    assert_eq!(kept.metadata.name.as_deref(), Some("kept"));
}

#[tokio::test]
async fn a_paused_apiserver_is_silent_and_goes_on_after_resume() {
    let plane = ControlPlane::start().await;
    let maps = Api::<ConfigMap>::namespaced(plane.client(User::Bob), "default");
    plane.pause();
    let all = kube::api::ListParams::default();
    let answer = tokio::time::timeout(Duration::from_millis(300), maps.list(&all)).await;
    assert!(answer.is_err(), "a frozen server does not answer");
    plane.resume();
    maps.list(&all).await.expect("it answers again");
}

#[tokio::test]
async fn audit_events_reach_the_webhook_with_the_author() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}/audit", listener.local_addr().expect("a bound port"));
    let (send, mut events) = tokio::sync::mpsc::unbounded_channel::<serde_json::Value>();
    let app = axum::Router::new().route(
        "/audit",
        axum::routing::post(async move |axum::Json(list): axum::Json<serde_json::Value>| {
            let _ = send.send(list);
        }),
    );
    let server = tokio::spawn(async move { axum::serve(listener, app).await });
    let options = ControlPlaneOptions { audit_webhook_url: Some(url), ..ControlPlaneOptions::default() };
    let plane = ControlPlane::start_with(options).await;
    let maps = Api::<ConfigMap>::namespaced(plane.client(User::Carol), "default");
    let made = maps.create(&PostParams::default(), &config_map("seen")).await.expect("it is ready");
    let event = eventually("carol's audit event", Duration::from_secs(20), async || {
        let list = events.recv().await?;
        list["items"].as_array()?.iter().find(|event| event["objectRef"]["name"] == "seen").cloned()
    })
    .await;
    assert_eq!(event["user"]["username"], "carol");
    let version = &event["responseObject"]["metadata"]["resourceVersion"];
    assert_eq!(version.as_str(), made.metadata.resource_version.as_deref());
    server.abort();
}

async fn get(redis: &RedisServer, key: &str) -> redis::RedisResult<Option<String>> {
    let mut connection = redis.client().get_multiplexed_async_connection().await?;
    redis::cmd("GET").arg(key).query_async(&mut connection).await
}

async fn set(redis: &RedisServer, key: &str, value: &str) {
    let mut connection = redis.client().get_multiplexed_async_connection().await.expect("it runs");
    redis::cmd("SET").arg(key).arg(value).exec_async(&mut connection).await.expect("it takes writes");
}

#[tokio::test]
async fn what_redis_answered_survives_a_kill() {
    let redis = RedisServer::start().await;
    set(&redis, "k", "v").await;
    let url = redis.url();
    redis.stop();
    assert!(get(&redis, "k").await.is_err(), "nobody listens");
    redis.start_again().await;
    assert_eq!(redis.url(), url);
    assert_eq!(get(&redis, "k").await.expect("it runs"), Some("v".into()));
}

#[tokio::test]
async fn a_restored_redis_has_forgotten_what_came_after_the_snapshot() {
    let redis = RedisServer::start().await;
    set(&redis, "k", "before").await;
    let snapshot = redis.snapshot().await;
    set(&redis, "k", "after").await;
    redis.restore(&snapshot).await;
    assert_eq!(get(&redis, "k").await.expect("it runs"), Some("before".into()));
    redis.wipe().await;
    assert_eq!(get(&redis, "k").await.expect("it runs"), None);
}

#[tokio::test]
async fn a_paused_redis_is_silent_and_goes_on_after_resume() {
    let redis = RedisServer::start().await;
    set(&redis, "k", "v").await;
    redis.pause();
    holds_for("silence", Duration::from_millis(200), async || {
        tokio::time::timeout(Duration::from_millis(50), get(&redis, "k")).await.err()
    })
    .await;
    redis.resume();
    assert_eq!(get(&redis, "k").await.expect("it answers again"), Some("v".into()));
}

#[tokio::test]
async fn policy_and_password_are_as_asked() {
    let options = RedisOptions {
        maxmemory_policy: "allkeys-lru".into(),
        password: Some("pass".into()),
        ..RedisOptions::default()
    };
    let redis = RedisServer::start_with(options).await;
    let mut connection =
        redis.client().get_multiplexed_async_connection().await.expect("the URL has the password");
    let mut config = redis::cmd("CONFIG");
    let policy: Vec<String> =
        config.arg("GET").arg("maxmemory-policy").query_async(&mut connection).await.expect("set");
    assert_eq!(policy, ["maxmemory-policy", "allkeys-lru"]);
    let stranger = redis::Client::open(format!("redis://{}/", redis.addr())).expect("a URL");
    assert!(
        stranger.get_multiplexed_async_connection().await.is_err() || {
            let mut connection = stranger.get_multiplexed_async_connection().await.expect("just connected");
            redis::cmd("GET").arg("k").query_async::<Option<String>>(&mut connection).await.is_err()
        }
    );
}
