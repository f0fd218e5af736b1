//! CommitRequest.

use upriver_api::condition::{Finding, Gate, trio, types};
use upriver_api::{ConditionStatus, Reason};

/// How long a target has been waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::control) enum Patience {
    /// It may still come.
    Waiting,
    /// As long as one is waited for.
    Over,
}

/// A request whose target does not exist: waited for, then failed for good.
pub(in crate::control) fn missing_target(target: &str, patience: Patience) -> Vec<Finding> {
    let (gate, pushed) = match patience {
        Patience::Over => {
            let message = format!(
                "GitTarget {target} does not exist, and did not appear within 30 s: create it, then make another \
                 CommitRequest"
            );
            let pushed = (ConditionStatus::False, Reason::FinalizeFailed);
            (Gate::blocked(Reason::FinalizeFailed, message), pushed)
        }
        Patience::Waiting => {
            let message =
                format!("GitTarget {target} does not exist; it is waited for, 30 s at most: create it");
            let pushed = (ConditionStatus::Unknown, Reason::WaitingForCloseDelay);
            (Gate::waiting(Reason::WaitingForCloseDelay, message), pushed)
        }
    };
    let captured = "no source of authors is set up in this release: nobody is named";
    let author = Finding::new(
        types::AUTHOR_ATTRIBUTED,
        ConditionStatus::False,
        Reason::AuthorCaptureDisabled,
        captured,
    );
    let pushed = Finding::new(types::PUSHED, pushed.0, pushed.1, "no commit was made");
    [author, pushed].into_iter().chain(trio(&[gate], "")).collect()
}
