//! WAIT nodes: a waiting run holds no worker, and resumes at its time, whatever happens meanwhile.

use super::*;
use crate::scenarios::on_both_backends;
use commands::runs::{cancel_run, resume_run};
use std::time::Duration;
use types::outcome::Outcome;

on_both_backends!(
    a_run_that_waits_ends_its_turn_and_goes_on_at_its_time,
    nodes_beside_a_wait_go_on_and_waits_take_no_place,
    a_retry_pause_beside_a_wait_is_no_longer_than_written,
    a_wait_in_a_loop_holds_no_worker,
    a_waiting_run_can_be_cancelled_and_resumed,
    other_jobs_leave_a_waiting_run_alone,
    a_time_that_has_passed_is_no_wait,
    waiting_is_not_counted_as_execution,
);

pub(super) fn wait(id: &str, seconds: f64) -> Value {
    node(id, "WAIT", json!({"seconds": seconds}))
}

/// One worker with one place.
async fn narrow(backend: Backend) -> Engine {
    let mut backend = backend;
    backend.settings.worker.concurrency = 1;
    engine(backend).await
}

/// Makes the timer of a waiting run due, as if its time had come.
pub(super) async fn fire(engine: &Engine, run_id: &str) {
    let timer = engine.session(run_id).await.timers.remove(0);
    let job = json!({"type": "timer", "session_id": run_id, "job_id": format!("{}-{}", timer.timer_id, timer.generation),
        "timer_id": timer.timer_id, "generation": timer.generation, "name": timer.name, "due_at": timer.due_at});
    engine.publish_job(run_id, job).await;
}

async fn a_run_that_waits_ends_its_turn_and_goes_on_at_its_time(backend: Backend) {
    let engine = narrow(backend).await;
    let nodes = json!([call("before", "before", "1"), wait("wait", 3.0), call("after", "after", "2")]);
    register(&engine, graph(nodes, &[("before", "wait"), ("wait", "after")])).await;
    let began = std::time::Instant::now();
    let run_id = start(&engine, NewRun { run_id: Some("r1".into()), ..NewRun::new("g", "") }).await;
    let waits = at_rest(&engine, &run_id, |status| status == RunStatus::Waiting).await;
    assert_eq!((waits.turn_id.as_str(), waits.ended_at), ("r1", None));
    let session = engine.session(&run_id).await;
    assert_eq!(session.timers.len(), 1);
    assert_eq!(session.timers[0].name, "run_waits");
    // The only place of the only worker is free.
    let other = graph(json!([node("end", "END", json!({"output": "free"}))]), &[]);
    let mut other = other;
    other["id"] = json!("other");
    register(&engine, other).await;
    let free = ended(&engine, &start(&engine, NewRun::new("other", "")).await).await;
    assert_eq!(free.output.as_deref(), Some("free"));
    assert_eq!(run_of(&engine, &run_id).await.status, RunStatus::Waiting);
    let run = ended(&engine, &run_id).await;
    assert!(began.elapsed() >= Duration::from_secs(3), "it waits for its time");
    assert_eq!(run.status, RunStatus::Completed, "{:?}", run.error);
    assert_eq!((engine.api.calls("/before").len(), engine.api.calls("/after").len()), (1, 1));
    let session = engine.session(&run_id).await;
    assert!(session.timers.is_empty() && session.waiting.is_none(), "{session:?}");
    let turns = engine.store.turns(&run_id, 10).await.unwrap();
    assert_eq!(turns.iter().map(|turn| turn.outcome).collect::<Vec<_>>(), [Outcome::Flow, Outcome::Flow]);
    let ids: Vec<_> = told(&engine, &run_id).await.into_iter().map(|event| event.event_id).collect();
    let expected = [
        "r1/run_started",
        "r1/before/stage_started",
        "r1/before/stage_completed",
        "r1/wait/stage_started",
        "r1/wait/stage_completed",
        "r1/after/stage_started",
        "r1/after/stage_completed",
        "r1/run_completed",
    ];
    assert_eq!(ids, expected, "each event once, over two turns");
}

