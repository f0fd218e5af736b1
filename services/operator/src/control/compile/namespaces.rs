//! Which source namespaces may a WatchRule read?
//!
//! In: what each item of the rule asks for, the target's policy, the ClusterProvider's flag, the labels of namespaces if
//! they can be read, and what was granted before. Out: a [`Source`] for the condition and, unless the rule is refused, a
//! [`Grant`]. Its own namespace is free while the target has no policy; anything else needs the flag and the policy; a
//! policy decides alone, the own namespace included (W1.11 to W1.15). What cannot be computed now is neither empty nor
//! wider: the last grant for the same question stays.

use std::collections::{BTreeMap, BTreeSet};

use upriver_api::matcher::Labels;
use upriver_api::shared::NamespaceMatcher;
use upriver_api::{Admission, Reason};

use crate::control::snapshot::{NamespacesRead, Snapshot};

/// What each item of a WatchRule may read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// The question that it answers: target and ordered item namespaces.
    pub question: Vec<String>,
    /// Namespaces by item.
    pub items: Vec<BTreeSet<String>>,
}

/// Grants by uid of the rule.
pub type Grants = BTreeMap<String, Grant>;

/// Whether a WatchRule may read its source namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Its own namespace only, and the target has no policy.
    Legacy,
    /// By policy.
    Allowed {
        /// Namespaces, all items together.
        namespaces: usize,
    },
    /// By policy, but no namespace matches now.
    Empty,
    /// Refused: the whole rule stops.
    Denied {
        /// What to do.
        message: String,
    },
    /// The policy can never be evaluated until somebody acts.
    Unavailable {
        /// What to do.
        message: String,
        /// True if an earlier grant goes on.
        kept: bool,
    },
    /// Labels have not been read yet.
    Checking {
        /// True if an earlier grant goes on.
        kept: bool,
    },
}

impl Source {
    /// The reason of the condition.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Legacy => Reason::LegacySourceNamespace,
            Self::Allowed { .. } => Reason::SourceNamespaceAllowed,
            Self::Empty => Reason::NoAdmittedSourceNamespaces,
            Self::Denied { .. } => Reason::SourceNamespaceNotAllowed,
            Self::Unavailable { .. } => Reason::SourceNamespacePolicyUnavailable,
            Self::Checking { .. } => Reason::CheckingSourceNamespacePolicy,
        }
    }
}

/// What a WatchRule asks for.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// Namespace of the rule and its target.
    pub own: &'a str,
    /// Name of the target.
    pub target: &'a str,
    /// Source namespace of each item, `*` for all that are admitted.
    pub items: &'a [&'a str],
    /// `allowedSourceNamespaces` of the target.
    pub policy: Option<&'a NamespaceMatcher>,
    /// `allowSourceNamespaceOverride` of the ClusterProvider, which admits the target's namespace.
    pub may_override: bool,
    /// Name of the ClusterProvider, for messages.
    pub cluster: &'a str,
}

/// Labels of the namespaces of the source cluster.
#[derive(Clone, Copy, Debug)]
pub enum KnownLabels<'a> {
    /// All of them.
    Read(&'a BTreeMap<String, Labels>),
    /// Not yet.
    Unread,
    /// They may not be read.
    Forbidden(&'a str),
}

/// The labels that a snapshot knows.
#[must_use]
pub fn labels(snapshot: &Snapshot) -> KnownLabels<'_> {
    match &snapshot.namespaces_read {
        NamespacesRead::Yes => KnownLabels::Read(&snapshot.namespaces),
        NamespacesRead::NotYet => KnownLabels::Unread,
        NamespacesRead::Forbidden(why) => KnownLabels::Forbidden(why),
    }
}

/// What came out for a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// For the condition.
    pub source: Source,
    /// What it may read; `None` is a rule that contributes nothing.
    pub grant: Option<Grant>,
}

/// One item's answer, the worst last.
#[derive(Debug)]
enum Item {
    Admitted(BTreeSet<String>),
    Unknown,
    Unavailable(String),
    Denied(String),
}

