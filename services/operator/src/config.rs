//! Settings: flags, environment and a file become one validated [`Config`].
//!
//! A flag beats the environment, the environment beats the file, the file beats the default. Unknown keys of the file are
//! refused; secrets print as `***`.

mod peer;
mod redis;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::Deserialize;
use upriver_kube_io::kubeconfig::{Permits, Programs, UncheckedTls};
use upriver_redis_io::RedisOptions;
use upriver_telemetry::LogEncoding;

pub use peer::PeerConfig;

/// Upriver: what people change in a cluster flows upriver into Git.
#[derive(Debug, Parser)]
#[command(name = "upriver", version, about)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Action,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Runs the operator.
    Run(Box<RunArgs>),
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Deserialize, ValueEnum, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// One JSON object per line.
    Json,
    /// For people.
    Text,
}

/// Where journals live.
#[derive(Clone, Copy, Debug, Deserialize, ValueEnum, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    /// Redis, shared by all replicas.
    Redis,
    /// The memory of this process: one replica, nothing outlives it but what is in Git.
    Embedded,
}

/// Text that is never printed.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

/// Settings of `upriver run`, all of them optional here; the file has the same names with underscores.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunArgs {
    /// YAML file with settings of the same names (dashes as underscores).
    #[arg(long, env = "UPRIVER_CONFIG")]
    #[serde(skip)]
    pub config: Option<PathBuf>,
    /// Kubeconfig; without it the cluster that the process runs in.
    #[arg(long, env = "KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the operator: its Leases live there [default: upriver-system].
    #[arg(long, env = "POD_NAMESPACE")]
    pub namespace: Option<String>,
    /// Name of the pod; part of the replica id, and tells a restarted process from a second one.
    #[arg(long, env = "POD_NAME")]
    pub pod_name: Option<String>,
    /// IP of the pod: other replicas reach this one there.
    #[arg(long, env = "POD_IP")]
    pub pod_ip: Option<String>,
    /// Where journals live [default: redis]. `embedded` needs no Redis and serves one replica.
    #[arg(long, env = "UPRIVER_STORE")]
    pub store: Option<StoreKind>,
    /// Redis as host:port, redis://host:port, or rediss://host:port for TLS.
    #[arg(long, env = "REDIS_ADDR")]
    pub redis_addr: Option<String>,
    /// Speak no TLS to a Redis that is given as host:port, nor to Sentinels.
    #[arg(long, num_args = 0..=1, default_missing_value = "true")]
    pub redis_insecure: Option<bool>,
    /// PEM file of the CA of Redis's certificates [default: the system's].
    #[arg(long, env = "REDIS_CA_FILE")]
    pub redis_ca_file: Option<PathBuf>,
    /// PEM file of our own certificate for Redis; needs --redis-client-key-file.
    #[arg(long)]
    pub redis_client_cert_file: Option<PathBuf>,
    /// PEM file of its key.
    #[arg(long)]
    pub redis_client_key_file: Option<PathBuf>,
    /// Sentinels as a comma list of host:port; they say who the master is, instead of --redis-addr.
    #[arg(long, env = "REDIS_SENTINEL_ADDRS")]
    pub redis_sentinel_addrs: Option<String>,
    /// Name that the Sentinels know the master by [default: mymaster].
    #[arg(long, env = "REDIS_SENTINEL_MASTER")]
    pub redis_sentinel_master: Option<String>,
    /// User at the Sentinels themselves.
    #[arg(long)]
    pub redis_sentinel_username: Option<String>,
    /// Password at the Sentinels themselves.
    #[arg(long, env = "REDIS_SENTINEL_PASSWORD", hide_env_values = true)]
    pub redis_sentinel_password: Option<Secret>,
    /// Redis user.
    #[arg(long, env = "REDIS_USERNAME")]
    pub redis_username: Option<String>,
    /// Redis password.
    #[arg(long, env = "REDIS_PASSWORD", hide_env_values = true)]
    pub redis_password: Option<Secret>,
    /// Redis database number [default: 0].
    #[arg(long)]
    pub redis_db: Option<u8>,
    /// First part of every Redis key [default: upriver].
    #[arg(long)]
    pub redis_key_prefix: Option<String>,
    /// After appends and before pushes, wait for so many replicas of Redis to hold the journal [default: 0].
    #[arg(long)]
    pub redis_wait_replicas: Option<u32>,
    /// Longest wait for them; what is not confirmed by then counts as appended all the same [default: 100ms].
    #[arg(long)]
    pub redis_wait_timeout: Option<String>,
    /// Accept a Redis that does not tell its eviction policy.
    #[arg(long, num_args = 0..=1, default_missing_value = "true")]
    pub redis_allow_unknown_policy: Option<bool>,
    /// Folder with the certificate of this replica for the others, its key and their CA; without it there are no peers.
    #[arg(long)]
    pub peer_cert_path: Option<PathBuf>,
    /// Name of the certificate's file there, for servers and clients [default: tls.crt].
    #[arg(long)]
    pub peer_cert_name: Option<PathBuf>,
    /// Name of the key's file there [default: tls.key].
    #[arg(long)]
    pub peer_cert_key: Option<PathBuf>,
    /// Name of the file there with the CA that all replicas' certificates are of [default: ca.crt].
    #[arg(long)]
    pub peer_ca_name: Option<PathBuf>,
    /// DNS name that the certificates of all replicas are for; their addresses need not be in them
    /// [default: upriver-peer].
    #[arg(long)]
    pub peer_tls_server_name: Option<String>,
    /// Address of the server for other replicas [default: 0.0.0.0:9445].
    #[arg(long)]
    pub peer_bind_address: Option<String>,
    /// HOST:PORT at which other replicas reach it [default: --pod-ip with the port of --peer-bind-address].
    #[arg(long)]
    pub peer_advertise_address: Option<String>,
    /// Address of /healthz and /readyz [default: 0.0.0.0:8081].
    #[arg(long)]
    pub health_probe_bind_address: Option<String>,
    /// Address of /metrics, or 0 for none [default: 0.0.0.0:8080].
    #[arg(long)]
    pub metrics_bind_address: Option<String>,
    /// Folder for disposable mirrors of the repositories [default: a folder in the system's temp folder].
    #[arg(long)]
    pub data_dir: Option<PathBuf>,
    /// error, warn, info, debug, trace or a filter [default: info].
    #[arg(long, env = "UPRIVER_LOG_LEVEL")]
    pub log_level: Option<String>,
    /// json or text [default: json].
    #[arg(long, env = "UPRIVER_LOG_ENCODING")]
    pub log_encoding: Option<Encoding>,
    /// After an unclean take-over, push an empty commit when the branch has not moved for so long [default: 60s].
    #[arg(long)]
    pub fence_after: Option<String>,
    /// How often an idle branch is looked at for changes by others [default: 60s].
    #[arg(long)]
    pub drift_poll_interval: Option<String>,
    /// Longest Git operation [default: 60s].
    #[arg(long)]
    pub git_timeout: Option<String>,
    /// Opens a watch again that has said nothing for so long; bookmarks come about once a minute, and three missing ones
    /// mean a dead connection [default: 190s].
    #[arg(long)]
    pub watch_idle_limit: Option<String>,
    /// Accept kubeconfigs of source clusters that log in with a program or plugin.
    #[arg(long, num_args = 0..=1, default_missing_value = "true")]
    pub insecure_kubeconfig_exec: Option<bool>,
    /// Accept kubeconfigs of source clusters that do not check the API server's certificate.
    #[arg(long, num_args = 0..=1, default_missing_value = "true")]
    pub insecure_kubeconfig_tls: Option<bool>,
}

