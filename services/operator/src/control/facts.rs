//! What has to be asked for or remembered between passes, other than probes and discovery: kubeconfigs, age keys, vanished
//! namespaces, grants, and since when a CommitRequest waits for its target.
//!
//! Secrets are read directly and never watched. A read error other than "not found" changes nothing and is tried again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use kube::{Client, ResourceExt};
use upriver_api::matcher::Labels;
use upriver_api::{ClusterProvider, CommitRequest, GitTarget, Reason};
use upriver_kube_io::kubeconfig::{self, Permits, Unusable};
use upriver_model::ObjectKey;

use super::compile::namespaces::Grants;
use super::compile::{Refusal, key_of};
use super::encryption::{self, AgeKeys, FoundKeys};
use super::probe::secret_data;
use super::snapshot::KubeConfigs;
use super::status::is_over;

/// How often a good Secret is read again: a rotated credential is noticed within that.
const READ_EVERY: Duration = Duration::from_secs(30);
/// How often a missing or bad one is read again: a person waits for it.
const RETRY_EVERY: Duration = Duration::from_secs(5);
/// Longest wait for one: the pass that reads it also moves everything else.
const READ_WITHIN: Duration = Duration::from_secs(5);
/// Secrets read side by side.
const AT_ONCE: usize = 8;
/// Deletions in a vanished namespace may arrive for so long before nobody follows it any more.
const LINGER: Duration = Duration::from_secs(300);
/// A CommitRequest waits so long for its target to be created.
const TARGET_WITHIN: Duration = Duration::from_secs(30);

/// See the module.
#[derive(Default)]
pub(super) struct Facts {
    kube_configs: BTreeMap<String, Timed<i64, KubeConfigs>>,
    age_keys: BTreeMap<ObjectKey, Timed<String, AgeKeys>>,
    namespaces: BTreeMap<String, Labels>,
    departed: BTreeMap<String, (Labels, Instant)>,
    requests: BTreeMap<String, Instant>,
    /// What WatchRules could read in the last pass.
    pub(super) grants: Grants,
}

/// The answer to a question, kept until it is due again.
struct Timed<Q, T> {
    asked: Q,
    value: Option<T>,
    again: Instant,
}

impl<Q: PartialEq, T> Timed<Q, T> {
    fn new(asked: Q, value: Option<T>, good: bool) -> Self {
        Self { asked, value, again: Instant::now() + if good { READ_EVERY } else { RETRY_EVERY } }
    }

    /// True while nobody has to ask again.
    fn holds(&self, question: &Q) -> bool {
        self.asked == *question && Instant::now() < self.again
    }
}

/// What came of reading a Secret.
enum Read {
    Data(BTreeMap<String, Vec<u8>>),
    NotFound,
    /// It says nothing: it is tried again, and what was known stays.
    Failed(String),
}

async fn read(client: &Client, namespace: &str, name: &str) -> Read {
    match tokio::time::timeout(READ_WITHIN, secret_data(client, namespace, name)).await {
        Ok(Ok(data)) => Read::Data(data),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Read::NotFound,
        Ok(Err(error)) => Read::Failed(error.to_string()),
        Err(_) => Read::Failed("the API server did not answer in time".to_owned()),
    }
}

impl Facts {
    /// Reads the kubeconfigs that are due. They live in the operator's own namespace.
    pub(super) async fn read_kube_configs(
        &mut self,
        client: &Client,
        namespace: &str,
        permits: Permits,
        providers: &[Arc<ClusterProvider>],
    ) {
        let remote = providers.iter().filter(|provider| provider.spec.kube_config.is_some());
        let mut remote: BTreeMap<String, Arc<ClusterProvider>> =
            remote.map(|provider| (provider.name_any(), provider.clone())).collect();
        self.kube_configs.retain(|name, _| remote.contains_key(name));
        let generation = |provider: &ClusterProvider| provider.metadata.generation.unwrap_or(0);
        remote.retain(|name, provider| {
            !self.kube_configs.get(name).is_some_and(|known| known.holds(&generation(provider)))
        });
        let reads = remote.into_iter().map(|(name, provider)| async move {
            (name, generation(&provider), judge(client, namespace, permits, &provider).await)
        });
        let reads: Vec<_> = futures::stream::iter(reads).buffered(AT_ONCE).collect().await;
        for (name, generation, result) in reads {
            let value = match result {
                Ok(result) => Some(KubeConfigs { generation, result }),
                Err(error) => {
                    tracing::warn!(provider = name, error, "a kubeconfig could not be read; trying again");
                    self.kube_configs.remove(&name).and_then(|known| known.value)
                }
            };
            let good = value.as_ref().is_some_and(|value| value.result.is_ok());
            self.kube_configs.insert(name, Timed::new(generation, value, good));
        }
    }

