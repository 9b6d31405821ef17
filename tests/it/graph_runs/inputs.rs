//! The inputs of a run: checked when it is requested, and in its record before its job is sent.

use super::*;
use crate::scenarios::on_both_backends;
use crate::support::backend::embedded_with_short_lanes;

on_both_backends!(
    a_run_has_the_inputs_of_its_request,
    wrong_inputs_are_refused_with_every_error,
    large_inputs_are_in_the_record_and_not_in_the_job,
    a_run_of_one_id_has_one_input,
    a_repeated_run_has_the_inputs_of_the_first,
);

/// Two inputs, one of them required, and their values as output.
fn report() -> Value {
    let mut report = graph(json!([node("end", "END", json!({"output": "${since}/${count}"}))]), &[]);
    report["global_config"] = json!({"inputs": [
        {"name": "since", "type": "string", "required": true},
        {"name": "count", "type": "number", "default": 3},
    ]});
    report
}

async fn a_run_has_the_inputs_of_its_request(backend: Backend) {
    let engine = engine(backend).await;
    register(&engine, report()).await;
    let gateway = Gateway::of(&engine).await;
    let body = json!({"input": {"since": "2026-01"}, "run_id": "r1"});
    let answered = gateway.post("/api/v1/workflows/g/runs", &body).await;
    assert_eq!(answered.status(), 202, "a graph needs no query");
    let run = ended(&engine, "r1").await;
    assert_eq!((run.output.as_deref(), run.query.as_str()), (Some("2026-01/3"), ""), "{:?}", run.error);
    let shown = gateway.json("/api/v1/runs/r1").await;
    assert_eq!(shown["params"], json!({"since": "2026-01"}));
    assert_eq!(shown["timeline"][0]["output"], "2026-01/3", "the timeline knows the inputs: {shown}");
    // A JSON object in the query, as a browser's EventSource sends it.
    let run = ended(&engine, &start(&engine, NewRun::new("g", "{\"since\": \"2025\", \"count\": 1.5}")).await).await;
    assert_eq!((run.output.as_deref(), run.params), (Some("2025/1.5"), None));
}

async fn wrong_inputs_are_refused_with_every_error(backend: Backend) {
    let engine = engine(backend).await;
    register(&engine, report()).await;
    engine.apply(json!({"id": "writer", "model": "default", "system_prompt": "写"})).await;
    let gateway = Gateway::of(&engine).await;
    let refused = async |workflow: &str, body: Value| {
        let answered = gateway.post(&format!("/api/v1/workflows/{workflow}/runs"), &body).await;
        let status = answered.status().as_u16();
        let error = answered.json::<Value>().await.unwrap()["error"].take();
        (status, error["code"].as_str().unwrap().to_owned(), error["message"].as_str().unwrap().to_owned())
    };
    let (status, code, message) = refused("g", json!({"input": {"count": "drei", "extra": 1}})).await;
    assert_eq!((status, code.as_str()), (400, "invalid_input"));
    for named in ["`input.since` is missing", "`input.count` is a text", "`input.extra`"] {
        assert!(message.contains(named), "{named}: {message}");
    }
    for body in [json!({}), json!({"query": "一句话"}), json!({"query": "{\"since\": 5}"})] {
        assert_eq!(refused("g", body.clone()).await.1, "invalid_input", "{body}");
    }
    let (_, code, message) = refused("writer", json!({"query": "写诗", "input": {"a": 1}})).await;
    assert_eq!((code.as_str(), message.as_str()), ("invalid_input", "only graphs have inputs"));
    assert_eq!(refused("writer", json!({"input": {}})).await.1, "empty_query");
    let (status, code, _) = refused("g", json!({"input": {"since": "长".repeat(400_000)}})).await;
    assert_eq!((status, code.as_str()), (413, "too_large"));
    assert!(engine.store.runs(types::run::RunQuery::default()).await.unwrap().is_empty(), "nothing has started");
}

async fn large_inputs_are_in_the_record_and_not_in_the_job(backend: Backend) {
    let engine = engine(backend).await;
    register(&engine, report()).await;
    let text = "x".repeat(1_048_576 - "{\"since\":\"\"}".len());
    let run = ended(&engine, &start(&engine, with_input(json!({"since": text}))).await).await;
    assert_eq!(run.status, RunStatus::Completed, "{:?}", run.error);
    assert_eq!(run.params.unwrap()["since"].as_str().unwrap().len(), text.len());
    // Names that MongoDB does not accept everywhere.
    register(&engine, graph(json!([node("end", "END", json!({"output": "${input.list}"}))]), &[])).await;
    let given = json!({"list": [{"$set": {"a.b": null}}], "$x": 18_446_744_073_709_551_615_u64});
    let run = ended(&engine, &start(&engine, with_input(given.clone())).await).await;
    assert_eq!(run.params.map(Value::Object), Some(given));
    assert_eq!(run.output.as_deref(), Some("[{\"$set\":{\"a.b\":null}}]"));
}

async fn a_run_of_one_id_has_one_input(backend: Backend) {
    let engine = engine(backend).await;
    register(&engine, report()).await;
    let new = |since: &str| NewRun { run_id: Some("r1".into()), ..with_input(json!({"since": since})) };
    for _ in 0..2 {
        start(&engine, new("a")).await;
    }
    assert_eq!(try_start(&engine, new("b")).await.unwrap_err().code, "run_id_taken");
    let run = ended(&engine, "r1").await;
    assert_eq!(run.output.as_deref(), Some("a/3"));
    start(&engine, new("a")).await;
    assert_eq!(run_of(&engine, "r1").await, run, "a repeat of the request changes nothing");
    // A request that has stored the record only.
    let lost = RunRecord {
        run_id: "r2".into(),
        status: RunStatus::Pending,
        turn_id: "r2".into(),
        lane: "r2".into(),
        output: None,
        started_at: None,
        ended_at: None,
        ..run
    };
    assert!(engine.store.put_run(lost).await.unwrap());
    start(&engine, NewRun { run_id: Some("r2".into()), ..new("a") }).await;
    assert_eq!(ended(&engine, "r2").await.output.as_deref(), Some("a/3"), "its repeat sends the job");
}

async fn a_repeated_run_has_the_inputs_of_the_first(backend: Backend) {
    let engine = engine(backend).await;
    register(&engine, report()).await;
    let first = start(&engine, with_input(json!({"since": "2026"}))).await;
    ended(&engine, &first).await;
    let again = NewRun { from_run: Some(first), ..NewRun::default() };
    let again = ended(&engine, &start(&engine, again).await).await;
    assert_eq!((again.output.as_deref(), again.params.is_some()), (Some("2026/3"), true));
}

#[tokio::test]
async fn a_run_whose_job_the_queue_refuses_leaves_no_pending_record() {
    let engine = Engine::watching(embedded_with_short_lanes().await, ScriptedModel::start(echo).await).await;
    register(&engine, report()).await;
    let body = "x".repeat(engine.queue.max_payload());
    let new = NewRun { query: body, run_id: Some("r1".into()), ..with_input(json!({"since": "2026"})) };
    assert_eq!(try_start(&engine, new).await.unwrap_err().code, "too_large");
    let run = run_of(&engine, "r1").await;
    assert_eq!(run.status, RunStatus::Failed);
    assert!(run.ended_at.is_some() && run.error.unwrap().cause.contains("exceeds"));
}
