//! May a kubeconfig from a Secret be used? In: the data of the Secret. Out: yes, or a named refusal. No dial, no file is
//! read and no program is run to find out; no text of the kubeconfig gets into a message, it holds credentials.

use std::collections::BTreeMap;

use kube::Config;
use kube::config::{AuthInfo, Cluster, KubeConfigOptions, Kubeconfig};

/// Keys that are tried when none is named.
const KEYS: [&str; 2] = ["value", "value.yaml"];

/// A program or an authentication plugin in a kubeconfig.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Programs {
    /// Refused.
    #[default]
    Refused,
    /// Run, in the operator's own container.
    Allowed,
}

/// TLS without checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UncheckedTls {
    /// Refused.
    #[default]
    Refused,
    /// Used.
    Allowed,
}

/// What the operator's flags permit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Permits {
    /// `--insecure-kubeconfig-exec`.
    pub programs: Programs,
    /// `--insecure-kubeconfig-tls`.
    pub unchecked_tls: UncheckedTls,
}

/// Why a kubeconfig cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// The Secret has no such key, or nothing under it.
    #[error("the Secret has no kubeconfig under {tried}: put it there, or set spec.kubeConfig.secretRef.key")]
    KeyNotFound {
        /// The keys that were looked for.
        tried: String,
    },
    /// It cannot be read as one.
    #[error("{why}: store the output of `kubectl config view --raw --minify --flatten`")]
    Invalid {
        /// What is wrong.
        why: String,
    },
    /// It runs a program.
    #[error(
        "user {user} logs in with a program or plugin: embed a token or a client certificate, or start the operator with \
         --insecure-kubeconfig-exec"
    )]
    Exec {
        /// Entry of the kubeconfig.
        user: String,
    },
    /// It skips TLS checks.
    #[error(
        "cluster {cluster} skips the check of its certificate: embed certificate-authority-data, or start the operator with \
         --insecure-kubeconfig-tls"
    )]
    InsecureTls {
        /// Entry of the kubeconfig.
        cluster: String,
    },
    /// It names files, which would be the operator's own.
    #[error("{entry} names a file in {field}: embed its content")]
    FileReference {
        /// Entry of the kubeconfig.
        entry: String,
        /// The field.
        field: &'static str,
    },
}

/// The kubeconfig in the data of a Secret: under `key` if it is named and not empty, else `value`, then `value.yaml`.
///
/// # Errors
/// [`Unusable::KeyNotFound`] if there is nothing, or only an empty value.
pub fn pick<'a>(data: &'a BTreeMap<String, Vec<u8>>, key: Option<&str>) -> Result<&'a [u8], Unusable> {
    let named = key.filter(|key| !key.is_empty());
    let keys = named.map_or_else(|| KEYS.to_vec(), |key| vec![key]);
    let found = keys.iter().find_map(|key| data.get(*key).filter(|value| !value.is_empty()));
    found.map(Vec::as_slice).ok_or_else(|| Unusable::KeyNotFound { tried: keys.join(" or ") })
}

/// Whether a kubeconfig may be used.
///
/// # Errors
/// The first thing that is wrong with any of its entries.
pub async fn check(text: &[u8], permits: Permits) -> Result<(), Unusable> {
    let invalid = |why: &str| Unusable::Invalid { why: why.to_owned() };
    let text = std::str::from_utf8(text).map_err(|_| invalid("it is no text"))?;
    // The parser's own words quote the text.
    let parsed = Kubeconfig::from_yaml(text).map_err(|_| invalid("it is not the YAML of a kubeconfig"))?;
    for named in &parsed.auth_infos {
        if let Some(user) = &named.auth_info {
            check_user(&named.name, user, permits.programs)?;
        }
    }
    for named in &parsed.clusters {
        if let Some(cluster) = &named.cluster {
            check_cluster(&named.name, cluster, permits.unchecked_tls)?;
        }
    }
    check_context(&parsed)?;
    let options = KubeConfigOptions::default();
    // Nothing is left that would read a file or run a program here.
    let config = Config::from_custom_kubeconfig(parsed, &options);
    config.await.map(drop).map_err(|_| invalid("its address, certificates or keys cannot be read"))
}

fn check_user(name: &str, user: &AuthInfo, programs: Programs) -> Result<(), Unusable> {
    let program = user.exec.is_some() || user.auth_provider.is_some();
    if program && programs == Programs::Refused {
        return Err(Unusable::Exec { user: name.to_owned() });
    }
    let files = [
        ("tokenFile", &user.token_file),
        ("client-certificate", &user.client_certificate),
        ("client-key", &user.client_key),
    ];
    no_files(&format!("user {name}"), &files)
}

fn check_cluster(name: &str, cluster: &Cluster, tls: UncheckedTls) -> Result<(), Unusable> {
    if cluster.insecure_skip_tls_verify == Some(true) && tls == UncheckedTls::Refused {
        return Err(Unusable::InsecureTls { cluster: name.to_owned() });
    }
    no_files(&format!("cluster {name}"), &[("certificate-authority", &cluster.certificate_authority)])
}

