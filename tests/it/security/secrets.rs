//! Attempts to send a secret to a host for which the operator has not allowed it: by an agent file, by a tool's params, by a
//! service desk, by a graph and by a coordinator's decision.

use super::{Raw, ok};
use crate::commands::Folder;
use base::clock;
use base::config::{Environment, Settings};
use definitions::agent::AgentRecord;
use definitions::workflow::definition::WorkflowRecord;
use serde_json::{Value, json};
use turnwheel::{Engine, NewMessage};

const SECRET: &str = "s3cret-of-tests";

/// An engine that may send `KEY` to 127.0.0.1 only.
async fn engine() -> Engine {
    let env: Environment = [("KEY", SECRET)].into_iter().collect();
    let engine = Engine::in_memory().environment(env).configure(|settings: &mut Settings| {
        settings.secrets.allow = vec!["KEY@127.0.0.1".into()];
        settings.http.allow_private = vec!["*".into()];
    });
    engine.start().await.unwrap()
}

/// An agent that calls the tool `t` with its message as `m`, and replies with the result.
fn agent(http: &Value) -> AgentRecord {
    let params = json!({"type": "object", "properties": {"m": {"type": "string"}}});
    let call = json!({"type": "TOOL", "target": "t", "params": {"m": "{message}"}});
    let document = json!({
        "id": "a", "sop": "x", "model": "offline", "tools": [{"id": "t", "params": params, "http": http}],
        "rules": [
            {"when": {"result_of": "t"}, "decide": {"next_status": "typing", "response": "{result} {error}"}},
            {"when": {"always": true}, "decide": {"next_status": "processing", "action": call}},
        ],
    });
    AgentRecord::from_document(document, clock::now()).unwrap()
}

/// Asserts that the text names the secret, the host and the setting, and does not have the value.
fn names_all(text: &str, host: &str) {
    for part in ["`${KEY}`", &format!("`{host}`"), "secrets.allow", "`127.0.0.1`"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains(SECRET), "{text}");
}

#[tokio::test]
async fn an_agent_file_cannot_send_a_secret_to_a_foreign_host() {
    let (api, engine) = (Raw::start(|_| ok(&json!({}))).await, engine().await);
    let elsewhere = api.url("/{m}").replace("127.0.0.1", "localhost");
    let places = [
        json!({"url": elsewhere, "headers": {"X-Key": "${KEY}"}}),
        json!({"url": elsewhere, "query": {"k": ["a", "${KEY}"]}}),
        json!({"url": elsewhere, "method": "POST", "body": {"deep": ["x ${KEY}"]}}),
        json!({"url": format!("{elsewhere}?k=${{KEY}}")}),
    ];
    for (number, http) in places.iter().enumerate() {
        names_all(&engine.apply(agent(http)).await.unwrap_err().to_string(), "localhost");
        // A process with other settings may have stored it.
        engine.store().put_agent(agent(http)).await.unwrap();
        let said = engine.ask(NewMessage::new(format!("s{number}"), "a", "hi")).await.unwrap();
        names_all(&said.texts().join(" "), "localhost");
    }
    assert!(api.seen().is_empty(), "{:?}", api.seen());
    let own = json!({"url": api.url("/{m}"), "headers": {"X-Key": "${KEY}"}});
    engine.apply(agent(&own)).await.unwrap();
    engine.ask(NewMessage::new("s", "a", "hi")).await.unwrap();
    assert!(api.seen()[0].contains(SECRET), "{:?}", api.seen());
}

