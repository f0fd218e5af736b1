//! /healthz, /readyz and /metrics.

use std::net::SocketAddr;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use upriver_telemetry::MetricsHandle as Handle;

/// What readiness looks at.
#[derive(Clone)]
pub(crate) struct Health {
    /// Every kind was listed and a plan was made.
    pub(crate) planned: watch::Receiver<bool>,
    /// Our replica id while a session lasts.
    pub(crate) replica: watch::Receiver<String>,
}

/// An address cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {reason}; choose another address")]
pub(crate) struct ListenError {
    address: SocketAddr,
    reason: std::io::Error,
}

async fn listen(address: SocketAddr) -> Result<TcpListener, ListenError> {
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

/// Ready means: can do its part. Not: owns something.
async fn readyz(health: Health) -> (StatusCode, String) {
    let planned = *health.planned.borrow();
    let replica = health.replica.borrow().clone();
    let body = format!("planned: {planned}\nreplica: {replica}\n");
    if planned && !replica.is_empty() {
        (StatusCode::OK, body)
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, body)
    }
}
