//! Which subscriptions want an event, and is there anything new in it?
//!
//! In: raw objects. Out: events or members, or the reason why not. The no-op cache is per branch and is emptied whenever a
//! stream is opened (F12).

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use upriver_content::policy::{Selection, noise};
use upriver_content::sanitize::{SanitizeRules, TypeHint, sanitize_item};
use upriver_content::{ObjectMeta, SanitizeError};
use upriver_engine::branch::{Chosen, Member, Subscription, WatchedEvent};
use upriver_model::{Author, Gvr, ObjectKey, Operation, ResourceVersion, TargetScope, TargetUid};
use upriver_telemetry::metric;

use super::link::{LeftOut, Names};

/// Hashes kept to drop updates that change nothing; beyond it the cache starts over, which only costs comparisons.
const NOOP_CACHE: usize = 200_000;

/// What one watch matches.
pub(crate) struct Subscribed {
    gvr: Gvr,
    api_version: String,
    kind: String,
    subscriptions: Vec<Subscription>,
    names: Names,
    rules: SanitizeRules,
    seen: HashMap<Box<str>, u64>,
    left_out: Vec<LeftOut>,
}

impl Subscribed {
    pub(crate) fn new(gvr: Gvr, subscriptions: Vec<Subscription>, names: Names) -> Self {
        let kind =
            subscriptions.first().map(|subscription| subscription.kind.to_string()).unwrap_or_default();
        Self {
            api_version: gvr.api_version(),
            gvr,
            kind,
            subscriptions,
            names,
            rules: SanitizeRules::default(),
            seen: HashMap::new(),
            left_out: Vec::new(),
        }
    }

    pub(crate) fn kind(&self) -> &str {
        &self.kind
    }

    /// A stream was opened, maybe with other subscriptions.
    pub(crate) fn reopen(&mut self, subscriptions: Vec<Subscription>, names: Names) {
        self.subscriptions = subscriptions;
        self.names = names;
        self.seen.clear();
    }

    /// How a scope's rule selects the type.
    pub(crate) fn chosen(&self, scope: &TargetScope) -> Chosen {
        let found = self.subscriptions.iter().find(|subscription| subscription.scope == *scope);
        found.map_or(Chosen::ByName, |subscription| subscription.chosen)
    }

    fn count(&self, outcome: &'static str) {
        metrics::counter!(
            metric::WATCH_EVENTS,
            "group" => self.gvr.group.to_string(),
            "resource" => self.gvr.resource.to_string(),
            "outcome" => outcome
        )
        .increment(1);
    }

    /// One live event. `None` if nobody wants it or nothing is new; the version it carries counts all the same.
    pub(crate) fn event(
        &mut self,
        object: &str,
        said: Operation,
        observed_at_ms: i64,
    ) -> (Option<ResourceVersion>, Option<WatchedEvent>) {
        let meta = match ObjectMeta::peek(object) {
            Ok(meta) => meta,
            Err(error) => {
                tracing::error!(gvr = %self.gvr, %error, "an event cannot be read and is left out");
                self.count("unreadable");
                return (None, None);
            }
        };
        let rv = ResourceVersion::new(&meta.resource_version);
        let event = self.wanted_event(&meta, object, said, observed_at_ms, &rv);
        (Some(rv), event)
    }

    fn wanted_event(
        &mut self,
        meta: &ObjectMeta<'_>,
        object: &str,
        said: Operation,
        observed_at_ms: i64,
        rv: &ResourceVersion,
    ) -> Option<WatchedEvent> {
        // A deletion that waits for finalizers is the deletion; what comes later changes nothing any more.
        let operation = if meta.deleting { Operation::Delete } else { said };
        let key = ObjectKey::new(&meta.namespace, &meta.name);
        let matching: Vec<&Subscription> = self
            .subscriptions
            .iter()
            .filter(|wanted| {
                wanted.scope.scope.covers(&key.namespace) && wanted.operations.contains(&operation)
            })
            .collect();
        if matching.is_empty() {
            self.count("unmatched");
            return None;
        }
        let scopes: Vec<TargetScope> = matching
            .into_iter()
            .filter(|wanted| noise(&self.gvr, meta, selection(wanted.chosen)).is_none())
            .map(|wanted| wanted.scope.clone())
            .collect();
        if scopes.is_empty() {
            self.count("noise");
            return None;
        }
        if self.is_left_out_secret(&key, operation, &scopes) {
            return None;
        }
        let payload = match operation {
            Operation::Delete => {
                self.seen.remove(&*meta.uid);
                None
            }
            Operation::Create | Operation::Update => Some(self.new_content(meta, object, said)?),
        };
        self.count("forwarded");
        Some(WatchedEvent {
            scopes,
            key,
            kind: meta_kind(meta, &self.kind),
            uid: (&*meta.uid).into(),
            rv: rv.clone(),
            operation,
            payload,
            author: Author::NotAttempted,
            observed_at_ms,
        })
    }

