use super::*;
use crate::time::Dice;

fn names(what: &str, range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|number| format!("{what}-{number}")).collect()
}

fn set(names: &[String]) -> BTreeSet<&str> {
    names.iter().map(String::as_str).collect()
}

fn free(claims: &[String]) -> BTreeMap<&str, Option<&str>> {
    claims.iter().map(|claim| (claim.as_str(), None)).collect()
}

fn loads<'a>(holders: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, usize> {
    let mut loads = BTreeMap::new();
    for holder in holders {
        *loads.entry(holder).or_default() += 1;
    }
    loads
}

/// All moves that follow, one after the other, from these holders; the holders at the end and the number of moves.
fn settled(
    holders: &BTreeMap<String, String>,
    members: &BTreeSet<&str>,
) -> (BTreeMap<String, String>, usize) {
    let claims = holders.iter().map(|(claim, holder)| (claim.as_str(), Some(holder.as_str()))).collect();
    let mut placement = Placement::new(&claims, members);
    let mut moves = 0;
    loop {
        let next = holders.keys().find_map(|claim| Some((claim, placement.receiver(claim)?.to_owned())));
        let Some((claim, to)) = next else { return (placement.holders, moves) };
        placement.moved(claim, &to);
        moves += 1;
        assert!(moves <= holders.len(), "no claim moves twice");
    }
}

fn taken(claims: &[String], members: &BTreeSet<&str>) -> BTreeMap<String, String> {
    let placement = Placement::new(&free(claims), members);
    claims
        .iter()
        .map(|claim| (claim.clone(), placement.taker(claim).expect("room for all").to_owned()))
        .collect()
}

#[test]
fn the_hash_never_changes() {
    assert_eq!(fnv1a(&[]), 0xcbf2_9ce4_8422_2325);
    assert_eq!(weight("upriver-branch-00ff", "upriver-session-a"), 0x801f_687d_5446_95d7);
    assert_ne!(fnv1a(&["ab", "c"]), fnv1a(&["a", "bc"]));
}

#[test]
fn every_claim_has_a_taker_within_the_bound_and_a_lone_member_gets_all() {
    for (claims, members) in [(0, 1), (1, 1), (1, 5), (7, 3), (100, 1), (200, 3), (200, 7), (1000, 12)] {
        let (claims, members) = (names("claim", 0..claims), names("member", 0..members));
        let taken = taken(&claims, &set(&members));
        let most = (claims.len() * 5).div_ceil(members.len() * 4);
        let loads = loads(taken.values().map(String::as_str));
        assert_eq!(taken.len(), claims.len());
        assert!(
            loads.values().all(|load| *load <= most),
            "{} over {}: {loads:?}",
            claims.len(),
            members.len()
        );
    }
    assert_eq!(Placement::new(&free(&names("claim", 0..3)), &BTreeSet::new()).taker("claim-0"), None);
}

#[test]
fn a_member_that_joins_gets_its_share_with_hardly_more_moves_than_that_takes() {
    for count in 1..12 {
        let (claims, members) = (names("claim", 0..240), names("member", 0..count + 1));
        let before = taken(&claims, &set(&members[..count]));
        let (after, moves) = settled(&before, &set(&members));
        let loads = loads(after.values().map(String::as_str));
        let ideal = claims.len() / (count + 1);
        let newest = loads.get(members[count].as_str()).copied().unwrap_or(0);
        assert!(newest * 2 >= ideal, "{count} members and one more: it holds {newest}, ideal {ideal}");
        assert!(moves <= newest + 2, "{count} members and one more: {moves} moves for its {newest} claims");
    }
}

#[test]
fn claims_of_a_member_that_leaves_are_all_that_is_taken_and_hardly_anything_else_moves() {
    for count in 2..12 {
        let (claims, members) = (names("claim", 0..240), names("member", 0..count));
        let before = taken(&claims, &set(&members));
        let (gone, rest) = members.split_first().expect("two or more");
        let living = |claim: &String| Some(before[claim].as_str()).filter(|holder| holder != gone);
        let view: BTreeMap<&str, Option<&str>> =
            claims.iter().map(|claim| (claim.as_str(), living(claim))).collect();
        let placement = Placement::new(&view, &set(rest));
        let after: BTreeMap<String, String> = claims
            .iter()
            .map(|claim| {
                (claim.clone(), living(claim).or_else(|| placement.taker(claim)).expect("held").to_owned())
            })
            .collect();
        let loads = loads(after.values().map(String::as_str));
        assert!(loads.values().all(|load| *load <= placement.bound()), "{loads:?}");
        let (_, moves) = settled(&after, &set(rest));
        let orphans = claims.iter().filter(|claim| before[*claim] == *gone).count();
        assert!(
            moves * 20 <= orphans,
            "{count} members: {orphans} claims were orphaned, {moves} others move"
        );
    }
}

#[test]
fn claims_that_are_added_move_hardly_any_that_are_held() {
    let members = names("member", 0..5);
    let all = names("claim", 0..200);
    let before = taken(&all[..100], &set(&members));
    let view: BTreeMap<&str, Option<&str>> =
        all.iter().map(|claim| (claim.as_str(), before.get(claim).map(String::as_str))).collect();
    let placement = Placement::new(&view, &set(&members));
    let moves = all.iter().filter(|claim| placement.receiver(claim).is_some()).count();
    assert!(moves <= 5, "{moves} of 100 held claims would move");
}

#[test]
fn from_any_holders_at_all_moves_end_within_the_bound() {
    for seed in 0..200 {
        let mut dice = Dice::new(seed);
        let claims = names("claim", 0..usize::try_from(dice.between(1, 80)).expect("small"));
        let members = names("member", 0..usize::try_from(dice.between(1, 9)).expect("small"));
        let any = |dice: &mut Dice| {
            let index =
                dice.between(0, members.len() as u64 - 1).min(dice.between(0, members.len() as u64 - 1));
            members[usize::try_from(index).expect("small")].clone()
        };
        let holders = claims.iter().map(|claim| (claim.clone(), any(&mut dice))).collect();
        let (after, _) = settled(&holders, &set(&members));
        let most = (claims.len() * 5).div_ceil(members.len() * 4);
        let loads = loads(after.values().map(String::as_str));
        assert!(loads.values().all(|load| *load <= most), "seed {seed}: {loads:?}, bound {most}");
    }
}

#[test]
fn ranks_of_a_claim_are_all_different() {
    let members = names("member", 0..6);
    for claim in names("claim", 0..50) {
        let ranks: BTreeSet<usize> =
            members.iter().map(|member| rank(&claim, member, &set(&members))).collect();
        assert_eq!(ranks, (0..6).collect());
    }
}
