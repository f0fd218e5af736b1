//! The data of commit messages, their default templates, and the check of a user's template.
//!
//! A template must never cost a commit: [`render_or_default`] always yields a message, and [`check`] tries a template
//! beforehand with samples that differ in everything a window can differ in.

use crate::error::TemplateError;
use crate::value::Value;
use crate::{ErrorKind, Template};

/// Which commits a template is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// A window with one event: `eventTemplate`, [`EventData`].
    Event,
    /// A window with more: `groupTemplate`, [`GroupData`].
    Group,
    /// A resync or an atomic batch: `reconcileTemplate`, [`ReconcileData`].
    Reconcile,
}

impl MessageKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Event, Self::Group, Self::Reconcile];

    /// The template of those who set none.
    #[must_use]
    pub fn default_template(self) -> &'static str {
        match self {
            Self::Event => "[{{.Operation}}] {{.APIVersion}}/{{.Resource}}/{{.Name}}",
            Self::Group => "{{.Author}} on {{.GitTarget}}: {{.Count}} resource(s)",
            Self::Reconcile => {
                "reconciled {{.Count}} {{if .Resource}}{{.Resource}}{{else}}resources{{end}}\
                 {{if .Revision}} (last resourceVersion: {{.Revision}}){{end}}"
            }
        }
    }
}

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventData {
    /// `CREATE`, `UPDATE` or `DELETE`.
    pub operation: String,
    /// API group, empty for core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Resource, plural.
    pub resource: String,
    /// Namespace, empty for objects of the whole cluster.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// `group/version`, or the version alone for core.
    pub api_version: String,
    /// Who did it; empty if nobody is named.
    pub username: String,
    /// Name of the target.
    pub git_target: String,
}

/// One object of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceRef {
    /// API group, empty for core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Resource, plural.
    pub resource: String,
    /// Namespace, empty for objects of the whole cluster.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}

/// How many events of each sort a window has. Templates see all three, also those that are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operations {
    /// `.Operations.CREATE`
    pub create: u32,
    /// `.Operations.UPDATE`
    pub update: u32,
    /// `.Operations.DELETE`
    pub delete: u32,
}

/// A window of several events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupData {
    /// Who did it; empty if nobody is named.
    pub author: String,
    /// Name of the target.
    pub git_target: String,
    /// Number of objects.
    pub count: u32,
    /// Events by operation.
    pub operations: Operations,
    /// The objects, in the order in which they were seen first.
    pub resources: Vec<ResourceRef>,
}

/// A resync or an atomic batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReconcileData {
    /// Number of objects.
    pub count: u32,
    /// Name of the target.
    pub git_target: String,
    /// API group; empty for core, or if the batch has several types.
    pub group: String,
    /// API version, or empty.
    pub version: String,
    /// Resource, plural, or empty.
    pub resource: String,
    /// `group/version`, or empty.
    pub api_version: String,
    /// resourceVersion of the list, or empty.
    pub revision: String,
    /// Namespace, or empty.
    pub namespace: String,
}

/// Data for one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageData {
    /// For [`MessageKind::Event`].
    Event(EventData),
    /// For [`MessageKind::Group`].
    Group(GroupData),
    /// For [`MessageKind::Reconcile`].
    Reconcile(ReconcileData),
}

impl MessageData {
    /// The kind of template that this is for.
    #[must_use]
    pub fn kind(&self) -> MessageKind {
        match self {
            Self::Event(_) => MessageKind::Event,
            Self::Group(_) => MessageKind::Group,
            Self::Reconcile(_) => MessageKind::Reconcile,
        }
    }

    /// What templates see, with Go's names.
    #[must_use]
    pub fn to_value(&self) -> Value {
        match self {
            Self::Event(data) => event(data),
            Self::Group(data) => group(data),
            Self::Reconcile(data) => reconcile(data),
        }
    }
}

fn event(data: &EventData) -> Value {
    Value::record(
        "EventData",
        vec![
            ("Operation", text(&data.operation)),
            ("Group", text(&data.group)),
            ("Version", text(&data.version)),
            ("Resource", text(&data.resource)),
            ("Namespace", text(&data.namespace)),
            ("Name", text(&data.name)),
            ("APIVersion", text(&data.api_version)),
            ("Username", text(&data.username)),
            ("GitTarget", text(&data.git_target)),
        ],
    )
}

fn group(data: &GroupData) -> Value {
    let operations = Value::counts([
        ("CREATE", data.operations.create.into()),
        ("UPDATE", data.operations.update.into()),
        ("DELETE", data.operations.delete.into()),
    ]);
    Value::record(
        "GroupData",
        vec![
            ("Author", text(&data.author)),
            ("GitTarget", text(&data.git_target)),
            ("Count", Value::Int(data.count.into())),
            ("Operations", operations),
            ("Resources", Value::List(data.resources.iter().map(resource).collect())),
        ],
    )
}

fn resource(data: &ResourceRef) -> Value {
    Value::record(
        "ResourceRef",
        vec![
            ("Group", text(&data.group)),
            ("Version", text(&data.version)),
            ("Resource", text(&data.resource)),
            ("Namespace", text(&data.namespace)),
            ("Name", text(&data.name)),
        ],
    )
}

