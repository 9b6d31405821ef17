//! Responses of the server to calls: it streams, ends streams, and refuses.

use super::support::{ADMIN, ANNA, Begun, Running, entry, request, says, start, start_with, state, with_token};
use crate::author::{Author, AuthorError, AuthorRequest};
use crate::generated::workflow_agent::{ConversationRequest, ConversationResponse};
use crate::invalid::Invalid;
use futures::{StreamExt, stream};
use http::uri::PathAndQuery;
use std::time::Duration;
use tokio::time::Instant;
use tonic::client::Grpc;
use tonic::{Code, Request, Status, Streaming};
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus};
use tonic_prost::ProstCodec;
use types::authoring::{Speaker, Stage};

const MIB: usize = 1024 * 1024;

/// A call with the generated client.
fn call(text: &str, token: &str) -> Request<ConversationRequest> {
    with_token(request(text).into(), token)
}

#[tokio::test]
async fn each_response_arrives_when_the_author_makes_it() {
    let mut server = start().await;
    let mut responses = server.remote().converse(request("每天早上发天气"));
    let mut received = Vec::new();
    let (first, begun) = tokio::join!(responses.next(), async {
        let begun = server.next().await;
        begun.respond(says("哪个城市？", Some(state(Stage::Clarification, vec![])), false));
        begun
    });
    received.push(first.unwrap().unwrap());
    assert_eq!(begun.request, request("每天早上发天气"));
    // The second message is sent after the first one has arrived.
    begun.respond(says("好", None, true));
    received.push(responses.next().await.unwrap().unwrap());
    assert!(responses.next().await.is_none(), "the last response ends the stream");
    let expected = [says("哪个城市？", Some(state(Stage::Clarification, vec![])), false), says("好", None, true)];
    assert_eq!(received, expected);
    begun.dropped().await;
}

