//! Recoveries and replans over the functions of [`Ground`] and a scripted coordinator.

use crate::journal::Journal;
use crate::model::{Model, ModelError, ModelReply, ModelRequest};
use crate::workflow::FlowContext;
use crate::workflow::orchestration::ground::Ground;
use crate::workflow::orchestration::run::RunEnd;
use crate::workflow::orchestration::timeline::{TimelineEntry, timeline};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

/// A coordinator's model. It answers by the text of the prompt, and records the prompts.
pub(super) struct Coordinator {
    answer: Box<dyn Fn(&str) -> Value + Send + Sync>,
    prompts: Arc<Mutex<Vec<String>>>,
}

#[async_trait]
impl Model for Coordinator {
    async fn complete(&self, request: ModelRequest) -> Result<ModelReply, ModelError> {
        let prompt: Vec<&str> = request.messages.iter().map(|message| &*message.content).collect();
        let prompt = prompt.join("\n");
        let answer = (self.answer)(&prompt);
        self.prompts.lock().unwrap().push(prompt);
        if let Some(tokens) = answer["spent"].as_str() {
            return Err(ModelError::Refused { model: "m".into(), problem: tokens.to_owned() });
        }
        Ok(ModelReply::text(answer.to_string(), "scripted"))
    }
}

type Prompts = Arc<Mutex<Vec<String>>>;

/// A ground with a coordinator `planner` that answers like this.
pub(super) fn ground(files: &[&str], answer: impl Fn(&str) -> Value + Send + Sync + 'static) -> (Ground, Prompts) {
    let mut ground = Ground::new(files).with_agent(json!({"id": "planner", "sop": "修好它", "mode": "coordinator"}));
    let prompts = Prompts::default();
    let model = Coordinator { answer: Box::new(answer), prompts: Arc::clone(&prompts) };
    ground.models = ground.models.with("default", Arc::new(model));
    (ground, prompts)
}

pub(super) fn decides(kind: &str, mut payload: Value) -> Value {
    payload["action_type"] = json!(kind);
    payload["workflow_id"] = json!("g");
    payload["execution_context"] = json!({"failure_reason": "x"});
    json!({"decisions": [{"decision_type": kind, "confidence": 0.9, "payload": payload}]})
}

#[allow(clippy::needless_pass_by_value, reason = "as a test writes it")]
pub(super) fn recovers(node: &str, plan: Value) -> Value {
    decides("error_recovery", json!({"failed_node_id": node, "failure_reason": "because", "recovery_plan": plan}))
}

#[allow(clippy::needless_pass_by_value, reason = "as a test writes it")]
pub(super) fn replans(changes: Value) -> Value {
    decides("replan_workflow", json!({"reason": "anders", "suggested_changes": changes}))
}

/// a, then b, which fails, then c, which uses b; d runs in parallel.
const CHAIN: &str = "
type: graph
id: g
name: 链
coordinator: planner
global_config: {output: {c: '${c.output.text}', d: '${d.output.text}'}}
nodes:
  - {node_id: a, type: RUNNABLE, name: A, config: {runnable: echo, input: one}}
  - {node_id: b, type: RUNNABLE, name: B, config: {runnable: echo, input: fail}}
  - {node_id: c, type: RUNNABLE, name: C, config: {runnable: echo, input: 'c ${b.output.text}${a.output.text}'}}
  - {node_id: d, type: RUNNABLE, name: D, config: {runnable: echo, input: other}}
edges: [{source: a, target: b}, {source: b, target: c}, {source: a, target: c}, {source: a, target: d}]
";

/// Changes that replace b by x, which asks the model.
fn in_place_of_b() -> Value {
    json!({"remove_nodes": ["b"], "add_nodes": [{"node_id": "x", "type": "LLM", "name": "X", "config": {"prompt": "说"}}],
        "update_edges": [{"source": "a", "target": "x"}, {"source": "x", "target": "c"}]})
}

async fn end(ground: &Ground) -> RunEnd {
    ground.run("g", "q").await.unwrap()
}

