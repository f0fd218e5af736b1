//! What a template may cost. A template comes from a user, its data from whoever edits the cluster: together they may
//! neither hang a branch nor fill the memory of the process.

use crate::error::Fault;

/// Bytes of a template. The longest that anyone would read in a commit is far below.
pub(crate) const MAX_TEMPLATE: usize = 16 * 1024;
/// Bytes of a message. Git takes more, but its web front ends cut earlier.
pub(crate) const MAX_OUTPUT: usize = 64 * 1024;
/// Levels of parentheses and of `if`, `with`, `range` in a template.
pub(crate) const MAX_NESTING: usize = 40;
/// Levels while it runs, across templates that call each other. A level takes a few kilobytes of stack in a debug build,
/// and threads have two megabytes.
pub(crate) const MAX_DEPTH: usize = 120;
/// Steps: one for each node, each word and each byte that is written anywhere. Ten milliseconds or so, and no more than
/// this many bytes of intermediate texts.
pub(crate) const MAX_STEPS: u64 = 1_000_000;

/// What is left to spend.
#[derive(Debug)]
pub(crate) struct Meter {
    steps: u64,
}

impl Meter {
    pub(crate) fn new() -> Self {
        Self { steps: MAX_STEPS }
    }

    /// Takes away so many steps.
    pub(crate) fn spend(&mut self, steps: usize) -> Result<(), Fault> {
        let steps = u64::try_from(steps).unwrap_or(u64::MAX);
        self.steps = self.steps.checked_sub(steps).ok_or_else(|| {
            Fault::limit("the template takes too many steps: range over less, or print less")
        })?;
        Ok(())
    }
}

/// A text that is being written.
#[derive(Debug)]
pub(crate) struct Sink<'m> {
    pub(crate) text: String,
    pub(crate) meter: &'m mut Meter,
}

impl<'m> Sink<'m> {
    pub(crate) fn new(meter: &'m mut Meter) -> Self {
        Self { text: String::new(), meter }
    }

    pub(crate) fn put(&mut self, piece: &str) -> Result<(), Fault> {
        self.reserve(piece.len())?;
        self.text.push_str(piece);
        Ok(())
    }

    pub(crate) fn put_char(&mut self, character: char) -> Result<(), Fault> {
        self.put(character.encode_utf8(&mut [0; 4]))
    }

    pub(crate) fn repeat(&mut self, character: char, times: usize) -> Result<(), Fault> {
        self.reserve(times.saturating_mul(character.len_utf8()))?;
        self.text.extend(std::iter::repeat_n(character, times));
        Ok(())
    }

    fn reserve(&mut self, bytes: usize) -> Result<(), Fault> {
        if self.text.len().saturating_add(bytes) > MAX_OUTPUT {
            return Err(Fault::limit(format!("the text becomes longer than {MAX_OUTPUT} bytes")));
        }
        self.meter.spend(bytes)
    }
}
