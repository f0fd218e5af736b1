//! /healthz, /readyz and /metrics.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use upriver_engine::branch::JournalState;
use upriver_model::BranchKey;
use upriver_telemetry::MetricsHandle as Handle;

use crate::control::snapshot::OwnedBranch;

/// What readiness looks at.
#[derive(Clone)]
pub(crate) struct Health {
    /// Every kind was listed and a plan was made.
    pub(crate) planned: watch::Receiver<bool>,
    /// Our replica id while a session lasts.
    pub(crate) replica: watch::Receiver<String>,
    /// The store's check at the start.
    pub(crate) start: watch::Receiver<StoreStart>,
    /// Views of the branches that this replica owns.
    pub(crate) owned: Arc<Mutex<BTreeMap<BranchKey, OwnedBranch>>>,
}

/// How far the check of the store at the start is. Passed once, it stays passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreStart {
    /// Redis is away, for this reason; nothing else has begun.
    Waiting(String),
    /// It answered, and keeps what it is given.
    Passed,
}

/// An address cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {reason}; choose another address")]
pub(crate) struct ListenError {
    address: SocketAddr,
    reason: std::io::Error,
}

pub(crate) async fn listen(address: SocketAddr) -> Result<TcpListener, ListenError> {
    TcpListener::bind(address).await.map_err(|reason| ListenError { address, reason })
}

/// Binds both servers; what it returns runs until `stop`.
pub(crate) async fn serve(
    health: Health,
    health_address: SocketAddr,
    metrics: Option<(SocketAddr, Handle)>,
    stop: CancellationToken,
) -> Result<impl Future<Output = ()>, ListenError> {
    let probes = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(move || readyz(health.clone())));
    let probe_listener = listen(health_address).await?;
    let metrics = match metrics {
        Some((address, handle)) => {
            let router = Router::new().route(
                "/metrics",
                get(move || async move {
                    upriver_telemetry::silence::refresh();
                    handle.render()
                }),
            );
            Some((listen(address).await?, router))
        }
        None => None,
    };
    Ok(async move {
        let quiet = |result: std::io::Result<()>| {
            if let Err(error) = result {
                tracing::error!(%error, "an HTTP server ended");
            }
        };
        let probes =
            axum::serve(probe_listener, probes).with_graceful_shutdown(stop.clone().cancelled_owned());
        match metrics {
            Some((listener, router)) => {
                let metrics = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned());
                let (first, second) = tokio::join!(
                    std::future::IntoFuture::into_future(probes),
                    std::future::IntoFuture::into_future(metrics)
                );
                quiet(first);
                quiet(second);
            }
            None => quiet(probes.await),
        }
    })
}

/// Ready means: can do its part. Not: owns something. A store that goes away later is named in the body alone: all replicas
/// see the same Redis, and would leave their Service together.
async fn readyz(health: Health) -> (StatusCode, String) {
    let planned = *health.planned.borrow();
    let replica = health.replica.borrow().clone();
    let store = health.store();
    let body = format!("planned: {planned}\nreplica: {replica}\nstore: {store}\n");
    if planned && !replica.is_empty() {
        (StatusCode::OK, body)
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, body)
    }
}

impl Health {
    /// `ok`, or `degraded, <reason>`, in one line.
    fn store(&self) -> String {
        if let StoreStart::Waiting(reason) = &*self.start.borrow() {
            return degraded(&format!("waiting for Redis: {reason}"));
        }
        let owned = self.owned.lock().unwrap_or_else(PoisonError::into_inner);
        let away: Vec<&OwnedBranch> =
            owned.values().filter(|branch| branch.view.journal == JournalState::Unavailable).collect();
        let Some(first) = away.first() else { return "ok".to_owned() };
        let reason = first.view.failure.as_ref().map_or("", |failure| &failure.message);
        degraded(&format!("{} of {} journals: {reason}", away.len(), owned.len()))
    }
}

fn degraded(reason: &str) -> String {
    let line: Vec<&str> = reason.split_whitespace().collect();
    format!("degraded, {}", line.join(" "))
}

#[cfg(test)]
mod tests {
    use upriver_model::{Failure, FailureClass};

    use super::*;

    fn health(start: StoreStart, journals: &[JournalState]) -> Health {
        let owned = journals.iter().enumerate().map(|(index, journal)| {
            let mut branch = OwnedBranch::default();
            branch.view.journal = *journal;
            branch.view.failure = Some(Failure::new(FailureClass::Storage, "LOADING\nthe dataset"));
            (BranchKey::new(index.to_string()), branch)
        });
        Health {
            planned: watch::channel(true).1,
            replica: watch::channel("a".to_owned()).1,
            start: watch::channel(start).1,
            owned: Arc::new(Mutex::new(owned.collect())),
        }
    }

    #[tokio::test]
    async fn a_store_that_goes_away_is_named_and_costs_no_readiness() {
        use JournalState::{Full, Open, Unavailable};
        let body = async |journals: &[JournalState]| readyz(health(StoreStart::Passed, journals)).await;
        let rest = "planned: true\nreplica: a\nstore: ";
        let ok = (StatusCode::OK, format!("{rest}ok\n"));
        assert_eq!(body(&[]).await, ok);
        assert_eq!(body(&[Open, Full]).await, ok, "a full journal is Git's fault");
        let away = format!("{rest}degraded, 2 of 3 journals: LOADING the dataset\n");
        assert_eq!(body(&[Open, Unavailable, Unavailable]).await, (StatusCode::OK, away));
    }

    #[tokio::test]
    async fn a_start_without_a_store_is_not_ready_and_says_why() {
        let mut health = health(StoreStart::Waiting("refused".to_owned()), &[]);
        health.planned = watch::channel(false).1;
        let (status, body) = readyz(health).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(body.contains("store: degraded, waiting for Redis: refused\n"), "{body}");
    }
}
