//! Who edits what, and what has the API server made of it?
//!
//! In: clients of several people, dice, a rate. Out: for every object the versions that it had, in the order of the
//! cluster. Each write carries a number that no other write has, so a file in Git can be told apart from every other state
//! of its object. An edit names the version that it is based on, so one that arrives late changes nothing; one whose
//! answer was lost is looked up. Edits go straight to the API server: people are not behind the proxies of a replica.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, PostParams, Preconditions};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;
use tokio::sync::{Mutex, MutexGuard, watch};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use upriver_model::Gvr;
use upriver_testkit::stack::resources;
use upriver_testkit::{Mirror, User};

use crate::fleet::{Fleet, widgets};

/// Who edits, at once.
const PEOPLE: [User; 3] = [User::Alice, User::Bob, User::Carol];
/// Names of each type in a namespace.
const CONFIG_MAPS: usize = 6;
const WIDGETS: usize = 3;
/// Between two looks at an API server that does not answer.
const AWAY: Duration = Duration::from_millis(300);

/// One state of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// The number that it carries; `None` if the object was deleted.
    pub(crate) stamp: Option<u64>,
    /// The API server's version; that of the object before it for a deletion.
    pub(crate) resource_version: String,
    /// Which object of this name.
    pub(crate) uid: String,
}

/// The object under one name.
struct Slot {
    namespace: String,
    gvr: Gvr,
    kind: &'static str,
    name: String,
    /// Held during an edit, so that the versions are in the cluster's order.
    versions: Mutex<Vec<Version>>,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) edits: u64,
    pub(crate) deletes: u64,
}

/// All objects, with what they have been through.
pub(crate) struct World {
    slots: Vec<Slot>,
    clients: Vec<(User, Client)>,
    next_stamp: AtomicU64,
    edits: AtomicU64,
    deletes: AtomicU64,
}

/// People at work.
pub(crate) struct Driver {
    stop: watch::Sender<bool>,
    people: JoinSet<()>,
}

impl World {
    /// A world whose objects do not exist yet.
    pub(crate) fn new(fleet: &Fleet) -> Self {
        let mut namespaces: Vec<&str> =
            fleet.mirrors.iter().map(|mirror| mirror.spec.namespace.as_str()).collect();
        namespaces.sort_unstable();
        namespaces.dedup();
        let mut slots = Vec::new();
        for namespace in namespaces {
            let types =
                [("ConfigMap", resources::config_maps(), CONFIG_MAPS), ("Widget", widgets(), WIDGETS)];
            for (kind, gvr, count) in types {
                slots.extend((0..count).map(|index| Slot {
                    namespace: namespace.to_owned(),
                    gvr: gvr.clone(),
                    kind,
                    name: format!("object-{index}"),
                    versions: Mutex::default(),
                }));
            }
        }
        let clients = PEOPLE.map(|user| (user, fleet.stack.client(user))).into();
        let [next_stamp, edits, deletes] = [1, 0, 0].map(AtomicU64::new);
        Self { slots, clients, next_stamp, edits, deletes }
    }

    /// What was done so far.
    pub(crate) fn counts(&self) -> Counts {
        Counts { edits: self.edits.load(Ordering::SeqCst), deletes: self.deletes.load(Ordering::SeqCst) }
    }

    /// The versions of each object by the path of its file in this mirror. Nobody may be editing.
    pub(crate) async fn versions(&self, mirror: &Mirror) -> BTreeMap<String, Vec<Version>> {
        let mut by_path = BTreeMap::new();
        for slot in self.slots.iter().filter(|slot| slot.namespace == mirror.spec.namespace) {
            let path = mirror.file_of(&slot.gvr, &slot.name);
            by_path.insert(path, slot.versions.lock().await.clone());
        }
        by_path
    }

    async fn edit(&self, person: usize, dice: &mut StdRng) {
        let (user, client) = &self.clients[person];
        let slot = &self.slots[dice.random_range(0..self.slots.len())];
        let mut versions = slot.versions.lock().await;
        let hand = Hand { slot, api: slot.api(client), user: *user, world: self };
        let lives = versions.last().is_some_and(|version| version.stamp.is_some());
        let throw = dice.random_range(0..20);
        if !lives || throw < 15 {
            hand.write(&mut versions).await;
        } else {
            hand.delete(&mut versions).await;
            // Deleted and made again at once: two objects, one file.
            if throw < 17 {
                hand.write(&mut versions).await;
            }
        }
    }
}

