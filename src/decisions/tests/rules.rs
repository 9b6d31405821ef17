//! Each rule, violated.

use super::*;
use crate::limits::{MAX_CODE_BYTES, MAX_FINDINGS, MAX_PAYLOAD_BYTES};
use crate::policy::SecretScope;
use types::allowed_secrets::SecretHosts;
use types::host_pattern::HostPattern;

fn respond(changes: Value) -> Value {
    let mut payload = map(json!({"action_type": "respond", "response": "x", "intent": "greeting", "confidence": 1.0}));
    payload.extend(map(changes));
    payload.into()
}

pub(super) fn node(kind: &str, config: Value) -> Value {
    json!({"action_type": "create_node", "node_type": kind, "node_name": "n", "config": config})
}

fn http(url: &str) -> Value {
    node("HTTP", json!({"url": url, "method": "GET"}))
}

fn python(code: &str) -> Value {
    node("PYTHON", json!({"code": code}))
}

/// A chain of `count` nodes; the last one may be replaced.
fn chain(count: usize, last: Option<Value>) -> Value {
    let mut nodes: Vec<Value> = (1..=count)
        .map(|at| json!({"node_id": format!("n{at}"), "type": "PYTHON", "name": "n", "config": {"code": "return 1"}}))
        .collect();
    if let (Some(last), Some(node)) = (last, nodes.last_mut()) {
        *node = last;
    }
    let edges: Vec<Value> =
        (1..count).map(|at| json!({"source": format!("n{at}"), "target": format!("n{}", at + 1)})).collect();
    json!({"action_type": "create_workflow_plan", "name": "n", "description": "", "nodes": nodes, "edges": edges})
}

/// A chain of 25 nodes, of which the last is a LOOP with a chain of `inner` nodes.
fn with_loop(inner: usize) -> Value {
    let mut body = chain(inner, None);
    for node in body["nodes"].as_array_mut().unwrap() {
        node["node_id"] = json!(format!("inner_{}", node["node_id"].as_str().unwrap()));
    }
    for edge in body["edges"].as_array_mut().unwrap() {
        for end in ["source", "target"] {
            edge[end] = json!(format!("inner_{}", edge[end].as_str().unwrap()));
        }
    }
    let body = json!({"nodes": body["nodes"], "edges": body["edges"]});
    chain(
        25,
        Some(json!({"node_id": "n25", "type": "LOOP", "name": "l", "config": {"body": body, "max_iterations": 3}})),
    )
}

fn sales_with(change: impl FnOnce(&mut Value)) -> Value {
    let mut plan = Value::Object(sales());
    change(&mut plan);
    plan
}

fn push(list: &mut Value, item: Value) {
    list.as_array_mut().unwrap().push(item);
}

#[test]
fn configs_name_their_first_missing_field() {
    refused(node("HTTP", json!({})), &["`config.url` is missing"]);
    let errors = verdicts(node("HTTP", json!({}))).given.errors;
    assert!(errors.len() == 2 && errors[1].contains("method"), "{errors:?}");
    let payload = json!({"action_type": "create_node", "node_type": "MAGIC", "config": 5});
    let errors = verdicts(payload).given.errors;
    assert!(
        errors.len() == 3
            && errors[0].contains("`node_name`")
            && errors[1].contains("`config`")
            && errors[2].contains("`node_type`"),
        "{errors:?}"
    );
    refused(node("LLM", json!({})), &["`prompt`", "messages"]);
    refused(node("PYTHON", json!({"code": " "})), &["code", "blank"]);
    refused(node("DATABASE", json!({})), &["query"]);
    refused(node("CONDITION", json!({})), &["expression"]);
    refused(node("CONDITION", json!({"expression": "${a} != 1"})), &["`config.expression` cannot be read"]);
    refused(node("LOOP", json!({"max_iterations": 2})), &["body"]);
    refused(node("LLM", json!({"prompt": "x", "temprature": 1})), &["`config.temprature` is not a field of LLM"]);
    refused(node("START", json!({})), &["node_type"]);
    accepted(node("HTTP", json!({"url": "https://a.b", "method": "GET", "timeout": 300})));
}

