//! What may differ between control planes? Everything here has a safe default.

use std::path::PathBuf;

/// How a control plane is set up.
#[derive(Clone, Debug, Default)]
pub struct ControlPlaneOptions {
    /// Where the API server posts audit events, for example `http://127.0.0.1:9444/audit-webhook/default`. Nobody has
    /// to listen yet: batches are retried, and dropped after a while. No auditing if absent.
    pub audit_webhook_url: Option<String>,
    /// TLS towards that webhook, for an `https` address. Without it any certificate is accepted.
    pub audit_webhook_tls: Option<AuditTls>,
    /// More kube-apiserver flags, for example `--v=4`. A repeated flag overrides ours.
    pub extra_flags: Vec<String>,
    /// Folder for data, logs and kubeconfigs, kept afterwards; a temporary one, removed afterwards, if absent.
    pub dir: Option<PathBuf>,
}

/// The API server's side of mutual TLS with an audit webhook.
#[derive(Clone, Debug)]
pub struct AuditTls {
    /// Vouches for the webhook.
    pub ca_pem: String,
    /// The name in the webhook's certificate.
    pub server_name: String,
    /// The API server's client certificate.
    pub client_cert_pem: String,
    /// And its key.
    pub client_key_pem: String,
}