impl Slot {
    fn api(&self, client: &Client) -> Api<DynamicObject> {
        let resource = ApiResource {
            group: self.gvr.group.to_string(),
            version: self.gvr.version.to_string(),
            api_version: self.gvr.api_version(),
            kind: self.kind.to_owned(),
            plural: self.gvr.resource.to_string(),
        };
        Api::namespaced_with(client.clone(), &self.namespace, &resource)
    }

    fn object(&self, stamp: u64, user: User) -> DynamicObject {
        let body = json!({"by": user.name(), "value": stamp.to_string()});
        let field = if self.kind == "ConfigMap" { "data" } else { "spec" };
        let object = json!({
            "apiVersion": self.gvr.api_version(), "kind": self.kind,
            "metadata": {"namespace": self.namespace, "name": self.name},
            field: body,
        });
        serde_json::from_value(object).expect("it has the form of an object")
    }
}

/// One person about to change one object.
struct Hand<'a> {
    slot: &'a Slot,
    api: Api<DynamicObject>,
    user: User,
    world: &'a World,
}

impl Hand<'_> {
    async fn write(&self, versions: &mut MutexGuard<'_, Vec<Version>>) {
        let stamp = self.world.next_stamp.fetch_add(1, Ordering::SeqCst);
        let mut object = self.slot.object(stamp, self.user);
        let before = versions.last().filter(|version| version.stamp.is_some());
        object.metadata.resource_version = before.map(|version| version.resource_version.clone());
        let params = PostParams::default();
        let answer = match before {
            Some(_) => self.api.replace(&self.slot.name, &params, &object).await,
            None => self.api.create(&params, &object).await,
        };
        match answer {
            Ok(object) => versions.extend(version_of(&object)),
            Err(_) => self.look_up(versions).await,
        }
        if versions.last().and_then(|version| version.stamp) == Some(stamp) {
            self.world.edits.fetch_add(1, Ordering::SeqCst);
        }
    }

    async fn delete(&self, versions: &mut MutexGuard<'_, Vec<Version>>) {
        let Some(before) = versions.last().cloned() else { return };
        let only_this = Preconditions {
            uid: Some(before.uid.clone()),
            resource_version: Some(before.resource_version.clone()),
        };
        let params = DeleteParams { preconditions: Some(only_this), ..DeleteParams::default() };
        match self.api.delete(&self.slot.name, &params).await {
            Ok(_) => versions.push(Version { stamp: None, ..before }),
            Err(_) => self.look_up(versions).await,
        }
        if versions.last().is_some_and(|version| version.stamp.is_none()) {
            self.world.deletes.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// What lives, after an answer that was lost or a refusal.
    async fn look_up(&self, versions: &mut MutexGuard<'_, Vec<Version>>) {
        let mut looks = interval(AWAY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            let Ok(found) = self.api.get_opt(&self.slot.name).await else { continue };
            let lived = versions.last().filter(|version| version.stamp.is_some()).cloned();
            match (found.as_ref().and_then(version_of), lived) {
                (Some(found), _) if versions.last() != Some(&found) => versions.push(found),
                (None, Some(lived)) => versions.push(Version { stamp: None, ..lived }),
                (Some(_) | None, _) => {}
            }
            return;
        }
    }
}

fn version_of(object: &DynamicObject) -> Option<Version> {
    let value = object.data.get("data").or_else(|| object.data.get("spec"))?.get("value")?;
    Some(Version {
        stamp: Some(value.as_str()?.parse().ok()?),
        resource_version: object.metadata.resource_version.clone()?,
        uid: object.metadata.uid.clone()?,
    })
}

impl Driver {
    /// Lets people edit, `rate` times a second together, until [`Driver::stop`].
    pub(crate) fn start(world: &Arc<World>, dice: u64, rate: u32) -> Self {
        let (stop, stopped) = watch::channel(false);
        let mut people = JoinSet::new();
        let count = u32::try_from(PEOPLE.len()).unwrap_or(u32::MAX);
        let pace = Duration::from_secs(1) * count / rate.max(1);
        for person in 0..PEOPLE.len() {
            let (world, stopped) = (Arc::clone(world), stopped.clone());
            let mut dice = StdRng::seed_from_u64(dice.wrapping_add(person as u64));
            people.spawn(async move {
                let mut ticks = interval(pace);
                ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
                while !*stopped.borrow() {
                    ticks.tick().await;
                    world.edit(person, &mut dice).await;
                }
            });
        }
        Self { stop, people }
    }

    /// Returns when the last edit is done and its outcome known.
    pub(crate) async fn stop(mut self) {
        self.stop.send_replace(true);
        while let Some(ended) = self.people.join_next().await {
            ended.expect("people do not panic");
        }
    }
}