    /// Reads the Secrets with age keys that are due.
    pub(super) async fn read_age_keys(&mut self, client: &Client, targets: &[Arc<GitTarget>]) {
        let mut named: BTreeMap<ObjectKey, String> = BTreeMap::new();
        for target in targets {
            if let Some(secret) = encryption::secret_of(target) {
                named.insert(key_of(&**target), secret.to_owned());
            }
        }
        self.age_keys.retain(|key, _| named.contains_key(key));
        named.retain(|key, secret| !self.age_keys.get(key).is_some_and(|known| known.holds(secret)));
        let reads = named.into_iter().map(|(key, secret)| async move {
            let found = read(client, &key.namespace, &secret).await;
            (key, secret, found)
        });
        let reads: Vec<_> = futures::stream::iter(reads).buffered(AT_ONCE).collect().await;
        for (key, secret, found) in reads {
            let value = match found {
                Read::Data(data) => Some(encryption::keys_in(&data)),
                Read::NotFound => Some(FoundKeys::NoSecret),
                Read::Failed(error) => {
                    tracing::warn!(target = %key, error, "a Secret with age keys could not be read; trying again");
                    let known = self.age_keys.remove(&key).filter(|known| known.asked == secret);
                    known.and_then(|known| known.value).map(|known| known.found)
                }
            };
            let good = value.as_ref().is_some_and(|value| matches!(value, FoundKeys::Keys(_)));
            let value = value.map(|found| AgeKeys { secret: secret.clone(), found });
            self.age_keys.insert(key, Timed::new(secret, value, good));
        }
    }

    /// Labels of all namespaces, those that vanished lately included: what was deleted with them is still on the way, and
    /// a scope that ends before its last deletion leaves a file behind.
    pub(super) fn namespaces(&mut self, now: BTreeMap<String, Labels>) -> BTreeMap<String, Labels> {
        let before = std::mem::replace(&mut self.namespaces, now);
        for (name, labels) in before {
            if !self.namespaces.contains_key(&name) {
                self.departed.insert(name, (labels, Instant::now()));
            }
        }
        self.departed
            .retain(|name, (_, since)| !self.namespaces.contains_key(name) && since.elapsed() < LINGER);
        let mut all = self.namespaces.clone();
        all.extend(self.departed.iter().map(|(name, (labels, _))| (name.clone(), labels.clone())));
        all
    }

    /// Uids of the requests whose target was absent for half a minute, counted from when this process first saw them so:
    /// clocks of two machines are not compared.
    pub(super) fn overdue(
        &mut self,
        requests: &[Arc<CommitRequest>],
        targets: &[Arc<GitTarget>],
    ) -> BTreeSet<String> {
        let over = |request: &CommitRequest| request.status.as_ref().is_some_and(is_over);
        let open: Vec<&Arc<CommitRequest>> = requests.iter().filter(|request| !over(request)).collect();
        if open.is_empty() {
            self.requests.clear();
            return BTreeSet::new();
        }
        let known: BTreeSet<ObjectKey> = targets.iter().map(|target| key_of(&**target)).collect();
        let waiting: BTreeSet<String> = open
            .into_iter()
            .filter(|request| !known.contains(&target_of(request)))
            .filter_map(|request| request.uid())
            .collect();
        self.requests.retain(|uid, _| waiting.contains(uid));
        for uid in waiting {
            self.requests.entry(uid).or_insert_with(Instant::now);
        }
        let late = self.requests.iter().filter(|(_, since)| since.elapsed() >= TARGET_WITHIN);
        late.map(|(uid, _)| uid.clone()).collect()
    }