async fn nodes_beside_a_wait_go_on_and_waits_take_no_place(backend: Backend) {
    let engine = engine(backend).await;
    let nodes = json!([
        node("s", "START", json!({})),
        wait("w1", 600.0),
        wait("w2", 700.0),
        call("a", "a", "1"),
        call("b", "b", "${a.output.status}")
    ]);
    let mut waits = graph(nodes, &[("s", "w1"), ("s", "w2"), ("s", "a"), ("a", "b")]);
    waits["max_concurrency"] = json!(1);
    register(&engine, waits).await;
    let run_id = start(&engine, NewRun::new("g", "")).await;
    at_rest(&engine, &run_id, |status| status == RunStatus::Waiting).await;
    assert_eq!((engine.api.calls("/a").len(), engine.api.calls("/b").len()), (1, 1), "all that can run has run");
    let due = engine.session(&run_id).await.timers[0].due_at;
    let left = clock::now().until(due);
    assert!(left > Duration::from_secs(500) && left <= Duration::from_secs(600), "the first wait: {left:?}");
    // A timer that fires early finds that nothing is due, and the run waits for the rest.
    fire(&engine, &run_id).await;
    let turns = async || engine.store.turns(&run_id, 10).await.unwrap().len();
    eventually(DEADLINE, "the early turn has ended", || async { turns().await == 2 }).await;
    let run = at_rest(&engine, &run_id, |status| status == RunStatus::Waiting).await;
    assert_eq!(run.status, RunStatus::Waiting);
    let again = clock::now().until(engine.session(&run_id).await.timers[0].due_at);
    assert!(again > Duration::from_secs(500), "{again:?}");
    assert_eq!(engine.api.calls("/").len(), 2);
}

async fn a_retry_pause_beside_a_wait_is_no_longer_than_written(backend: Backend) {
    let engine = engine(backend).await;
    let fails = std::sync::atomic::AtomicUsize::new(0);
    engine.api.script(move |_, _| {
        let first = fails.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0;
        (if first { 503 } else { 200 }, json!({}))
    });
    let mut retried = call("flaky", "flaky", "1");
    retried["retry_config"] = json!({"max_retries": 1, "retry_delay": 3});
    let nodes = json!([node("s", "START", json!({})), wait("w", 600.0), retried]);
    register(&engine, graph(nodes, &[("s", "w"), ("s", "flaky")])).await;
    let run_id = start(&engine, NewRun::new("g", "")).await;
    let calls = async || engine.api.calls("/flaky").len();
    eventually(DEADLINE, "the node is tried again", || async { calls().await == 2 }).await;
    let run = at_rest(&engine, &run_id, |status| status == RunStatus::Waiting).await;
    assert!(run.ended_at.is_none());
    let keys: Vec<_> = engine.api.calls("/flaky").into_iter().map(|call| call.idempotency_key).collect();
    assert_eq!(keys[0], keys[1], "both turns make the same request");
}

async fn a_wait_in_a_loop_holds_no_worker(backend: Backend) {
    let engine = narrow(backend).await;
    let body = json!({"nodes": [wait("pause", 2.5), call("tell", "tell", "${loop.item}")],
        "edges": [{"source": "pause", "target": "tell"}]});
    let each = node("each", "LOOP", json!({"items": "${input.list}", "body": body}));
    register(&engine, graph(json!([each]), &[])).await;
    let run_id = start(&engine, with_input(json!({"list": ["k", "l"]}))).await;
    let run = ended(&engine, &run_id).await;
    assert_eq!(run.status, RunStatus::Completed, "{:?}", run.error);
    let items: Vec<_> = engine.api.calls("/tell").into_iter().map(|call| call.body["x"].clone()).collect();
    assert_eq!(items, ["k", "l"]);
    assert_eq!(engine.store.turns(&run_id, 10).await.unwrap().len(), 3, "one turn, and one after each wait");
}