#[tokio::test]
async fn no_param_and_no_secret_chooses_the_host_of_a_secret() {
    let (api, engine) = (Raw::start(|_| ok(&json!({}))).await, engine().await);
    for url in ["http://{m}/", "http://{m}.example/", "{m}", "http://127.0.0.1:{m}/", "http://{m}@127.0.0.1/"] {
        engine.store().put_agent(agent(&json!({"url": url, "headers": {"X-Key": "${KEY}"}}))).await.unwrap();
        let message = format!("localhost:{}", api.port);
        let said = engine.ask(NewMessage::new(url.len().to_string(), "a", message)).await.unwrap().texts().join(" ");
        assert!(said.contains("scheme and host must be fixed"), "{url}: {said}");
    }
    for url in ["${KEY}/x", "http://${KEY}/", "http://${KEY}.localhost/", "http://${KEY}@127.0.0.1/"] {
        let agent = agent(&json!({"url": url}));
        let refused = engine.apply(agent.clone()).await.unwrap_err().to_string();
        assert!(refused.contains("`${KEY}` stands before the path"), "{url}: {refused}");
        engine.store().put_agent(agent).await.unwrap();
        let said = engine.ask(NewMessage::new(format!("k{}", url.len()), "a", "hi")).await.unwrap().texts().join(" ");
        assert!(said.contains("scheme and host must be fixed") && !said.contains(SECRET), "{url}: {said}");
    }
    assert!(api.seen().is_empty(), "{:?}", api.seen());
}

#[tokio::test]
async fn a_service_desk_gets_its_own_secrets_only() {
    let (api, engine) = (Raw::start(|_| ok(&json!({}))).await, engine().await);
    let desk = |url: String| {
        let handoff = json!({"type": "SYSTEM", "target": "handoff"});
        let document = json!({
            "id": "a", "sop": "x", "model": "offline",
            "handoff": {"mode": "notify", "http": {"url": url, "headers": {"X-Key": "${KEY}"}}},
            "rules": [{"when": {"always": true}, "decide":
                {"next_status": "transferred", "response": "One moment.", "action": handoff}}],
        });
        AgentRecord::from_document(document, clock::now()).unwrap()
    };
    let elsewhere = desk(api.url("/").replace("127.0.0.1", "localhost"));
    names_all(&engine.apply(elsewhere.clone()).await.unwrap_err().to_string(), "localhost");
    engine.store().put_agent(elsewhere).await.unwrap();
    let answer = engine.ask(NewMessage::new("s1", "a", "hi")).await.unwrap();
    names_all(answer.turn.reason.as_deref().unwrap_or_default(), "localhost");
    assert!(api.seen().is_empty(), "{:?}", api.seen());
    engine.apply(desk(api.url("/"))).await.unwrap();
    engine.ask(NewMessage::new("s2", "a", "hi")).await.unwrap();
    assert!(api.seen()[0].contains(SECRET), "{:?}", api.seen());
}

#[tokio::test]
async fn a_graph_cannot_send_a_secret_to_a_foreign_host() {
    let (api, engine) = (Raw::start(|_| ok(&json!({}))).await, engine().await);
    let graph = |url: String| {
        let node = json!({"node_id": "n", "name": "n", "type": "HTTP",
            "config": {"url": url, "method": "GET", "headers": {"X-Key": "${KEY}"}}});
        let graph = json!({"type": "graph", "id": "g", "name": "g", "nodes": [node], "edges": []});
        WorkflowRecord::from_document(graph, clock::now()).unwrap()
    };
    let elsewhere = graph(api.url("/").replace("127.0.0.1", "localhost"));
    names_all(&engine.register(elsewhere.clone()).await.unwrap_err().to_string(), "localhost");
    engine.store().put_workflow(elsewhere).await.unwrap();
    let run = engine.run_workflow("g", "").await.unwrap();
    let run = engine.run_ended(&run.run_id).await.unwrap();
    let cause = run.error.unwrap().cause;
    assert!(cause.starts_with("REFUSED: "), "{cause}");
    names_all(&cause, "localhost");
    assert!(api.seen().is_empty(), "{:?}", api.seen());
    engine.register(graph(api.url("/"))).await.unwrap();
    let run = engine.run_workflow("g", "").await.unwrap();
    assert!(engine.run_ended(&run.run_id).await.unwrap().error.is_none());
    assert!(api.seen()[0].contains(SECRET), "{:?}", api.seen());
}

