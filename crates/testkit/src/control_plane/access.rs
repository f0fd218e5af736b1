//! Who can log in, and with what? In: a [`User`]. Out: a token, a kubeconfig, a client.

use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use super::{Backend, ControlPlane};
use crate::TestkitError;

/// The group of the people who edit objects.
pub(super) const EDITORS: &str = "upriver:editors";

/// Somebody who can log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum User {
    /// Member of `system:masters`: passes every check.
    Admin,
    /// A person, may edit everything everywhere.
    Alice,
    /// A second person, same rights.
    Bob,
    /// A third person, same rights.
    Carol,
    /// The operator: bound to `cluster-admin`, in a [`crate::Stack`] to what the manifests give it.
    Upriver,
}

impl User {
    /// Everybody.
    pub const ALL: [Self; 5] = [Self::Admin, Self::Alice, Self::Bob, Self::Carol, Self::Upriver];

    /// The user name that the API server sees.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Alice => "alice",
            Self::Bob => "bob",
            Self::Carol => "carol",
            Self::Upriver => "upriver",
        }
    }

    pub(super) fn group(self) -> &'static str {
        match self {
            Self::Admin => "system:masters",
            Self::Alice | Self::Bob | Self::Carol => EDITORS,
            Self::Upriver => "upriver:operators",
        }
    }
}

impl ControlPlane {
    pub(super) fn write_kubeconfig(&self, user: User) -> Result<PathBuf, TestkitError> {
        let content = self.kubeconfig_value(user)?;
        let path = self.dir().join(format!("{}.kubeconfig", user.name()));
        write_private(&path, &format!("{content:#}\n"))?;
        Ok(path)
    }

    pub(super) fn try_client(&self, user: User) -> Result<Client, TestkitError> {
        crate::init_tls();
        let config = self.kube_config(user)?;
        Client::try_from(config)
            .map_err(|source| TestkitError::Kube { what: "build a client".into(), source: Box::new(source) })
    }

    fn kube_config(&self, user: User) -> Result<kube::Config, TestkitError> {
        let unusable = |why: String| TestkitError::Kubeconfig { path: self.dir().to_owned(), why };
        let value = self.kubeconfig_value(user)?;
        let parsed: Kubeconfig =
            serde_json::from_value(value).map_err(|error| unusable(error.to_string()))?;
        let mut config = match &self.backend {
            Backend::Local(local) => {
                let server = local.url().parse().expect("our own URL is well formed");
                let mut config = kube::Config::new(server);
                config.root_cert = Some(local.ca_der()?);
                config.auth_info =
                    parsed.auth_infos.into_iter().find_map(|named| named.auth_info).unwrap_or_default();
                config
            }
            Backend::External(external) => external.config(parsed)?,
        };
        config.default_retry = false;
        config.connect_timeout = Some(Duration::from_secs(5));
        Ok(config)
    }

    fn kubeconfig_value(&self, user: User) -> Result<Value, TestkitError> {
        match &self.backend {
            Backend::External(external) => Ok(external.kubeconfig(user)),
            Backend::Local(local) => {
                let ca = STANDARD.encode(local.ca_pem()?);
                let cluster = json!({"server": local.url(), "certificate-authority-data": ca});
                Ok(kubeconfig(&cluster, &json!({"token": local.token(user)})))
            }
        }
    }
}

/// A kubeconfig with one cluster, one user and one context. JSON is YAML, so kubectl reads it.
pub(super) fn kubeconfig(cluster: &Value, user: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": "user", "user": user}],
        "contexts": [{"name": "context", "context": {"cluster": "cluster", "user": "user"}}],
        "current-context": "context",
    })
}

/// Blocking-free conversion of a parsed kubeconfig: every piece is inline, so nothing is read or run.
pub(super) fn block_on_config(parsed: Kubeconfig) -> Result<kube::Config, String> {
    let options = KubeConfigOptions::default();
    std::thread::scope(|scope| {
        let runner = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| error.to_string())?;
            let config = kube::Config::from_custom_kubeconfig(parsed, &options);
            runtime.block_on(config).map_err(|error| error.to_string())
        });
        runner.join().map_err(|_| "the conversion panicked".to_owned())?
    })
}

/// Writes a file that only we can read: it holds a token or a key.
pub(super) fn write_private(path: &Path, content: &str) -> Result<(), TestkitError> {
    use std::io::Write;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let written = options.open(path).and_then(|mut file| file.write_all(content.as_bytes()));
    written.map_err(|source| TestkitError::Io { what: format!("write {}", path.display()), source })
}
