use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use upriver_kube_io::watch::{Begin, Item, Watch, WatchError, WatchSpec, list_page};
use upriver_model::{Gvr, ResourceVersion, Scope};
use upriver_testkit::{ControlPlane, ControlPlaneOptions, User};

fn spec(namespace: &str) -> WatchSpec {
    WatchSpec {
        gvr: Gvr::new("", "v1", "configmaps"),
        kind: "ConfigMap".to_owned(),
        scope: Scope::Namespace(namespace.into()),
        idle_limit: Duration::from_secs(30),
        server_timeout: Duration::from_secs(240),
    }
}

async fn create(client: &Client, namespace: &str, name: &str) -> ResourceVersion {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let object = ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([("k".to_owned(), "v".to_owned())])),
        ..ConfigMap::default()
    };
    let made = api.create(&PostParams::default(), &object).await.expect("created");
    ResourceVersion::new(&made.metadata.resource_version.expect("a version"))
}

fn name_of(object: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(object).expect("JSON");
    value["metadata"]["name"].as_str().expect("a name").to_owned()
}

/// Reads until the bookmark that ends the initial events; the names and the version.
async fn initial(watch: &mut Watch) -> (Vec<String>, ResourceVersion) {
    let mut names = Vec::new();
    loop {
        match watch.next().await.expect("goes on") {
            Item::Added(object) | Item::Modified(object) => names.push(name_of(&object)),
            Item::Deleted(_) => {}
            Item::Bookmark { rv, initial_end } => {
                if initial_end {
                    return (names, rv);
                }
            }
        }
    }
}

#[tokio::test]
async fn a_watch_begins_with_all_objects_and_resumes_after_any_version() {
    let plane = ControlPlane::shared().await;
    let client = plane.client(User::Upriver);
    let namespace = plane.fresh_namespace("watch").await;
    create(&client, &namespace, "a").await;
    let after_b = create(&client, &namespace, "b").await;
    let mut fresh = Watch::open(&client, &spec(&namespace), &Begin::Initial).await.expect("opens");
    let (mut names, _) = initial(&mut fresh).await;
    names.sort();
    assert_eq!(names, ["a", "b"]);

    create(&client, &namespace, "c").await;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    let patch = Patch::Merge(serde_json::json!({"data": {"k": "w"}}));
    api.patch("a", &PatchParams::default(), &patch).await.expect("patched");
    api.delete("b", &DeleteParams::default()).await.expect("deleted");
    for watch in [
        &mut fresh,
        &mut Watch::open(&client, &spec(&namespace), &Begin::After(after_b)).await.expect("opens"),
    ] {
        let mut seen = Vec::new();
        while seen.len() < 3 {
            match watch.next().await.expect("goes on") {
                Item::Added(object) => seen.push(format!("added {}", name_of(&object))),
                Item::Modified(object) => seen.push(format!("modified {}", name_of(&object))),
                Item::Deleted(object) => seen.push(format!("deleted {}", name_of(&object))),
                Item::Bookmark { .. } => {}
            }
        }
        assert_eq!(seen, ["added c", "modified a", "deleted b"]);
    }
}

#[tokio::test]
async fn a_list_comes_in_pages_of_one_version() {
    let plane = ControlPlane::shared().await;
    let client = plane.client(User::Upriver);
    let namespace = plane.fresh_namespace("pages").await;
    for index in 0..5 {
        create(&client, &namespace, &format!("o{index}")).await;
    }
    let (mut names, mut next, mut versions) = (Vec::new(), None, Vec::new());
    loop {
        let page = list_page(&client, &spec(&namespace), 2, next.as_deref()).await.expect("a page");
        names.extend(page.items.iter().map(|item| name_of(item)));
        versions.push(page.rv);
        next = page.next;
        if next.is_none() {
            break;
        }
    }
    assert_eq!(names, ["o0", "o1", "o2", "o3", "o4"]);
    assert!(versions.windows(2).all(|pair| pair[0] == pair[1]), "{versions:?}");
}

#[tokio::test]
async fn a_version_from_before_the_servers_memory_is_expired() {
    let plane = ControlPlane::start().await;
    let client = plane.client(User::Upriver);
    let namespace = plane.fresh_namespace("expired").await;
    let old = create(&client, &namespace, "a").await;
    create(&client, &namespace, "b").await;
    // A restarted API server remembers no events from before its start.
    plane.stop_apiserver();
    plane.start_apiserver().await;
    let client = plane.client(User::Upriver);
    let ended = match Watch::open(&client, &spec(&namespace), &Begin::After(old)).await {
        Err(error) => error,
        Ok(mut watch) => loop {
            if let Err(error) = watch.next().await {
                break error;
            }
        },
    };
    assert!(matches!(ended, WatchError::Expired { .. }), "{ended}");
}

#[tokio::test]
async fn a_server_without_streaming_lists_says_so_and_lists_in_pages() {
    let options = ControlPlaneOptions {
        extra_flags: vec!["--feature-gates=WatchList=false".into()],
        ..Default::default()
    };
    let plane = ControlPlane::start_with(options).await;
    let client = plane.client(User::Upriver);
    let namespace = plane.fresh_namespace("paged").await;
    create(&client, &namespace, "a").await;
    let opened = Watch::open(&client, &spec(&namespace), &Begin::Initial).await.err();
    assert!(matches!(opened, Some(WatchError::NoStreamingList { .. })), "{opened:?}");
    let page = list_page(&client, &spec(&namespace), 500, None).await.expect("a list");
    assert_eq!(page.items.len(), 1);
    create(&client, &namespace, "b").await;
    let mut watch = Watch::open(&client, &spec(&namespace), &Begin::After(page.rv)).await.expect("opens");
    let Item::Added(object) = watch.next().await.expect("goes on") else { panic!("an object was added") };
    assert_eq!(name_of(&object), "b");
}

pub async fn nobody(plane: &ControlPlane) -> Client {
    let file = Kubeconfig::read_from(plane.kubeconfig(User::Admin)).expect("a kubeconfig");
    let mut config =
        Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.expect("a configuration");
    config.auth_info.impersonate = Some("nobody".to_owned());
    Client::try_from(config).expect("a client")
}

#[tokio::test]
async fn missing_rights_and_missing_types_have_names_of_their_own() {
    let plane = ControlPlane::shared().await;
    let mut unknown = spec("default");
    unknown.gvr = Gvr::new("example.net", "v1", "things");
    let error = Watch::open(&plane.client(User::Upriver), &unknown, &Begin::Initial).await.err();
    assert!(matches!(error, Some(WatchError::NotServed { .. })), "{error:?}");
    let mut nodes = spec("default");
    nodes.gvr = Gvr::new("", "v1", "nodes");
    nodes.scope = Scope::Cluster;
    let error = Watch::open(&nobody(plane).await, &nodes, &Begin::Initial).await.err();
    assert!(matches!(error, Some(WatchError::Forbidden { .. })), "{error:?}");
}

#[tokio::test]
async fn a_silent_watch_ends_at_its_idle_limit() {
    let plane = ControlPlane::shared().await;
    let client = plane.client(User::Upriver);
    let namespace = plane.fresh_namespace("silent").await;
    let rv = create(&client, &namespace, "a").await;
    let mut quiet = spec(&namespace);
    quiet.idle_limit = Duration::from_millis(300);
    let mut watch = Watch::open(&client, &quiet, &Begin::After(rv)).await.expect("opens");
    let ended = watch.next().await;
    assert!(matches!(ended, Err(WatchError::Silent { .. })), "{ended:?}");
}
