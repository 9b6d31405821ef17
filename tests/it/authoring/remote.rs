//! Dialogues that an authoring agent on another server leads (`authoring.endpoint`). The server is an engine of its
//! own, reached over gRPC.

use super::*;
use crate::grpc::Served;
use ::grpc::RemoteAuthor;
use base::clock::Clock;
use std::net::SocketAddr;
use types::authoring::Stage;

on_both_backends!(
    a_remote_agent_leads_a_dialogue_whose_document_is_checked_and_published_here,
    a_remote_agent_that_stops_ends_the_turn_and_the_next_message_continues,
    a_remote_document_that_cannot_work_here_is_written_again_with_the_reasons,
);

/// An engine whose workers call the agent at `address`, with the dialogue s1. Its own models are never asked.
async fn calling(backend: Backend, address: SocketAddr) -> Engine {
    let mut engine = watching(backend, |asked| panic!("a model of the worker was asked for `{}`", asked.schema)).await;
    let remote = RemoteAuthor::new(&format!("http://{address}"), Some("olga-token"), None, Clock::system()).unwrap();
    engine.author = Some(Arc::new(remote));
    engine.start_worker();
    engine
}

async fn a_remote_agent_leads_a_dialogue_whose_document_is_checked_and_published_here(backend: Backend) {
    let model = ScriptedModel::start(answers::script).await;
    let served = Served::start(&model).await;
    let engine = calling(backend, served.address).await;

    let turn = say(&engine, "m-1", "每天汇总").await;
    let events = told(&engine, "m-1").await;
    assert_eq!(turn.reason, None);
    assert_eq!(whole(&events), ["clarification", "message"]);
    let asking = state(&engine).await;
    assert_eq!((asking.questions[0].id.as_str(), asking.state.user_id.as_str()), ("when", "u1"));

    say(&engine, "m-2", "八点").await;
    let events = told(&engine, "m-2").await;
    ends_once(&events);
    assert_eq!(whole(&events), LEADS_TO_A_DOCUMENT);
    let ended = state(&engine).await;
    let id = ended.state.workflow_id.clone().unwrap();
    assert_eq!((ended.state.stage, ended.turns), (Stage::Completed, 2));
    assert!(engine.store.workflow(&id).await.unwrap().is_some(), "it is published here");
    assert!(served.engine.store().workflow(&id).await.unwrap().is_none(), "the other server stores nothing");
    let said: Vec<&str> = ended.state.conversations.iter().map(|entry| entry.text.as_str()).collect();
    assert_eq!(said[..3], ["每天汇总", "每天几点汇总？", "八点"], "no message is lost or doubled");
}

async fn a_remote_agent_that_stops_ends_the_turn_and_the_next_message_continues(backend: Backend) {
    let model = ScriptedModel::start(|asked: &Asked| match asked.schema.as_str() {
        "authoring_negotiation" => Answer::Hang,
        _ => answers::script(asked),
    })
    .await;
    let served = Served::start(&model).await;
    let engine = calling(backend, served.address).await;
    publish(&engine, "m-1", "八点汇总").await;
    let asked = || async { asked_of(&model, "authoring_negotiation") };
    eventually(DEADLINE, "the exchange is in its second stage", asked).await;
    let address = served.address;
    drop(served);

    let turn = engine.turn("s1", "m-1").await;
    assert_eq!(turn.reason.as_deref(), Some("agent_unavailable"));
    let events = told(&engine, "m-1").await;
    ends_once(&events);
    assert_eq!(whole(&events), ["clarification", "message", "negotiation", "agent_unavailable"]);
    let details = json!(events.last())["content"]["details"].as_str().unwrap().to_owned();
    assert!(!details.contains(&address.port().to_string()), "the address is for the operator: {details}");
    assert_eq!(state(&engine).await.state.stage, Stage::Negotiation, "the stage is kept");

    model.script(answers::script);
    let _served = Served::start_at(&model, address).await;
    let turn = say(&engine, "m-2", "请继续").await;
    assert_eq!((turn.reason, state(&engine).await.state.stage), (None, Stage::Completed));
}

async fn a_remote_document_that_cannot_work_here_is_written_again_with_the_reasons(backend: Backend) {
    let model = ScriptedModel::start(|asked: &Asked| match asked.schema.as_str() {
        "authoring_workflow_generation" if asked.system.contains("give one SQL statement\n- nodes[0]") => {
            answers::written("LLM")
        }
        "authoring_workflow_generation" => answers::written("DATABASE"),
        _ => answers::script(asked),
    })
    .await;
    let served = Served::start(&model).await;
    let engine = calling(backend, served.address).await;
    say(&engine, "m-1", "八点汇总").await;
    let events = told(&engine, "m-1").await;
    ends_once(&events);
    let (first, again) = (LEADS_TO_A_DOCUMENT[..11].iter(), ["message", "workflow_draft"].iter());
    let ending = LEADS_TO_A_DOCUMENT[10..].iter();
    assert_eq!(whole(&events), first.chain(again).chain(ending).copied().collect::<Vec<_>>());
    let ended = state(&engine).await;
    assert_eq!((ended.state.stage, ended.state.debug_loop_count), (Stage::Completed, 1));
}

fn asked_of(model: &ScriptedModel, schema: &str) -> bool {
    model.asked().iter().any(|asked| asked.schema == schema)
}
