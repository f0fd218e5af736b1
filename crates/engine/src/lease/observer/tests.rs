mod fleet;

use upriver_model::BranchKey;

use super::*;
use crate::lease::SessionNotes;
use crate::lease::leftovers::{COLLECT_AFTER_MS, COLLECTED_AT_ONCE};

fn lease(name: &str, rv: u64, holder: Option<&str>, transitions: u64) -> LeaseRecord {
    LeaseRecord {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        rv: rv.to_string(),
        holder: holder.map(str::to_owned),
        transitions,
        pod: format!("pod-{name}"),
        ..LeaseRecord::default()
    }
}

fn sighting<const S: usize, const C: usize>(
    sessions: [LeaseRecord; S],
    claims: [LeaseRecord; C],
) -> Sighting {
    let by_name = |record: LeaseRecord| (record.name.clone(), record);
    Sighting {
        sessions: sessions.into_iter().map(by_name).collect(),
        claims: claims.into_iter().map(by_name).collect(),
    }
}

fn wanted() -> BTreeMap<String, ClaimKey> {
    named(&["c"])
}

fn named(claims: &[&str]) -> BTreeMap<String, ClaimKey> {
    claims.iter().map(|claim| ((*claim).to_owned(), ClaimKey::Branch(BranchKey::new(*claim)))).collect()
}

fn observer(me: &str) -> Observer {
    Observer::new(me, "", Company::Fleet)
}

impl Observer {
    fn acts(
        &mut self,
        now: Tick,
        in_a_row: u32,
        wanted: &BTreeMap<String, ClaimKey>,
        sighting: &Sighting,
    ) -> Vec<ClaimAct> {
        self.observe(Look { now, in_a_row, wanted, sighting }).acts
    }
}

#[test]
fn a_missing_or_free_claim_is_taken_and_held_once() {
    let mut observer = observer("me");
    let me = lease("me", 1, Some("me"), 0);
    let none = sighting([me.clone()], []);
    let take = ClaimAct::Take { claim: "c".to_owned(), record: None };
    assert_eq!(observer.acts(Tick(0), 1, &wanted(), &none), vec![take]);
    let mine = lease("c", 2, Some("me"), 4);
    let held = sighting([me], [mine.clone()]);
    let epoch = Epoch::new(4).expect("above zero");
    let expected = ClaimAct::Held { claim: "c".to_owned(), epoch, record: mine };
    assert_eq!(observer.acts(Tick(2000), 2, &wanted(), &held), vec![expected]);
    assert_eq!(observer.acts(Tick(4000), 3, &wanted(), &held), vec![]);
}

#[test]
fn a_living_holder_is_left_alone() {
    let mut observer = observer("me");
    for turn in 0..20 {
        let seen = sighting([lease("you", turn, Some("you"), 0)], [lease("c", 1, Some("you"), 1)]);
        assert_eq!(observer.acts(Tick(turn * 2000), 9, &wanted(), &seen), vec![]);
    }
}

#[test]
fn silence_is_four_renewals_of_ours_then_fence_then_take() {
    let mut observer = observer("me");
    let you = lease("you", 5, Some("you"), 0);
    let claim = lease("c", 1, Some("you"), 1);
    let seen = sighting([you.clone()], [claim.clone()]);
    for turn in 0..4 {
        assert_eq!(observer.acts(Tick(turn * 2000), 9, &wanted(), &seen), vec![], "turn {turn}");
    }
    let fence = vec![ClaimAct::Fence(you)];
    assert_eq!(observer.acts(Tick(8000), 9, &wanted(), &seen), fence);
    let fenced = sighting([lease("you", 6, None, 0)], [claim.clone()]);
    let take = ClaimAct::Take { claim: "c".to_owned(), record: Some(claim) };
    assert_eq!(observer.acts(Tick(10_000), 9, &wanted(), &fenced), vec![take]);
}

