//! `/openapi.json` against the gateway that serves it: every route is described, every description has a route, and
//! responses match their schemas. [`document`] reads the document itself.

mod document;

use crate::gateway::Gateway;
use crate::run_streams::{RunEvents, writer};
use crate::scenarios::{acts, answer, engine, sales_with};
use crate::support::backend::embedded;
use crate::support::engine::DEADLINE;
use crate::support::eventually;
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// All endpoints of the documented API.
const ENDPOINTS: &[(&str, &str)] = &[
    ("get", "/api/v1/agents"),
    ("get", "/api/v1/agents/{agent_id}"),
    ("put", "/api/v1/agents/{agent_id}"),
    ("get", "/api/v1/dead"),
    ("get", "/api/v1/dead/{which}"),
    ("post", "/api/v1/dead/{which}/replay"),
    ("get", "/api/v1/decisions/schema"),
    ("get", "/api/v1/decisions/schema/{action_type}"),
    ("post", "/api/v1/decisions/validate"),
    ("get", "/api/v1/doctor"),
    ("get", "/api/v1/processes"),
    ("get", "/api/v1/knowledge"),
    ("get", "/api/v1/knowledge/search"),
    ("delete", "/api/v1/knowledge/{agent_id}/{source}"),
    ("put", "/api/v1/knowledge/{agent_id}/{source}"),
    ("post", "/api/v1/messages"),
    ("get", "/api/v1/models"),
    ("get", "/api/v1/runs"),
    ("get", "/api/v1/runs/{run_id}"),
    ("post", "/api/v1/runs/{run_id}/cancel"),
    ("get", "/api/v1/runs/{run_id}/events"),
    ("post", "/api/v1/runs/{run_id}/restart"),
    ("post", "/api/v1/runs/{run_id}/resume"),
    ("get", "/api/v1/sessions"),
    ("get", "/api/v1/sessions/{session_id}"),
    ("post", "/api/v1/sessions/{session_id}/cancel"),
    ("post", "/api/v1/sessions/{session_id}/close"),
    ("get", "/api/v1/sessions/{session_id}/events"),
    ("post", "/api/v1/sessions/{session_id}/release"),
    ("post", "/api/v1/sessions/{session_id}/reply"),
    ("post", "/api/v1/sessions/{session_id}/timers/cancel"),
    ("get", "/api/v1/sessions/{session_id}/turns"),
    ("get", "/api/v1/sessions/{session_id}/turns/{turn_id}"),
    ("get", "/api/v1/timers"),
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
            // A user's message is a part of a job, which has more fields.
            if name != "UserMessage" && schema.get("properties").is_some() {
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
            .replace("{which}", "7")
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

/// A request, and the path that describes it.
struct DescribedRequest {
    method: Method,
    described: &'static str,
    path: &'static str,
    body: Option<Value>,
    status: u16,
}

fn asked(
    method: Method,
    described: &'static str,
    path: &'static str,
    body: Option<Value>,
    status: u16,
) -> DescribedRequest {
    DescribedRequest { method, described, path, body, status }
}

fn requests() -> Vec<DescribedRequest> {
    let (get, post, put) = (Method::GET, Method::POST, Method::PUT);
    let session = "/api/v1/sessions/{session_id}";
    let turn = "/api/v1/sessions/{session_id}/turns/{turn_id}";
    let message = |text: &str| {
        Some(
            json!({"session_id": "s2", "agent_id": "sales", "text": text, "job_id": "m-1", "user_id": "u1", "channel": "web",
                    "sent_at": "2026-01-02T03:04:05Z", "metadata": {"k": 1},
                    "attachments": [{"type": "image", "url": "https://example.com/a.png", "size": 1}]}),
        )
    };
    let words = Some(json!({"text": "我来处理", "by": "李雷"}));
    let agent = "/api/v1/agents/{agent_id}";
    let (source, search) = ("/api/v1/knowledge/{agent_id}/{source}", "/api/v1/knowledge/search");
    let document = |id: &str| {
        Some(
            json!({"id": id, "name": "二号", "sop": "问候", "rules": [{"when": {"always": true}, "decide": {"next_status": "typing", "response": "好"}}]}),
        )
    };
    vec![
        asked(get.clone(), "/healthz", "/healthz", None, 200),
        asked(get.clone(), "/readyz", "/readyz", None, 200),
        asked(get.clone(), "/api/v1/sessions", "/api/v1/sessions?status=ready&limit=5", None, 200),
        asked(get.clone(), "/api/v1/sessions", "/api/v1/sessions?limit=0", None, 400),
        asked(get.clone(), session, "/api/v1/sessions/s1", None, 200),
        asked(get.clone(), session, "/api/v1/sessions/nobody", None, 404),
        asked(get.clone(), session, "/api/v1/sessions/a.b", None, 400),
        asked(get.clone(), "/api/v1/sessions/{session_id}/turns", "/api/v1/sessions/s1/turns", None, 200),
        asked(get.clone(), turn, "/api/v1/sessions/s1/turns/m-1", None, 200),
        asked(get.clone(), turn, "/api/v1/sessions/s1/turns/m-2", None, 200),
        asked(get.clone(), turn, "/api/v1/sessions/s1/turns/m-9", None, 404),
        asked(get.clone(), "/api/v1/sessions/{session_id}/events", "/api/v1/sessions/nobody/events", None, 404),
        asked(post.clone(), "/api/v1/messages", "/api/v1/messages", message("你好"), 202),
        asked(post.clone(), "/api/v1/messages", "/api/v1/messages", Some(json!({"session_id": 7})), 400),
        asked(post.clone(), "/api/v1/messages", "/api/v1/messages", None, 415),
        asked(post.clone(), "/api/v1/sessions/{session_id}/reply", "/api/v1/sessions/s1/reply", words, 409),
        asked(
            post.clone(),
            "/api/v1/sessions/{session_id}/reply",
            "/api/v1/sessions/s1/reply",
            Some(json!({"text": " "})),
            400,
        ),
        asked(
            post.clone(),
            "/api/v1/sessions/{session_id}/cancel",
            "/api/v1/sessions/s1/cancel",
            Some(Value::Null),
            202,
        ),
        asked(
            post.clone(),
            "/api/v1/sessions/{session_id}/release",
            "/api/v1/sessions/s1/release",
            Some(json!({"by": "li"})),
            202,
        ),
        asked(post.clone(), "/api/v1/sessions/{session_id}/close", "/api/v1/sessions/s1/close", None, 202),
        asked(
            post.clone(),
            "/api/v1/sessions/{session_id}/timers/cancel",
            "/api/v1/sessions/s1/timers/cancel",
            Some(json!({"name": "follow_up"})),
            202,
        ),
        asked(get.clone(), "/api/v1/timers", "/api/v1/timers", None, 200),
        asked(get.clone(), "/api/v1/timers", "/api/v1/timers?session_id=nobody", None, 404),
        asked(get.clone(), "/api/v1/dead", "/api/v1/dead?limit=5", None, 200),
        asked(get.clone(), "/api/v1/dead/{which}", "/api/v1/dead/7", None, 404),
        asked(post, "/api/v1/dead/{which}/replay", "/api/v1/dead/7/replay", None, 404),
        asked(get.clone(), "/api/v1/doctor", "/api/v1/doctor", None, 200),
        asked(get.clone(), "/api/v1/processes", "/api/v1/processes", None, 200),
        asked(get.clone(), "/api/v1/agents", "/api/v1/agents", None, 200),
        asked(get.clone(), agent, "/api/v1/agents/sales", None, 200),
        asked(put.clone(), agent, "/api/v1/agents/second", document("second"), 200),
        asked(put.clone(), agent, "/api/v1/agents/second", document("third"), 400),
        asked(
            put.clone(),
            agent,
            "/api/v1/agents/odd",
            Some(json!({"id": "odd", "sop": "问候", "greating": "您好"})),
            200,
        ),
        asked(
            put.clone(),
            source,
            "/api/v1/knowledge/sales/kb%2Fa.md",
            Some(json!({"text": "# 退货\n七天内可退。"})),
            200,
        ),
        asked(put.clone(), source, "/api/v1/knowledge/sales/kb%2Fa.md", Some(json!({"text": " "})), 400),
        asked(put.clone(), source, "/api/v1/knowledge/sales/b?refresh=false", Some(json!({"text": "保修两年。"})), 200),
        asked(put, source, "/api/v1/knowledge/sales/b?refresh=later", Some(json!({"text": "保修两年。"})), 400),
        asked(Method::DELETE, source, "/api/v1/knowledge/sales/b?refresh=false", None, 200),
        asked(get.clone(), "/api/v1/knowledge", "/api/v1/knowledge?agent_id=sales", None, 200),
        asked(get.clone(), "/api/v1/knowledge", "/api/v1/knowledge?agent_id=nobody", None, 404),
        asked(get.clone(), search, "/api/v1/knowledge/search?agent_id=sales&query=%E9%80%80%E8%B4%A7", None, 200),
        asked(get.clone(), search, "/api/v1/knowledge/search?agent_id=sales", None, 400),
        asked(Method::DELETE, source, "/api/v1/knowledge/sales/kb%2Fa.md", None, 200),
        asked(Method::DELETE, source, "/api/v1/knowledge/sales/kb%2Fa.md", None, 404),
        asked(get, "/api/v1/models", "/api/v1/models", None, 200),
    ]
    .into_iter()
    .chain(requests_about_workflows())
    .chain(requests_about_decisions())
    .collect()
}

/// Requests about decisions, which nothing carries out.
fn requests_about_decisions() -> Vec<DescribedRequest> {
    let (validate, one) = ("/api/v1/decisions/validate", "/api/v1/decisions/schema/{action_type}");
    let decision = |fields: Value| {
        let mut body =
            json!({"decision_type": "continue", "payload": {"action_type": "continue", "thought": "x", "progress": 2}});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        Some(body)
    };
    let workflow = json!({"workflow_id": "w", "status": "COMPLETED", "definition": {"nodes": [], "edges": []}});
    let world = json!({"workflows": [workflow], "current": "w", "subagents": [{"type": "a", "timeout": "2m"}]});
    let ask = |fields: Value, status: u16| asked(Method::POST, validate, validate, decision(fields), status);
    vec![
        ask(json!({}), 200),
        ask(json!({"session_id": "s1", "agent_id": "sales"}), 200),
        ask(json!({"world": world}), 200),
        ask(json!({"decision_type": "fly"}), 400),
        ask(json!({"payload": []}), 400),
        ask(json!({"world": {"workflow": []}}), 400),
        ask(json!({"world": {"current": "w"}}), 400),
        ask(json!({"session_id": "a.b"}), 400),
        ask(json!({"session_id": "nobody"}), 404),
        ask(json!({"agent_id": "nobody"}), 404),
        asked(Method::GET, "/api/v1/decisions/schema", "/api/v1/decisions/schema", None, 200),
        asked(Method::GET, one, "/api/v1/decisions/schema/respond", None, 200),
        asked(Method::GET, one, "/api/v1/decisions/schema/fly", None, 404),
    ]
}

/// Requests about `r1`, a run that has ended, and `s1`, the session that started it.
fn requests_about_workflows() -> Vec<DescribedRequest> {
    let (get, post, put) = (Method::GET, Method::POST, Method::PUT);
    let (workflow, run) = ("/api/v1/workflows/{workflow_id}", "/api/v1/runs/{run_id}");
    let about = |method: &Method, described: &'static str, path: &'static str, body: Option<Value>, status: u16| {
        asked(method.clone(), described, path, body, status)
    };
    let document =
        |id: &str| Some(json!({"id": id, "stages": [{"id": "a", "runnable": "writer", "input": "{query}"}]}));
    let query = Some(json!({"query": "q"}));
    vec![
        about(&get, "/api/v1/workflows", "/api/v1/workflows", None, 200),
        about(&get, workflow, "/api/v1/workflows/smart_router", None, 200),
        about(&get, workflow, "/api/v1/workflows/nowhere", None, 404),
        about(&put, workflow, "/api/v1/workflows/mine", document("mine"), 200),
        about(&put, workflow, "/api/v1/workflows/mine", document("other"), 400),
        about(&put, workflow, "/api/v1/workflows/mine", Some(json!({"id": "mine"})), 422),
        about(
            &get,
            "/api/v1/workflows/{workflow_id}/structure",
            "/api/v1/workflows/research_workflow/structure",
            None,
            200,
        ),
        about(&get, "/api/workflows/{workflow_id}/structure", "/api/workflows/research_workflow/structure", None, 200),
        about(&get, "/workflows/{workflow_id}/structure", "/workflows/nowhere/structure", None, 404),
        about(&get, "/api/v1/workflows/{workflow_id}/run", "/api/v1/workflows/mine/run", None, 400),
        about(&get, "/api/workflows/{workflow_id}/run", "/api/workflows/nowhere/run?query=q", None, 404),
        about(&get, "/workflows/{workflow_id}/run", "/workflows/nowhere/run?query=q", None, 404),
        about(&post, "/api/v1/workflows/{workflow_id}/run", "/api/v1/workflows/nowhere/run", query.clone(), 404),
        about(&post, "/api/workflows/{workflow_id}/run", "/api/workflows/nowhere/run", query.clone(), 404),
        about(&post, "/workflows/{workflow_id}/run", "/workflows/mine/run", Some(json!({})), 400),
        about(&post, "/api/v1/workflows/{workflow_id}/runs", "/api/v1/workflows/mine/runs", query, 202),
        about(&get, "/api/v1/runs", "/api/v1/runs?limit=5", None, 200),
        about(&get, "/api/v1/runs", "/api/v1/runs?status=asleep", None, 400),
        about(&get, run, "/api/v1/runs/r1", None, 200),
        about(&get, run, "/api/v1/runs/nowhere", None, 404),
        about(&get, "/api/v1/runs/{run_id}/events", "/api/v1/runs/nowhere/events", None, 404),
        about(&post, "/api/v1/runs/{run_id}/cancel", "/api/v1/runs/nowhere/cancel", None, 404),
        about(&post, "/api/v1/runs/{run_id}/resume", "/api/v1/runs/r1/resume", None, 409),
        about(
            &post,
            "/api/v1/runs/{run_id}/restart",
            "/api/v1/runs/r1/restart",
            Some(json!({"from_stage": "general"})),
            202,
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_answered_fits_its_description() {
    let acting = acts("processing", "SKILL", "query_order", &json!({"order_id": "A1"}));
    let engine = engine(embedded().await, answer("请讲"), vec![acting, answer("好的")]).await;
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
    let others = ["/metrics", "/openapi.json", "/api/v1/sessions/{session_id}/reply"];
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
            other => panic!("{other:?}"),
        };
        let schema = json!({"$ref": format!("#/components/schemas/{name}")});
        let data: Value = serde_json::from_str(event.data.as_deref().unwrap()).unwrap();
        let problems = described.problems(&schema, &data);
        assert!(problems.is_empty(), "{name}: {problems:?}\n{data:#}");
        kinds.insert(name);
    }
    assert_eq!(kinds.len(), 5, "{kinds:?}");
}
