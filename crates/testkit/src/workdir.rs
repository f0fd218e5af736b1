//! Where do a server's files live, and who removes them?
//!
//! In: a caller's folder, or nothing. Out: a folder; our own is removed on drop, and by a watchdog if this process
//! dies first or holds the server in a static. A caller's folder is never removed. `UPRIVER_KEEP_DIRS=1` keeps all.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::process::Watchdog;

/// The folder of one server.
#[derive(Debug)]
pub(crate) struct WorkDir {
    path: PathBuf,
    // Only dropped, never read: the watchdog is dismissed, then the folder removed.
    _own: Option<(Watchdog, TempDir)>,
}

impl WorkDir {
    /// `given`, made if it does not exist, or a fresh temporary folder.
    pub(crate) fn new(prefix: &str, given: Option<PathBuf>) -> io::Result<Self> {
        if let Some(path) = given {
            std::fs::create_dir_all(&path)?;
            return Ok(Self { path: path.canonicalize()?, _own: None });
        }
        let mut dir = tempfile::Builder::new().prefix(&format!("upriver-{prefix}-")).tempdir()?;
        let path = dir.path().to_owned();
        if std::env::var_os("UPRIVER_KEEP_DIRS").is_some() {
            dir.disable_cleanup(true);
            return Ok(Self { path, _own: None });
        }
        Ok(Self { _own: Some((Watchdog::of_folder(&path), dir)), path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A folder inside, made if it does not exist.
    pub(crate) fn sub(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        // Private, as etcd asks for its data.
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        Ok(path)
    }
}
