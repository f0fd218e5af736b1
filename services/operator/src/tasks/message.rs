//! What does a commit say? In: a unit and the changes that it made. Out: a message, by the user's template or the default.
//!
//! A template is tried when its GitProvider is probed, and may still fail on data that no sample had. Then the default
//! message is used and the failure is told: a template never costs a commit.

use upriver_engine::branch::{Replayed, Unit, UnitKind};
use upriver_engine::window::Change;
use upriver_model::{Author, Operation};
use upriver_telemetry::metric;
use upriver_template::{
    EventData, GroupData, MessageData, MessageKind, Operations, ReconcileData, ResourceRef, render_or_default,
};

use crate::control::plan::TargetSpec;

/// The message of a unit's commit. `made` are the changes that differ from what the branch held, one per document.
pub(super) fn message(target: &TargetSpec, unit: &Unit, made: &[&Change]) -> String {
    let data = match (&unit.kind, made) {
        (UnitKind::Fence, _) => {
            return "empty commit: ends pushes of an earlier owner that may still be in flight".to_owned();
        }
        (UnitKind::Replay(replayed), _) => MessageData::Reconcile(reconcile(target, replayed, made)),
        (UnitKind::Window, [only]) => MessageData::Event(event(target, unit, only)),
        (UnitKind::Window, _) => MessageData::Group(group(target, unit, made)),
    };
    render(target, data)
}

fn render(target: &TargetSpec, data: MessageData) -> String {
    let (template, kind) = match data.kind() {
        MessageKind::Event => (&target.messages.event_template, "event"),
        MessageKind::Group => (&target.messages.group_template, "group"),
        MessageKind::Reconcile => (&target.messages.reconcile_template, "reconcile"),
    };
    // An empty text is "unset": Git takes no empty message.
    if let Some(template) = template.as_deref().filter(|text| !text.is_empty()) {
        let rendered = render_or_default(Some(template), &data);
        let Some(error) = rendered.fault else { return rendered.message };
        metrics::counter!(metric::MESSAGE_FALLBACKS, "template" => kind).increment(1);
        let (namespace, name) = (&target.namespace, &target.name);
        tracing::warn!(namespace, name, template = kind, %error, "a message template failed; this commit has the default message");
    }
    render_or_default(None, &named(target, data)).message
}

/// The default message begins with a name: the committer's, as in the commit, where nobody else's is known.
fn named(target: &TargetSpec, data: MessageData) -> MessageData {
    match data {
        MessageData::Group(group) if group.author.is_empty() => {
            MessageData::Group(GroupData { author: target.committer_name.clone(), ..group })
        }
        other @ (MessageData::Event(_) | MessageData::Group(_) | MessageData::Reconcile(_)) => other,
    }
}

/// Who did it, on one line; empty if nobody is named.
fn username(author: &Author) -> String {
    match author {
        Author::NotAttempted | Author::Unresolved => String::new(),
        Author::Resolved { username } => username.chars().filter(|c| !c.is_control()).collect(),
    }
}

fn event(target: &TargetSpec, unit: &Unit, change: &Change) -> EventData {
    EventData {
        operation: change.operation.as_str().to_owned(),
        group: change.gvr.group.to_string(),
        version: change.gvr.version.to_string(),
        resource: change.gvr.resource.to_string(),
        namespace: change.key.namespace.to_string(),
        name: change.key.name.to_string(),
        api_version: change.gvr.api_version(),
        username: username(&unit.author),
        git_target: target.name.clone(),
    }
}

fn group(target: &TargetSpec, unit: &Unit, made: &[&Change]) -> GroupData {
    let mut operations = Operations::default();
    for change in made {
        match change.operation {
            Operation::Create => operations.create += 1,
            Operation::Update => operations.update += 1,
            Operation::Delete => operations.delete += 1,
        }
    }
    GroupData {
        author: username(&unit.author),
        git_target: target.name.clone(),
        count: count(made),
        operations,
        resources: made.iter().map(|change| resource(change)).collect(),
    }
}

fn resource(change: &Change) -> ResourceRef {
    ResourceRef {
        group: change.gvr.group.to_string(),
        version: change.gvr.version.to_string(),
        resource: change.gvr.resource.to_string(),
        namespace: change.key.namespace.to_string(),
        name: change.key.name.to_string(),
    }
}

fn reconcile(target: &TargetSpec, replayed: &Replayed, made: &[&Change]) -> ReconcileData {
    let gvr = &replayed.scope.gvr;
    ReconcileData {
        count: count(made),
        git_target: target.name.clone(),
        group: gvr.group.to_string(),
        version: gvr.version.to_string(),
        resource: gvr.resource.to_string(),
        api_version: gvr.api_version(),
        revision: replayed.list_rv.as_str().to_owned(),
        namespace: replayed.scope.scope.namespace().unwrap_or_default().to_owned(),
    }
}

fn count(made: &[&Change]) -> u32 {
    u32::try_from(made.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
