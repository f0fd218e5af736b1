//! Which folder of a repository does a target own? In: `spec.path`. Out: a checked path, or a reason (C4.11, GIT-15).
//! Two targets must not own the same folder or one inside the other; [`TargetPath::overlaps`] says so. Absent: the
//! repository and branch, which must be equal for an overlap to matter.

use std::fmt;

/// A target's folder, relative to the repository's root; the root itself is `""`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetPath(Box<str>);

/// Why a path cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Begins with a slash.
    #[error("`{path}` is absolute: write it relative to the root of the repository")]
    Absolute {
        /// The path.
        path: String,
    },
    /// Contains a backslash.
    #[error("`{path}` contains a backslash: separate folders by `/`")]
    Backslash {
        /// The path.
        path: String,
    },
    /// Contains `..`.
    #[error("`{path}` contains `..`, which could lead out of the repository")]
    Parent {
        /// The path.
        path: String,
    },
    /// Contains Git's own folder, in any spelling that some file system takes for it.
    #[error("`{path}` goes through Git's own folder `.git`")]
    GitFolder {
        /// The path.
        path: String,
    },
    /// Contains a control character.
    #[error("`{path}` contains a control character")]
    Control {
        /// The path, with the character escaped.
        path: String,
    },
    /// A segment is longer than file systems allow.
    #[error("`{path}` has a segment of more than 255 bytes")]
    TooLong {
        /// The path.
        path: String,
    },
    /// A template gives no file name for this object.
    #[error("placement template `{template}` gives no file name for {object}")]
    NoFileName {
        /// The template.
        template: String,
        /// The object's key.
        object: String,
    },
    /// A template gives a name whose end does not fit the sensitivity of the type.
    #[error("placement template `{template}` gives `{path}`, which must end in `{suffix}` for {object}")]
    WrongSuffix {
        /// The template.
        template: String,
        /// What it resolved to.
        path: String,
        /// What it must end in.
        suffix: &'static str,
        /// The object's key.
        object: String,
    },
}

impl TargetPath {
    /// The root of the repository.
    #[must_use]
    pub fn root() -> Self {
        Self("".into())
    }

    /// Checks and cleans a `spec.path`: surrounding blanks, empty and `.` segments vanish.
    ///
    /// # Errors
    /// If the path is absolute or could lead out of the repository or into Git's own folder.
    pub fn parse(spec_path: &str) -> Result<Self, PathError> {
        let trimmed = spec_path.trim();
        let path = || trimmed.escape_debug().to_string();
        if trimmed.starts_with('/') {
            return Err(PathError::Absolute { path: path() });
        }
        if trimmed.contains('\\') {
            return Err(PathError::Backslash { path: trimmed.to_owned() });
        }
        if trimmed.contains("..") {
            return Err(PathError::Parent { path: path() });
        }
        let segments: Vec<&str> =
            trimmed.split('/').filter(|segment| !matches!(*segment, "" | ".")).collect();
        let cleaned = segments.join("/");
        check(&cleaned)?;
        Ok(Self(cleaned.into()))
    }

    /// The path as text, `""` for the root.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True if both are the same folder or one lies inside the other.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.contains(&other.0) || other.contains(&self.0)
    }

    /// True if `path` is this folder or lies inside it.
    #[must_use]
    pub fn contains(&self, path: &str) -> bool {
        self.0.is_empty()
            || path.strip_prefix(&*self.0).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl fmt::Display for TargetPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "." } else { &self.0 })
    }
}

/// What holds for every path, whoever made it.
pub(super) fn check(path: &str) -> Result<(), PathError> {
    if path.chars().any(char::is_control) {
        return Err(PathError::Control { path: path.escape_debug().to_string() });
    }
    for segment in path.split('/') {
        if segment == ".." {
            return Err(PathError::Parent { path: path.to_owned() });
        }
        if is_git_folder(segment) {
            return Err(PathError::GitFolder { path: path.to_owned() });
        }
        if segment.len() > 255 {
            return Err(PathError::TooLong { path: path.to_owned() });
        }
    }
    Ok(())
}

/// True if Git on some file system takes the segment for its own folder: any case, trailing dots and blanks or a stream
/// name (Windows), the short name `git~1` (Windows), invisible characters (macOS).
pub(super) fn is_git_folder(segment: &str) -> bool {
    let invisible = |character: char| matches!(character, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}');
    let visible: String = segment.chars().filter(|character| !invisible(*character)).collect();
    let before_stream = visible.split(':').next().unwrap_or_default();
    let name = before_stream.trim_end_matches(['.', ' ']);
    name.eq_ignore_ascii_case(".git") || name.eq_ignore_ascii_case("git~1")
}
