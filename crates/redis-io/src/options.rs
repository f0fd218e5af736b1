//! How to reach Redis, and the checks that need no server.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use redis::{
    ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, TlsCertificates,
};
use upriver_store::StoreError;

/// How to reach Redis.
#[derive(Clone)]
pub struct RedisOptions {
    /// `redis://[user:password@]host:port[/db]`, or `rediss://…` for TLS. With [`RedisOptions::sentinel`] host and port
    /// name nothing; scheme, login and database hold for whichever server is the master.
    pub url: String,
    /// Ask these who the master is.
    pub sentinel: Option<SentinelOptions>,
    /// Files for TLS; of use with `rediss://` only.
    pub tls: TlsFiles,
    /// First part of every key: letters, digits, `-`, `_`, `.`, `:`.
    pub prefix: String,
    /// Longest wait for one answer. Scripts over large inventories take some tens of milliseconds.
    pub response_timeout: Duration,
    /// Accept a server that does not let us read its eviction policy.
    pub allow_unknown_policy: bool,
    /// Replicas that should hold what was appended.
    pub wait: WaitOptions,
}

/// Where Sentinels are and what they watch. They are spoken to with TLS if the URL of the servers is a `rediss://` one.
#[derive(Clone)]
pub struct SentinelOptions {
    /// `host:port` of each.
    pub addresses: Vec<String>,
    /// The name they know the master by.
    pub master: String,
    /// Login at the Sentinels themselves, which is not the one at the servers.
    pub username: Option<String>,
    /// See `username`.
    pub password: Option<String>,
}

/// PEM files, read again for every new pool: a rotated certificate is used with the next connection after a failure.
#[derive(Clone, Debug, Default)]
pub struct TlsFiles {
    /// CA certificates that the servers' must descend from; the system's if absent.
    pub ca: Option<PathBuf>,
    /// Certificate chain and key that we show.
    pub client: Option<ClientFiles>,
}

/// Our own certificate.
#[derive(Clone, Debug)]
pub struct ClientFiles {
    /// Certificate chain.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// What `WAIT` asks for after each append of entries and before each push.
#[derive(Clone, Copy, Debug)]
pub struct WaitOptions {
    /// Number of replicas; 0 asks nothing.
    pub replicas: u32,
    /// Longest wait. What is not confirmed by then counts as appended all the same.
    pub timeout: Duration,
}

impl Default for WaitOptions {
    fn default() -> Self {
        Self { replicas: 0, timeout: Duration::from_millis(100) }
    }
}

impl RedisOptions {
    /// Options for one server, with the default prefix.
    #[must_use]
    pub fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            sentinel: None,
            tls: TlsFiles::default(),
            prefix: "upriver".to_owned(),
            response_timeout: Duration::from_secs(5),
            allow_unknown_policy: false,
            wait: WaitOptions::default(),
        }
    }

    /// The parsed URL.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] with what to write instead; never with the URL, which holds the password.
    pub(crate) fn parse(&self) -> Result<ConnectionInfo, StoreError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
        // A brace in the prefix would become the hash tag.
        if self.prefix.is_empty() || !self.prefix.chars().all(allowed) {
            return Err(unusable("the key prefix may hold letters, digits, '-', '_', '.' and ':' only"));
        }
        if self.wait.timeout >= self.response_timeout {
            return Err(unusable("the wait for replicas must be shorter than the wait for an answer"));
        }
        let info = self.url.as_str().into_connection_info().map_err(|error| {
            unusable(&format!("the Redis address cannot be read: {error}; use redis[s]://host:port"))
        })?;
        if matches!(info.addr(), ConnectionAddr::TcpTls { insecure: true, .. }) {
            return Err(unusable("a Redis address must not end in #insecure: name the CA file instead"));
        }
        let secure = matches!(info.addr(), ConnectionAddr::TcpTls { .. });
        if !secure && (self.tls.ca.is_some() || self.tls.client.is_some()) {
            return Err(unusable(
                "TLS files are given, but the Redis address asks for no TLS; use rediss://",
            ));
        }
        // Without it every connection asks for a right more than we need, and older servers log an error.
        let settings = info.redis_settings().clone().set_skip_set_lib_name();
        let info = info.set_redis_settings(settings);
        self.check_sentinels()?;
        // Fails early on files that are wrong at the start; later ones are read with each new pool.
        self.certificates(secure).map(|_| info)
    }

    fn check_sentinels(&self) -> Result<(), StoreError> {
        let Some(sentinel) = &self.sentinel else { return Ok(()) };
        if sentinel.addresses.is_empty() || sentinel.master.is_empty() {
            return Err(unusable("Sentinels need at least one address and the name of the master"));
        }
        sentinel.addresses.iter().try_for_each(|address| split_address(address).map(|_| ()))
    }

    /// The certificates to use, if TLS is asked for.
    pub(crate) fn certificates(&self, secure: bool) -> Result<Option<TlsCertificates>, StoreError> {
        if !secure {
            return Ok(None);
        }
        let client_tls = self.tls.client.as_ref().map(|files| {
            Ok::<_, StoreError>(ClientTlsConfig {
                client_cert: read(&files.certificate)?,
                client_key: read(&files.key)?,
            })
        });
        Ok(Some(TlsCertificates {
            client_tls: client_tls.transpose()?,
            root_cert: self.tls.ca.as_deref().map(read).transpose()?,
        }))
    }
}

