//! Names of what is watched: group-version-resource, scope, object key, resourceVersion.
//!
//! In: strings as the Kubernetes API spells them. Out: values that can be compared, stored and shown. Nothing here
//! talks to an API server or knows what a type's schema is.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A type as the API server serves it, for example `apps/v1 deployments`. `group` is empty for the core group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Gvr {
    /// API group, `""` for core.
    pub group: Box<str>,
    /// Version, for example `v1`.
    pub version: Box<str>,
    /// Plural resource name in lower case, for example `configmaps`.
    pub resource: Box<str>,
}

impl Gvr {
    /// A type from its three parts.
    #[must_use]
    pub fn new(group: &str, version: &str, resource: &str) -> Self {
        Self { group: group.into(), version: version.into(), resource: resource.into() }
    }

    /// `v1` for core, `group/version` else.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `resource` for core, `group/resource` else: the version-free name used in keys and metrics.
    #[must_use]
    pub fn group_resource(&self) -> String {
        if self.group.is_empty() {
            self.resource.to_string()
        } else {
            format!("{}/{}", self.group, self.resource)
        }
    }

    /// Core Secrets: never written in plaintext, never logged.
    #[must_use]
    pub fn is_secret(&self) -> bool {
        self.group.is_empty() && &*self.resource == "secrets"
    }
}

impl fmt::Display for Gvr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.api_version(), self.resource)
    }
}

/// Where in a cluster a watch or a subscription looks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Scope {
    /// Every namespace, or cluster-scoped objects.
    Cluster,
    /// One namespace.
    Namespace(Box<str>),
}

impl Scope {
    /// The namespace, if it is only one.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::Cluster => None,
            Self::Namespace(name) => Some(name),
        }
    }

    /// True if an object in `namespace` (`""` for cluster-scoped) lies in this scope.
    #[must_use]
    pub fn covers(&self, namespace: &str) -> bool {
        match self {
            Self::Cluster => true,
            Self::Namespace(name) => &**name == namespace,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => f.write_str("*"),
            Self::Namespace(name) => f.write_str(name),
        }
    }
}

/// Namespace and name of one object; namespace is empty for cluster-scoped ones.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectKey {
    /// Namespace, `""` for cluster-scoped objects.
    pub namespace: Box<str>,
    /// Object name.
    pub name: Box<str>,
}

impl ObjectKey {
    /// A key from its parts.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// An opaque version of an object or a list. Two of one type may be ordered only where both are numbers
/// (Kubernetes 1.35 and later promise that); [`ResourceVersion::number`] is the only way to order them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ResourceVersion(Box<str>);

impl ResourceVersion {
    /// Takes the text as the API server sent it.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The text to send back.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The value as a number, if it is one.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        self.0.parse().ok()
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
