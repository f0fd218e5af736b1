//! What does a commit message say? In: a template in the syntax of Go's text/template, and data. Out: text.
//!
//! Users bring their templates along from the operator that this one succeeds, so what a template yields here is what Go
//! yields: a test runs the real thing beside this one. A missing field or map key is an error (Go's `missingkey=error`).
//! A template cannot loop for ever, write without end, or end the process, whatever it and its data are.
//!
//! Absent: `call`, methods, complex numbers, floats in base 16, `%p`, `%#v` and a few ways to write floats; texts that
//! are not UTF-8. All of them are errors that say so. No IO, no clock.

mod ast;
mod data;
mod error;
mod escape;
mod exec;
mod float;
mod format;
mod function;
mod integer;
mod lex;
mod limits;
mod literal;
mod parse;
mod pattern;
mod value;

pub use data::{
    EventData, GroupData, MessageData, MessageKind, Operations, ReconcileData, Rendered, ResourceRef, check,
    render_or_default,
};
pub use error::{ErrorKind, TemplateError};
pub use value::{Map, Record, Value};

/// A template that was parsed once and can be rendered often.
///
/// ```
/// use upriver_template::{EventData, MessageData, Template};
///
/// let event = EventData { operation: "DELETE".into(), name: "web".into(), ..EventData::default() };
/// let template = Template::parse("{{if eq .Operation \"DELETE\"}}remove{{else}}change{{end}} {{.Name}}")?;
/// assert_eq!(template.render(&MessageData::Event(event).to_value())?, "remove web");
/// # Ok::<(), upriver_template::TemplateError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Template {
    text: String,
    templates: parse::Templates,
}

impl Template {
    /// Parses a template of at most 16 KiB.
    ///
    /// # Errors
    /// If the syntax is wrong, a function or variable is unknown, or it is too long or nested too deep.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        Ok(Self { text: text.to_owned(), templates: parse::parse(text)? })
    }

    /// Renders the template with `data` as its dot: at most 64 KiB of text.
    ///
    /// # Errors
    /// If the data lacks what the template asks for or has another type, or a limit is reached.
    pub fn render(&self, data: &Value) -> Result<String, TemplateError> {
        exec::render(&self.templates, data).map_err(|placed| placed.fault.at(&self.text, placed.position))
    }
}