#[test]
fn renewals_in_a_burst_count_once_and_a_flapping_api_server_fences_nobody() {
    let mut observer = observer("me");
    let seen = sighting([lease("you", 5, Some("you"), 0)], []);
    let nothing = BTreeMap::new();
    for turn in 0..40 {
        assert_eq!(observer.acts(Tick(turn * 100), 9, &nothing, &seen), vec![], "a burst of proofs");
    }
    for turn in 0..40 {
        let now = Tick(4000 + turn * 2000);
        assert_eq!(observer.acts(now, 1, &nothing, &seen), vec![], "every other renewal fails");
    }
}

#[test]
fn where_one_may_run_exactly_one_of_two_living_ones_gives_way() {
    let both = |rv: u64, owner: &str| {
        sighting(
            [lease("a", rv, Some("a"), 0), lease("b", rv, Some("b"), 0)],
            [lease("c", 1, Some(owner), 1)],
        )
    };
    for (owner, loser) in [("a", "b"), ("b", "a")] {
        for me in ["a", "b"] {
            let mut observer = observer(me);
            observer.acts(Tick(0), 9, &BTreeMap::new(), &both(1, owner));
            assert_eq!(observer.gives_way_to(&both(1, owner)), None, "not seen alive yet");
            observer.acts(Tick(2000), 9, &BTreeMap::new(), &both(2, owner));
            let expected = (me == loser).then(|| owner.to_owned());
            assert_eq!(observer.gives_way_to(&both(2, owner)), expected, "{me}, owner {owner}");
        }
    }
}

#[test]
fn a_claim_of_an_unknown_session_needs_a_fence_first() {
    let mut observer = observer("me");
    let seen = sighting([], [lease("c", 1, Some("you"), 1)]);
    let expected = vec![ClaimAct::CreateFenced { session: "you".to_owned() }];
    assert_eq!(observer.acts(Tick(0), 9, &wanted(), &seen), expected);
}

#[test]
fn a_predecessor_in_the_same_pod_is_fenced_at_once() {
    let mut observer = Observer::new("me", "pod-old", Company::Fleet);
    let old = lease("old", 1, Some("old"), 0);
    let seen = sighting([old.clone()], []);
    assert_eq!(observer.acts(Tick(0), 1, &BTreeMap::new(), &seen), vec![ClaimAct::Fence(old)]);
}

#[test]
fn a_fenced_session_is_collected_after_an_hour_unless_a_claim_names_it() {
    let mut observer = observer("me");
    let old = lease("old", 1, None, 0);
    let hour = Tick(COLLECT_AFTER_MS);
    let named = sighting([old.clone()], [lease("c", 1, Some("old"), 1)]);
    let alone = sighting([old.clone()], []);
    let nothing = BTreeMap::new();
    assert_eq!(observer.acts(Tick(0), 9, &nothing, &alone), vec![]);
    assert_eq!(observer.acts(Tick(COLLECT_AFTER_MS - 1), 9, &nothing, &alone), vec![]);
    assert_eq!(observer.acts(hour, 9, &nothing, &named), vec![]);
    assert_eq!(observer.acts(hour, 9, &nothing, &alone), vec![ClaimAct::Collect(old)]);
}

#[test]
fn a_claim_that_nobody_wants_is_freed_by_its_holder_and_deleted_after_an_hour_without_one() {
    let mut observer = observer("me");
    let hour = Tick(COLLECT_AFTER_MS);
    let mine = lease("c", 1, Some("me"), 4);
    let seen = |claim: &LeaseRecord| sighting([lease("me", 1, Some("me"), 0)], [claim.clone()]);
    observer.acts(Tick(0), 9, &wanted(), &seen(&mine));
    let nothing = BTreeMap::new();
    let release = vec![ClaimAct::Release { record: mine.clone() }];
    assert_eq!(observer.acts(Tick(1), 9, &nothing, &seen(&mine)), release);
    assert_eq!(
        observer.acts(hour, 9, &nothing, &seen(&mine)),
        release,
        "never deleted under a living holder"
    );
    let free = lease("c", 2, None, 4);
    let orphaned = lease("d", 2, Some("long-gone"), 4);
    let both = sighting([lease("me", 1, Some("me"), 0)], [free.clone(), orphaned.clone()]);
    assert_eq!(observer.acts(Tick(0), 9, &nothing, &both), vec![]);
    observer.acts(hour, 9, &wanted(), &both);
    assert_eq!(
        observer.acts(hour, 9, &nothing, &both),
        vec![ClaimAct::Collect(orphaned)],
        "c was wanted again"
    );
    assert_eq!(observer.acts(Tick(2 * hour.0), 9, &nothing, &seen(&free)), vec![ClaimAct::Collect(free)]);
}

