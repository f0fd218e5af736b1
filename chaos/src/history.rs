//! Does the history of a branch tell what happened, in order, and once?
//!
//! In: commits along first parents, and for each path the versions of its object in the cluster's order. Out: findings. A
//! version may be skipped, since a commit window holds the last; none may come after a later one. An entry of the journal
//! is in one commit. A header names those of its own commit and all that were consumed before the push began, so an entry
//! that a header lacks, and a later one names, is that one's own. Absent: reading the repository, see [`crate::judge`].

use std::collections::{BTreeMap, BTreeSet};

use upriver_model::{EntryId, JournalHeader};

use crate::driver::Version;

/// What a commit made of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Gone,
    /// The write that it shows.
    Stamp(u64),
    /// No write of ours.
    Other(String),
}

/// Whose commit it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Us,
    Person,
}

/// One commit.
#[derive(Clone, Debug)]
pub(crate) struct Commit {
    pub(crate) id: String,
    /// The last one of a push.
    pub(crate) tip: bool,
    pub(crate) by: By,
    pub(crate) header: Option<JournalHeader>,
    /// Paths that it changed.
    pub(crate) changes: Vec<(String, Content)>,
}

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// A file went back to an earlier state of its object.
    Back(String),
    /// A file shows what its object never was.
    Stale(String),
    /// The branch was set back, or a commit of ours does not say which entries it stands for.
    Broken(String),
    /// An entry was committed twice.
    Duplicate(String),
}

/// Which version of its object a file shows.
#[derive(Clone, Copy, Debug, Default)]
struct Shown {
    /// Place in the versions; `None` before the first.
    version: Option<usize>,
    /// A person has changed the file since: the same version may then come again.
    touched: bool,
}

/// What the headers of one target in one journal have said, push by push.
#[derive(Clone, Debug, Default)]
struct Consumed {
    ids: BTreeSet<EntryId>,
    /// Those of them that a later push did not know of.
    forgotten: BTreeSet<EntryId>,
}

/// A branch as far as it was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    shown: BTreeMap<String, Shown>,
    /// By journal and target.
    consumed: BTreeMap<String, Consumed>,
}

impl History {
    /// Reads on: the commits after those of the last call, oldest first.
    pub(crate) fn read(
        &mut self,
        commits: &[Commit],
        versions: &BTreeMap<String, Vec<Version>>,
    ) -> Vec<Finding> {
        let mut findings = Vec::new();
        for commit in commits {
            for (path, content) in &commit.changes {
                let Some(versions) = versions.get(path) else { continue };
                let shown = self.shown.entry(path.clone()).or_default();
                match commit.by {
                    By::Person => shown.touched = true,
                    By::Us => {
                        let of = format!("{} of {path}", short(&commit.id));
                        findings.extend(shown.moves_to(content, versions, &of));
                    }
                }
            }
            if commit.by == By::Us && commit.header.is_none() {
                findings.push(Finding::Broken(format!("{} names no journal", short(&commit.id))));
            }
        }
        for push in commits.split_inclusive(|commit| commit.tip) {
            findings.extend(self.read_headers(push));
        }
        findings
    }

    fn read_headers(&mut self, push: &[Commit]) -> Vec<Finding> {
        let mut named: BTreeMap<String, Vec<Named>> = BTreeMap::new();
        for (commit, header) in push.iter().filter_map(|commit| Some((commit, commit.header.as_ref()?))) {
            let journal = format!("{} {} {}", header.branch, header.incarnation, header.target);
            let ids = header.consumed.iter().collect();
            named.entry(journal).or_default().push(Named { commit: &commit.id, floor: header.floor, ids });
        }
        let twice =
            |(journal, named): (String, Vec<Named>)| self.consumed.entry(journal).or_default().note(&named);
        named.into_iter().flat_map(twice).collect()
    }
}

/// What one header says.
struct Named<'a> {
    commit: &'a str,
    floor: EntryId,
    ids: BTreeSet<EntryId>,
}

impl Named<'_> {
    /// At or below the floor an entry needs no name.
    fn lacks(&self, id: EntryId) -> bool {
        id > self.floor && !self.ids.contains(&id)
    }
}

