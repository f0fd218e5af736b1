//! Who owned which branch when, and when did each branch move?
//!
//! In: the Leases, looked at all the time, and the tips of the branches. Out: a timeline of both; what in it must not be
//! (an epoch that falls, or has two holders); how long a branch stood still when its owner went. Absent: what commits hold,
//! see [`crate::history`].

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};
use upriver_testkit::User;
use upriver_testkit::operator::NAMESPACE;
use upriver_testkit::wait::until_blocking;

use crate::fleet::Fleet;

/// Between two looks at the Leases: a take-over is told to this precision.
const LOOK: Duration = Duration::from_millis(150);
/// An API server that does not answer is asked again.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// Longer than any run: the thread is stopped, it does not time out.
const FOR_EVER: Duration = Duration::from_secs(86_400);
/// Label and annotation of the Leases, as the operator writes them.
const ROLE: &str = "upriver.configbutler.ai/lease";
const ABOUT: &str = "upriver.configbutler.ai/about";

/// A claim at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// Name of the session that holds it, empty if none does.
    pub(crate) holder: String,
    pub(crate) epoch: i32,
}

#[derive(Clone, Debug)]
struct Sight {
    at: Instant,
    held: Held,
}

/// An owner that went.
#[derive(Clone, Debug)]
pub(crate) struct Departure {
    pub(crate) at: Instant,
    /// Its session.
    pub(crate) holder: String,
    /// Its branches, by their place in [`Fleet::branches`].
    pub(crate) branches: Vec<usize>,
}

#[derive(Default)]
struct Seen {
    /// By branch.
    claims: BTreeMap<usize, Vec<Sight>>,
    tips: BTreeMap<usize, Vec<Instant>>,
    wrong: Vec<String>,
}

/// Watches until it is dropped.
pub(crate) struct Witness {
    seen: Arc<Mutex<Seen>>,
    stop: Arc<AtomicBool>,
    leases: JoinHandle<()>,
    tips: Option<std::thread::JoinHandle<()>>,
}

impl Witness {
    /// Begins.
    pub(crate) fn start(fleet: &Arc<Fleet>) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let leases = tokio::spawn(watch_leases(Arc::clone(fleet), Arc::clone(&seen)));
        let (of_tips, told) = (Arc::clone(&seen), Arc::clone(&stop));
        let repos: Vec<_> = fleet
            .branches
            .iter()
            .map(|branch| (fleet.stack.repo_named(&branch.repo), branch.name.clone()))
            .collect();
        let tips = std::thread::spawn(move || {
            let mut known: Vec<Option<String>> =
                repos.iter().map(|(repo, branch)| repo.head(branch)).collect();
            until_blocking(FOR_EVER, || {
                for (index, (repo, branch)) in repos.iter().enumerate() {
                    let head = repo.head(branch);
                    if head != known[index] {
                        known[index] = head;
                        lock(&of_tips).tips.entry(index).or_default().push(Instant::now());
                    }
                }
                told.load(Ordering::Relaxed).then_some(())
            });
        });
        Self { seen, stop, leases, tips: Some(tips) }
    }

    /// Who holds the claim of a branch; `None` if nobody does.
    pub(crate) fn holder(&self, branch: usize) -> Option<String> {
        let seen = lock(&self.seen);
        let holder = seen.claims.get(&branch)?.last()?.held.holder.clone();
        Some(holder).filter(|holder| !holder.is_empty())
    }

    /// The departure, at this moment, of a replica; its branches are those that its present session holds.
    pub(crate) fn departure(&self, pod: &str) -> Option<Departure> {
        let seen = lock(&self.seen);
        let held = seen.claims.iter().filter_map(|(branch, sights)| {
            let holder = &sights.last()?.held.holder;
            (pod_of(holder) == Some(pod)).then(|| (*branch, holder.clone()))
        });
        let held: Vec<(usize, String)> = held.collect();
        let holder = held.first()?.1.clone();
        let branches = held.into_iter().map(|(branch, _)| branch).collect();
        Some(Departure { at: Instant::now(), holder, branches })
    }

    /// For each branch of a departed owner, how long after its departure somebody else's first commit came; `None` while
    /// one is missing.
    pub(crate) fn gaps(&self, departure: &Departure) -> Option<Vec<Duration>> {
        let seen = lock(&self.seen);
        let gap = |branch: &usize| {
            let later = |sight: &&Sight| {
                let holder = &sight.held.holder;
                sight.at >= departure.at && !holder.is_empty() && *holder != departure.holder
            };
            let taken = seen.claims.get(branch)?.iter().find(later)?.at;
            let moved = seen.tips.get(branch)?.iter().find(|moved| **moved >= taken)?;
            Some(moved.saturating_duration_since(departure.at))
        };
        departure.branches.iter().map(gap).collect()
    }

    /// What must not be and was seen since the last call.
    pub(crate) fn take_wrong(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.seen).wrong)
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.leases.abort();
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.tips.take() {
            // A panic in it was printed by itself.
            let _ = thread.join();
        }
    }
}