#[test]
fn many_leftovers_are_deleted_bit_by_bit() {
    let many = of(vec![], (0..50).map(|number| lease(&format!("c{number}"), 1, None, 1)).collect());
    let mut observer = observer("me");
    observer.acts(Tick(0), 9, &BTreeMap::new(), &many);
    let acts = observer.acts(Tick(COLLECT_AFTER_MS), 9, &BTreeMap::new(), &many);
    assert_eq!(acts.len(), COLLECTED_AT_ONCE);
}

#[test]
fn a_claim_that_names_another_is_dropped() {
    let mut observer = observer("me");
    let mine = sighting([], [lease("c", 1, Some("me"), 4)]);
    observer.acts(Tick(0), 9, &wanted(), &mine);
    let theirs = sighting([lease("you", 1, Some("you"), 0)], [lease("c", 2, Some("you"), 5)]);
    let gone = vec![ClaimAct::Gone { claim: "c".to_owned() }];
    assert_eq!(observer.acts(Tick(1), 9, &wanted(), &theirs), gone);
}

fn alive(names: &[&str], rv: u64) -> Vec<LeaseRecord> {
    names.iter().map(|name| lease(name, rv, Some(name), 0)).collect()
}

fn of(sessions: Vec<LeaseRecord>, claims: Vec<LeaseRecord>) -> Sighting {
    let by_name =
        |records: Vec<LeaseRecord>| records.into_iter().map(|record| (record.name.clone(), record)).collect();
    Sighting { sessions: by_name(sessions), claims: by_name(claims) }
}

fn takes(acts: &[ClaimAct]) -> BTreeSet<String> {
    acts.iter()
        .filter_map(|act| match act {
            ClaimAct::Take { claim, .. } => Some(claim.clone()),
            ClaimAct::Fence(_)
            | ClaimAct::Collect(_)
            | ClaimAct::CreateFenced { .. }
            | ClaimAct::Held { .. }
            | ClaimAct::Gone { .. }
            | ClaimAct::Release { .. }
            | ClaimAct::Offer { .. } => None,
        })
        .collect()
}

#[test]
fn replicas_with_one_view_share_free_claims_without_overlap_also_at_their_first_look() {
    let claims: Vec<String> = (0..30).map(|number| format!("c{number}")).collect();
    let wanted = named(&claims.iter().map(String::as_str).collect::<Vec<_>>());
    let seen = of(alive(&["a", "b", "c"], 1), vec![]);
    let mut all = Vec::new();
    for me in ["a", "b", "c"] {
        let taken = takes(&observer(me).acts(Tick(0), 1, &wanted, &seen));
        assert!(taken.len() <= 13, "{me} takes {} of 30", taken.len());
        all.extend(taken);
    }
    all.sort();
    let mut expected = claims;
    expected.sort();
    assert_eq!(all, expected);
    let mut alone = Observer::new("a", "", Company::Alone);
    assert_eq!(takes(&alone.acts(Tick(0), 1, &wanted, &seen)).len(), 30, "an alone replica takes everything");
}