/// Settings that cannot be wrong any more.
#[derive(Clone, Debug)]
pub struct Config {
    /// See [`RunArgs`].
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the Leases.
    pub namespace: String,
    /// Pod name, empty outside of one.
    pub pod_name: String,
    /// How to reach Redis; `None` for the embedded store.
    pub redis: Option<RedisOptions>,
    /// How to serve and reach other replicas; `None` without peers.
    pub peer: Option<PeerConfig>,
    /// /healthz, /readyz.
    pub health_address: SocketAddr,
    /// /metrics.
    pub metrics_address: Option<SocketAddr>,
    /// Mirrors.
    pub data_dir: PathBuf,
    /// Filter.
    pub log_level: String,
    /// Look.
    pub log_encoding: LogEncoding,
    /// See [`RunArgs`].
    pub fence_after: Duration,
    /// See [`RunArgs`].
    pub drift_poll_interval: Duration,
    /// See [`RunArgs`].
    pub git_timeout: Duration,
    /// See [`RunArgs`].
    pub watch_idle_limit: Duration,
    /// What kubeconfigs of source clusters may do.
    pub kubeconfig_permits: Permits,
}

/// A setting cannot be used; the text says which and what to write instead.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("the configuration file {path} cannot be read: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A value is wrong.
    #[error("--{flag} is {value:?}: {expected}")]
    Value {
        /// The flag.
        flag: &'static str,
        /// Its value.
        value: String,
        /// What it should be.
        expected: String,
    },
    /// A value is missing.
    #[error("--{flag} is missing: {expected}")]
    Missing {
        /// The flag.
        flag: &'static str,
        /// What it should be.
        expected: &'static str,
    },
}

