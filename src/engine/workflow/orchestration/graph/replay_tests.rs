//! Random graphs with random failures, decisions and orders of ending: a repeated run has the same end, and repeats
//! nothing, wherever the one before was stopped.

use super::recovery_tests::{decides, ground};
use crate::workflow::orchestration::ground::Ground;
use crate::workflow::orchestration::run::RunEnd;
use crate::workflow::{FlowContext, FlowError};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A generator of numbers that follow from the seed.
#[derive(Clone)]
struct Dice(Arc<AtomicU64>);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(Arc::new(AtomicU64::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)))
    }

    /// A number below `sides`.
    fn roll(&self, sides: u64) -> u64 {
        let step = |state: u64| {
            let state = state ^ (state << 13);
            let state = state ^ (state >> 7);
            Some(state ^ (state << 17))
        };
        let state = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step).unwrap_or_default();
        (state >> 16) % sides
    }
}

/// A digest of a text, so that failures and decisions depend on inputs only.
fn fate(text: &str, seed: u64) -> u64 {
    let digest = md5::compute(format!("{seed} {text}")).0;
    u64::from_be_bytes(digest[..8].try_into().unwrap())
}

/// A graph of 3 to 8 nodes, each with edges from some of the nodes before it.
fn graph(dice: &Dice) -> String {
    let count = 3 + dice.roll(6);
    let (mut nodes, mut edges) = (Vec::new(), Vec::new());
    for n in 0..count {
        let before: Vec<u64> = (0..n).filter(|_| dice.roll(2) == 0).collect();
        let before = if before.is_empty() && n > 0 { vec![dice.roll(n)] } else { before };
        let inputs: String = before.iter().map(|n| format!("${{n{n}.output.text}}")).collect();
        let recovery = if dice.roll(6) == 0 { ", recovery: {action: RETRY, max_attempts: 1, delay: 0}" } else { "" };
        let retries = dice.roll(2);
        nodes.push(format!(
            "  - {{node_id: n{n}, type: RUNNABLE, name: 节, config: {{runnable: work, input: 'n{n} {inputs}'}}, \
             retry_config: {{max_retries: {retries}, retry_delay: 0}}{recovery}}}"
        ));
        edges.extend(before.iter().map(|from| format!("{{source: n{from}, target: n{n}}}")));
    }
    let most = 1 + dice.roll(4);
    let (nodes, edges) = (nodes.join("\n"), edges.join(", "));
    format!(
        "type: graph\nid: g\nname: 随\ncoordinator: planner\nmax_concurrency: {most}\nnodes:\n{nodes}\nedges: [{edges}]\n"
    )
}

