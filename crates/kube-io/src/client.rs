//! Clients with the right temper: which calls may the library repeat by itself, which may it not?

use std::time::Duration;

use http_body_util::BodyExt;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ClientBuilder, ConfigExt, DynBody};
use kube::{Client, Config};
use tower::retry::RetryLayer;
use tower::{BoxError, ServiceBuilder, ServiceExt};
use tower_http::ServiceExt as _;
use tower_http::decompression::DecompressionLayer;

/// The clients of one cluster.
#[derive(Clone)]
pub struct Clients {
    /// For reads and status patches.
    pub api: Client,
    /// For lists, watches and discovery: never repeated by the library, whose pauses grow to minutes and hide from the
    /// caller that a backend is down. Callers have pauses of their own.
    pub watch: Client,
    /// For Leases: never repeated by the library (a "failed" renewal must not land later), with its own connection so
    /// that no LIST burst delays a renewal.
    pub lease: Client,
    /// The configuration that all were made from.
    pub config: Config,
}

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(15);
/// Longest silence on a connection of [`Clients::api`]. Watches of our own kinds run over it; they bring a bookmark about
/// once a minute, and three missing ones mean a dead connection.
const SILENCE: Duration = Duration::from_secs(190);
/// Longest wait for the head of an answer. A request that goes out over a connection which died unnoticed ends here, and
/// the next one gets another connection. Watches are not cut by it: their head comes at once, their body later.
const HEAD: Duration = Duration::from_secs(15);
/// Connections that were idle for longer are not used again: the older, the likelier they have died meanwhile.
const POOLED: Duration = Duration::from_secs(20);
/// TCP probes an idle connection after so long (W1.35), then again at the second distance; the connection ends when the
/// third number of them stay unanswered: a peer that is gone without a word is noticed after a minute.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(30), Duration::from_secs(10), 3);

impl Clients {
    /// Clients for a kubeconfig or the cluster we run in.
    ///
    /// # Errors
    /// If the configuration cannot be turned into a client.
    pub fn new(mut config: Config) -> Result<Self, kube::Error> {
        config.connect_timeout = Some(CONNECT);
        config.read_timeout = Some(SILENCE);
        let api = build(&config)?;
        // Watches live long and are silent for a minute; their own idle limit ends them.
        config.read_timeout = None;
        config.default_retry = false;
        Ok(Self { api, watch: build(&config)?, lease: build(&config)?, config })
    }
}

/// What the library makes of a configuration, with TCP keepalive, which it does not offer. HTTP/2 is off in it, so every
/// watch has a connection of its own and there are no HTTP/2 pings to set.
fn build(config: &Config) -> Result<Client, kube::Error> {
    if config.proxy_url.is_some() {
        // The way through a proxy is the library's own; keepalive would reach the proxy only.
        return Client::try_from(config.clone());
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_keepalive(Some(KEEPALIVE.0));
    tcp.set_keepalive_interval(Some(KEEPALIVE.1));
    tcp.set_keepalive_retries(Some(KEEPALIVE.2));
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    let http: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new())
        .pool_idle_timeout(POOLED)
        .pool_timer(TokioTimer::new())
        .build(connector);
    let gzip = DecompressionLayer::new().no_br().no_deflate().no_zstd().gzip(!config.disable_compression);
    let retry = config.default_retry.then(|| RetryLayer::new(RetryPolicy::server_retry()));
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .layer(gzip)
        .option_layer(retry)
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_future(in_time)
        .service(http);
    let service =
        service.map_response_body(|body| Box::new(BodyExt::map_err(body, BoxError::from)) as Box<DynBody>);
    Ok(ClientBuilder::new(service.boxed(), config.default_namespace.clone()).build())
}

async fn in_time<T, E>(answer: impl Future<Output = Result<T, E>>) -> Result<T, BoxError>
where
    BoxError: From<E>,
{
    match tokio::time::timeout(HEAD, answer).await {
        Ok(answer) => answer.map_err(BoxError::from),
        Err(_) => Err(format!("no answer within {} s", HEAD.as_secs()).into()),
    }
}
