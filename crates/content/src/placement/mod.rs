//! Where does a new document lie? In: a target's path and templates, an object's type and key. Out: a path inside the
//! repository (C4.1 to C4.5, C4.11, C4.13). An existing document decides its own place; that is the caller's matter, and
//! so is the neighbourhood of a kustomization (rung 3 of C4.1) and whether templates are supported at all.
//!
//! A declared template that cannot be resolved is an error and never falls through to the next rung (C4.5).

mod encode;
mod target;
mod template;

use std::collections::BTreeMap;
use std::fmt;

use upriver_model::{Gvr, ObjectKey};

pub use encode::{case_key, decode_segment, encode_segment, with_case_suffix};
pub use target::{PathError, TargetPath};
pub use template::PlacementError;
use template::Template;

/// A path inside a repository: relative, `/` between segments, no segment empty, `.`, `..` or `.git`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RepoPath(Box<str>);

impl RepoPath {
    /// The path as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RepoPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a type's values must be encrypted, which shows in the file name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sensitivity {
    /// Written as it is: `.yaml`.
    Plain,
    /// Written encrypted: `.sops.yaml`.
    Sensitive,
}

impl Sensitivity {
    /// The end of the file name.
    #[must_use]
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Plain => ".yaml",
            Self::Sensitive => ".sops.yaml",
        }
    }
}

/// The object that needs a place. It is namespaced if its key has a namespace.
#[derive(Clone, Copy, Debug)]
pub struct PlacementQuery<'a> {
    /// Its type.
    pub gvr: &'a Gvr,
    /// Its kind.
    pub kind: &'a str,
    /// Its name.
    pub key: &'a ObjectKey,
    /// Whether its type is encrypted.
    pub sensitivity: Sensitivity,
}

/// A target's rules for new documents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    by_type: BTreeMap<Box<str>, Template>,
    default: Option<Template>,
}

const SECRETS: &str = "v1/secrets";

impl Placement {
    /// No templates: every document lies at its canonical path.
    #[must_use]
    pub fn canonical() -> Self {
        Self::default()
    }

    /// Compiles a target's templates and checks all that can be checked without an object (C4.3).
    ///
    /// # Errors
    /// The first entry that is wrong, with its key and text.
    pub fn compile(
        by_type: &BTreeMap<String, String>,
        default: Option<&str>,
    ) -> Result<Self, PlacementError> {
        let mut compiled = BTreeMap::new();
        for (key, text) in by_type {
            template::check_type_key(key)?;
            let template = Template::parse(text)?;
            if key == SECRETS && !template.names_object() {
                return Err(PlacementError::SecretsNotUnique { template: text.clone() });
            }
            compiled.insert(key.as_str().into(), template);
        }
        let default = default.map(Template::parse).transpose()?;
        match &default {
            Some(template) if !template.is_identity_complete() && !compiled.contains_key(SECRETS) => {
                Err(PlacementError::DefaultNeedsSecrets { template: template.to_string() })
            }
            Some(_) | None => Ok(Self { by_type: compiled, default }),
        }
    }

    /// True if there are no templates.
    #[must_use]
    pub fn is_canonical(&self) -> bool {
        self.by_type.is_empty() && self.default.is_none()
    }

    /// True if some template may put several objects into one file.
    #[must_use]
    pub fn may_bundle(&self) -> bool {
        self.by_type.values().any(|template| !template.names_object())
            || self.default.as_ref().is_some_and(|template| !template.is_identity_complete())
    }

    /// The path of an object's new document.
    ///
    /// # Errors
    /// If a template gives no usable path for this object.
    pub fn path_for(&self, target: &TargetPath, query: PlacementQuery<'_>) -> Result<RepoPath, PathError> {
        let gvr = query.gvr;
        let type_key = format!("{}/{}", gvr.api_version(), gvr.resource);
        match self.by_type.get(type_key.as_str()).or(self.default.as_ref()) {
            Some(template) => template.resolve(target, query),
            None => Ok(canonical_path(target, query)),
        }
    }
}

/// The canonical place: `{namespace or _cluster}/{group}/{resource}/{name}.yaml` below the target's path; core types
/// have no group segment.
#[must_use]
pub fn canonical_path(target: &TargetPath, query: PlacementQuery<'_>) -> RepoPath {
    let PlacementQuery { gvr, key, sensitivity, .. } = query;
    let namespace = if key.namespace.is_empty() { "_cluster" } else { &key.namespace };
    let folders =
        [namespace, &gvr.group, &gvr.resource].map(encode_segment).map(|name| encode::fit(&name, ""));
    let file = encode::fit(&encode_segment(&key.name), sensitivity.suffix());
    let mut path = target.as_str().to_owned();
    for segment in folders.iter().chain([&file]).filter(|segment| !segment.is_empty()) {
        if !path.is_empty() {
            path.push('/');
        }
        path.push_str(segment);
    }
    RepoPath(path.into())
}

#[cfg(test)]
mod tests;
