//! How do commits get into a Git repository without a `git` program and without a checkout? In: a remote's address and
//! login, paths and bytes. Out: commits on the remote's branch, put there only if its tip is the one they were built
//! on; or an error that says what happened and what helps.
//!
//! The usual order: [`Remote`] names the repository, [`Mirror::fetch`] brings the tip without history, a [`Builder`]
//! stacks commits on it in memory, [`push`] sends just the new objects, and the next build goes on from there without
//! another fetch. `gix` 0.90 reads but cannot push, so the sending half of the protocol is ours.
//!
//! INV-4, as far as this crate can hold it: a ref is only moved from the tip that the commits were built on. Never
//! forced, never deleted.
//!
//! All calls block, each at most for the remote's operation deadline. Absent on purpose: who may write when (the
//! engine decides), async, SSH for now, working trees, and the machine's own Git configuration, which is never read.

mod builder;
mod credentials;
mod error;
mod fetch;
mod http;
mod mirror;
mod names;
mod objects;
mod pack;
mod push;
mod remote;
mod trace;
mod tree;
mod url;

pub use builder::{Builder, Built, CommitMeta, Signature};
pub use credentials::{Credentials, CredentialsError};
pub use error::{FailureClass, GitError, PushError};
pub use gix::ObjectId;
pub use mirror::{Base, CommitInfo, EntryKind, Mirror, TreeEntry};
pub use names::{BranchNameError, PathError, split_folder, split_path, validate_branch};
pub use pack::PackData;
pub use push::{PushReport, Standing, push};
pub use remote::{Advertisement, Remote, Service, Timeouts};
pub use url::{HostAliases, RemoteUrl, Scheme, UrlError, branch_key};

/// What a remote says, fit for a status field: printable, line breaks kept, nothing else that moves a cursor.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().filter(|c| *c == '\n' || !c.is_control()).collect::<String>().trim().to_owned()
}
