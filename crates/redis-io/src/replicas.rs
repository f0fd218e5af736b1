//! Do replicas hold what was written? Asked by `WAIT`, on the connection that wrote, because it counts that one's writes.
//!
//! It makes a loss by failover rarer and tells when it is near; it does not prevent one. So too few replicas are counted and
//! said, and the frame stays appended: what a failover loses is found by GAP and LOST.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use redis::{RedisResult, aio::MultiplexedConnection};
use upriver_telemetry::metric;

use crate::options::WaitOptions;

/// One warning in this time for all branches together.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// The wish, and when its failure was told last.
pub(crate) struct Replicas {
    wait: WaitOptions,
    warned: Mutex<Option<Instant>>,
}

impl Replicas {
    pub(crate) fn new(wait: WaitOptions) -> Self {
        metrics::counter!(metric::WAIT_SHORT).absolute(0);
        Self { wait, warned: Mutex::new(None) }
    }

    /// Number of replicas that are waited for.
    pub(crate) fn wanted(&self) -> u32 {
        self.wait.replicas
    }

    /// Waits until as many replicas as wanted hold the writes of this connection, or the time is over.
    pub(crate) async fn confirm(&self, connection: &mut MultiplexedConnection) -> RedisResult<()> {
        if self.wait.replicas == 0 {
            return Ok(());
        }
        // 0 would mean "for ever" to the server.
        let millis = u64::try_from(self.wait.timeout.as_millis()).unwrap_or(u64::MAX).max(1);
        let holding: u32 =
            redis::cmd("WAIT").arg(self.wait.replicas).arg(millis).query_async(connection).await?;
        if holding < self.wait.replicas {
            metrics::counter!(metric::WAIT_SHORT).increment(1);
            if self.is_time_to_warn(Instant::now()) {
                let wanted = self.wait.replicas;
                tracing::warn!(
                    holding,
                    wanted,
                    millis,
                    "too few replicas of Redis have confirmed the journal in time; a failover now could lose its end"
                );
            }
        }
        Ok(())
    }

    fn is_time_to_warn(&self, now: Instant) -> bool {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        let due = warned.is_none_or(|last| now.saturating_duration_since(last) >= WARN_EVERY);
        if due {
            *warned = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_a_minute_apart() {
        let replicas = Replicas::new(WaitOptions::default());
        let start = Instant::now();
        let told: Vec<u64> =
            (0..130).filter(|s| replicas.is_time_to_warn(start + Duration::from_secs(*s))).collect();
        assert_eq!(told, [0, 60, 120]);
    }
}
