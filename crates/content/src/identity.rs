//! Who a document is. In: its parsed value. Out: group, kind, namespace and name, the four parts that stay the same
//! when an API version is bumped. Absent: the version (C5.8: a document moved to a new version is still the same one).

use std::fmt;

use serde_json::Value;

/// The version-free identity of one object in Git.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentIdentity {
    /// API group, `""` for core.
    pub group: Box<str>,
    /// Kind, for example `ConfigMap`.
    pub kind: Box<str>,
    /// Namespace, `""` for cluster-scoped objects.
    pub namespace: Box<str>,
    /// Object name.
    pub name: Box<str>,
}

impl DocumentIdentity {
    /// An identity from its parts.
    #[must_use]
    pub fn new(group: &str, kind: &str, namespace: &str, name: &str) -> Self {
        Self { group: group.into(), kind: kind.into(), namespace: namespace.into(), name: name.into() }
    }

    /// Reads the identity of a parsed document; `None` if it lacks `apiVersion`, `kind` or `metadata.name`, or if one
    /// of them is not a non-empty string.
    #[must_use]
    pub fn of(document: &Value) -> Option<Self> {
        let api_version = text(document.get("apiVersion"))?;
        let kind = text(document.get("kind"))?;
        let metadata = document.get("metadata")?;
        let name = text(metadata.get("name"))?;
        let namespace = match metadata.get("namespace") {
            None | Some(Value::Null) => "",
            Some(value) => value.as_str()?,
        };
        Some(Self::new(group_of(api_version), kind, namespace, name))
    }
}

impl fmt::Display for DocumentIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.group.is_empty() {
            write!(f, "{}/", self.group)?;
        }
        write!(f, "{} ", self.kind)?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

fn text(value: Option<&Value>) -> Option<&str> {
    value.and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// The group of an `apiVersion`: what stands before the slash, `""` for core.
#[must_use]
pub fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _version)| group)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn identity_leaves_the_version_out() {
        let of = |version: &str| {
            DocumentIdentity::of(&json!({
                "apiVersion": format!("apps/{version}"), "kind": "Deployment",
                "metadata": {"name": "web", "namespace": "shop"},
            }))
        };
        assert_eq!(of("v1"), of("v1beta1"));
        assert_eq!(of("v1").expect("complete").to_string(), "apps/Deployment shop/web");
    }

    #[test]
    fn document_without_name_has_no_identity() {
        for document in [
            json!({"apiVersion": "v1", "kind": "List", "items": []}),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": 7}}),
            json!({"apiVersion": "v1", "kind": "", "metadata": {"name": "a"}}),
            json!([1]),
        ] {
            assert_eq!(DocumentIdentity::of(&document), None, "{document}");
        }
    }
}
