//! The housekeeper: elected by `kube-leader-election`, behind a client that makes its patches conditional.
//!
//! The library takes and renews by a merge patch without a resourceVersion, so two candidates can both be told that they
//! won. The layer here remembers the version that the library's GET returned and puts it, with the uid, into the PATCH
//! that follows: the loser gets a 409. Two housekeepers for a moment are harmless all the same; ownership never depends
//! on this.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use kube_leader_election::{LeaseLock, LeaseLockParams, LeaseLockResult};
use tower::{BoxError, Layer, Service};

/// One candidate for one election.
pub struct Election {
    lock: LeaseLock,
    ttl: Duration,
}

impl Election {
    /// A candidate. `config` must have the library's own retries switched off.
    ///
    /// # Errors
    /// If no client can be made.
    pub fn new(
        config: Config,
        namespace: &str,
        lease: &str,
        holder: &str,
        ttl: Duration,
    ) -> Result<Self, kube::Error> {
        let layer = GuardLayer { seen: Arc::new(Mutex::new(None)) };
        let client: Client = ClientBuilder::try_from(config)?.with_layer(&layer).build();
        let params =
            LeaseLockParams { lease_name: lease.to_owned(), holder_id: holder.to_owned(), lease_ttl: ttl };
        Ok(Self { lock: LeaseLock::new(client, namespace, params), ttl })
    }

    /// One round: true if we are the housekeeper now. An error means that we are not, as far as we know.
    pub async fn round(&self) -> bool {
        match tokio::time::timeout(self.ttl / 3, self.lock.try_acquire_or_renew()).await {
            Ok(Ok(LeaseLockResult::Acquired(_))) => true,
            Ok(Ok(LeaseLockResult::NotAcquired(_))) => false,
            Ok(Err(error)) => {
                tracing::debug!(%error, "housekeeper election");
                false
            }
            Err(_) => false,
        }
    }

    /// Gives the office up, so that the next one waits about a second and not for the Lease to expire.
    pub async fn step_down(&self) {
        if let Ok(Err(error)) = tokio::time::timeout(self.ttl / 3, self.lock.step_down()).await {
            tracing::debug!(%error, "stepping down as housekeeper");
        }
    }
}

/// (uid, resourceVersion) of the last Lease that was read.
type Seen = Arc<Mutex<Option<(String, String)>>>;

#[derive(Clone)]
struct GuardLayer {
    seen: Seen,
}

impl<S> Layer<S> for GuardLayer {
    type Service = Guard<S>;

    fn layer(&self, inner: S) -> Guard<S> {
        Guard { inner, seen: self.seen.clone() }
    }
}

#[derive(Clone)]
struct Guard<S> {
    inner: S,
    seen: Seen,
}

impl<S, B> Service<Request<Body>> for Guard<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Full<Bytes>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let reads = request.method() == Method::GET;
        let request =
            if request.method() == Method::PATCH { condition(request, &self.seen) } else { Ok(request) };
        let answer = request.map(|request| self.inner.call(request));
        let seen = self.seen.clone();
        Box::pin(async move {
            let (parts, body) = answer?.await.map_err(Into::into)?.into_parts();
            let bytes = body.collect().await.map_err(Into::into)?.to_bytes();
            if reads && parts.status.is_success() {
                remember(&bytes, &seen);
            }
            Ok(Response::from_parts(parts, Full::new(bytes)))
        })
    }
}

fn remember(body: &[u8], seen: &Seen) {
    let Ok(lease) = serde_json::from_slice::<serde_json::Value>(body) else { return };
    let field = |name: &str| lease["metadata"][name].as_str().map(str::to_owned);
    *seen.lock().unwrap_or_else(PoisonError::into_inner) = field("uid").zip(field("resourceVersion"));
}

fn condition(request: Request<Body>, seen: &Seen) -> Result<Request<Body>, BoxError> {
    let (mut parts, body) = request.into_parts();
    // The library sends its patches from memory, so there is nothing to wait for.
    let bytes = body.collect().now_or_never().ok_or("a patch that is not in memory")??.to_bytes();
    let mut patch: serde_json::Value = serde_json::from_slice(&bytes)?;
    let version = seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let Some((uid, rv)) = version else { return Err("a Lease is patched that was never read".into()) };
    patch["metadata"]["uid"] = uid.into();
    patch["metadata"]["resourceVersion"] = rv.into();
    parts.headers.remove(http::header::CONTENT_LENGTH);
    Ok(Request::from_parts(parts, Body::from(serde_json::to_vec(&patch)?)))
}
