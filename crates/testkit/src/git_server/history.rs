//! A repository that has been in use for years, made in seconds.

use std::fmt::Write as _;
use std::path::Path;

use super::git_with_input;

/// Files that the commits change in turn.
const FILES: usize = 200;

/// Puts `commits` commits on `branch` of a repository that lacks it, each of which changes one of a few hundred files below
/// `history/`, and returns the tip.
///
/// # Panics
/// When git fails.
pub fn import_history(repo: &Path, branch: &str, commits: usize) -> String {
    let mut stream = String::new();
    for number in 0..commits {
        let message = format!("change {number}\n");
        let text = format!("apiVersion: v1\nkind: Note\nvalue: \"{number}\"\n");
        let file = number % FILES;
        // Writing to a String cannot fail.
        let _ = write!(
            stream,
            "commit refs/heads/{branch}\ncommitter Oracle <oracle@example.invalid> {} +0000\ndata {}\n{message}\
             M 100644 inline history/{}/{file}.yaml\ndata {}\n{text}\n",
            1_500_000_000 + number * 60,
            message.len(),
            file % 10,
            text.len(),
        );
    }
    git_with_input(&["fast-import", "--quiet"], repo, &stream);
    git_with_input(&["rev-parse", &format!("refs/heads/{branch}")], repo, "").trim().to_owned()
}