#[test]
fn replies_are_complete() {
    refused(respond(json!({"response": "  "})), &["response", "blank"]);
    refused(respond(json!({"intent": "chitchat"})), &["intent", "`chitchat`", "`greeting`"]);
    refused(respond(json!({"confidence": "high"})), &["confidence", "a text"]);
    let verdict = verdicts(respond(json!({"confidence": 1.5})));
    assert!(!verdict.given.is_valid && verdict.valid_after_correction);
    assert_eq!(verdict.corrected["confidence"], json!(1.0));
    let verdict = verdicts(respond(json!({"mood": "x"})));
    assert!(verdict.valid_after_correction && !verdict.corrected.contains_key("mood"));
    for payload in
        [respond(json!({"response": " "})), respond(json!({"intent": "x"})), respond(json!({"confidence": "high"}))]
    {
        assert!(!verdicts(payload).valid_after_correction);
    }
}

#[test]
fn the_action_type_is_that_of_the_decision() {
    let payload = json!({"action_type": "continue", "thought": "x"});
    let verdict = verdicts_in(&world(), DecisionType::Respond, payload);
    assert!(verdict.given.errors[0].contains("`action_type` is `continue`") && !verdict.valid_after_correction);
    let payload = json!({"response": "x", "intent": "greeting", "confidence": 1});
    let verdict = verdicts_in(&world(), DecisionType::Respond, payload);
    assert!(!verdict.given.is_valid && verdict.valid_after_correction);
}

#[test]
fn a_payload_has_a_largest_size_and_depth() {
    let empty = crate::validate::bytes(&map(respond(json!({"response": ""}))));
    let of = |bytes: usize| {
        respond(json!({"response": "中".repeat((bytes - empty) / 3) + &"x".repeat((bytes - empty) % 3)}))
    };
    accepted(of(MAX_PAYLOAD_BYTES));
    refused(of(MAX_PAYLOAD_BYTES + 1), &["1048577", "1048576"]);
    let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
    let payload = |levels| node("HTTP", json!({"url": "https://a.b", "method": "POST", "body": nested(levels)}));
    accepted(payload(62));
    refused(payload(63), &["64 levels"]);
}

#[test]
fn plans_have_at_most_50_nodes() {
    accepted(chain(50, None));
    refused(chain(51, None), &["51 nodes", "50"]);
    accepted(with_loop(25));
    refused(with_loop(26), &["51 nodes"]);
    refused(
        json!({"action_type": "create_workflow_plan", "name": "n", "description": "", "nodes": [], "edges": []}),
        &["nodes"],
    );
    let single = |inner| json!({"action_type": "create_node", "node_type": "LOOP", "node_name": "n", "config": {"body": chain(inner, None), "max_iterations": 1}});
    let mut body = single(49);
    body["config"]["body"] =
        json!({"nodes": body["config"]["body"]["nodes"], "edges": body["config"]["body"]["edges"]});
    accepted(body);
}

#[test]
fn edges_form_a_graph_without_cycles() {
    let way = "node_1 → node_2 → node_3 → node_4 → node_1";
    let edge = |source: &str, target: &str| json!({"source": source, "target": target});
    refused(sales_with(|plan| push(&mut plan["edges"], edge("node_4", "node_1"))), &[way]);
    refused(sales_with(|plan| push(&mut plan["edges"], edge("node_1", "node_9"))), &["`node_9`", "edges[3].target"]);
    refused(sales_with(|plan| push(&mut plan["edges"], edge("node_1", "node_1"))), &["itself"]);
    refused(sales_with(|plan| push(&mut plan["edges"], edge("node_1", "node_2"))), &["repeats"]);
    let isolated = json!({"node_id": "node_5", "type": "PYTHON", "name": "n", "config": {"code": "return 1"}});
    refused(sales_with(|plan| push(&mut plan["nodes"], isolated)), &["node_5", "no edge"]);
    let double = json!({"node_id": "node_4", "type": "START", "name": "n"});
    refused(sales_with(|plan| push(&mut plan["nodes"], double)), &["`node_4`", "another node"]);
    accepted(sales_with(|plan| push(&mut plan["nodes"], json!({"node_id": "begin", "type": "START", "name": "n"}))));
    accepted(chain(1, None));
    for id in ["input", "env", "query", "loop", "output"] {
        refused(
            chain(1, Some(json!({"node_id": id, "type": "PYTHON", "name": "n", "config": {"code": "return 1"}}))),
            &["node_id", id],
        );
    }
    refused(
        chain(1, Some(json!({"node_id": "a b", "type": "PYTHON", "name": "n", "config": {"code": "return 1"}}))),
        &["node_id"],
    );
    refused(
        sales_with(|plan| plan["edges"][0]["condition"] = json!("${node_4.output.status} > 1")),
        &["edges[0].condition", "before"],
    );
    accepted(sales_with(|plan| plan["edges"][0]["condition"] = json!("${node_1.output.row_count} > 1")));
    refused(sales_with(|plan| plan["edges"][0]["condition"] = json!("{node_1} > 1")), &["brace"]);
}