async fn output(ground: &Ground) -> Value {
    serde_json::from_str(&end(ground).await.outcome.unwrap()).unwrap()
}

/// The decision events, one line each.
fn told(ground: &Ground) -> Vec<String> {
    let line = |event: &Value| {
        format!("{} {}", event["type"].as_str().unwrap(), event["decision_type"].as_str().unwrap_or("-"))
    };
    ground.decisions().iter().map(|decision| format!("{} {}", decision.event_id, line(&decision.event))).collect()
}

/// Checks that a repeat of the run calls and asks nothing, and has the same end and the same events.
async fn repeats(ground: &Ground, prompts: &Prompts) {
    let (before, asked) = (ground.run("g", "q").await.unwrap(), prompts.lock().unwrap().len());
    ground.calls();
    let told_before: Vec<String> = told(ground);
    let again = ground.run("g", "q").await.unwrap();
    assert_eq!(format!("{:?}", again.outcome), format!("{:?}", before.outcome));
    assert_eq!((ground.calls(), prompts.lock().unwrap().len()), (vec![], asked));
    let told_again = told(ground);
    assert!(told_before.ends_with(&told_again), "{told_before:?} {told_again:?}");
}

#[tokio::test]
async fn a_changed_node_is_tried_again_and_its_siblings_are_not() {
    let (ground, prompts) = ground(&[CHAIN], |_| {
        recovers(
            "b",
            json!({"action": "RETRY", "max_attempts": 2, "delay": 0.01, "modifications": {"config.input": "fixed"}}),
        )
    });
    assert_eq!(output(&ground).await, json!({"c": "<c <fixed><one>>", "d": "<other>"}));
    let mut calls = ground.calls();
    calls.sort();
    assert_eq!(calls, ["c <fixed><one>", "fail", "fixed", "one", "other"]);
    let prompt = prompts.lock().unwrap()[0].clone();
    assert!(prompt.contains("it was told to fail") && prompt.contains("修好它"), "{prompt}");
    let expected = [
        "r1/b/decision/0 node_execution_failed -",
        "r1/b/decision/1 decision_made error_recovery",
        "r1/b/decision/2 decision_validated error_recovery",
    ];
    assert_eq!(told(&ground), expected);
    repeats(&ground, &prompts).await;
}

#[tokio::test]
async fn a_skipped_node_has_no_output_or_that_of_its_alternative() {
    let (skipping, prompts) = ground(&[CHAIN], |_| recovers("b", json!({"action": "SKIP"})));
    assert_eq!(output(&skipping).await["c"], "<c <one>>");
    repeats(&skipping, &prompts).await;

    let (had_run, prompts) = ground(&[CHAIN], |_| recovers("b", json!({"action": "SKIP", "alternative_node": "a"})));
    assert_eq!(output(&had_run).await["c"], "<c <one><one>>");
    assert_eq!(had_run.calls().iter().filter(|call| *call == "one").count(), 1, "a had run");
    repeats(&had_run, &prompts).await;

    let other = "
type: graph
id: g
name: 备
coordinator: planner
global_config: {output: '${c.output.text}'}
nodes:
  - {node_id: b, type: RUNNABLE, name: B, input_mapping: {what: mine}, config: {runnable: echo, input: fail}}
  - {node_id: never, type: CONDITION, name: 否, config: {expression: 'false'}}
  - {node_id: spare, type: RUNNABLE, name: S, input_mapping: {what: own}, config: {runnable: echo, input: 'spare ${what}'}}
  - {node_id: c, type: RUNNABLE, name: C, config: {runnable: echo, input: 'c ${b.output.text}'}}
edges: [{source: never, target: spare, condition: true}, {source: spare, target: c}, {source: b, target: c}]
";
    let (runs, prompts) = ground(&[other], |_| recovers("b", json!({"action": "SKIP", "alternative_node": "spare"})));
    assert_eq!(runs.output("g", "q").await, "<c <spare mine>>", "with the inputs of the failed node");
    repeats(&runs, &prompts).await;
}

