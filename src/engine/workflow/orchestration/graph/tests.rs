//! Graphs over the functions of [`Ground`].

use crate::workflow::orchestration::RunError;
use crate::workflow::orchestration::ground::Ground;
use crate::workflow::orchestration::pauses::Pauses;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use types::timestamp::Timestamp;

/// a; then b and c, which is slow; d after both; e after b.
const DIAMOND: &str = "
type: graph
id: g
name: 图
global_config: {output: {d: '${d.output.text}', e: '${e.output.text}', q: '${query}'}}
nodes:
  - {node_id: a, type: RUNNABLE, name: A, config: {runnable: echo, input: '${query}'}}
  - {node_id: b, type: RUNNABLE, name: B, config: {runnable: echo, input: 'b${a.output.text}'}}
  - {node_id: c, type: RUNNABLE, name: C, config: {runnable: slow, input: 'c${a.output.text}'}}
  - {node_id: d, type: RUNNABLE, name: D, config: {runnable: echo, input: '${b.output.text}${c.output.text}'}}
  - {node_id: e, type: RUNNABLE, name: E, config: {runnable: echo, input: '${b.output.text}'}}
edges: [{source: a, target: b}, {source: a, target: c}, {source: b, target: d}, {source: c, target: d}, {source: b, target: e}]
";

async fn output(ground: &Ground, input: &str) -> Value {
    serde_json::from_str(&ground.output("g", input).await).unwrap()
}

#[tokio::test]
async fn a_ready_node_waits_for_no_slower_sibling() {
    let ground = Ground::new(&[DIAMOND]);
    let expected = json!({"d": "<<b<q>>c<q>>", "e": "<<b<q>>>", "q": "q"});
    assert_eq!(output(&ground, "q").await, expected);
    let told = ground.told();
    let place = |event: &str| told.iter().position(|told| told == event).unwrap_or_else(|| panic!("{event}: {told:?}"));
    assert!(place("0 stage_completed e - -") < place("0 stage_completed c - -"));
    assert!(place("0 stage_completed c - -") < place("0 stage_started d - -"));
    ground.calls();
    assert_eq!(output(&ground, "q").await, expected, "a repeated run");
    assert_eq!(ground.calls(), Vec::<String>::new());
}

