//! The watch task against scripted answers; the test plays its branch.

use tokio::sync::mpsc::Receiver;
use tokio_util::task::TaskTracker;
use upriver_engine::branch::{Chosen, Snapshot, WatchFrame};
use upriver_model::{Gvr, Scope, WatchKey};
use upriver_testkit::case_input;
use upriver_testkit::fake_api::{Ending, FakeApi, Seen};

use super::*;

const PATH: &str = "/api/v1/namespaces/rc/configmaps";
/// Far above what any step takes.
const STEP: Duration = Duration::from_secs(30);

struct Played {
    events: Receiver<(u32, Event)>,
    sender: mpsc::Sender<(u32, Event)>,
    client: Client,
    expiries: Arc<AtomicU32>,
    idle_limit: Duration,
    streams: u64,
}

fn opening(stream: u64) -> Opening {
    let gvr = Gvr::new("", "v1", "configmaps");
    let watch = WatchKey { cluster: "local".into(), gvr, scope: Scope::Namespace("rc".into()) };
    Opening { watch, watch_epoch: 1, stream, scope_hash: "hash".to_owned() }
}

fn subscription() -> Subscription {
    let watch = opening(0).watch;
    Subscription {
        scope: TargetScope {
            target: TargetUid::new("target"),
            gvr: watch.gvr.clone(),
            scope: watch.scope.clone(),
        },
        kind: "ConfigMap".into(),
        watch,
        operations: vec![Operation::Create, Operation::Update, Operation::Delete],
        chosen: Chosen::ByName,
        spec_hash: "spec".into(),
    }
}

impl Played {
    fn new(api: &FakeApi, idle_limit: Duration) -> Self {
        let (sender, events) = mpsc::channel(64);
        Self { events, sender, client: api.client(), expiries: Arc::default(), idle_limit, streams: 0 }
    }

    /// Starts the next stream and lets it begin.
    async fn begin(&mut self, begin: Start) -> WatchHandle {
        self.streams += 1;
        let opening = opening(self.streams);
        let context = WatchContext {
            client: self.client.clone(),
            idle_limit: self.idle_limit,
            shard: BranchKey::new("shard".to_owned()),
            expiries: self.expiries.clone(),
            life: 1,
            events: self.sender.clone(),
            names: Names::new(),
            skipped: SkippedSecrets::default(),
            tracker: TaskTracker::new(),
        };
        let handle = start(context, opening.clone(), vec![subscription()]);
        let opened = self.until(|event| matches!(event, Event::Opening(..)).then_some(())).await;
        assert_eq!(opened, ());
        handle.to.send(ToWatch::Begin(opening, begin)).await.expect("the task lives");
        handle
    }

    /// Reads events until one is what is looked for. A blocked watch is never expected here.
    async fn until<T>(&mut self, mut wanted: impl FnMut(&Event) -> Option<T>) -> T {
        let found = async {
            loop {
                let (_, event) = self.events.recv().await.expect("the test holds a sender");
                if let Event::Health(_, WatchHealth::Blocked { message, .. }) = &event {
                    panic!("blocked: {message}");
                }
                if let Some(found) = wanted(&event) {
                    return found;
                }
            }
        };
        tokio::time::timeout(STEP, found).await.expect("the event came in time")
    }

    async fn snapshot(&mut self) -> Snapshot {
        self.until(|event| match event {
            Event::Snapshot(snapshot) => Some((**snapshot).clone()),
            _ => None,
        })
        .await
    }

    async fn expired(&mut self) {
        self.until(|event| matches!(event, Event::Expired { rewound: false, .. }).then_some(())).await;
    }

    /// Acknowledges every frame until one carries this cursor.
    async fn until_cursor(&mut self, handle: &WatchHandle, rv: &str) {
        let stream = self.streams;
        loop {
            let frame: WatchFrame = self
                .until(|event| match event {
                    Event::Frame(frame) => Some(frame.clone()),
                    _ => None,
                })
                .await;
            assert!(frame.events.is_empty(), "nothing has changed: {frame:?}");
            handle.to.send(ToWatch::Ack(stream, frame.seq)).await.expect("the task lives");
            if frame.cursor == Some(ResourceVersion::new(rv)) {
                return;
            }
        }
    }
}

fn lists(api: &FakeApi) -> Vec<Seen> {
    api.seen().into_iter().filter(|seen| !seen.is_watch()).collect()
}

