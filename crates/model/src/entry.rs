//! What the journal holds: one entry per (event, GitTarget), and the records beside it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{AttemptId, CommitId, EntryId, TargetUid};
use crate::idset::IdSet;
use crate::resource::{Gvr, ObjectKey, ResourceVersion, Scope};

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Operation {
    /// Seen for the first time.
    Create,
    /// Changed.
    Update,
    /// Deleted, or marked for deletion.
    Delete,
}

impl Operation {
    /// Upper-case name as rules and messages spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// Who made a change, as far as is known. A wrong author is worse than none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Author {
    /// Attribution is off: the committer stands for the author.
    NotAttempted,
    /// Attribution was tried and gave no answer.
    Unresolved,
    /// Named by an audit fact.
    Resolved {
        /// Username as the API server authenticated it.
        username: Box<str>,
    },
}

/// One journaled change of one object for one GitTarget. `payload` is the sanitised object as JSON; `None` for deletes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Schema of this record; a reader that does not know it marks the scope dirty.
    #[serde(rename = "v")]
    pub schema: u8,
    /// The GitTarget it is for.
    pub target: TargetUid,
    /// Type of the object.
    pub gvr: Gvr,
    /// Kind of the object.
    pub kind: Box<str>,
    /// The selected scope it came through; with target and type the [`crate::TargetScope`].
    pub scope: Scope,
    /// The object.
    pub key: ObjectKey,
    /// `metadata.uid` of the object.
    pub uid: Box<str>,
    /// Its resourceVersion at this change.
    pub rv: ResourceVersion,
    /// What happened.
    pub operation: Operation,
    /// Sanitised JSON text, `None` for a delete.
    pub payload: Option<Box<str>>,
    /// Who did it.
    pub author: Author,
    /// When the watcher saw it, milliseconds since 1970 by the watcher's clock; gives the commit its time.
    pub observed_at_ms: i64,
}

impl Entry {
    /// The record schema that this release writes.
    pub const SCHEMA: u8 = 1;

    /// Bytes this entry costs in memory and in the store, roughly.
    #[must_use]
    pub fn size(&self) -> usize {
        self.payload.as_ref().map_or(0, |text| text.len()) + 256
    }
}

/// An entry together with what the append script stamped on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEntry {
    /// Its id.
    pub id: EntryId,
    /// Store time of the append, milliseconds since 1970 (F22: window ages use the store's clock).
    pub stamped_ms: i64,
    /// The record.
    pub entry: Entry,
}

/// One push round: reserved before any side effect, settled once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Its id.
    pub id: AttemptId,
    /// Why it was made.
    pub trigger: Trigger,
    /// Entries that it carries, snapshots carry none.
    #[serde(with = "idset_text")]
    pub entries: IdSet,
    /// Written just before sending; an attempt without it was never sent.
    pub intend: Option<Intend>,
}

/// Why a push round was begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Trigger {
    /// A commit window closed.
    #[default]
    WindowClose,
    /// A list was taken and compared.
    Snapshot,
    /// A journal was taken over with entries that nobody had pushed.
    Takeover,
}

impl Trigger {
    /// Every trigger, for tables that must be complete.
    pub const ALL: [Self; 3] = [Self::WindowClose, Self::Snapshot, Self::Takeover];

    /// kebab-case name, as stored and logged.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WindowClose => "window-close",
            Self::Snapshot => "snapshot",
            Self::Takeover => "takeover",
        }
    }

    /// Reads a stored name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == text)
    }
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a push is about to do: move the ref from `base` to `new`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intend {
    /// Expected old id; `None` when the branch does not exist yet.
    pub base: Option<CommitId>,
    /// The id that the ref shall have.
    pub new: CommitId,
}

/// "Settled" record of one [`crate::TargetScope`]; absent or different means dirty (F4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    /// Hash of everything that decides what the scope's files hold.
    pub spec_hash: Box<str>,
    /// Generation of the last finished replay.
    pub generation: u64,
}

/// What the inventory remembers of one object: it was seen live, at this version (F11).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// `metadata.uid`.
    pub uid: Box<str>,
    /// Last version that was journaled or replayed.
    pub rv: ResourceVersion,
    /// True for a tombstone: the object was deleted, its version still guards against late events.
    pub deleted: bool,
}

mod idset_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use crate::idset::IdSet;

    pub fn serialize<S: Serializer>(set: &IdSet, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(set)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<IdSet, D::Error> {
        let text = String::deserialize(from)?;
        IdSet::parse(&text).ok_or_else(|| D::Error::custom(format!("not a set of entry ids: {text}")))
    }
}
