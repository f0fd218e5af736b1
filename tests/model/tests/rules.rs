//! All rules hold in every schedule within these bounds, and the search notices when one is removed.

use stateright::{Checker, Model, Property};
use upriver_model_check::{Action, Bug, Config, Outcome, Script, World, search};

fn row(name: &str, config: Config, outcome: &Outcome) {
    let result = outcome.violation.as_ref().map_or_else(
        || if outcome.complete { "holds".to_owned() } else { "holds so far".to_owned() },
        |violation| format!("{} after {} steps", violation.rule, violation.trace.len()),
    );
    println!(
        "{name:28} {:13} owners {} losses {} timeouts {} start {:5} | states {:>7} depth {:>3} | {result} ({:.1?})",
        format!("{:?}", config.script),
        config.owners,
        config.losses,
        config.timeouts,
        config.from_start,
        outcome.states,
        outcome.depth,
        outcome.took,
    );
}

/// Explores; a violation is told step by step.
fn holds(config: Config) -> Outcome {
    let outcome = search(config);
    row("all rules", config, &outcome);
    if let Some(violation) = &outcome.violation {
        panic!("{config:?}\n{violation}");
    }
    outcome
}

#[test]
fn any_process_may_stop_at_any_step_and_go_on_later() {
    for script in Script::ALL {
        assert!(holds(Config::new(script)).complete);
    }
}

#[test]
fn the_answer_to_a_push_may_never_come() {
    for script in [Script::CreateDelete, Script::TwoPeople] {
        assert!(holds(Config::new(script).with_faults(0, 1)).complete);
    }
}

#[test]
fn nothing_has_to_be_quiet_before() {
    holds(Config::new(Script::TwoPeople).from_start().at_most(20_000));
}

#[test]
fn the_store_may_go_back_to_any_earlier_moment() {
    for script in [Script::CreateDelete, Script::TwoPeople] {
        holds(Config::new(script).with_faults(1, 0).at_most(30_000));
    }
}

/// F5's collapse of what is sent again is not built: see `ha-design.md`, what is open.
#[test]
fn across_a_loss_a_file_may_go_back_for_one_commit() {
    let config = Config::new(Script::TwoPeople).with_faults(1, 0);
    let config = Config { order_after_loss: true, ..config };
    let outcome = search(config);
    row("INV-5 across a loss (open)", config, &outcome);
    assert_eq!(outcome.violation.map(|violation| violation.rule), Some("INV-5"));
}

/// Rule, bounds, invariants that may show that it is missing.
fn removed() -> Vec<(Bug, Config, &'static [&'static str])> {
    let calm = Config::new;
    let lossy = |script| Config::new(script).with_faults(1, 0);
    let late = |script| Config::new(script).with_faults(0, 1);
    use Script::{CreateDelete, Interleaved, TwoPeople};
    vec![
        (Bug::NoCompareAndSwap, calm(CreateDelete), &["INV-4"]),
        (Bug::NoEpochCheck, calm(CreateDelete), &["INV-1"]),
        (Bug::ProofSkipped, lossy(CreateDelete), &["INV-4", "INV-3"]),
        (Bug::ConnectionsSurvive, lossy(CreateDelete), &["INV-3"]),
        (Bug::NoLateLandingBlock, calm(CreateDelete), &["INV-3", "FINAL"]),
        (Bug::NoBlockAfterTakeOver, lossy(CreateDelete), &["INV-3", "FINAL"]),
        (Bug::AttemptsForgotten, lossy(CreateDelete), &["INV-3", "FINAL"]),
        (Bug::EntriesForgotten, calm(CreateDelete), &["INV-3", "FINAL"]),
        (Bug::CursorBeforeEntries, calm(CreateDelete), &["INV-2"]),
        (Bug::NoLossDetection, lossy(CreateDelete), &["INV-1", "INV-2", "INV-3", "FINAL"]),
        (Bug::NoLossDetectionNoGap, lossy(CreateDelete), &["INV-2", "INV-3", "FINAL"]),
        (Bug::ProgressWithoutSeq, lossy(CreateDelete), &["INV-2"]),
        (Bug::HeaderOnePosition, calm(Interleaved), &["INV-3", "FINAL"]),
        (Bug::NoHeader, calm(TwoPeople), &["INV-5", "ONCE"]),
        (Bug::OpenSkipped, calm(CreateDelete), &["NOSTUCK"]),
        (Bug::SettleBeforePush, calm(CreateDelete), &["INV-3"]),
        (Bug::UncertainIsSuccess, late(CreateDelete), &["INV-3"]),
        (Bug::SettledBeforePush, calm(TwoPeople).from_start(), &["INV-2", "INV-3", "FINAL"]),
    ]
}

#[test]
fn each_removed_rule_is_noticed() {
    let mut unnoticed = Vec::new();
    for (bug, config, rules) in removed() {
        let config = config.without(bug).at_most(60_000);
        let outcome = search(config);
        row(&format!("without: {bug:?}"), config, &outcome);
        match outcome.violation {
            Some(violation) if rules.contains(&violation.rule) => {}
            Some(violation) => unnoticed.push(format!("{bug:?} is noticed by\n{violation}")),
            None => unnoticed.push(format!("{bug:?} breaks nothing")),
        }
    }
    assert!(unnoticed.is_empty(), "{}", unnoticed.join("\n"));
}

/// The same worlds for a search that others wrote.
struct Peer(Config);

impl Model for Peer {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self.0)]
    }

    fn actions(&self, state: &World, actions: &mut Vec<Action>) {
        actions.extend(state.actions());
    }

    fn next_state(&self, state: &World, action: Action) -> Option<World> {
        Some(state.after(action))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("no invariant is broken", |_, state: &World| state.violation().is_none())]
    }
}

#[test]
fn another_search_counts_the_same_states() {
    for script in [Script::CreateDelete, Script::TwoPeople] {
        let config = Config::new(script);
        let ours = search(config);
        let theirs = Peer(config).checker().spawn_bfs().join();
        theirs.assert_properties();
        assert_eq!(ours.states, theirs.unique_state_count());
    }
}
