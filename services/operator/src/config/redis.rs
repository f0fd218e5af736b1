//! The settings about Redis: flags become one [`RedisOptions`]. Files and addresses are looked at by the store itself.

use std::time::Duration;

use upriver_redis_io::{ClientFiles, RedisOptions, SentinelOptions, TlsFiles, WaitOptions};

use super::{ConfigError, RunArgs, Secret, duration_or};

/// Longest wait for replicas that makes sense: a branch does nothing else meanwhile.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

pub(super) fn options(raw: &RunArgs) -> Result<RedisOptions, ConfigError> {
    let sentinel = sentinel(raw)?;
    let mut options = RedisOptions::new(url(raw, sentinel.is_some())?.reveal());
    options.sentinel = sentinel;
    options.prefix = prefix(raw)?;
    options.tls = tls(raw)?;
    options.allow_unknown_policy = raw.redis_allow_unknown_policy.unwrap_or(false);
    options.wait = wait(raw)?;
    Ok(options)
}

/// The address with scheme, login and database.
fn url(raw: &RunArgs, sentinel: bool) -> Result<Secret, ConfigError> {
    let (scheme, rest) = match (&raw.redis_addr, sentinel) {
        (Some(address), true) => {
            let expected = "leave it out: the Sentinels say where Redis is".to_owned();
            return Err(wrong("redis-addr", address, expected));
        }
        // Names nothing: the Sentinels do.
        (None, true) => (default_scheme(raw), "sentinel"),
        (Some(address), false) => split(raw, address)?,
        (None, false) => {
            let expected = "the address of Redis, for example redis:6379; or name Sentinels with \
                            --redis-sentinel-addrs; a single replica can do without: --store embedded";
            return Err(ConfigError::Missing { flag: "redis-addr", expected });
        }
    };
    let user = raw.redis_username.as_deref().unwrap_or_default();
    let login = match &raw.redis_password {
        Some(password) => format!("{}:{}@", percent(user), percent(password.reveal())),
        None if user.is_empty() => String::new(),
        None => format!("{}@", percent(user)),
    };
    if rest.contains('@') && !login.is_empty() {
        let expected = "it has a login, and so have --redis-username and --redis-password".to_owned();
        return Err(wrong("redis-addr", rest, expected));
    }
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let database = match raw.redis_db {
        Some(_) if !path.is_empty() => {
            let expected = "it has a database, and so has --redis-db".to_owned();
            return Err(wrong("redis-addr", rest, expected));
        }
        Some(number) => number.to_string(),
        None if path.is_empty() => "0".to_owned(),
        None => path.to_owned(),
    };
    Ok(Secret(format!("{scheme}://{login}{host}/{database}")))
}

fn split<'a>(raw: &RunArgs, address: &'a str) -> Result<(&'static str, &'a str), ConfigError> {
    match address.split_once("://") {
        None => Ok((default_scheme(raw), address)),
        Some(("redis", rest)) => Ok(("redis", rest)),
        Some(("rediss", _)) if raw.redis_insecure == Some(true) => {
            let expected = "it asks for TLS, and --redis-insecure for none".to_owned();
            Err(wrong("redis-addr", address, expected))
        }
        Some(("rediss", rest)) => Ok(("rediss", rest)),
        Some(_) => {
            let expected = "use host:port, redis://host:port or rediss://host:port".to_owned();
            Err(wrong("redis-addr", address, expected))
        }
    }
}

/// TLS unless it is refused, as other operators have it.
fn default_scheme(raw: &RunArgs) -> &'static str {
    if raw.redis_insecure == Some(true) { "redis" } else { "rediss" }
}

fn sentinel(raw: &RunArgs) -> Result<Option<SentinelOptions>, ConfigError> {
    let Some(list) = &raw.redis_sentinel_addrs else {
        let others = [
            ("redis-sentinel-master", raw.redis_sentinel_master.is_some()),
            ("redis-sentinel-username", raw.redis_sentinel_username.is_some()),
            ("redis-sentinel-password", raw.redis_sentinel_password.is_some()),
        ];
        return match others.into_iter().find(|(_, given)| *given) {
            Some(_) => Err(ConfigError::Missing {
                flag: "redis-sentinel-addrs",
                expected: "other settings of Sentinels are given",
            }),
            None => Ok(None),
        };
    };
    let addresses: Vec<String> =
        list.split(',').map(str::trim).filter(|address| !address.is_empty()).map(str::to_owned).collect();
    if addresses.is_empty() {
        let expected = "name at least one, as host:port".to_owned();
        return Err(wrong("redis-sentinel-addrs", list, expected));
    }
    Ok(Some(SentinelOptions {
        addresses,
        master: raw.redis_sentinel_master.clone().unwrap_or_else(|| "mymaster".to_owned()),
        username: raw.redis_sentinel_username.clone(),
        password: raw.redis_sentinel_password.as_ref().map(|password| password.reveal().to_owned()),
    }))
}

fn tls(raw: &RunArgs) -> Result<TlsFiles, ConfigError> {
    let client = match (&raw.redis_client_cert_file, &raw.redis_client_key_file) {
        (Some(certificate), Some(key)) => {
            Some(ClientFiles { certificate: certificate.clone(), key: key.clone() })
        }
        (None, None) => None,
        (Some(_), None) => {
            let expected = "the key of --redis-client-cert-file";
            return Err(ConfigError::Missing { flag: "redis-client-key-file", expected });
        }
        (None, Some(_)) => {
            let expected = "the certificate of --redis-client-key-file";
            return Err(ConfigError::Missing { flag: "redis-client-cert-file", expected });
        }
    };
    Ok(TlsFiles { ca: raw.redis_ca_file.clone(), client })
}