/// A holder is the session of a replica: its Lease's name, which ends in the name of the pod and a suffix of its own.
pub(crate) fn pod_of(holder: &str) -> Option<&str> {
    holder.strip_prefix("upriver-session-")?.rsplit_once('-').map(|(pod, _)| pod)
}

/// What the Leases say now: the claims by what they are about, and the replicas whose session lives.
///
/// # Errors
/// What the API server said.
pub(crate) async fn claims_and_sessions(
    fleet: &Fleet,
) -> Result<(BTreeMap<String, Held>, Vec<String>), String> {
    let api: Api<Lease> = Api::namespaced(fleet.stack.client(User::Admin), NAMESPACE);
    sort(&api).await
}

async fn sort(api: &Api<Lease>) -> Result<(BTreeMap<String, Held>, Vec<String>), String> {
    let params = ListParams::default().labels(ROLE);
    let listed = tokio::time::timeout(ANSWER_WITHIN, api.list(&params)).await;
    let leases = listed.map_err(|_| "no answer".to_owned())?.map_err(|error| error.to_string())?;
    let (mut claims, mut sessions) = (BTreeMap::new(), Vec::new());
    for lease in leases {
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.unwrap_or_default();
        match lease.labels().get(ROLE).map(String::as_str) {
            Some("claim") => {
                let about = lease.annotations().get(ABOUT).cloned().unwrap_or_default();
                claims.insert(about, Held { holder, epoch: spec.lease_transitions.unwrap_or(0) });
            }
            Some("session") if !holder.is_empty() => sessions.push(holder),
            Some(_) | None => {}
        }
    }
    Ok((claims, sessions))
}

async fn watch_leases(fleet: Arc<Fleet>, seen: Arc<Mutex<Seen>>) {
    let api: Api<Lease> = Api::namespaced(fleet.stack.client(User::Admin), NAMESPACE);
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        // The API server may be away: that is one of the faults.
        let Ok((claims, _)) = sort(&api).await else { continue };
        let at = Instant::now();
        let mut seen = lock(&seen);
        for (index, branch) in fleet.branches.iter().enumerate() {
            if let Some(held) = claims.get(&branch.about) {
                seen.note(index, at, held, &branch.about);
            }
        }
    }
}

impl Seen {
    fn note(&mut self, branch: usize, at: Instant, held: &Held, about: &str) {
        let sights = self.claims.entry(branch).or_default();
        if sights.last().is_some_and(|sight| sight.held == *held) {
            return;
        }
        if let Some(Sight { held: before, .. }) = sights.last() {
            let another =
                before.holder != held.holder && !before.holder.is_empty() && !held.holder.is_empty();
            if held.epoch < before.epoch {
                self.wrong.push(format!("the epoch of {about} fell from {} to {}", before.epoch, held.epoch));
            } else if held.epoch == before.epoch && another {
                self.wrong.push(format!(
                    "epoch {} of {about} has two holders, {} and {}",
                    held.epoch, before.holder, held.holder
                ));
            }
        }
        sights.push(Sight { at, held: held.clone() });
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(holder: &str, epoch: i32) -> Held {
        Held { holder: holder.to_owned(), epoch }
    }

    #[test]
    fn an_epoch_that_falls_or_has_two_holders_is_wrong() {
        let mut seen = Seen::default();
        for (holder, epoch) in [("a-1", 1), ("", 1), ("b-1", 2), ("c-1", 2), ("a-2", 1)] {
            seen.note(0, Instant::now(), &held(holder, epoch), "x");
        }
        assert_eq!(
            seen.wrong,
            ["epoch 2 of x has two holders, b-1 and c-1", "the epoch of x fell from 2 to 1"]
        );
    }

    #[test]
    fn the_pod_of_a_holder_is_in_its_sessions_name() {
        assert_eq!(pod_of("upriver-session-upriver-0-00c0ffee"), Some("upriver-0"));
        assert_eq!(pod_of(""), None);
    }
}