#[test]
fn references_name_nodes_that_run_before() {
    let query = |text: &str| sales_with(|plan| plan["nodes"][0]["config"]["query"] = json!(text));
    refused(query("${node_3.output.x}"), &["`nodes[0].config.query`", "node_3", "before"]);
    refused(query("${node_9.output.x}"), &["no node `node_9`"]);
    refused(query("${node_1.output.x}"), &["before"]);
    refused(query("${node_2.data}"), &["`${node_2.output.data}`"]);
    refused(query("${a b}"), &["no reference"]);
    refused(query("${loop.item}"), &["outside of a LOOP"]);
    refused(query("${output.x}"), &["output_mapping"]);
    accepted(query("$${node_3.output.x} ${input.a} ${query} ${SALES_DB_URL}"));
    refused(python("return ${x}"), &["`config.code`", "input_mapping"]);
    refused(
        sales_with(|plan| plan["nodes"][1]["output_mapping"] = json!({"x": "${node_1.output.data}"})),
        &["output_mapping.x"],
    );
    accepted(sales_with(|plan| plan["nodes"][1]["output_mapping"] = json!({"x": "${output.trend}"})));
    refused(sales_with(|plan| plan["nodes"][1]["input_mapping"] = json!({"a-b": 1})), &["a-b", "variable"]);
}

#[test]
fn loops_see_what_is_around_them() {
    let body = |prompt: &str| {
        let inner = json!({"node_id": "inner", "type": "LLM", "name": "n", "config": {"prompt": prompt}});
        let config = json!({"items": "${n1.output.list}", "body": {"nodes": [inner]}});
        chain(2, Some(json!({"node_id": "n2", "type": "LOOP", "name": "l", "config": config})))
    };
    accepted(body("${loop.item} ${loop.iteration} ${n1.output.x}"));
    refused(body("${n2.output.last}"), &["nodes[1].config.body.nodes[0].config.prompt", "before"]);
    refused(
        node(
            "LOOP",
            json!({"body": {"nodes": [{"node_id": "a", "type": "LLM", "name": "n", "config": {"prompt": "x"}}]}}),
        ),
        &["max_iterations"],
    );
    refused(
        node(
            "LOOP",
            json!({"items": "x", "body": {"nodes": [{"node_id": "a", "type": "LLM", "name": "n", "config": {"prompt": "x"}}]}}),
        ),
        &["items", "no list"],
    );
    let mut twice = body("x");
    twice["nodes"][1]["config"]["body"]["nodes"][0]["node_id"] = json!("n1");
    refused(twice, &["`n1`", "another node"]);
}

#[test]
fn clarifications_and_thoughts_are_complete() {
    let ask = |changes: Value| {
        let mut payload = map(json!({"action_type": "request_clarification", "question": "x"}));
        payload.extend(map(changes));
        Value::Object(payload)
    };
    accepted(ask(json!({})));
    refused(ask(json!({"options": []})), &["options", "empty"]);
    refused(ask(json!({"required_fields": ["a b"]})), &["required_fields[0]"]);
    refused(ask(json!({"question": " "})), &["question"]);
    refused(json!({"action_type": "continue", "thought": ""}), &["thought"]);
    let verdict = verdicts(json!({"action_type": "continue", "thought": "x", "progress": 2}));
    assert!(!verdict.given.is_valid && verdict.valid_after_correction && verdict.corrected["progress"] == 1);
}

