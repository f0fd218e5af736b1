//! Is a file found in Git ours, so that it may be replaced or deleted? In: its bytes and the object it should hold.
//! Out: a verdict with a reason a person can act on.
//!
//! A file is ours if it holds one document of that identity and equals, byte for byte, what the emitter writes for what
//! it parses to. So a file with a comment, an anchor, a second document or another quoting is never ours: a person (or
//! another tool) wrote it, and rewriting it would lose what they meant. Absent: edits in place.

use std::fmt;

use serde_json::Value;

use crate::identity::DocumentIdentity;
use crate::yaml::{ReadError, YamlProblem, read_document, to_yaml};

/// Whose file it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileVerdict {
    /// Ours: may be replaced and deleted.
    Ours,
    /// Not ours: stays as it is and is reported.
    Foreign(ForeignReason),
}

/// Why a file is not ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForeignReason {
    /// Not text.
    #[error("the file is not UTF-8 text")]
    NotUtf8,
    /// Not YAML, or YAML that no Kubernetes object can be.
    #[error("the file cannot be read as a YAML object: {problem} at line {line}, column {column}")]
    NotYaml {
        /// What is wrong.
        problem: YamlProblem,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
    },
    /// Nothing in it.
    #[error("the file holds no document")]
    Empty,
    /// Several documents in one file.
    #[error("the file holds {count} documents, only files with one are managed")]
    SeveralDocuments {
        /// How many.
        count: usize,
    },
    /// A `sops` block: values are encrypted.
    #[error("the file is encrypted with SOPS")]
    Encrypted,
    /// YAML, but without `apiVersion`, `kind` and `metadata.name`.
    #[error("the document is not a Kubernetes object")]
    NoIdentity,
    /// Another object's document.
    #[error("the file holds {found}")]
    OtherIdentity {
        /// Whose.
        found: DocumentIdentity,
    },
    /// The right object, but written by somebody else.
    #[error("the document was not written in this form by upriver, it differs from line {line} on")]
    NotCanonical {
        /// First line that the emitter would write differently, from 1.
        line: usize,
    },
}

impl fmt::Display for FileVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ours => f.write_str("ours"),
            Self::Foreign(reason) => reason.fmt(f),
        }
    }
}

/// Judges a file at the canonical path of `expected`.
#[must_use]
pub fn judge(bytes: &[u8], expected: &DocumentIdentity) -> FileVerdict {
    match examine(bytes, expected) {
        Ok(()) => FileVerdict::Ours,
        Err(reason) => FileVerdict::Foreign(reason),
    }
}

fn examine(bytes: &[u8], expected: &DocumentIdentity) -> Result<(), ForeignReason> {
    let text = std::str::from_utf8(bytes).map_err(|_| ForeignReason::NotUtf8)?;
    let document = read_document(text).map_err(|error| match error {
        ReadError::NotYaml { problem, line, column } => ForeignReason::NotYaml { problem, line, column },
        ReadError::Empty => ForeignReason::Empty,
        ReadError::SeveralDocuments { count } => ForeignReason::SeveralDocuments { count },
    })?;
    if document.get("sops").is_some_and(Value::is_object) {
        return Err(ForeignReason::Encrypted);
    }
    let found = DocumentIdentity::of(&document).ok_or(ForeignReason::NoIdentity)?;
    if found != *expected {
        return Err(ForeignReason::OtherIdentity { found });
    }
    let canonical = to_yaml(&document);
    if canonical == text {
        Ok(())
    } else {
        Err(ForeignReason::NotCanonical { line: first_difference(text, &canonical) })
    }
}

fn first_difference(text: &str, canonical: &str) -> usize {
    let same = text.bytes().zip(canonical.bytes()).take_while(|(left, right)| left == right).count();
    1 + text.as_bytes()[..same].iter().filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn web() -> DocumentIdentity {
        DocumentIdentity::new("", "ConfigMap", "shop", "web")
    }

    const OURS: &str =
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: web\n  namespace: shop\ndata:\n  a: \"1\"\n";

    #[test]
    fn canonical_document_of_the_identity_is_ours() {
        assert_eq!(judge(OURS.as_bytes(), &web()), FileVerdict::Ours);
    }

    #[test]
    fn every_other_spelling_of_the_same_object_is_foreign() {
        let table = [
            (OURS.replace("\"1\"", "'1'"), 7),
            (OURS.replace("kind: ConfigMap\n", "kind: ConfigMap # mine\n"), 2),
            (format!("# mine\n{OURS}"), 1),
            (format!("---\n{OURS}"), 1),
            (format!("{OURS}\n"), 8),
            (OURS.trim_end().to_owned(), 7),
            (OURS.replace("\"1\"", "&x \"1\""), 7),
            (OURS.replace('\n', "\r\n"), 1),
            (format!("\u{feff}{OURS}"), 1),
            (
                OURS.replace("  namespace: shop\n", "")
                    .replace("  name: web\n", "  namespace: shop\n  name: web\n"),
                4,
            ),
        ];
        for (text, line) in table {
            let expected = FileVerdict::Foreign(ForeignReason::NotCanonical { line });
            assert_eq!(judge(text.as_bytes(), &web()), expected, "{text}");
        }
    }

    #[test]
    fn files_of_other_sorts_are_named_as_what_they_are() {
        let foreign = |text: &[u8]| match judge(text, &web()) {
            FileVerdict::Foreign(reason) => reason,
            FileVerdict::Ours => panic!("ours: {}", String::from_utf8_lossy(text)),
        };
        assert_eq!(foreign(b"\xff\xfe"), ForeignReason::NotUtf8);
        assert_eq!(foreign(b""), ForeignReason::Empty);
        assert_eq!(foreign(b"# nothing\n"), ForeignReason::Empty);
        assert_eq!(foreign(b"a: b\n"), ForeignReason::NoIdentity);
        assert_eq!(foreign(b"just text\n"), ForeignReason::NoIdentity);
        assert_eq!(
            foreign(format!("{OURS}---\n{OURS}").as_bytes()),
            ForeignReason::SeveralDocuments { count: 2 }
        );
        assert_eq!(foreign(format!("{OURS}sops:\n  mac: x\n").as_bytes()), ForeignReason::Encrypted);
        let alias = OURS.replace("  a: \"1\"", "  a: &x \"1\"\n  b: *x");
        let expected = ForeignReason::NotYaml { problem: YamlProblem::Alias, line: 8, column: 6 };
        assert_eq!(foreign(alias.as_bytes()), expected);
        let tag = OURS.replace("\"1\"", "!!str 1");
        assert!(matches!(foreign(tag.as_bytes()), ForeignReason::NotYaml { problem: YamlProblem::Tag, .. }));
        assert!(matches!(foreign(b"a: {{ .Values.x }}\n"), ForeignReason::NotYaml { .. }));
        let twice = format!("{OURS}kind: ConfigMap\n");
        assert!(
            matches!(foreign(twice.as_bytes()), ForeignReason::NotYaml { .. }),
            "{:?}",
            foreign(twice.as_bytes())
        );
        let found = DocumentIdentity::new("", "ConfigMap", "shop", "other");
        assert_eq!(foreign(OURS.replace("web", "other").as_bytes()), ForeignReason::OtherIdentity { found });
    }

    #[test]
    fn a_reason_says_what_was_found() {
        let found = DocumentIdentity::new("apps", "Deployment", "shop", "web");
        let verdict = FileVerdict::Foreign(ForeignReason::OtherIdentity { found });
        assert_eq!(verdict.to_string(), "the file holds apps/Deployment shop/web");
    }
}
