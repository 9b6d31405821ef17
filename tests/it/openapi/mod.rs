//! `/openapi.json` against the gateway that serves it: every route is described, every description has a route, and
//! responses match their schemas. [`document`] reads the document itself, [`console`] the copy that the console has.

mod console;
mod document;
mod requests;

use crate::gateway::Gateway;
use crate::run_streams::{RunEvents, writer};
use crate::scenarios::{acts, answer, engine, sales_with};
use crate::support::backend::{embedded, embedded_with};
use crate::support::engine::DEADLINE;
use crate::support::eventually;
use base::config::{PromptKeeping, Settings};
use requests::{DescribedRequest, requests};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// All endpoints of the documented API.
const ENDPOINTS: &[(&str, &str)] = &[
    ("delete", "/api/v1/agents/{agent_id}"),
    ("delete", "/api/v1/dead/{which}"),
    ("delete", "/api/v1/sessions/{session_id}"),
    ("delete", "/api/v1/users/{user_id}"),
    ("delete", "/api/v1/workflows/{workflow_id}"),
    ("get", "/api/v1/agents"),
    ("get", "/api/v1/agents/{agent_id}"),
    ("put", "/api/v1/agents/{agent_id}"),
    ("post", "/api/v1/agents/validate"),
    ("get", "/api/v1/agents/{agent_id}/versions"),
    ("post", "/api/v1/agents/{agent_id}/versions"),
    ("get", "/api/v1/agents/{agent_id}/versions/{hash}"),
    ("post", "/api/v1/agents/{agent_id}/versions/{hash}/apply"),
    ("post", "/api/v1/workflows/validate"),
    ("get", "/api/v1/workflows/{workflow_id}/versions"),
    ("post", "/api/v1/workflows/{workflow_id}/versions"),
    ("get", "/api/v1/workflows/{workflow_id}/versions/{hash}"),
    ("post", "/api/v1/workflows/{workflow_id}/versions/{hash}/apply"),
    ("get", "/api/v1/audit"),
    ("post", "/api/v1/backup"),
    ("get", "/api/v1/authoring/catalogue"),
    ("get", "/api/v1/chat/history/{session_id}"),
    ("post", "/api/v1/chat/stream"),
    ("get", "/api/v1/dead"),
    ("get", "/api/v1/dead/{which}"),
    ("post", "/api/v1/dead/{which}/replay"),
    ("post", "/api/v1/dead/replay"),
    ("get", "/api/v1/decisions/schema"),
    ("get", "/api/v1/decisions/schema/{action_type}"),
    ("post", "/api/v1/decisions/validate"),
    ("get", "/api/v1/doctor"),
    ("get", "/api/v1/events"),
    ("get", "/api/v1/handoffs"),
    ("post", "/api/v1/login"),
    ("post", "/api/v1/logout"),
    ("get", "/api/v1/me"),
    ("get", "/api/v1/processes"),
    ("get", "/api/v1/knowledge"),
    ("get", "/api/v1/knowledge/search"),
    ("delete", "/api/v1/knowledge/{agent_id}/{source}"),
    ("put", "/api/v1/knowledge/{agent_id}/{source}"),
    ("post", "/api/v1/messages"),
    ("get", "/api/v1/models"),
    ("get", "/api/v1/runs"),
    ("get", "/api/v1/runs/{run_id}"),
    ("post", "/api/v1/runs/{run_id}/answer"),
    ("post", "/api/v1/runs/{run_id}/cancel"),
    ("get", "/api/v1/runs/{run_id}/diagram"),
    ("get", "/api/v1/runs/{run_id}/events"),
    ("post", "/api/v1/runs/{run_id}/restart"),
    ("post", "/api/v1/runs/{run_id}/resume"),
    ("get", "/api/v1/session"),
    ("post", "/api/v1/session"),
    ("delete", "/api/v1/session/{session_id}"),
    ("get", "/api/v1/session/{session_id}"),
    ("get", "/api/v1/sessions"),
    ("get", "/api/v1/sessions/{session_id}"),
    ("post", "/api/v1/sessions/{session_id}/cancel"),
    ("post", "/api/v1/sessions/{session_id}/claim"),
    ("post", "/api/v1/sessions/{session_id}/close"),
    ("get", "/api/v1/sessions/{session_id}/events"),
    ("post", "/api/v1/sessions/{session_id}/notes"),
    ("post", "/api/v1/sessions/{session_id}/release"),
    ("post", "/api/v1/sessions/{session_id}/reply"),
    ("post", "/api/v1/sessions/{session_id}/timers/cancel"),
    ("post", "/api/v1/sessions/{session_id}/transfer"),
    ("post", "/api/v1/sessions/{session_id}/typing"),
    ("post", "/api/v1/sessions/{session_id}/unclaim"),
    ("get", "/api/v1/sessions/{session_id}/decisions"),
    ("get", "/api/v1/sessions/{session_id}/turns"),
    ("get", "/api/v1/sessions/{session_id}/turns/{turn_id}"),
    ("get", "/api/v1/sessions/{session_id}/turns/{turn_id}/prompts/{key}"),
    ("get", "/api/v1/timers"),
    ("get", "/api/v1/workflow/{session_id}/diff"),
    ("get", "/api/v1/workflow/{session_id}/draft"),
    ("post", "/api/v1/workflow/{session_id}/publish"),
    ("post", "/api/v1/workflow/{session_id}/replay"),
    ("get", "/api/v1/workflow/{session_id}/replay/{replay_id}"),
    ("get", "/api/v1/workflow/{session_id}/status"),
    ("post", "/api/v1/workflow/{session_id}/test"),
    ("get", "/api/v1/workflows"),
    ("get", "/api/v1/workflows/{workflow_id}"),
    ("put", "/api/v1/workflows/{workflow_id}"),
    ("get", "/api/v1/workflows/{workflow_id}/run"),
    ("post", "/api/v1/workflows/{workflow_id}/run"),
    ("post", "/api/v1/workflows/{workflow_id}/runs"),
    ("get", "/api/v1/workflows/{workflow_id}/structure"),
    ("get", "/api/workflows/{workflow_id}/run"),
    ("post", "/api/workflows/{workflow_id}/run"),
    ("get", "/api/workflows/{workflow_id}/structure"),
    ("get", "/healthz"),
    ("get", "/metrics"),
    ("get", "/openapi.json"),
    ("get", "/readyz"),
    ("get", "/workflows/{workflow_id}/run"),
    ("post", "/workflows/{workflow_id}/run"),
    ("get", "/workflows/{workflow_id}/structure"),
];

