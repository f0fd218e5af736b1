//! Is a certificate for the peers' name? A CA may have issued others too: they are no replicas.

use std::fmt;
use std::sync::Arc;

use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, SignatureScheme, client::danger::HandshakeSignatureValid,
};

/// Does the certificate hold this name?
pub(super) fn check(certificate: &CertificateDer<'_>, name: &ServerName<'static>) -> Result<(), Error> {
    verify_server_name(&ParsedCertificate::try_from(certificate)?, name)
}

/// Checks a client's chain as usual, and its name like a server's.
pub(super) struct NamedClients {
    chain: Arc<dyn ClientCertVerifier>,
    name: ServerName<'static>,
}

impl NamedClients {
    pub(super) fn new(chain: Arc<dyn ClientCertVerifier>, name: ServerName<'static>) -> Self {
        Self { chain, name }
    }
}

impl fmt::Debug for NamedClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedClients").field("name", &self.name).finish_non_exhaustive()
    }
}

impl ClientCertVerifier for NamedClients {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.chain.verify_client_cert(end_entity, intermediates, now)?;
        check(end_entity, &self.name)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}
