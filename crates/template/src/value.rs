//! What a template is given, and what its expressions yield. Copies are cheap: what may be large is shared.

use std::collections::BTreeMap;
use std::sync::Arc;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing. Printed alone it is `<no value>`, as in Go.
    Nil,
    /// True or false.
    Bool(bool),
    /// An integer, Go's `int`.
    Int(i64),
    /// A byte of a text, Go's `uint8`; only `index` yields it.
    Byte(u8),
    /// A float, Go's `float64`.
    Float(f64),
    /// Text.
    Text(Arc<str>),
    /// A list.
    List(Arc<[Value]>),
    /// Texts to values, in the order of their bytes.
    Map(Arc<Map>),
    /// Named fields, Go's struct.
    Record(Arc<Record>),
}

/// Texts to values.
#[derive(Clone, Debug, PartialEq)]
pub struct Map {
    /// The entries.
    pub entries: BTreeMap<Arc<str>, Value>,
    /// What `index` yields for other keys: Go's zero value of the element type. A field (`.Key`) that is missing is an
    /// error nevertheless.
    pub zero: Value,
}

/// Fields in the order in which they are printed.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Name of the type, for error texts.
    pub name: &'static str,
    /// Names and values.
    pub fields: Vec<(&'static str, Value)>,
}

impl Value {
    /// A map whose other values are nil.
    pub fn map(entries: impl IntoIterator<Item = (Arc<str>, Value)>) -> Self {
        Self::Map(Arc::new(Map { entries: entries.into_iter().collect(), zero: Value::Nil }))
    }

    /// A map of numbers, whose other values are 0.
    pub fn counts<'k>(entries: impl IntoIterator<Item = (&'k str, i64)>) -> Self {
        let entries = entries.into_iter().map(|(key, count)| (Arc::from(key), Value::Int(count))).collect();
        Self::Map(Arc::new(Map { entries, zero: Value::Int(0) }))
    }

    /// A record.
    pub fn record(name: &'static str, fields: Vec<(&'static str, Value)>) -> Self {
        Self::Record(Arc::new(Record { name, fields }))
    }

    /// Whether `if` takes it for true: not zero, not empty.
    #[must_use]
    pub fn is_true(&self) -> bool {
        match self {
            Self::Nil => false,
            Self::Bool(value) => *value,
            Self::Int(value) => *value != 0,
            Self::Byte(value) => *value != 0,
            Self::Float(value) => *value != 0.0,
            Self::Text(text) => !text.is_empty(),
            Self::List(items) => !items.is_empty(),
            Self::Map(map) => !map.entries.is_empty(),
            Self::Record(_) => true,
        }
    }

    /// The name that Go gives the type.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Nil => "nil",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Byte(_) => "uint8",
            Self::Float(_) => "float64",
            Self::Text(_) => "string",
            Self::List(_) => "[]interface {}",
            Self::Map(map) if map.zero == Self::Int(0) => "map[string]int",
            Self::Map(_) => "map[string]interface {}",
            Self::Record(record) => record.name,
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}
