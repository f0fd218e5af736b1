//! From units to tree edits: where does each document lie, is the file ours, what does the commit say?
//!
//! A file that is not ours is never touched; it is named in the result and the rest goes on.

use std::collections::{BTreeMap, BTreeSet};

use upriver_content::placement::{PlacementQuery, Sensitivity};
use upriver_content::{DocumentIdentity, FileVerdict, ForeignReason, equal, judge};
use upriver_engine::branch::{Unit, UnitKind, UnitResult};
use upriver_engine::window::Change;
use upriver_git_io::{Builder, CommitMeta, GitError, Signature};
use upriver_model::{Author, JournalHeader, TargetUid};

use super::{message, orphans};
use crate::control::plan::{BranchSpec, TargetSpec};

/// Carries out the units, one commit each at most. `own` are the files that our commits were the last to change (F27).
pub(super) fn plan(
    builder: &mut Builder<'_>,
    spec: &BranchSpec,
    units: &[(Unit, JournalHeader)],
    refused: &[String],
    own: &BTreeSet<String>,
) -> Result<Vec<UnitResult>, GitError> {
    let targets: BTreeMap<&TargetUid, &TargetSpec> =
        spec.targets.iter().filter(|t| !t.plan.suspended).map(|t| (&t.plan.uid, t)).collect();
    let mut results = Vec::with_capacity(units.len());
    for (unit, header) in units {
        // A target that was deleted or suspended meanwhile leaves its files as they are.
        let result = match targets.get(&unit.target) {
            Some(target) => carry_out(builder, target, unit, header, (refused, own))?,
            None => UnitResult::default(),
        };
        results.push(result);
    }
    Ok(results)
}

fn carry_out(
    builder: &mut Builder<'_>,
    target: &TargetSpec,
    unit: &Unit,
    header: &JournalHeader,
    (refused, own): (&[String], &BTreeSet<String>),
) -> Result<UnitResult, GitError> {
    let mut result =
        UnitResult { refused: cleared(builder, target, unit, refused)?, ..UnitResult::default() };
    let orphans = match &unit.kind {
        UnitKind::Replay(replayed) if replayed.reclaim.is_some() => {
            orphans::find(builder, target, replayed, own)?
        }
        UnitKind::Replay(_) | UnitKind::Window | UnitKind::Fence => Vec::new(),
    };
    let mut made = Vec::new();
    for change in unit.changes.iter().chain(&orphans) {
        match apply(builder, target, change)? {
            Applied::Changed(path) => {
                made.push(change);
                result.refused.push((path, None));
            }
            Applied::Cleared(path) => result.refused.push((path, None)),
            Applied::Refused(path, reason) => result.refused.push((path, Some(reason))),
        }
    }
    let meta = || meta(target, unit, header, &made);
    result.commit = match unit.kind {
        UnitKind::Fence => Some(builder.commit_empty(&meta())?),
        // Nothing differs: no message is made, and no template can fail for it.
        UnitKind::Window | UnitKind::Replay(_) if made.is_empty() => None,
        UnitKind::Window | UnitKind::Replay(_) => builder.commit(&meta())?,
    }
    .map(|id| upriver_model::CommitId::new(id.to_string()));
    Ok(result)
}

