//! Hears of claims that are written free, so that a hand-over does not wait for the next renewal. Only hints: the look that
//! follows decides, and without any the claim is seen two seconds later.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio::sync::Notify;
use upriver_kube_io::lease::Leases;

/// Pause after a watch that ended.
const PAUSE: Duration = Duration::from_secs(1);

/// Follows claims for the session `me`, until it is dropped. A claim that is meant for somebody else is left to them.
pub(super) async fn follow(claims: Leases, me: String, look: Arc<Notify>) {
    loop {
        match claims.freed().await {
            Ok(freed) => {
                let mut freed = std::pin::pin!(freed);
                while let Some(claim) = freed.next().await {
                    if claim.successor.is_none_or(|successor| successor == me) {
                        look.notify_one();
                    }
                }
            }
            Err(error) => tracing::debug!(%error, "claims cannot be followed; looks at every renewal remain"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}
