//! The connection of the client: shared, made again after a loss, and encrypted.

use super::support::{ADMIN, entry, request, says, start, start_with, state};
use crate::author::{Author, AuthorError, AuthorRequest};
use crate::client::RemoteAuthor;
use crate::server::ServerCertificate;
use base::clock::Clock;
use futures::StreamExt;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::time::Duration;
use types::authoring::{ErrorCode, Speaker, Stage};

#[tokio::test]
async fn ten_conversations_share_one_connection() {
    let mut server = start().await;
    let remote = server.remote();
    let mut streams: Vec<_> = (0..10)
        .map(|number| remote.converse(AuthorRequest { session_id: format!("s{number}"), ..request("x") }))
        .collect();
    let received = futures::future::join_all(streams.iter_mut().map(|stream| stream.next()));
    let (received, _) = tokio::join!(received, async {
        // None ends before all have begun.
        let mut begun = Vec::new();
        while begun.len() < 10 {
            begun.push(server.next().await);
        }
        begun.iter().for_each(|begun| begun.respond(says("x", None, true)));
        begun
    });
    assert!(received.iter().all(|response| response.as_ref().unwrap().is_ok()));
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_restarted_server_gets_the_last_state_and_no_message() {
    let mut server = start_with("127.0.0.1:0".parse().unwrap(), None, Duration::ZERO).await;
    let address = server.address;
    let mut responses = server.remote().converse(request("每天早上发天气"));
    let kept = state(Stage::GapAnalysis, vec![entry(Speaker::User, "每天早上发天气")]);
    let (first, begun) = tokio::join!(responses.next(), async {
        let begun = server.next().await;
        begun.respond(says("one", Some(kept.clone()), false));
        begun
    });
    assert_eq!(first.unwrap().unwrap(), says("one", Some(kept.clone()), false));
    server.stop.cancel();
    server.ended().await;
    drop(begun);
    let mut server = start_with(address, None, Duration::ZERO).await;
    let (second, request_after) = tokio::join!(responses.next(), async {
        let begun = server.next().await;
        begun.respond(says("two", None, true));
        begun.request
    });
    assert_eq!(second.unwrap().unwrap(), says("two", None, true));
    assert_eq!(request_after, AuthorRequest { current_state: Some(kept), ..request("") });
    assert!(responses.next().await.is_none());
}

#[tokio::test]
async fn a_state_that_waits_for_the_user_is_not_sent_again() {
    let mut server = start_with("127.0.0.1:0".parse().unwrap(), None, Duration::ZERO).await;
    let mut responses = server.remote().converse(request("你好"));
    let waiting =
        state(Stage::Clarification, vec![entry(Speaker::User, "你好"), entry(Speaker::Assistant, "哪个城市？")]);
    let (first, begun) = tokio::join!(responses.next(), async {
        let begun = server.next().await;
        begun.respond(says("哪个城市？", Some(waiting), false));
        begun
    });
    assert!(first.unwrap().is_ok());
    server.stop.cancel();
    server.ended().await;
    drop(begun);
    let error = responses.next().await.unwrap().unwrap_err();
    assert!(error.is_transient() && error.code() == ErrorCode::AgentUnavailable, "{error}");
    assert!(responses.next().await.is_none(), "an error ends the stream");
}

#[tokio::test]
async fn an_unreachable_server_is_tried_four_times_and_named() {
    let server = start_with("127.0.0.1:0".parse().unwrap(), None, Duration::ZERO).await;
    let (url, clock) = (server.url(), Clock::movable());
    server.stop.cancel();
    server.ended().await;
    let remote = RemoteAuthor::new(&url, None, None, clock.clone()).unwrap();
    let mut responses = remote.converse(request("x"));
    let error = loop {
        tokio::select! {
            response = responses.next() => break response.unwrap().unwrap_err(),
            () = tokio::time::sleep(Duration::from_millis(20)) => clock.advance(Duration::from_secs(3)),
        }
    };
    let AuthorError::Remote { endpoint, .. } = &error else { panic!("{error:?}") };
    assert!(error.is_transient() && *endpoint == url && error.to_string().contains("authoring.endpoint"), "{error}");
}

#[tokio::test]
async fn a_refused_token_is_not_tried_again() {
    let mut server = start().await;
    let remote = RemoteAuthor::new(&server.url(), Some("guessed"), None, Clock::system()).unwrap();
    let error = remote.converse(request("x")).next().await.unwrap().unwrap_err();
    assert!(!error.is_transient() && error.to_string().contains("valid bearer token"), "{error}");
    assert!(server.begun.try_recv().is_err());
}

/// A certificate for 127.0.0.1, and that of its authority.
fn certificate() -> (ServerCertificate, Vec<u8>) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&key).unwrap().pem().into_bytes();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let chain = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    (ServerCertificate { chain: chain.pem().into_bytes(), key: key.serialize_pem().into_bytes() }, authority)
}

#[tokio::test]
async fn a_server_with_a_certificate_is_verified() {
    let (certificate, authority) = certificate();
    let mut server = start_with("127.0.0.1:0".parse().unwrap(), Some(certificate), Duration::from_secs(5)).await;
    let url = format!("https://{}", server.address);
    let remote = |url: &str, authority| RemoteAuthor::new(url, Some(ADMIN), authority, Clock::system()).unwrap();
    let mut responses = remote(&url, Some(authority)).converse(request("x"));
    let (response, _) = tokio::join!(responses.next(), async {
        let begun = server.next().await;
        begun.respond(says("加密", None, true));
        begun
    });
    assert_eq!(response.unwrap().unwrap(), says("加密", None, true));

    let (_, other) = self::certificate();
    for (url, authority) in [(url, Some(other)), (server.url(), None)] {
        let unverified = remote(&url, authority);
        let mut call = tonic::Request::new(request("x").into());
        call.set_timeout(Duration::from_secs(10));
        assert!(unverified.raw().process_conversation(call).await.is_err(), "{url}");
    }
    assert!(server.begun.try_recv().is_err());
}

#[tokio::test]
async fn settings_that_name_no_server_are_refused_by_name() {
    let of = |endpoint: &str, token: Option<&str>, authority: Option<&[u8]>| {
        RemoteAuthor::new(endpoint, token, authority.map(<[u8]>::to_vec), Clock::system()).unwrap_err().to_string()
    };
    assert!(of("no address", None, None).starts_with("authoring.endpoint: `no address`"));
    assert!(of("http://127.0.0.1:1", Some("a\nb"), None).starts_with("authoring.token:"));
    assert!(of("https://127.0.0.1:1", None, Some(b"no certificate")).starts_with("authoring.ca:"));
}