fn wait(raw: &RunArgs) -> Result<WaitOptions, ConfigError> {
    let default = WaitOptions::default();
    let text = raw.redis_wait_timeout.as_deref();
    let timeout = duration_or("redis-wait-timeout", text, default.timeout)?;
    if timeout > LONGEST_WAIT {
        let expected = "use 2s or less".to_owned();
        return Err(wrong("redis-wait-timeout", text.unwrap_or_default(), expected));
    }
    Ok(WaitOptions { replicas: raw.redis_wait_replicas.unwrap_or(default.replicas), timeout })
}

fn prefix(raw: &RunArgs) -> Result<String, ConfigError> {
    let prefix = raw.redis_key_prefix.as_deref().unwrap_or("upriver").trim_end_matches(':');
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    if prefix.is_empty() || prefix.len() > 128 || !prefix.chars().all(allowed) {
        let expected = "use 1 to 128 letters, digits, '-', '_', '.' or ':'".to_owned();
        return Err(wrong("redis-key-prefix", prefix, expected));
    }
    Ok(prefix.to_owned())
}

/// A wrong value, without the login that it may hold.
fn wrong(flag: &'static str, value: &str, expected: String) -> ConfigError {
    let value = match value.rsplit_once('@') {
        Some((_, rest)) => format!("***@{rest}"),
        None => value.to_owned(),
    };
    ConfigError::Value { flag, value, expected }
}

/// Percent-encodes everything that could end the login part of a URL.
fn percent(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::load;

    fn with(change: impl FnOnce(&mut RunArgs)) -> RunArgs {
        let mut raw = RunArgs { redis_addr: Some("redis:6379".to_owned()), ..RunArgs::default() };
        change(&mut raw);
        raw
    }

    fn url_of(change: impl FnOnce(&mut RunArgs)) -> String {
        options(&with(change)).expect("valid").url
    }

    fn refusal(change: impl FnOnce(&mut RunArgs)) -> String {
        options(&with(change)).map(|_| ()).expect_err("refused").to_string()
    }

    #[test]
    fn tls_is_the_default_and_a_scheme_says_so_itself() {
        assert_eq!(url_of(|_| ()), "rediss://redis:6379/0");
        assert_eq!(url_of(|raw| raw.redis_insecure = Some(true)), "redis://redis:6379/0");
        assert_eq!(url_of(|raw| raw.redis_addr = Some("redis://h:1".to_owned())), "redis://h:1/0");
        assert_eq!(url_of(|raw| raw.redis_addr = Some("rediss://h:1/3".to_owned())), "rediss://h:1/3");
        let both = refusal(|raw| {
            raw.redis_addr = Some("rediss://h:1".to_owned());
            raw.redis_insecure = Some(true);
        });
        assert!(both.contains("--redis-insecure"), "{both}");
        assert!(refusal(|raw| raw.redis_addr = Some("http://h:1".to_owned())).contains("rediss://host:port"));
    }

    #[test]
    fn a_login_is_part_of_the_url_and_of_no_print() {
        let mut raw = with(|raw| raw.redis_addr = Some("redis://h:1".to_owned()));
        raw.redis_password = Some(Secret("p@ss/1".to_owned()));
        raw.redis_db = Some(2);
        let config = load(raw.clone()).expect("valid");
        assert_eq!(config.redis.as_ref().map(|redis| redis.url.as_str()), Some("redis://:p%40ss%2F1@h:1/2"));
        assert!(!format!("{config:?}").contains("p@ss") && !format!("{config:?}").contains("p%40ss"));
        raw.redis_addr = Some("redis://me:other@h:1".to_owned());
        let twice = options(&raw).map(|_| ()).expect_err("refused").to_string();
        assert!(twice.contains("it has a login") && !twice.contains("other"), "{twice}");
        let scheme = refusal(|raw| raw.redis_addr = Some("http://me:hush@h:1".to_owned()));
        assert!(!scheme.contains("hush"), "{scheme}");
    }

    #[test]
    fn sentinels_replace_the_address() {
        let raw = with(|raw| {
            raw.redis_addr = None;
            raw.redis_sentinel_addrs = Some("a:1, b:2,".to_owned());
            raw.redis_username = Some("me".to_owned());
        });
        let found = options(&raw).expect("valid");
        assert_eq!(found.url, "rediss://me@sentinel/0");
        let sentinel = found.sentinel.expect("given");
        assert_eq!(
            (sentinel.addresses, sentinel.master.as_str()),
            (vec!["a:1".into(), "b:2".into()], "mymaster")
        );
        assert!(refusal(|raw| raw.redis_sentinel_addrs = Some("a:1".to_owned())).contains("leave it out"));
        assert!(refusal(|raw| raw.redis_sentinel_master = Some("m".to_owned())).contains("-sentinel-addrs"));
    }

    #[test]
    fn what_is_half_given_or_too_long_is_refused() {
        assert!(refusal(|raw| raw.redis_client_cert_file = Some("c.pem".into())).contains("-key-file"));
        assert!(refusal(|raw| raw.redis_client_key_file = Some("k.pem".into())).contains("-cert-file"));
        assert!(refusal(|raw| raw.redis_wait_timeout = Some("3s".to_owned())).contains("2s or less"));
        assert!(refusal(|raw| raw.redis_key_prefix = Some("a{b".to_owned())).contains("--redis-key-prefix"));
        let found = options(&with(|raw| raw.redis_wait_replicas = Some(1))).expect("valid");
        assert_eq!((found.wait.replicas, found.wait.timeout), (1, Duration::from_millis(100)));
    }
}
