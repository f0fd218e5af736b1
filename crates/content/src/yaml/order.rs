//! In which order do keys stand? In: two keys. Out: a total order in which a person finds things: `a2` before `a10`.
//!
//! A key is a row of tokens: a run of ASCII digits is one token, any other character is one. Digit runs compare as
//! numbers, then by length (`1` before `01`). Of different sorts, punctuation comes before digits and digits before
//! letters, except behind a digit run, where letters come first (`1a` before `1-`); the end comes before everything.
//! That is how the operator that wrote many existing repositories sorts, so its files need no reshuffling.

use std::cmp::Ordering;

/// Compares two map keys.
#[must_use]
pub fn compare_keys(left: &str, right: &str) -> Ordering {
    let equal_bytes = left.bytes().zip(right.bytes()).take_while(|(left, right)| left == right).count();
    if equal_bytes == left.len() || equal_bytes == right.len() {
        return left.len().cmp(&right.len());
    }
    // Two keys may differ in the middle of a character; what lies before it is equal, so the boundary is common.
    let same = left.floor_char_boundary(equal_bytes).min(right.floor_char_boundary(equal_bytes));
    let digits_before = left.as_bytes()[..same].iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (left_run, right_run) = (digit_run(left, same), digit_run(right, same));
    if digits_before > 0 && (left_run > 0 || right_run > 0) {
        // The difference lies inside a digit run: compare whole runs.
        let start = same - digits_before;
        return compare_runs(&left[start..same + left_run], &right[start..same + right_run]);
    }
    if left_run > 0 && right_run > 0 {
        return compare_runs(&left[same..same + left_run], &right[same..same + right_run]);
    }
    let (left, right) = (left[same..].chars().next(), right[same..].chars().next());
    let rank = |character: Option<char>| match character {
        Some(letter) if letter.is_alphabetic() => 2,
        Some('0'..='9') => 1,
        Some(_) | None => 0,
    };
    let (left_rank, right_rank) = (rank(left), rank(right));
    if digits_before > 0 && left_rank != right_rank {
        return right_rank.cmp(&left_rank);
    }
    left_rank.cmp(&right_rank).then(left.cmp(&right))
}

/// Length of the run of digits that begins at `start`.
fn digit_run(text: &str, start: usize) -> usize {
    text.as_bytes()[start..].iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// Compares two runs of digits as numbers of any size, then by length. One of them may be a prefix of the other.
fn compare_runs(left: &str, right: &str) -> Ordering {
    let (left_number, right_number) = (left.trim_start_matches('0'), right.trim_start_matches('0'));
    (left_number.len(), left_number, left.len()).cmp(&(right_number.len(), right_number, right.len()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_are_sorted_as_a_person_would() {
        let sorted = [
            "", "-x", "0", "00", "1", "01", "1a", "1-", "2", "10", "10.2", "10.10", "A", "B", "_0", "a",
            "a-b", "a.b", "a_b", "a1", "a1b", "a01", "a2", "a2b", "a10", "aB", "ab", "b", "é", "ü",
        ];
        let mut keys = sorted;
        keys.sort_by(|left, right| compare_keys(left, right));
        let expected = [
            "", "-x", "_0", "0", "00", "1", "1a", "1-", "01", "2", "10", "10.2", "10.10", "A", "B", "a",
            "a-b", "a.b", "a_b", "a1", "a1b", "a01", "a2", "a2b", "a10", "aB", "ab", "b", "é", "ü",
        ];
        assert_eq!(keys, expected);
    }

    proptest! {
        #[test]
        fn order_is_total(a in "[a-c01é\\-_ü]{0,6}", b in "[a-c01é\\-_ü]{0,6}", c in "[a-c01é\\-_ü]{0,6}") {
            prop_assert_eq!(compare_keys(&a, &b), compare_keys(&b, &a).reverse());
            prop_assert_eq!(compare_keys(&a, &b) == Ordering::Equal, a == b);
            if compare_keys(&a, &b) != Ordering::Greater && compare_keys(&b, &c) != Ordering::Greater {
                prop_assert_ne!(compare_keys(&a, &c), Ordering::Greater);
            }
        }
    }
}
