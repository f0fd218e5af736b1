//! When is a failed thing tried again? In: class, how often it failed in a row, the host's own minimum. Out: a delay.
//!
//! One row per [`FailureClass`]; a class without a row does not compile.

use upriver_model::FailureClass;

use crate::time::Dice;

/// What follows a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Try again after this many milliseconds.
    After(u64),
    /// Only a change of the subject (object, Secret, tip) or a person starts it again.
    OnChange,
    /// Never by this replica.
    Never,
}

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;

/// The schedule of a class. `failures` counts failures in a row, from 1.
#[must_use]
pub fn schedule(class: FailureClass, failures: u32, floor_s: Option<u64>, dice: &mut Dice) -> Retry {
    let n = failures.max(1);
    let delay = match class {
        FailureClass::Fenced => return Retry::Never,
        FailureClass::Config | FailureClass::Content => return Retry::OnChange,
        FailureClass::Superseded if n <= 5 => return Retry::After(dice.between(200, 2000)),
        FailureClass::Superseded => doubling(5_000, n - 5, MINUTE),
        FailureClass::Network => match n {
            1 => 2_000,
            2 => 5_000,
            3 => 15_000,
            _ => doubling(MINUTE, n - 3, HOUR),
        },
        FailureClass::RateLimited => doubling(MINUTE, n, HOUR),
        FailureClass::Auth if n <= 12 => 5 * MINUTE,
        FailureClass::Auth | FailureClass::Policy => HOUR,
        FailureClass::Storage => return Retry::After(doubling(1_000, n, 30_000)),
        FailureClass::Uncertain => 1_000,
        FailureClass::PostPush => doubling(1_000, n, MINUTE),
        FailureClass::Unknown if n > 8 => return Retry::OnChange,
        FailureClass::Unknown => doubling(MINUTE, n, HOUR),
        FailureClass::Internal if n > 3 => return Retry::OnChange,
        FailureClass::Internal => MINUTE,
    };
    let jittered = dice.between(delay - delay / 10, delay + delay / 10);
    // The host's own minimum is a floor, never softened by jitter.
    Retry::After(jittered.max(floor_s.unwrap_or(0).saturating_mul(1000)))
}

fn doubling(first: u64, n: u32, cap: u64) -> u64 {
    first.saturating_mul(1 << n.saturating_sub(1).min(20)).min(cap)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nominal(class: FailureClass, failures: u32) -> Retry {
        schedule(class, failures, None, &mut Dice::new(1))
    }

    #[test]
    fn every_class_has_a_schedule_for_every_count() {
        for class in FailureClass::ALL {
            for failures in [0, 1, 5, 40, u32::MAX] {
                if let Retry::After(delay) = nominal(class, failures) {
                    assert!((180..=66 * MINUTE).contains(&delay), "{class:?} {failures}: {delay}");
                }
            }
        }
    }

    #[test]
    fn network_failures_start_quickly_and_end_at_an_hour() {
        let within = |failures, nominal_delay: u64| {
            let Retry::After(delay) = nominal(FailureClass::Network, failures) else { return false };
            delay.abs_diff(nominal_delay) <= nominal_delay / 10
        };
        assert!(
            within(1, 2_000)
                && within(2, 5_000)
                && within(3, 15_000)
                && within(4, MINUTE)
                && within(5, 2 * MINUTE)
        );
        assert!(within(30, HOUR));
    }

    #[test]
    fn the_hosts_floor_is_never_undercut() {
        let Retry::After(delay) = schedule(FailureClass::RateLimited, 1, Some(600), &mut Dice::new(3)) else {
            panic!("rate limits are retried");
        };
        assert!(delay >= 600_000);
    }

    #[test]
    fn what_only_a_person_can_mend_is_not_hammered() {
        assert_eq!(nominal(FailureClass::Config, 1), Retry::OnChange);
        assert_eq!(nominal(FailureClass::Content, 1), Retry::OnChange);
        assert_eq!(nominal(FailureClass::Fenced, 1), Retry::Never);
        assert_eq!(nominal(FailureClass::Internal, 4), Retry::OnChange);
    }
}
