//! Workflows with model-made plans, on the embedded and on the cluster backend. [`paths`] has the five paths of a run,
//! with their nodes and calls; [`rules`] the rules of all paths; [`shipped`] the workflow that comes with the program,
//! with the offline model and the demo API; [`clarify`] runs that ask the user; [`crashes`] runs that are interrupted
//! or repeated.

mod clarify;
mod crashes;
mod paths;
mod rules;
mod shipped;

use crate::gateway::Gateway;
use crate::run_streams::{of_type, payloads, stage, started};
use crate::support::engine::{Backend, Engine};
use crate::support::model_stream::Stream;
use crate::support::script::{Answer, Asked, ScriptedModel};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The question of scenario S-17.
pub const QUESTION: &str = "过去24小时有哪些P1工单，服务是否健康？";

/// A response of the plan agent with these steps.
pub fn plan(steps: &[(i64, &str, &str)]) -> Value {
    json!({"action": "plan", "reject_reason": "", "plan": written(steps), "plan_reason": "先查工单"})
}

/// A response of the replan agent that accepts the review, with these steps.
pub fn accepts(steps: &[(i64, &str, &str)]) -> Value {
    json!({"accept_review": true, "new_plan": written(steps), "rejection_reason": ""})
}

fn written(steps: &[(i64, &str, &str)]) -> Vec<Value> {
    let step =
        |(step, agent, question): &(i64, &str, &str)| json!({"step": step, "agent": agent, "question": question});
    steps.iter().map(step).collect()
}

/// A review with this missing information.
pub fn review(missing: &[&str]) -> Value {
    json!({"is_complete": missing.is_empty(), "missing_aspects": missing, "suggested_approach": "查日志", "confidence": 0.5})
}

/// The plan of scenario S-17: two concurrent steps, then one.
pub fn three_steps() -> Value {
    plan(&[(1, "servicenow", "P1工单"), (1, "service_health", "健康状态"), (2, "log_analytics", "错误日志")])
}

/// Responses of the roles. Sub-agents respond with their names, the summary in two pieces.
#[derive(Clone)]
pub struct DynamicScript {
    pub plan: Value,
    pub review: Value,
    pub replan: Value,
}

impl DynamicScript {
    pub fn new(plan: Value) -> Self {
        Self { plan, review: review(&[]), replan: json!({"accept_review": false, "rejection_reason": "查不到"}) }
    }

    pub fn answer(&self, asked: &Asked) -> Answer {
        let stage = stage(asked);
        match asked.schema.as_str() {
            "triage_plan" => Answer::json(&self.plan),
            "triage_replan" => Answer::json(&self.replan),
            "review" => Answer::json(&self.review),
            "" if summarises(&stage) => Answer::Stream(Stream::of(["有两个P1工单，", "支付不健康。"])),
            _ => Answer::Content(format!("{} 的结果", stage.rsplit('/').next().unwrap())),
        }
    }
}

/// Text of the summary.
pub const SUMMARY: &str = "有两个P1工单，支付不健康。";

pub fn summarises(stage: &str) -> bool {
    stage.ends_with("review_executor/summary") || stage.ends_with("streaming_summary")
}

/// A run of `dynamic_ops`, from the events of its stream.
pub struct Ran {
    pub engine: Engine,
    pub events: Vec<Value>,
}

/// Runs the shipped workflow on [`QUESTION`] with this model.
pub async fn run_with(backend: Backend, model: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Ran {
    run_of(backend, model, "dynamic_ops", None).await
}

pub async fn run(backend: Backend, script: DynamicScript) -> Ran {
    run_with(backend, move |asked| script.answer(asked)).await
}

/// Like [`run_with`] for `workflow_id`, which is registered as `document` if that is given.
pub async fn run_of(
    backend: Backend,
    model: impl Fn(&Asked) -> Answer + Send + Sync + 'static,
    workflow_id: &str,
    document: Option<Value>,
) -> Ran {
    let (engine, gateway): (Engine, Gateway) = started(backend, ScriptedModel::start(model).await, 1).await;
    if let Some(document) = document {
        crate::run_streams::register(&engine, document).await;
    }
    let events = payloads(&gateway.run(workflow_id, &json!({"query": QUESTION})).await.rest().await);
    Ran { engine, events }
}

impl Ran {
    /// The nodes in the order in which they began.
    pub fn nodes(&self) -> Vec<&str> {
        of_type(&self.events, "stage_started").iter().map(|event| event["path"].as_str().unwrap()).collect()
    }

    pub fn last(&self) -> &Value {
        self.events.last().unwrap()
    }

    pub fn output(&self) -> &str {
        assert_eq!(self.last()["type"], "run_completed", "{}", self.last());
        self.last()["data"]["output"].as_str().unwrap()
    }

    /// Output of a stage or branch, from its event.
    pub fn output_of(&self, path: &str) -> &Value {
        let completed = |event: &&Value| {
            event["path"] == path && ["stage_completed", "branch_completed"].iter().any(|kind| event["type"] == *kind)
        };
        self.events.iter().find(completed).unwrap_or_else(|| panic!("{path}: {:#?}", self.events))
    }

    /// Number of model calls by the schema's name. The summary and the sub-agents ask for a text.
    pub fn calls(&self) -> BTreeMap<String, usize> {
        let mut calls = BTreeMap::new();
        for asked in self.engine.model.asked() {
            let what = match asked.schema.as_str() {
                "" if summarises(&stage(&asked)) => "summary",
                "" => "sub-agent",
                schema => schema,
            };
            *calls.entry(what.to_owned()).or_default() += 1;
        }
        calls
    }

    /// Input of the agent at a stage.
    pub fn given(&self, wanted: &str) -> String {
        let asked = self.engine.model.asked();
        let found = asked.iter().find(|asked| stage(asked) == wanted);
        found.unwrap_or_else(|| panic!("{wanted}: {:?}", asked.iter().map(stage).collect::<Vec<_>>())).user.clone()
    }

    /// Streamed texts, by the path of the stage.
    pub fn streamed(&self) -> BTreeMap<String, String> {
        let mut texts = BTreeMap::<String, String>::new();
        for event in of_type(&self.events, "step_delta") {
            let path = event["path"].as_str().unwrap().to_owned();
            texts.entry(path).or_default().push_str(event["delta"]["content"].as_str().unwrap());
        }
        texts
    }
}

/// `{name: count, …}`, for comparison with [`Ran::calls`].
pub fn counts(expected: &[(&str, usize)]) -> BTreeMap<String, usize> {
    expected.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}