/// Answers for a whole rule. Denied beats unavailable beats unknown beats admitted.
#[must_use]
pub fn evaluate(question: &Question<'_>, labels: &KnownLabels<'_>, before: Option<&Grant>) -> Answer {
    let items: Vec<Item> = question.items.iter().map(|item| judge(question, item, labels)).collect();
    let mut asked = vec![format!("{}/{}", question.own, question.target)];
    asked.extend(question.items.iter().map(|item| (*item).to_owned()));
    let kept = before.filter(|grant| grant.question == asked).cloned();
    if let Some(message) = items.iter().find_map(|item| as_denied(item)) {
        return Answer { source: Source::Denied { message: message.to_owned() }, grant: None };
    }
    if let Some(message) = items.iter().find_map(|item| as_unavailable(item)) {
        let source = Source::Unavailable { message: message.to_owned(), kept: kept.is_some() };
        return Answer { source, grant: kept };
    }
    let mut granted = Vec::new();
    for item in items {
        let Item::Admitted(namespaces) = item else {
            return Answer { source: Source::Checking { kept: kept.is_some() }, grant: kept };
        };
        granted.push(namespaces);
    }
    let own_only = question.items.iter().all(|item| *item == question.own);
    let namespaces = granted.iter().flatten().collect::<BTreeSet<_>>().len();
    let source = match namespaces {
        _ if own_only && question.policy.is_none() => Source::Legacy,
        0 => Source::Empty,
        namespaces => Source::Allowed { namespaces },
    };
    Answer { source, grant: Some(Grant { question: asked, items: granted }) }
}

fn as_denied(item: &Item) -> Option<&str> {
    match item {
        Item::Denied(message) => Some(message),
        Item::Admitted(_) | Item::Unknown | Item::Unavailable(_) => None,
    }
}

fn as_unavailable(item: &Item) -> Option<&str> {
    match item {
        Item::Unavailable(message) => Some(message),
        Item::Admitted(_) | Item::Unknown | Item::Denied(_) => None,
    }
}

fn judge(question: &Question<'_>, item: &str, labels: &KnownLabels<'_>) -> Item {
    let own = item == question.own;
    let only = |name: &str| Item::Admitted(BTreeSet::from([name.to_owned()]));
    let Some(policy) = question.policy else {
        if own {
            return only(item);
        }
        return Item::Denied(format!(
            "source namespace {item} is not the rule's own, and GitTarget {} has no allowedSourceNamespaces: add it there",
            question.target
        ));
    };
    if !own && !question.may_override {
        return Item::Denied(format!(
            "source namespace {item} is not the rule's own: ask for allowSourceNamespaceOverride on ClusterProvider {}",
            question.cluster
        ));
    }
    if item == "*" { all(question, policy, labels) } else { one(question, item, policy, labels) }
}

fn one(question: &Question<'_>, item: &str, policy: &NamespaceMatcher, labels: &KnownLabels<'_>) -> Item {
    let none = Labels::new();
    let known = match labels {
        KnownLabels::Read(all) => Some(all.get(item).unwrap_or(&none)),
        KnownLabels::Unread | KnownLabels::Forbidden(_) => None,
    };
    match policy.admits(item, known) {
        Admission::Admitted => Item::Admitted(BTreeSet::from([item.to_owned()])),
        Admission::Denied => Item::Denied(format!(
            "GitTarget {} does not admit source namespace {item}: add it to allowedSourceNamespaces",
            question.target
        )),
        Admission::NeedsLabels => unreadable(labels),
        Admission::Invalid(error) => invalid(question, &error),
    }
}

fn all(question: &Question<'_>, policy: &NamespaceMatcher, labels: &KnownLabels<'_>) -> Item {
    if let Err(error) = policy.check() {
        return invalid(question, &error);
    }
    let mut namespaces: BTreeSet<String> = policy.names.iter().cloned().collect();
    if !policy.needs_listing() {
        return Item::Admitted(namespaces);
    }
    let KnownLabels::Read(all) = labels else { return unreadable(labels) };
    let admitted = |(name, labels): &(&String, &Labels)| {
        matches!(policy.admits(name, Some(labels)), Admission::Admitted)
    };
    namespaces.extend(all.iter().filter(admitted).map(|(name, _)| name.clone()));
    Item::Admitted(namespaces)
}

fn invalid(question: &Question<'_>, error: &upriver_api::MatcherError) -> Item {
    Item::Unavailable(format!("GitTarget {}, allowedSourceNamespaces: {error}", question.target))
}

fn unreadable(labels: &KnownLabels<'_>) -> Item {
    match labels {
        KnownLabels::Forbidden(why) => Item::Unavailable(format!(
            "the labels of namespaces cannot be read ({why}): allow the operator to list and watch namespaces, or list names"
        )),
        KnownLabels::Read(_) | KnownLabels::Unread => Item::Unknown,
    }
}

#[cfg(test)]
mod tests;
