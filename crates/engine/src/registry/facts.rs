//! What discovery says, as values.

use std::collections::BTreeMap;
use std::fmt;

use upriver_model::Gvr;

/// One version of an API group; the core group is `""`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupVersion {
    /// Group.
    pub group: Box<str>,
    /// Version.
    pub version: Box<str>,
}

impl GroupVersion {
    /// A group-version from its parts.
    #[must_use]
    pub fn new(group: &str, version: &str) -> Self {
        Self { group: group.into(), version: version.into() }
    }

    /// The group-version of a type.
    #[must_use]
    pub fn of(gvr: &Gvr) -> Self {
        Self { group: gvr.group.clone(), version: gvr.version.clone() }
    }

    /// The document that lists it.
    #[must_use]
    pub fn root(&self) -> Root {
        if self.group.is_empty() { Root::Core } else { Root::Named }
    }
}

impl fmt::Display for GroupVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.version)
        } else {
            write!(f, "{}/{}", self.group, self.version)
        }
    }
}

/// The two documents at which discovery begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Root {
    /// `/api`: the core group.
    Core,
    /// `/apis`: all others.
    Named,
}

impl Root {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Core, Self::Named];
}

/// What discovery says about one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeFacts {
    /// Group, version, resource.
    pub gvr: Gvr,
    /// Kind.
    pub kind: Box<str>,
    /// Where its objects live; `None` if the server does not say.
    pub scope: Option<TypeScope>,
    /// True for the version that the server prefers in its group.
    pub preferred: bool,
    /// Verbs, sorted. Empty if only subresources are served.
    pub verbs: Vec<Box<str>>,
    /// Names of its subresources, sorted, for example `scale`.
    pub subresources: Vec<Box<str>>,
}

/// Where the objects of a type live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypeScope {
    /// In namespaces.
    Namespaced,
    /// Outside of namespaces.
    Cluster,
}

impl TypeFacts {
    /// True if its objects can be read, listed and watched; that it can be patched is not needed.
    #[must_use]
    pub fn watchable(&self) -> bool {
        ["get", "list", "watch"].iter().all(|verb| self.verbs.iter().any(|offered| &**offered == *verb))
    }

    /// True if it has a subresource of this name.
    #[must_use]
    pub fn has_subresource(&self, name: &str) -> bool {
        self.subresources.iter().any(|offered| &**offered == name)
    }
}

/// What one look at a group-version brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Its types, all of them.
    Types(Vec<TypeFacts>),
    /// It exists, and its types could not be read just now.
    Failed {
        /// The server's words.
        why: Box<str>,
        /// What an older answer said, where the server still shows one.
        stale: Vec<TypeFacts>,
    },
}

/// One look at the whole API. A group-version that is absent from `groups` is gone if its root was read, and was not
/// reached otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// By group-version.
    pub groups: BTreeMap<GroupVersion, Answer>,
    /// Roots that could not be read, with the reason.
    pub unread: BTreeMap<Root, Box<str>>,
}

impl Scan {
    /// True if this root was read to its end.
    #[must_use]
    pub fn has_read(&self, root: Root) -> bool {
        !self.unread.contains_key(&root)
    }
}
