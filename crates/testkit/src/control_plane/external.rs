//! How does a cluster that the user named play our control plane? Its own login is the admin, everybody else is
//! impersonated by it; so that login needs the right to impersonate and to bind roles.

use std::path::Path;

use kube::config::Kubeconfig;
use serde_json::{Value, json};

use super::access::{User, block_on_config};
use crate::TestkitError;
use crate::workdir::WorkDir;

#[derive(Debug)]
pub(super) struct External {
    kubeconfig: Value,
    config: kube::Config,
    dir: WorkDir,
}

impl External {
    pub(super) fn open(path: &Path) -> Result<Self, TestkitError> {
        let unusable = |why: String| TestkitError::Kubeconfig { path: path.to_owned(), why };
        let parsed = Kubeconfig::read_from(path).map_err(|error| unusable(error.to_string()))?;
        let kubeconfig = serde_json::to_value(&parsed).map_err(|error| unusable(error.to_string()))?;
        let config = block_on_config(parsed).map_err(unusable)?;
        let dir = WorkDir::new("external", None)
            .map_err(|source| TestkitError::Io { what: "make a temporary folder".into(), source })?;
        Ok(Self { kubeconfig, config, dir })
    }

    pub(super) fn url(&self) -> String {
        self.config.cluster_url.to_string().trim_end_matches('/').to_owned()
    }

    pub(super) fn ca_pem(&self) -> String {
        let lines = |der: &Vec<u8>| {
            use base64::Engine;
            let text = base64::engine::general_purpose::STANDARD.encode(der);
            format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
        };
        self.config.root_cert.iter().flatten().map(lines).collect()
    }

    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(super) fn config(&self, parsed: Kubeconfig) -> Result<kube::Config, TestkitError> {
        block_on_config(parsed)
            .map_err(|why| TestkitError::Kubeconfig { path: self.dir.path().to_owned(), why })
    }

    pub(super) fn kubeconfig(&self, user: User) -> Value {
        let mut value = self.kubeconfig.clone();
        if user != User::Admin {
            for entry in value["users"].as_array_mut().into_iter().flatten() {
                entry["user"]["as"] = json!(user.name());
                entry["user"]["as-groups"] = json!([user.group(), "system:authenticated"]);
            }
        }
        value
    }
}