impl Secret {
    /// The text, for the one place that needs it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

macro_rules! prefer {
    ($first:ident, $second:ident: $($field:ident),+ $(,)?) => {
        RunArgs { config: $first.config, $($field: $first.$field.or($second.$field)),+ }
    };
}

/// Reads the file if one is named, and validates.
///
/// # Errors
/// See [`ConfigError`].
pub fn load(args: RunArgs) -> Result<Config, ConfigError> {
    let file = match &args.config {
        Some(path) => read_file(path)?,
        None => RunArgs::default(),
    };
    validate(prefer!(args, file:
        kubeconfig, namespace, pod_name, pod_ip, store, redis_addr, redis_insecure, redis_ca_file, redis_client_cert_file,
        redis_client_key_file, redis_sentinel_addrs, redis_sentinel_master, redis_sentinel_username,
        redis_sentinel_password, redis_wait_replicas, redis_wait_timeout, redis_username, redis_password, redis_db,
        redis_key_prefix, redis_allow_unknown_policy, peer_cert_path, peer_cert_name, peer_cert_key, peer_ca_name,
        peer_tls_server_name, peer_bind_address, peer_advertise_address, health_probe_bind_address, metrics_bind_address, data_dir, log_level, log_encoding,
        fence_after, drift_poll_interval, git_timeout, watch_idle_limit, insecure_kubeconfig_exec,
        insecure_kubeconfig_tls,
    ))
}

fn read_file(path: &PathBuf) -> Result<RunArgs, ConfigError> {
    let failed = |reason: String| ConfigError::File { path: path.clone(), reason };
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    serde_saphyr::from_str(&text).map_err(|error| failed(error.to_string()))
}

fn validate(raw: RunArgs) -> Result<Config, ConfigError> {
    let redis = match raw.store.unwrap_or(StoreKind::Redis) {
        StoreKind::Redis => Some(redis::options(&raw)?),
        StoreKind::Embedded => None,
    };
    let peer = peer::options(&raw)?;
    Ok(Config {
        kubeconfig: raw.kubeconfig,
        namespace: raw.namespace.unwrap_or_else(|| "upriver-system".to_owned()),
        pod_name: raw.pod_name.unwrap_or_default(),
        redis,
        peer,
        health_address: address(
            "health-probe-bind-address",
            raw.health_probe_bind_address.as_deref(),
            "0.0.0.0:8081",
        )?
        .ok_or(ConfigError::Missing {
            flag: "health-probe-bind-address",
            expected: "an address; it cannot be 0",
        })?,
        metrics_address: address(
            "metrics-bind-address",
            raw.metrics_bind_address.as_deref(),
            "0.0.0.0:8080",
        )?,
        data_dir: raw.data_dir.unwrap_or_else(|| std::env::temp_dir().join("upriver")),
        log_level: raw.log_level.unwrap_or_else(|| "info".to_owned()),
        log_encoding: match raw.log_encoding {
            Some(Encoding::Text) => LogEncoding::Text,
            Some(Encoding::Json) | None => LogEncoding::Json,
        },
        fence_after: duration("fence-after", raw.fence_after.as_deref(), 60)?,
        drift_poll_interval: duration("drift-poll-interval", raw.drift_poll_interval.as_deref(), 60)?,
        git_timeout: duration("git-timeout", raw.git_timeout.as_deref(), 60)?,
        watch_idle_limit: duration("watch-idle-limit", raw.watch_idle_limit.as_deref(), 190)?,
        kubeconfig_permits: Permits {
            programs: match raw.insecure_kubeconfig_exec {
                Some(true) => Programs::Allowed,
                Some(false) | None => Programs::Refused,
            },
            unchecked_tls: match raw.insecure_kubeconfig_tls {
                Some(true) => UncheckedTls::Allowed,
                Some(false) | None => UncheckedTls::Refused,
            },
        },
    })
}

fn address(
    flag: &'static str,
    value: Option<&str>,
    default: &str,
) -> Result<Option<SocketAddr>, ConfigError> {
    let text = value.unwrap_or(default);
    if text == "0" {
        return Ok(None);
    }
    // ":8081" is what other operators accept.
    let full = if text.starts_with(':') { format!("0.0.0.0{text}") } else { text.to_owned() };
    full.parse().map(Some).map_err(|_| ConfigError::Value {
        flag,
        value: text.to_owned(),
        expected: "use IP:PORT, :PORT, or 0 to switch it off".to_owned(),
    })
}

fn duration(flag: &'static str, value: Option<&str>, default_s: u64) -> Result<Duration, ConfigError> {
    duration_or(flag, value, Duration::from_secs(default_s))
}

fn duration_or(flag: &'static str, value: Option<&str>, default: Duration) -> Result<Duration, ConfigError> {
    let Some(text) = value else { return Ok(default) };
    let wrong = |expected: String| ConfigError::Value { flag, value: text.to_owned(), expected };
    let nanos = upriver_api::duration::parse(text).map_err(|error| wrong(error.to_string()))?;
    let nanos = u64::try_from(nanos).ok().filter(|nanos| *nanos > 0);
    nanos
        .map(Duration::from_nanos)
        .ok_or_else(|| wrong("use a positive duration such as 30s or 1m30s".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args() -> RunArgs {
        RunArgs { redis_addr: Some("redis:6379".to_owned()), ..RunArgs::default() }
    }

    #[test]
    fn a_missing_or_wrong_setting_says_what_to_write() {
        let message = |raw: RunArgs| load(raw).map(|_| ()).expect_err("refused").to_string();
        assert!(message(RunArgs::default()).contains("--redis-addr is missing"));
        let embedded = RunArgs { store: Some(StoreKind::Embedded), ..RunArgs::default() };
        assert!(load(embedded).expect("no Redis is needed").redis.is_none());
        let with = |change: fn(&mut RunArgs)| {
            let mut raw = args();
            change(&mut raw);
            message(raw)
        };
        assert!(with(|raw| raw.redis_key_prefix = Some("a b".to_owned())).contains("--redis-key-prefix"));
        assert!(with(|raw| raw.metrics_bind_address = Some("nine".to_owned())).contains("IP:PORT"));
        assert!(with(|raw| raw.fence_after = Some("5 s".to_owned())).contains("--fence-after"));
        assert!(with(|raw| raw.git_timeout = Some("0s".to_owned())).contains("positive"));
    }

    #[test]
    fn a_flag_beats_the_file_and_unknown_keys_are_refused() {
        let file = std::env::temp_dir().join(format!("upriver-config-{}.yaml", std::process::id()));
        std::fs::write(&file, "namespace: from-file\nlog_level: debug\n").expect("writable");
        let mut raw = args();
        raw.config = Some(file.clone());
        raw.namespace = Some("from-flag".to_owned());
        let config = load(raw.clone()).expect("valid");
        assert_eq!((config.namespace.as_str(), config.log_level.as_str()), ("from-flag", "debug"));
        std::fs::write(&file, "nmaespace: typo\n").expect("writable");
        let message = load(raw).map(|_| ()).expect_err("refused").to_string();
        assert!(message.contains("nmaespace"), "{message}");
        std::fs::remove_file(&file).expect("removable");
    }
}
