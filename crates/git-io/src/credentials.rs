//! With which login do we come? In: a Secret's data and the remote's address. Out: one method, by fixed precedence, or
//! what is wrong with the Secret. Not here: SSH keys and GitHub Apps, which are recognised and refused by name.

use std::collections::BTreeMap;
use std::fmt;

use crate::url::{RemoteUrl, Scheme};

/// How we authenticate. `Debug` shows no secret.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// No login.
    Anonymous,
    /// HTTP basic.
    Basic {
        /// The user; hosts that take tokens as passwords ignore it.
        username: String,
        /// Password or token.
        password: String,
    },
    /// HTTP bearer.
    Bearer(String),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anonymous => f.write_str("Anonymous"),
            Self::Basic { username, .. } => {
                f.debug_struct("Basic").field("username", username).field("password", &"***").finish()
            }
            Self::Bearer(_) => f.write_str("Bearer(***)"),
        }
    }
}

/// Why a Secret yields no login.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// SSH is not built yet. Condition reason: `NotYetSupported`.
    #[error("{remote} needs SSH, which is not supported yet; use the repository's https address and a token")]
    SshNotYetSupported {
        /// The remote without secrets.
        remote: String,
    },
    /// The Secret's method does not fit the address.
    #[error(
        "the Secret holds an SSH key ({key}) but {remote} is an HTTP address; add a Secret with a password or token"
    )]
    SchemeMismatch {
        /// The remote without secrets.
        remote: String,
        /// The Secret's key.
        key: &'static str,
    },
    /// Only a GitHub App is configured. Condition reason: `NotYetSupported`.
    #[error("GitHub App credentials are not supported yet; put a token into the key password")]
    GitHubAppNotYetSupported,
    /// A user without password.
    #[error("the Secret holds a username but no password; add the key password")]
    UsernameOnly,
    /// None of the known keys has a value.
    #[error("the Secret holds no usable credentials; set password (and username), or bearerToken")]
    Nothing,
    /// A value that cannot be sent.
    #[error("the value of {key} in the Secret {rule}; correct it")]
    BadValue {
        /// The Secret's key.
        key: &'static str,
        /// What is wrong, without the value.
        rule: &'static str,
    },
}

/// Keys of the three dialects: native, Flux, Argo CD.
const SSH_KEYS: [&str; 3] = ["ssh-privatekey", "identity", "sshPrivateKey"];
const GITHUB_APP_KEYS: [&str; 1] = ["githubAppPrivateKey"];
const CA_KEYS: [&str; 2] = ["ca.crt", "caFile"];

/// Sent when the Secret holds a token alone; every known host ignores it then.
const DEFAULT_USER: &str = "git";

impl Credentials {
    /// Reads a Secret: SSH key, then basic, then bearer. An empty value counts as absent; one trailing line break, as
    /// `echo` leaves it, is cut.
    ///
    /// # Errors
    /// Nothing usable, or a method that is not supported or does not fit the address.
    pub fn from_secret(
        secret: &BTreeMap<String, Vec<u8>>,
        url: &RemoteUrl,
    ) -> Result<Self, CredentialsError> {
        match url.scheme() {
            Scheme::Ssh => {
                return Err(CredentialsError::SshNotYetSupported { remote: url.display_redacted() });
            }
            Scheme::Http | Scheme::Https => {}
        }
        for key in SSH_KEYS {
            if value(secret, key)?.is_some() {
                return Err(CredentialsError::SchemeMismatch { remote: url.display_redacted(), key });
            }
        }
        let username = value(secret, "username")?;
        if username.as_ref().is_some_and(|name| name.contains(':')) {
            return Err(CredentialsError::BadValue { key: "username", rule: "holds a colon" });
        }
        if let Some(password) = value(secret, "password")? {
            let username =
                username.or_else(|| url.user().map(str::to_owned)).unwrap_or_else(|| DEFAULT_USER.into());
            return Ok(Self::Basic { username, password });
        }
        if let Some(token) = value(secret, "bearerToken")? {
            return Ok(Self::Bearer(token));
        }
        if username.is_some() {
            return Err(CredentialsError::UsernameOnly);
        }
        for key in GITHUB_APP_KEYS {
            if value(secret, key)?.is_some() {
                return Err(CredentialsError::GitHubAppNotYetSupported);
            }
        }
        Err(CredentialsError::Nothing)
    }

