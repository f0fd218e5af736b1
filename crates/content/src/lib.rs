//! What of a cluster object goes into Git, how it is spelled there, and where it lies.
//!
//! In: an object as JSON text, the rules of a target, the bytes of a file found in Git. Out: a sanitised document, its
//! one YAML spelling, a path, a verdict on a file. Everything here is a pure function: no IO, no clock, no randomness,
//! no schema of any type. Deliberately absent: editing files that people wrote (such files are reported, not touched),
//! encryption, removal of server-side defaults, and any knowledge of Git itself.
//!
//! The steps of one object: [`ObjectMeta::peek`] reads just enough to drop it early ([`policy::noise`]),
//! [`sanitize()`] builds the document, [`yaml::to_yaml`] writes it, [`Placement`] names its file,
//! [`ownership::judge`] says whether a file already there may be replaced.

pub mod equality;
pub mod identity;
pub mod meta;
pub mod ownership;
pub mod placement;
pub mod policy;
pub mod sanitize;
mod text;
pub mod yaml;

pub use equality::equal;
pub use identity::DocumentIdentity;
pub use meta::{ObjectMeta, PeekError};
pub use ownership::{FileVerdict, ForeignReason, judge};
pub use placement::{
    PathError, Placement, PlacementError, PlacementQuery, RepoPath, Sensitivity, TargetPath,
};
pub use policy::{NoiseReason, Selection};
pub use sanitize::{
    SanitizeError, SanitizeRules, Sanitized, TypeHint, sanitize, sanitize_item, sanitize_value,
};
