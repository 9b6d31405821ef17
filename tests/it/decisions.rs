//! The recorded decision counts, even if the model responds differently to a repeated call.

use crate::scenarios::{acts, answer, on_both_backends, sales_with};
use crate::support::engine::{Backend, Engine};
use crate::support::script::{Answer, ScriptedModel, plan};
use serde_json::json;
use std::sync::Arc;
use storage::store::records::Record;
use types::outcome::Outcome;

on_both_backends!(decision_that_another_worker_has_recorded_is_the_one_that_is_followed);

async fn decision_that_another_worker_has_recorded_is_the_one_that_is_followed(backend: Backend) {
    let model = ScriptedModel::start(|asked| {
        let order = json!({"order_id": "A1"});
        Answer::json(&match (asked.schema.as_str(), asked.index) {
            ("plan_and_decision", _) => plan(json!(null), &answer("您好")),
            (_, 1) => acts("processing", "TOOL", "eta", &order),
            (_, 3) => acts("processing", "SKILL", "query_order", &order),
            _ => answer("好的"),
        })
    });
    let engine = Engine::start(backend, model.await, 1).await;
    engine.apply(sales_with(&json!({"greeting": null}))).await;
    engine.api.script(|_, _| (200, json!({"days": 2})));
    engine.say("s0", "m-1", "你好").await;
    engine.say("s1", "m-1", "查订单").await;
    assert_eq!(engine.api.calls("/eta").len(), 1);

    // A worker whose lease has expired records its decision for the same call while this worker asks the model.
    let decided =
        engine.store.steps("s1", "m-1").await.unwrap().into_iter().find(|step| step.key == "0/decide").unwrap();
    let record = Record {
        session_id: "s2".into(),
        epoch: 1,
        turn_id: "m-1".into(),
        steps: vec![Arc::new(decided.clone())],
        status: None,
    };
    engine.store.record(record).await.unwrap();
    let turn = engine.say("s2", "m-1", "查订单").await;
    assert_eq!(turn.outcome, Outcome::Answered);
    let steps = engine.store.steps("s2", "m-1").await.unwrap();
    let of = |key: &str| steps.iter().find(|step| step.key == key).unwrap();
    assert_eq!((&of("0/decide").output, of("0/act").target.as_str()), (&decided.output, "eta"));
    assert_eq!((engine.api.calls("/eta").len(), engine.api.calls("/orders").len()), (2, 0));
}
