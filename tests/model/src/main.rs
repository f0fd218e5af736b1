//! The larger exploration of `make model`: bounds from the environment, one line a configuration, one JSON object last.

use std::process::ExitCode;

use upriver_model_check::{Config, Script, search};

fn number(name: &str, otherwise: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn main() -> ExitCode {
    let owners = number("MODEL_OWNERS", 3);
    let depth = number("MODEL_DEPTH", usize::MAX);
    let states = number("MODEL_STATES", 300_000);
    let losses = u32::try_from(number("MODEL_LOSSES", 0)).unwrap_or(1);
    let timeouts = u32::try_from(number("MODEL_TIMEOUTS", 1)).unwrap_or(1);
    let from_start = number("MODEL_FROM_START", 0) > 0;
    let only = std::env::var("MODEL_SCRIPT").unwrap_or_default();
    let (mut explored, mut deepest, mut violations) = (0, 0, 0);
    for script in Script::ALL.into_iter().filter(|script| format!("{script:?}").contains(&only)) {
        let config = Config { owners, depth, states, from_start, ..Config::new(script) };
        let outcome = search(config.with_faults(losses, timeouts));
        println!(
            "{script:?}: {} states, depth {}, complete {}, quiet {}, {:?}",
            outcome.states, outcome.depth, outcome.complete, outcome.quiet, outcome.took
        );
        if let Some(violation) = outcome.violation {
            println!("{violation}");
            violations += 1;
        }
        explored += outcome.states;
        deepest = deepest.max(outcome.depth);
    }
    println!(r#"{{"lane":"model","states":{explored},"depth":{deepest},"violations":{violations}}}"#);
    if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