fn reconcile(data: &ReconcileData) -> Value {
    Value::record(
        "ReconcileData",
        vec![
            ("Count", Value::Int(data.count.into())),
            ("GitTarget", text(&data.git_target)),
            ("Group", text(&data.group)),
            ("Version", text(&data.version)),
            ("Resource", text(&data.resource)),
            ("APIVersion", text(&data.api_version)),
            ("Revision", text(&data.revision)),
            ("Namespace", text(&data.namespace)),
        ],
    )
}

fn text(text: &str) -> Value {
    Value::from(text)
}

/// Tries a user's template with samples of its kind.
///
/// # Errors
/// What is wrong with the first sample that fails. A message that Git refuses is wrong, too.
pub fn check(kind: MessageKind, template: &str) -> Result<(), TemplateError> {
    let template = Template::parse(template)?;
    for sample in samples(kind) {
        usable(template.render(&sample.to_value())?)?;
    }
    Ok(())
}

/// A message, and whether it is what the user asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// The message.
    pub message: String,
    /// Why the user's template could not be used and the default one was; to be shown as a warning.
    pub fault: Option<TemplateError>,
}

/// Renders the user's template, or the default one if there is none or it fails.
#[must_use]
pub fn render_or_default(template: Option<&str>, data: &MessageData) -> Rendered {
    let value = data.to_value();
    let render = |text: &str| Template::parse(text)?.render(&value).and_then(usable);
    let fault = match template.map(render) {
        Some(Ok(message)) => return Rendered { message, fault: None },
        Some(Err(fault)) => Some(fault),
        None => None,
    };
    let message = render(data.kind().default_template())
        // Only a name longer than any that Kubernetes admits leads here.
        .unwrap_or_else(|_| "changes in the cluster".to_owned());
    Rendered { message, fault }
}

/// Git takes no message without words, and Git servers none with a zero byte in it.
fn usable(message: String) -> Result<String, TemplateError> {
    let fault = if message.contains('\0') {
        "the message holds a zero byte, which Git servers refuse"
    } else if message.trim().is_empty() {
        "the message is blank, and Git takes none that is"
    } else {
        return Ok(message);
    };
    Err(TemplateError { line: 1, column: 1, kind: ErrorKind::Data, message: fault.to_owned() })
}

/// Data of every shape that occurs: named and unnamed people, core and other groups, namespaced objects and others, few
/// and many objects, each operation alone, empty fields wherever they may be empty.
fn samples(kind: MessageKind) -> Vec<MessageData> {
    match kind {
        MessageKind::Event => event_samples(),
        MessageKind::Group => group_samples(),
        MessageKind::Reconcile => reconcile_samples(),
    }
}

fn event_samples() -> Vec<MessageData> {
    let deployment = EventData {
        operation: "CREATE".into(),
        group: "apps".into(),
        version: "v1".into(),
        resource: "deployments".into(),
        namespace: "shop".into(),
        name: "web".into(),
        api_version: "apps/v1".into(),
        username: "jane@example.com".into(),
        git_target: "production".into(),
    };
    let namespace = EventData {
        operation: "DELETE".into(),
        group: String::new(),
        resource: "namespaces".into(),
        namespace: String::new(),
        api_version: "v1".into(),
        username: String::new(),
        ..deployment.clone()
    };
    let update = EventData { operation: "UPDATE".into(), ..deployment.clone() };
    [deployment, namespace, update].map(MessageData::Event).into()
}

fn group_samples() -> Vec<MessageData> {
    let web = ResourceRef {
        group: "apps".into(),
        version: "v1".into(),
        resource: "deployments".into(),
        namespace: "shop".into(),
        name: "web".into(),
    };
    let namespace = ResourceRef {
        version: "v1".into(),
        resource: "namespaces".into(),
        name: "shop".into(),
        ..ResourceRef::default()
    };
    let one_each = GroupData {
        author: "jane@example.com".into(),
        git_target: "production".into(),
        count: 3,
        operations: Operations { create: 1, update: 1, delete: 1 },
        resources: vec![web.clone(), namespace.clone(), web.clone()],
    };
    let only = |operations, resources: Vec<ResourceRef>| GroupData {
        author: String::new(),
        count: u32::try_from(resources.len()).unwrap_or(u32::MAX),
        operations,
        resources,
        ..one_each.clone()
    };
    let none = Operations::default();
    let groups = [
        // Two events on one object make a group of one.
        only(Operations { create: 1, ..none }, vec![web.clone()]),
        only(Operations { update: 2, ..none }, vec![namespace]),
        only(Operations { delete: 40, ..none }, vec![web; 40]),
        one_each.clone(),
    ];
    groups.map(MessageData::Group).into()
}

fn reconcile_samples() -> Vec<MessageData> {
    let whole = ReconcileData { count: 0, git_target: "production".into(), ..ReconcileData::default() };
    let one_type = ReconcileData {
        count: 12,
        group: "apps".into(),
        version: "v1".into(),
        resource: "deployments".into(),
        api_version: "apps/v1".into(),
        revision: "4711".into(),
        namespace: "shop".into(),
        ..whole.clone()
    };
    let several = ReconcileData { count: 1, ..whole.clone() };
    [whole, one_type, several].map(MessageData::Reconcile).into()
}
