//! Scenarios S-13 to S-16 over HTTP with the shipped workflows, and further guarantees of their streams.

use super::{RunEvents, engine, masked, of_type, payloads, register, register_report, stage, started, writer};
use crate::gateway::data;
use crate::scenarios::on_both_backends;
use crate::support::engine::{Backend, DEADLINE, Engine};
use crate::support::eventually;
use crate::support::model_stream::Stream;
use crate::support::script::{Answer, ScriptedModel};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::Semaphore;

on_both_backends!(
    s13_iterative_research_goes_on_until_it_is_complete,
    s14_parallel_branches_run_at_once_and_merge_in_order,
    s15_the_router_takes_the_first_fitting_route,
    s16_research_workflow_nests_and_ends_with_its_report,
    fifty_branches_run_at_once,
    stage_panels_can_be_drawn_from_the_stream_alone,
);

/// The last event, which belongs to the outermost run.
fn last(events: &[Value]) -> &Value {
    let last = events.last().unwrap();
    assert_eq!((&last["depth"], &last["run_id"]), (&json!(0), &last["root_run_id"]), "{last}");
    last
}

/// Opens the gate when `calls` model calls are in flight concurrently.
async fn opens_when_asked(engine: &Engine, calls: usize, gate: &Semaphore) {
    eventually(DEADLINE, "all branches ask the model", || async { engine.model.asked().len() >= calls }).await;
    gate.add_permits(1);
}

async fn s13_iterative_research_goes_on_until_it_is_complete(backend: Backend) {
    let (engine, gateway) = engine(backend, |stage, _| match stage {
        "iterative_research[1]/reflection" | "iterative_research[2]/reflection" => "还不够，CONTINUE".into(),
        "iterative_research[3]/reflection" => "COMPLETE".into(),
        stage => format!("{stage} 的结果"),
    })
    .await;
    let mut run = gateway.run("iterative_research", &json!({"query": "研究电池回收"})).await;
    let events = run.rest().await;
    for event in &events {
        assert_eq!(event.event.as_deref(), data(event)["type"].as_str(), "events are named by their type");
    }
    let events = payloads(&events);
    let iterations: Vec<_> =
        of_type(&events, "loop_iteration").iter().map(|event| event["iteration"].clone()).collect();
    assert_eq!(iterations, [1, 2, 3]);
    assert_eq!(last(&events)["data"]["iterations"], 3);
    assert_eq!(last(&events)["data"]["output"], "iterative_research[3]/research 的结果");

    let asked = engine.model.asked();
    let prompt = |of: &str| asked.iter().find(|asked| stage(asked) == of).unwrap().user.clone();
    let (first, second) = (prompt("iterative_research[1]/research"), prompt("iterative_research[2]/research"));
    assert!(first.contains("研究电池回收") && !first.contains("[未找到"), "{first}");
    assert!(second.contains("iterative_research[1]/research 的结果") && second.contains("CONTINUE"), "{second}");
    insta::assert_snapshot!("s13_iterative_research", masked(&events));
}

async fn s14_parallel_branches_run_at_once_and_merge_in_order(backend: Backend) {
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let model = ScriptedModel::start(move |asked| {
        Answer::Content(format!("{} 的看法", stage(asked).rsplit('/').next().unwrap())).gated(&held)
    })
    .await;
    let (engine, gateway) = started(backend, model, 1).await;
    let running =
        async { gateway.run("parallel_analysis", &json!({"query": "分析一下这个项目"})).await.rest().await };
    let (events, ()) = tokio::join!(running, opens_when_asked(&engine, 3, &gate));
    let events = payloads(&events);

    let output = last(&events)["data"]["output"].as_str().unwrap();
    let places: Vec<_> = ["## 技术分析\ntechnical 的看法", "## 商业分析\nbusiness 的看法", "## 风险评估\nrisk 的看法"]
        .map(|part| output.find(part))
        .into();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{output}");
    let ends = events.iter().position(|event| event["type"] == "branch_completed").unwrap();
    let begins = events.iter().rposition(|event| event["type"] == "branch_started").unwrap();
    assert!(begins < ends, "all branches begin before the first one ends");
    let branches: Vec<Value> = events.iter().filter(|event| event["branch_id"] == "business").cloned().collect();
    insta::assert_snapshot!("s14_branch_of_parallel_analysis", masked(&branches));

    for id in ["technical", "business"] {
        engine.apply(writer(id)).await;
    }
    register(
        &engine,
        json!({"id": "plain", "type": "parallel", "branches": [
            {"id": "technical", "runnable": "technical", "input": "{query}"},
            {"id": "business", "runnable": "business", "input": "{query}"},
        ]}),
    )
    .await;
    let events = payloads(&gateway.run("plain", &json!({"query": "x"})).await.rest().await);
    let expected = "[technical]:\ntechnical 的看法\n\n[business]:\nbusiness 的看法";
    assert_eq!(last(&events)["data"]["output"], expected);
    assert_eq!(last(&events)["data"]["branch_outputs"]["business"], "business 的看法");
}