/// The decision of the coordinator, which depends on the prompt's failures only.
fn decision(prompt: &str, seed: u64) -> Value {
    let failures =
        prompt.split("<failures>").nth(1).and_then(|rest| rest.split("<\\/failures>").next()).unwrap_or(prompt);
    let failures = failures.split("</failures>").next().unwrap_or_default();
    let node = failures.split("\"node_id\": \"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or("n0");
    let fate = fate(failures, seed);
    let change = json!({"config.input": format!("changed {}", fate % 1_000)});
    let recovers = |plan: Value| {
        decides("error_recovery", json!({"failed_node_id": node, "failure_reason": "x", "recovery_plan": plan}))
    };
    let replans = || {
        let added = json!([{"node_id": format!("x{}", fate % 1_000), "type": "CONDITION", "name": "x", "config": {"expression": "true"}}]);
        let edges = json!([{"source": "n0", "target": format!("x{}", fate % 1_000)}]);
        decides(
            "replan_workflow",
            json!({"reason": "x", "suggested_changes": {"add_nodes": added, "update_edges": edges}}),
        )
    };
    if prompt.contains("cannot go on") {
        return replans();
    }
    match fate % 8 {
        0 => recovers(json!({"action": "RETRY", "max_attempts": 1, "delay": 0, "modifications": change})),
        1 => recovers(json!({"action": "RETRY", "max_attempts": 2, "delay": 0})),
        2 => recovers(json!({"action": "MODIFY", "modifications": change})),
        3 => recovers(json!({"action": "SKIP"})),
        4 => recovers(json!({"action": "SKIP", "alternative_node": "n0"})),
        5 => recovers(json!({"action": "RETRY"})),
        6 if fate % 64 < 8 => recovers(json!({"action": "ABORT"})),
        _ => replans(),
    }
}

/// The calls of a run.
#[derive(Default)]
struct Calls {
    /// The idempotency keys of the steps that were recorded before the run was repeated.
    recorded: BTreeSet<String>,
    /// The calls of recorded steps.
    repeated: Vec<String>,
    count: u64,
}

/// A run that stops after some of its calls.
struct Trial {
    ground: Ground,
    calls: Arc<Mutex<Calls>>,
    left: Arc<AtomicU64>,
}

impl Trial {
    fn new(seed: u64) -> Self {
        let dice = Dice::new(seed);
        let (mut ground, _) = ground(&[&graph(&dice)], move |prompt| decision(prompt, seed));
        let calls = Arc::<Mutex<Calls>>::default();
        let left = Arc::new(AtomicU64::new(u64::MAX));
        let (counted, stops, delays) = (Arc::clone(&calls), Arc::clone(&left), Dice::new(seed ^ 0xFFFF));
        ground.flows = ground.flows.with("work", move |context: FlowContext| {
            let (counted, stops, delays) = (Arc::clone(&counted), Arc::clone(&stops), delays.clone());
            work(context, seed, counted, stops, delays)
        });
        Self { ground, calls, left }
    }

    /// Runs to the end; `None` if the run was stopped after `calls` calls.
    async fn run(&self, calls: u64) -> Option<RunEnd> {
        let steps = self.ground.store.steps("r1", "t1").await.unwrap();
        self.calls.lock().unwrap().recorded = steps.into_iter().map(|step| format!("r1/t1/{}", step.key)).collect();
        self.left.store(calls, Ordering::SeqCst);
        let left = Arc::clone(&self.left);
        let stopped = async move {
            while left.load(Ordering::SeqCst) > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            ended = self.ground.run("g", "q") => Some(ended.unwrap()),
            () = stopped => None,
        }
    }
}

/// Fails or succeeds by its input and its attempt.
async fn work(
    context: FlowContext,
    seed: u64,
    calls: Arc<Mutex<Calls>>,
    left: Arc<AtomicU64>,
    delays: Dice,
) -> Result<String, FlowError> {
    let input = context.input.clone();
    let said = context.step("do", &input, async |key: String| {
        tokio::time::sleep(Duration::from_micros(delays.roll(300))).await;
        if left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).unwrap_or(0) <= 1 {
            std::future::pending::<()>().await;
        }
        // A node that a replan repeats may succeed.
        let fate = fate(&format!("{input}{}", key.contains('@')), seed);
        let mut calls = calls.lock().unwrap();
        calls.count += 1;
        if calls.recorded.contains(&key) {
            calls.repeated.push(key);
        }
        drop(calls);
        // The failure is a result, so that it is recorded like one.
        Ok::<_, String>(if fate.is_multiple_of(3) { "failed".to_owned() } else { format!("<{}>", fate % 100) })
    });
    match said.await? {
        failed if failed == "failed" => Err("it fails".into()),
        said => Ok(said),
    }
}

fn shown(end: &RunEnd) -> String {
    format!("{:?} {:?}", end.outcome, end.revised)
}

#[tokio::test]
async fn repeated_runs_end_alike_wherever_they_were_stopped() {
    let mut ends = BTreeMap::<&str, u32>::new();
    for seed in 0..40 {
        let whole = Trial::new(seed);
        let first = whole.run(u64::MAX).await.unwrap();
        let again = whole.run(u64::MAX).await.unwrap();
        assert_eq!(shown(&again), shown(&first), "seed {seed}");
        let total = whole.calls.lock().unwrap().count;
        assert_eq!(whole.calls.lock().unwrap().repeated, [""; 0], "seed {seed}");
        let kind = match &first.outcome {
            Ok(_) if first.revised.is_some() => "replanned",
            Ok(_) => "done",
            Err(failure) if failure.cause.starts_with("recovery_exhausted") => "exhausted",
            Err(_) => "failed",
        };
        *ends.entry(kind).or_default() += 1;

        let stopped = Trial::new(seed);
        let dice = Dice::new(seed ^ 0xABCD);
        let mut end = None;
        for _ in 0..3 {
            end = end.or(stopped.run(1 + dice.roll(total + 1)).await);
        }
        let end = match end {
            Some(end) => end,
            None => stopped.run(u64::MAX).await.unwrap(),
        };
        assert_eq!(shown(&end), shown(&first), "seed {seed}: stopped");
        assert_eq!(stopped.calls.lock().unwrap().repeated, [""; 0], "seed {seed}: stopped");
    }
    for kind in ["done", "replanned", "exhausted", "failed"] {
        assert!(ends.contains_key(kind), "the seeds reach every kind of end: {ends:?}");
    }
}
