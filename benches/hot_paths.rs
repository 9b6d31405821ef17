//! Benchmarks of the computations in every turn: canonical JSON with its md5, a prompt, a job, a knowledge search, and the
//! verdict on a decision.
//! Run all with `cargo bench`, or one with `cargo bench -- job`.
#![allow(clippy::unwrap_used, missing_docs)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use decisions::examples::ALL;
use decisions::kind::{Decision, DecisionType};
use decisions::policy::Policy;
use decisions::validate::validate;
use decisions::world::Snapshot;
use definitions::knowledge::source::{Origin, Source};
use engine::knowledge::index::Index;
use engine::prompt::{Prompts, SharedText, Variables};
use serde_json::{Value, json};
use std::cell::LazyCell;
use std::hint::black_box;
use std::time::{Duration, Instant};
use storage::queue::Message;
use types::canonical;
use types::timestamp::Timestamp;

/// An agent file with this number of tools.
fn agent(tools: usize) -> Value {
    let tool = |number: usize| {
        json!({"id": format!("tool{number}"), "description": "按订单号查询还有几天送到",
               "params": {"type": "object", "required": ["order_id"],
                          "properties": {"order_id": {"type": "string", "description": "订单号，例如 A1001"}}},
               "http": {"method": "GET", "url": "https://api.example.com/orders/{order_id}", "timeout": "10s"}})
    };
    json!({"id": "sales", "name": "小智", "tone": "热情、专业、简洁", "model": "default", "max_iterations": 10,
           "greeting": "您好，我是小智，请问今天想了解什么？", "sop": "一、先弄清用户要什么。\n二、再回答。\n".repeat(20),
           "constraints": "每次回复不超过三句话。\n".repeat(5), "tools": (0..tools).map(tool).collect::<Vec<_>>()})
}

fn canonical_json(c: &mut Criterion) {
    let mut group = c.benchmark_group("canonical_json");
    for (name, value) in
        [("agent_of_20_tools", agent(20)), ("step_input", json!({"hash": "0", "message": "你好", "results": []}))]
    {
        group.throughput(Throughput::Bytes(value.to_string().len() as u64));
        group.bench_function(format!("{name}/text"), |b| b.iter(|| canonical::to_string(black_box(&value))));
        group.bench_function(format!("{name}/md5"), |b| b.iter(|| canonical::hash(black_box(&value))));
    }
    group.finish();
}

fn prompt(c: &mut Criterion) {
    let (prompts, agent) = (Prompts::new(None), agent(5));
    let mut group = c.benchmark_group("prompt");
    for entries in [2, 100] {
        let history = "User: 请问你们周末营业吗？\nAgent: 周六、周日 10:00–17:00。\n".repeat(entries / 2);
        let tools = serde_json::to_string_pretty(&agent["tools"]).unwrap();
        let text = |field: &str| agent[field].as_str().unwrap().to_owned();
        let of_plan: [(&str, SharedText); 7] = [
            ("name", text("name").into()),
            ("tone", text("tone").into()),
            ("sop", text("sop").into()),
            ("constraints", text("constraints").into()),
            ("tools_json", tools.into()),
            ("skills_json", "[]".to_owned().into()),
            ("flows_json", "[]".to_owned().into()),
        ];
        let history = SharedText::from(history);
        let variables = || {
            let mut variables = Variables::from_iter(of_plan.iter().cloned());
            variables.add("history", history.clone());
            variables.add("results", "");
            variables.add("message", "上次说的试驾可以改到周三下午吗？");
            variables.add("note", "");
            variables.add("greeting_just_sent", false);
            variables.add("is_timer", false);
            variables
        };
        group.bench_function(format!("phase2_with_{entries}_entries"), |b| {
            b.iter(|| prompts.fill("phase2", black_box(variables())).unwrap());
        });
    }
    group.finish();
}

fn job(c: &mut Criterion) {
    let payload = json!({"type": "user_message", "session_id": "s1", "agent_id": "sales", "job_id": "m-1", "user_id": "u1",
                         "channel": "web", "text": "上次说的试驾可以改到周三下午吗？我的手机号没变。",
                         "sent_at": "2026-01-02T03:04:05.000Z", "metadata": {"source": "app"}});
    let message = Message {
        session_id: "s1".into(),
        seq: 1,
        stream: Timestamp::from_millis(0),
        payload: payload.to_string().into(),
        msg_id: Some("s1:m-1".into()),
        default_id: "1-1".into(),
        at: Timestamp::from_millis(0),
        trace: None,
    };
    c.bench_function("job/decode", |b| b.iter(|| black_box(&message).job().unwrap()));
    let decoded = message.job().unwrap();
    c.bench_function("job/encode", |b| b.iter(|| black_box(&decoded).encode()));
}

/// Words of both languages. Passages draw from them, early ones more often, as in natural text.
const WORDS: &[&str] = &[
    "退货",
    "保修",
    "发票",
    "物流",
    "订单",
    "门店",
    "充电",
    "电池",
    "试驾",
    "价格",
    "优惠",
    "会员",
    "积分",
    "维修",
    "保养",
    "预约",
    "运费",
    "签收",
    "地址",
    "停车",
    "安装",
    "工程师",
    "路由器",
    "宽带",
    "套餐",
    "流量",
    "信号",
    "账单",
    "合同",
    "押金",
    "取消",
    "更换",
    "router",
    "engineer",
    "invoice",
    "delivery",
    "battery",
    "warranty",
    "refund",
    "contract",
    "signal",
    "installation",
    "deposit",
    "plan",
];

