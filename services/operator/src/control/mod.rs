//! From our kinds to what each branch has to do, and back to their statuses.
//!
//! In: reflected objects, probes, the catalog of types, the views of owned branches. Out: [`plan::Desired`] and status patches.
//! [`compile`] is a pure function of a [`snapshot::Snapshot`]; [`runner`] wakes it.

mod catalog;
pub mod compile;
mod conditions;
pub mod encryption;
mod facts;
pub mod plan;
mod probe;
mod rights;
mod runner;
pub mod snapshot;
mod status;
mod support;
mod types;

use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) use probe::secret_data;
pub use runner::{Control, run};
use upriver_git_io::{Remote, RemoteUrl};
use upriver_model::{Failure, FailureClass};

/// A remote for the data part. Blocking.
///
/// # Errors
/// If the Secret holds nothing that fits the URL.
pub(crate) fn remote_for(
    url: &RemoteUrl,
    secret: Option<&BTreeMap<String, Vec<u8>>>,
    timeout: Duration,
) -> Result<Remote, Failure> {
    probe::remote(url, secret, timeout).map_err(|error| match error {
        snapshot::ProbeFailure::Connection(failure) => failure,
        snapshot::ProbeFailure::SecretNotFound(message)
        | snapshot::ProbeFailure::SecretMalformed(message) => Failure::new(FailureClass::Auth, message),
        snapshot::ProbeFailure::CommitConfigInvalid(message)
        | snapshot::ProbeFailure::NotYetSupported(message) => Failure::new(FailureClass::Config, message),
    })
}
