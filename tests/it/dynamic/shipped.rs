//! The shipped workflow with the offline model and the demo API: its example questions take all five paths.

use super::{QUESTION, Ran};
use crate::demo;
use crate::gateway::Gateway;
use crate::run_streams::payloads;
use crate::scenarios::on_both_backends;
use crate::support::engine::{Backend, Engine};
use crate::support::script::{Answer, ScriptedModel};
use definitions::agent::load;
use serde_json::{Value, json};
use std::path::Path;
use types::event::ReplyKind;
use types::outcome::Outcome;

on_both_backends!(the_five_ways_happen_offline, in_chat_the_ops_agent_answers_by_the_flow);

/// An engine with the shipped agent files, the offline model, and a demo API of the test.
async fn engine(backend: Backend) -> (Engine, demo::DemoApi) {
    let api = demo::DemoApi::start().await;
    let nobody = ScriptedModel::start(|_| Answer::status(418, "nobody asks a model")).await;
    let engine = Engine::start(backend, nobody, 1).await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("agents");
    for (path, agent) in load::read_paths(&[folder.clone(), folder.join("tasks")]) {
        let document = agent.unwrap_or_else(|error| panic!("{}: {error}", path.display())).document;
        let text = document.to_string().replace("http://127.0.0.1:8090", &api.base);
        let mut document: Value = serde_json::from_str(&text).unwrap();
        document["model"] = json!("offline");
        engine.apply(document).await;
    }
    (engine, api)
}

async fn the_five_ways_happen_offline(backend: Backend) {
    let (engine, api) = engine(backend).await;
    let gateway = Gateway::of(&engine).await;
    let mut ran = Ran { engine, events: Vec::new() };
    let first = ["store_query", "triage", "orchestrator", "review_executor"];
    let again = ["triage[2]", "orchestrator[2]", "streaming_summary"];
    for (query, nodes, parts) in [
        (QUESTION, first.to_vec(), vec!["INC0101 payment", "checkout（下单）healthy", "连接池耗尽"]),
        ("支付服务为什么变慢？", [&first[..], &again].concat(), vec!["payment（支付）degraded", "连接池耗尽"]),
        (
            "老计费系统为什么告警？",
            [&first[..], &["triage[2]", "streaming_summary"]].concat(),
            vec!["legacy-billing（老计费系统）degraded", "日志没有接入"],
        ),
        ("帮我写首诗", vec!["store_query", "triage", "reject_query"], vec!["只处理运维问题"]),
        ("查一下问题", vec!["store_query", "triage", "clarify_executor"], vec!["请说得具体一些"]),
    ] {
        ran.events = payloads(&gateway.run("dynamic_ops", &json!({"query": query})).await.rest().await);
        assert_eq!(ran.nodes(), nodes, "{query}");
        for part in parts {
            assert!(ran.output().contains(part), "{query}: {part}: {}", ran.output());
        }
    }
    let (_, log) = api.get("/log").await;
    let calls = |endpoint: &str| log["counts"][endpoint]["calls"].clone();
    let counts = ["GET /servicenow/incidents", "GET /health/services", "GET /logs/search"].map(calls);
    assert_eq!(counts, [1, 3, 2], "{log:#}");
}

async fn in_chat_the_ops_agent_answers_by_the_flow(backend: Backend) {
    let (engine, _api) = engine(backend).await;
    let says = async |job_id: &str, text: &str| {
        let job =
            json!({"type": "user_message", "session_id": "s1", "agent_id": "ops", "job_id": job_id, "text": text});
        engine.publish_job("s1", job).await;
        let turn = engine.turn("s1", job_id).await;
        let of_turn = engine.replies("s1").await.into_iter().filter(|reply| reply.turn_id == job_id);
        (turn.outcome, of_turn.collect::<Vec<_>>())
    };
    let (outcome, said) = says("m-1", QUESTION).await;
    let (whole, before) = said.split_last().unwrap();
    assert_eq!((outcome, before[0].kind, whole.kind), (Outcome::Flow, ReplyKind::Greeting, ReplyKind::Final));
    let chunks = before.iter().filter(|reply| reply.kind == ReplyKind::Chunk);
    assert_eq!(chunks.map(|chunk| chunk.text.as_str()).collect::<String>(), whole.text);
    assert!(whole.text.contains("连接池耗尽"), "{}", whole.text);
    let (_, said) = says("m-2", "帮我写首诗").await;
    assert_eq!(said.iter().map(|reply| reply.kind).collect::<Vec<_>>(), [ReplyKind::Final], "one text without chunks");
}