    /// The extra certificate authority of a Secret, if any.
    #[must_use]
    pub fn ca_from_secret(secret: &BTreeMap<String, Vec<u8>>) -> Option<&[u8]> {
        CA_KEYS.iter().filter_map(|key| secret.get(*key)).find(|pem| !pem.is_empty()).map(Vec::as_slice)
    }
}

fn value(secret: &BTreeMap<String, Vec<u8>>, key: &'static str) -> Result<Option<String>, CredentialsError> {
    let Some(bytes) = secret.get(key) else { return Ok(None) };
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
    if bytes.is_empty() {
        return Ok(None);
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|_| CredentialsError::BadValue { key, rule: "is not UTF-8 text" })?;
    if !SSH_KEYS.contains(&key) && !GITHUB_APP_KEYS.contains(&key) && text.chars().any(char::is_control) {
        return Err(CredentialsError::BadValue {
            key,
            rule: "holds a line break or another control character",
        });
    }
    Ok(Some(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(pairs: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect()
    }

    fn read(pairs: &[(&str, &str)]) -> Result<Credentials, CredentialsError> {
        Credentials::from_secret(&secret(pairs), &RemoteUrl::parse("https://h/r").expect("a URL"))
    }

    fn basic(username: &str, password: &str) -> Credentials {
        Credentials::Basic { username: username.into(), password: password.into() }
    }

    #[test]
    fn methods_follow_the_precedence_of_the_secret() {
        assert_eq!(read(&[("username", "u"), ("password", "p"), ("bearerToken", "b")]), Ok(basic("u", "p")));
        assert_eq!(read(&[("password", "p")]), Ok(basic("git", "p")), "a password alone selects basic");
        assert_eq!(read(&[("bearerToken", "b")]), Ok(Credentials::Bearer("b".into())));
        assert_eq!(read(&[("username", "u")]), Err(CredentialsError::UsernameOnly));
        assert_eq!(
            read(&[("username", ""), ("password", "")]),
            Err(CredentialsError::Nothing),
            "empty is absent"
        );
        assert_eq!(read(&[("githubAppPrivateKey", "k\nk")]), Err(CredentialsError::GitHubAppNotYetSupported));
    }

    #[test]
    fn an_ssh_key_for_an_http_address_is_a_mismatch() {
        for key in SSH_KEYS {
            let found = read(&[(key, "-----BEGIN\nx"), ("password", "p")]);
            assert_eq!(found, Err(CredentialsError::SchemeMismatch { remote: "https://h/r".into(), key }));
        }
    }

    #[test]
    fn an_ssh_address_is_not_yet_supported() {
        let url = RemoteUrl::parse("git@h:r").expect("a URL");
        let found = Credentials::from_secret(&secret(&[("identity", "k")]), &url);
        assert_eq!(found, Err(CredentialsError::SshNotYetSupported { remote: "git@h:r".into() }));
    }

    #[test]
    fn one_trailing_line_break_is_cut_and_others_are_refused() {
        assert_eq!(read(&[("password", "p\n")]), Ok(basic("git", "p")));
        assert_eq!(read(&[("password", "p\r\n")]), Ok(basic("git", "p")));
        assert!(matches!(
            read(&[("bearerToken", "a\nb")]),
            Err(CredentialsError::BadValue { key: "bearerToken", .. })
        ));
    }

    #[test]
    fn debug_shows_no_secret() {
        let shown = format!("{:?} {:?}", basic("user", "hunter2"), Credentials::Bearer("hunter2".into()));
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
