//! What of a live object belongs into Git. In: the object's JSON text and the rules. Out: the document (C3.1 to C3.9).
//!
//! Every top-level field but `status` is kept; of the metadata only name, namespace, labels and annotations. Nulls are
//! dropped from every map (absent and null mean the same to the API), but a null in a list stays, since dropping it
//! would move its neighbours; `{}`, `[]`, `[{}]` and `""` stay exactly as they are. `status` and `managedFields` are
//! skipped while parsing and never built. Few types have rules of their own ([`kinds`]), matched on group and kind.
//! Sanitising a sanitised document changes nothing (C3.15). Absent: removal of server-side defaults (C3.10).

mod build;
mod kinds;
mod rules;

use serde::de::{DeserializeSeed, Deserializer};
use serde_json::Value;

pub use rules::SanitizeRules;

use crate::identity::DocumentIdentity;

/// A document as it belongs into Git.
#[derive(Clone, Debug, PartialEq)]
pub struct Sanitized {
    /// Who it is.
    pub identity: DocumentIdentity,
    /// What it holds; always an object.
    pub document: Value,
}

impl Sanitized {
    /// The document's one spelling.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        crate::yaml::to_yaml(&self.document)
    }
}

/// The type to assume where an object does not say it: the API server leaves `apiVersion` and `kind` out of the items
/// of a list of built-in objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeHint<'a> {
    /// For example `apps/v1`.
    pub api_version: &'a str,
    /// For example `Deployment`.
    pub kind: &'a str,
}

/// Why an object cannot become a document. Holds no content: the object might be a Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SanitizeError {
    /// The text is not one JSON object.
    #[error("not a JSON object at line {line}, column {column}")]
    NotAnObject {
        /// Line of the problem, from 1; 0 if the input was a value and not text.
        line: usize,
        /// Column of the problem, from 1; 0 if the input was a value and not text.
        column: usize,
    },
    /// A part of the identity is missing or not a non-empty string.
    #[error("the object has no usable {field}")]
    Incomplete {
        /// The field, as a path.
        field: &'static str,
    },
}

/// Sanitises an object given as JSON text: the hot path.
///
/// # Errors
/// If the text is not a JSON object or lacks `apiVersion`, `kind` or `metadata.name`.
pub fn sanitize(json: &str, rules: &SanitizeRules) -> Result<Sanitized, SanitizeError> {
    let value = from_text(json, rules)?;
    finish(value, None, rules)
}

/// As [`sanitize()`], for an item of a list: a missing type is filled in from `hint`.
///
/// # Errors
/// If the text is not a JSON object or lacks `metadata.name`.
pub fn sanitize_item(
    json: &str,
    hint: TypeHint<'_>,
    rules: &SanitizeRules,
) -> Result<Sanitized, SanitizeError> {
    let value = from_text(json, rules)?;
    finish(value, Some(hint), rules)
}

/// As [`sanitize()`], for an object that is parsed already, for example one read from Git.
///
/// # Errors
/// If the value is not an object or lacks `apiVersion`, `kind` or `metadata.name`.
pub fn sanitize_value(object: &Value, rules: &SanitizeRules) -> Result<Sanitized, SanitizeError> {
    let value = build::Root { rules }
        .deserialize(object)
        .map_err(|_| SanitizeError::NotAnObject { line: 0, column: 0 })?;
    finish(value, None, rules)
}

fn from_text(json: &str, rules: &SanitizeRules) -> Result<Value, SanitizeError> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let place =
        |error: serde_json::Error| SanitizeError::NotAnObject { line: error.line(), column: error.column() };
    let value = parse(&mut deserializer, rules).map_err(place)?;
    deserializer.end().map_err(place)?;
    Ok(value)
}

fn parse<'de, D: Deserializer<'de>>(deserializer: D, rules: &SanitizeRules) -> Result<Value, D::Error> {
    build::Root { rules }.deserialize(deserializer)
}

fn finish(
    mut document: Value,
    hint: Option<TypeHint<'_>>,
    rules: &SanitizeRules,
) -> Result<Sanitized, SanitizeError> {
    if let (Some(hint), Some(root)) = (hint, document.as_object_mut()) {
        for (field, text) in [("apiVersion", hint.api_version), ("kind", hint.kind)] {
            root.entry(field).or_insert_with(|| Value::String(text.to_owned()));
        }
    }
    let Some(identity) = DocumentIdentity::of(&document) else {
        return Err(SanitizeError::Incomplete { field: missing_field(&document) });
    };
    if let Some(root) = document.as_object_mut() {
        kinds::apply(root, &identity, rules);
    }
    Ok(Sanitized { identity, document })
}

fn missing_field(document: &Value) -> &'static str {
    let usable = |value: Option<&Value>| value.and_then(Value::as_str).is_some_and(|text| !text.is_empty());
    if !usable(document.get("apiVersion")) {
        "apiVersion"
    } else if !usable(document.get("kind")) {
        "kind"
    } else if !usable(document.pointer("/metadata/name")) {
        "metadata.name"
    } else {
        "metadata.namespace"
    }
}

#[cfg(test)]
mod tests;