#[tokio::test]
async fn a_decision_cannot_send_a_secret_to_a_foreign_host() {
    let api = Raw::start(|_| ok(&json!({}))).await;
    let url = api.url("/").replace("127.0.0.1", "localhost");
    let payload = json!({"action_type": "create_node", "node_type": "HTTP", "node_name": "n",
        "config": {"url": url, "method": "GET", "headers": {"X-Key": "${KEY}"}}});
    let decided = json!({"reasoning": "x",
        "decisions": [{"decision_type": "create_node", "confidence": 1.0, "payload": payload}]});
    // The agent file allows both hosts, the operator only one of them.
    let document = json!({
        "id": "a", "sop": "x", "model": "offline", "mode": "coordinator",
        "coordinator": {"secrets": [{"name": "KEY", "hosts": ["127.0.0.1", "localhost"]}]},
        "rules": [{"when": {"always": true}, "decide": decided}],
    });
    let engine = engine().await;
    let applied = engine.apply(AgentRecord::from_document(document, clock::now()).unwrap()).await.unwrap();
    names_all(&applied.warnings[0].to_string(), "localhost");
    let answer = engine.ask(NewMessage::new("s1", "a", "hi")).await.unwrap();
    let steps = engine.store().steps("s1", &answer.turn.turn_id).await.unwrap();
    let recorded = format!("{steps:?}");
    assert!(recorded.contains("sends the secret `KEY` to `localhost`"), "{recorded}");
    assert!(recorded.contains("`secrets.allow` binds it to `127.0.0.1`") && !recorded.contains(SECRET), "{recorded}");
    assert!(api.seen().is_empty(), "{:?}", api.seen());
}

#[tokio::test]
async fn an_api_that_encodes_the_secret_leaks_nothing() {
    // In hexadecimal, and in base64 alone and within a login.
    const ENCODED: [&str; 3] =
        ["7333637265742d6f662d7465737473", "czNjcmV0LW9mLXRlc3Rz", "c2hvcDpzM2NyZXQtb2YtdGVzdHM="];
    let (api, engine) = (Raw::start(|_| ok(&json!({"echo": ENCODED}))).await, engine().await);
    engine.apply(agent(&json!({"url": api.url("/{m}"), "headers": {"Authorization": "Bearer ${KEY}"}}))).await.unwrap();
    let answer = engine.ask(NewMessage::new("s1", "a", "hi")).await.unwrap();
    let steps = engine.store().steps("s1", &answer.turn.turn_id).await.unwrap();
    let shown = format!("{} {steps:?} {:?}", answer.texts().join(" "), engine.store().session("s1").await.unwrap());
    assert!(shown.contains("***") && api.seen()[0].contains(SECRET), "{shown}");
    for encoded in ENCODED {
        assert!(!shown.contains(&encoded[8..encoded.len() - 4]), "{encoded}: {shown}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_report_a_foreign_host_by_line_and_column() {
    let folder = Folder::embedded();
    std::fs::write(folder.path().join("turnwheel.toml"), "[secrets]\nallow = [\"KEY@127.0.0.1\"]\n").unwrap();
    let agent = "id: a\nsop: x\ntools:\n  - id: t\n    http:\n      url: http://localhost/\n      headers: {X-Key: \"${KEY}\"}\n";
    std::fs::write(folder.path().join("a.yaml"), agent).unwrap();
    let told = folder.run(&["agents", "validate", "a.yaml"], "").await;
    assert!(told.code == 1 && format!("{told:?}").contains("line 7, column 24"), "{told:?}");
    names_all(&format!("{}{}", told.out, told.err), "localhost");
    let graph = "type: graph\nid: g\nname: g\nedges: []\nnodes:\n  - node_id: call\n    name: call\n    type: HTTP\n    config:\n      \
                 method: GET\n      url: http://localhost/\n      params: {k: \"${KEY}\"}\n";
    std::fs::write(folder.path().join("g.yaml"), graph).unwrap();
    let told = folder.run(&["workflows", "validate", "g.yaml"], "").await;
    assert!(told.code == 1 && format!("{told:?}").contains("line 12, column 19"), "{told:?}");
    names_all(&format!("{}{}", told.out, told.err), "localhost");
}
