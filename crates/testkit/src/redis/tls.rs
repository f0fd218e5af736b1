//! Certificates that a test makes for itself: one CA, one server at loopback, one client.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

/// PEM files in a folder of the caller's.
#[derive(Clone, Debug)]
pub struct Certificates {
    /// The CA's certificate.
    pub ca: PathBuf,
    /// The server's certificate, good for 127.0.0.1 and localhost.
    pub server: PathBuf,
    /// Its key.
    pub server_key: PathBuf,
    /// A client's certificate.
    pub client: PathBuf,
    /// Its key.
    pub client_key: PathBuf,
}

impl Certificates {
    /// Makes all of them in `dir`.
    ///
    /// # Panics
    /// If the folder cannot be written.
    #[must_use]
    pub fn make(dir: &Path) -> Self {
        let ca_key = KeyPair::generate().expect("the provider makes keys");
        let mut params = params(&[], "upriver test CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = params.self_signed(&ca_key).expect("sound parameters");
        let issuer = Issuer::new(params, ca_key);
        let [ca_file, server, server_key, client, client_key] =
            ["ca.pem", "server.pem", "server.key", "client.pem", "client.key"].map(|name| dir.join(name));
        write(&ca_file, &ca.pem());
        issue(&issuer, &["127.0.0.1", "localhost"], &server, &server_key);
        issue(&issuer, &[], &client, &client_key);
        Self { ca: ca_file, server, server_key, client, client_key }
    }
}

fn params(names: &[&str], common: &str) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("names of our own");
    params.distinguished_name.push(DnType::CommonName, common);
    params
}

fn issue(issuer: &Issuer<'_, KeyPair>, names: &[&str], certificate: &Path, key: &Path) {
    let pair = KeyPair::generate().expect("the provider makes keys");
    let signed = params(names, "upriver test").signed_by(&pair, issuer).expect("sound parameters");
    write(certificate, &signed.pem());
    write(key, &pair.serialize_pem());
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}
