//! Holds the housekeeper's office, if it can. Two for a moment are harmless: all that depends on it is guarded by
//! resourceVersion.

use std::time::Duration;

use kube::Config;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use upriver_kube_io::election::Election;

/// How long a silent housekeeper keeps its office.
const TTL: Duration = Duration::from_secs(15);
/// How often the office is renewed or asked for.
const ROUND: Duration = Duration::from_secs(3);

/// Runs until `stop`; the channel says whether we are it.
pub(crate) async fn run(
    config: Config,
    namespace: String,
    holder: String,
    elected: watch::Sender<bool>,
    stop: CancellationToken,
) {
    let election = match Election::new(config, &namespace, "upriver-housekeeper", &holder, TTL) {
        Ok(election) => election,
        Err(error) => {
            tracing::error!(%error, "no client for the housekeeper's election; providers get no status from this replica");
            return;
        }
    };
    loop {
        let won = election.round().await;
        let changed = elected.send_if_modified(|current| std::mem::replace(current, won) != won);
        if changed {
            tracing::info!(housekeeper = won, "housekeeper");
        }
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(ROUND) => {}
        }
    }
    election.step_down().await;
}
