//! The authoring agent over gRPC: real servers next to the gateway, and clients in the same process.

mod python;

use crate::authoring::answers;
use crate::support::engine::{DEADLINE, scripted};
use crate::support::model_stream::Stream;
use crate::support::script::{Answer, Asked, ScriptedModel};
use ::grpc::generated::workflow_agent::workflow_agent_client::WorkflowAgentClient;
use ::grpc::generated::workflow_agent::{ConversationRequest, ConversationResponse};
use ::grpc::{Author, AuthorRequest, AuthorResponse, RemoteAuthor};
use base::clock::Clock;
use base::config::NamedToken;
use futures::StreamExt;
use serde_json::{Value, json};
use std::net::SocketAddr;
use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus};
use turnwheel::Engine;
use types::authoring::{AgentState, Body, ConversationConfig, Stage};

/// An engine that serves gRPC. The token of a caller is its name and `-token`.
pub struct Served {
    pub engine: Engine,
    pub address: SocketAddr,
    _tokens: TempDir,
}

impl Served {
    pub async fn start(model: &ScriptedModel) -> Self {
        Self::start_at(model, ([127, 0, 0, 1], 0).into()).await
    }

    pub async fn start_at(model: &ScriptedModel, address: SocketAddr) -> Self {
        let tokens = tempfile::tempdir().unwrap();
        let access = [("anna", "author"), ("olga", "operator"), ("vera", "viewer")].map(|(name, role)| {
            let file = tokens.path().join(name);
            std::fs::write(&file, format!("{name}-token\n")).unwrap();
            serde_json::from_value::<NamedToken>(json!({"name": name, "role": role, "token_file": file})).unwrap()
        });
        let engine = Engine::in_memory().configure(|settings| {
            settings.gateway.grpc_listen = Some(address);
            settings.gateway.tokens = vec!["root-token".into()];
            settings.gateway.access = access.into();
            settings.models.insert("default".to_owned(), scripted(model));
        });
        let engine = engine.open().await.unwrap();
        let address = engine.start_grpc().await.unwrap().expect("an address is set");
        Self { engine, address, _tokens: tokens }
    }

    fn channel(&self) -> Channel {
        Endpoint::from_shared(format!("http://{}", self.address)).unwrap().connect_lazy()
    }

