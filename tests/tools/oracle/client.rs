//! Asks the programs of this folder. In: one JSON value per question. Out: theirs. Tests include this file by its path;
//! it is no crate, because everything here serves tests of two crates only.
//!
//! `UPRIVER_ORACLES` names the folder that `tests/tools/oracles.sh` made; without it the script is run, which builds what
//! is missing. A missing oracle fails the test; nothing is ever skipped.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRng, TestRunner};
use serde_json::Value;

/// What one question may take. They take milliseconds; a question that never ends fails its test by name.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running oracle. It ends with its stdin, so it cannot outlive the test.
pub struct Oracle {
    child: Child,
    stdin: Option<ChildStdin>,
    answers: mpsc::Receiver<String>,
}

#[allow(dead_code, reason = "each test binary asks its own oracles")]
impl Oracle {
    /// The Go program; `question` is `yaml` or `template`.
    pub fn go(question: &str) -> Self {
        Self::start(Command::new(folder().join("oracle")).arg(question))
    }

    /// PyYAML.
    pub fn pyyaml() -> Self {
        Self::start(
            Command::new(folder().join("venv/bin/python")).arg("-B").arg(tools().join("oracle/pyyaml.py")),
        )
    }

    fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let (answer, answers) = mpsc::channel();
        thread::spawn(move || {
            for line in stdout.lines() {
                if answer.send(line.expect("UTF-8")).is_err() {
                    return;
                }
            }
        });
        Self { child, stdin, answers }
    }

    /// The answer to one question. The oracle reads a whole line before it answers, so neither side can block the other.
    pub fn ask(&mut self, question: &Value) -> Value {
        let mut line = question.to_string();
        line.push('\n');
        let stdin = self.stdin.as_mut().expect("open until the drop");
        stdin.write_all(line.as_bytes()).expect("the oracle listens; its stderr says why not");
        let answer = self.answers.recv_timeout(PATIENCE).unwrap_or_else(|error| {
            let _may_have_ended = self.child.kill();
            panic!("the oracle does not answer ({error}) to {question}")
        });
        serde_json::from_str(&answer)
            .unwrap_or_else(|error| panic!("the oracle answered {answer:?} ({error}) to {question}"))
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ended = self.child.wait();
    }
}

/// Runs the test on random values, the same in every run: whether a commit is good must not depend on the day. With
/// `UPRIVER_ORACLE_FACTOR` they are others each time, and so many times as many, for a long search.
#[allow(dead_code, reason = "not every test binary makes random cases")]
pub fn search<S: Strategy>(cases: u32, strategy: &S, test: impl Fn(S::Value) -> Result<(), TestCaseError>)
where
    S::Value: std::fmt::Debug,
{
    let factor: Option<u32> =
        std::env::var("UPRIVER_ORACLE_FACTOR").ok().map(|text| text.parse().expect("a number"));
    let cases = cases * factor.unwrap_or(1);
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) };
    let mut runner = match factor {
        None => {
            let rng = TestRng::deterministic_rng(config.rng_algorithm);
            TestRunner::new_with_rng(config, rng)
        }
        Some(_) => TestRunner::new(config),
    };
    if let Err(error) = runner.run(strategy, test) {
        panic!("{error}");
    }
}

fn tools() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/tools")
}

fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        if let Some(folder) = std::env::var_os("UPRIVER_ORACLES") {
            return folder.into();
        }
        let script = tools().join("oracles.sh");
        let output = Command::new(&script)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .unwrap_or_else(|error| panic!("{}: {error}", script.display()));
        assert!(output.status.success(), "tests/tools/oracles.sh failed; its output above says why");
        let printed = String::from_utf8(output.stdout).expect("a path");
        PathBuf::from(printed.lines().last().expect("the script prints a folder"))
    })
}
