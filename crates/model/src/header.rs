//! The extra commit header: which journal entries a commit's branch history holds (F1).
//!
//! In: journal, target, floor, exact ids above the floor consumed so far. Out: one header line, invisible in `git log`.
//! Only a header of the same journal (fleet, branch key, incarnation) and target is evidence; readers skip every other
//! one. The form is frozen: space-separated `key=value`, first word the version; unknown keys are ignored.

use std::fmt;

use crate::ids::{BranchKey, EntryId, FleetId, Incarnation, TargetUid};
use crate::idset::IdSet;

/// Evidence carried by one commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalHeader {
    /// The installation that wrote it.
    pub fleet: FleetId,
    /// The branch whose journal it is.
    pub branch: BranchKey,
    /// Which history of that journal.
    pub incarnation: Incarnation,
    /// The GitTarget whose commit it is.
    pub target: TargetUid,
    /// Every entry up to here was consumed.
    pub floor: EntryId,
    /// Entries of this target above the floor that were consumed, no-diff ones included.
    pub consumed: IdSet,
}

impl JournalHeader {
    /// Name of the header line in the commit object.
    pub const NAME: &'static str = "upriver-journal";

    /// Reads a header value; `None` for anything that this release does not understand.
    #[must_use]
    pub fn parse(value: &str) -> Option<Self> {
        let mut words = value.split_ascii_whitespace();
        if words.next() != Some("v1") {
            return None;
        }
        let (mut fleet, mut branch, mut incarnation, mut target) = (None, None, None, None);
        let (mut floor, mut consumed) = (None, None);
        for word in words {
            let (key, value) = word.split_once('=')?;
            match key {
                "fleet" => fleet = Some(FleetId::new(value)),
                "branch" => branch = Some(BranchKey::new(value)),
                "inc" => incarnation = Some(Incarnation::new(value)),
                "target" => target = Some(TargetUid::new(value)),
                "floor" => floor = Some(EntryId::parse(value)?),
                "ids" => consumed = Some(IdSet::parse(value)?),
                _ => {}
            }
        }
        Some(Self {
            fleet: fleet?,
            branch: branch?,
            incarnation: incarnation?,
            target: target?,
            floor: floor?,
            consumed: consumed?,
        })
    }
}

impl fmt::Display for JournalHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "v1 fleet={} branch={} inc={} target={} floor={} ids={}",
            self.fleet, self.branch, self.incarnation, self.target, self.floor, self.consumed
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_form_is_frozen_and_unknown_keys_are_ignored() {
        let text = "v1 fleet=f branch=b inc=i target=t floor=3-4 ids=3-7..9,4-1";
        let header = JournalHeader::parse(text).expect("own form");
        assert_eq!(header.to_string(), text);
        assert_eq!(JournalHeader::parse(&format!("{text} later=x")), Some(header));
        assert_eq!(JournalHeader::parse("v2 fleet=f"), None);
        assert_eq!(JournalHeader::parse("v1 fleet=f branch=b"), None);
        let empty =
            JournalHeader::parse("v1 fleet=f branch=b inc=i target=t floor=0-0 ids=").expect("no ids");
        assert!(empty.consumed.is_empty());
    }
}
