//! Where are the kube-apiserver and etcd binaries?
//!
//! In: `KUBEBUILDER_ASSETS`, the cache of `tests/tools/build.sh`. Out: one folder that holds both. The first call on a
//! machine builds them from their Go modules, which takes minutes; the script tells so on stderr.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::TestkitError;

static FOLDER: OnceLock<PathBuf> = OnceLock::new();

/// The folder with `kube-apiserver` and `etcd`. Blocks while they are being built.
///
/// # Errors
/// If they are missing and cannot be built.
pub fn folder() -> Result<&'static Path, TestkitError> {
    if let Some(found) = FOLDER.get() {
        return Ok(found);
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/tools/build.sh");
    let output = Command::new(&script)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|source| TestkitError::Io { what: format!("run {}", script.display()), source })?;
    let printed = String::from_utf8_lossy(&output.stdout);
    match printed.lines().last() {
        Some(line) if output.status.success() => Ok(FOLDER.get_or_init(|| PathBuf::from(line))),
        _ => Err(TestkitError::NoServers { status: output.status }),
    }
}
