//! Certificates of replicas for each other, as cert-manager would put them into a mounted Secret: `tls.crt`, `tls.key` and
//! `ca.crt` in one folder. Every replica has one for the same name.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// The name that the operator expects by default.
pub const PEER_NAME: &str = "upriver-peer";

/// A CA that lives as long as this value.
pub struct PeerCa {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// The files of one replica, or of all of them.
#[derive(Clone, Debug)]
pub struct PeerCerts {
    /// The folder, for `--peer-cert-path`.
    pub folder: PathBuf,
    /// The certificate, good for servers and clients.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The CA's certificate.
    pub ca: PathBuf,
}

impl std::fmt::Debug for PeerCa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PeerCa").finish_non_exhaustive()
    }
}

impl PeerCa {
    /// Makes a new CA.
    ///
    /// # Panics
    /// If the TLS provider makes no keys.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let key = KeyPair::generate().expect("the provider makes keys");
        let mut params = params(&[], name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let pem = params.self_signed(&key).expect("sound parameters").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// The CA's certificate as PEM; several behind each other are a bundle.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Writes a new certificate for `name`, its key and this CA into `folder`, which is made if it is missing.
    ///
    /// # Panics
    /// If the folder cannot be written.
    pub fn issue(&self, folder: &Path, name: &str) -> PeerCerts {
        std::fs::create_dir_all(folder)
            .unwrap_or_else(|error| panic!("cannot make {}: {error}", folder.display()));
        let [certificate, key, ca] = ["tls.crt", "tls.key", "ca.crt"].map(|name| folder.join(name));
        let pair = KeyPair::generate().expect("the provider makes keys");
        let mut params = params(&[name], "upriver test replica");
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let signed = params.signed_by(&pair, &self.issuer).expect("sound parameters");
        write(&certificate, &signed.pem());
        write(&key, &pair.serialize_pem());
        write(&ca, &self.pem);
        PeerCerts { folder: folder.to_owned(), certificate, key, ca }
    }
}

impl PeerCerts {
    /// Files for [`PEER_NAME`] by a CA of their own.
    ///
    /// # Panics
    /// If the folder cannot be written.
    #[must_use]
    pub fn make(folder: &Path) -> Self {
        PeerCa::new("upriver test CA").issue(folder, PEER_NAME)
    }

    /// Believes these CAs from now on.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn trust(&self, authorities: &[&PeerCa]) {
        write(&self.ca, &authorities.iter().map(|ca| ca.pem()).collect::<String>());
    }
}

fn params(names: &[&str], common: &str) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("names of our own");
    params.distinguished_name.push(DnType::CommonName, common);
    params
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}
