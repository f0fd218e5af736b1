//! A client that is not ours: TLS and HTTP/2 by hand.

use std::sync::Arc;

use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::body::Body;
use upriver_testkit::PeerCerts;
use upriver_testkit::peer_certs::PEER_NAME;

use crate::fleet::{Replica, soon};

/// Connects and finishes the handshake on our side, with this certificate or none.
pub(crate) async fn connect(
    owner: &Replica,
    trusted: &PeerCerts,
    shown: Option<&PeerCerts>,
) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&trusted.ca).expect("a CA")).expect("usable");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("known versions")
        .with_root_certificates(roots);
    let mut config = match shown {
        None => builder.with_no_client_auth(),
        Some(certs) => {
            let chain = vec![CertificateDer::from_pem_file(&certs.certificate).expect("a certificate")];
            let key = PrivateKeyDer::from_pem_file(&certs.key).expect("a key");
            builder.with_client_auth_cert(chain, key).expect("they fit")
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = TcpStream::connect(owner.address).await.expect("it listens");
    stream.set_nodelay(true).expect("a socket");
    let name = ServerName::try_from(PEER_NAME).expect("a name");
    soon(TlsConnector::from(Arc::new(config)).connect(name, stream))
        .await
        .expect("the server's certificate is good")
}

/// HTTP/2 to a replica, with a good certificate.
pub(crate) async fn http(owner: &Replica, certs: &PeerCerts) -> SendRequest<Body> {
    let io = TokioIo::new(connect(owner, certs, Some(certs)).await);
    let (sender, connection) = soon(http2::handshake(TokioExecutor::new(), io)).await.expect("HTTP/2");
    tokio::spawn(connection);
    sender
}
