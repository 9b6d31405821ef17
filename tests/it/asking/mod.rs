//! Flows that ask the user and wait, on the embedded and on the cluster backend.

mod flows;
mod leaving;
mod workflows;

use crate::scenarios::{acts, answer, sales_with};
use crate::support::engine::{Backend, Engine};
use crate::support::script::{Answer, Asked, ScriptedModel, plan};
use engine::workflow::{FlowContext, FlowError, Question};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use types::event::{Reply, ReplyKind};
use types::session::{Status, Waiting};

/// Effects of the flows, in order.
#[derive(Clone, Default)]
struct Done(Arc<Mutex<Vec<String>>>);

impl Done {
    fn add(&self, what: &str) {
        self.0.lock().unwrap().push(what.to_owned());
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// Asks three questions, and has an effect after each of the first two answers.
async fn after_sales(flow: FlowContext, done: Done) -> Result<String, FlowError> {
    let order = flow.ask("哪个订单？").await?;
    flow.step("look_up", &order, |_| noted(&done, format!("look up {order}"))).await?;
    let way = flow.ask(Question::new("退款还是换货？").choices(["退款", "换货"])).await?;
    flow.step("book", &way, |_| noted(&done, format!("book {way}"))).await?;
    let sure = flow.ask("确定吗？").await?;
    Ok(format!("{order} {way} {sure}"))
}

async fn noted(done: &Done, what: String) -> Result<(), String> {
    done.add(&what);
    Ok(())
}

/// Routes “售后” to the flow `after_sales` and “流程” to the workflow `steps`, reports the error of a failed flow, acts as
/// the task agents, and echoes everything else.
fn decides(asked: &Asked) -> Answer {
    let decision = match asked.user.as_str() {
        _ if asked.schema.is_empty() => return Answer::Content(format!("{}({})", asked.system, asked.user)),
        _ if asked.system.contains("\"ok\":false") => answer("没办成"),
        "售后" => acts("processing", "FLOW", "after_sales", &json!({})),
        "流程" => acts("processing", "FLOW", "steps", &json!({})),
        text => answer(&format!("说：{text}")),
    };
    Answer::json(&if asked.schema == "plan_and_decision" { plan(Value::Null, &decision) } else { decision })
}

#[allow(clippy::needless_pass_by_value, reason = "as a test writes it")]
fn agent(fields: Value) -> Value {
    let mut all = json!({"greeting": null, "flows": ["after_sales", "steps"], "handoff": {}});
    all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    sales_with(&all)
}

/// An engine with the flow `after_sales` and without workers.
async fn engine(backend: Backend, fields: Value) -> (Engine, Done) {
    let mut engine = Engine::watching(backend, ScriptedModel::start(decides).await).await;
    let done = Done::default();
    let seen = done.clone();
    engine.flows = engine.flows.clone().with("after_sales", move |flow: FlowContext| after_sales(flow, seen.clone()));
    engine.apply(agent(fields)).await;
    (engine, done)
}

async fn waiting(engine: &Engine) -> Option<Box<Waiting>> {
    let session = engine.session("s1").await;
    assert!(session.waiting.is_none() || session.workflow_state.status == Status::Ready, "{session:?}");
    session.waiting
}

/// The last reply of the session.
async fn last(engine: &Engine) -> Reply {
    engine.replies("s1").await.pop().expect("the session has a reply")
}

/// Text of the last reply, which must be of this kind.
async fn last_of(engine: &Engine, kind: ReplyKind) -> String {
    let reply = last(engine).await;
    assert_eq!(reply.kind, kind, "{reply:?}");
    reply.text
}

/// Number of decisions that the model was asked for.
fn decisions(engine: &Engine) -> usize {
    engine.model.asked().iter().filter(|asked| !asked.schema.is_empty()).count()
}

/// A user message to the same agent, for tests that do not wait for its turn.
fn message(job_id: &str, text: &str) -> Value {
    json!({"type": "user_message", "session_id": "s1", "agent_id": "sales", "job_id": job_id, "text": text})
}
