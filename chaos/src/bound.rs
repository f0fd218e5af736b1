//! What if the lane itself breaks, or waits for something that never comes?
//!
//! In: the lane as a task, and its word on what it does and until when. Out: its report, or the last one that it told with
//! a mishap added and a line for people. So a run ends in bounded time and with a verdict, whatever hangs: a call to a
//! server, a `git`, a lock.

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::Failure;
use crate::report::Report;

/// What the lane does, and until when at the latest.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    /// Figures up to now.
    pub(crate) report: Report,
    /// For people.
    pub(crate) doing: String,
    /// Later than this it hangs.
    pub(crate) until: Instant,
}

/// Waits for the lane, as long as it keeps its word.
pub(crate) async fn supervise(
    mut lane: JoinHandle<Result<Report, Failure>>,
    progress: watch::Receiver<Progress>,
) -> Report {
    let why = loop {
        let until = progress.borrow().until;
        tokio::select! {
            ended = &mut lane => match ended {
                Ok(Ok(report)) => return report,
                Ok(Err(error)) => break error.to_string(),
                // What it panicked about was printed when it did.
                Err(panicked) => break panicked.to_string(),
            },
            // It may have got on meanwhile.
            () = sleep_until(until) => if progress.borrow().until <= Instant::now() {
                break "it took longer than it may".to_owned();
            },
        }
    };
    let Progress { mut report, doing, .. } = progress.borrow().clone();
    println!("GAVE UP: seed {}, {doing}: {why}", report.seed);
    report.mishaps += 1;
    report
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn progress(within: Duration) -> (watch::Sender<Progress>, watch::Receiver<Progress>) {
        let report = Report { edits: 5, ..Report::new(1) };
        watch::channel(Progress { report, doing: "cycle 3".to_owned(), until: Instant::now() + within })
    }

    #[tokio::test]
    async fn a_lane_that_hangs_is_given_up_with_what_it_had_told() {
        let (_told, seen) = progress(Duration::from_millis(10));
        let report = supervise(tokio::spawn(std::future::pending()), seen).await;
        assert_eq!((report.edits, report.mishaps), (5, 1));
    }

    #[tokio::test]
    async fn a_lane_that_breaks_is_no_success() {
        let (_told, seen) = progress(Duration::from_secs(60));
        assert_eq!(supervise(tokio::spawn(async { Err("no port".into()) }), seen.clone()).await.mishaps, 1);
        assert_eq!(supervise(tokio::spawn(async { panic!("on purpose") }), seen).await.mishaps, 1);
    }

    #[tokio::test]
    async fn a_lane_that_gets_on_has_its_time_anew() {
        let (told, seen) = progress(Duration::ZERO);
        told.send_modify(|progress| progress.until = Instant::now() + Duration::from_secs(60));
        let lane = tokio::spawn(async { Ok(Report { commits: 9, ..Report::new(1) }) });
        let report = supervise(lane, seen).await;
        assert_eq!((report.commits, report.mishaps), (9, 0));
    }
}
