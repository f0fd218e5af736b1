//! Session and claim Leases: every write carries uid and resourceVersion (F6).
//!
//! In: what to write and onto which version. Out: applied, refused, or "unknown", which is the honest answer to a lost
//! connection. A merge patch without a version, as `kube-leader-election` sends it, lets two candidates win; so ownership
//! uses `replace` only.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{Stream, StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, ListParams, ObjectMeta, PostParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt};

/// Label that tells our Leases from others: its value is `session` or `claim`.
pub const ROLE_LABEL: &str = "upriver.configbutler.ai/lease";
/// Annotation that spells out what a claim is about, or where a session can be reached.
pub const ABOUT: &str = "upriver.configbutler.ai/about";
const NONCE: &str = "upriver.configbutler.ai/nonce";
const POD: &str = "upriver.configbutler.ai/pod";
const CLEAN: &str = "upriver.configbutler.ai/released-clean";
const SUCCESSOR: &str = "upriver.configbutler.ai/successor";
const ADDRESS: &str = "upriver.configbutler.ai/address";
const VERSION: &str = "upriver.configbutler.ai/version";
const STARTED: &str = "upriver.configbutler.ai/started";
const DRAINING: &str = "upriver.configbutler.ai/draining";
const BRANCHES: &str = "upriver.configbutler.ai/branches";
const WATCHES: &str = "upriver.configbutler.ai/watches";

/// Longest wait for one Lease call: shorter than the session's life.
const DEADLINE: Duration = Duration::from_secs(5);

/// What a Lease is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// One per running process.
    Session,
    /// One per claim.
    Claim,
}

impl Role {
    fn label(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Claim => "claim",
        }
    }
}

/// A Lease as ownership sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseView {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub rv: String,
    /// Role by label; `None` for a Lease that is not ours.
    pub role: Option<Role>,
    /// `spec.holderIdentity`, `None` if empty.
    pub holder: Option<String>,
    /// `spec.leaseTransitions`.
    pub transitions: u64,
    /// Mark of the last write.
    pub nonce: String,
    /// Pod of the holder.
    pub pod: String,
    /// Given up in good order.
    pub clean: bool,
    /// Holder that a free claim was given up for.
    pub successor: Option<String>,
    /// What a session says of itself.
    pub notes: SessionNotes,
}

/// What a session says of itself, in annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionNotes {
    /// Where peers reach its process, empty if nowhere.
    pub address: String,
    /// Its release.
    pub version: String,
    /// When its process began, as text; for people only, no replica reads it.
    pub started: String,
    /// It is about to end.
    pub draining: bool,
    /// Branch claims that it held when it wrote this.
    pub branches: usize,
    /// Watch claims that it held when it wrote this.
    pub watches: usize,
}

/// What to write.
#[derive(Clone, Debug)]
pub struct LeaseWrite {
    /// `metadata.name`.
    pub name: String,
    /// Session or claim.
    pub role: Role,
    /// Precondition (uid, resourceVersion); `None` creates and fails if the Lease exists.
    pub onto: Option<(String, String)>,
    /// `None` clears the holder.
    pub holder: Option<String>,
    /// `spec.leaseTransitions`.
    pub transitions: u64,
    /// Mark of this write.
    pub nonce: String,
    /// Pod of the holder.
    pub pod: String,
    /// Given up in good order.
    pub clean: bool,
    /// Holder that a free claim is given up for.
    pub successor: Option<String>,
    /// What a session says of itself; `None` says nothing.
    pub notes: Option<SessionNotes>,
    /// Free text for people.
    pub about: String,
}

impl LeaseWrite {
    /// A Lease without a holder, at transition 0, which does not exist yet.
    #[must_use]
    pub fn free(name: impl Into<String>, role: Role) -> Self {
        Self {
            name: name.into(),
            role,
            onto: None,
            holder: None,
            transitions: 0,
            nonce: String::new(),
            pod: String::new(),
            clean: false,
            successor: None,
            notes: None,
            about: String::new(),
        }
    }
}

/// Why a call did not do it.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// 409: another version, or it exists already.
    #[error("Lease {name} has changed")]
    Conflict {
        /// The Lease.
        name: String,
    },
    /// 404.
    #[error("Lease {name} does not exist")]
    Missing {
        /// The Lease.
        name: String,
    },
    /// 401, 403: definite, nothing was written.
    #[error(
        "not allowed to use Lease {name} ({message}): grant the verbs get, list, create, update and delete on leases"
    )]
    Forbidden {
        /// The Lease.
        name: String,
        /// The server's words.
        message: String,
    },
    /// No answer, or one that does not tell whether the write was applied.
    #[error("Lease {name}: {reason}")]
    Unknown {
        /// The Lease.
        name: String,
        /// What happened.
        reason: String,
    },
}

/// Leases of one namespace.
#[derive(Clone)]
pub struct Leases {
    api: Api<Lease>,
}

