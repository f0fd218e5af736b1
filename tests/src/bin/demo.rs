//! `upriver-demo`. All logic is in the library part; see `demo`.

use clap::Parser;

fn main() -> std::process::ExitCode {
    upriver_tests::demo::main(&upriver_tests::demo::Cli::parse())
}