async fn a_waiting_run_can_be_cancelled_and_resumed(backend: Backend) {
    let engine = engine(backend).await;
    let nodes = json!([call("a", "a", "1"), wait("w", 600.0), call("b", "b", "2")]);
    register(&engine, graph(nodes, &[("a", "w"), ("w", "b")])).await;
    let run_id = start(&engine, NewRun::new("g", "")).await;
    at_rest(&engine, &run_id, |status| status == RunStatus::Waiting).await;
    let stale = engine.session(&run_id).await.timers.remove(0);
    let (queue, store) = (engine.queue.as_ref(), engine.store.as_ref());
    cancel_run(queue, store, &run_id, Some("别等了".into()), Some("li".into())).await.unwrap();
    let run = ended(&engine, &run_id).await;
    assert_eq!(run.status, RunStatus::Cancelled);
    assert!(run.error.as_ref().unwrap().cause.contains("别等了"), "{:?}", run.error);
    let session = engine.session(&run_id).await;
    assert!(session.timers.is_empty() && session.waiting.is_none());
    let last = told(&engine, &run_id).await.pop().unwrap();
    assert_eq!(last.event_id, format!("{run_id}/run_failed"));
    // The timer of a run that has ended does nothing.
    let job = json!({"type": "timer", "session_id": run_id, "job_id": "stale-0", "timer_id": stale.timer_id,
        "generation": stale.generation, "due_at": stale.due_at});
    engine.publish_job(&run_id, job).await;
    eventually(DEADLINE, "the stale timer is handled", || async {
        engine.session(&run_id).await.has_handled("stale-0")
    })
    .await;
    assert_eq!(run_of(&engine, &run_id).await, run);
    resume_run(queue, store, &run_id).await.unwrap();
    let resumed = at_rest(&engine, &run_id, |status| status == RunStatus::Waiting).await;
    assert_eq!(engine.api.calls("/a").len(), 1, "what was done is kept");
    assert_ne!(resumed.turn_id, run.turn_id);
    let left = clock::now().until(engine.session(&run_id).await.timers[0].due_at);
    assert!(left <= Duration::from_secs(600), "the wait goes on and does not begin again");
    cancel_run(queue, store, &run_id, None, None).await.unwrap();
    let ids: Vec<_> = {
        ended(&engine, &run_id).await;
        told(&engine, &run_id)
            .await
            .into_iter()
            .map(|event| event.event_id)
            .filter(|id| id.contains("run_failed"))
            .collect()
    };
    assert_eq!(ids, [format!("{run_id}/run_failed"), format!("{run_id}/run_failed@{}", resumed.turn_id)]);
}

async fn other_jobs_leave_a_waiting_run_alone(backend: Backend) {
    let engine = engine(backend).await;
    register(&engine, graph(json!([wait("w", 600.0)]), &[])).await;
    let run_id = start(&engine, NewRun::new("g", "")).await;
    at_rest(&engine, &run_id, |status| status == RunStatus::Waiting).await;
    let before = engine.session(&run_id).await;
    let jobs = [
        json!({"type": "control", "command": "cancel_timers", "job_id": "j1"}),
        json!({"type": "control", "command": "release", "job_id": "j2"}),
        json!({"type": "run", "workflow_id": "g", "job_id": "j3"}),
        json!({"type": "run", "workflow_id": "g", "from_run": run_id, "job_id": "j4"}),
        json!({"type": "answer", "question": "w/ask[1]", "text": "好", "job_id": "j5"}),
    ];
    for mut job in jobs {
        job["session_id"] = json!(run_id);
        engine.publish_job(&run_id, job).await;
    }
    eventually(DEADLINE, "all jobs are handled", || async { engine.session(&run_id).await.has_handled("j5") }).await;
    let run = at_rest(&engine, &run_id, |status| status == RunStatus::Waiting).await;
    assert_eq!((run.status, run.ended_at), (RunStatus::Waiting, None));
    let after = engine.session(&run_id).await;
    assert_eq!(after.timers.len(), 1);
    assert_eq!(after.waiting.map(|waiting| waiting.began_at), before.waiting.map(|waiting| waiting.began_at));
}

async fn a_time_that_has_passed_is_no_wait(backend: Backend) {
    let engine = engine(backend).await;
    let until = node("w", "WAIT", json!({"until": "${input.when}"}));
    register(&engine, graph(json!([until, call("after", "after", "1")]), &[("w", "after")])).await;
    let run = ended(&engine, &start(&engine, with_input(json!({"when": "2020-05-01T09:00:00Z"}))).await).await;
    assert_eq!(run.status, RunStatus::Completed, "{:?}", run.error);
    assert_eq!(engine.store.turns(&run.run_id, 10).await.unwrap().len(), 1);
    // A wait that ends after the run's steps have expired cannot be kept.
    let run = ended(&engine, &start(&engine, with_input(json!({"when": "2099-05-01T09:00:00Z"}))).await).await;
    let failure = run.error.unwrap();
    assert_eq!((run.status, failure.path.as_str()), (RunStatus::Failed, "w"));
    assert!(failure.cause.contains("retention.turns"), "{failure:?}");
}

async fn waiting_is_not_counted_as_execution(backend: Backend) {
    let engine = engine(backend).await;
    let nodes = json!([wait("w1", 2.5), wait("w2", 2.5), call("after", "after", "1")]);
    let mut short = graph(nodes, &[("w1", "w2"), ("w2", "after")]);
    short["limits"] = json!({"timeout": "2s"});
    register(&engine, short).await;
    let run = ended(&engine, &start(&engine, NewRun::new("g", "")).await).await;
    assert_eq!(run.status, RunStatus::Completed, "five seconds of waiting are within a limit of two: {:?}", run.error);
}