impl Leases {
    /// Leases of `namespace`, through a client that never repeats a request.
    #[must_use]
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { api: Api::namespaced(client, namespace) }
    }

    /// Creates, or replaces exactly the version named.
    ///
    /// # Errors
    /// See [`LeaseError`].
    pub async fn write(&self, write: &LeaseWrite) -> Result<LeaseView, LeaseError> {
        let lease = to_lease(write);
        let params = PostParams::default();
        let call = async {
            match write.onto {
                Some(_) => self.api.replace(&write.name, &params, &lease).await,
                None => self.api.create(&params, &lease).await,
            }
        };
        bounded(&write.name, call).await.map(|lease| view(&lease))
    }

    /// A quorum read.
    ///
    /// # Errors
    /// See [`LeaseError`].
    pub async fn get(&self, name: &str) -> Result<LeaseView, LeaseError> {
        bounded(name, self.api.get(name)).await.map(|lease| view(&lease))
    }

    /// All sessions and claims at one moment: the resourceVersion is unset, so the read is consistent.
    ///
    /// # Errors
    /// See [`LeaseError`].
    pub async fn list(&self) -> Result<Vec<LeaseView>, LeaseError> {
        let params = ListParams::default().labels(ROLE_LABEL);
        bounded("(list)", self.api.list(&params)).await.map(|list| list.items.iter().map(view).collect())
    }

    /// Claims that are written free, from now on, and those that are free already; ends after some minutes. Each is a hint
    /// that a list is worth its price now: it may be late or missing, and nothing may be decided by it. Claims change only
    /// when they change hands, so an idle fleet hears nothing.
    ///
    /// # Errors
    /// If the watch is refused.
    pub async fn freed(&self) -> Result<impl Stream<Item = LeaseView> + Send + use<>, kube::Error> {
        let params = WatchParams::default().labels(&format!("{ROLE_LABEL}={}", Role::Claim.label()));
        let events = self.api.watch(&params, "0").await?.boxed();
        Ok(events.into_stream().filter_map(|event| async move {
            match event {
                Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease)) => {
                    Some(view(&lease)).filter(|lease| lease.holder.is_none())
                }
                Ok(WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) | WatchEvent::Error(_)) | Err(_) => None,
            }
        }))
    }

    /// Deletes exactly this version.
    ///
    /// # Errors
    /// See [`LeaseError`].
    pub async fn delete(&self, name: &str, uid: &str, rv: &str) -> Result<(), LeaseError> {
        let preconditions =
            kube::api::Preconditions { uid: Some(uid.to_owned()), resource_version: Some(rv.to_owned()) };
        let params = kube::api::DeleteParams::default().preconditions(preconditions);
        bounded(name, self.api.delete(name, &params)).await.map(|_| ())
    }
}

async fn bounded<T>(name: &str, call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, LeaseError> {
    let name = name.to_owned();
    match tokio::time::timeout(DEADLINE, call).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(kube::Error::Api(status))) => Err(match status.code {
            409 => LeaseError::Conflict { name },
            404 => LeaseError::Missing { name },
            401 | 403 => LeaseError::Forbidden { name, message: status.message.clone() },
            _ => LeaseError::Unknown { name, reason: status.message.clone() },
        }),
        Ok(Err(error)) => Err(LeaseError::Unknown { name, reason: error.to_string() }),
        Err(_) => {
            Err(LeaseError::Unknown { name, reason: format!("no answer within {} s", DEADLINE.as_secs()) })
        }
    }
}

fn annotations(write: &LeaseWrite) -> BTreeMap<String, String> {
    let flag = |set: bool| if set { "true".to_owned() } else { String::new() };
    let mut all = vec![
        (NONCE, write.nonce.clone()),
        (POD, write.pod.clone()),
        (CLEAN, flag(write.clean)),
        (SUCCESSOR, write.successor.clone().unwrap_or_default()),
        (ABOUT, write.about.clone()),
    ];
    if let Some(notes) = &write.notes {
        all.extend([
            (ADDRESS, notes.address.clone()),
            (VERSION, notes.version.clone()),
            (STARTED, notes.started.clone()),
            (DRAINING, flag(notes.draining)),
            (BRANCHES, notes.branches.to_string()),
            (WATCHES, notes.watches.to_string()),
        ]);
    }
    let said = all.into_iter().filter(|(_, value)| !value.is_empty());
    said.map(|(name, value)| (name.to_owned(), value)).collect()
}

fn to_lease(write: &LeaseWrite) -> Lease {
    let labels = BTreeMap::from([
        (ROLE_LABEL.to_owned(), write.role.label().to_owned()),
        ("app.kubernetes.io/name".to_owned(), "upriver".to_owned()),
    ]);
    let (uid, resource_version) = write.onto.clone().unzip();
    Lease {
        metadata: ObjectMeta {
            name: Some(write.name.clone()),
            uid,
            resource_version,
            labels: Some(labels),
            annotations: Some(annotations(write)),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: write.holder.clone(),
            lease_transitions: i32::try_from(write.transitions).ok(),
            renew_time: Some(MicroTime(Timestamp::now())),
            ..LeaseSpec::default()
        }),
    }
}

