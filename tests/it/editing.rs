//! Edits that go on whatever happens.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use upriver_testkit::User;
use upriver_testkit::stack::{Mirror, Stack};

/// Pause between two edits of a burst.
const PACE: Duration = Duration::from_millis(30);
/// Edits of a burst.
const BURST: usize = 8;
/// Pause between two bursts: long enough for a commit window of 200 ms to close.
const REST: Duration = Duration::from_millis(500);
/// Names that are edited in turn.
const NAMES: usize = 10;
/// A small cluster needs far less; a leak of one object per edit would need more.
const MOST_MEMORY_MB: u64 = 400;

/// Somebody who creates, changes and deletes ConfigMaps until told to stop.
pub struct Editing {
    done: watch::Receiver<usize>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Editing {
    /// Begins, in a namespace, as alice.
    pub fn start(stack: &Stack, namespace: &str) -> Self {
        let (stop, stopped) = watch::channel(false);
        let (count, done) = watch::channel(0);
        let task = tokio::spawn(edit(stack.client(User::Alice), namespace.to_owned(), stopped, count));
        Self { done, stop, task }
    }

    /// Returns after so many more edits.
    pub async fn more(&self, edits: usize) {
        let mut done = self.done.clone();
        let goal = *done.borrow() + edits;
        let reached = tokio::time::timeout(Duration::from_secs(120), done.wait_for(|count| *count >= goal));
        reached.await.expect("edits go on").expect("the editor lives");
    }

    /// Ends after the edit under way.
    pub async fn end(self) {
        self.stop.send_replace(true);
        self.task.await.expect("no edit failed for good");
    }
}

async fn edit(
    client: Client,
    namespace: String,
    stopped: watch::Receiver<bool>,
    count: watch::Sender<usize>,
) {
    let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let mut turn = 0;
    while !*stopped.borrow() {
        let name = format!("edited-{}", turn % NAMES);
        // Every name is deleted in one of three rounds.
        let delete = (turn / NAMES + turn) % 3 == 2;
        let result = if delete {
            api.delete(&name, &DeleteParams::default()).await.map(drop)
        } else {
            let object = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
                "data": {"value": turn.to_string()}
            });
            api.patch(&name, &PatchParams::apply("alice").force(), &Patch::Apply(&object)).await.map(drop)
        };
        match result {
            Ok(()) => turn += 1,
            Err(kube::Error::Api(status)) if delete && status.code == 404 => turn += 1,
            // The API server is away: the same edit again.
            Err(_) => {}
        }
        count.send_replace(turn);
        tokio::time::sleep(if turn % BURST == 0 { REST } else { PACE }).await;
    }
}

/// After a fault: everything arrives, the repository is sound, and no operator has died or grown out of bounds.
pub async fn converges(stack: &Stack, mirror: &Mirror, limit: Duration) {
    stack.until_in_git(mirror, limit).await;
    crate::support::assert_sound(stack);
    for operator in stack.operators() {
        assert!(operator.is_running(), "{} died:\n{}", operator.pod_name(), operator.tail_log());
        let rss = operator.rss_mb();
        assert!(rss < MOST_MEMORY_MB, "{} holds {rss} MiB", operator.pod_name());
    }
}
