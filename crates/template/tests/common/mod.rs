//! Runs a template here and in Go's text/template, and compares.

#![allow(dead_code, reason = "each test binary uses its own part")]

#[path = "../../../../tests/tools/oracle/client.rs"]
pub mod oracle;

use std::cell::RefCell;
use std::sync::Arc;

use oracle::Oracle;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use serde_json::{Value as Json, json};
use upriver_template::{
    ErrorKind, EventData, GroupData, MessageData, Operations, ReconcileData, ResourceRef, Template,
    TemplateError, Value,
};

/// The real text/template.
pub struct Go(RefCell<Oracle>);

/// What a template and data come to.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Text(String),
    ParseError,
    RenderError,
}

/// What we lack or limit on purpose; Go's outcome does not matter then.
#[derive(Debug)]
pub struct Refused(pub TemplateError);

/// What a comparison that found no difference came to.
#[derive(Debug)]
pub enum Answer {
    Same(Outcome),
    Refused(Refused),
}

impl Go {
    pub fn start() -> Self {
        Self(RefCell::new(Oracle::go("template")))
    }

    pub fn run(&self, template: &str, data: &Data) -> (Outcome, Json) {
        let question = json!({"kind": data.kind, "template": template, "data": data.json});
        let answer = self.0.borrow_mut().ask(&question);
        let outcome = match answer["stage"].as_str() {
            Some("done") => Outcome::Text(answer["output"].as_str().expect("a text").to_owned()),
            Some("parse") => Outcome::ParseError,
            _ => Outcome::RenderError,
        };
        (outcome, answer)
    }

    /// Whether both come to the same. Go is asked only about what we answer: nothing bounds it, and a template that calls
    /// itself inside a `range` keeps it busy for hours before it reports its depth of 100,000.
    pub fn compare(&self, template: &str, data: &Data) -> Result<Answer, TestCaseError> {
        let (ours, error) = match ours(template, data) {
            Ok(answer) => answer,
            Err(refused) => return Ok(Answer::Refused(refused)),
        };
        let (theirs, answer) = self.run(template, data);
        prop_assert!(ours == theirs, "{template}\nours: {ours:?} {error}\nGo: {answer}\n{}", data.json);
        Ok(Answer::Same(ours))
    }
}

/// Our outcome, with the text of an error.
pub fn ours(template: &str, data: &Data) -> Result<(Outcome, String), Refused> {
    let refused = |error: TemplateError, outcome| match error.kind {
        ErrorKind::Unsupported | ErrorKind::Limit => Err(Refused(error)),
        ErrorKind::Syntax | ErrorKind::Data => Ok((outcome, error.to_string())),
    };
    let parsed = match Template::parse(template) {
        Ok(parsed) => parsed,
        Err(error) => return refused(error, Outcome::ParseError),
    };
    match parsed.render(&data.value) {
        Ok(text) => Ok((Outcome::Text(text), String::new())),
        Err(error) => refused(error, Outcome::RenderError),
    }
}

/// Data for both.
#[derive(Clone, Debug)]
pub struct Data {
    pub kind: &'static str,
    pub json: Json,
    pub value: Value,
}

/// Maps, lists and scalars.
pub fn any_data(json: Json) -> Data {
    let value = to_value(&json);
    Data { kind: "any", json, value }
}

fn to_value(json: &Json) -> Value {
    match json {
        Json::Null => Value::Nil,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => match number.as_i64() {
            Some(integer) => Value::Int(integer),
            None => Value::Float(number.as_f64().expect("a float")),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => Value::List(items.iter().map(to_value).collect()),
        Json::Object(map) => {
            Value::map(map.iter().map(|(key, value)| (Arc::from(key.as_str()), to_value(value))))
        }
    }
}

/// The same data as Go's structs want it.
pub fn message_data(data: &MessageData) -> Data {
    let (kind, json) = match data {
        MessageData::Event(data) => ("event", event_json(data)),
        MessageData::Group(data) => ("group", group_json(data)),
        MessageData::Reconcile(data) => ("reconcile", reconcile_json(data)),
    };
    Data { kind, json, value: data.to_value() }
}

fn event_json(data: &EventData) -> Json {
    json!({"Operation": data.operation, "Group": data.group, "Version": data.version, "Resource": data.resource,
        "Namespace": data.namespace, "Name": data.name, "APIVersion": data.api_version, "Username": data.username,
        "GitTarget": data.git_target})
}

fn group_json(data: &GroupData) -> Json {
    let resource = |data: &ResourceRef| {
        json!({"Group": data.group, "Version": data.version, "Resource": data.resource, "Namespace": data.namespace,
            "Name": data.name})
    };
    let Operations { create, update, delete } = data.operations;
    json!({"Author": data.author, "GitTarget": data.git_target, "Count": data.count,
        "Operations": {"CREATE": create, "UPDATE": update, "DELETE": delete},
        "Resources": data.resources.iter().map(resource).collect::<Vec<_>>()})
}

fn reconcile_json(data: &ReconcileData) -> Json {
    json!({"Count": data.count, "GitTarget": data.git_target, "Group": data.group, "Version": data.version,
        "Resource": data.resource, "APIVersion": data.api_version, "Revision": data.revision,
        "Namespace": data.namespace})
}

pub fn event() -> EventData {
    EventData {
        operation: "UPDATE".into(),
        group: "apps".into(),
        version: "v1".into(),
        resource: "deployments".into(),
        namespace: "shop".into(),
        name: "web".into(),
        api_version: "apps/v1".into(),
        username: "jané <x@y.z> \"q\"".into(),
        git_target: "prod".into(),
    }
}

pub fn group() -> GroupData {
    let resource = |namespace: &str, name: &str| ResourceRef {
        group: "apps".into(),
        version: "v1".into(),
        resource: "deployments".into(),
        namespace: namespace.into(),
        name: name.into(),
    };
    GroupData {
        author: "jane".into(),
        git_target: "prod".into(),
        count: 3,
        operations: Operations { create: 2, update: 0, delete: 1 },
        resources: vec![resource("a", "one"), resource("b", "two"), resource("a", "three")],
    }
}

pub fn reconcile() -> ReconcileData {
    ReconcileData { count: 7, git_target: "prod".into(), revision: "4711".into(), ..ReconcileData::default() }
}

/// Something of every type.
pub fn everything() -> Data {
    any_data(json!({
        "S": "a text", "E": "", "U": "héllo 🚀 <b>&'\"\\\n\u{1}", "N": 42, "Z": 0, "G": -7, "F": 2.5, "T": true, "B": false,
        "X": null, "L": [3, "two", null, 1.5, [1, 2], {"k": "v"}], "LE": [], "LS": ["x", "y", "z"], "LN": [1, 2, 3],
        "M": {"b": 2, "a": 1, "c": {"d": "deep", "nil": null}, "n": null}, "ME": {}, "Q": 1_000_000.5, "H": 1e21, "W": 1e-7
    }))
}
