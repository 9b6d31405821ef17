//! The floor: what a turn asks of queue and store, command for command and in the same groups, with no engine between
//! them. It takes a worker's place: what an engine's turn reaches of its throughput is the engine's efficiency.
//!
//! A turn of `n` actions is: the job's publication and delivery; a look at the agent's hash, where the last one is too old;
//! taking the lease and, beside that, reading the job from its lane; `2n` times an event and a recorded step; one more event
//! beside the last decision; that decision's step and the turn's record, then the session with the four last events, the
//! reply among them; these events; the acknowledgement. [`mod@cluster`] does it on NATS and MongoDB, [`mod@embedded`] on the
//! file.

mod cluster;
mod embedded;

pub(super) use cluster::run as cluster;
pub(super) use embedded::run as embedded;

use super::crew::Duty;

/// A status event as the engine publishes it.
const STATUS: &str = r#"{"session_id":"s100","turn_id":"j10000","status":"processing","previous":"ready","reason":null,"at":"2026-01-01T00:00:00.000Z"}"#;
/// A reply.
const REPLY: &str = r#"{"reply_id":"s100/j10000/0/respond","session_id":"s100","agent_id":"bench","user_id":"u100","channel":"bench","turn_id":"j10000","kind":"response","text":"收到：我想了解一下新款车型的价格和现车情况，另外贷款怎么办理？ 我们的营业时间是周一至周五 9:00–18:00。","seq":0,"at":"2026-01-01T00:00:00.000Z","metadata":{}}"#;
/// A step's output.
const OUTPUT: &str = r#"{"action":null,"next_status":"typing","reasoning":"offline rule 1","response":"收到：我想了解一下新款车型的价格和现车情况，另外贷款怎么办理？ 我们的营业时间是周一至周五 9:00–18:00。"}"#;

/// Keys of the steps that a turn records on its way, in order.
fn steps(actions: usize) -> Vec<String> {
    let mut steps = Vec::new();
    for iteration in 0..actions {
        steps.push(format!("{iteration}/decide"));
        steps.push(format!("{iteration}/act"));
    }
    steps
}

/// Key of the step that is written with the commit.
fn last_step(actions: usize) -> String {
    format!("{actions}/decide")
}

/// The events at the end: key and payload. The one that announces the last step is among them, unless the model takes its
/// time for that.
fn last_events(duty: &Duty) -> Vec<(String, &'static str)> {
    let actions = duty.actions;
    let announced = duty.model_latency.0.is_zero().then(|| last_announcement(actions));
    let at_the_end = [
        (format!("step/{actions}/decide"), STATUS),
        ("status/1".to_owned(), STATUS),
        (format!("{actions}/respond"), REPLY),
        ("status/2".to_owned(), STATUS),
    ];
    announced.into_iter().chain(at_the_end).collect()
}

/// The event that announces the last step.
fn last_announcement(actions: usize) -> (String, &'static str) {
    (format!("event/{}", last_step(actions)), STATUS)
}

/// The pause that a turn's model makes before a step.
async fn think(duty: &Duty, step: &str) {
    if step.ends_with("decide") && !duty.model_latency.0.is_zero() {
        tokio::time::sleep(duty.model_latency.0).await;
    }
}