    fn is_left_out_secret(&mut self, key: &ObjectKey, operation: Operation, scopes: &[TargetScope]) -> bool {
        if !self.gvr.is_secret() {
            return false;
        }
        self.count("secret");
        for scope in scopes {
            let gone = operation == Operation::Delete;
            self.left_out.push(LeftOut { target: scope.target.clone(), key: key.clone(), gone });
            if !gone {
                self.count_secret(&scope.target);
            }
        }
        true
    }

    /// Secrets that were seen and left out since the last call. Their names are not secret, their content never gets here.
    pub(crate) fn take_left_out(&mut self) -> Vec<LeftOut> {
        std::mem::take(&mut self.left_out)
    }

    fn count_secret(&self, target: &TargetUid) {
        if let Some((namespace, name)) = self.names.get(target) {
            metrics::counter!(
                metric::SECRETS_SKIPPED,
                "gittarget_namespace" => namespace.clone(),
                "gittarget_name" => name.clone()
            )
            .increment(1);
        }
    }

    /// The sanitised object as JSON, if it differs from what was seen last. A create is never dropped.
    fn new_content(&mut self, meta: &ObjectMeta<'_>, object: &str, said: Operation) -> Option<Box<str>> {
        let payload = match self.sanitise(object) {
            Ok(payload) => payload,
            Err(error) => {
                tracing::error!(gvr = %self.gvr, namespace = %meta.namespace, name = %meta.name, %error,
                    "an object cannot be sanitised and is left out");
                self.count("unreadable");
                return None;
            }
        };
        let known = self.remember(&meta.uid, &payload);
        if known && said == Operation::Update {
            self.count("noop");
            return None;
        }
        Some(payload)
    }

    fn sanitise(&self, object: &str) -> Result<Box<str>, SanitizeError> {
        let hint = TypeHint { api_version: &self.api_version, kind: &self.kind };
        let sanitised = sanitize_item(object, hint, &self.rules)?;
        Ok(sanitised.document.to_string().into())
    }

    /// True if this content was the last one seen.
    fn remember(&mut self, uid: &str, payload: &str) -> bool {
        let mut hasher = DefaultHasher::new();
        payload.hash(&mut hasher);
        let hash = hasher.finish();
        if self.seen.len() >= NOOP_CACHE {
            self.seen.clear();
        }
        self.seen.insert(uid.into(), hash) == Some(hash)
    }

    /// One object of a list for some scopes; `None` if none of them wants it, or if it is being deleted.
    pub(crate) fn member(&mut self, object: &str, scopes: &[TargetScope]) -> Option<Member> {
        let meta = ObjectMeta::peek(object).ok()?;
        let key = ObjectKey::new(&meta.namespace, &meta.name);
        let wanted: Vec<TargetScope> = self
            .subscriptions
            .iter()
            .filter(|wanted| scopes.is_empty() || scopes.contains(&wanted.scope))
            .filter(|wanted| wanted.scope.scope.covers(&key.namespace))
            .filter(|wanted| noise(&self.gvr, &meta, selection(wanted.chosen)).is_none())
            .map(|wanted| wanted.scope.clone())
            .collect();
        if wanted.is_empty() || meta.deleting || self.is_left_out_secret(&key, Operation::Update, &wanted) {
            return None;
        }
        let payload = match self.sanitise(object) {
            Ok(payload) => {
                self.remember(&meta.uid, &payload);
                Some(payload)
            }
            // Its identity is protected: it exists, so its document is not swept.
            Err(error) => {
                tracing::error!(gvr = %self.gvr, object = %key, %error, "an object cannot be sanitised");
                None
            }
        };
        Some(Member {
            key,
            kind: meta_kind(&meta, &self.kind),
            uid: (&*meta.uid).into(),
            rv: ResourceVersion::new(&meta.resource_version),
            payload,
        })
    }
}

fn selection(chosen: Chosen) -> Selection {
    match chosen {
        Chosen::ByName => Selection::Named,
        Chosen::ByWildcard => Selection::Wildcard,
    }
}

fn meta_kind(meta: &ObjectMeta<'_>, fallback: &str) -> Box<str> {
    if meta.kind.is_empty() { fallback.into() } else { (&*meta.kind).into() }
}