#[tokio::test]
async fn an_aborted_run_names_the_node_and_the_reason() {
    let (ground, prompts) = ground(&[CHAIN], |_| recovers("b", json!({"action": "ABORT"})));
    let failure = end(&ground).await.outcome.unwrap_err();
    assert_eq!(failure.path, "b");
    assert!(failure.cause.starts_with("SUBAGENT: ") && failure.cause.ends_with("aborts the run: because"), "{failure}");
    repeats(&ground, &prompts).await;
}

#[tokio::test]
async fn the_plan_of_the_file_comes_before_the_coordinator() {
    let fixed = CHAIN.replace("input: fail}}", "input: fail}, recovery: {action: RETRY, max_attempts: 2, delay: 0}}");
    let (ground, prompts) = ground(&[&fixed], |_| recovers("b", json!({"action": "SKIP"})));
    assert_eq!(output(&ground).await["c"], "<c <one>>");
    assert_eq!(ground.calls().iter().filter(|call| *call == "fail").count(), 3);
    let expected = [
        "r1/b/decision/0 node_execution_failed -",
        "r1/b/decision/3 node_execution_failed -",
        "r1/b/decision/4 decision_made error_recovery",
        "r1/b/decision/5 decision_validated error_recovery",
    ];
    assert_eq!(told(&ground), expected);
    repeats(&ground, &prompts).await;

    let without = CHAIN.replace("coordinator: planner", "recovery: {action: SKIP}");
    let ground = Ground::new(&[&without]);
    assert_eq!(output(&ground).await["c"], "<c <one>>", "the plan of the whole graph needs no coordinator");
}

#[tokio::test]
async fn an_invalid_recovery_leads_to_a_replan_that_keeps_what_is_unchanged() {
    let (ground, prompts) = ground(&[CHAIN], |prompt| match prompt {
        prompt if prompt.contains("cannot go on") => replans(in_place_of_b()),
        prompt if prompt.contains("After this decision") => recovers("b", json!({"action": "RETRY"})),
        _ => json!("said"),
    });
    let end = end(&ground).await;
    let output: Value = serde_json::from_str(&end.outcome.unwrap()).unwrap();
    assert_eq!(output["c"], "<c \"said\"<one>>");
    let mut calls = ground.calls();
    calls.sort();
    assert_eq!(calls, ["c \"said\"<one>", "fail", "one", "other"], "a and d keep their results");
    let prompts_so_far = prompts.lock().unwrap().clone();
    assert_eq!(prompts_so_far.len(), 3, "recovery, replan, and the new node");
    assert!(prompts_so_far[1].contains("`recovery_plan.max_attempts` is missing"), "{}", prompts_so_far[1]);
    let revised = end.revised.unwrap();
    assert_eq!((revised.number, revised.plan["nodes"].as_array().unwrap().len()), (1, 4));
    let expected = [
        "r1/b/decision/0 node_execution_failed -",
        "r1/b/decision/1 decision_made error_recovery",
        "r1/b/decision/2 decision_rejected error_recovery",
        "r1/replan[1]/decision/1 decision_made replan_workflow",
        "r1/replan[1]/decision/2 decision_validated replan_workflow",
    ];
    assert_eq!(told(&ground), expected);
    let keys: Vec<String> = ground.store.steps("r1", "t1").await.unwrap().into_iter().map(|step| step.key).collect();
    assert!(keys.contains(&"x@1/0/model".to_owned()) && keys.contains(&"replan[1]/decide".to_owned()), "{keys:?}");
    repeats(&ground, &prompts).await;
}

