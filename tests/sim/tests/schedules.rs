//! Thousands of schedules per kind of trouble; a failing one prints the line that runs it again.

use upriver_sim::{Bug, Failure, Profile, run};

/// Schedules over all profiles, unless `SIM_SCHEDULES` says otherwise.
const SCHEDULES: u64 = 10_000;
/// Seeds within which a planted bug has to be caught.
const BUG_SEEDS: u64 = 1_000;

fn schedules() -> u64 {
    std::env::var("SIM_SCHEDULES").ok().and_then(|text| text.parse().ok()).unwrap_or(SCHEDULES)
}

/// Answers the number of steps; a schedule that fails is run again for its event log.
fn holds(seed: u64, profile: Profile) -> usize {
    match run(seed, profile, None, false) {
        Ok(steps) => steps,
        Err(_) => {
            let failure = run(seed, profile, None, true).expect_err("equal seeds give equal schedules");
            panic!("{failure}");
        }
    }
}

fn all_hold(profile: Profile) {
    let count = schedules() / Profile::ALL.len() as u64;
    let mut steps = 0;
    let begun = std::time::Instant::now();
    for seed in 0..count {
        steps += holds(seed, profile);
    }
    println!("{}: {count} schedules, {steps} steps, {:?}", profile.name(), begun.elapsed());
}

#[test]
fn schedules_without_faults() {
    all_hold(Profile::Calm);
}

#[test]
fn schedules_with_crashes() {
    all_hold(Profile::Crashes);
}

#[test]
fn schedules_with_store_loss() {
    all_hold(Profile::StoreLoss);
}

#[test]
fn schedules_with_remote_trouble() {
    all_hold(Profile::Remote);
}

#[test]
fn schedules_with_everything() {
    all_hold(Profile::Everything);
}

#[test]
fn schedules_with_watches_that_move() {
    all_hold(Profile::Fleet);
}

/// `SIM_SEED=crashes-17 cargo test -p upriver-sim one_seed -- --nocapture`
#[test]
fn one_seed() {
    let text = std::env::var("SIM_SEED").unwrap_or_else(|_| "calm-1".to_owned());
    let (profile, seed) = text.rsplit_once('-').expect("SIM_SEED is <profile>-<number>");
    let profile = Profile::ALL.into_iter().find(|known| known.name() == profile).expect("a known profile");
    if let Err(failure) = run(seed.parse().expect("a number"), profile, None, true) {
        panic!("{failure}");
    }
}

/// Schedules that once broke an invariant, each for a reason of its own.
#[test]
fn seeds_that_once_failed_hold() {
    let failed = [
        (Profile::Crashes, [1, 21, 54, 320, 399, 1717, 6108, 7669, 16_506, 28_045, 29_441].as_slice()),
        (Profile::StoreLoss, &[25, 1812]),
        (
            Profile::Remote,
            &[0, 4, 135, 246, 590, 879, 2383, 2733, 3779, 13_568, 20_910, 21_434, 23_018, 33_414],
        ),
        (Profile::Everything, &[2, 26, 49, 142, 181, 827, 2573, 3072, 6593, 8937]),
    ];
    for (profile, seeds) in failed {
        for seed in seeds {
            holds(*seed, profile);
        }
    }
}

fn is_caught(bug: Bug, profile: Profile, rules: &[&str]) {
    let caught: Option<Box<Failure>> =
        (0..BUG_SEEDS).find_map(|seed| run(seed, profile, Some(bug), false).err());
    let failure = caught.unwrap_or_else(|| panic!("{bug:?} broke nothing in {BUG_SEEDS} schedules"));
    println!("{bug:?}: seed {} broke {}: {}", failure.seed, failure.rule, failure.what);
    assert!(rules.contains(&&*failure.rule), "{bug:?} was caught by {}: {}", failure.rule, failure.what);
}

#[test]
fn a_cursor_that_moves_before_its_entries_is_caught() {
    is_caught(Bug::CursorBeforeEntries, Profile::Crashes, &["INV-2"]);
}

#[test]
fn a_push_of_unknown_outcome_that_counts_as_landed_is_caught() {
    is_caught(Bug::UncertainIsSuccess, Profile::Remote, &["INV-3"]);
}

#[test]
fn a_skipped_proof_is_caught() {
    is_caught(Bug::ProofSkipped, Profile::StoreLoss, &["INV-4"]);
}

#[test]
fn a_settlement_before_the_push_is_caught() {
    is_caught(Bug::SettleBeforePush, Profile::Remote, &["INV-3"]);
    is_caught(Bug::SettledBeforePush, Profile::Remote, &["INV-3"]);
}

#[test]
fn a_stream_that_is_not_opened_is_caught() {
    is_caught(Bug::OpenSkipped, Profile::Crashes, &["NOSTUCK"]);
}

#[test]
fn a_push_without_compare_and_swap_is_caught() {
    is_caught(Bug::NoCompareAndSwap, Profile::Remote, &["INV-4"]);
}

#[test]
fn a_successor_that_forgets_is_caught() {
    is_caught(Bug::AttemptsForgotten, Profile::Crashes, &["FINAL", "INV-3"]);
    is_caught(Bug::EntriesForgotten, Profile::Crashes, &["INV-3", "FINAL"]);
    is_caught(Bug::CommitsForgotten, Profile::StoreLoss, &["FINAL"]);
}

#[test]
fn an_expired_cursor_that_is_ignored_is_caught() {
    is_caught(Bug::ExpiredIgnored, Profile::Crashes, &["FINAL"]);
}

#[test]
fn a_frame_that_is_dropped_when_the_journal_is_full_is_caught() {
    is_caught(Bug::HeldFrameDropped, Profile::Remote, &["INV-2"]);
}
