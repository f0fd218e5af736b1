//! Who is the master now? In: addresses of Sentinels. Out: the first answer that one of them gives.
//!
//! A Sentinel that is cut off may name an old master. So the caller asks the named server for its role, and begins with the
//! next Sentinel when that one is not a master or not there.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisResult,
    TlsCertificates,
};
use upriver_store::StoreError;

use crate::options::{SentinelOptions, address_like, split_address};

/// A Sentinel answers from memory; one that needs longer is no help.
const PATIENCE: Duration = Duration::from_secs(1);

/// An answer.
pub(crate) struct Named {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Place of the Sentinel that gave it.
    pub(crate) by: usize,
}

/// Asks one after the other, from number `first` on. `opened` counts the connections that were tried.
pub(crate) async fn master(
    options: &SentinelOptions,
    like: &ConnectionAddr,
    certificates: Option<&TlsCertificates>,
    first: usize,
    opened: &mut u32,
) -> Result<Named, StoreError> {
    let count = options.addresses.len();
    let mut reasons = Vec::new();
    for step in 0..count {
        let by = (first + step) % count;
        let address = &options.addresses[by];
        let (host, port) = split_address(address)?;
        *opened += 1;
        match ask(options, address_like(like, host, port), certificates).await {
            Ok(Some((host, port))) => return Ok(Named { host, port, by }),
            Ok(None) => reasons.push(format!("{address} knows no master {:?}", options.master)),
            Err(error) => reasons.push(format!("{address}: {error}")),
        }
    }
    Err(StoreError::Unavailable { reason: format!("no Sentinel names the master: {}", reasons.join("; ")) })
}

async fn ask(
    options: &SentinelOptions,
    address: ConnectionAddr,
    certificates: Option<&TlsCertificates>,
) -> RedisResult<Option<(String, u16)>> {
    let mut connection = connect(options, address, certificates).await?;
    ask_through(&mut connection, options).await
}

/// A connection to one Sentinel.
pub(crate) async fn connect(
    options: &SentinelOptions,
    address: ConnectionAddr,
    certificates: Option<&TlsCertificates>,
) -> RedisResult<MultiplexedConnection> {
    let info = address.into_connection_info()?.set_redis_settings(options.login());
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    client(info, certificates)?.get_multiplexed_async_connection_with_config(&config).await
}

/// The address of the master, if that Sentinel knows one by the name.
pub(crate) async fn ask_through(
    connection: &mut MultiplexedConnection,
    options: &SentinelOptions,
) -> RedisResult<Option<(String, u16)>> {
    let mut command = redis::cmd("SENTINEL");
    command.arg("GET-MASTER-ADDR-BY-NAME").arg(&options.master).query_async(connection).await
}

/// A client for one server, with certificates if it speaks TLS.
pub(crate) fn client(info: ConnectionInfo, certificates: Option<&TlsCertificates>) -> RedisResult<Client> {
    match certificates {
        Some(certificates) => Client::build_with_tls(info, certificates.clone()),
        None => Client::open(info),
    }
}
