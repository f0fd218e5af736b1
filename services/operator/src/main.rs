//! The `upriver` binary. All logic is in the library part; see `wiring`.

use clap::Parser;

fn main() -> std::process::ExitCode {
    upriver_operator::main(upriver_operator::config::Cli::parse())
}
