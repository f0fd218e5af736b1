//! What tools of others ask of the port: health and reflection.

use hyper::client::conn::http2::SendRequest;
use tonic::Request;
use tonic::body::Body;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::{v1, v1alpha};
use tower::Service;
use upriver_peer_io::Settings;
use upriver_testkit::PeerCerts;

use crate::fleet::{Replica, soon, tls};
use crate::raw;

fn origin() -> http::Uri {
    http::Uri::from_static("https://upriver-peer")
}

fn service(
    sender: SendRequest<Body>,
) -> impl Service<
    http::Request<Body>,
    Response = http::Response<hyper::body::Incoming>,
    Error = hyper::Error,
    Future: Send,
> + Clone {
    tower::service_fn(move |request| sender.clone().send_request(request))
}

#[tokio::test]
async fn the_port_answers_health_checks_and_reflection_in_both_versions() {
    let folder = tempfile::tempdir().expect("a folder");
    let certs = PeerCerts::make(folder.path());
    let owner = Replica::start("owner-1", &tls(&certs), Settings::default()).await;
    let service = service(raw::http(&owner, &certs).await);
    let mut health = HealthClient::with_origin(service.clone(), origin());
    for name in ["", "upriver.peer.v1.ForwardService", "upriver.peer.v1.HandoverService"] {
        let asked = Request::new(HealthCheckRequest { service: name.to_owned() });
        let answer = soon(health.check(asked)).await.expect("an answer").into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving, "{name:?}");
    }

    let symbol = "upriver.peer.v1.ForwardService".to_owned();
    let mut client =
        v1::server_reflection_client::ServerReflectionClient::with_origin(service.clone(), origin());
    let asked = v1::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(v1::server_reflection_request::MessageRequest::FileContainingSymbol(
            symbol.clone(),
        )),
    };
    let answers =
        soon(client.server_reflection_info(futures::stream::iter([asked]))).await.expect("an answer");
    let answer = soon(answers.into_inner().message()).await.expect("no error").expect("one");
    let found = answer.message_response.expect("something");
    assert!(
        matches!(&found, v1::server_reflection_response::MessageResponse::FileDescriptorResponse(files)
            if !files.file_descriptor_proto.is_empty()),
        "{found:?}"
    );
    let mut client =
        v1alpha::server_reflection_client::ServerReflectionClient::with_origin(service, origin());
    let asked = v1alpha::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(v1alpha::server_reflection_request::MessageRequest::FileContainingSymbol(
            symbol,
        )),
    };
    let answers =
        soon(client.server_reflection_info(futures::stream::iter([asked]))).await.expect("an answer");
    let answer = soon(answers.into_inner().message()).await.expect("no error").expect("one");
    let found = answer.message_response.expect("something");
    assert!(
        matches!(&found, v1alpha::server_reflection_response::MessageResponse::FileDescriptorResponse(_)),
        "{found:?}"
    );
}