async fn s15_the_router_takes_the_first_fitting_route(backend: Backend) {
    let (engine, gateway) = engine(backend, |stage, _| format!("由 {stage} 回答")).await;
    for (query, expert) in [("帮我写段代码", "code_expert"), ("分析数据", "data_expert"), ("你好", "general")]
    {
        let events = payloads(&gateway.run("smart_router", &json!({"query": query})).await.rest().await);
        assert_eq!(last(&events)["data"]["output"], format!("由 {expert} 回答"), "{query}");
        let stages: Vec<_> = of_type(&events, "stage_started").iter().map(|event| event["stage_id"].clone()).collect();
        assert_eq!(stages, [expert], "{query}");
    }
    insta::assert_snapshot!(
        "s15_smart_router",
        masked(&payloads(&gateway.run("smart_router", &json!({"query": "你好"})).await.rest().await))
    );

    engine.apply(writer("writer")).await;
    register(
        &engine,
        json!({"id": "sometimes", "stages": [
            {"id": "intent", "runnable": "writer", "input": "{query}"},
            {"id": "deep", "runnable": "writer", "input": "{intent}", "condition": "{intent} contains 'complex'"},
        ]}),
    )
    .await;
    engine.model.script(|_| Answer::Content("simple".into()));
    let events = payloads(&gateway.run("sometimes", &json!({"query": "x"})).await.rest().await);
    assert_eq!(last(&events)["data"]["output"], "simple", "the output is that of the last stage that ran");
    assert!(events.iter().all(|event| event["stage_id"] != "deep"), "a skipped stage has no events");
}

