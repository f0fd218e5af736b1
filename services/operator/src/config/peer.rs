//! The settings about other replicas: flags become one [`PeerConfig`]. Whether the files are usable is looked at when the
//! server starts.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use rustls::pki_types::ServerName;
use upriver_peer_io::TlsFiles;

use super::{ConfigError, RunArgs, StoreKind, address};

/// Port of replicas for each other.
const DEFAULT_BIND: &str = "0.0.0.0:9445";

/// How this replica serves others, and where they find it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerConfig {
    /// Where it listens.
    pub bind_address: SocketAddr,
    /// Host and port that others call; part of the session.
    pub advertise_address: String,
    /// Certificate, key, CA and the name that the certificates of all replicas are for.
    pub tls: TlsFiles,
}

pub(super) fn options(raw: &RunArgs) -> Result<Option<PeerConfig>, ConfigError> {
    let folder = raw.peer_cert_path.as_ref().filter(|path| !path.as_os_str().is_empty());
    let Some(folder) = folder else { return without_peers(raw).map(|()| None) };
    if raw.store == Some(StoreKind::Embedded) {
        let expected = "leave it out: with --store embedded there is one replica only".to_owned();
        return Err(wrong("peer-cert-path", &folder.display().to_string(), expected));
    }
    let bind_address = bind(raw)?;
    Ok(Some(PeerConfig {
        bind_address,
        advertise_address: advertise(raw, bind_address)?,
        tls: TlsFiles {
            certificate: folder.join(file(raw.peer_cert_name.as_ref(), "tls.crt")),
            key: folder.join(file(raw.peer_cert_key.as_ref(), "tls.key")),
            ca: folder.join(file(raw.peer_ca_name.as_ref(), "ca.crt")),
            server_name: server_name(raw)?,
        },
    }))
}

/// Settings of peers that would have no effect are a mistake.
fn without_peers(raw: &RunArgs) -> Result<(), ConfigError> {
    let given = raw.peer_bind_address.is_some()
        || raw.peer_advertise_address.is_some()
        || raw.peer_cert_name.is_some()
        || raw.peer_cert_key.is_some()
        || raw.peer_ca_name.is_some()
        || raw.peer_tls_server_name.is_some();
    if given {
        let expected = "the folder with the certificate of this replica; other settings of peers are given";
        return Err(ConfigError::Missing { flag: "peer-cert-path", expected });
    }
    Ok(())
}

fn bind(raw: &RunArgs) -> Result<SocketAddr, ConfigError> {
    let text = raw.peer_bind_address.as_deref();
    let off = "use IP:PORT or :PORT with a port of its own; without --peer-cert-path there are no peers";
    match address("peer-bind-address", text, DEFAULT_BIND)? {
        Some(found) if found.port() != 0 => Ok(found),
        Some(_) | None => Err(wrong("peer-bind-address", text.unwrap_or_default(), off.to_owned())),
    }
}

fn advertise(raw: &RunArgs, bind: SocketAddr) -> Result<String, ConfigError> {
    if let Some(text) = &raw.peer_advertise_address {
        return reachable(text).map(|()| text.clone());
    }
    let ip = match raw.pod_ip.as_deref().filter(|text| !text.is_empty()) {
        Some(text) => text.parse::<IpAddr>().map_err(|_| wrong("pod-ip", text, "use an IP".to_owned()))?,
        None if bind.ip().is_unspecified() => {
            let expected = "the address at which other replicas reach this one, as HOST:PORT; in a pod, POD_IP from \
                            status.podIP is enough";
            return Err(ConfigError::Missing { flag: "peer-advertise-address", expected });
        }
        None => bind.ip(),
    };
    Ok(SocketAddr::new(ip, bind.port()).to_string())
}

fn reachable(text: &str) -> Result<(), ConfigError> {
    let refused = |expected: &str| Err(wrong("peer-advertise-address", text, expected.to_owned()));
    let Some((host, port)) = text.rsplit_once(':') else { return refused("use HOST:PORT") };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let plain = |host: &str| !host.is_empty() && !host.contains([':', '/', '@', ' ']);
    let known = bare.map_or_else(|| plain(host), |host| host.parse::<IpAddr>().is_ok());
    if !known || !port.parse::<u16>().is_ok_and(|port| port != 0) {
        return refused("use HOST:PORT, with an IPv6 address in []");
    }
    if bare.unwrap_or(host).parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified()) {
        return refused("nobody reaches this replica there: use its own IP or name");
    }
    Ok(())
}

fn server_name(raw: &RunArgs) -> Result<String, ConfigError> {
    let name = raw.peer_tls_server_name.as_deref().unwrap_or("upriver-peer");
    match ServerName::try_from(name) {
        Ok(ServerName::DnsName(_)) => Ok(name.to_owned()),
        Ok(_) | Err(_) => {
            let expected = "use the DNS name that the certificates of all replicas are for".to_owned();
            Err(wrong("peer-tls-server-name", name, expected))
        }
    }
}