#[tokio::test]
async fn a_condition_chooses_a_branch_and_what_is_behind_the_other_is_skipped() {
    let ground = Ground::new(&["
type: graph
id: g
name: 条件
nodes:
  - {node_id: if, type: CONDITION, name: 有吗, config: {expression: \"${query} contains '是'\"}}
  - {node_id: 是, type: RUNNABLE, name: 有, config: {runnable: echo, input: found}}
  - {node_id: none, type: RUNNABLE, name: 无, config: {runnable: echo, input: nothing}}
  - {node_id: after, type: RUNNABLE, name: 后, config: {runnable: echo, input: '${none.output.text}'}}
  - {node_id: end, type: END, name: 止}
edges:
  - {source: if, target: 是, condition: true}
  - {source: if, target: none, condition: 'false'}
  - {source: none, target: after}
  - {source: after, target: end}
  - {source: 是, target: end}
"]);
    assert_eq!(ground.output("g", "是的").await, "<found>");
    assert_eq!(ground.calls(), ["found"]);
    let told = ground.told();
    assert!(told.iter().all(|event| !event.contains(" none ") && !event.contains(" after ")), "{told:?}");
}

#[tokio::test]
async fn an_edge_is_taken_if_its_condition_holds() {
    let ground = Ground::new(&["
type: graph
id: g
name: 边
global_config: {inputs: [{name: count, type: number, default: 3}]}
nodes:
  - {node_id: start, type: START, name: 始}
  - {node_id: big, type: RUNNABLE, name: B, config: {runnable: echo, input: 'big ${count}'}}
  - {node_id: small, type: RUNNABLE, name: S, config: {runnable: echo, input: 'small ${start.output.count}'}}
edges:
  - {source: start, target: big, condition: '${input.count} > 5'}
  - {source: start, target: small, condition: 'not ${input.count} > 5'}
"]);
    assert_eq!(ground.output("g", "").await, "<small 3>");
}

#[tokio::test]
async fn inputs_are_read_from_a_json_text_and_checked() {
    let graph = "
type: graph
id: g
name: 入
global_config: {inputs: [{name: count, type: number, required: true}]}
nodes: [{node_id: a, type: RUNNABLE, name: A, config: {runnable: echo, input: '${count}'}}]
";
    assert_eq!(Ground::new(&[graph]).output("g", "{\"count\": 7.5}").await, "<7.5>");
    let end = Ground::new(&[graph]).run("g", "{\"count\": \"7\"}").await.unwrap();
    let failure = end.outcome.unwrap_err();
    assert_eq!(failure.cause, "`input.count` is a text; give a number");
    let end = Ground::new(&[graph]).run("g", "hello").await.unwrap();
    assert!(end.outcome.unwrap_err().cause.contains("`input.count` is missing"), "a plain text has no inputs");
}

/// A LOOP over items, and one with a condition.
fn repeats(config: &str) -> String {
    format!(
        "
type: graph
id: g
name: 环
global_config: {{inputs: [{{name: list, type: array, default: [k, l, m]}}], output: '${{each.output}}'}}
nodes:
  - node_id: each
    type: LOOP
    name: 每个
    config:
      {config}
      body:
        nodes:
          - {{node_id: one, type: RUNNABLE, name: 一, config: {{runnable: echo, input: '${{loop.item}}${{loop.iteration}}${{loop.last.two.text}}'}}}}
          - {{node_id: two, type: RUNNABLE, name: 二, config: {{runnable: echo, input: '${{one.output.text}}'}}}}
        edges: [{{source: one, target: two}}]
"
    )
}

#[tokio::test]
async fn a_loop_runs_its_body_once_for_each_item_or_while_a_condition_holds() {
    let ground = Ground::new(&[&repeats("items: '${input.list}'")]);
    let ended = output(&ground, "").await;
    assert_eq!((&ended["iterations"], &ended["outputs"][0]), (&json!(3), &json!({"text": "<<k1>>"})));
    assert_eq!(ended["outputs"][1]["text"], "<<l2<<k1>>>>", "the iteration before is seen");
    assert_eq!(ended["last"], ended["outputs"][2]);
    ground.calls();
    assert_eq!(output(&ground, "").await, ended, "a repeated run");
    assert_eq!(ground.calls(), Vec::<String>::new());

    let together = output(&Ground::new(&[&repeats("items: '${input.list}'\n      max_concurrency: 3")]), "").await;
    let texts: Vec<&Value> = together["outputs"].as_array().unwrap().iter().map(|one| &one["text"]).collect();
    assert_eq!(texts, ["<<k1>>", "<<l2>>", "<<m3>>"], "in the order of the items");

    let until = repeats("condition: \"not ${two.output.text} contains '3'\"\n      max_iterations: 5");
    assert_eq!(output(&Ground::new(&[&until]), "").await["iterations"], 3);
    let bounded = output(&Ground::new(&[&repeats("max_iterations: 2")]), "").await;
    assert_eq!(bounded["iterations"], 2);
}

#[tokio::test]
async fn a_failure_names_its_node_its_code_and_its_attempts() {
    let ground = Ground::new(&["
type: graph
id: g
name: 败
nodes:
  - {node_id: a, type: RUNNABLE, name: A, config: {runnable: echo, input: fail}, retry_config: {max_retries: 2, retry_delay: 0}}
"]);
    let failure = ground.run("g", "").await.unwrap().outcome.unwrap_err();
    assert_eq!((failure.path.as_str(), failure.attempts), ("a", 3));
    assert!(failure.cause.starts_with("SUBAGENT: ") && failure.cause.contains("it was told to fail"), "{failure:?}");
    assert_eq!(ground.calls(), ["fail", "fail", "fail"]);
    assert!(ground.run("g", "").await.unwrap().outcome.is_err());
    assert_eq!(ground.calls(), Vec::<String>::new(), "a repeated run knows the failures");
}

#[tokio::test]
async fn a_reference_that_leads_nowhere_fails_its_node() {
    let ground = Ground::new(&["
type: graph
id: g
name: 败
nodes:
  - {node_id: a, type: RUNNABLE, name: A, config: {runnable: echo, input: x}}
  - {node_id: b, type: RUNNABLE, name: B, config: {runnable: echo, input: '${a.output.nothing}'}}
edges: [{source: a, target: b}]
"]);
    let failure = ground.run("g", "").await.unwrap().outcome.unwrap_err();
    assert_eq!(failure.path, "b");
    assert!(failure.cause.starts_with("UNRESOLVED_REFERENCE: `${a.output.nothing}` leads nowhere"), "{failure:?}");
}

#[tokio::test]
async fn an_llm_node_asks_the_default_model_and_a_wait_ends() {
    let ground = Ground::new(&["
type: graph
id: g
name: 问
nodes:
  - {node_id: wait, type: WAIT, name: 等, config: {seconds: 0.01}}
  - {node_id: ask, type: LLM, name: 问, input_mapping: {what: '${query}'}, config: {prompt: '说说${what}'}}
edges: [{source: wait, target: ask}]
"]);
    let said = ground.output("g", "天气").await;
    assert!(said.contains("说说天气"), "{said}");
}

#[tokio::test]
async fn a_run_in_its_own_lane_ends_its_turn_when_it_only_waits() {
    let ground = Ground::new(&["
type: graph
id: g
name: 等
max_concurrency: 1
nodes:
  - {node_id: start, type: START, name: 始}
  - {node_id: wait, type: WAIT, name: 等, config: {seconds: 600}}
  - {node_id: longer, type: WAIT, name: 久, config: {seconds: 700}}
  - {node_id: slow, type: RUNNABLE, name: 慢, config: {runnable: slow, input: x}}
  - {node_id: echo, type: RUNNABLE, name: 后, config: {runnable: echo, input: '${slow.output.text}'}}
edges:
  - {source: start, target: wait}
  - {source: start, target: longer}
  - {source: start, target: slow}
  - {source: slow, target: echo}
"]);
    let pauses = Arc::new(Pauses::in_lane(Timestamp::from_millis(i64::MAX)));
    let begun = base::clock::now();
    let ended = ground.run_in_lane("g", &pauses).await;
    assert!(matches!(ended, Err(RunError::Waits(_))), "{ended:?}");
    assert_eq!(ground.calls(), ["x"], "all that can run has run, although a flow waits outside of a step");
    let left = begun.until(pauses.due().unwrap());
    assert!(left >= Duration::from_secs(600) && left < Duration::from_secs(660), "the first wait: {left:?}");
}