#[test]
fn nodes_are_modified_within_their_type() {
    let modify = |workflow: Value, updates: Value| json!({"action_type": "modify_node", "workflow_id": workflow, "node_id": "node_2", "updates": updates});
    accepted(modify(Value::Null, json!({"config.temperature": 0.9})));
    refused(
        modify(json!("workflow_123"), json!({"config.temperature": 0.9})),
        &["updates.config.temperature", "PYTHON"],
    );
    refused(modify(Value::Null, json!({})), &["updates", "empty"]);
    refused(modify(Value::Null, json!({"node_id": "x"})), &["updates.node_id", "never"]);
    refused(modify(Value::Null, json!({"config.temperature": "warm"})), &["updates", "temperature", "a text"]);
    refused(modify(Value::Null, json!({"config.prompt": null})), &["prompt", "missing"]);
    refused(modify(json!("nope"), json!({"name": "x"})), &["workflow_id", "nope"]);
    let mut world = world();
    world.workflows.get_mut("with_llm").unwrap().is_owned = false;
    let verdict = verdicts_in(&world, DecisionType::ModifyNode, modify(Value::Null, json!({"name": "x"})));
    assert!(verdict.given.errors[0].contains("belongs to the operator"));
    world.current = None;
    let verdict = verdicts_in(&world, DecisionType::ModifyNode, modify(Value::Null, json!({"name": "x"})));
    assert!(verdict.given.errors[0].contains("no current workflow"));
}

#[test]
fn recoveries_have_what_their_action_needs() {
    let recover = |plan: Value| json!({"action_type": "error_recovery", "workflow_id": "workflow_123", "failed_node_id": "node_2", "failure_reason": "x", "recovery_plan": plan, "execution_context": {}});
    accepted(recover(json!({"action": "SKIP", "alternative_node": "node_1"})));
    accepted(recover(json!({"action": "ABORT"})));
    refused(recover(json!({"action": "RETRY"})), &["recovery_plan.max_attempts", "missing"]);
    refused(recover(json!({"action": "MODIFY"})), &["recovery_plan.modifications", "missing"]);
    refused(recover(json!({"action": "WAIT"})), &["recovery_plan.action", "`WAIT`"]);
    refused(recover(json!({"action": "SKIP", "alternative_node": "nope"})), &["alternative_node", "nope"]);
    refused(recover(json!({"action": "SKIP", "alternative_node": "node_2"})), &["failed node itself"]);
    refused(recover(json!({"action": "SKIP", "alternative_node": "node_3"})), &["after the failed node"]);
    refused(recover(json!({"action": "ABORT", "alternative_node": "node_1"})), &["only for `SKIP`"]);
    refused(recover(json!({"action": "MODIFY", "modifications": {"config.code": ""}})), &["code"]);
    let clamped = verdicts(recover(json!({"action": "RETRY", "max_attempts": 99, "delay": -1})));
    assert!(
        clamped.valid_after_correction
            && clamped.corrected["recovery_plan"] == json!({"action": "RETRY", "max_attempts": 10, "delay": 0})
    );
}

