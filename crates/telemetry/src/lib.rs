//! Metric names, the exporter, log set-up.
//!
//! In: what the tasks count. Out: Prometheus text and log lines. Names are one table of constants; labels come from
//! enums and object names of our own kinds only. Absent: HTTP serving, spans of single tasks.

pub mod metric;
pub mod silence;

use std::fmt;

pub use metrics_exporter_prometheus::PrometheusHandle as MetricsHandle;
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusRecorder};
use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogEncoding {
    /// One JSON object per line.
    Json,
    /// For people.
    Text,
}

/// Logging cannot be set up.
#[derive(Debug)]
pub struct LogError(String);

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the log level cannot be used: {}; use error, warn, info, debug, trace or a filter", self.0)
    }
}

impl std::error::Error for LogError {}

/// Starts logging to stderr.
///
/// # Errors
/// If the level is not a filter.
pub fn init_logs(level: &str, encoding: LogEncoding) -> Result<(), LogError> {
    // The election library says every three seconds that somebody else holds the office.
    let quiet = if level.contains("kube_leader_election") { "" } else { ",kube_leader_election=warn" };
    // The client library warns of answers that are no Status objects, which whoever made the request tells better.
    let client = if level.contains("kube_client") { "" } else { ",kube_client=error" };
    let filter =
        EnvFilter::try_new(format!("{level}{quiet}{client}")).map_err(|error| LogError(error.to_string()))?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A second start (in tests) keeps the first one's settings.
    let started = match encoding {
        LogEncoding::Json => {
            lines.json().flatten_event(true).with_current_span(true).with_span_list(false).try_init()
        }
        LogEncoding::Text => lines.try_init(),
    };
    if let Err(error) = started {
        tracing::debug!(%error, "logging was started before");
    }
    Ok(())
}

/// Seconds; from a fast push to an outage.
const LATENCY_BUCKETS: [f64; 14] =
    [0.005, 0.025, 0.1, 0.5, 1.0, 2.0, 5.0, 7.0, 10.0, 15.0, 30.0, 60.0, 300.0, 900.0];

/// Starts the recorder; the handle renders Prometheus text.
///
/// # Errors
/// If a recorder is installed already.
pub fn init_metrics() -> Result<MetricsHandle, BuildError> {
    let handle = builder()?.install_recorder()?;
    metric::describe();
    Ok(handle)
}

/// A recorder for one thread, for tests that count beside others (`metrics::set_default_local_recorder`).
///
/// # Errors
/// Never with our buckets; the library has an error for empty ones.
pub fn recorder() -> Result<PrometheusRecorder, BuildError> {
    Ok(builder()?.build_recorder())
}

fn builder() -> Result<PrometheusBuilder, BuildError> {
    PrometheusBuilder::new().set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &LATENCY_BUCKETS)
}
