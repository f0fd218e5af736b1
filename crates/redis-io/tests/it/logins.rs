//! TLS and rights, each against a real server.

use upriver_redis_io::{ClientFiles, RedisOptions, RedisStore, WaitOptions};
use upriver_store::{Store, StoreError, conformance};
use upriver_testkit::redis::{Certificates, ClientCertificates, ServerTls};
use upriver_testkit::{RedisServer, init_tls};

const GUIDE: &str = include_str!("../../../../docs/redis.md");

async fn tls_server(dir: &tempfile::TempDir, clients: ClientCertificates) -> (RedisServer, Certificates) {
    init_tls();
    let certificates = Certificates::make(dir.path());
    let tls = Some(ServerTls { certificates: certificates.clone(), clients });
    let options = upriver_testkit::RedisOptions { tls, ..Default::default() };
    (RedisServer::start_with(options).await, certificates)
}

fn store(options: &RedisOptions) -> RedisStore {
    RedisStore::new(options).expect("sound options")
}

async fn refusal(options: &RedisOptions) -> String {
    store(options).check().await.expect_err("refused").to_string()
}

#[tokio::test]
async fn redis_with_tls_passes_the_conformance_suite() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, certificates) = tls_server(&dir, ClientCertificates::NotAsked).await;
    let mut options = RedisOptions::new(&server.tls_url());
    options.tls.ca = Some(certificates.ca);
    assert_eq!(store(&options).check().await, Ok(()));
    conformance::all(&store(&options)).await;
}

#[tokio::test]
async fn a_server_that_asks_for_a_client_certificate_gets_ours_and_refuses_others() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, certificates) = tls_server(&dir, ClientCertificates::Required).await;
    let mut options = RedisOptions::new(&server.tls_url());
    options.tls.ca = Some(certificates.ca);
    let message = refusal(&options).await;
    assert!(message.contains("not available"), "{message}");
    options.tls.client = Some(ClientFiles { certificate: certificates.client, key: certificates.client_key });
    assert_eq!(store(&options).check().await, Ok(()));
    conformance::an_attempt_is_settled_once(&store(&options)).await;
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, _) = tls_server(&dir, ClientCertificates::NotAsked).await;
    let elsewhere = tempfile::tempdir().expect("a folder");
    let mut options = RedisOptions::new(&server.tls_url());
    options.tls.ca = Some(Certificates::make(elsewhere.path()).ca);
    let message = refusal(&options).await;
    assert!(message.contains("certificate"), "{message}");
    // Nor is it taken on the system's word, which is asked without a CA file.
    options.tls.ca = None;
    let message = refusal(&options).await;
    assert!(message.contains("certificate"), "{message}");
}

#[tokio::test]
async fn a_rotated_authority_is_read_again_with_the_next_connection() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, certificates) = tls_server(&dir, ClientCertificates::NotAsked).await;
    let good = std::fs::read(&certificates.ca).expect("readable");
    let elsewhere = tempfile::tempdir().expect("a folder");
    let ca = Certificates::make(elsewhere.path()).ca;
    let mut options = RedisOptions::new(&server.tls_url());
    options.tls.ca = Some(ca.clone());
    let store = store(&options);
    assert!(store.check().await.is_err());
    std::fs::write(&ca, good).expect("writable");
    assert_eq!(store.check().await, Ok(()));
}

#[tokio::test]
async fn a_server_without_tls_is_named_as_such() {
    init_tls();
    let server = RedisServer::start().await;
    let message = refusal(&RedisOptions::new(&format!("rediss://{}", server.addr()))).await;
    assert!(message.contains("--redis-insecure"), "{message}");
}

/// The words of the line in the guide after `ACL SETUSER upriver`, with a password of ours.
fn rights() -> Vec<String> {
    let line = GUIDE.lines().find_map(|line| line.strip_prefix("ACL SETUSER upriver "));
    let words = line.expect("docs/redis.md holds the line").split(' ');
    words.map(|word| word.replace("PASSWORD", "secret")).collect()
}

async fn set_user(server: &RedisServer, name: &str, words: &[String]) {
    let mut connection = server.client().get_multiplexed_async_connection().await.expect("the server is up");
    let mut command = redis::cmd("ACL");
    command.arg("SETUSER").arg(name).arg(words);
    command.query_async::<()>(&mut connection).await.expect("a sound ACL line");
}

fn as_user(server: &RedisServer, name: &str) -> RedisOptions {
    let mut options = RedisOptions::new(&format!("redis://{name}:secret@{}", server.addr()));
    // So that the right to wait is needed.
    options.wait = WaitOptions { replicas: 1, timeout: std::time::Duration::from_millis(1) };
    options
}

#[tokio::test]
async fn the_rights_in_the_guide_suffice_for_the_conformance_suite() {
    let server = RedisServer::start().await;
    set_user(&server, "upriver", &rights()).await;
    let store = store(&as_user(&server, "upriver"));
    assert_eq!(store.check().await, Ok(()));
    conformance::all(&store).await;
    let mut connection = server.client().get_multiplexed_async_connection().await.expect("the server is up");
    let denied: Vec<redis::Value> =
        redis::cmd("ACL").arg("LOG").query_async(&mut connection).await.expect("readable");
    assert_eq!(denied, [], "nothing was tried that is not allowed");
}

#[tokio::test]
async fn every_right_that_is_missing_is_named_at_the_start() {
    let server = RedisServer::start().await;
    let all = rights();
    let commands: Vec<&String> = all.iter().filter(|word| word.starts_with('+')).collect();
    assert!(commands.len() > 20, "{commands:?}");
    for (index, missing) in commands.iter().enumerate() {
        let words: Vec<String> = all.iter().filter(|word| word != missing).cloned().collect();
        let name = format!("user{index}");
        set_user(&server, &name, &words).await;
        let error = store(&as_user(&server, &name)).check().await.expect_err("refused");
        let told = error.to_string();
        assert!(told.contains(missing.as_str()), "without {missing}: {told}");
        assert!(told.contains("docs/redis.md"), "without {missing}: {told}");
    }
}

#[tokio::test]
async fn keys_of_others_and_a_wrong_password_are_refused() {
    let server = RedisServer::start().await;
    set_user(&server, "upriver", &rights()).await;
    let mut options = as_user(&server, "upriver");
    options.prefix = "other".to_owned();
    let Err(StoreError::Unusable { reason }) = store(&options).check().await else {
        panic!("keys below another prefix are not ours");
    };
    assert!(reason.contains("~other:*"), "{reason}");
    options.url = options.url.replace("secret", "hush");
    let message = refusal(&options).await;
    assert!(message.contains("WRONGPASS") || message.contains("uthentication"), "{message}");
    assert!(!message.contains("hush"), "{message}");
}

#[tokio::test]
async fn a_right_that_is_taken_away_later_is_an_error_of_the_call() {
    let server = RedisServer::start().await;
    set_user(&server, "upriver", &rights()).await;
    let store = store(&as_user(&server, "upriver"));
    let f = conformance::Fixture::new("revoked");
    let (journal, _) = f.adopt(&store, 1).await.expect("a free journal");
    set_user(&server, "upriver", &["-evalsha".to_owned()]).await;
    let error = journal.open(f.opening(1, 1)).await.expect_err("refused").to_string();
    assert!(error.contains("evalsha") && error.contains("docs/redis.md"), "{error}");
}