impl SentinelOptions {
    /// Login at the Sentinels.
    pub(crate) fn login(&self) -> RedisConnectionInfo {
        let mut info = RedisConnectionInfo::default().set_skip_set_lib_name();
        if let Some(username) = &self.username {
            info = info.set_username(username);
        }
        if let Some(password) = &self.password {
            info = info.set_password(password);
        }
        info
    }
}

// By hand, because the URL and the passwords must not be printed.
impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisOptions")
            .field("url", &"***")
            .field("sentinel", &self.sentinel)
            .field("tls", &self.tls)
            .field("prefix", &self.prefix)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for SentinelOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SentinelOptions")
            .field("addresses", &self.addresses)
            .field("master", &self.master)
            .finish_non_exhaustive()
    }
}

/// `host:port`; an IPv6 host may stand in brackets.
pub(crate) fn split_address(text: &str) -> Result<(String, u16), StoreError> {
    let parts = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    match parts {
        Some((host, port)) if !host.is_empty() => Ok((host.trim_matches(['[', ']']).to_owned(), port)),
        Some(_) | None => Err(unusable(&format!("{text:?} is not an address: use host:port"))),
    }
}

/// The address of a server that is spoken to like the one in `like`.
pub(crate) fn address_like(like: &ConnectionAddr, host: String, port: u16) -> ConnectionAddr {
    if matches!(like, ConnectionAddr::TcpTls { .. }) {
        ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
    } else {
        ConnectionAddr::Tcp(host, port)
    }
}

pub(crate) fn unusable(reason: &str) -> StoreError {
    StoreError::Unusable { reason: reason.to_owned() }
}

fn read(path: &Path) -> Result<Vec<u8>, StoreError> {
    std::fs::read(path)
        .map_err(|error| unusable(&format!("the TLS file {} cannot be read: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(options: &RedisOptions) -> String {
        options.parse().map(|_| ()).expect_err("refused").to_string()
    }

    #[test]
    fn what_cannot_work_is_refused_with_what_to_write() {
        let plain = RedisOptions::new("redis://h:1");
        let sentinel = |addresses: &[&str], master: &str| SentinelOptions {
            addresses: addresses.iter().map(|text| (*text).to_owned()).collect(),
            master: master.to_owned(),
            username: None,
            password: None,
        };
        let with = |change: &dyn Fn(&mut RedisOptions)| {
            let mut options = plain.clone();
            change(&mut options);
            refusal(&options)
        };
        assert!(plain.parse().is_ok());
        assert!(with(&|o| o.url = "http://h".to_owned()).contains("redis[s]://host:port"));
        assert!(with(&|o| o.prefix = "a{b}".to_owned()).contains("prefix"));
        assert!(with(&|o| o.url = "rediss://h:1/#insecure".to_owned()).contains("CA file"));
        assert!(with(&|o| o.tls.ca = Some("ca.pem".into())).contains("rediss://"));
        assert!(with(&|o| o.wait.timeout = o.response_timeout).contains("shorter"));
        assert!(with(&|o| o.sentinel = Some(sentinel(&[], "m"))).contains("at least one address"));
        assert!(with(&|o| o.sentinel = Some(sentinel(&["host"], "m"))).contains("\"host\""));
        let missing = with(&|o| {
            o.url = "rediss://h:1".to_owned();
            o.tls.ca = Some("no-such-file.pem".into());
        });
        assert!(missing.contains("no-such-file.pem"), "{missing}");
    }

    #[test]
    fn no_secret_is_printed() {
        let mut options = RedisOptions::new("redis://user:hush@h:1");
        options.sentinel = Some(SentinelOptions {
            addresses: vec!["s:1".to_owned()],
            master: "m".to_owned(),
            username: None,
            password: Some("hush".to_owned()),
        });
        assert!(!format!("{options:?}").contains("hush"));
        let mut wrong = RedisOptions::new("redis://user:hush@h:port");
        wrong.sentinel = None;
        assert!(!refusal(&wrong).contains("hush"));
    }

    #[test]
    fn addresses_are_split_at_the_last_colon() {
        assert_eq!(split_address("redis-0.redis:26379"), Ok(("redis-0.redis".to_owned(), 26379)));
        assert_eq!(split_address("[::1]:26379"), Ok(("::1".to_owned(), 26379)));
        assert!(split_address(":26379").is_err() && split_address("host:port").is_err());
    }
}
