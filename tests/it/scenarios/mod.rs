//! The acceptance scenarios of the engine, each on the embedded and on the cluster backend.

mod conversation;
mod faults;
mod greeting;
mod handoff;
mod lanes;
mod lifecycle;
mod operators;
mod timers;

use crate::support::engine::{Backend, Engine};
use crate::support::script::{ScriptedModel, action, decision, plan};
use serde_json::{Value, json};

/// Runs each behaviour on both backends.
macro_rules! on_both_backends {
    ($($name:ident),+ $(,)?) => {
        mod embedded {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(crate::support::backend::embedded().await).await;
            })+
        }
        mod cluster {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(crate::support::backend::cluster().await).await;
            })+
        }
    };
}
pub(crate) use on_both_backends;

/// The agent of the scenarios.
pub fn sales() -> Value {
    json!({
        "id": "sales",
        "name": "小智",
        "tone": "热情、专业",
        "greeting": "您好，我是小智",
        "sop": "先问候，再回答。",
        "constraints": "每次最多两句话。",
        "skills": [{
            "id": "query_order",
            "description": "查询订单物流",
            "condition": "用户询问订单或物流",
            "params": {"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]},
            "http": {"method": "GET", "url": "{api}/orders/{order_id}"},
        }],
        "tools": [
            {"id": "eta", "description": "几天到", "params": {"type": "object", "properties": {"order_id": {"type": "string"}}},
             "http": {"method": "GET", "url": "{api}/eta", "query": {"order_id": "{order_id}"}}},
            {"id": "log_followup", "description": "记录跟进", "params": {"type": "object"},
             "http": {"method": "POST", "url": "{api}/followups"}},
            {"id": "now", "builtin": "now"},
        ],
        "flows": ["parallel_analysis"],
        "handoff": {"mode": "notify", "http": {"method": "POST", "url": "{api}/desk"}},
    })
}

/// `sales` with some fields replaced.
pub fn sales_with(fields: &Value) -> Value {
    let mut agent = sales();
    for (key, value) in fields.as_object().unwrap() {
        agent[key] = value.clone();
    }
    agent
}

/// An engine with `sales`. Its model first plans with the greeting and `first`, then returns `rest` in order.
pub async fn engine(backend: Backend, first: Value, rest: Vec<Value>) -> Engine {
    let mut answers = vec![plan(json!("您好，我是小智"), &first)];
    answers.extend(rest);
    let engine = Engine::start(backend, ScriptedModel::answering(answers).await, 1).await;
    engine.apply(sales()).await;
    engine
}

/// A decision with a plain reply.
pub fn answer(text: &str) -> Value {
    decision("typing", Value::Null, json!(text))
}

/// A decision for one SKILL, TOOL, FLOW or SYSTEM action.
pub fn acts(next_status: &str, kind: &str, target: &str, params: &Value) -> Value {
    decision(next_status, action(kind, target, params), Value::Null)
}
