//! The baseline (in reports: the floor): a stand-in for the worker that issues the commands of a turn to queue and
//! store, in the same order and in the same groups, without the engine. The engine's throughput divided by the floor's
//! is the engine's efficiency.
//!
//! For a turn of `n` actions, the floor
//! 1. receives the job,
//! 2. reads the agent's hash if the last read is too old,
//! 3. acquires the lease and concurrently reads the job from its lane,
//! 4. publishes an event and records a step, `2n` times,
//! 5. publishes the event of the last decision (within step 7 if the model has no latency),
//! 6. writes the last step and the turn's record, then the session with its outbox,
//! 7. publishes the events of the outbox, with the reply among them,
//! 8. acknowledges the job.
//!
//! [`mod@cluster`] does this on NATS and MongoDB, [`mod@embedded`] on the file.

mod cluster;
mod embedded;

pub(super) use cluster::run as cluster;
pub(super) use embedded::run as embedded;

use super::member::MemberProfile;

/// Payload of a status event, as the engine publishes it.
const STATUS: &str = r#"{"session_id":"s100","turn_id":"j10000","status":"processing","previous":"ready","reason":null,"at":"2026-01-01T00:00:00.000Z"}"#;
/// Payload of a reply.
const REPLY: &str = r#"{"reply_id":"s100/j10000/0/respond","session_id":"s100","agent_id":"bench","user_id":"u100","channel":"bench","turn_id":"j10000","kind":"response","text":"收到：我想了解一下新款车型的价格和现车情况，另外贷款怎么办理？ 我们的营业时间是周一至周五 9:00–18:00。","seq":0,"at":"2026-01-01T00:00:00.000Z","metadata":{}}"#;
/// Output of a model step.
const OUTPUT: &str = r#"{"action":null,"next_status":"typing","reasoning":"offline rule 1","response":"收到：我想了解一下新款车型的价格和现车情况，另外贷款怎么办理？ 我们的营业时间是周一至周五 9:00–18:00。"}"#;

/// Keys of the steps that a turn records before its commit, in order.
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

/// Key and payload of the events that are published after the commit. They include the announcement of the last step if
/// the model has no latency; otherwise the turn publishes that event before it asks the model.
fn last_events(profile: &MemberProfile) -> Vec<(String, &'static str)> {
    let actions = profile.actions;
    let announced = profile.model_latency.0.is_zero().then(|| last_announcement(actions));
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

/// Sleeps for the model's latency if `step` is a decision.
async fn think(profile: &MemberProfile, step: &str) {
    if step.ends_with("decide") && !profile.model_latency.0.is_zero() {
        tokio::time::sleep(profile.model_latency.0).await;
    }
}