fn bookmark(rv: &str) -> String {
    format!(
        r#"{{"type":"BOOKMARK","object":{{"kind":"ConfigMap","metadata":{{"resourceVersion":"{rv}"}}}}}}"#
    )
}

fn expiry() -> String {
    r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}"#
        .to_owned()
}

#[tokio::test]
async fn wch_01_an_expired_cursor_is_listed_again_once_and_the_watch_goes_on_behind_the_list() {
    let Some(input) = case_input("WCH-01") else { return };
    let read = |file: &str| std::fs::read_to_string(input.join(file)).expect("a case's input");
    let recorder = upriver_telemetry::recorder().expect("a recorder");
    // The runtime of a test has one thread, so what its tasks count lands here, and nothing else does.
    let _counting = metrics::set_default_local_recorder(&recorder);
    let api = FakeApi::start().await.expect("a server");
    api.set_list(PATH, read("relist.json"));
    api.add_watch(PATH, read("watch.jsonl").lines().map(str::to_owned), Ending::Close);
    api.add_watch(PATH, [bookmark("90500")], Ending::Stay);
    let mut branch = Played::new(&api, STEP);

    let quiet = branch.begin(Start::Resume(ResourceVersion::new("900"))).await;
    branch.expired().await;
    drop(quiet);
    let listed_before = lists(&api).iter().filter(|seen| seen.parameter("limit") != "1").count();
    assert_eq!(listed_before, 0, "a resume lists nothing");

    let fresh = branch.begin(Start::Replay).await;
    let snapshot = branch.snapshot().await;
    let members: Vec<String> = snapshot.members.iter().map(|member| member.key.to_string()).collect();
    assert_eq!((snapshot.list_rv.as_str(), &members[..]), ("90001", &["rc/kept".to_owned()][..]));
    branch.until_cursor(&fresh, "90500").await;

    let watches: Vec<String> = api
        .seen()
        .iter()
        .filter(|seen| seen.is_watch() && seen.parameter("sendInitialEvents").is_empty())
        .map(|seen| seen.parameter("resourceVersion").to_owned())
        .collect();
    assert_eq!(watches, ["900", "90001"], "one watch each, the second behind the list");
    let lists = lists(&api).iter().filter(|seen| seen.parameter("limit") != "1").count();
    assert_eq!(lists, 1, "listed once");
    let counted = recorder.handle().render();
    assert!(counted.contains("upriver_watch_ends_total{reason=\"expired\"} 1"), "{counted}");
}

#[tokio::test]
async fn a_server_that_calls_every_version_expired_is_asked_less_and_less_often() {
    let api = FakeApi::start().await.expect("a server");
    api.set_list(PATH, r#"{"kind":"ConfigMapList","metadata":{"resourceVersion":"5"},"items":[]}"#);
    let mut branch = Played::new(&api, STEP);
    for _ in 0..4 {
        api.add_watch(PATH, [expiry()], Ending::Close);
        let handle = branch.begin(Start::Replay).await;
        assert_eq!(branch.snapshot().await.list_rv.as_str(), "5");
        branch.expired().await;
        drop(handle);
    }
    let begun: Vec<_> = lists(&api).iter().map(|seen| seen.at).collect();
    assert_eq!(begun.len(), 4, "one list for each expiry");
    for (round, pair) in begun.windows(2).enumerate() {
        let least = Duration::from_millis(250 << round);
        assert!(pair[1] - pair[0] >= least, "round {round}: {:?}", pair[1] - pair[0]);
    }
}

#[tokio::test]
async fn a_silent_watch_is_opened_again_behind_its_cursor_without_a_list() {
    let api = FakeApi::start().await.expect("a server");
    api.set_list(PATH, r#"{"kind":"ConfigMapList","metadata":{"resourceVersion":"70"},"items":[]}"#);
    api.add_watch(PATH, [bookmark("60")], Ending::Stay);
    api.add_watch(PATH, [bookmark("61")], Ending::Stay);
    let mut branch = Played::new(&api, Duration::from_millis(300));
    let handle = branch.begin(Start::Resume(ResourceVersion::new("50"))).await;
    branch.until_cursor(&handle, "61").await;
    let seen = api.seen();
    let watches: Vec<&str> = seen
        .iter()
        .filter(|seen| seen.is_watch())
        .map(|seen| seen.parameter("resourceVersion"))
        .take(2)
        .collect();
    assert_eq!(watches, ["50", "60"]);
    assert!(
        lists(&api).iter().all(|seen| seen.parameter("limit") == "1"),
        "no list but of one object: {seen:?}"
    );
}
