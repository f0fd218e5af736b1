//! By which ways does a replica reach others, and how is one of them cut?
//!
//! In: the servers. Out: for each replica its own TCP proxies, grouped by link, and the flags that make the replica use
//! them. Each replica has proxies of its own, so a link can fail for one and work for the others. Absent: when a link
//! fails, see [`crate::schedule`].

use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;

use futures::future::BoxFuture;
use serde_json::{Value, json};
use upriver_testkit::ports::free_ports;
use upriver_testkit::proxy::{TcpProxy, Trouble};
use upriver_testkit::redis::MASTER;
use upriver_testkit::{OperatorOptions, SentinelSet, Stack, User};

use crate::Failure;

/// What links lead to.
pub(crate) struct Ends<'a> {
    pub(crate) stack: &'a Stack,
    pub(crate) sentinels: &'a SentinelSet,
}

/// The proxies of one link, and the replica's options with what it has to know about them.
type Opened = Result<(Vec<TcpProxy>, OperatorOptions), Failure>;

/// One way on which a replica depends.
pub(crate) struct Link {
    /// Its name in schedules and reports.
    pub(crate) name: &'static str,
    open: for<'a> fn(&'a Ends<'a>, OperatorOptions) -> BoxFuture<'a, Opened>,
}

/// Name of the link between replicas.
pub(crate) const PEERS: &str = "peers";

/// Every link. A further one is a line here and the function that it names; schedules, names and reports follow. Replicas
/// reach each other at an address that each tells the others, so the proxies of a link between them stand *before* their
/// replica: `open` takes a free port for `--peer-bind-address` and tells the proxy's as `--peer-advertise-address`.
pub(crate) const LINKS: &[Link] = &[
    Link { name: "api", open: |ends, options| Box::pin(open_api(ends, options)) },
    Link { name: "redis", open: |ends, options| Box::pin(open_redis(ends, options)) },
    Link { name: "git", open: |ends, options| Box::pin(open_git(ends, options)) },
    Link { name: PEERS, open: |_, options| Box::pin(open_peers(options)) },
];

/// All proxies of one replica, in the order of [`LINKS`].
pub(crate) struct ReplicaLinks(Vec<Vec<TcpProxy>>);

impl ReplicaLinks {
    /// Opens all links of one replica.
    ///
    /// # Errors
    /// If a port or a file cannot be had.
    pub(crate) async fn open(
        ends: &Ends<'_>,
        mut options: OperatorOptions,
    ) -> Result<(Self, OperatorOptions), Failure> {
        let mut links = Vec::with_capacity(LINKS.len());
        for link in LINKS {
            let (proxies, with_flags) = (link.open)(ends, options).await?;
            options = with_flags;
            links.push(proxies);
        }
        Ok((Self(links), options))
    }

    /// All connections of this link, by its place in [`LINKS`], have this trouble from now on.
    pub(crate) fn set(&self, link: usize, trouble: Trouble) {
        self.0[link].iter().for_each(|proxy| proxy.set_trouble(trouble));
    }

    /// Connections over each link so far.
    pub(crate) fn opened(&self) -> Vec<u64> {
        self.0.iter().map(|proxies| proxies.iter().map(TcpProxy::opened).sum()).collect()
    }
}

/// The API server's certificate is good for 127.0.0.1 on any port, so a kubeconfig with another port is enough.
async fn open_api(ends: &Ends<'_>, options: OperatorOptions) -> Opened {
    let given = std::fs::read_to_string(ends.stack.plane().kubeconfig(User::Upriver))?;
    let mut config: Value = serde_json::from_str(&given)?;
    let server = ends.stack.plane().url();
    let target: SocketAddr = server.trim_start_matches("https://").parse()?;
    let proxy = TcpProxy::start(target).await?;
    config["clusters"][0]["cluster"]["server"] = json!(format!("https://{}", proxy.address()));
    let path = ends.stack.dir().join(format!("{}.kubeconfig", options.pod_name));
    // It holds a token.
    let mut file =
        std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
    file.write_all(config.to_string().as_bytes())?;
    Ok((vec![proxy], options.arg(format!("--kubeconfig={}", path.display()))))
}

/// Others call the proxy; it calls the replica.
async fn open_peers(options: OperatorOptions) -> Opened {
    let [port] = free_ports();
    let target = SocketAddr::from(([127, 0, 0, 1], port));
    let proxy = TcpProxy::start(target).await?;
    let options = options
        .arg(format!("--peer-bind-address={target}"))
        .arg(format!("--peer-advertise-address={}", proxy.address()));
    Ok((vec![proxy], options))
}

/// Sentinels name the master by its own port. What they say to this replica names the proxy before it instead; the length
/// that the protocol puts before a text is part of what is replaced.
async fn open_redis(ends: &Ends<'_>, options: OperatorOptions) -> Opened {
    let mut proxies = Vec::new();
    let mut replacements = Vec::new();
    for server in ends.sentinels.servers() {
        let target: SocketAddr = server.addr().parse()?;
        let proxy = TcpProxy::start(target).await?;
        replacements.push((bulk(target.port()), bulk(proxy.address().port())));
        proxies.push(proxy);
    }
    let mut addresses = Vec::new();
    for sentinel in ends.sentinels.addresses() {
        let proxy = TcpProxy::start_replacing(sentinel.parse()?, replacements.clone()).await?;
        addresses.push(proxy.address().to_string());
        proxies.push(proxy);
    }
    let options = options
        .arg(format!("--redis-sentinel-addrs={}", addresses.join(",")))
        .arg(format!("--redis-sentinel-master={MASTER}"))
        .arg("--redis-insecure");
    Ok((proxies, options))
}

/// A number as Redis writes it.
fn bulk(port: u16) -> Vec<u8> {
    let digits = port.to_string();
    format!("${}\r\n{digits}\r\n", digits.len()).into_bytes()
}

/// The address of a repository is in a GitProvider, which all replicas read. So the way to it is a proxy in the process's
/// environment: a plain HTTP request to one names the host in full, and the Git server does not mind.
async fn open_git(ends: &Ends<'_>, mut options: OperatorOptions) -> Opened {
    let base = ends.stack.git().base_url();
    let proxy = TcpProxy::start(base.trim_start_matches("http://").parse()?).await?;
    let way = ("HTTP_PROXY", format!("http://{}", proxy.address()));
    let no_exceptions = ["NO_PROXY", "no_proxy"].map(|name| (name, String::new()));
    let env = no_exceptions.into_iter().chain([way]);
    options.env.extend(env.map(|(name, value)| (name.to_owned(), value)));
    Ok((vec![proxy], options))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_written_as_redis_writes_it() {
        assert_eq!(bulk(17_234), b"$5\r\n17234\r\n");
    }
}
