//! A set of journal entry ids as ranges: what a commit header, an attempt and the journal's `done` mark hold.
//!
//! Windows commit out of journal order, so a single position would lie (F1); the exact ids are named instead. The text
//! form is frozen, readers must live with it for ever: `<epoch>-<n>` or `<epoch>-<from>..<to>` (both inclusive), joined
//! by commas, ascending.

use std::collections::BTreeMap;
use std::fmt;

use crate::ids::EntryId;

/// Entry ids, kept as disjoint inclusive ranges per epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdSet {
    /// (epoch, first) -> last
    ranges: BTreeMap<(u64, u64), u64>,
}

impl IdSet {
    /// An empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// True if nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Number of ids.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.ranges.iter().map(|((_, first), last)| last - first + 1).sum()
    }

    /// True if `id` is in the set.
    #[must_use]
    pub fn contains(&self, id: EntryId) -> bool {
        self.range_before(id).is_some_and(|(_, last)| last >= id.n)
    }

    fn range_before(&self, id: EntryId) -> Option<(u64, u64)> {
        let ((epoch, first), last) = self.ranges.range(..=(id.epoch, id.n)).next_back()?;
        (*epoch == id.epoch).then_some((*first, *last))
    }

    /// The highest id in the set that is below `id`.
    #[must_use]
    pub fn last_below(&self, id: EntryId) -> Option<EntryId> {
        let ((epoch, _), last) = self.ranges.range(..(id.epoch, id.n)).next_back()?;
        let n = if *epoch == id.epoch { (*last).min(id.n - 1) } else { *last };
        Some(EntryId { epoch: *epoch, n })
    }

    /// Every id, ascending.
    pub fn iter(&self) -> impl Iterator<Item = EntryId> + '_ {
        self.ranges
            .iter()
            .flat_map(|((epoch, first), last)| (*first..=*last).map(|n| EntryId { epoch: *epoch, n }))
    }

    /// Adds one id.
    pub fn insert(&mut self, id: EntryId) {
        if self.contains(id) {
            return;
        }
        let mut first = id.n;
        let mut last = id.n;
        if let Some((before_first, before_last)) = self.range_before(id)
            && before_last + 1 == id.n
        {
            self.ranges.remove(&(id.epoch, before_first));
            first = before_first;
        }
        if let Some(after_last) = id.n.checked_add(1).and_then(|next| self.ranges.remove(&(id.epoch, next))) {
            last = after_last;
        }
        self.ranges.insert((id.epoch, first), last);
    }

    /// Adds all ids of another set.
    pub fn extend(&mut self, other: &Self) {
        for ((epoch, first), last) in &other.ranges {
            self.insert_range(*epoch, *first, *last);
        }
    }

    fn insert_range(&mut self, epoch: u64, mut first: u64, mut last: u64) {
        let touching: Vec<(u64, u64)> = self
            .ranges
            .range((epoch, 0)..=(epoch, last.saturating_add(1)))
            .filter(|(_, end)| end.saturating_add(1) >= first)
            .map(|((_, start), end)| (*start, *end))
            .collect();
        for (start, end) in touching {
            self.ranges.remove(&(epoch, start));
            first = first.min(start);
            last = last.max(end);
        }
        self.ranges.insert((epoch, first), last);
    }

    /// Drops every id up to and including `floor`.
    pub fn drop_through(&mut self, floor: EntryId) {
        let kept = self.ranges.split_off(&(floor.epoch, 0));
        self.ranges = kept
            .into_iter()
            .filter_map(|((epoch, first), last)| {
                if epoch > floor.epoch || first > floor.n {
                    return Some(((epoch, first), last));
                }
                (last > floor.n).then_some(((epoch, floor.n + 1), last))
            })
            .collect();
    }

    /// Reads the text form; `None` if it is not exactly that.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut set = Self::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (epoch, span) = part.split_once('-')?;
            let epoch = epoch.parse().ok()?;
            let (first, last) = match span.split_once("..") {
                Some((first, last)) => (first.parse().ok()?, last.parse().ok()?),
                None => {
                    let only: u64 = span.parse().ok()?;
                    (only, only)
                }
            };
            if first > last {
                return None;
            }
            set.insert_range(epoch, first, last);
        }
        Some(set)
    }
}

impl FromIterator<EntryId> for IdSet {
    fn from_iter<I: IntoIterator<Item = EntryId>>(ids: I) -> Self {
        let mut set = Self::new();
        for id in ids {
            set.insert(id);
        }
        set
    }
}

impl fmt::Display for IdSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, ((epoch, first), last)) in self.ranges.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            if first == last {
                write!(f, "{epoch}-{first}")?;
            } else {
                write!(f, "{epoch}-{first}..{last}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(epoch: u64, n: u64) -> EntryId {
        EntryId { epoch, n }
    }

    #[test]
    fn neighbours_join_and_the_text_form_is_frozen() {
        let set: IdSet = [id(2, 1), id(1, 4), id(1, 2), id(1, 3), id(1, 7), id(1, 3)].into_iter().collect();
        assert_eq!(set.to_string(), "1-2..4,1-7,2-1");
        assert_eq!(set.len(), 5);
        assert_eq!(IdSet::parse("1-2..4,1-7,2-1"), Some(set));
        assert_eq!(IdSet::parse(""), Some(IdSet::new()));
        for bad in ["1", "1-x", "x-1", "1-4..2", "1-2...3"] {
            assert_eq!(IdSet::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn dropping_through_a_floor_cuts_ranges() {
        let mut set = IdSet::parse("1-1..9,2-3..5,3-1").expect("a valid set");
        set.drop_through(id(2, 4));
        assert_eq!(set.to_string(), "2-5,3-1");
        set.drop_through(id(2, 9));
        assert_eq!(set.to_string(), "3-1");
    }

    #[test]
    fn a_union_holds_what_either_holds() {
        // Every pair of subsets of a small id space, against a plain list.
        for left in 0_u32..64 {
            for right in 0_u32..64 {
                let members = |bits: u32| (0..6).filter(move |n| bits >> n & 1 == 1).map(|n| id(1, n));
                let mut set: IdSet = members(left).collect();
                set.extend(&members(right).collect());
                let expected: IdSet = members(left | right).collect();
                assert_eq!(set, expected, "{left:b} with {right:b}");
                assert!((0..6).all(|n| set.contains(id(1, n)) == ((left | right) >> n & 1 == 1)));
                assert_eq!(IdSet::parse(&set.to_string()), Some(set));
            }
        }
    }
}
