//! Complete lists: as the beginning of a watch, or in pages beside one. A partial list is never a snapshot.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::Client;
use tokio::sync::mpsc;
use upriver_content::ObjectMeta;
use upriver_engine::branch::{Member, Snapshot};
use upriver_kube_io::watch::{Begin, Item, Watch, WatchError, WatchSpec, list_page};
use upriver_model::{ObjectKey, ResourceVersion, TargetScope};
use upriver_store::Opening;
use upriver_telemetry::metric;

use super::link::FromWatch;
use super::subscribed::Subscribed;
use crate::tasks::wall_ms;

/// Objects per page: some megabytes at most.
const PAGE: u32 = 500;

/// A list, and the watch that goes on after it where the server streams lists.
pub(super) struct Started {
    pub(super) snapshot: Snapshot,
    pub(super) watch: Option<Watch>,
}

/// A complete list: the beginning of a watch where the server can, in pages where it cannot.
pub(super) async fn start(
    client: &Client,
    spec: &WatchSpec,
    opening: &Opening,
    subscribed: &mut Subscribed,
) -> Result<Started, WatchError> {
    match Watch::open(client, spec, &Begin::Initial).await {
        Ok(watch) => streamed(watch, opening, subscribed).await,
        Err(WatchError::NoStreamingList { message }) => {
            tracing::info!(gvr = %spec.gvr, message, "no streaming list here; listing in pages");
            let snapshot = paged(client, spec, opening, &[], subscribed).await?;
            Ok(Started { snapshot, watch: None })
        }
        Err(other) => Err(other),
    }
}

async fn streamed(
    mut watch: Watch,
    opening: &Opening,
    subscribed: &mut Subscribed,
) -> Result<Started, WatchError> {
    let mut members: BTreeMap<ObjectKey, Member> = BTreeMap::new();
    loop {
        match watch.next().await? {
            Item::Added(object) | Item::Modified(object) => match subscribed.member(&object, &[]) {
                Some(member) => {
                    members.insert(member.key.clone(), member);
                }
                None => forget(&mut members, &object),
            },
            Item::Deleted(object) => forget(&mut members, &object),
            Item::Bookmark { rv, initial_end: true } => {
                let snapshot = finish(opening, Vec::new(), rv, members.into_values().collect());
                return Ok(Started { snapshot, watch: Some(watch) });
            }
            Item::Bookmark { initial_end: false, .. } => {}
        }
    }
}

/// Deleted, or turned into something that is not mirrored, while the list was on its way.
fn forget(members: &mut BTreeMap<ObjectKey, Member>, object: &str) {
    if let Ok(meta) = ObjectMeta::peek(object) {
        members.remove(&ObjectKey::new(&meta.namespace, &meta.name));
    }
}

/// A list in pages of one version, for some scopes or, with none named, for all.
pub(super) async fn paged(
    client: &Client,
    spec: &WatchSpec,
    opening: &Opening,
    scopes: &[TargetScope],
    subscribed: &mut Subscribed,
) -> Result<Snapshot, WatchError> {
    let mut members = Vec::new();
    let mut next = None;
    loop {
        let page = list_page(client, spec, PAGE, next.as_deref()).await?;
        members.extend(page.items.iter().filter_map(|object| subscribed.member(object, scopes)));
        next = page.next;
        if next.is_none() {
            return Ok(finish(opening, scopes.to_vec(), page.rv, members));
        }
    }
}

fn finish(
    opening: &Opening,
    scopes: Vec<TargetScope>,
    list_rv: ResourceVersion,
    members: Vec<Member>,
) -> Snapshot {
    let gvr = &opening.watch.gvr;
    metrics::counter!(metric::REPLAYS, "group" => gvr.group.to_string(), "resource" => gvr.resource.to_string())
        .increment(1);
    Snapshot { opening: opening.clone(), scopes, list_rv, time_ms: wall_ms(), members }
}

/// A list beside a running watch; repeated until it succeeds.
pub(super) struct Backfill {
    pub(super) client: Client,
    pub(super) to: mpsc::Sender<FromWatch>,
    pub(super) spec: WatchSpec,
    pub(super) opening: Opening,
    pub(super) scopes: Vec<TargetScope>,
    pub(super) subscribed: Subscribed,
}

impl Backfill {
    pub(super) async fn run(mut self) {
        let mut pause = Duration::from_millis(500);
        loop {
            let list =
                paged(&self.client, &self.spec, &self.opening, &self.scopes, &mut self.subscribed).await;
            match list {
                Ok(snapshot) => {
                    let left_out = self.subscribed.take_left_out();
                    // A closed channel means that the conversation is over.
                    let _ = self.to.send(FromWatch::Snapshot(Box::new(snapshot))).await;
                    if !left_out.is_empty() {
                        let _ = self.to.send(FromWatch::LeftOut(left_out)).await;
                    }
                    return;
                }
                Err(error) => {
                    tracing::warn!(watch = %self.opening.watch, %error, "a list failed; listing again");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(30));
                }
            }
        }
    }
}
