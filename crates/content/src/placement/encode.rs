//! How does a name become a file name that every file system can hold (C4.13)? In: a name. Out: one path segment.
//!
//! Every byte that is not safe is written as `%` and two capital hex digits: `%`, `/`, `\`, `:`, `*`, `?`, `"`, `<`, `>`,
//! `|`, controls, everything outside ASCII (macOS and Linux disagree on its normal form), a final dot or blank, and the
//! first letter of a name that Windows reserves (`con`, `aux.v1`) or Git does (`.git`, `git~1`). So the encoding can be
//! reversed and two names never share a segment. A segment of more than 255 bytes is cut and ends in `%~` and a hash of
//! the whole; a path that differs from another one in case only gets a shorter such suffix. `%~` is never made by the
//! encoding, so neither suffix can be forged by a name. A reader takes the identity from the document, never from here.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// What the common file systems allow.
const SEGMENT_LIMIT: usize = 255;
/// 128 bits: nobody finds two names with one hash.
const LONG_HASH_DIGITS: usize = 32;
/// Only a handful of paths differ in case, and a clash would be seen.
const CASE_HASH_DIGITS: usize = 8;

/// One name as one path segment.
#[must_use]
pub fn encode_segment(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let last = name.len().saturating_sub(1);
    for (index, byte) in name.bytes().enumerate() {
        let unsafe_byte = match byte {
            b'%' | b'/' | b'\\' | b':' | b'*' | b'?' | b'"' | b'<' | b'>' | b'|' => true,
            b'.' | b' ' => index == last,
            b' '..=b'~' => false,
            _ => true,
        };
        push(&mut out, byte, unsafe_byte || (index == 0 && is_reserved(name)));
    }
    out
}

fn push(out: &mut String, byte: u8, escaped: bool) {
    if escaped {
        let written = write!(out, "%{byte:02X}");
        debug_assert!(written.is_ok(), "writing to a String does not fail");
    } else {
        out.push(char::from(byte));
    }
}

/// The name behind a segment; `None` if no name is encoded like this (for example a segment that was cut).
#[must_use]
pub fn decode_segment(segment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let [first, tail @ ..] = rest {
        let (byte, tail) = match (first, tail) {
            (b'%', [high, low, tail @ ..]) => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                (u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?, tail)
            }
            _ => (*first, tail),
        };
        bytes.push(byte);
        rest = tail;
    }
    String::from_utf8(bytes).ok().filter(|name| encode_segment(name) == segment)
}

/// Names that Windows gives to devices, with any extension, and the folder that belongs to Git.
fn is_reserved(name: &str) -> bool {
    if super::target::is_git_folder(name) {
        return true;
    }
    let base = name.split('.').next().unwrap_or(name).trim_end_matches(' ').to_ascii_lowercase();
    match base.as_str() {
        "con" | "prn" | "aux" | "nul" | "conin$" | "conout$" => true,
        _ => match base.strip_prefix("com").or_else(|| base.strip_prefix("lpt")) {
            Some(port) => {
                matches!(port, "0" | "1" | "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9" | "¹" | "²" | "³")
            }
            None => false,
        },
    }
}

/// A segment with its suffix, cut to what a file system can hold.
pub(super) fn fit(segment: &str, suffix: &str) -> String {
    if segment.is_empty() || segment.len() + suffix.len() <= SEGMENT_LIMIT {
        return format!("{segment}{suffix}");
    }
    with_hash(segment, suffix, &digest(segment, LONG_HASH_DIGITS))
}

/// The segment, cut where needed, then `%~`, the hash and the suffix.
fn with_hash(segment: &str, suffix: &str, hash: &str) -> String {
    let room = SEGMENT_LIMIT.saturating_sub("%~".len() + hash.len() + suffix.len());
    let mut kept = segment.floor_char_boundary(room);
    // Never in the middle of an escape: what is left must still read as a name.
    if let Some(escape) =
        segment[..kept].rfind('%').filter(|escape| escape + 3 > kept && kept < segment.len())
    {
        kept = escape;
    }
    format!("{}%~{hash}{suffix}", &segment[..kept])
}

fn digest(text: &str, digits: usize) -> String {
    let mut out = String::with_capacity(64);
    for byte in Sha256::digest(text.as_bytes()) {
        let written = write!(out, "{byte:02x}");
        debug_assert!(written.is_ok(), "writing to a String does not fail");
    }
    out.truncate(digits);
    out
}

/// Two paths with the same key are one file on Windows and macOS.
#[must_use]
pub fn case_key(path: &str) -> String {
    path.to_lowercase()
}

/// The path to use if another path with the same [`case_key`] is taken: a short hash of the path before the suffix.
#[must_use]
pub fn with_case_suffix(path: &super::RepoPath) -> super::RepoPath {
    let text = path.as_str();
    let (folder, file) = text.rsplit_once('/').map_or(("", text), |(folder, file)| (folder, file));
    let suffix =
        [".sops.yaml", ".yaml", ".yml"].into_iter().find(|suffix| file.ends_with(suffix)).unwrap_or("");
    let stem = &file[..file.len() - suffix.len()];
    let file = with_hash(stem, suffix, &digest(text, CASE_HASH_DIGITS));
    let text = if folder.is_empty() { file } else { format!("{folder}/{file}") };
    super::RepoPath(text.into())
}