    /// The first response of a call, or its refusal.
    async fn call(&self, token: Option<&str>, request: ConversationRequest) -> Result<ConversationResponse, Status> {
        let mut request = Request::new(request);
        if let Some(token) = token {
            request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        let mut stream = WorkflowAgentClient::new(self.channel()).process_conversation(request).await?.into_inner();
        Ok(stream.message().await?.expect("a stream has a response"))
    }

    /// Sends a message as the author anna, and reads all responses.
    async fn say(&self, text: &str, current_state: Option<AgentState>) -> Vec<AuthorResponse> {
        let url = format!("http://{}", self.address);
        let remote = RemoteAuthor::new(&url, Some("anna-token"), None, Clock::system()).unwrap();
        let request = AuthorRequest {
            session_id: "s1".into(),
            user_id: "anna".into(),
            user_message: text.into(),
            current_state,
            workflow_context: None,
            config: ConversationConfig::default(),
        };
        let received = remote.converse(request).map(Result::unwrap).collect::<Vec<_>>();
        let received = tokio::time::timeout(DEADLINE, received).await.expect("the stream ends");
        let finals: Vec<bool> = received.iter().map(|response| response.is_final).collect();
        assert_eq!(finals.iter().filter(|is_final| **is_final).count(), 1, "{received:?}");
        assert_eq!(finals.last(), Some(&true));
        received
    }
}

fn message(text: &str) -> ConversationRequest {
    ConversationRequest {
        session_id: "s1".into(),
        user_id: "anna".into(),
        user_message: text.into(),
        ..ConversationRequest::default()
    }
}

/// The answers of an author, and of the nodes that a rehearsal runs.
fn script(asked: &Asked) -> Answer {
    match asked.schema.as_str() {
        "" => Answer::Content("汇总".into()),
        // In two pieces.
        "authoring_clarification" => match answers::script(asked) {
            Answer::Content(text) => {
                let middle = text.floor_char_boundary(text.len() / 4);
                let (first, rest) = text.split_at(middle);
                Answer::Stream(Stream::of([first, rest]))
            }
            other => other,
        },
        _ => answers::script(asked),
    }
}

fn state(responses: &[AuthorResponse]) -> AgentState {
    responses.last().and_then(|last| last.updated_state.clone()).expect("the last response has the state")
}

fn bodies(responses: &[AuthorResponse]) -> Vec<Value> {
    responses.iter().map(|response| serde_json::to_value(&response.body).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_authors_and_operators_call_and_health_is_open() {
    let model = ScriptedModel::start(script).await;
    let served = Served::start(&model).await;
    let mut health = HealthClient::new(served.channel());
    for service in ["", "workflow_agent.WorkflowAgent"] {
        let asked = HealthCheckRequest { service: service.into() };
        assert_eq!(health.check(asked).await.unwrap().into_inner().status(), ServingStatus::Serving);
    }
    let refused = async |token, request| served.call(token, request).await.unwrap_err().code();
    assert_eq!(refused(None, message("x")).await, Code::Unauthenticated);
    assert_eq!(refused(Some("guessed"), message("x")).await, Code::Unauthenticated);
    assert_eq!(refused(Some("vera-token"), message("x")).await, Code::PermissionDenied);
    let other = ConversationRequest { user_id: "berta".into(), ..message("x") };
    assert_eq!(refused(Some("anna-token"), other.clone()).await, Code::PermissionDenied);
    assert_eq!(refused(Some("anna-token"), ConversationRequest::default()).await, Code::InvalidArgument);
    assert!(!model.is_asked(), "no refused call reaches the model");
    for (token, request) in [("anna-token", message("x")), ("olga-token", other.clone()), ("root-token", other)] {
        served.call(Some(token), request).await.unwrap();
    }
    served.engine.stop().await;
    assert!(health.check(HealthCheckRequest::default()).await.is_err(), "it stops with the engine");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dialogue_goes_on_at_another_server_and_nothing_is_written() {
    let model = ScriptedModel::start(script).await;
    let (first, second) = (Served::start(&model).await, Served::start(&model).await);
    let asking = first.say("每天汇总", None).await;
    let waiting = state(&asking);
    assert_eq!((waiting.stage, waiting.clarification_context.pending_questions.len()), (Stage::Clarification, 1));
    let last = bodies(&asking).pop().unwrap();
    assert_eq!(last["content"]["questions"][0]["id"], "when", "{last}");
    let pieces = asking.iter().filter(|response| matches!(&response.body, Body::Message { content: None, .. }));
    assert!(pieces.count() > 0, "the text arrives in pieces first");

    let written = second.say("八点", Some(waiting)).await;
    let seen = bodies(&written);
    let of = |kind: &str| seen.iter().find(|body| body["type"] == kind).unwrap_or_else(|| panic!("{kind}: {seen:#?}"));
    of("workflow_generation_started");
    let draft = of("workflow_draft");
    assert_eq!(
        (&draft["data"]["definition"]["id"], &draft["data"]["definition"]["name"]),
        (&draft["workflow_id"], &json!("每日汇总"))
    );
    of("workflow_debugging");
    let complete = of("workflow_complete");
    assert_eq!(
        (&complete["data"]["published"], &complete["data"]["definition"]),
        (&json!(false), &draft["data"]["definition"])
    );
    let ended = state(&written);
    assert_eq!((ended.stage, ended.workflow_id.as_deref()), (Stage::Completed, draft["workflow_id"].as_str()));
    for served in [&first, &second] {
        let store = served.engine.store();
        assert!(store.authoring("s1").await.unwrap().is_none());
        assert!(store.workflow(ended.workflow_id.as_deref().unwrap()).await.unwrap().is_none());
        assert!(served.engine.session("s1").await.unwrap().is_none());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_of_the_model_ends_the_turn_with_an_error_and_the_next_message_goes_on() {
    let model = ScriptedModel::start(|_| Answer::Content("{}".into())).await;
    let served = Served::start(&model).await;
    let failed = served.say("每天汇总", None).await;
    let last = bodies(&failed).pop().unwrap();
    assert_eq!((&last["type"], &last["content"]["error_code"]), (&json!("error"), &json!("invalid_answer")), "{last}");
    assert_eq!(state(&failed).stage, Stage::Error);
    model.script(script);
    let next = served.say("每天汇总", Some(state(&failed))).await;
    assert_eq!(state(&next).stage, Stage::Clarification);
}