#[test]
fn a_free_claim_that_stays_free_is_taken_by_the_others_in_the_order_of_their_rank() {
    let seen = |rv: u64| of(alive(&["a", "b", "c"], rv), vec![lease("c", 7, None, 3)]);
    let members = BTreeSet::from(["a", "b", "c"]);
    for me in members.iter().copied() {
        let rank = rank("c", me, &members) as u64;
        let due = if rank == 0 { 0 } else { 3_000 + rank * 1_000 };
        let mut observer = observer(me);
        for now in (0..7_000).step_by(500) {
            let taken = takes(&observer.acts(Tick(now), 9, &wanted(), &seen(now)));
            assert_eq!(!taken.is_empty(), now >= due, "{me} of rank {rank} at {now}");
        }
        let touched = of(alive(&["a", "b", "c"], 7_000), vec![lease("c", 8, None, 3)]);
        let taken = takes(&observer.acts(Tick(7_000), 9, &wanted(), &touched));
        assert_eq!(taken.is_empty(), rank > 0, "another version is another wait");
    }
}

#[test]
fn a_named_successor_takes_at_once_and_has_two_seconds_to_itself() {
    let members = BTreeSet::from(["a", "b", "c"]);
    let by_rank = |wanted: usize| *members.iter().find(|me| rank("c", me, &members) == wanted).expect("one");
    let (first, last) = (by_rank(0), by_rank(2));
    let given = LeaseRecord { successor: Some(last.to_owned()), ..lease("c", 7, None, 3) };
    let seen = |rv: u64| of(alive(&["a", "b", "c"], rv), vec![given.clone()]);
    assert_eq!(takes(&observer(last).acts(Tick(0), 9, &wanted(), &seen(0))).len(), 1);
    let mut other = observer(first);
    for now in [0, 1_000, 1_999, 2_000] {
        let look = Look { now: Tick(now), in_a_row: 9, wanted: &wanted(), sighting: &seen(now) };
        let came = other.observe(look);
        assert_eq!(!takes(&came.acts).is_empty(), now >= 2_000, "at {now}");
        assert_eq!(came.again_ms, (now < 2_000).then_some(2_000 - now), "the next look is not missed");
    }
    let gone = of(
        alive(&["a", "b", "c"].into_iter().filter(|name| *name != last).collect::<Vec<_>>(), 1),
        vec![given.clone()],
    );
    let rest: BTreeSet<&str> = members.iter().copied().filter(|name| *name != last).collect();
    let heir = *rest.iter().find(|me| rank("c", me, &rest) == 0).expect("one");
    let taken = takes(&observer(heir).acts(Tick(0), 9, &wanted(), &gone));
    assert_eq!(taken.len(), 1, "a successor that does not live has no precedence");
}

#[test]
fn a_claim_given_up_is_written_free_again_and_never_acted_under_at_that_epoch() {
    let mut observer = observer("me");
    let epoch = |number| Epoch::new(number).expect("above zero");
    let mine = |rv, number| of(alive(&["me"], rv), vec![lease("c", rv, Some("me"), number)]);
    observer.acts(Tick(0), 9, &wanted(), &mine(1, 4));
    observer.released("c", epoch(4));
    let again = vec![ClaimAct::Release { record: lease("c", 1, Some("me"), 4) }];
    assert_eq!(observer.acts(Tick(2000), 9, &wanted(), &mine(1, 4)), again, "the write was lost");
    assert_eq!(observer.acts(Tick(4000), 9, &wanted(), &mine(1, 4)), again);
    let held = observer.acts(Tick(6000), 9, &wanted(), &mine(2, 5));
    let expected =
        ClaimAct::Held { claim: "c".to_owned(), epoch: epoch(5), record: lease("c", 2, Some("me"), 5) };
    assert_eq!(held, vec![expected]);
}

