//! Which repository does this address name? In: what a user wrote. Out: an address that is safe to hand to a transport,
//! and a canonical identity that equal repositories share. Not here: connecting, and `file://`, which is refused.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// How the remote is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Clear text.
    Http,
    /// TLS.
    Https,
    /// `ssh://` and the scp form.
    Ssh,
}

/// A checked remote address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteUrl {
    text: String,
    scheme: Scheme,
    user: Option<String>,
    canonical: String,
}

/// Why an address is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Nothing given.
    #[error("the repository URL is empty; set spec.url")]
    Empty,
    /// Control characters or blanks.
    #[error("the repository URL holds a blank or a control character; remove it")]
    Character,
    /// A part that starts with a dash, which a program would read as an option.
    #[error("the {part} of the repository URL starts with a dash; that is never valid")]
    OptionInjection {
        /// Which part.
        part: &'static str,
    },
    /// `ext::` and other remote helpers, `file://`, `git://` and so on.
    #[error("the scheme {scheme:?} is not supported; use https://")]
    Scheme {
        /// What was given.
        scheme: String,
    },
    /// Neither a URL nor the scp form.
    #[error("this is no repository URL; use https://host/path")]
    NotAUrl,
    /// No host.
    #[error("the repository URL has no valid host; use https://host/path")]
    Host,
    /// No path.
    #[error("the repository URL has no path; use https://host/path")]
    Path,
    /// `?` or `#`.
    #[error("the repository URL holds a query or fragment; remove what follows ? or #")]
    QueryOrFragment,
    /// A password in the address would end up in status and logs.
    #[error(
        "the repository URL holds a password; remove it there, revoke it, and put the new one into the Secret"
    )]
    Password,
}

/// Names under which one host is known: alias to real name, both with a port where it is not the default.
pub type HostAliases = BTreeMap<String, String>;

impl RemoteUrl {
    /// Checks an address.
    ///
    /// # Errors
    /// See [`UrlError`].
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        Self::parse_with(text, &HostAliases::new())
    }

    /// As [`RemoteUrl::parse`], with host aliases for the identity.
    ///
    /// # Errors
    /// See [`UrlError`].
    pub fn parse_with(text: &str, aliases: &HostAliases) -> Result<Self, UrlError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(UrlError::Empty);
        }
        if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(UrlError::Character);
        }
        if text.starts_with('-') {
            return Err(UrlError::OptionInjection { part: "beginning" });
        }
        let parts = if let Some((scheme, rest)) = text.split_once("://") {
            Parts::from_url(scheme, rest)?
        } else {
            Parts::from_scp(text)?
        };
        let canonical = parts.canonical(aliases)?;
        Ok(Self { text: parts.text(), scheme: parts.scheme, user: parts.user, canonical })
    }

    /// The address to connect to. It never holds a password.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The identity: host, port unless default, path; the same for all spellings of one repository.
    #[must_use]
    pub fn canonical(&self) -> &str {
        &self.canonical
    }

    /// For people and logs. Addresses with a password are refused, so this is the address itself.
    #[must_use]
    pub fn display_redacted(&self) -> String {
        self.text.clone()
    }

    /// How the remote is reached.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The address without its user, for HTTP: the login travels in a header of its own.
    pub(crate) fn http_address(&self) -> String {
        match &self.user {
            Some(user) => self.text.replacen(&format!("{user}@"), "", 1),
            None => self.text.clone(),
        }
    }

    /// The user in the address, if any.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }
}