#[tokio::test]
async fn a_node_whose_input_changes_runs_again() {
    let changes = json!({"remove_nodes": ["a"], "add_nodes": [{"node_id": "n", "type": "LLM", "name": "N", "config": {"prompt": "说"}}],
        "update_edges": [{"source": "n", "target": "b"}, {"source": "n", "target": "c"}, {"source": "n", "target": "d"}]});
    let graph = CHAIN
        .replace("input: other", "input: 'other ${a.output.text}'")
        .replace("input: fail}}", "input: '${query}'}}");
    let (mut ground, prompts) = ground(&[&graph], move |prompt| match prompt {
        prompt if prompt.contains("After this decision") => replans(changes.clone()),
        _ => json!("new"),
    });
    // The node b fails once.
    let failed = Arc::new(Mutex::new(false));
    ground.flows = ground.flows.with("echo", move |context: FlowContext| {
        let (input, failed) = (context.input.clone(), Arc::clone(&failed));
        async move {
            let said = context.step("say", &input, async |_| {
                let fails = input == "q" && !std::mem::replace(&mut *failed.lock().unwrap(), true);
                if fails { Err("once".to_owned()) } else { Ok(format!("<{input}>")) }
            });
            said.await
        }
    });
    assert_eq!(output(&ground).await, json!({"c": "<c <q>\"new\">", "d": "<other \"new\">"}));
    let keys: Vec<String> = ground.store.steps("r1", "t1").await.unwrap().into_iter().map(|step| step.key).collect();
    for key in ["d/say", "d@1/say", "b@1/say", "n@1/0/model"] {
        assert!(keys.contains(&key.to_owned()), "{key}: {keys:?}");
    }
    assert_eq!(
        prompts.lock().unwrap().len(),
        2,
        "the replan is decided in place of the recovery, and `n` asks its model"
    );
    repeats(&ground, &prompts).await;
}

#[tokio::test]
async fn recoveries_and_replans_are_bounded() {
    let (endless, prompts) = ground(&[CHAIN], |_| recovers("b", json!({"action": "RETRY", "max_attempts": 1})));
    let failure = end(&endless).await.outcome.unwrap_err();
    assert!(failure.cause.starts_with("recovery_exhausted: the node has had 3 recoveries"), "{failure}");
    assert_eq!((failure.path.as_str(), failure.attempts, prompts.lock().unwrap().len()), ("b", 4, 3));
    repeats(&endless, &prompts).await;

    let (replanning, prompts) = ground(&[CHAIN], |_| replans(json!({})));
    let failure = end(&replanning).await.outcome.unwrap_err();
    assert!(failure.cause.starts_with("recovery_exhausted: the run has had 3 replans"), "{failure}");
    repeats(&replanning, &prompts).await;

    let nodes: Vec<String> = (0..12)
        .map(|n| format!("  - {{node_id: n{n}, type: RUNNABLE, name: 节, config: {{runnable: echo, input: fail}}}}"))
        .collect();
    let edges: Vec<String> = (0..11).map(|n| format!("{{source: n{n}, target: n{}}}", n + 1)).collect();
    let many = format!(
        "type: graph\nid: g\nname: 多\nrecovery: {{action: SKIP}}\nnodes:\n{}\nedges: [{}]\n",
        nodes.join("\n"),
        edges.join(", ")
    );
    let ground = Ground::new(&[&many]);
    let failure = end(&ground).await.outcome.unwrap_err();
    assert!(failure.cause.starts_with("recovery_exhausted: the run has had 10 recoveries"), "{failure}");
    assert_eq!(failure.path, "n10");
    repeats(&ground, &Prompts::default()).await;
}

#[tokio::test]
async fn answers_that_cannot_be_read_are_corrected_and_other_decisions_are_refused() {
    let (ground, prompts) = ground(&[CHAIN], |prompt| match prompt {
        prompt if prompt.contains("does not mend a run") => recovers("b", json!({"action": "SKIP"})),
        _ => decides("respond", json!({"response": "x", "intent": "greeting", "confidence": 1})),
    });
    assert_eq!(output(&ground).await["c"], "<c <one>>");
    assert_eq!(prompts.lock().unwrap().len(), 2);
    repeats(&ground, &prompts).await;
}