/// The codes whose hint depends on the request.
const OWN_HINTS: &[&str] = &["invalid_query", "invalid_id", "invalid_event_id"];

/// The OpenAPI document.
struct Described(Value);

impl Described {
    async fn by(gateway: &Gateway) -> Self {
        Self(gateway.json("/openapi.json").await)
    }

    fn operations(&self) -> BTreeSet<(String, String)> {
        let paths = self.0["paths"].as_object().unwrap();
        let of = |(path, item): (&String, &Value)| -> Vec<(String, String)> {
            item.as_object().unwrap().keys().map(|method| (method.clone(), path.clone())).collect()
        };
        paths.iter().flat_map(of).collect()
    }

    /// Schema of a response: that of its status.
    fn schema(&self, method: &str, path: &str, status: u16) -> Value {
        let response = &self.0["paths"][path][method]["responses"][status.to_string()];
        let schema = &response["content"]["application/json"]["schema"];
        assert!(schema.is_object(), "{method} {path} {status}: {response}");
        schema.clone()
    }

    /// The problems of a value that should match a schema of the document.
    fn problems(&self, schema: &Value, value: &Value) -> Vec<String> {
        let mut schema = schema.clone();
        schema["components"] = self.closed_components();
        let validator = jsonschema::validator_for(&schema).unwrap_or_else(|error| panic!("{error}: {schema}"));
        validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect()
    }

    /// The components, changed so that an object permits no undescribed fields.
    fn closed_components(&self) -> Value {
        let mut components = self.0["components"].clone();
        for (name, schema) in components["schemas"].as_object_mut().unwrap() {
            // A user's message and a command are parts of a job, which has more fields.
            let is_part = matches!(name.as_str(), "UserMessage" | "Control");
            if !is_part && schema.get("properties").is_some() {
                schema["unevaluatedProperties"] = json!(false);
            }
        }
        components
    }

    fn check(&self, method: &Method, path: &str, status: u16, body: &Value) {
        let method = method.as_str().to_lowercase();
        let problems = self.problems(&self.schema(&method, path, status), body);
        assert!(problems.is_empty(), "{method} {path} {status}: {problems:?}\n{body:#}");
        if status >= 400 {
            let response = &self.0["paths"][path][&method]["responses"][status.to_string()];
            let codes = &response["content"]["application/json"]["examples"];
            let code = body["error"]["code"].as_str().unwrap();
            assert!(codes[code].is_object(), "{method} {path} {status} does not list the code {code}: {codes}");
            if !OWN_HINTS.contains(&code) {
                let hint = &codes[code]["value"]["error"]["hint"];
                assert_eq!(hint, &body["error"]["hint"], "{method} {path} {status} {code}");
            }
        }
    }
}