#[test]
fn replans_tell_of_a_failure_and_keep_what_they_preserve() {
    let replan = |context: Value, preserve: Value, changes: Value| json!({"action_type": "replan_workflow", "workflow_id": "workflow_123", "reason": "x", "execution_context": context, "preserve_nodes": preserve, "suggested_changes": changes});
    let failed = json!({"failed_attempts": 1});
    accepted(replan(failed.clone(), Value::Null, Value::Null));
    accepted(replan(json!({"error": "timeout"}), json!(["node_1"]), Value::Null));
    refused(replan(json!({"executed_nodes": ["node_1"]}), Value::Null, Value::Null), &["execution_context"]);
    refused(replan(failed.clone(), json!(["node_9"]), Value::Null), &["preserve_nodes[0]", "node_9"]);
    let removes = json!({"remove_nodes": ["node_1"]});
    refused(replan(failed.clone(), json!(["node_1"]), removes.clone()), &["preserve_nodes[0]", "remove_nodes"]);
    refused(replan(failed.clone(), Value::Null, removes), &["suggested_changes", "node_1"]);
    refused(
        replan(failed.clone(), Value::Null, json!({"remove_edges": [{"source": "node_1", "target": "node_4"}]})),
        &["remove_edges[0]"],
    );
    accepted(replan(
        failed,
        Value::Null,
        json!({"update_edges": [{"source": "node_1", "target": "node_3", "condition": "${node_1.output.row_count} > 5"}]}),
    ));
}

#[test]
fn workflows_run_with_their_inputs() {
    let mut world = world();
    let inputs =
        json!([{"name": "since", "type": "string", "required": true}, {"name": "top", "type": "number", "default": 5}]);
    let mut plan = sales();
    plan["global_config"]["inputs"] = inputs;
    world.add(workflow("with_inputs", WorkflowStatus::Completed, plan));
    world.add(workflow("runs", WorkflowStatus::Running, sales()));
    let errors = |id: &str, params: Value| {
        let payload = json!({"action_type": "execute_workflow", "workflow_id": id, "input_params": params});
        verdicts_in(&world, DecisionType::ExecuteWorkflow, payload).given.errors.join("\n")
    };
    assert_eq!(errors("with_inputs", json!({"since": "2026"})), "");
    assert!(errors("with_inputs", json!({})).starts_with("`input_params.since` is missing"));
    assert!(errors("with_inputs", Value::Null).contains("since"));
    assert!(errors("with_inputs", json!({"since": 5})).contains("a number; give a text"));
    assert!(errors("with_inputs", json!({"since": "x", "y": 1})).contains("`input_params.y` is no input"));
    assert!(errors("runs", json!({})).contains("RUNNING"));
    assert!(errors("nope", json!({})).contains("`nope`, which does not exist"));
    assert!(errors("workflow_123", json!({"anything": 1})).is_empty());
}

#[test]
fn sub_agents_are_registered_and_get_what_they_take() {
    let spawn = |changes: Value| {
        let mut payload = map(
            json!({"action_type": "spawn_subagent", "subagent_type": "researcher", "task_payload": {"query": "x"}}),
        );
        payload.extend(map(changes));
        Value::Object(payload)
    };
    accepted(spawn(json!({"priority": 10.0})));
    let verdict = verdicts(spawn(json!({"priority": 11})));
    assert!(!verdict.given.is_valid && verdict.valid_after_correction && verdict.corrected["priority"] == 10);
    refused(spawn(json!({"timeout": 0})), &["timeout"]);
    assert!(!verdicts(spawn(json!({"timeout": 0}))).valid_after_correction);
    refused(spawn(json!({"timeout": 121})), &["timeout", "120"]);
    refused(spawn(json!({"subagent_type": "wizard"})), &["`wizard`", "`researcher`"]);
    refused(spawn(json!({"task_payload": {}})), &["task_payload", "query"]);
}

#[test]
fn scripts_name_no_system() {
    refused(python("import os\nreturn os.environ"), &["`config.code`", "os.environ", "line 2"]);
    refused(python("subprocess.run(['ls'])"), &["subprocess", "line 1"]);
    refused(python("open(\"/etc/passwd\")"), &["/etc/"]);
    accepted(python("# no subprocess here\nreturn 1"));
    accepted(python(&"x".repeat(MAX_CODE_BYTES)));
    refused(python(&"x".repeat(MAX_CODE_BYTES + 1)), &["65537", "65536"]);
}

