//! Runs whose worker stops repeat no call; failed runs are resumed, and runs are repeated from a node.

use super::{DynamicScript, SUMMARY, accepts, plan, review, run_with};
use crate::run_streams::stage;
use crate::scenarios::on_both_backends;
use crate::support::engine::{Backend, DEADLINE, Engine};
use crate::support::eventually;
use crate::support::script::{Answer, Asked, ScriptedModel};
use commands::runs::NewRun;
use lab::invariants;
use std::time::Duration;
use types::duration::Text;
use types::run::{RunRecord, RunStatus};

on_both_backends!(
    a_run_whose_worker_stops_at_any_call_repeats_no_other,
    a_failed_summary_goes_on_without_asking_the_others,
    a_failed_sub_agent_stays_a_result_when_the_run_goes_on,
    a_run_is_repeated_from_a_node,
);

/// The model for the longest path.
fn script() -> DynamicScript {
    DynamicScript {
        review: review(&["日志"]),
        replan: accepts(&[(1, "log_analytics", "y")]),
        ..DynamicScript::new(plan(&[(1, "servicenow", "x"), (2, "service_health", "x")]))
    }
}

/// The calls of that path, in order.
const CALLS: [&str; 7] = [
    "triage",
    "orchestrator/servicenow",
    "orchestrator/service_health",
    "review_executor/review",
    "triage[2]",
    "orchestrator[2]/log_analytics",
    "streaming_summary",
];

fn stages(engine: &Engine) -> Vec<String> {
    engine.model.asked().iter().map(stage).collect()
}

async fn start(engine: &Engine, new: NewRun) -> String {
    commands::runs::start_run(engine.queue.as_ref(), engine.store.as_ref(), new).await.unwrap().run_id
}

async fn ended(engine: &Engine, run_id: &str, status: RunStatus) -> RunRecord {
    eventually(DEADLINE, &format!("{run_id} is {status:?}"), || async {
        engine.store.run(run_id).await.unwrap().filter(|run| run.status == status)
    })
    .await
}

async fn a_run_whose_worker_stops_at_any_call_repeats_no_other(mut backend: Backend) {
    backend.settings.worker.drain_timeout = Text(Duration::from_millis(50));
    let engine = Engine::watching(backend, ScriptedModel::start(|_| Answer::Hang).await).await;
    let mut worker = engine.start_worker();
    for (at, hangs) in CALLS.into_iter().enumerate() {
        engine.model.forget();
        engine.model.script(move |asked| if stage(asked) == hangs { Answer::Hang } else { script().answer(asked) });
        let run_id = format!("r{at}");
        let new = NewRun { run_id: Some(run_id.clone()), ..NewRun::new("dynamic_ops", "查一下") };
        start(&engine, new).await;
        eventually(DEADLINE, hangs, || async { stages(&engine).iter().any(|asked| asked == hangs) }).await;
        worker.cancel();
        engine.model.script(|asked| script().answer(asked));
        // Its first call is the first one of the next run.
        worker = engine.start_worker();
        let run = ended(&engine, &run_id, RunStatus::Completed).await;
        assert_eq!(run.output.as_deref(), Some(SUMMARY), "{hangs}");
        let mut expected: Vec<_> = CALLS.to_vec();
        expected.insert(at, hangs);
        let keys: Vec<_> = engine.model.asked().into_iter().map(|asked| (asked.idempotency_key, asked.began)).collect();
        assert_eq!(stages(&engine), expected, "only the interrupted call is repeated: {keys:#?}");
        let events = invariants::run_events(engine.queue.as_ref(), &run_id).await.unwrap();
        let mut ids: Vec<_> = events.iter().map(|event| event.event_id.as_str()).collect();
        ids.sort_unstable();
        let all = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), all, "every event is published once");
    }
}

async fn a_failed_summary_goes_on_without_asking_the_others(backend: Backend) {
    let fails = |asked: &Asked| match stage(asked).as_str() {
        "streaming_summary" => Answer::status(418, "scripted"),
        _ => script().answer(asked),
    };
    let ran = run_with(backend, fails).await;
    assert!(ran.last()["error"].as_str().unwrap().starts_with("streaming_summary: "), "{}", ran.last());
    let run_id = ran.last()["run_id"].as_str().unwrap().to_owned();
    let engine = ran.engine;
    engine.model.forget();
    engine.model.script(|asked| script().answer(asked));
    commands::runs::resume_run(engine.queue.as_ref(), engine.store.as_ref(), &run_id).await.unwrap();
    assert_eq!(ended(&engine, &run_id, RunStatus::Completed).await.output.as_deref(), Some(SUMMARY));
    assert_eq!(stages(&engine), ["streaming_summary"]);
}

async fn a_failed_sub_agent_stays_a_result_when_the_run_goes_on(backend: Backend) {
    let fails = |asked: &Asked| match stage(asked).as_str() {
        "streaming_summary" | "orchestrator/servicenow" => Answer::status(418, "scripted"),
        _ => script().answer(asked),
    };
    let ran = run_with(backend, fails).await;
    let run_id = ran.last()["run_id"].as_str().unwrap().to_owned();
    let engine = ran.engine;
    engine.model.forget();
    engine.model.script(|asked| script().answer(asked));
    commands::runs::resume_run(engine.queue.as_ref(), engine.store.as_ref(), &run_id).await.unwrap();
    let run = ended(&engine, &run_id, RunStatus::Completed).await;
    assert_eq!((run.output.as_deref(), stages(&engine)), (Some(SUMMARY), vec!["streaming_summary".to_owned()]));
    assert!(engine.model.asked()[0].user.contains("error: "), "the summary gets the reviewed results");
}

async fn a_run_is_repeated_from_a_node(backend: Backend) {
    let ran = run_with(backend, |asked| script().answer(asked)).await;
    let run_id = ran.last()["run_id"].as_str().unwrap().to_owned();
    let engine = ran.engine;
    let from =
        |stage: &str| NewRun { from_run: Some(run_id.clone()), from_stage: Some(stage.into()), ..NewRun::default() };
    for (node, calls) in
        [("triage[2]", &CALLS[4..]), ("review_executor", &CALLS[3..]), ("streaming_summary", &CALLS[6..])]
    {
        engine.model.forget();
        let again = start(&engine, from(node)).await;
        assert_eq!(ended(&engine, &again, RunStatus::Completed).await.output.as_deref(), Some(SUMMARY), "{node}");
        assert_eq!(stages(&engine), calls, "{node}");
    }
    for (node, part) in [("nowhere", "it has: store_query, triage"), ("orchestrator/servicenow", "name the node alone")]
    {
        let refused =
            commands::runs::start_run(engine.queue.as_ref(), engine.store.as_ref(), from(node)).await.unwrap_err();
        assert!(refused.code == "unknown_stage" && refused.message.contains(part), "{refused:?}");
    }
    let run = engine.store.run(&run_id).await.unwrap().unwrap();
    let details = commands::run_details::details(&engine.store, &engine.flows, &run_id).await.unwrap();
    let paths: Vec<_> = details.timeline.iter().map(|entry| (entry.path.as_str(), entry.model_calls)).collect();
    assert!(paths.contains(&("triage", 1)) && paths.contains(&("triage[2]", 1)), "{paths:?}");
    assert_eq!((run.usage.model_calls, details.timeline.len()), (7, 10), "{paths:?}");
}
