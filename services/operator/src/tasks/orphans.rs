//! Files of objects that are gone, when no inventory is left to name them (F27). In: a complete list, the files that our own
//! commits were the last to change. Out: the deletions that are missing.

use std::collections::BTreeSet;

use upriver_content::placement::{PlacementQuery, Sensitivity};
use upriver_content::{DocumentIdentity, FileVerdict, judge};
use upriver_engine::branch::Replayed;
use upriver_engine::window::Change;
use upriver_git_io::{Builder, GitError};
use upriver_model::{ObjectKey, Operation};

use crate::control::plan::TargetSpec;

/// One deletion per file of the replayed scope that is ours in form and in history and that the list lacks.
pub(super) fn find(
    builder: &mut Builder<'_>,
    target: &TargetSpec,
    replayed: &Replayed,
    own: &BTreeSet<String>,
) -> Result<Vec<Change>, GitError> {
    let listed: BTreeSet<&ObjectKey> = replayed.inventory.iter().map(|(key, _)| key).collect();
    let mut found = Vec::new();
    for path in own.iter().filter(|path| target.path.contains(path)) {
        let bytes = match builder.read(path) {
            Ok(Some(bytes)) => bytes,
            // Gone already, or a path that we never write.
            Ok(None) | Err(GitError::Path(_)) => continue,
            Err(error) => return Err(error),
        };
        if let Some(change) = orphan(target, replayed, path, &bytes)
            && !listed.contains(&change.key)
        {
            found.push(change);
        }
    }
    Ok(found)
}

/// The document's deletion, if it is one of the replayed scope, at its place, in the form that we write.
fn orphan(target: &TargetSpec, replayed: &Replayed, path: &str, bytes: &[u8]) -> Option<Change> {
    let scope = &replayed.scope;
    let text = std::str::from_utf8(bytes).ok()?;
    // What we write begins so; a cheap look before the whole document is read.
    let (_, rest) = text.strip_prefix("apiVersion: ")?.split_once("\nkind: ")?;
    if rest.lines().next() != Some(&*replayed.kind) {
        return None;
    }
    let document = upriver_content::yaml::read_document(text).ok()?;
    let identity = DocumentIdentity::of(&document)?;
    let key = ObjectKey::new(&identity.namespace, &identity.name);
    if identity.group != scope.gvr.group
        || identity.kind != replayed.kind
        || !scope.scope.covers(&key.namespace)
    {
        return None;
    }
    let query =
        PlacementQuery { gvr: &scope.gvr, kind: &identity.kind, key: &key, sensitivity: Sensitivity::Plain };
    let there = target.placement.path_for(&target.path, query).is_ok_and(|place| place.as_str() == path);
    let ours = judge(bytes, &identity) == FileVerdict::Ours;
    (there && ours).then(|| Change {
        gvr: scope.gvr.clone(),
        kind: replayed.kind.clone(),
        key,
        operation: Operation::Delete,
        payload: None,
    })
}