#[tokio::test]
async fn a_deadline_ends_the_stream_and_the_work() {
    let mut server = start().await;
    let mut call = call("慢", ADMIN);
    call.set_timeout(Duration::from_millis(300));
    // The headers arrive immediately, so only the deadline of the stream can end it. The client's own timer covers the
    // headers.
    let mut responses = server.client().process_conversation(call).await.unwrap().into_inner();
    let begun = server.next().await;
    begun.respond(says("one", None, false));
    assert!(responses.message().await.unwrap().is_some());
    let status = responses.message().await.unwrap_err();
    assert_eq!((status.code(), status.message().contains("grpc-timeout")), (Code::DeadlineExceeded, true));
    begun.dropped().await;
    let mut call = self::call("x", ADMIN);
    call.metadata_mut().insert("grpc-timeout", "soon".parse().unwrap());
    assert_eq!(server.client().process_conversation(call).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn the_departure_of_the_client_ends_the_work() {
    let mut server = start().await;
    let responses = server.client().process_conversation(call("x", ADMIN)).await.unwrap();
    let begun = server.next().await;
    drop(responses);
    begun.dropped().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_cannot_delay_the_deadline() {
    let mut server = start().await;
    let mut call = call("x", ADMIN);
    call.set_timeout(Duration::from_millis(300));
    let mut responses = server.client().process_conversation(call).await.unwrap().into_inner();
    let begun = server.next().await;
    // This is larger than the flow-control window of the stream.
    for _ in 0..40 {
        begun.respond(says(&"长".repeat(MIB / 3), None, false));
    }
    begun.dropped().await;
    let status = loop {
        if let Err(status) = responses.message().await {
            break status;
        }
    };
    assert_eq!(status.code(), Code::DeadlineExceeded);
}

/// The six responses of a call whose author has ended, and none of which is read: more than the window of the stream, and
/// fewer than make the author wait.
async fn unread(server: &mut Running) -> Streaming<ConversationResponse> {
    let responses = server.client().process_conversation(call("x", ADMIN)).await.unwrap().into_inner();
    let begun = server.next().await;
    for index in 0..6 {
        begun.respond(says(&"长".repeat(MIB), None, index == 5));
    }
    begun.dropped().await;
    responses
}

#[tokio::test]
async fn a_call_holds_its_admission_until_its_responses_are_read() {
    let mut server = start().await;
    let mut responses = unread(&mut server).await;
    assert_eq!(server.admitted(), 1, "the author has ended, but its responses fill the memory");
    let mut read = 0;
    while responses.message().await.unwrap().is_some() {
        read += 1;
    }
    assert_eq!(read, 6);
    while server.admitted() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn responses_that_the_client_does_not_read_for_a_minute_are_dropped() {
    let mut server = start().await;
    let mut responses = unread(&mut server).await;
    tokio::time::pause();
    let begun = Instant::now();
    while server.admitted() > 0 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!((60..=62).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    tokio::time::resume();
    let status = loop {
        if let Err(status) = responses.message().await {
            break status;
        }
    };
    assert_eq!((status.code(), status.message().contains("does not read")), (Code::Aborted, true), "{status:?}");
}

#[tokio::test]
async fn a_call_whose_message_does_not_arrive_for_a_minute_ends() {
    let mut server = start().await;
    let mut client = Grpc::new(server.channel());
    client.ready().await.unwrap();
    let path = PathAndQuery::from_static("/workflow_agent.WorkflowAgent/ProcessConversation");
    let codec = ProstCodec::<ConversationRequest, ConversationResponse>::default();
    let request = with_token(stream::pending(), ADMIN);
    let mut called = std::pin::pin!(client.streaming(request, path, codec));
    let admitted = async {
        while server.admitted() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        answered = &mut called => panic!("answered without a message: {answered:?}"),
        () = admitted => {}
    }
    tokio::time::pause();
    let begun = Instant::now();
    let status = called.await.unwrap_err();
    assert_eq!((status.code(), begun.elapsed().as_secs()), (Code::DeadlineExceeded, 60), "{status:?}");
    tokio::time::resume();
    while server.admitted() > 0 {
        tokio::task::yield_now().await;
    }
    assert!(server.begun.try_recv().is_err(), "the author sees no such call");
}

#[tokio::test]
async fn a_call_needs_a_token_that_may_speak_for_its_user() {
    let mut server = start().await;
    let mut client = server.client();
    let refused: Status = client.process_conversation(Request::new(request("x").into())).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    let refused = client.process_conversation(call("x", "guessed")).await.unwrap_err();
    assert_eq!((refused.code(), refused.message().is_empty()), (Code::Unauthenticated, false));
    let other = AuthorRequest { user_id: "berta".into(), ..request("x") };
    let refused = client.process_conversation(with_token(other.into(), ANNA)).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(refused.message().contains("`anna`") && refused.message().contains("`berta`"), "{}", refused.message());
    client.process_conversation(call("x", ANNA)).await.unwrap();
    assert_eq!(server.next().await.request.user_id, "anna");
    assert!(server.begun.try_recv().is_err(), "the author has not seen refused calls");
}

#[tokio::test]
async fn a_wrong_request_is_refused_before_the_author_sees_it() {
    let mut server = start().await;
    let mut wrong = ConversationRequest::from(request("x"));
    wrong.session_id = "a/b".into();
    let refused = server.client().process_conversation(with_token(wrong, ADMIN)).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("session_id"), "{}", refused.message());
    assert!(server.begun.try_recv().is_err());
}

#[tokio::test]
async fn a_state_of_15_mib_passes_both_ways_and_one_over_16_mib_does_not() {
    let mut server = start().await;
    let large = |bytes: usize| state(Stage::Debug, vec![entry(Speaker::User, &"x".repeat(bytes))]);
    let with = |bytes: usize| AuthorRequest { current_state: Some(large(bytes)), ..request("") };
    let mut responses = server.remote().converse(with(15 * MIB));
    let (response, begun) = tokio::join!(responses.next(), async {
        let begun = server.next().await;
        begun.respond(says("", begun.request.current_state.clone(), true));
        begun
    });
    assert_eq!(begun.request, with(15 * MIB));
    assert_eq!(response.unwrap().unwrap().updated_state, Some(large(15 * MIB)));

    let mut client = server.client();
    let refused = client.process_conversation(with_token(with(16 * MIB).into(), ADMIN)).await.unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange, "a request is too large");
    let mut responses = client.process_conversation(call("x", ADMIN)).await.unwrap().into_inner();
    server.next().await.respond(says("", Some(large(16 * MIB)), true));
    assert_eq!(responses.message().await.unwrap_err().code(), Code::OutOfRange, "a response is too large");
}

/// Returns the status of a call whose author does this.
async fn end_of(act: impl FnOnce(Begun)) -> Status {
    let mut server = start().await;
    let mut responses = server.client().process_conversation(call("x", ADMIN)).await.unwrap().into_inner();
    act(server.next().await);
    responses.message().await.unwrap_err()
}

#[tokio::test]
async fn each_failure_of_the_author_has_its_status() {
    let invalid = Invalid::field("user_message", "", "write a message");
    let status = end_of(|begun| begun.fail(AuthorError::Invalid(invalid))).await;
    assert_eq!((status.code(), status.message().contains("write a message")), (Code::InvalidArgument, true));
    let status = end_of(|begun| begun.fail(AuthorError::Unavailable("the store is unreachable".into()))).await;
    assert_eq!(status.code(), Code::Unavailable);
    let status = end_of(|begun| begun.fail(AuthorError::Internal("secret path".into()))).await;
    assert_eq!((status.code(), status.message().contains("secret")), (Code::Internal, false));
    let status = end_of(drop).await;
    assert_eq!(status.code(), Code::Internal, "the author ended without its last response");
}

async fn health(server: &super::support::Running, service: &str) -> ServingStatus {
    let request = HealthCheckRequest { service: service.into() };
    HealthClient::new(server.channel()).check(request).await.unwrap().into_inner().status()
}

#[tokio::test]
async fn a_stopping_server_is_unhealthy_and_ends_its_streams() {
    let mut server = start_with("127.0.0.1:0".parse().unwrap(), None, Duration::from_millis(300)).await;
    for service in ["", "workflow_agent.WorkflowAgent"] {
        assert_eq!(health(&server, service).await, ServingStatus::Serving);
    }
    let watched = HealthCheckRequest { service: String::new() };
    let mut watch = HealthClient::new(server.channel()).watch(watched).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
    let mut responses = server.client().process_conversation(call("x", ADMIN)).await.unwrap().into_inner();
    let begun = server.next().await;
    server.stop.cancel();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
    begun.respond(says("still served", None, false));
    assert!(responses.message().await.unwrap().is_some(), "streams get some time");
    assert_eq!(responses.message().await.unwrap_err().code(), Code::Unavailable);
    begun.dropped().await;
    // The client that watches the health keeps its connection open.
    server.ended().await;
}

mod reflection {
    use super::*;
    use tonic_reflection::pb::{v1, v1alpha};

    #[tokio::test]
    async fn both_versions_list_the_services_for_callers_with_a_token() {
        let server = start().await;
        let asked = v1::ServerReflectionRequest {
            host: String::new(),
            message_request: Some(v1::server_reflection_request::MessageRequest::ListServices(String::new())),
        };
        let mut client = v1::server_reflection_client::ServerReflectionClient::new(server.channel());
        let ask = |asked: v1::ServerReflectionRequest| futures::stream::iter([asked]);
        let refused = client.server_reflection_info(Request::new(ask(asked.clone()))).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated);
        let refused = client.server_reflection_info(with_token(ask(asked.clone()), ANNA)).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
        let mut answers = client.server_reflection_info(with_token(ask(asked), ADMIN)).await.unwrap().into_inner();
        let answer = answers.message().await.unwrap().unwrap().message_response.unwrap();
        let v1::server_reflection_response::MessageResponse::ListServicesResponse(list) = answer else {
            panic!("{answer:?}")
        };
        let names: Vec<_> = list.service.iter().map(|service| service.name.as_str()).collect();
        assert!(
            names.contains(&"workflow_agent.WorkflowAgent") && names.contains(&"grpc.health.v1.Health"),
            "{names:?}"
        );

        let asked = v1alpha::ServerReflectionRequest {
            host: String::new(),
            message_request: Some(v1alpha::server_reflection_request::MessageRequest::FileContainingSymbol(
                "workflow_agent.WorkflowAgent".into(),
            )),
        };
        let mut client = v1alpha::server_reflection_client::ServerReflectionClient::new(server.channel());
        let asked = with_token(futures::stream::iter([asked]), ADMIN);
        let mut answers = client.server_reflection_info(asked).await.unwrap().into_inner();
        let answer = answers.message().await.unwrap().unwrap().message_response.unwrap();
        assert!(
            matches!(answer, v1alpha::server_reflection_response::MessageResponse::FileDescriptorResponse(_)),
            "{answer:?}"
        );
    }
}