/// The next of a fixed sequence of pseudo-random numbers below `bound`; small numbers are more frequent.
fn draw(seed: &mut u64, bound: usize) -> usize {
    let mut next = || {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) as usize
    };
    (next() % bound).min(next() % bound)
}

/// Texts of 1,000 passages each. A passage has 80 words, among them rare names.
fn sources(passages: usize) -> Vec<Source> {
    let mut seed = 7;
    let section = |seed: &mut u64, number: usize| {
        let words: Vec<String> = (0..80)
            .map(|at| match at % 8 {
                0 => format!("型号{}。", draw(seed, 50_000)),
                _ => WORDS[draw(seed, WORDS.len())].to_owned(),
            })
            .collect();
        format!("# 第{number}节\n\n{}\n\n", words.join(if number.is_multiple_of(2) { "" } else { " " }))
    };
    let source = |number: usize| {
        let text: String = (0..1_000).map(|at| section(&mut seed, number * 1_000 + at)).collect();
        let name = format!("kb/{number:04}.md");
        Source::new("sales", &name, &text, Origin::Added, Timestamp::from_millis(0)).unwrap()
    };
    (0..passages / 1_000).map(source).collect()
}

fn questions() -> Vec<String> {
    let question = |number: u64| {
        let mut seed = number;
        let mut word = || WORDS[draw(&mut seed, WORDS.len())];
        format!("请问{}和{}怎么办，型号{}的{}呢？", word(), word(), number * 7, word())
    };
    (0..2_000).map(question).collect()
}

/// The turn's response before the search.
const RESPONSE: &str = "您好，我帮您看看退货和保修的规定，请稍等。";

/// Builds an index of 100,000 passages. Prints the time to build it, and the percentiles of 2,000 searches, which
/// criterion does not report.
fn measured() -> Index {
    let begun = Instant::now();
    let index = Index::build("sales", sources(100_000)).unwrap();
    println!("knowledge: {} passages split and indexed in {:.1} s", index.len(), begun.elapsed().as_secs_f64());
    let timed = |question: &String| {
        let begun = Instant::now();
        black_box(index.search(question, RESPONSE, 4));
        begun.elapsed()
    };
    let mut times: Vec<Duration> = questions().iter().map(timed).collect();
    times.sort();
    let at = |share: usize| times[times.len() * share / 1_000].as_secs_f64() * 1_000.0;
    println!("knowledge: search p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms", at(500), at(990), at(999));
    index
}

fn knowledge(c: &mut Criterion) {
    let (index, questions) = (LazyCell::new(measured), questions());
    let mut next = questions.iter().cycle();
    c.bench_function("knowledge/search_100000_passages", |b| {
        let index = &*index;
        b.iter(|| index.search(black_box(next.next().unwrap()), RESPONSE, 4));
    });
}

/// A chain of `count` nodes. Each calls an API with the output of the one before.
fn plan(count: usize) -> Value {
    let node = |at: usize| {
        let body = if at == 0 { json!({}) } else { json!({"before": format!("${{node_{}.output.data}}", at - 1)}) };
        json!({"node_id": format!("node_{at}"), "type": "HTTP", "name": "发送",
               "config": {"url": "https://api.example.com/v1/send", "method": "POST", "body": body, "timeout": 30}})
    };
    let edge = |at: usize| json!({"source": format!("node_{}", at - 1), "target": format!("node_{at}")});
    json!({"action_type": "create_workflow_plan", "name": "n", "description": "",
           "nodes": (0..count).map(node).collect::<Vec<_>>(), "edges": (1..count).map(edge).collect::<Vec<_>>()})
}

/// Verdicts of the validator.
fn decision(c: &mut Criterion) {
    let world = Snapshot::new(Policy::default(), |_| Ok(()));
    let large =
        json!({"action_type": "respond", "response": "您好 ".repeat(149_780), "intent": "greeting", "confidence": 1.0});
    let of = |kind: DecisionType| serde_json::from_str(ALL.iter().find(|one| one.decision_type == kind).unwrap().text);
    let mut group = c.benchmark_group("decision");
    for (name, kind, payload) in [
        ("respond", DecisionType::Respond, of(DecisionType::Respond).unwrap()),
        ("create_node", DecisionType::CreateNode, of(DecisionType::CreateNode).unwrap()),
        ("plan_of_4_nodes", DecisionType::CreateWorkflowPlan, of(DecisionType::CreateWorkflowPlan).unwrap()),
        ("plan_of_50_nodes", DecisionType::CreateWorkflowPlan, plan(50)),
        ("1_mib", DecisionType::Respond, large),
    ] {
        group.throughput(Throughput::Bytes(payload.to_string().len() as u64));
        let Value::Object(payload) = payload else { unreachable!("a payload is an object") };
        let decision = Decision::new(kind, payload);
        assert!(validate(&decision, &world).is_valid, "{name}");
        group.bench_function(name, |b| b.iter(|| validate(black_box(&decision), &world)));
    }
    group.finish();
}

criterion_group!(benches, canonical_json, prompt, job, decision, knowledge);
criterion_main!(benches);
