//! Plans: a coordinator creates, runs and changes them within a turn.

use super::*;
use decisions::world::WorkflowStatus;

on_both_backends!(
    s23_a_single_node_is_judged_before_it_calls_and_its_result_is_seen,
    s23_a_node_without_its_url_goes_back_with_the_error,
    s24_a_plan_is_stored_then_run_and_its_output_is_seen,
    s24_a_plan_that_cannot_be_is_rejected,
    s24_a_changed_node_counts_for_later_runs,
    a_failed_run_tells_its_node_and_a_replan_makes_the_plan_ready,
    s25_a_replan_within_a_run_becomes_the_stored_version,
    s25_the_decisions_of_a_run_within_a_turn_name_the_turn,
    a_spent_budget_of_the_turn_is_not_skipped_by_a_recovery,
    a_registered_workflow_runs_only_if_the_agent_lists_it,
    a_plan_belongs_to_its_session,
    a_run_that_takes_too_long_is_told_to_the_model,
    recorded_decisions_about_plans_are_judged_again_with_their_versions,
);

pub fn http(path: &str, body: &Value) -> Value {
    json!({"url": format!("{{api}}{path}"), "method": "POST", "body": body})
}

pub fn node(id: &str, kind: &str, config: &Value) -> Value {
    json!({"node_id": id, "type": kind, "name": format!("步骤 {id}"), "config": config})
}

pub fn plan(nodes: &[Value], edges: &[(&str, &str)]) -> Value {
    let edges: Vec<Value> = edges.iter().map(|(source, target)| json!({"source": source, "target": target})).collect();
    decision(
        "create_workflow_plan",
        json!({"name": "销售报告", "description": "取数并发送", "nodes": nodes, "edges": edges}),
    )
}

/// A plan of two nodes, and a decision that changes the temperature of the second one from 0.2 to 0.9.
pub fn a_plan_and_its_change() -> (Value, Value) {
    let llm = json!({"prompt": "写小结", "temperature": 0.2});
    let two = plan(
        &[node("node_1", "HTTP", &http("/sales", &json!({}))), node("node_2", "LLM", &llm)],
        &[("node_1", "node_2")],
    );
    (two, decision("modify_node", json!({"node_id": "node_2", "updates": {"config.temperature": 0.9}})))
}

/// Two calls, of which the second has the result of the first.
pub fn report() -> Value {
    let send = http("/send", &json!({"rows": "${node_1.output.data.rows}"}));
    plan(&[node("node_1", "HTTP", &http("/sales", &json!({}))), node("node_2", "HTTP", &send)], &[("node_1", "node_2")])
}

#[allow(clippy::needless_pass_by_value, reason = "as a test writes it")]
pub fn execute(fields: Value) -> Value {
    let mut payload = json!({"workflow_id": "{id}"});
    payload.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    decision("execute_workflow", payload)
}

/// The statuses of all plans of a session.
pub async fn statuses_of(engine: &Engine, session_id: &str) -> Vec<WorkflowStatus> {
    plans_of(engine, session_id).await.iter().map(|plan| plan.state.status).collect()
}

fn results(prompt: &str) -> &str {
    let begin = prompt.find("<results>").expect("the prompt has results");
    &prompt[begin..begin + prompt[begin..].find("</results>").unwrap()]
}