/// The key under which all writers of one branch of one repository meet: hex of the first 16 bytes of
/// `sha256(canonical, NUL, branch)`.
#[must_use]
pub fn branch_key(url: &RemoteUrl, branch: &str) -> String {
    let digest =
        Sha256::new().chain_update(url.canonical()).chain_update([0]).chain_update(branch).finalize();
    digest.iter().take(16).fold(String::with_capacity(32), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

struct Parts {
    scheme: Scheme,
    user: Option<String>,
    /// Lower case, punycode.
    host: String,
    port: Option<u16>,
    /// As written, without the slash that separates it from the host in a URL; scp paths as they are.
    path: String,
    scp: bool,
}

impl Parts {
    fn from_url(scheme: &str, rest: &str) -> Result<Self, UrlError> {
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            "ssh" => Scheme::Ssh,
            other => return Err(UrlError::Scheme { scheme: other.to_owned() }),
        };
        if rest.contains(['?', '#']) {
            return Err(UrlError::QueryOrFragment);
        }
        let (authority, path) = rest.split_once('/').ok_or(UrlError::Path)?;
        let (user, host_port) = split_user(authority)?;
        let (host, port) = split_port(host_port)?;
        let host = clean_host(host)?;
        Ok(Self { scheme, user, host, port, path: clean_path(path)?, scp: false })
    }

    fn from_scp(text: &str) -> Result<Self, UrlError> {
        if let Some((helper, _)) = text.split_once("::")
            && !helper.is_empty()
            && helper.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
        {
            return Err(UrlError::Scheme { scheme: format!("{helper}::") });
        }
        // An IPv6 host holds colons of its own.
        let colon = match text.find("]:") {
            Some(at) => at + 1,
            None => text.find(':').ok_or(UrlError::NotAUrl)?,
        };
        let (authority, path) = (&text[..colon], &text[colon + 1..]);
        if authority.contains('/') {
            return Err(UrlError::NotAUrl);
        }
        let (user, host) = split_user(authority)?;
        let path = clean_path(path)?;
        Ok(Self { scheme: Scheme::Ssh, user, host: clean_host(host)?, port: None, path, scp: true })
    }

    /// The address as a transport shall see it, with the user but in a checked form.
    fn text(&self) -> String {
        let user = self.user.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
        if self.scp {
            return format!("{user}{}:{}", self.host, self.path);
        }
        let port = self.port.map(|port| format!(":{port}")).unwrap_or_default();
        let scheme = match self.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
            Scheme::Ssh => "ssh",
        };
        format!("{scheme}://{user}{}{port}/{}", self.host, self.path)
    }

    fn canonical(&self, aliases: &HostAliases) -> Result<String, UrlError> {
        let mut host = self.host_identity();
        if let Some(real) = aliases.get(&host) {
            host.clone_from(real);
        }
        let decoded = percent_decode(&self.path);
        let mut parts: Vec<&str> = decoded.split('/').filter(|part| !part.is_empty()).collect();
        if let Some(last) = parts.last_mut() {
            *last = last.strip_suffix(".git").unwrap_or(last);
        }
        parts.retain(|part| !part.is_empty());
        if parts.is_empty() {
            return Err(UrlError::Path);
        }
        if let Some(azure) = azure_identity(&host, &parts) {
            return Ok(azure);
        }
        let path = parts.join("/");
        let folds = matches!(host.as_str(), "github.com" | "gitlab.com" | "bitbucket.org");
        Ok(format!("{host}/{}", if folds { path.to_lowercase() } else { path }))
    }

    fn host_identity(&self) -> String {
        match (self.host.as_str(), self.port) {
            ("ssh.github.com", Some(443)) => return "github.com".into(),
            ("altssh.gitlab.com", Some(443)) => return "gitlab.com".into(),
            ("altssh.bitbucket.org", Some(443)) => return "bitbucket.org".into(),
            (_, _) => {}
        }
        let default = match self.scheme {
            Scheme::Http => 80,
            Scheme::Https => 443,
            Scheme::Ssh => 22,
        };
        match self.port {
            Some(port) if port != default => format!("{}:{port}", self.host),
            Some(_) | None => self.host.clone(),
        }
    }
}

/// All spellings of an Azure DevOps repository as `dev.azure.com/org/project/repository`, in lower case.
fn azure_identity(host: &str, parts: &[&str]) -> Option<String> {
    let (org, project, repository) = match (host, parts) {
        ("dev.azure.com", [org, project, "_git", repository]) => (*org, *project, *repository),
        // The project's own repository may be named without the project.
        ("dev.azure.com", [org, "_git", repository]) => (*org, *repository, *repository),
        ("ssh.dev.azure.com" | "vs-ssh.visualstudio.com", ["v3", org, project, repository]) => {
            (*org, *project, *repository)
        }
        (_, _) => {
            let org = host.strip_suffix(".visualstudio.com")?;
            let rest = match parts {
                [collection, rest @ ..] if collection.eq_ignore_ascii_case("DefaultCollection") => rest,
                all => all,
            };
            match rest {
                [project, "_git", repository] => (org, *project, *repository),
                ["_git", repository] => (org, *repository, *repository),
                _ => return None,
            }
        }
    };
    Some(format!("dev.azure.com/{org}/{project}/{repository}").to_lowercase())
}

fn split_user(authority: &str) -> Result<(Option<String>, &str), UrlError> {
    let Some((userinfo, host)) = authority.rsplit_once('@') else { return Ok((None, authority)) };
    if userinfo.contains(':') {
        return Err(UrlError::Password);
    }
    if userinfo.starts_with('-') {
        return Err(UrlError::OptionInjection { part: "user" });
    }
    Ok(((!userinfo.is_empty()).then(|| userinfo.to_owned()), host))
}

fn split_port(host_port: &str) -> Result<(&str, Option<u16>), UrlError> {
    let after_ipv6 = host_port.rfind(']').map_or(0, |at| at + 1);
    match host_port[after_ipv6..].rfind(':') {
        None => Ok((host_port, None)),
        Some(at) => {
            let (host, port) = (&host_port[..after_ipv6 + at], &host_port[after_ipv6 + at + 1..]);
            if port.is_empty() {
                return Ok((host, None));
            }
            let port = port.parse().ok().filter(|port| *port != 0).ok_or(UrlError::Host)?;
            Ok((host, Some(port)))
        }
    }
}

/// Lower case and punycode, by the rules that browsers and the HTTP client use.
fn clean_host(host: &str) -> Result<String, UrlError> {
    if host.starts_with('-') {
        return Err(UrlError::OptionInjection { part: "host" });
    }
    let url = reqwest::Url::parse(&format!("https://{host}/")).map_err(|_| UrlError::Host)?;
    let plain =
        url.port().is_none() && url.username().is_empty() && url.path() == "/" && url.query().is_none();
    url.host_str().filter(|found| plain && !found.is_empty()).map(str::to_owned).ok_or(UrlError::Host)
}

fn clean_path(path: &str) -> Result<String, UrlError> {
    if path.trim_matches('/').is_empty() {
        return Err(UrlError::Path);
    }
    if path.starts_with('-') {
        return Err(UrlError::OptionInjection { part: "path" });
    }
    Ok(path.to_owned())
}

fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = text.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}