#[test]
fn hosts_and_secrets_stay_together() {
    refused(http("https://${host}/x"), &["`config.url`", "before its path"]);
    refused(http("weather"), &["no address"]);
    accepted(http("https://api.weather.com/${city}"));
    let mut world = world();
    let hosts = |names: &[&str]| names.iter().map(|name| HostPattern::parse(name).unwrap()).collect::<Vec<_>>();
    let scope = SecretScope { of_agent: hosts(&["api.weather.com", "b.com"]), of_settings: SecretHosts::Any };
    let bound = SecretHosts::Only(hosts(&["api.weather.com"]));
    world.policy.secrets.insert("KEY".to_owned(), SecretScope { of_settings: bound, ..scope });
    world.policy.allowed_hosts = vec![hosts(&["api.weather.com", "b.com", "evil.example"])];
    let errors = |payload: Value| verdicts_in(&world, DecisionType::CreateNode, payload).given.errors.join("\n");
    let with_key = |url: &str| node("HTTP", json!({"url": url, "method": "GET", "params": {"key": "${KEY}"}}));
    assert_eq!(errors(with_key("https://api.weather.com/v1")), "");
    assert!(errors(with_key("https://evil.example/v1")).contains("the secret `KEY` to `evil.example`"));
    let foreign = errors(with_key("https://b.com/v1"));
    assert!(foreign.contains("the secret `KEY` to `b.com`") && foreign.contains("`secrets.allow`"), "{foreign}");
    assert!(errors(http("https://api.weather.com/${KEY}")).contains("names the secret `KEY`"));
    assert!(errors(node("LLM", json!({"prompt": "${KEY}"}))).contains("names the secret `KEY`"));
    assert!(errors(http("https://other.example/")).contains("`other.example`, which is not allowed"));
}

#[test]
fn the_policy_limits_types_connectors_tokens_and_calls() {
    let mut world = world();
    world.policy = Policy { max_llm_tokens: Some(100), max_http_calls: Some(0), ..Policy::default().restricted() };
    world.policy.connectors = Some(["sales".to_owned()].into());
    let errors = |kind, payload: Value| verdicts_in(&world, kind, payload).given.errors.join("\n");
    let create = |kind: &str, config: Value| errors(DecisionType::CreateNode, node(kind, config));
    assert!(
        create("CONDITION", json!({"expression": "true"})).contains("`node_type` is `CONDITION`, which is not allowed")
    );
    assert!(create("LLM", json!({"prompt": "x", "max_tokens": 101})).contains("limit of 100 tokens"));
    assert!(
        create("DATABASE", json!({"query": "x", "connection": "hr"}))
            .contains("`hr`, which this agent may not use; use `sales`")
    );
    assert!(errors(DecisionType::CreateWorkflowPlan, Value::Object(with_llm())).contains("1 HTTP nodes"));
    world.policy.connectors = Some([].into());
    let verdict = verdicts_in(&world, DecisionType::CreateNode, node("DATABASE", json!({"query": "x"}))).given;
    assert!(verdict.errors.join("").contains("`config.connection` is missing, and this agent may use no connector"));
}

#[test]
fn only_database_nodes_name_their_idempotency_key() {
    let warnings = |kind: &str, config: Value| verdicts(node(kind, config)).given.warnings.join("\n");
    let query = "INSERT INTO t VALUES (${idempotency_key})";
    assert_eq!(warnings("DATABASE", json!({"query": query, "params": ["${idempotency_key}"]})), "");
    assert!(warnings("DATABASE", json!({"query": "SELECT ${idempotency_key.x}"})).contains("which nothing here gives"));
    assert!(warnings("LLM", json!({"prompt": "${idempotency_key}"})).contains("which nothing here gives"));
}

#[test]
fn the_number_of_errors_is_bounded() {
    let nodes: Vec<Value> = (0..10_000).map(|at| json!({"node_id": at, "x": 1})).collect();
    let payload =
        json!({"action_type": "create_workflow_plan", "name": "n", "description": "", "nodes": nodes, "edges": []});
    let verdict = verdicts(payload).given;
    assert_eq!(verdict.errors.len(), MAX_FINDINGS + 1);
    assert!(verdict.errors[MAX_FINDINGS].contains("more errors"));
    assert!(verdict.errors.iter().all(|error| error.len() < 1_000));
}