async fn s16_research_workflow_nests_and_ends_with_its_report(backend: Backend) {
    let (engine, gateway) = engine(backend, |stage, _| {
        let name = stage.rsplit('/').next().unwrap();
        match (name, stage) {
            ("reflection", stage) if stage.contains("inner_loop[1]") => "CONTINUE 检索".into(),
            ("reflection", _) => "检索 COMPLETE".into(),
            // The outer loop continues while the merged text contains CONTINUE.
            ("meta_reflection", stage) if stage.contains("outer_loop[1]") => "CONTINUE 研究".into(),
            ("plan", _) => "计划：三步".into(),
            (name, _) => format!("{name} 的结果"),
        }
    })
    .await;
    let events =
        payloads(&gateway.run("research_workflow", &json!({"query": "研究量子计算的最新进展"})).await.rest().await);
    assert_eq!((&events[0]["type"], &events[0]["depth"]), (&json!("run_started"), &json!(0)));
    assert_eq!(
        (&last(&events)["type"], &last(&events)["data"]["output"]),
        (&json!("run_completed"), &json!("report 的结果"))
    );
    let iterations = |depth: u64| {
        let of_depth = events.iter().filter(move |event| event["type"] == "loop_iteration" && event["depth"] == depth);
        of_depth.map(|event| event["path"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(iterations(1), ["outer_loop[1]", "outer_loop[2]"]);
    let inner = "parallel_result/inner_loop";
    assert_eq!(
        iterations(3),
        [1, 2].map(|outer| [1, 2].map(|turn| format!("outer_loop[{outer}]/{inner}[{turn}]"))).concat()
    );

    let asked = engine.model.asked();
    let prompts = |name: &str| {
        let of = asked.iter().filter(|asked| stage(asked).ends_with(name)).map(|asked| asked.user.clone());
        of.collect::<Vec<_>>()
    };
    assert!(prompts("/retrieve").iter().all(|prompt| prompt.contains("计划：三步")), "{:?}", prompts("/retrieve"));
    let meta = prompts("/meta_reflection");
    assert!(!meta[0].contains("CONTINUE 研究") && meta[1].contains("CONTINUE 研究"), "{meta:?}");

    // Branches run concurrently: only the events of one branch, and those outside of branches, have a fixed order.
    let of = |branch: Value| events.iter().filter(|event| event["branch_id"] == branch).cloned().collect::<Vec<_>>();
    insta::assert_snapshot!("s16_outside_the_branches", masked(&of(Value::Null)));
    insta::assert_snapshot!("s16_inner_loop", masked(&of(json!("inner_loop"))));

    let structure = gateway.json("/workflows/research_workflow/structure").await;
    for prefix in ["/api", "/api/v1"] {
        let path = format!("{prefix}/workflows/research_workflow/structure");
        assert_eq!(gateway.json(&path).await, structure, "{path}");
    }
    let outer = &structure["stages"][2]["runnable"];
    assert_eq!((&outer["type"], &outer["max_iterations"]), (&json!("loop"), &json!(3)), "{structure:#}");
    let parallel = &outer["stages"][0]["runnable"];
    assert_eq!((&parallel["type"], &parallel["branches"][0]["id"]), (&json!("parallel"), &json!("inner_loop")));
    assert_eq!(parallel["branches"][0]["runnable"]["stages"][0]["runnable"], "retrieve_agent", "{structure:#}");
}

async fn fifty_branches_run_at_once(backend: Backend) {
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let model = ScriptedModel::start(move |_| Answer::Content("好".into()).gated(&held)).await;
    let (engine, gateway) = started(backend, model, 1).await;
    engine.apply(writer("writer")).await;
    let branches: Vec<Value> =
        (0..50).map(|n| json!({"id": format!("b{n}"), "runnable": "writer", "input": "{query}"})).collect();
    register(&engine, json!({"id": "wide", "type": "parallel", "branches": branches})).await;
    let running = async { gateway.run("wide", &json!({"query": "x"})).await.rest().await };
    let (events, ()) = tokio::join!(running, opens_when_asked(&engine, 50, &gate));
    let events = payloads(&events);
    assert_eq!(of_type(&events, "branch_completed").len(), 50);
    assert_eq!(last(&events)["type"], "run_completed");
}

/// Contents of a panel that a page would draw for one stage.
#[derive(Debug, Default, PartialEq)]
struct Panel {
    running: bool,
    completed: bool,
    text: String,
}

async fn stage_panels_can_be_drawn_from_the_stream_alone(backend: Backend) {
    // The model sends a piece when the page has the one before it.
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let model = ScriptedModel::start(move |asked| {
        let stage = stage(asked);
        let pieces = [stage.as_str(), "：一段文字，", "分成几块", "发来。"];
        Answer::Stream(Stream::of(pieces).gated(&held))
    })
    .await;
    let (engine, gateway) = started(backend, model, 1).await;
    register_report(&engine).await;
    let path = format!("/api/workflows/report/run?query={}", "%E4%BD%A0%E5%A5%BD");
    let mut run = RunEvents::of(gateway.browse(&path, None).await);
    let (mut panels, mut pieces): (Vec<(String, Panel)>, usize) = (Vec::new(), 0);
    while let Some(event) = run.next().await {
        assert_eq!(event.event, None, "`onmessage` sees only events without a name");
        let event = data(&event);
        let Some(id) = event["stage_id"].as_str() else { continue };
        match event["type"].as_str().unwrap() {
            "stage_started" => {
                panels.push((id.to_owned(), Panel { running: true, ..Panel::default() }));
                gate.add_permits(1);
            }
            "step_delta" => {
                let panel = panels.iter_mut().find(|(panel, _)| panel == id).unwrap();
                pieces += 1;
                panel.1.text.push_str(event["delta"]["content"].as_str().unwrap());
                // After the last piece come the reason, the usage and the end.
                gate.add_permits(if panel.1.text.ends_with("发来。") { 3 } else { 1 });
            }
            "stage_completed" => {
                let panel = &mut panels.iter_mut().find(|(panel, _)| panel == id).unwrap().1;
                (panel.running, panel.completed) = (false, true);
                assert_eq!(event["data"]["output"], panel.text.as_str(), "the deltas add up to the output");
            }
            _ => {}
        }
    }
    let done = |id: &str| {
        (id.to_owned(), Panel { running: false, completed: true, text: format!("{id}：一段文字，分成几块发来。") })
    };
    assert_eq!(panels, [done("plan"), done("report")]);
    assert_eq!(pieces, 8, "each piece of both texts is streamed");
}
