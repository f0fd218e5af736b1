//! The one spelling of a document (C3.11) and its reader. In: a value, or text. Out: text, or a value.
//!
//! What [`to_yaml`] writes, [`read_document`] reads back as an equal value, and so do readers of YAML 1.1 and 1.2.
//! Equal values give equal bytes, different values different bytes. Absent: a general YAML writer (no anchors, tags,
//! comments, flow style), and edits inside existing text.

mod emit;
mod order;
mod read;
mod scalar;

pub use emit::{to_yaml, write_yaml};
pub use order::compare_keys;
pub use read::{ReadError, YamlProblem, read_document};
