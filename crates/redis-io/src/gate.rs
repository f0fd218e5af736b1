//! How often may this process ask a Redis that is away?
//!
//! In: attempts to connect, of any number of branches. Out: their results. While the server answers, everybody passes.
//! After a failure one attempt at a time goes through, at most one per [`PACE`]; whoever comes meanwhile gets what that one
//! found, without a connection of its own. So an outage costs a fixed rate of attempts however many branches wait, and the
//! first attempt that succeeds lets all of them in. Absent: when a branch tries again; each has its own schedule.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;
use upriver_store::StoreError;

/// Shortest time between two attempts of a process while the server is away.
pub(crate) const PACE: Duration = Duration::from_secs(1);

/// Shared by everything that connects.
#[derive(Debug)]
pub(crate) struct Gate {
    open: AtomicBool,
    /// Held by the attempt under way while the gate is closed.
    last: Mutex<Option<Attempt>>,
}

#[derive(Debug)]
struct Attempt {
    at: Instant,
    reason: String,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self { open: AtomicBool::new(true), last: Mutex::new(None) }
    }

    /// A connection broke: the next attempt finds out whether the server is away, before the others try.
    pub(crate) fn suspect(&self) {
        self.open.store(false, Ordering::Release);
    }

    fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Connects by `attempt`, now, after the one under way, or not at all.
    ///
    /// # Errors
    /// Those of `attempt`; without a try, [`StoreError::Unavailable`] with the reason of the last one.
    pub(crate) async fn pass<T>(
        &self,
        attempt: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        if self.is_open() {
            return self.pass_openly(attempt).await;
        }
        let mut last = self.last.lock().await;
        if self.is_open() {
            drop(last);
            return self.pass_openly(attempt).await;
        }
        if let Some(last) = last.as_ref().filter(|last| last.at.elapsed() < PACE) {
            return Err(StoreError::Unavailable { reason: last.reason.clone() });
        }
        // Already now: an attempt that is given up half-way was one, too.
        *last = Some(Attempt { at: Instant::now(), reason: "an attempt was given up".to_owned() });
        let result = attempt.await;
        match unavailable(&result) {
            Some(reason) => *last = Some(Attempt { at: Instant::now(), reason }),
            None => {
                *last = None;
                self.open.store(true, Ordering::Release);
            }
        }
        result
    }

    async fn pass_openly<T>(
        &self,
        attempt: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let result = attempt.await;
        if let Some(reason) = unavailable(&result) {
            self.suspect();
            // Taken means that another attempt is under way, which knows better.
            if let Ok(mut last) = self.last.try_lock() {
                *last = Some(Attempt { at: Instant::now(), reason });
            }
        }
        result
    }
}

/// Why nothing is known; any other error is an answer.
fn unavailable<T>(result: &Result<T, StoreError>) -> Option<String> {
    match result {
        Err(StoreError::Unavailable { reason }) => Some(reason.clone()),
        Ok(_) | Err(StoreError::Fenced { .. } | StoreError::Lost { .. } | StoreError::Unusable { .. }) => {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// A server that counts who asks it.
    #[derive(Default)]
    struct Server {
        up: AtomicBool,
        asked: AtomicUsize,
    }

    impl Server {
        async fn answer(&self) -> Result<(), StoreError> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            if self.up.load(Ordering::SeqCst) {
                return Ok(());
            }
            Err(StoreError::Unavailable { reason: "LOADING".to_owned() })
        }
    }

    async fn all_try(gate: &Arc<Gate>, server: &Arc<Server>, branches: usize) -> usize {
        let tries = (0..branches).map(|_| {
            let (gate, server) = (gate.clone(), server.clone());
            tokio::spawn(async move { gate.pass(server.answer()).await })
        });
        let mut passed = 0;
        for task in tries.collect::<Vec<_>>() {
            match task.await.expect("no panic") {
                Ok(()) => passed += 1,
                Err(error) => assert!(error.to_string().contains("LOADING"), "{error}"),
            }
        }
        passed
    }

    #[tokio::test]
    async fn many_branches_ask_a_server_that_is_away_once_per_pace_and_all_pass_when_it_is_back() {
        let (gate, server) = (Arc::new(Gate::new()), Arc::new(Server::default()));
        gate.suspect();
        let begun = Instant::now();
        for _ in 0..40 {
            assert_eq!(all_try(&gate, &server, 30).await, 0);
        }
        let most = begun.elapsed().as_secs() + 1;
        let asked = server.asked.load(Ordering::SeqCst) as u64;
        assert!((1..=most).contains(&asked), "1200 tries, {asked} attempts, at most {most}");

        server.up.store(true, Ordering::SeqCst);
        let passed = upriver_testkit::eventually("everybody passes", Duration::from_secs(10), async || {
            let passed = all_try(&gate, &server, 30).await;
            if passed == 30 { Ok(passed) } else { Err(passed) }
        });
        assert_eq!(passed.await, 30);
    }

    #[tokio::test]
    async fn the_first_who_finds_the_server_back_lets_in_those_who_wait_for_it() {
        let (gate, server) = (Arc::new(Gate::new()), Arc::new(Server::default()));
        server.up.store(true, Ordering::SeqCst);
        gate.suspect();
        assert_eq!(all_try(&gate, &server, 30).await, 30);
    }

    #[tokio::test]
    async fn an_answer_that_says_no_is_an_answer() {
        let gate = Gate::new();
        gate.suspect();
        let fenced = gate.pass(async { Err::<(), _>(StoreError::Fenced { stored: 7 }) }).await;
        assert_eq!(fenced, Err(StoreError::Fenced { stored: 7 }));
        assert!(gate.is_open());
    }

    #[tokio::test]
    async fn an_attempt_that_is_given_up_counts() {
        let (gate, server) = (Gate::new(), Server::default());
        gate.suspect();
        let hung = gate.pass(std::future::pending::<Result<(), StoreError>>());
        assert!(tokio::time::timeout(Duration::from_millis(10), hung).await.is_err());
        assert!(gate.pass(server.answer()).await.is_err());
        assert_eq!(server.asked.load(Ordering::SeqCst), 0, "too soon");
    }
}
