//! Has another server become the master, while the old one still answers?
//!
//! After a failover that somebody asked for, Sentinels leave the old master as it is for about ten seconds. It takes writes all
//! that time, and every one of them is lost. Nothing on our connection tells; the Sentinels do, when asked.
//!
//! In: the connector. Out: a call of [`Connector::moved`] when most Sentinels name another server. One of them alone may be
//! cut off and wrong. The task is started with the first link and ends with the store. It keeps its connections, so it asks
//! without making new ones, and asks nothing while there is no link: whoever looks for one asks then.

use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::Duration;

use redis::aio::MultiplexedConnection;

use crate::connect::Connector;
use crate::options::{SentinelOptions, address_like, split_address};
use crate::sentinel;

/// Between two questions.
const EVERY: Duration = Duration::from_secs(1);
/// After a Sentinel that gave no answer. Its connection is made anew then, and attempts are to be rare.
const AFTER_SILENCE: Duration = Duration::from_secs(3);

pub(crate) async fn run(connector: Weak<Connector>) {
    let mut open: BTreeMap<usize, MultiplexedConnection> = BTreeMap::new();
    let mut turn = 0;
    let mut pause = EVERY;
    loop {
        // Not all replicas at the same moment.
        tokio::time::sleep(pause.mul_f64(0.75 + rand::random::<f64>() / 2.0)).await;
        let Some(connector) = connector.upgrade() else { return };
        let Some(options) = &connector.options().sentinel else { return };
        let Some(server) = connector.linked_to() else { continue };
        pause = EVERY;
        match named(&connector, options, &mut open, turn).await {
            Some(named) if named == server => {}
            Some(_) => {
                let votes = votes(&connector, options, &mut open).await;
                if let Some((to, by)) = elected(&votes, options.addresses.len(), &server) {
                    connector.moved(&server, &to, by);
                }
            }
            None => {
                turn = (turn + 1) % options.addresses.len();
                pause = AFTER_SILENCE;
            }
        }
    }
}

/// The master by the words of one Sentinel, in the form of [`Connector::linked_to`].
async fn named(
    connector: &Connector,
    options: &SentinelOptions,
    open: &mut BTreeMap<usize, MultiplexedConnection>,
    index: usize,
) -> Option<String> {
    let mut connection = match open.remove(&index) {
        Some(connection) => connection,
        None => connect(connector, options, index).await?,
    };
    match sentinel::ask_through(&mut connection, options).await {
        Ok(found) => {
            open.insert(index, connection);
            found.map(|(host, port)| address_like(connector.address(), host, port).to_string())
        }
        Err(error) => {
            tracing::debug!(%error, "a Sentinel gives no answer");
            None
        }
    }
}

async fn connect(
    connector: &Connector,
    options: &SentinelOptions,
    index: usize,
) -> Option<MultiplexedConnection> {
    let (host, port) = split_address(&options.addresses[index]).ok()?;
    let address = address_like(connector.address(), host, port);
    let secure = matches!(address, redis::ConnectionAddr::TcpTls { .. });
    let certificates = connector.options().certificates(secure).ok()?;
    let made = sentinel::connect(options, address, certificates.as_ref()).await;
    made.inspect_err(|error| tracing::debug!(%error, "a Sentinel is away")).ok()
}

async fn votes(
    connector: &Connector,
    options: &SentinelOptions,
    open: &mut BTreeMap<usize, MultiplexedConnection>,
) -> Vec<(usize, String)> {
    let mut votes = Vec::new();
    for index in 0..options.addresses.len() {
        if let Some(server) = named(connector, options, open, index).await {
            votes.push((index, server));
        }
    }
    votes
}

/// A server other than `current` that more than half of all `voters` name, and one of these.
fn elected(votes: &[(usize, String)], voters: usize, current: &str) -> Option<(String, usize)> {
    votes.iter().filter(|(_, server)| server != current).find_map(|(index, server)| {
        let agreed = votes.iter().filter(|(_, other)| other == server).count();
        (agreed * 2 > voters).then(|| (server.clone(), *index))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_most_of_all_sentinels_can_name_another_master() {
        let votes = |names: &[&str]| -> Vec<(usize, String)> {
            names.iter().enumerate().map(|(index, name)| (index, (*name).to_owned())).collect()
        };
        assert_eq!(elected(&votes(&["a", "b", "b"]), 3, "a"), Some(("b".to_owned(), 1)));
        assert_eq!(elected(&votes(&["b", "b"]), 3, "a"), Some(("b".to_owned(), 0)));
        assert_eq!(elected(&votes(&["a", "a", "b"]), 3, "a"), None, "one that is cut off");
        assert_eq!(elected(&votes(&["b"]), 3, "a"), None, "the others are silent");
        assert_eq!(elected(&votes(&["b", "c"]), 2, "a"), None);
        assert_eq!(elected(&votes(&["a", "a", "a"]), 3, "a"), None);
        assert_eq!(elected(&votes(&["b"]), 1, "a"), Some(("b".to_owned(), 0)));
    }
}
