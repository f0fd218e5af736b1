//! Has the thing we wait for happened, and if not, what was seen last?
//!
//! In: a probe that looks once. Out: what it found, or a panic (or error) that names the wait and the last sight.
//! This is the only module that sleeps: tests wait for states, never for durations.

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// Pause between two looks. Short, because most waits end within a few of them.
const POLL: Duration = Duration::from_millis(20);

/// What a probe returns: found, or not yet with something worth telling.
pub trait Sight {
    /// What is handed to the caller once it is there.
    type Found;
    /// The value, or the text to print should the wait end without one.
    ///
    /// # Errors
    /// The description of what was seen instead.
    fn look(self) -> Result<Self::Found, String>;
}

impl<T> Sight for Option<T> {
    type Found = T;
    fn look(self) -> Result<T, String> {
        self.ok_or_else(|| "nothing".to_owned())
    }
}

impl<T, E: Debug> Sight for Result<T, E> {
    type Found = T;
    fn look(self) -> Result<T, String> {
        self.map_err(|seen| format!("{seen:?}"))
    }
}

/// A wait that ended without its result.
#[derive(Debug, thiserror::Error)]
#[error("waited {:.1} s for {what}; last seen: {last_seen}", waited.as_secs_f64())]
pub struct TimedOut {
    /// What was waited for.
    pub what: String,
    /// How long.
    pub waited: Duration,
    /// What the last probe saw.
    pub last_seen: String,
}

/// Looks again and again until `probe` finds something. A probe returns `Option<T>`, or `Result<T, E>` where the
/// error says what was seen instead.
///
/// # Panics
/// With the name of the wait and the last sight when `timeout` has passed.
pub async fn eventually<S, F>(what: &str, timeout: Duration, probe: F) -> S::Found
where
    S: Sight,
    F: AsyncFnMut() -> S,
{
    match try_eventually(what, timeout, probe).await {
        Ok(found) => found,
        Err(late) => panic!("{late}"),
    }
}

/// As [`eventually`], for callers that have more to say about a failure.
///
/// # Errors
/// [`TimedOut`] when `timeout` has passed.
pub async fn try_eventually<S, F>(what: &str, timeout: Duration, mut probe: F) -> Result<S::Found, TimedOut>
where
    S: Sight,
    F: AsyncFnMut() -> S,
{
    let start = Instant::now();
    let mut last_seen = "no probe has returned".to_owned();
    loop {
        let left = timeout.saturating_sub(start.elapsed());
        // A probe may hang, for example on a paused server: it gets what is left of the time and not more.
        match tokio::time::timeout(left.max(POLL), probe()).await.map(Sight::look) {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(seen)) => last_seen = seen,
            Err(_) => last_seen = format!("a probe that hung, before it: {last_seen}"),
        }
        if start.elapsed() >= timeout {
            return Err(TimedOut { what: what.to_owned(), waited: start.elapsed(), last_seen });
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Checks that a state lasts: `probe` must find something at every look during `span`. Returns the last find.
///
/// # Panics
/// At the first look that finds nothing.
pub async fn holds_for<S, F>(what: &str, span: Duration, mut probe: F) -> S::Found
where
    S: Sight,
    F: AsyncFnMut() -> S,
{
    let start = Instant::now();
    loop {
        let found = match probe().await.look() {
            Ok(found) => found,
            Err(seen) => {
                panic!("{what} did not last: after {:.1} s saw {seen}", start.elapsed().as_secs_f64())
            }
        };
        if start.elapsed() >= span {
            return found;
        }
        tokio::time::sleep(POLL).await;
    }
}

/// As [`try_eventually`] without a runtime, for drops and other places that cannot await.
pub fn until_blocking<T>(timeout: Duration, mut probe: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        if let Some(found) = probe() {
            return Some(found);
        }
        if start.elapsed() >= timeout {
            return None;
        }
        std::thread::sleep(POLL.min(timeout));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wait_returns_what_the_probe_found() {
        let mut looks = 0;
        let found = eventually("the third look", Duration::from_secs(5), async || {
            looks += 1;
            (looks == 3).then_some("third")
        })
        .await;
        assert_eq!(found, "third");
    }

    #[tokio::test]
    async fn a_wait_that_fails_names_itself_and_the_last_sight() {
        let late = try_eventually("a red light", Duration::from_millis(50), async || Err::<(), _>("green"))
            .await
            .expect_err("the light is never red");
        assert_eq!(late.what, "a red light");
        assert_eq!(late.last_seen, "\"green\"");
        assert!(late.to_string().contains("for a red light; last seen: \"green\""), "{late}");
    }

    #[tokio::test]
    async fn a_probe_that_hangs_does_not_outlast_the_wait() {
        let late = try_eventually("an answer", Duration::from_millis(50), std::future::pending::<Option<()>>)
            .await
            .expect_err("the probe never answers");
        assert!(late.last_seen.contains("hung"), "{late}");
    }
}