/// Collects the texts that `find` finds in `value` and in all its parts.
fn collect(value: &Value, found: &mut BTreeSet<String>, find: fn(&Value) -> Option<&Value>) {
    found.extend(find(value).and_then(Value::as_str).map(str::to_owned));
    match value {
        Value::Object(fields) => fields.values().for_each(|field| collect(field, found, find)),
        Value::Array(items) => items.iter().for_each(|item| collect(item, found, find)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[tokio::test]
async fn every_route_is_described_and_every_description_is_routed() {
    let gateway = Gateway::idle(&embedded().await).await;
    let described = Described::by(&gateway).await;
    let expected: BTreeSet<_> =
        ENDPOINTS.iter().map(|(method, path)| ((*method).to_owned(), (*path).to_owned())).collect();
    assert_eq!(described.operations(), expected);

    let ids = |path: &str| {
        path.replace("{session_id}", "s1")
            .replace("{turn_id}", "t1")
            .replace("{agent_id}", "a1")
            .replace("{source}", "kb%2Fa.md")
            .replace("{workflow_id}", "w1")
            .replace("{run_id}", "r1")
            .replace("{user_id}", "u1")
            .replace("{which}", "7")
            .replace("{hash}", "h1")
            .replace("{action_type}", "fly")
    };
    for path in expected.iter().map(|(_, path)| path) {
        for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            let response =
                gateway.client.request(method.clone(), format!("{}{}", gateway.base, ids(path))).send().await.unwrap();
            let routed = response.status() != 405;
            let named = expected.contains(&(method.as_str().to_lowercase(), path.clone()));
            assert_eq!(routed, named, "{method} {path}");
            if response.status() == 404 {
                let body: Value = response.json().await.unwrap();
                assert_ne!(body["error"]["code"], "unknown_path", "{method} {path}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_answered_fits_its_description() {
    let acting = acts("processing", "SKILL", "query_order", &json!({"order_id": "A1"}));
    let mut settings = Settings::default();
    settings.journal.prompts = Some(PromptKeeping::Full);
    let engine = engine(embedded_with(settings).await, answer("请讲"), vec![acting, answer("好的")]).await;
    let timers = json!([{"name": "follow_up", "delay": "1h", "message": "还在吗", "action": {"type": "TOOL", "target": "now", "params": {}}}]);
    engine.apply(sales_with(&json!({"timers": timers}))).await;
    engine.apply(writer("writer")).await;
    let gateway = Gateway::of(&engine).await;
    engine.say("s1", "m-1", "你好").await;
    engine.say("s1", "m-2", "查订单 A1").await;
    let run =
        gateway.run("smart_router", &json!({"query": "q", "run_id": "r1", "session_id": "s1"})).await.rest().await;
    assert!(!run.is_empty());
    let described = Described::by(&gateway).await;
    let mut answered = BTreeSet::new();
    for DescribedRequest { method, described: path, path: asked, body, status } in requests() {
        let request = gateway.client.request(method.clone(), format!("{}{asked}", gateway.base));
        let response = match &body {
            Some(body) => request.json(body),
            None => request,
        };
        let response = response.send().await.unwrap();
        assert_eq!(response.status(), status, "{method} {asked}");
        assert_eq!(response.headers()["content-type"], "application/json", "{method} {asked}");
        described.check(&method, path, status, &response.json().await.unwrap());
        answered.insert((method.as_str().to_lowercase(), path.to_owned()));
    }
    let others = ["/metrics", "/openapi.json", "/api/v1/logout", "/api/v1/sessions/{session_id}/reply"];
    let missing: Vec<_> = described.operations().difference(&answered).cloned().collect();
    assert!(missing.iter().all(|(_, path)| others.contains(&path.as_str())), "{missing:?}");

    let jobs = eventually(DEADLINE, "all commands are turns", || async {
        let turns = gateway.json("/api/v1/sessions/s1/turns").await;
        (turns["turns"].as_array().unwrap().len() >= 5).then_some(turns)
    })
    .await;
    described.check(&Method::GET, "/api/v1/sessions/{session_id}/turns", 200, &jobs);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_published_fits_its_description() {
    let engine = engine(embedded().await, acts("processing", "TOOL", "now", &json!({})), vec![answer("好的")]).await;
    let gateway = Gateway::of(&engine).await;
    engine.say("s1", "m-1", "几点了").await;
    let described = Described::by(&gateway).await;
    let mut kinds = BTreeSet::new();
    let mut stream = gateway.events("s1", Some(0)).await;
    let mut events = stream.until_end_of("m-1").await;
    // A turn without a change of the status ends with an event of its own.
    let released: Value = gateway.post("/api/v1/sessions/s1/release", &json!({})).await.json().await.unwrap();
    events.extend(stream.until_end_of(released["job_id"].as_str().unwrap()).await);
    let claim = json!({"by": "li", "take_over": true});
    let claimed: Value = gateway.post("/api/v1/sessions/s1/claim", &claim).await.json().await.unwrap();
    events.extend(stream.until_end_of(claimed["job_id"].as_str().unwrap()).await);
    let run = gateway.run("smart_router", &json!({"query": "q", "run_id": "r1"})).await.rest().await;
    assert!(!run.is_empty());
    events.extend(RunEvents::of(gateway.get("/api/v1/runs/r1/events").await).rest().await);
    for event in events {
        let name = match event.event.as_deref() {
            Some("reply") => "Reply",
            Some("status") => "StatusEvent",
            Some("step") => "StepEvent",
            Some("run") => "RunEvent",
            Some("turn") => "TurnEvent",
            Some("handoff") => "HandoffEvent",
            other => panic!("{other:?}"),
        };
        let schema = json!({"$ref": format!("#/components/schemas/{name}")});
        let data: Value = serde_json::from_str(event.data.as_deref().unwrap()).unwrap();
        let problems = described.problems(&schema, &data);
        assert!(problems.is_empty(), "{name}: {problems:?}\n{data:#}");
        kinds.insert(name);
    }
    assert_eq!(kinds.len(), 6, "{kinds:?}");
}