/// A replay looks at refused paths again: a file that somebody took away is in nobody's way any more.
fn cleared(
    builder: &mut Builder<'_>,
    target: &TargetSpec,
    unit: &Unit,
    refused: &[String],
) -> Result<Vec<(String, Option<String>)>, GitError> {
    let mut gone = Vec::new();
    if matches!(unit.kind, UnitKind::Replay(_)) {
        for path in refused.iter().filter(|path| target.path.contains(path)) {
            match builder.blob_at(path) {
                Ok(None) => gone.push((path.clone(), None)),
                // Some refusals have no usable path; they end when their object does.
                Ok(Some(_)) | Err(GitError::Path(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(gone)
}

/// Either of the first two ends an earlier refusal of the path.
enum Applied {
    Changed(String),
    Cleared(String),
    Refused(String, String),
}

fn apply(builder: &mut Builder<'_>, target: &TargetSpec, change: &Change) -> Result<Applied, GitError> {
    let query = PlacementQuery {
        gvr: &change.gvr,
        kind: &change.kind,
        key: &change.key,
        sensitivity: Sensitivity::Plain,
    };
    let path = match target.placement.path_for(&target.path, query) {
        Ok(path) => path.as_str().to_owned(),
        Err(error) => {
            return Ok(Applied::Refused(format!("{}:{}", change.gvr, change.key), error.to_string()));
        }
    };
    let identity =
        DocumentIdentity::new(&change.gvr.group, &change.kind, &change.key.namespace, &change.key.name);
    let existing = match builder.read(&path) {
        Ok(existing) => existing,
        Err(GitError::Path(error)) => return Ok(Applied::Refused(path, error.to_string())),
        Err(error) => return Err(error),
    };
    match &change.payload {
        Some(payload) => put(builder, path, payload, existing.as_deref(), &identity),
        None => remove(builder, path, existing.as_deref(), &identity),
    }
}

fn put(
    builder: &mut Builder<'_>,
    path: String,
    payload: &str,
    existing: Option<&[u8]>,
    identity: &DocumentIdentity,
) -> Result<Applied, GitError> {
    let document: serde_json::Value = match serde_json::from_str(payload) {
        Ok(document) => document,
        Err(error) => {
            return Ok(Applied::Refused(path, format!("the journaled document cannot be read: {error}")));
        }
    };
    let text = upriver_content::yaml::to_yaml(&document);
    let Some(bytes) = existing else {
        return put_new(builder, path, &text);
    };
    if bytes == text.as_bytes() {
        return Ok(Applied::Cleared(path));
    }
    match judge(bytes, identity) {
        FileVerdict::Ours => {
            builder.put(&path, text.as_bytes())?;
            Ok(Applied::Changed(path))
        }
        // Somebody else's spelling of exactly this object: nothing is missing in Git.
        FileVerdict::Foreign(ForeignReason::NotCanonical { .. }) if same(bytes, &document) => {
            Ok(Applied::Cleared(path))
        }
        FileVerdict::Foreign(reason) => Ok(Applied::Refused(path, reason.to_string())),
    }
}

fn put_new(builder: &mut Builder<'_>, path: String, text: &str) -> Result<Applied, GitError> {
    match builder.put(&path, text.as_bytes()) {
        Ok(_) => Ok(Applied::Changed(path)),
        // A file lies where a folder is needed, or the other way round.
        Err(GitError::Path(error)) => Ok(Applied::Refused(path, error.to_string())),
        Err(error) => Err(error),
    }
}

fn same(bytes: &[u8], document: &serde_json::Value) -> bool {
    std::str::from_utf8(bytes)
        .ok()
        .and_then(|text| upriver_content::yaml::read_document(text).ok())
        .is_some_and(|found| equal(&found, document))
}

fn remove(
    builder: &mut Builder<'_>,
    path: String,
    existing: Option<&[u8]>,
    identity: &DocumentIdentity,
) -> Result<Applied, GitError> {
    let Some(bytes) = existing else { return Ok(Applied::Cleared(path)) };
    match judge(bytes, identity) {
        FileVerdict::Ours => {
            builder.remove(&path)?;
            Ok(Applied::Changed(path))
        }
        FileVerdict::Foreign(reason) => {
            Ok(Applied::Refused(path, format!("the object is gone, but {reason}")))
        }
    }
}

fn meta(target: &TargetSpec, unit: &Unit, header: &JournalHeader, made: &[&Change]) -> CommitMeta {
    let seconds = u64::try_from(unit.time_ms / 1000).unwrap_or(0);
    let committer =
        Signature { name: target.committer_name.clone(), email: target.committer_email.clone(), seconds };
    let author = match &unit.author {
        Author::NotAttempted => committer.clone(),
        Author::Unresolved => Signature {
            name: "unknown (attribution unresolved)".to_owned(),
            email: "attribution-unresolved@upriver.invalid".to_owned(),
            seconds,
        },
        Author::Resolved { username } => Signature {
            name: username.chars().filter(|c| !c.is_control() && !"<>".contains(*c)).collect(),
            email: derived_email(username),
            seconds,
        },
    };
    CommitMeta {
        message: message::message(target, unit, made),
        author,
        committer,
        extra_headers: vec![(JournalHeader::NAME.to_owned(), header.to_string())],
    }
}

/// An address for a username: itself if it is one, else what of it an address may hold.
fn derived_email(username: &str) -> String {
    let is_address =
        username.split_once('@').is_some_and(|(name, host)| !name.is_empty() && host.contains('.'));
    if is_address && !username.chars().any(|c| c.is_control() || c.is_whitespace() || "<>".contains(c)) {
        return username.to_owned();
    }
    let kept: String = username
        .to_lowercase()
        .chars()
        .filter(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-".contains(*c))
        .collect();
    format!("{}@noreply.cluster.local", if kept.is_empty() { "unknown-user" } else { &kept })
}
