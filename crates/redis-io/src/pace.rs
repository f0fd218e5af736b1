//! When may the next connection be tried? Pure: time and dice come from the caller.

use std::time::{Duration, Instant};

/// Pause after the first failure; doubles with each further one.
const FIRST: Duration = Duration::from_millis(250);
/// Longest pause: a Redis that is back is found within it.
const LONGEST: Duration = Duration::from_secs(2);
/// Least time per connection of a round, which keeps a replica below two attempts per second however many servers and
/// Sentinels one round asks.
const PER_CONNECTION: Duration = Duration::from_millis(900);
/// A link that held for so long has made up for what went wrong before it.
const STEADY: Duration = Duration::from_secs(10);

/// Spaces the attempts of one process.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    failures: u32,
    not_before: Option<Instant>,
    connected: Option<Instant>,
}

impl Pace {
    /// How long to wait before the next round.
    pub(crate) fn delay(&self, now: Instant) -> Duration {
        self.not_before.map_or(Duration::ZERO, |moment| moment.saturating_duration_since(now))
    }

    /// True while the last round has failed.
    pub(crate) fn is_failing(&self) -> bool {
        self.failures > 0 && self.connected.is_none()
    }

    /// A round begins. It counts as failed until it has ended well, so that one whose caller goes away counts too.
    /// `dice` is in 0..1, here and below.
    pub(crate) fn begins(&mut self, now: Instant, dice: f64) {
        self.failures = self.failures.saturating_add(1);
        self.pause(now, PER_CONNECTION, dice);
    }

    /// The round has failed after it had tried `connections` of them.
    pub(crate) fn failed(&mut self, now: Instant, connections: u32, dice: f64) {
        self.pause(now, PER_CONNECTION * connections.max(1), dice);
    }

    /// A round led to a working link.
    pub(crate) fn connected(&mut self, now: Instant) {
        self.connected = Some(now);
        self.not_before = None;
    }

    /// A working link broke. The first look at what is there now comes soon, but not from all replicas at once.
    pub(crate) fn broke(&mut self, now: Instant, dice: f64) {
        if self.connected.take().is_some_and(|since| now.saturating_duration_since(since) >= STEADY) {
            self.failures = 0;
        }
        self.pause(now, Duration::ZERO, dice);
    }

    fn pause(&mut self, now: Instant, least: Duration, dice: f64) {
        let pause = FIRST.saturating_mul(1 << self.failures.min(10)).min(LONGEST).max(least);
        // Between 75 % and 125 %.
        self.not_before = Some(now + pause.mul_f64(0.75 + dice.clamp(0.0, 1.0) / 2.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds that a dead Redis sees within a minute.
    fn rounds(connections: u32, dice: f64) -> u32 {
        let start = Instant::now();
        let (mut pace, mut now, mut count) = (Pace::default(), start, 0);
        pace.connected(start);
        pace.broke(start, dice);
        while now.duration_since(start) < Duration::from_secs(60) {
            now += pace.delay(now);
            count += 1;
            pace.begins(now, dice);
            pace.failed(now, connections, dice);
        }
        count
    }

    #[test]
    fn a_dead_redis_sees_fewer_than_two_attempts_per_second() {
        for connections in [1, 2, 4, 8] {
            for dice in [0.0, 0.5, 1.0] {
                let attempts = rounds(connections, dice) * connections;
                assert!(attempts < 120, "{attempts} attempts in 60 s, {connections} per round");
            }
        }
    }

    #[test]
    fn a_link_that_breaks_at_once_again_and_again_is_not_tried_faster() {
        let start = Instant::now();
        let (mut pace, mut now, mut count) = (Pace::default(), start, 0);
        while now.duration_since(start) < Duration::from_secs(60) {
            now += pace.delay(now);
            count += 1;
            pace.begins(now, 0.0);
            pace.connected(now);
            now += Duration::from_millis(1);
            pace.broke(now, 0.0);
        }
        assert!(count < 120, "{count}");
    }

    #[test]
    fn a_link_that_held_is_looked_for_at_once() {
        let start = Instant::now();
        let mut pace = Pace::default();
        for _ in 0..10 {
            pace.begins(start, 1.0);
            pace.failed(start, 1, 1.0);
        }
        assert!(pace.delay(start) > Duration::from_secs(2));
        pace.connected(start);
        assert_eq!(pace.delay(start), Duration::ZERO);
        let later = start + Duration::from_secs(60);
        pace.broke(later, 1.0);
        assert!(pace.delay(later) < Duration::from_millis(320));
    }
}