#[tokio::test]
async fn a_coordinator_that_cannot_be_asked_ends_the_run_with_the_failure_of_the_node() {
    let (ground, prompts) = ground(&[CHAIN], |_| json!({"spent": "no credit"}));
    let failure = end(&ground).await.outcome.unwrap_err();
    assert!(failure.cause.starts_with("SUBAGENT: ") && failure.cause.contains("MODEL_UNAVAILABLE"), "{failure}");
    repeats(&ground, &prompts).await;
}

/// A LOOP whose second iteration fails.
const LOOP: &str = "
type: graph
id: g
name: 环
coordinator: planner
global_config: {inputs: [{name: list, type: array, default: [k, fail, m]}], output: '${each.output.outputs}'}
nodes:
  - node_id: each
    type: LOOP
    name: 每个
    config:
      items: '${input.list}'
      body: {nodes: [{node_id: one, type: RUNNABLE, name: 一, config: {runnable: echo, input: '${loop.item}'}}]}
";

#[tokio::test]
async fn a_node_of_a_loop_recovers_in_its_iteration_and_a_replan_repeats_the_loop() {
    let (recovering, prompts) = ground(&[LOOP], |_| {
        recovers("one", json!({"action": "MODIFY", "modifications": {"config.input": "fixed ${loop.iteration}"}}))
    });
    let ended = output(&recovering).await;
    let texts: Vec<&Value> = ended.as_array().unwrap().iter().map(|one| &one["text"]).collect();
    assert_eq!(texts, ["<k>", "<fixed 2>", "<m>"], "the other iterations are unchanged");
    repeats(&recovering, &prompts).await;

    let body =
        json!({"nodes": [{"node_id": "one", "type": "LLM", "name": "一", "config": {"prompt": "${loop.item}"}}]});
    let changes = json!({"remove_nodes": ["each"], "add_nodes": [{"node_id": "each", "type": "LOOP", "name": "每个",
        "config": {"items": "${input.list}", "body": body}}]});
    let (replanning, prompts) = ground(&[LOOP], move |prompt| match prompt {
        prompt if prompt.contains("After this decision") => replans(changes.clone()),
        _ => json!("said"),
    });
    assert_eq!(output(&replanning).await.as_array().unwrap().len(), 3);
    assert_eq!(replanning.calls(), ["k", "fail"], "the first iterations of the revised loop run again");
    repeats(&replanning, &prompts).await;
}

#[tokio::test]
async fn a_timeline_shows_recoveries_replans_and_skipped_nodes() {
    let graph =
        CHAIN.replace("{source: a, target: d}", "{source: a, target: d, condition: \"${a.output.text} == 'no'\"}");
    let (ground, _) = ground(&[&graph], |prompt| match prompt {
        prompt if prompt.contains("cannot go on") => replans(in_place_of_b()),
        prompt if !prompt.contains("After this decision") => json!("said"),
        _ => recovers("b", json!({"action": "RETRY"})),
    });
    end(&ground).await;
    let steps = ground.store.steps("r1", "t1").await.unwrap();
    let journal = Journal::read_only(Arc::clone(&ground.store), "r1", "t1", steps);
    let (query, params) = ("q".to_owned(), serde_json::Map::new());
    let (shown, _) =
        timeline(ground.resolved("g").await, journal, Ground::services(), query.clone(), query, params).await;
    let line = |entry: &TimelineEntry| format!("{} {} {:?}", entry.path, entry.runnable, entry.status);
    let lines: Vec<String> = shown.iter().map(line).collect();
    let expected = [
        "a echo Completed",
        "d echo Skipped",
        "b echo Failed",
        "b/recover[1] planner Failed",
        "replan[1] planner Completed",
        "d echo Skipped",
        "x LLM Completed",
        "c echo Completed",
    ];
    assert_eq!(lines, expected);
    assert!(shown[3].error.as_ref().is_some_and(|error| error.contains("`recovery_plan.max_attempts`")));
    assert_eq!((shown[2].model_calls, shown[3].model_calls), (0, 1), "the question belongs to the recovery");
}