async fn s23_a_single_node_is_judged_before_it_calls_and_its_result_is_seen(backend: Backend) {
    let weather = decision(
        "create_node",
        json!({"node_type": "HTTP", "node_name": "获取北京天气", "config": http("/weather", &json!({"city": "北京"}))}),
    );
    let engine = engine_with_ids(backend, vec![answer(&[weather]), answer(&[respond("晴")])]).await;
    engine.api.script(|_, _| (200, json!({"sky": "晴"})));
    let turn = engine.say("s1", "m-1", "帮我调用天气API获取北京的天气").await;
    assert_eq!(turn.outcome, Outcome::Answered);
    let calls = engine.api.calls("/weather");
    assert_eq!((calls.len(), &calls[0].body), (1, &json!({"city": "北京"})));
    let expected = [
        "decision_made create_node",
        "decision_validated create_node",
        "decision_made respond",
        "decision_validated respond",
    ];
    assert_eq!(told(&engine, "s1").await, expected);
    let validated = decisions(&engine, "s1").await.remove(1);
    let at: types::timestamp::Timestamp = serde_json::from_value(validated["at"].clone()).unwrap();
    assert!(at <= calls[0].at, "the verdict is known before the call");
    let second = &prompts(&engine)[1];
    assert!(
        results(second).contains(r#""data":{"sky":"晴"}"#) && results(second).contains(r#""status":"completed""#),
        "{second}"
    );
    let plan = plans_of(&engine, "s1").await.remove(0);
    assert_eq!((plan.name(), plan.state.status), ("获取北京天气", WorkflowStatus::Completed));
    assert_eq!(engine.session("s1").await.current_workflow.as_deref(), Some(plan.workflow.id()));
    let run = engine.store.run(plan.state.status_run.as_deref().unwrap()).await.unwrap().unwrap();
    assert_eq!((run.status, run.hash), (RunStatus::Completed, plan.workflow.hash.clone()));
    assert_eq!(turn.actions, [plan.workflow.id()]);
}

async fn s23_a_node_without_its_url_goes_back_with_the_error(backend: Backend) {
    let create = |config: Value| {
        answer(&[decision("create_node", json!({"node_type": "HTTP", "node_name": "天气", "config": config}))])
    };
    let engine = engine_with_ids(
        backend,
        vec![create(json!({})), create(http("/weather", &json!({}))), answer(&[respond("晴")])],
    )
    .await;
    engine.say("s1", "m-1", "北京的天气").await;
    let rejected = decisions(&engine, "s1").await.remove(1);
    assert_eq!((&rejected["type"], &rejected["attempt"]), (&json!("decision_rejected"), &json!(1)));
    let error = rejected["errors"][0].as_str().unwrap();
    assert!(error.contains("url") && prompts(&engine)[1].contains(error), "{error}");
    assert_eq!(engine.api.calls("/weather").len(), 1);
    assert_eq!(plans_of(&engine, "s1").await.len(), 1, "nothing is stored for a rejected decision");
}

async fn s24_a_plan_is_stored_then_run_and_its_output_is_seen(backend: Backend) {
    let answers = vec![answer(&[report()]), answer(&[execute(json!({}))]), answer(&[respond("发了")])];
    let engine = engine_with_ids(backend, answers).await;
    engine.api.script(|path, _| (200, if path == "/sales" { json!({"rows": [1, 2]}) } else { json!({"sent": true}) }));
    let turn = engine.say("s1", "m-1", "分析最近三个月的销售数据，然后发送给我").await;
    assert_eq!(turn.outcome, Outcome::Answered);
    let asked = prompts(&engine);
    let stored = results(&asked[1]);
    for part in [r#""status":"READY""#, r#""name":"销售报告""#, r#""node_id":"node_2""#] {
        assert!(stored.contains(part), "{part}: {stored}");
    }
    assert!(
        asked[1].contains("<workflows>") && !asked[0].contains("<workflows>\n["),
        "the next question lists the plan"
    );
    let ran = results(&asked[2]);
    assert!(ran.contains(r#""output":{"data":{"sent":true},"status":200}"#), "{ran}");
    assert_eq!(engine.api.calls("/send")[0].body, json!({"rows": [1, 2]}));
    assert_eq!(engine.api.calls("/").len(), 2);
    let plan = plans_of(&engine, "s1").await.remove(0);
    assert_eq!((plan.state.status, plan.state.owner_session.as_str()), (WorkflowStatus::Completed, "s1"));
    assert_eq!((plan.state.agent_id.as_str(), &plan.workflow.document["coordinator"]), ("sales", &json!("sales")));
    let runs = engine.store.runs(RunQuery { origin_session: Some("s1".into()), ..RunQuery::default() }).await.unwrap();
    assert_eq!(runs.len(), 1);
    assert_eq!(
        (runs[0].status, runs[0].prefix.as_str()),
        (RunStatus::Completed, &*format!("1/{}", plan.workflow.id()))
    );
    let statuses: Vec<Status> = turn.statuses.iter().map(|at| at.status).collect();
    assert_eq!(statuses, [Status::Acknowledged, Status::Processing, Status::Typing, Status::Ready]);
}

async fn s24_a_plan_that_cannot_be_is_rejected(backend: Backend) {
    let mut cycle = report();
    cycle["payload"]["edges"].as_array_mut().unwrap().push(json!({"source": "node_2", "target": "node_1"}));
    let unknown = decision("execute_workflow", json!({"workflow_id": "w123"}));
    let answers = vec![answer(&[cycle]), answer(&[unknown]), answer(&[respond("不行")])];
    let engine = engine_with_ids(backend, answers).await;
    engine.say("s1", "m-1", "做个报告").await;
    let events = decisions(&engine, "s1").await;
    let errors: Vec<String> = events.iter().filter_map(|event| Some(event.get("errors")?.to_string())).collect();
    assert!(errors[0].contains("node_1 → node_2 → node_1"), "{errors:?}");
    assert!(errors[1].contains("`w123`, which does not exist"), "{errors:?}");
    assert!(plans_of(&engine, "s1").await.is_empty());
}

async fn s24_a_changed_node_counts_for_later_runs(backend: Backend) {
    let (two, modify) = a_plan_and_its_change();
    let answers = vec![
        answer(&[two]),
        answer(&[respond("好了")]),
        answer(&[modify]),
        answer(&[execute(json!({}))]),
        answer(&[respond("跑了")]),
    ];
    let engine = engine_with_ids(backend, answers).await;
    engine.say("s1", "m-1", "做个计划").await;
    let before = plans_of(&engine, "s1").await.remove(0).workflow;
    engine.say("s1", "m-2", "把LLM的温度参数调整为 0.9，再跑一次").await;
    let after = plans_of(&engine, "s1").await.remove(0).workflow;
    let mut expected = before.document.clone();
    expected["nodes"][1]["config"]["temperature"] = json!(0.9);
    assert_eq!((after.id(), &after.document), (before.id(), &expected), "only the temperature differs");
    assert_ne!(after.hash, before.hash);
    assert!(engine.store.workflow_version(before.id(), &before.hash).await.unwrap().is_some());
    let written = engine.model.asked().into_iter().find(|asked| asked.user == "写小结").unwrap();
    assert_eq!(written.temperature, Some(0.9));
}

async fn a_failed_run_tells_its_node_and_a_replan_makes_the_plan_ready(backend: Backend) {
    let failing = plan(
        &[
            node("node_1", "HTTP", &http("/down", &json!({}))),
            node("node_2", "HTTP", &http("/send", &json!({"n": "${node_1.output.status}"}))),
        ],
        &[("node_1", "node_2")],
    );
    let other = json!({"type": "HTTP", "name": "备用", "config": http("/spare", &json!({}))});
    let replan = decision(
        "replan_workflow",
        json!({
            "workflow_id": "{id}", "reason": "接口不可用", "execution_context": {"failed_attempts": 3},
            "suggested_changes": {"remove_nodes": ["node_1"], "add_nodes": [other], "update_edges": [{"source": "node_3", "target": "node_2"}]},
            "preserve_nodes": ["node_2"],
        }),
    );
    let answers = vec![
        answer(&[failing]),
        answer(&[execute(json!({}))]),
        answer(&[execute(json!({}))]),
        answer(&[replan]),
        answer(&[execute(json!({}))]),
        answer(&[respond("好了")]),
    ];
    let engine = engine_with_ids(backend, answers).await;
    engine.api.script(|path, _| if path == "/down" { (404, json!({})) } else { (200, json!({})) });
    engine.say("s1", "m-1", "做报告").await;
    let asked = prompts(&engine);
    let failed = results(&asked[2]);
    assert!(failed.contains(r#""failed_node_id":"node_1""#) && failed.contains(r#""ok":false"#), "{failed}");
    assert!(asked[2].contains(r#""status": "FAILED""#), "{}", asked[2]);
    let rejected =
        decisions(&engine, "s1").await.into_iter().find(|event| event["type"] == "decision_rejected").unwrap();
    assert!(rejected["errors"][0].as_str().unwrap().contains("status is FAILED"), "{rejected}");
    assert!(results(&asked[4]).contains(r#""status":"READY""#), "{}", asked[4]);
    assert_eq!(statuses_of(&engine, "s1").await, [WorkflowStatus::Completed]);
    assert_eq!(
        engine.api.calls("/send")[0].body,
        json!({"n": 200}),
        "the reference names the node that took the place"
    );
}

async fn s25_a_replan_within_a_run_becomes_the_stored_version(backend: Backend) {
    let failing = plan(&[node("node_1", "HTTP", &http("/down", &json!({})))], &[]);
    let answers = vec![answer(&[failing]), answer(&[execute(json!({}))]), answer(&[respond("好了")])];
    let engine = engine_with_ids(backend, answers.clone()).await;
    let address = engine.api.base_url.clone();
    let scripted = with_ids(serde_json::from_str(&json!(answers).to_string().replace("{api}", &address)).unwrap());
    engine.model.script(move |asked| match asks_about_run(&asked.system) {
        true => {
            let spare = json!({"type": "HTTP", "name": "备用", "config": {"url": format!("{address}/spare"), "method": "POST"}});
            let payload = json!({"workflow_id": plan_id(&asked.system), "reason": "接口不可用",
                "execution_context": {"failure_reason": "HTTP 404"},
                "suggested_changes": {"remove_nodes": ["node_1"], "add_nodes": [spare]}});
            Answer::json(&answer(&[decision("replan_workflow", payload)]))
        }
        false => scripted(asked),
    });
    engine.api.script(|path, _| if path == "/down" { (404, json!({})) } else { (200, json!({})) });
    engine.say("s1", "m-1", "做报告").await;
    assert_eq!(statuses_of(&engine, "s1").await, [WorkflowStatus::Completed]);
    let plan = plans_of(&engine, "s1").await.remove(0);
    assert!(plan.workflow.document.to_string().contains("/spare"), "{}", plan.workflow.document);
    assert!(!plan.workflow.document.to_string().contains("/down"), "{}", plan.workflow.document);
    let run = engine.store.run(plan.state.status_run.as_deref().unwrap()).await.unwrap().unwrap();
    assert_ne!(run.hash, plan.workflow.hash, "the run began with the older version, which is still stored");
    assert!(engine.store.workflow_version(plan.workflow.id(), &run.hash).await.unwrap().is_some());
}

async fn s25_the_decisions_of_a_run_within_a_turn_name_the_turn(backend: Backend) {
    let failing = plan(&[node("node_1", "HTTP", &http("/down", &json!({})))], &[]);
    let answers = vec![answer(&[failing]), answer(&[execute(json!({}))]), answer(&[respond("没做成")])];
    let engine = engine_with_ids(backend, answers).await;
    engine.api.script(|_, _| (404, json!({})));
    engine.say("s1", "m-1", "做报告").await;
    let plan = plans_of(&engine, "s1").await.remove(0);
    let events = decisions(&engine, "s1").await;
    assert!(events.iter().all(|event| event["turn_id"] == "m-1" && event["session_id"] == "s1"), "{events:#?}");
    let (of_run, of_turn): (Vec<_>, Vec<_>) = events.iter().partition(|event| !event["run_id"].is_null());
    let types = |events: &[&Value]| events.iter().map(|event| event["type"].clone()).collect::<Vec<_>>();
    assert_eq!(types(&of_run), ["node_execution_failed", "decision_made", "decision_validated"]);
    assert!(of_run.iter().all(|event| event["run_id"] == json!(plan.state.status_run)), "{of_run:#?}");
    let kinds: Vec<_> = of_run.iter().map(|event| event["decision_type"].as_str()).collect();
    assert_eq!(kinds[1..], [Some("error_recovery"); 2]);
    assert_eq!(of_turn.len(), 6, "the plan, its run and the reply: {of_turn:#?}");
}

async fn a_spent_budget_of_the_turn_is_not_skipped_by_a_recovery(backend: Backend) {
    let mut written = node("node_1", "LLM", &json!({"prompt": "写小结"}));
    written["recovery"] = json!({"action": "SKIP"});
    let answers = vec![answer(&[plan(&[written], &[])]), answer(&[execute(json!({}))]), answer(&[respond("好了")])];
    let engine = engine_with_ids(backend, answers).await;
    let mut agent = coordinator();
    // The two questions before the run use 36 tokens.
    agent["budget"] = json!({"turn": 36});
    engine.apply(agent).await;
    let turn = engine.say("s1", "m-1", "做报告").await;
    let reason = turn.reason.unwrap_or_default();
    assert!(turn.outcome == Outcome::Cancelled && reason.starts_with("token_budget: "), "{reason}");
    let plan = plans_of(&engine, "s1").await.remove(0);
    let run = engine.store.run(plan.state.status_run.as_deref().unwrap()).await.unwrap().unwrap();
    let cause = run.error.map(|error| error.cause).unwrap_or_default();
    assert_eq!((run.status, plan.state.status), (RunStatus::Failed, WorkflowStatus::Failed));
    assert!(cause.starts_with("BUDGET: the turn budget of agent `sales` is spent: 36 of 36 tokens"), "{cause}");
    assert!(decisions(&engine, "s1").await.iter().all(|event| event["run_id"].is_null()), "no recovery begins");
    assert_eq!(engine.model.asked().len(), 2);
}

async fn a_registered_workflow_runs_only_if_the_agent_lists_it(backend: Backend) {
    let run = |id: &str| {
        answer(&[decision("execute_workflow", json!({"workflow_id": id, "input_params": {"city": "北京"}}))])
    };
    let answers = vec![run("other"), run("weather"), answer(&[respond("好了")])];
    let engine = engine_with_ids(backend, answers).await;
    let mut agent = coordinator();
    agent["coordinator"] = json!({"workflows": ["weather"]});
    engine.apply(agent).await;
    for id in ["weather", "other"] {
        let call = node(
            "call",
            "HTTP",
            &json!({"url": format!("{}/{id}", engine.api.base_url), "method": "POST", "body": {"city": "${input.city}"}}),
        );
        let inputs = json!([{"name": "city", "type": "string", "required": true}]);
        let document =
            json!({"type": "graph", "id": id, "name": "天气", "nodes": [call], "global_config": {"inputs": inputs}});
        let record =
            definitions::workflow::definition::WorkflowRecord::from_document(document, base::clock::now()).unwrap();
        engine.store.put_workflow(record).await.unwrap();
    }
    engine.say("s1", "m-1", "天气").await;
    let asked = prompts(&engine);
    assert!(
        asked[0].contains(r#""workflow_id": "weather""#) && !asked[0].contains(r#""workflow_id": "other""#),
        "{}",
        asked[0]
    );
    let rejected = decisions(&engine, "s1").await.remove(1);
    assert!(rejected["errors"][0].as_str().unwrap().contains("may not run"), "{rejected}");
    assert_eq!((engine.api.calls("/other").len(), engine.api.calls("/weather").len()), (0, 1));
    assert_eq!(engine.session("s1").await.current_workflow, None, "a registered workflow is no plan of the session");
}

async fn a_plan_belongs_to_its_session(backend: Backend) {
    let engine = engine_with_ids(backend, vec![answer(&[report()]), answer(&[respond("好了")])]).await;
    engine.say("s1", "m-1", "做报告").await;
    let id = plans_of(&engine, "s1").await[0].workflow.id().to_owned();
    let run = answer(&[decision("execute_workflow", json!({"workflow_id": id}))]);
    let flow = |asked: &Asked, next: &Value| match asked.schema.as_str() {
        "plan_and_conversation_decision" => Answer::json(&json!({"plan": {"greeting": "您好"}, "answer": next})),
        _ => Answer::json(next),
    };
    engine.model.script(move |asked| match asked.system.contains("does not exist") {
        true => flow(asked, &answer(&[respond("不行")])),
        false => flow(asked, &run),
    });
    engine.say("s2", "m-1", "跑别人的计划").await;
    let rejected = decisions(&engine, "s2").await.remove(1);
    assert!(rejected["errors"][0].as_str().unwrap().contains("does not exist"), "{rejected}");
    let refused = engine.store.workflows().await.unwrap();
    assert!(refused.good.is_empty(), "no listing has the plan");
    assert!(engine.api.calls("/sales").is_empty());
}

async fn a_run_that_takes_too_long_is_told_to_the_model(backend: Backend) {
    let mut slow = report();
    slow["payload"]["global_config"] = json!({"timeout": 0.3});
    let answers = vec![answer(&[slow]), answer(&[execute(json!({}))]), answer(&[respond("超时了")])];
    let engine = engine_with_ids(backend, answers).await;
    engine.api.script(|_, _| crate::support::api::Answer::Hang);
    engine.say("s1", "m-1", "做报告").await;
    let asked = prompts(&engine);
    assert!(results(&asked[2]).contains("the run took longer than 300ms"), "{}", asked[2]);
    assert_eq!(statuses_of(&engine, "s1").await, [WorkflowStatus::Failed]);
}

async fn recorded_decisions_about_plans_are_judged_again_with_their_versions(backend: Backend) {
    let modify = decision("modify_node", json!({"node_id": "node_1", "updates": {"config.timeout": 5}}));
    let answers =
        vec![answer(&[report()]), answer(&[execute(json!({}))]), answer(&[modify]), answer(&[respond("好了")])];
    let engine = engine_with_ids(backend, answers).await;
    engine.say("s1", "m-1", "做报告").await;
    let listed =
        session_decisions(engine.store.as_ref(), &engine.settings, &[], &Sandbox::off(), "s1", 50, true).await.unwrap();
    let kinds: Vec<_> = listed.iter().map(|one| one.recorded.decision_type.as_str()).collect();
    assert_eq!(kinds, ["create_workflow_plan", "execute_workflow", "modify_node", "respond"]);
    assert!(listed.iter().all(|one| one.now.as_ref().is_some_and(|now| now.is_valid)), "{listed:?}");
    let judged = listed[1].recorded.workflow.as_ref().unwrap();
    assert_eq!(judged.status, WorkflowStatus::Ready, "it is COMPLETED now");
    assert_eq!(listed[0].recorded.workflow, None);
}
