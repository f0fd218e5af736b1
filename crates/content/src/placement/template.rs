//! Placement templates. In: a template's text. Out: a compiled form, or the first thing wrong with it (C4.2, C4.3).
//! Variables stand in braces; their values are encoded like names, so a value never makes a new segment. A segment that
//! comes out empty vanishes.

use std::fmt;

use super::encode::{encode_segment, fit};
use super::target::{self, PathError, TargetPath};
use super::{PlacementQuery, RepoPath, Sensitivity};

/// What is wrong with a target's `placement`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// A key of `byType` is not `group/version/resource` or `version/resource`.
    #[error("`{key}` is no type: write `group/version/resource`, or `version/resource` for core types")]
    TypeKey {
        /// The key.
        key: String,
    },
    /// The template is empty.
    #[error("a placement template is empty")]
    Empty,
    /// A brace is not closed, or a closing one has no opening one.
    #[error("placement template `{template}` has a single brace")]
    Brace {
        /// The template.
        template: String,
    },
    /// No such variable.
    #[error("placement template `{template}` uses the unknown variable `{{{variable}}}`")]
    UnknownVariable {
        /// The template.
        template: String,
        /// The name between the braces.
        variable: String,
    },
    /// The literal parts do not make a usable path.
    #[error("placement template is not usable: {0}")]
    Path(#[from] PathError),
    /// Not a YAML file.
    #[error("placement template `{template}` must end in `.yaml`, `.yml` or `{{sensitiveSuffix}}`")]
    Suffix {
        /// The template.
        template: String,
    },
    /// The entry for Secrets would put several into one file.
    #[error("placement for `v1/secrets` is `{template}`: it needs `{{name}}` and a namespace variable")]
    SecretsNotUnique {
        /// The template.
        template: String,
    },
    /// The default may bundle objects, so Secrets need an entry of their own.
    #[error(
        "placement default `{template}` may put several objects into one file: add an entry for `v1/secrets`"
    )]
    DefaultNeedsSecrets {
        /// The template.
        template: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variable {
    Group,
    Version,
    ApiVersion,
    Resource,
    Kind,
    Scope,
    Namespace,
    NamespaceOrCluster,
    Name,
    SensitiveSuffix,
}

impl Variable {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "group" | "groupPath" => Self::Group,
            "version" => Self::Version,
            "apiVersion" => Self::ApiVersion,
            "resource" => Self::Resource,
            "kind" => Self::Kind,
            "scope" => Self::Scope,
            "namespace" => Self::Namespace,
            "namespaceOrCluster" => Self::NamespaceOrCluster,
            "name" => Self::Name,
            "sensitiveSuffix" => Self::SensitiveSuffix,
            _ => return None,
        })
    }

    fn value(self, query: &PlacementQuery<'_>) -> String {
        let PlacementQuery { gvr, kind, key, sensitivity } = *query;
        match self {
            Self::Group => encode_segment(&gvr.group),
            Self::Version => encode_segment(&gvr.version),
            Self::ApiVersion => encode_segment(&gvr.api_version()),
            Self::Resource => encode_segment(&gvr.resource),
            Self::Kind => encode_segment(kind),
            Self::Scope if key.namespace.is_empty() => "cluster".to_owned(),
            Self::Scope => "namespaced".to_owned(),
            Self::NamespaceOrCluster if key.namespace.is_empty() => "_cluster".to_owned(),
            Self::Namespace | Self::NamespaceOrCluster => encode_segment(&key.namespace),
            Self::Name => encode_segment(&key.name),
            Self::SensitiveSuffix => sensitivity.suffix().to_owned(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(Box<str>),
    Variable(Variable),
}

/// A template that passed every check which needs no object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template {
    text: Box<str>,
    segments: Vec<Vec<Part>>,
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Template {
    pub(super) fn parse(text: &str) -> Result<Self, PlacementError> {
        if text.trim().is_empty() {
            return Err(PlacementError::Empty);
        }
        if text.starts_with('/') {
            return Err(PathError::Absolute { path: text.to_owned() }.into());
        }
        if text.contains('\\') {
            return Err(PathError::Backslash { path: text.to_owned() }.into());
        }
        target::check(text)?;
        if ![".yaml", ".yml", "{sensitiveSuffix}"].iter().any(|suffix| text.ends_with(suffix)) {
            return Err(PlacementError::Suffix { template: text.to_owned() });
        }
        let segments = text
            .split('/')
            .filter(|segment| !matches!(*segment, "" | "."))
            .map(|segment| parts(segment, text))
            .collect::<Result<_, _>>()?;
        Ok(Self { text: text.into(), segments })
    }

    fn has(&self, variable: Variable) -> bool {
        self.segments.iter().flatten().any(|part| *part == Part::Variable(variable))
    }

    /// True if two objects of one type never share a file.
    pub(super) fn names_object(&self) -> bool {
        self.has(Variable::Name) && (self.has(Variable::Namespace) || self.has(Variable::NamespaceOrCluster))
    }

    /// True if two objects of any types never share a file.
    pub(super) fn is_identity_complete(&self) -> bool {
        self.names_object()
            && [Variable::Group, Variable::Version, Variable::Resource]
                .iter()
                .all(|variable| self.has(*variable))
    }

    pub(super) fn resolve(
        &self,
        target: &TargetPath,
        query: PlacementQuery<'_>,
    ) -> Result<RepoPath, PathError> {
        let mut segments: Vec<String> =
            self.segments.iter().map(|parts| resolve_segment(parts, &query)).collect();
        let file = segments.pop().unwrap_or_default();
        let (stem, suffix) = match [".sops.yaml", ".yaml", ".yml"].iter().find(|end| file.ends_with(**end)) {
            Some(suffix) => (&file[..file.len() - suffix.len()], *suffix),
            None => (file.as_str(), ""),
        };
        if stem.is_empty() {
            return Err(PathError::NoFileName { template: self.to_string(), object: query.key.to_string() });
        }
        let wrong = match query.sensitivity {
            Sensitivity::Sensitive => suffix != ".sops.yaml",
            Sensitivity::Plain => suffix == ".sops.yaml",
        };
        if wrong {
            return Err(PathError::WrongSuffix {
                template: self.to_string(),
                path: file.clone(),
                suffix: query.sensitivity.suffix(),
                object: query.key.to_string(),
            });
        }
        let file = fit(stem, suffix);
        let folders = segments.iter().map(|segment| fit(segment, "")).filter(|segment| !segment.is_empty());
        let own = Some(target.as_str().to_owned()).filter(|path| !path.is_empty());
        let path = own.into_iter().chain(folders).chain([file]).collect::<Vec<_>>().join("/");
        target::check(&path)?;
        Ok(RepoPath(path.into()))
    }
}

fn resolve_segment(parts: &[Part], query: &PlacementQuery<'_>) -> String {
    parts
        .iter()
        .map(|part| match part {
            Part::Literal(text) => text.to_string(),
            Part::Variable(variable) => variable.value(query),
        })
        .collect()
}

fn parts(segment: &str, template: &str) -> Result<Vec<Part>, PlacementError> {
    let brace = || PlacementError::Brace { template: template.to_owned() };
    let mut parts = Vec::new();
    let mut rest = segment;
    while !rest.is_empty() {
        let (literal, behind) = match rest.split_once('{') {
            Some((literal, behind)) => (literal, Some(behind)),
            None => (rest, None),
        };
        if literal.contains('}') {
            return Err(brace());
        }
        if !literal.is_empty() {
            parts.push(Part::Literal(literal.into()));
        }
        let Some(behind) = behind else { break };
        let (name, tail) = behind.split_once('}').ok_or_else(brace)?;
        let variable = Variable::named(name).ok_or_else(|| PlacementError::UnknownVariable {
            template: template.to_owned(),
            variable: name.to_owned(),
        })?;
        parts.push(Part::Variable(variable));
        rest = tail;
    }
    Ok(parts)
}

/// A key of `byType`: two or three segments, none empty, no blanks around them.
pub(super) fn check_type_key(key: &str) -> Result<(), PlacementError> {
    let segments: Vec<&str> = key.split('/').collect();
    let usable = |segment: &&str| !segment.is_empty() && segment.trim() == *segment;
    if (2..=3).contains(&segments.len()) && segments.iter().all(usable) {
        Ok(())
    } else {
        Err(PlacementError::TypeKey { key: key.to_owned() })
    }
}
