//! The cheap first look at an object. In: its JSON text. Out: the few fields that decide whether the rest is worth
//! building, borrowed from that text. One pass, nothing allocated unless a name holds an escape.
//! Absent: validation. A missing field is `""`, because bookmarks carry next to nothing.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::identity::{DocumentIdentity, group_of};
use crate::text::Text;

/// The annotation that marks the bookmark which closes the initial events of a watch (W2.1).
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// What can be known of an object without building it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectMeta<'a> {
    /// `apiVersion`; `""` in items of a list of built-in objects.
    pub api_version: Cow<'a, str>,
    /// `kind`; `""` in items of a list of built-in objects.
    pub kind: Cow<'a, str>,
    /// `metadata.name`.
    pub name: Cow<'a, str>,
    /// `metadata.namespace`, `""` for cluster-scoped objects.
    pub namespace: Cow<'a, str>,
    /// `metadata.uid`.
    pub uid: Cow<'a, str>,
    /// `metadata.resourceVersion`.
    pub resource_version: Cow<'a, str>,
    /// The top-level `type` if it is a string: what tells one sort of Secret from another.
    pub type_name: Cow<'a, str>,
    /// True if `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// True if an owner reference says `controller: true`.
    pub controlled: bool,
    /// True if this is the bookmark that closes the initial events.
    pub initial_events_end: bool,
}

impl<'a> ObjectMeta<'a> {
    /// Reads the fields above out of an object's JSON text.
    ///
    /// # Errors
    /// If the text is not one JSON object, or if `metadata` has a shape that no API server sends.
    pub fn peek(json: &'a str) -> Result<Self, PeekError> {
        let raw: RawObject<'a> = serde_json::from_str(json)
            .map_err(|error| PeekError { line: error.line(), column: error.column() })?;
        let metadata = raw.metadata.unwrap_or_default();
        let owners = metadata.owner_references.unwrap_or_default();
        Ok(Self {
            api_version: raw.api_version.0,
            kind: raw.kind.0,
            name: metadata.name.0,
            namespace: metadata.namespace.0,
            uid: metadata.uid.0,
            resource_version: metadata.resource_version.0,
            type_name: raw.type_name.0,
            deleting: !metadata.deletion_timestamp.0.is_empty(),
            controlled: owners.iter().any(|owner| owner.controller == Some(true)),
            initial_events_end: metadata.annotations.unwrap_or_default().initial_events_end,
        })
    }

    /// The API group, `""` for core.
    #[must_use]
    pub fn group(&self) -> &str {
        group_of(&self.api_version)
    }

    /// The identity that the object's document has in Git.
    #[must_use]
    pub fn identity(&self) -> DocumentIdentity {
        DocumentIdentity::new(self.group(), &self.kind, &self.namespace, &self.name)
    }
}

/// The text is not a JSON object. Holds the place only, never the content: it might be a Secret's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a JSON object at line {line}, column {column}")]
pub struct PeekError {
    /// Line of the problem, from 1.
    pub line: usize,
    /// Column of the problem, from 1.
    pub column: usize,
}

#[derive(Deserialize)]
struct RawObject<'a> {
    #[serde(borrow, default, rename = "apiVersion")]
    api_version: Text<'a>,
    #[serde(borrow, default)]
    kind: Text<'a>,
    #[serde(borrow, default, rename = "type")]
    type_name: Text<'a>,
    #[serde(borrow, default)]
    metadata: Option<RawMetadata<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawMetadata<'a> {
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, default)]
    namespace: Text<'a>,
    #[serde(borrow, default)]
    uid: Text<'a>,
    #[serde(borrow, default)]
    resource_version: Text<'a>,
    #[serde(borrow, default)]
    deletion_timestamp: Text<'a>,
    #[serde(default)]
    owner_references: Option<Vec<RawOwner>>,
    #[serde(default)]
    annotations: Option<RawAnnotations>,
}

#[derive(Deserialize)]
struct RawOwner {
    #[serde(default)]
    controller: Option<bool>,
}

#[derive(Default)]
struct RawAnnotations {
    initial_events_end: bool,
}

impl<'de> Deserialize<'de> for RawAnnotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(AnnotationsVisitor)
    }
}

struct AnnotationsVisitor;

impl<'de> Visitor<'de> for AnnotationsVisitor {
    type Value = RawAnnotations;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of annotations")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = RawAnnotations::default();
        while let Some(key) = map.next_key::<Text<'de>>()? {
            if key.0 == INITIAL_EVENTS_END {
                found.initial_events_end = map.next_value::<Text<'de>>()?.0 == "true";
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peek_reads_what_decides_and_borrows_it() {
        let json = r#"{"kind":"Secret","apiVersion":"v1","type":"Opaque","data":{"type":"no"},"metadata":{
            "name":"a","namespace":"b","uid":"u","resourceVersion":"7","deletionTimestamp":"2026-01-01T00:00:00Z",
            "managedFields":[{"manager":"x","fieldsV1":{"f:data":{}}}],
            "ownerReferences":[{"kind":"X"},{"kind":"Y","controller":true}]}}"#;
        let meta = ObjectMeta::peek(json).expect("an object");
        assert!(matches!(meta.name, Cow::Borrowed("a")));
        let expected = ObjectMeta {
            api_version: "v1".into(),
            kind: "Secret".into(),
            name: "a".into(),
            namespace: "b".into(),
            uid: "u".into(),
            resource_version: "7".into(),
            type_name: "Opaque".into(),
            deleting: true,
            controlled: true,
            initial_events_end: false,
        };
        assert_eq!(meta, expected);
    }

    #[test]
    fn closing_bookmark_is_recognised_without_a_name() {
        let json = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"12",
            "creationTimestamp":null,"annotations":{"x":"y","k8s.io/initial-events-end":"true"}}}"#;
        let meta = ObjectMeta::peek(json).expect("a bookmark");
        assert!(meta.initial_events_end && meta.name.is_empty());
        assert_eq!(meta.resource_version, "12");
    }

    #[test]
    fn type_that_is_not_text_and_nulls_do_no_harm() {
        let json = r#"{"type":{"a":[1,2.5,null,true]},"metadata":{"name":"a","namespace":null,
            "ownerReferences":null,"annotations":null,"deletionTimestamp":null}}"#;
        let meta = ObjectMeta::peek(json).expect("an object");
        assert_eq!((&*meta.type_name, &*meta.namespace, meta.deleting), ("", "", false));
        assert_eq!(ObjectMeta::peek(r#"{"metadata":null}"#).expect("an object"), ObjectMeta::default());
    }

    #[test]
    fn broken_json_is_an_error_that_holds_no_content() {
        let error = ObjectMeta::peek(r#"{"data": {"password": "hunter2"#).expect_err("cut short");
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    }
}