impl Shown {
    /// Takes the file to its next state, by the commit and path `of`; says what is wrong with it.
    fn moves_to(&mut self, content: &Content, versions: &[Version], of: &str) -> Option<Finding> {
        let touched = std::mem::take(&mut self.touched);
        // After a person's change the version that was there before it may come back.
        let first = match self.version {
            None => 0,
            Some(shown) if touched => shown,
            Some(shown) => shown + 1,
        };
        let told = |at: usize| match versions.get(at) {
            Some(Version { stamp: Some(stamp), resource_version, .. }) => {
                format!("write {stamp} (resourceVersion {resource_version})")
            }
            Some(Version { stamp: None, resource_version, .. }) => {
                format!("the deletion after resourceVersion {resource_version}")
            }
            None => "nothing".to_owned(),
        };
        let before = self.version.map_or_else(|| "nothing".to_owned(), told);
        match content {
            Content::Other(text) => Some(Finding::Stale(format!("{of}: {text:?} is no write of ours"))),
            Content::Stamp(stamp) => {
                let place = versions.iter().position(|version| version.stamp == Some(*stamp));
                let Some(place) = place else {
                    return Some(Finding::Stale(format!("{of}: the cluster never had write {stamp}")));
                };
                self.version = Some(place);
                (place < first).then(|| Finding::Back(format!("{of}: {} after {before}", told(place))))
            }
            Content::Gone => {
                let later = versions.iter().skip(first).position(|version| version.stamp.is_none());
                let earlier = || versions.iter().take(first).rposition(|version| version.stamp.is_none());
                self.version = later.map(|place| first + place).or_else(earlier);
                let why = format!("{of}: the file went, and no deletion came after {before}");
                match (later, self.version) {
                    (Some(_), _) => None,
                    (None, Some(_)) => Some(Finding::Back(why)),
                    (None, None) => Some(Finding::Stale(why)),
                }
            }
        }
    }
}

