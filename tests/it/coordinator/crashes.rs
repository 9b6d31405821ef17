//! A coordinator's turn whose worker stops: the next one follows the recorded answers and verdicts.

use super::*;
use crate::support::engine::DEADLINE;
use crate::support::eventually;

on_both_backends!(a_recorded_verdict_and_a_sub_agent_are_not_repeated);

async fn a_recorded_verdict_and_a_sub_agent_are_not_repeated(mut backend: Backend) {
    backend.settings.worker.drain_timeout = types::duration::Text(std::time::Duration::from_millis(100));
    let answers = vec![answer(&[spawn("报价"), spawn("库存")]), answer(&[respond("查好了")])];
    let (count, scripted) = counted(answers);
    let open = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_open = Arc::clone(&open);
    let model = ScriptedModel::start(move |asked| match asked.user.contains("库存") && asked.system == "查资料" {
        true if !is_open.load(Ordering::SeqCst) => Answer::Hang,
        _ => scripted(asked),
    });
    let engine = Engine::watching(backend, model.await).await;
    engine.apply(json!({"id": "searcher", "model": "default", "system_prompt": "查资料"})).await;
    engine.apply(coordinator()).await;
    let worker = engine.start_worker();
    engine.publish("s1", "m-1", "查报价和库存").await;
    eventually(DEADLINE, "the second sub-agent is asked", || async {
        engine.model.asked().iter().any(|asked| asked.system == "查资料" && asked.user.contains("库存"))
    })
    .await;
    let before = count.load(Ordering::SeqCst);
    assert_eq!(before, 2, "the first answer and the first sub-agent");
    worker.cancel();
    open.store(true, Ordering::SeqCst);
    engine.start_worker();
    engine.turn("s1", "m-1").await;
    assert_eq!(count.load(Ordering::SeqCst), before + 2, "the second sub-agent and the second answer");
    let expected = [
        "decision_made spawn_subagent",
        "decision_validated spawn_subagent",
        "decision_made spawn_subagent",
        "decision_validated spawn_subagent",
        "decision_made respond",
        "decision_validated respond",
    ];
    assert_eq!(told(&engine, "s1").await, expected, "each event once");
}