fn no_files(entry: &str, files: &[(&'static str, &Option<String>)]) -> Result<(), Unusable> {
    let named = files.iter().find(|(_, path)| path.as_ref().is_some_and(|path| !path.is_empty()));
    match named {
        Some((field, _)) => Err(Unusable::FileReference { entry: entry.to_owned(), field }),
        None => Ok(()),
    }
}

fn check_context(parsed: &Kubeconfig) -> Result<(), Unusable> {
    let missing = |why: &str| Err(Unusable::Invalid { why: why.to_owned() });
    let Some(name) = parsed.current_context.as_ref().filter(|name| !name.is_empty()) else {
        return missing("it has no current-context");
    };
    let context = parsed.contexts.iter().find(|context| context.name == *name);
    let Some(context) = context.and_then(|context| context.context.as_ref()) else {
        return missing("its current-context is not among its contexts");
    };
    let cluster = parsed.clusters.iter().find(|cluster| cluster.name == context.cluster);
    let server =
        cluster.and_then(|cluster| cluster.cluster.as_ref()).and_then(|cluster| cluster.server.as_ref());
    if server.is_none_or(|server| server.is_empty()) {
        return missing("the cluster of its current-context has no server");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn kubeconfig(cluster: &Value, user: &Value) -> Vec<u8> {
        let mut value = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "x",
            "clusters": [{"name": "c", "cluster": {"server": "https://k.example.net:6443"}}],
            "users": [{"name": "u", "user": {"token": "PLANTED"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}]
        });
        let merge = |into: &mut Value, from: &Value| {
            for (key, value) in from.as_object().into_iter().flatten() {
                into[key] = value.clone();
            }
        };
        merge(&mut value["clusters"][0]["cluster"], cluster);
        merge(&mut value["users"][0]["user"], user);
        value.to_string().into_bytes()
    }

    async fn verdict(text: &[u8], permits: Permits) -> &'static str {
        let Err(error) = check(text, permits).await else { return "usable" };
        assert!(!error.to_string().contains("PLANTED"), "{error}");
        match error {
            Unusable::KeyNotFound { .. } => "key",
            Unusable::Invalid { .. } => "invalid",
            Unusable::Exec { .. } => "exec",
            Unusable::InsecureTls { .. } => "tls",
            Unusable::FileReference { .. } => "file",
        }
    }

    #[tokio::test]
    async fn what_would_run_a_program_read_a_file_or_trust_anybody_is_refused() {
        let none = json!({});
        let exec = json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "aws"}});
        let plugin = json!({"auth-provider": {"name": "gcp"}});
        let blind = json!({"insecure-skip-tls-verify": true});
        let strict = Permits::default();
        let lax = Permits { programs: Programs::Allowed, unchecked_tls: UncheckedTls::Allowed };
        let cases = [
            (kubeconfig(&none, &none), "usable", "usable"),
            (kubeconfig(&none, &exec), "exec", "usable"),
            (kubeconfig(&none, &plugin), "exec", "usable"),
            (kubeconfig(&blind, &none), "tls", "usable"),
            (kubeconfig(&json!({"certificate-authority": "/etc/ca.pem"}), &none), "file", "file"),
            (kubeconfig(&none, &json!({"tokenFile": "/var/run/token"})), "file", "file"),
            (kubeconfig(&none, &json!({"client-certificate": "a.pem"})), "file", "file"),
            (kubeconfig(&none, &json!({"client-key": "a.pem"})), "file", "file"),
            (kubeconfig(&json!({"certificate-authority-data": "!"}), &none), "invalid", "invalid"),
            (kubeconfig(&json!({"server": ""}), &none), "invalid", "invalid"),
            (kubeconfig(&json!({"server": "not a url"}), &none), "invalid", "invalid"),
            (b"PLANTED: [".to_vec(), "invalid", "invalid"),
            (b"- PLANTED".to_vec(), "invalid", "invalid"),
            (b"{}".to_vec(), "invalid", "invalid"),
            (vec![0xff], "invalid", "invalid"),
        ];
        for (text, strictly, laxly) in cases {
            let shown = String::from_utf8_lossy(&text).into_owned();
            assert_eq!(verdict(&text, strict).await, strictly, "{shown}");
            assert_eq!(verdict(&text, lax).await, laxly, "{shown}, with both flags");
        }
    }

    #[test]
    fn the_named_key_counts_alone_and_else_two_are_tried_in_order() {
        let data = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect()
        };
        let both: BTreeMap<String, Vec<u8>> =
            data(&[("value", "1"), ("value.yaml", "2"), ("k", "3"), ("e", "")]);
        assert_eq!(pick(&both, None), Ok(&b"1"[..]));
        assert_eq!(pick(&both, Some("")), Ok(&b"1"[..]));
        assert_eq!(pick(&both, Some("k")), Ok(&b"3"[..]));
        assert_eq!(pick(&both, Some("e")), Err(Unusable::KeyNotFound { tried: "e".into() }));
        assert_eq!(pick(&both, Some("gone")), Err(Unusable::KeyNotFound { tried: "gone".into() }));
        let second = data(&[("value", ""), ("value.yaml", "2")]);
        assert_eq!(pick(&second, None), Ok(&b"2"[..]));
        let none = BTreeMap::new();
        assert_eq!(pick(&none, None), Err(Unusable::KeyNotFound { tried: "value or value.yaml".into() }));
    }
}