#[test]
fn nothing_is_offered_before_members_were_stable_and_then_two_at_a_time() {
    let claims: Vec<String> = (0..12).map(|number| format!("c{number}")).collect();
    let wanted = named(&claims.iter().map(String::as_str).collect::<Vec<_>>());
    let mut observer = observer("a");
    let held = || claims.iter().map(|claim| lease(claim, 1, Some("a"), 1)).collect();
    let offers = |observer: &mut Observer, now: u64| {
        let acts = observer.acts(Tick(now), 9, &wanted, &of(alive(&["a", "b"], now), held()));
        acts.iter().filter(|act| matches!(act, ClaimAct::Offer { to, .. } if to == "b")).count()
    };
    for now in [0, 2_000, 4_000, 6_000, 8_000] {
        assert_eq!(offers(&mut observer, now), 0, "at {now}");
    }
    assert_eq!(offers(&mut observer, 10_000), 2);
    assert_eq!(offers(&mut observer, 12_000), 0, "two are on their way");
    for claim in &claims {
        observer.refused(Tick(12_000), claim);
    }
    assert_eq!(offers(&mut observer, 14_000), 2, "others than those that were refused");
    observer.drain();
    assert_eq!(offers(&mut observer, 40_000), 0);
}

#[test]
fn a_draining_replica_takes_nothing_and_names_successors_among_the_others() {
    let claims: Vec<String> = (0..12).map(|number| format!("c{number}")).collect();
    let names: Vec<&str> = claims.iter().map(String::as_str).collect();
    let wanted = named(&names);
    let mut observer = observer("a");
    let mine = claims.iter().take(6).map(|claim| lease(claim, 1, Some("a"), 1)).collect();
    let seen = of(alive(&["a", "b", "c"], 1), mine);
    observer.acts(Tick(0), 9, &wanted, &seen);
    observer.drain();
    assert_eq!(takes(&observer.acts(Tick(9_000), 9, &wanted, &seen)), BTreeSet::new());
    let ours: BTreeSet<String> = claims.iter().take(6).cloned().collect();
    let successors = observer.successors(&ours);
    assert_eq!(successors.keys().cloned().collect::<BTreeSet<_>>(), ours);
    let named: BTreeSet<&str> = successors.values().map(String::as_str).collect();
    assert_eq!(named, BTreeSet::from(["b", "c"]));
}

#[test]
fn others_look_often_while_a_draining_session_holds_claims_and_give_it_none() {
    let mut leaving = lease("you", 1, Some("you"), 0);
    leaving.notes = SessionNotes { draining: true, ..SessionNotes::default() };
    let claims = vec![lease("c", 1, Some("you"), 1), lease("d", 1, None, 1)];
    let seen = of(vec![lease("me", 1, Some("me"), 0), leaving], claims);
    let wanted = named(&["c", "d"]);
    let came = observer("me").observe(Look { now: Tick(0), in_a_row: 1, wanted: &wanted, sighting: &seen });
    assert_eq!(takes(&came.acts), BTreeSet::from(["d".to_owned()]));
    assert_eq!(came.again_ms, Some(500));
}

#[test]
fn a_claim_without_a_living_holder_is_told_to_be_nobodys_after_thirteen_seconds() {
    let mut observer = observer("me");
    let wanted = named(&["c", "d"]);
    let mut told = Vec::new();
    for turn in 0..16_u64 {
        let now = turn * 2_000;
        // The first holder speaks for the last time at 4 s; the second goes on.
        let sessions = vec![
            lease("me", turn, Some("me"), 0),
            lease("x", turn.min(2), Some("x"), 0),
            lease("y", turn, Some("y"), 0),
        ];
        let claims = vec![lease("c", 1, Some("x"), 1), lease("d", 1, Some("y"), 1)];
        let look = Look { now: Tick(now), in_a_row: 9, wanted: &wanted, sighting: &of(sessions, claims) };
        let directory = observer.observe(look).directory;
        told.extend((!directory.unowned.is_empty()).then(|| (now, directory.unowned.clone())));
    }
    let (first, who) = told.first().expect("told");
    assert_eq!(who.iter().map(ToString::to_string).collect::<Vec<_>>(), ["c"]);
    assert!((17_000..=21_000).contains(first), "told at {first}");
}