/// A time that another machine wrote says nothing; only the seeded bug compares it with ours.
#[cfg(not(feature = "seeded-bugs"))]
fn seems_expired(_: Option<&LeaseSpec>) -> bool {
    false
}

#[cfg(feature = "seeded-bugs")]
fn seems_expired(spec: Option<&LeaseSpec>) -> bool {
    let renewed = spec.and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0);
    std::env::var("UPRIVER_SEEDED_BUG").is_ok_and(|bug| bug == "wall-clock")
        && renewed.is_some_and(|time| Timestamp::now().duration_since(time).as_secs() > 8)
}

fn view(lease: &Lease) -> LeaseView {
    let annotation = |name: &str| lease.annotations().get(name).cloned().unwrap_or_default();
    let spec = lease.spec.as_ref();
    let role = match lease.labels().get(ROLE_LABEL).map(String::as_str) {
        Some("session") => Some(Role::Session),
        Some("claim") => Some(Role::Claim),
        Some(_) | None => None,
    };
    let transitions = spec.and_then(|spec| spec.lease_transitions).unwrap_or(0);
    LeaseView {
        name: lease.name_any(),
        uid: lease.uid().unwrap_or_default(),
        rv: lease.resource_version().unwrap_or_default(),
        role,
        holder: spec
            .and_then(|spec| spec.holder_identity.clone())
            .filter(|holder| !holder.is_empty() && !seems_expired(spec)),
        transitions: u64::try_from(transitions).unwrap_or(0),
        nonce: annotation(NONCE),
        pod: annotation(POD),
        clean: annotation(CLEAN) == "true",
        successor: Some(annotation(SUCCESSOR)).filter(|successor| !successor.is_empty()),
        notes: SessionNotes {
            address: annotation(ADDRESS),
            version: annotation(VERSION),
            started: annotation(STARTED),
            draining: annotation(DRAINING) == "true",
            branches: annotation(BRANCHES).parse().unwrap_or(0),
            watches: annotation(WATCHES).parse().unwrap_or(0),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Leases as the first release of fleets wrote them: every later one has to read them.
    #[test]
    fn a_session_and_a_claim_are_read_as_they_were_written_first() {
        let session: Lease = serde_json::from_str(
            r#"{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"upriver-session-upriver-0-0a1b2c3d",
            "uid":"u1","resourceVersion":"7","labels":{"upriver.configbutler.ai/lease":"session"},"annotations":{
            "upriver.configbutler.ai/pod":"upriver-0","upriver.configbutler.ai/nonce":"n","upriver.configbutler.ai/about":"",
            "upriver.configbutler.ai/address":"10.0.0.7:9445","upriver.configbutler.ai/version":"0.1.0",
            "upriver.configbutler.ai/started":"2026-01-01T00:00:00Z","upriver.configbutler.ai/draining":"true",
            "upriver.configbutler.ai/branches":"3","upriver.configbutler.ai/watches":"1"}},
            "spec":{"holderIdentity":"upriver-session-upriver-0-0a1b2c3d","leaseDurationSeconds":8,
            "renewTime":"2026-01-01T00:00:02.000000Z"}}"#,
        )
        .expect("a Lease");
        let read = view(&session);
        assert_eq!(
            (read.role, read.holder.as_deref()),
            (Some(Role::Session), Some(session.name_any().as_str()))
        );
        assert_eq!((read.pod.as_str(), read.nonce.as_str()), ("upriver-0", "n"));
        let notes = SessionNotes {
            address: "10.0.0.7:9445".to_owned(),
            version: "0.1.0".to_owned(),
            started: "2026-01-01T00:00:00Z".to_owned(),
            draining: true,
            branches: 3,
            watches: 1,
        };
        assert_eq!(read.notes, notes);

        let claim: Lease = serde_json::from_str(
            r#"{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"upriver-branch-adef","uid":"u2",
            "resourceVersion":"9","labels":{"upriver.configbutler.ai/lease":"claim"},"annotations":{
            "upriver.configbutler.ai/released-clean":"true","upriver.configbutler.ai/successor":"upriver-session-b"}},
            "spec":{"holderIdentity":"","leaseTransitions":12}}"#,
        )
        .expect("a Lease");
        let read = view(&claim);
        assert_eq!((read.role, read.holder, read.transitions), (Some(Role::Claim), None, 12));
        assert_eq!((read.clean, read.successor.as_deref()), (true, Some("upriver-session-b")));
        assert_eq!(read.notes, SessionNotes::default(), "what is missing means unknown");
    }
}
