//! Is this a branch, is this a path that every Git accepts? In: text. Out: yes, or what is wrong with it.
//! Paths are stricter than git itself: what a checkout on another system would read as `.git` is refused too.

use gix::bstr::ByteSlice as _;

/// Why a branch name is refused; the rules of `git check-ref-format --branch`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the branch name {name:?} is not allowed: {rule}; choose another name")]
pub struct BranchNameError {
    /// The name as given, control characters escaped in the message.
    pub name: String,
    /// The broken rule.
    pub rule: &'static str,
}

/// Checks a short branch name such as `main` or `env/prod`.
///
/// # Errors
/// The first broken rule of `git check-ref-format`.
pub fn validate_branch(name: &str) -> Result<(), BranchNameError> {
    broken_branch_rule(name).map_or(Ok(()), |rule| Err(BranchNameError { name: name.to_owned(), rule }))
}

fn broken_branch_rule(name: &str) -> Option<&'static str> {
    let part_is = |test: fn(&str) -> bool| name.split('/').any(test);
    let rules: [(bool, &'static str); 11] = [
        (name.is_empty(), "it is empty"),
        (name.len() > 250, "it is longer than 250 bytes"),
        (name.starts_with('-'), "it starts with a dash"),
        (name == "HEAD" || name == "@", "it is reserved"),
        (name.starts_with("refs/"), "give the short name, without refs/"),
        (
            name.chars().any(|c| c.is_control() || " ~^:?*[\\".contains(c)),
            "it holds a space or one of ~^:?*[\\",
        ),
        (name.contains("..") || name.contains("@{"), "it holds .. or @{"),
        (name.ends_with('.'), "it ends with a dot"),
        (part_is(str::is_empty), "a part between slashes is empty"),
        (part_is(|part| part.starts_with('.')), "a part starts with a dot"),
        (part_is(|part| part.ends_with(".lock")), "a part ends with .lock"),
    ];
    rules.into_iter().find_map(|(broken, rule)| broken.then_some(rule))
}

/// Why a path is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the path {path:?} cannot be written: {rule}; choose another path")]
pub struct PathError {
    /// The path as given.
    pub path: String,
    /// The broken rule.
    pub rule: &'static str,
}

/// Splits a path of a file in the repository into its parts.
///
/// # Errors
/// Absolute, empty, with `.`, `..`, an empty part, a backslash, a control character, or a part that some file system
/// reads as `.git`.
pub fn split_path(path: &str) -> Result<Vec<&str>, PathError> {
    let refuse = |rule| PathError { path: path.to_owned(), rule };
    if path.len() > 4096 {
        return Err(refuse("it is longer than 4096 bytes"));
    }
    if path.contains('\\') {
        return Err(refuse("it holds a backslash"));
    }
    if path.chars().any(char::is_control) {
        return Err(refuse("it holds a control character"));
    }
    let parts: Vec<&str> = path.split('/').collect();
    // Edits descend by recursion, so the depth needs a limit; no checkout gets that deep.
    if parts.len() > 128 {
        return Err(refuse("it is deeper than 128 folders"));
    }
    for part in &parts {
        check_part(part).map_err(refuse)?;
    }
    Ok(parts)
}

/// As [`split_path`] for a folder, where `""` and `"."` mean the root.
///
/// # Errors
/// As [`split_path`].
pub fn split_folder(path: &str) -> Result<Vec<&str>, PathError> {
    if path.is_empty() || path == "." { Ok(Vec::new()) } else { split_path(path) }
}

fn check_part(part: &str) -> Result<(), &'static str> {
    use gix::validate::path::component::{Error, Options};
    // `protect_windows` would also refuse `:`, which cluster object names may hold.
    let options = Options { protect_windows: false, protect_hfs: true, protect_ntfs: true };
    match gix::validate::path::component(part.as_bytes().as_bstr(), None, options) {
        Ok(_) => Ok(()),
        Err(Error::Empty) => Err("a part is empty, or it starts or ends with a slash"),
        Err(Error::Relative) => Err("it holds the part . or .."),
        Err(Error::DotGitDir) => Err("a part is read as .git on some file system"),
        // The type is foreign and non-exhaustive.
        Err(_) => Err("a part is not a valid file name"),
    }
}
