//! Conversations against scripted answers of an API server; the test plays the owners.

use std::time::Duration;

use upriver_engine::branch::{Chosen, Snapshot, Start, Subscription, WatchFrame, WatchHealth};
use upriver_kube_io::watch::WatchSpec;
use upriver_model::{Gvr, Operation, ResourceVersion, Scope, TargetScope, TargetUid};
use upriver_testkit::case_input;
use upriver_testkit::fake_api::{Ending, FakeApi, Seen};

use super::desk::Desk;
use super::link::{FromWatch, OwnerEnd, Subscribe, ToWatch, pair};
use super::*;

const PATH: &str = "/api/v1/namespaces/rc/configmaps";
/// Far above what any step takes.
const STEP: Duration = Duration::from_secs(30);

fn key() -> WatchKey {
    let gvr = Gvr::new("", "v1", "configmaps");
    WatchKey { cluster: "local".into(), gvr, scope: Scope::Namespace("rc".into()) }
}

fn subscription() -> Subscription {
    let watch = key();
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

/// A watcher with one feed for each owner that the test plays.
struct Played {
    context: Arc<Context>,
    memory: Memory,
}

impl Played {
    fn new(api: &FakeApi, idle_limit: Duration) -> Self {
        let client = api.client();
        let spec: WatchSpec = spec(&key(), "ConfigMap", idle_limit);
        let hub =
            hub::start(client.clone(), key(), Arc::new(spec), &TaskTracker::new(), CancellationToken::new());
        let context = Context {
            client,
            idle_limit,
            key: key(),
            epoch: 1,
            streams: AtomicU64::new(0),
            hub,
            routes: Routes {
                desk: Desk::new(),
                directory: tokio::sync::watch::channel(Arc::default()).1,
                look: Arc::default(),
                peers: None,
                carriers: TaskTracker::new(),
            },
        };
        Self { context: Arc::new(context), memory: Memory::default() }
    }

    /// Plays an owner that asks for a beginning, until `play` is done with it.
    async fn owner<T>(&mut self, begin: Start, play: impl AsyncFnOnce(&mut Owner) -> T) -> T {
        let hello = Hello { branch: BranchKey::new("shard".to_owned()), watch: key(), epoch: 1 };
        let (watcher, end) = pair(hello.clone());
        let played = async {
            let mut owner = Owner { end, stream: 0 };
            owner.begin(begin).await;
            play(&mut owner).await
        };
        tokio::select! {
            played = played => played,
            (_, over) = conversation::run(&self.context, &mut self.memory, &hello, watcher) => {
                let stale = matches!(over, Over::Stale { .. });
                panic!("the conversation is over; stale: {stale}")
            }
        }
    }
}

struct Owner {
    end: OwnerEnd,
    stream: u64,
}

impl Owner {
    async fn begin(&mut self, begin: Start) {
        let subscribe = Subscribe {
            subscriptions: vec![subscription()],
            scope_hash: "hash".to_owned(),
            names: link::Names::new(),
        };
        self.say(ToWatch::Subscribe(subscribe)).await;
        let opening = self
            .until(|message| match message {
                FromWatch::Opening(opening) => Some(opening.clone()),
                _ => None,
            })
            .await;
        assert_eq!((opening.watch_epoch, &*opening.scope_hash), (1, "hash"));
        assert!(opening.stream > self.stream, "never used before");
        self.stream = opening.stream;
        self.say(ToWatch::Begin(opening, begin)).await;
    }

    async fn say(&self, message: ToWatch) {
        self.end.to.send(message).await.expect("the conversation lives");
    }

    /// Reads events until one is what is looked for. A blocked watch is never expected here.
    async fn until<T>(&mut self, mut wanted: impl FnMut(&FromWatch) -> Option<T>) -> T {
        let found = async {
            loop {
                let said = self.end.from.recv().await.expect("the conversation lives");
                if let FromWatch::Health(WatchHealth::Blocked { message, .. }) = &said {
                    panic!("blocked: {message}");
                }
                if let Some(found) = wanted(&said) {
                    return found;
                }
            }
        };
        tokio::time::timeout(STEP, found).await.expect("the event came in time")
    }

    async fn snapshot(&mut self) -> Snapshot {
        self.until(|said| match said {
            FromWatch::Snapshot(snapshot) => Some((**snapshot).clone()),
            _ => None,
        })
        .await
    }

    async fn expired(&mut self) {
        self.until(|said| matches!(said, FromWatch::Expired { rewound: false, .. }).then_some(())).await;
    }

    /// Acknowledges every frame until one carries this cursor.
    async fn until_cursor(&mut self, rv: &str) {
        loop {
            let frame: WatchFrame = self
                .until(|said| match said {
                    FromWatch::Frame(frame) => Some(frame.clone()),
                    _ => None,
                })
                .await;
            assert!(frame.events.is_empty(), "nothing has changed: {frame:?}");
            self.say(ToWatch::Ack(self.stream, frame.seq)).await;
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
    let mut watcher = Played::new(&api, STEP);

    let resume = Start::Resume(ResourceVersion::new("900"));
    watcher.owner(resume, async |owner| owner.expired().await).await;
    let listed_before = lists(&api).iter().filter(|seen| seen.parameter("limit") != "1").count();
    assert_eq!(listed_before, 0, "a resume lists nothing");

    let snapshot = watcher
        .owner(Start::Replay, async |owner| {
            let snapshot = owner.snapshot().await;
            owner.until_cursor("90500").await;
            snapshot
        })
        .await;
    let members: Vec<String> = snapshot.members.iter().map(|member| member.key.to_string()).collect();
    assert_eq!((snapshot.list_rv.as_str(), &members[..]), ("90001", &["rc/kept".to_owned()][..]));

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
    let mut watcher = Played::new(&api, STEP);
    for _ in 0..4 {
        api.add_watch(PATH, [expiry()], Ending::Close);
        watcher
            .owner(Start::Replay, async |owner| {
                assert_eq!(owner.snapshot().await.list_rv.as_str(), "5");
                owner.expired().await;
            })
            .await;
    }
    let begun: Vec<_> =
        lists(&api).iter().filter(|seen| seen.parameter("limit") != "1").map(|seen| seen.at).collect();
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
    let mut watcher = Played::new(&api, Duration::from_millis(300));
    let resume = Start::Resume(ResourceVersion::new("50"));
    watcher.owner(resume, async |owner| owner.until_cursor("61").await).await;
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

fn changed(rv: u32) -> String {
    let metadata = format!(r#"{{"name":"o{rv}","namespace":"rc","uid":"u{rv}","resourceVersion":"{rv}"}}"#);
    format!(r#"{{"type":"ADDED","object":{{"kind":"ConfigMap","apiVersion":"v1","metadata":{metadata}}}}}"#)
}

fn resumed(api: &FakeApi) -> Vec<String> {
    let watches = api.seen().into_iter().filter(Seen::is_watch);
    watches.map(|seen| seen.parameter("resourceVersion").to_owned()).collect()
}

/// Acknowledges frames until so many events have come; answers their versions.
async fn read_events(owner: &mut Owner, count: usize) -> Vec<String> {
    let mut versions = Vec::new();
    while versions.len() < count {
        let frame = owner
            .until(|said| match said {
                FromWatch::Frame(frame) => Some(frame.clone()),
                _ => None,
            })
            .await;
        versions.extend(frame.events.iter().map(|event| event.rv.as_str().to_owned()));
        owner.say(ToWatch::Ack(owner.stream, frame.seq)).await;
    }
    versions
}

#[tokio::test]
async fn two_branches_share_one_watch_and_each_gets_what_comes_after_its_own_cursor() {
    let api = FakeApi::start().await.expect("a server");
    api.set_list(PATH, r#"{"kind":"ConfigMapList","metadata":{"resourceVersion":"90"},"items":[]}"#);
    api.add_watch(PATH, [changed(60), changed(70)], Ending::Stay);
    let mut one = Played::new(&api, STEP);
    let mut other = Played { context: one.context.clone(), memory: Memory::default() };
    let after = |rv: &str| Start::Resume(ResourceVersion::new(rv));
    let (first, second) = tokio::join!(
        one.owner(after("50"), async |owner| read_events(owner, 2).await),
        other.owner(after("60"), async |owner| read_events(owner, 1).await),
    );
    assert_eq!((first, second), (vec!["60".to_owned(), "70".to_owned()], vec!["70".to_owned()]));
    assert_eq!(resumed(&api), ["50"], "one watch, from the lower of the two");
}

#[tokio::test]
async fn one_that_is_far_behind_catches_up_with_a_watch_of_its_own_and_then_joins() {
    let api = FakeApi::start().await.expect("a server");
    api.set_list(PATH, r#"{"kind":"ConfigMapList","metadata":{"resourceVersion":"90"},"items":[]}"#);
    api.add_watch(PATH, [changed(70)], Ending::Stay);
    api.add_watch(PATH, [changed(40), changed(70), bookmark("80")], Ending::Stay);
    let mut one = Played::new(&api, STEP);
    let mut other = Played { context: one.context.clone(), memory: Memory::default() };
    let after = |rv: &str| Start::Resume(ResourceVersion::new(rv));
    let recorder = upriver_telemetry::recorder().expect("a recorder");
    let _counting = metrics::set_default_local_recorder(&recorder);
    let open = |mode: &str, count: u32| {
        recorder.handle().render().contains(&format!("upriver_watches_open{{mode=\"{mode}\"}} {count}"))
    };
    let played = one.owner(after("50"), async |owner| {
        let first = read_events(owner, 1).await;
        let late = other
            .owner(after("30"), async |owner| {
                let events = read_events(owner, 2).await;
                let joined = async {
                    while !open("own", 0) {
                        // Whatever it says meanwhile, and a look at the count now and then.
                        let said = tokio::time::timeout(Duration::from_millis(20), owner.end.from.recv());
                        drop(said.await);
                    }
                };
                tokio::time::timeout(STEP, joined).await.expect("it joins the shared watch");
                events
            })
            .await;
        (first, late)
    });
    let (first, late) = played.await;
    assert_eq!((first, late), (vec!["70".to_owned()], vec!["40".to_owned(), "70".to_owned()]));
    assert_eq!(resumed(&api), ["50", "30"]);
    assert!(open("shared", 1));
}
