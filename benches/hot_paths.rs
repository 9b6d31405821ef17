//! What every turn computes by itself: canonical JSON with its md5, a prompt, a job. `cargo bench`, or one of them:
//! `cargo bench -- job`.
#![allow(clippy::unwrap_used, missing_docs)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use serde_json::{Value, json};
use std::hint::black_box;
use turnwheel::agent::canonical;
use turnwheel::clock::Timestamp;
use turnwheel::prompt::Prompts;
use turnwheel::queue::{Job, Message};

/// An agent file with `tools` tools.
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
        let context = json!({
            "name": agent["name"], "tone": agent["tone"], "sop": agent["sop"], "constraints": agent["constraints"],
            "tools_json": serde_json::to_string_pretty(&agent["tools"]).unwrap(), "skills_json": "[]", "flows_json": "[]",
            "history": history, "results": "", "message": "上次说的试驾可以改到周三下午吗？", "note": "",
            "greeting_just_sent": false, "is_timer": false,
        });
        group.bench_function(format!("phase2_with_{entries}_entries"), |b| {
            b.iter(|| prompts.render("phase2", black_box(&context)).unwrap());
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
        payload: payload.to_string().into(),
        msg_id: Some("s1:m-1".into()),
        default_id: "1-1".into(),
        at: Timestamp::from_millis(0),
        trace: None,
    };
    c.bench_function("job/decode", |b| b.iter(|| Job::decode(black_box(&message)).unwrap()));
    let decoded = Job::decode(&message).unwrap();
    c.bench_function("job/encode", |b| b.iter(|| black_box(&decoded).encode()));
}

criterion_group!(benches, canonical_json, prompt, job);
criterion_main!(benches);
