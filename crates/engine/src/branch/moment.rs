//! A branch owner at one moment, for an exhaustive search: which of its copies are the same?
//!
//! In: an owner that is stepped at one and the same tick. Out: a hash of what decides its further behaviour. Time that passes
//! moves its deadlines towards that tick instead, so owners that differ only in when they began are equal. Absent: what is
//! only shown ([`super::BranchView`]), and the dice, which the search throws anew before every step.

use std::fmt::{self, Write as _};
use std::hash::Hasher;

use upriver_model::CommitId;

use super::round::Stage;
use super::{Branch, Phase};
use crate::time::{Dice, Tick};

/// Hashes the text of a value without keeping it.
struct TextHasher<'a, H>(&'a mut H);

impl<H: Hasher> fmt::Write for TextHasher<'_, H> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

impl Branch {
    /// Jitter must not tell owners apart: every step of a search begins with the same dice.
    pub fn throw_anew(&mut self) {
        self.dice = Dice::new(0);
    }

    /// As if so much time had passed. The idle look at the branch is left out, see [`Branch::look_now`].
    pub fn let_pass(&mut self, now: Tick, milliseconds: u64) {
        // A deadline in the past is due, no matter since when; an age goes on to grow.
        let nearer = |at: &mut Tick| at.0 = at.0.saturating_sub(milliseconds).max(now.0);
        match &mut self.phase {
            Phase::Down { until } | Phase::FetchFailed { until: Some(until) } => nearer(until),
            Phase::FetchFailed { until: None }
            | Phase::Proving
            | Phase::Adopting
            | Phase::Loading
            | Phase::Fetching
            | Phase::Running
            | Phase::Ended => {}
        }
        match self.round.as_mut().map(|round| &mut round.stage) {
            Some(Stage::Waiting { until: Some(until) }) => nearer(until),
            Some(Stage::Blocked { since, next, .. }) => {
                since.0 = since.0.saturating_sub(milliseconds);
                nearer(next);
            }
            Some(
                Stage::Waiting { until: None }
                | Stage::Reserving
                | Stage::Fetching
                | Stage::Building
                | Stage::Proving
                | Stage::Intending
                | Stage::Pushing
                | Stage::Reading
                | Stage::Settling,
            )
            | None => {}
        }
        self.windows.let_pass(milliseconds);
    }

    /// The next idle look at the branch is due.
    pub fn look_now(&mut self, now: Tick) {
        self.next_poll = now;
    }

    /// True once the journal is loaded and the branch was read.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.phase == Phase::Running
    }

    /// The tip that an idle look would expect; `None` if it is not known.
    #[must_use]
    pub fn known_tip(&self) -> Option<Option<&CommitId>> {
        self.tip.as_ref().map(|(base, _)| base.expected_old())
    }

    /// Feeds everything that decides what the owner does next. A new field does not compile before it is judged here.
    pub fn fingerprint(&self, state: &mut impl Hasher) {
        let Self {
            options,
            dice: _,
            out: _,
            phase,
            life,
            store_failures,
            incarnation,
            plans: _,
            ledger,
            windows,
            queue,
            scopes,
            watches,
            pending_frames,
            pending_replays,
            clears,
            round,
            open_attempts,
            tip,
            last_settled,
            suspicious,
            subtrees,
            refused: _,
            loaded,
            next_entry,
            next_attempt,
            lost,
            next_poll,
            git_failures,
            losses,
            handled,
            taken_over,
            failure: _,
            outcome: _,
            configured,
            draining,
            full,
        } = self;
        let numbers = (life, store_failures, next_entry, next_attempt, git_failures, losses);
        let flags = (options.clean, lost, taken_over, configured, draining, full);
        let streams = (scopes, watches, pending_frames, pending_replays, clears);
        let tips = (tip, last_settled, suspicious, subtrees, open_attempts);
        let work = (ledger, windows, queue, round, loaded, handled);
        let text = (options.epoch, phase, next_poll, incarnation, numbers, flags, streams, tips, work);
        // Writing into a hasher cannot fail.
        let _ = write!(TextHasher(state), "{text:?}");
    }
}