    pub(super) fn kube_configs(&self) -> BTreeMap<String, KubeConfigs> {
        let known = self.kube_configs.iter();
        known.filter_map(|(name, timed)| Some((name.clone(), timed.value.clone()?))).collect()
    }

    pub(super) fn age_keys(&self) -> BTreeMap<ObjectKey, AgeKeys> {
        let known = self.age_keys.iter();
        known.filter_map(|(key, timed)| Some((key.clone(), timed.value.clone()?))).collect()
    }

    /// When something here is due without a change elsewhere.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let kube_configs = self.kube_configs.values().map(|timed| timed.again);
        let age_keys = self.age_keys.values().map(|timed| timed.again);
        let requests = self.requests.values().map(|since| *since + TARGET_WITHIN);
        // What lies in the past was reported in the pass that just ended, or is not this replica's to read.
        let now = Instant::now();
        kube_configs.chain(age_keys).chain(requests).filter(|due| *due > now).min()
    }
}

/// The target that a request names.
pub(super) fn target_of(request: &CommitRequest) -> ObjectKey {
    ObjectKey::new(&request.namespace().unwrap_or_default(), &request.spec.target_ref.name)
}

/// The verdict on a kubeconfig, without a dial.
async fn judge(
    client: &Client,
    namespace: &str,
    permits: Permits,
    provider: &ClusterProvider,
) -> Result<Result<(), Refusal>, String> {
    let refuse = |reason: Reason, message: String| Ok(Err(Refusal::new(reason, message)));
    let source = provider.spec.kube_config.as_ref();
    let Some(reference) = source.and_then(|source| source.secret_ref.as_ref()) else {
        let message = "spec.kubeConfig has no secretRef: recreate the object with one";
        return refuse(Reason::KubeConfigInvalid, message.to_owned());
    };
    let secret = format!("{namespace}/{}", reference.name);
    let data = match read(client, namespace, &reference.name).await {
        Read::Data(data) => data,
        Read::NotFound => {
            let message =
                format!("Secret {secret} does not exist: create it there, in the operator's namespace");
            return refuse(Reason::KubeConfigSecretNotFound, message);
        }
        Read::Failed(error) => return Err(error),
    };
    let checked = match kubeconfig::pick(&data, reference.key.as_deref()) {
        Ok(text) => kubeconfig::check(text, permits).await,
        Err(error) => Err(error),
    };
    Ok(checked.map_err(|error| Refusal::new(reason_of(&error), format!("Secret {secret}: {error}"))))
}

fn reason_of(error: &Unusable) -> Reason {
    match error {
        Unusable::KeyNotFound { .. } => Reason::KubeConfigKeyNotFound,
        Unusable::Invalid { .. } => Reason::KubeConfigInvalid,
        Unusable::Exec { .. } => Reason::KubeConfigExecNotAllowed,
        Unusable::InsecureTls { .. } => Reason::KubeConfigInsecureTLSNotAllowed,
        Unusable::FileReference { .. } => Reason::KubeConfigFileReferenceNotAllowed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(names: &[&str]) -> BTreeMap<String, Labels> {
        names.iter().map(|name| ((*name).to_owned(), Labels::new())).collect()
    }

    #[test]
    fn an_answer_holds_for_its_question_until_it_is_due_also_if_there_was_none() {
        let none: Timed<i64, ()> = Timed::new(1, None, false);
        assert!(none.holds(&1) && !none.holds(&2));
        let due = Timed { again: Instant::now(), ..none };
        assert!(!due.holds(&1));
    }

    #[test]
    fn a_vanished_namespace_is_followed_a_while_longer_and_a_recreated_one_is_itself() {
        let mut facts = Facts::default();
        facts.namespaces(labels(&["a", "b"]));
        let names = |all: BTreeMap<String, Labels>| all.into_keys().collect::<Vec<_>>();
        assert_eq!(names(facts.namespaces(labels(&["b"]))), ["a", "b"]);
        assert_eq!(names(facts.namespaces(labels(&["b"]))), ["a", "b"]);
        let mut again = labels(&["b"]);
        again.insert("a".to_owned(), Labels::from([("new".to_owned(), "yes".to_owned())]));
        assert_eq!(facts.namespaces(again)["a"]["new"], "yes");
        assert!(facts.departed.is_empty());
    }
}