fn file(name: Option<&PathBuf>, default: &str) -> PathBuf {
    name.cloned().unwrap_or_else(|| default.into())
}

fn wrong(flag: &'static str, value: &str, expected: String) -> ConfigError {
    ConfigError::Value { flag, value: value.to_owned(), expected }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::load;

    fn with(change: impl FnOnce(&mut RunArgs)) -> RunArgs {
        let mut raw = RunArgs {
            redis_addr: Some("redis:6379".to_owned()),
            peer_cert_path: Some("certs".into()),
            pod_ip: Some("10.0.0.7".to_owned()),
            ..RunArgs::default()
        };
        change(&mut raw);
        raw
    }

    fn peer(change: impl FnOnce(&mut RunArgs)) -> PeerConfig {
        load(with(change)).expect("valid").peer.expect("peers are wanted")
    }

    fn refusal(change: impl FnOnce(&mut RunArgs)) -> String {
        load(with(change)).map(|_| ()).expect_err("refused").to_string()
    }

    #[test]
    fn a_folder_and_the_ip_of_the_pod_are_enough() {
        let expected = PeerConfig {
            bind_address: "0.0.0.0:9445".parse().expect("an address"),
            advertise_address: "10.0.0.7:9445".to_owned(),
            tls: TlsFiles {
                certificate: "certs/tls.crt".into(),
                key: "certs/tls.key".into(),
                ca: "certs/ca.crt".into(),
                server_name: "upriver-peer".to_owned(),
            },
        };
        assert_eq!(peer(|_| ()), expected);
        let named = peer(|raw| {
            raw.peer_cert_name = Some("my.crt".into());
            raw.peer_cert_key = Some("my.key".into());
            raw.peer_ca_name = Some("my-ca.crt".into());
            raw.peer_tls_server_name = Some("peers.example".to_owned());
        });
        let tls = TlsFiles {
            certificate: "certs/my.crt".into(),
            key: "certs/my.key".into(),
            ca: "certs/my-ca.crt".into(),
            server_name: "peers.example".to_owned(),
        };
        assert_eq!(named, PeerConfig { tls, ..expected });
    }

    #[test]
    fn others_call_what_is_advertised_else_the_pod_else_where_it_listens() {
        let advertised = |change: fn(&mut RunArgs)| peer(change).advertise_address;
        assert_eq!(advertised(|raw| raw.peer_bind_address = Some(":7000".to_owned())), "10.0.0.7:7000");
        assert_eq!(advertised(|raw| raw.pod_ip = Some("fd00::7".to_owned())), "[fd00::7]:9445");
        let named = |raw: &mut RunArgs| raw.peer_advertise_address = Some("upriver-0.peers:7001".to_owned());
        assert_eq!(advertised(named), "upriver-0.peers:7001");
        let loopback = advertised(|raw| {
            raw.pod_ip = None;
            raw.peer_bind_address = Some("127.0.0.1:7002".to_owned());
        });
        assert_eq!(loopback, "127.0.0.1:7002");
        assert!(refusal(|raw| raw.pod_ip = None).contains("--peer-advertise-address is missing"));
    }

    #[test]
    fn no_folder_means_no_peers_and_then_nothing_else_about_them() {
        let none = |path: Option<PathBuf>| load(with(|raw| raw.peer_cert_path = path)).expect("valid").peer;
        assert_eq!((none(None), none(Some(PathBuf::new()))), (None, None));
        let lost = refusal(|raw| {
            raw.peer_cert_path = None;
            raw.peer_bind_address = Some(":1".to_owned());
        });
        assert!(lost.contains("--peer-cert-path is missing"), "{lost}");
        assert!(refusal(|raw| raw.store = Some(StoreKind::Embedded)).contains("--store embedded"));
    }

    #[test]
    fn addresses_and_names_that_cannot_work_are_refused() {
        for text in ["0", ":0", "nine"] {
            let message = refusal(|raw| raw.peer_bind_address = Some(text.to_owned()));
            assert!(message.contains("--peer-bind-address") && message.contains("IP:PORT"), "{message}");
        }
        for text in [
            "host",
            ":9445",
            "host:0",
            "host:x",
            "fd00::7:1",
            "[x]:1",
            "https://host:1",
            "0.0.0.0:1",
            "[::]:1",
        ] {
            let message = refusal(|raw| raw.peer_advertise_address = Some(text.to_owned()));
            assert!(message.contains("--peer-advertise-address"), "{text}: {message}");
        }
        assert!(refusal(|raw| raw.pod_ip = Some("pod".to_owned())).contains("--pod-ip"));
        for name in ["a b", "", "10.0.0.1"] {
            let message = refusal(|raw| raw.peer_tls_server_name = Some(name.to_owned()));
            assert!(message.contains("--peer-tls-server-name"), "{name:?}: {message}");
        }
    }
}
