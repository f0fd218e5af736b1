//! What went wrong, where, and in words that help the person who wrote the template.

/// Why a template cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct TemplateError {
    /// Line in the template, from 1.
    pub line: usize,
    /// Character in the line, from 1.
    pub column: usize,
    /// What sort of fault it is.
    pub kind: ErrorKind,
    /// What is wrong and, where it is not obvious, what to write instead.
    pub message: String,
}

/// Sorts of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The template is wrong with any data.
    Syntax,
    /// Go knows it, we do not.
    Unsupported,
    /// The data lacks something, or has another type.
    Data,
    /// It would take too long, or write too much.
    Limit,
}

/// A fault whose place is not known yet.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) kind: ErrorKind,
    pub(crate) message: String,
}

impl Fault {
    pub(crate) fn syntax(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Syntax, message: message.into() }
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Unsupported, message: message.into() }
    }

    pub(crate) fn data(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Data, message: message.into() }
    }

    pub(crate) fn limit(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Limit, message: message.into() }
    }

    /// Puts the fault at a byte of the template.
    pub(crate) fn at(self, text: &str, position: usize) -> TemplateError {
        let before = text.get(..position).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        TemplateError {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            kind: self.kind,
            message: self.message,
        }
    }
}

/// A fault and the byte of the template at which it was seen.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) fault: Fault,
    pub(crate) position: usize,
}

/// Gives the faults of a result a place.
pub(crate) trait At<T> {
    fn at(self, position: usize) -> Result<T, Placed>;
}

impl<T> At<T> for Result<T, Fault> {
    fn at(self, position: usize) -> Result<T, Placed> {
        self.map_err(|fault| Placed { fault, position })
    }
}