impl Consumed {
    /// Takes the headers of one push, and finds entries that are the commit's own and were another's before.
    fn note(&mut self, push: &[Named<'_>]) -> Vec<Finding> {
        let mut twice = Vec::new();
        for (place, named) in push.iter().enumerate() {
            for id in &named.ids {
                let own = self.forgotten.contains(id) || push.iter().any(|other| other.lacks(*id));
                let before =
                    self.ids.contains(id) || push[..place].iter().any(|other| other.ids.contains(id));
                if own && before {
                    let commit = short(named.commit);
                    twice.push(Finding::Duplicate(format!("{commit} commits entry {id} once more")));
                }
            }
        }
        let unknown = |id: &&EntryId| push.iter().any(|named| named.lacks(**id));
        self.forgotten.extend(self.ids.iter().filter(unknown));
        for named in push {
            self.forgotten.retain(|id| !named.ids.contains(id));
            self.ids.extend(&named.ids);
        }
        // What every later header leaves out need not be remembered.
        let floor = push.iter().map(|named| named.floor).max();
        self.ids.retain(|id| Some(*id) > floor);
        self.forgotten.retain(|id| Some(*id) > floor);
        twice
    }
}

/// Enough of a commit id for people.
fn short(id: &str) -> &str {
    id.get(..10).unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "alpha/x.yaml";

    fn versions(stamps: &[Option<u64>]) -> BTreeMap<String, Vec<Version>> {
        let version = |stamp: &Option<u64>| Version {
            stamp: *stamp,
            resource_version: stamp.unwrap_or(0).to_string(),
            uid: "u".to_owned(),
        };
        BTreeMap::from([(PATH.to_owned(), stamps.iter().map(version).collect())])
    }

    fn commit(by: By, content: Content) -> Commit {
        let header = JournalHeader::parse("v1 fleet=f branch=b inc=i target=t floor=0-0 ids=");
        assert!(header.is_some());
        Commit { id: "c0ffee".to_owned(), tip: true, by, header, changes: vec![(PATH.to_owned(), content)] }
    }

    fn ours(contents: &[Content]) -> Vec<Commit> {
        contents.iter().map(|content| commit(By::Us, content.clone())).collect()
    }

    fn findings(contents: &[Content], stamps: &[Option<u64>]) -> Vec<Finding> {
        History::default().read(&ours(contents), &versions(stamps))
    }

    use Content::{Gone, Stamp};

    #[test]
    fn versions_may_be_skipped() {
        let stamps = [Some(1), Some(2), None, Some(3), None, Some(4)];
        assert_eq!(findings(&[Stamp(1), Stamp(3), Stamp(4)], &stamps), []);
        assert_eq!(findings(&[Stamp(2), Gone, Stamp(4)], &stamps), []);
    }

    #[test]
    fn going_back_is_stale_and_the_way_forward_again_is_not() {
        let stamps = [Some(1), Some(2), Some(3)];
        let found = findings(&[Stamp(1), Stamp(3), Stamp(2), Stamp(3)], &stamps);
        let text = "c0ffee of alpha/x.yaml: write 2 (resourceVersion 2) after write 3 (resourceVersion 3)";
        assert_eq!(found, [Finding::Back(text.to_owned())]);
    }

    #[test]
    fn a_file_that_goes_without_a_deletion_is_stale_and_by_an_earlier_one_went_back() {
        assert!(matches!(findings(&[Stamp(1), Gone], &[Some(1), Some(2)])[..], [Finding::Stale(_)]));
        let stamps = [Some(1), None, Some(2)];
        assert!(matches!(findings(&[Stamp(2), Gone], &stamps)[..], [Finding::Back(_)]));
        assert_eq!(
            findings(&[Stamp(2), Gone, Stamp(2)], &stamps).len(),
            1,
            "and the way forward is no second one"
        );
    }

    #[test]
    fn what_the_cluster_never_had_is_stale() {
        for never in [Stamp(7), Content::Other("x".to_owned())] {
            assert!(matches!(findings(&[never], &[Some(1)])[..], [Finding::Stale(_)]));
        }
    }

    #[test]
    fn after_a_persons_change_the_same_version_may_come_again_and_no_earlier_one() {
        let stamps = versions(&[Some(1), Some(2)]);
        let person = || commit(By::Person, Content::Other("by hand".to_owned()));
        let mut history = History::default();
        let restored = [ours(&[Stamp(2)]), vec![person()], ours(&[Stamp(2)])].concat();
        assert_eq!(history.read(&restored, &stamps), []);
        assert_eq!(history.read(&[vec![person()], ours(&[Stamp(1)])].concat(), &stamps).len(), 1);
    }

    /// One push per slice.
    fn headers(pushes: &[&[&str]]) -> Vec<Finding> {
        let commit = |text: &str, tip| Commit {
            id: "c0ffee".to_owned(),
            tip,
            by: By::Us,
            header: JournalHeader::parse(&format!("v1 fleet=f branch=b inc=i target=t {text}")),
            changes: Vec::new(),
        };
        let commits: Vec<Commit> = pushes
            .iter()
            .flat_map(|push| {
                push.iter().enumerate().map(|(place, text)| commit(text, place + 1 == push.len()))
            })
            .collect();
        assert!(commits.iter().all(|commit| commit.header.is_some()));
        History::default().read(&commits, &BTreeMap::new())
    }

    fn once_more(id: &str) -> Vec<Finding> {
        vec![Finding::Duplicate(format!("c0ffee commits entry {id} once more"))]
    }

    #[test]
    fn an_entry_that_stays_named_until_the_floor_passes_it_was_committed_once() {
        assert_eq!(headers(&[&["floor=0-0 ids=1-2"], &["floor=0-0 ids=1-2..3"], &["floor=1-3 ids=1-5"]]), []);
    }

    #[test]
    fn commits_of_one_push_do_not_name_each_others_entries_and_the_next_push_names_all() {
        assert_eq!(
            headers(&[&["floor=0-0 ids=1-1,1-2", "floor=0-0 ids=1-1,1-3"], &["floor=0-0 ids=1-1..4"]]),
            []
        );
    }

    #[test]
    fn an_entry_that_a_push_did_not_know_of_and_a_later_one_names_was_committed_twice() {
        let pushes: [&[&str]; 3] =
            [&["floor=0-0 ids=1-2"], &["floor=0-0 ids=1-3"], &["floor=0-0 ids=1-2..3"]];
        assert_eq!(headers(&pushes), once_more("1-2"));
    }

    #[test]
    fn an_entry_that_one_commit_of_a_push_names_and_another_lacks_is_its_own() {
        let earlier: [&[&str]; 2] = [&["floor=0-0 ids=1-2"], &["floor=0-0 ids=1-2", "floor=0-0 ids=1-3"]];
        assert_eq!(headers(&earlier), once_more("1-2"));
        let beside: [&[&str]; 1] = [&["floor=0-0 ids=1-2", "floor=0-0 ids=1-2..3", "floor=0-0 ids=1-4"]];
        assert_eq!(headers(&beside), once_more("1-2"));
    }
}
