//! ASK nodes: a question to the user of the conversation, or to the people who follow a run in a lane of its own.

use super::stepped;
use crate::journal::{Done, Durability, Label};
use crate::workflow::Question;
use crate::workflow::asking::LaneJob;
use crate::workflow::open_question::{ASKED_KIND, AskedQuestion, asked_key};
use crate::workflow::orchestration::ask::AskOutcome;
use crate::workflow::orchestration::graph::failure::{NodeError, NodeFailure};
use crate::workflow::orchestration::graph::resolved::ResolvedNode;
use crate::workflow::orchestration::stage_context::StageContext;
use serde_json::{Value, json};
use std::future::pending;
use std::time::Duration;

/// How long a question of a run in a lane of its own waits, unless the node has a `timeout`. The same as the default of an
/// agent's `flow_timeout`.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

pub(super) async fn perform(here: &StageContext, resolved: &ResolvedNode) -> Result<Value, NodeError> {
    let choices = resolved.plain("choices").and_then(Value::as_array).into_iter().flatten();
    let question =
        Question::new(resolved.text("question").unwrap_or_default()).choices(choices.filter_map(Value::as_str));
    let timeout = resolved.seconds("timeout");
    if let Some(job) = here.run().asking.lane_job() {
        let answer = ask_followers(here, job, question, timeout.unwrap_or(ANSWER_TIMEOUT)).await?;
        return Ok(json!({"answer": answer}));
    }
    let question = timeout.map_or_else(|| question.clone(), |timeout| question.clone().within(timeout));
    match here.ask(question).await.map_err(|failure| NodeError::of_part("INVALID", failure))? {
        AskOutcome::Answer(answer) => Ok(json!({"answer": answer})),
        AskOutcome::Nobody => {
            let message = "the node asks the user, but nobody can answer in a sub-agent's task";
            Err(NodeFailure::permanent("NOBODY", message).into())
        }
    }
}

/// Asks the people who follow the run. Does not return while the question waits for its answer. The time for an answer
/// ends in the turn of a timer only: an answer that is on the lane before the timer counts.
async fn ask_followers(
    here: &StageContext,
    job: &LaneJob,
    question: Question,
    timeout: Duration,
) -> Result<String, NodeError> {
    if question.text.trim().is_empty() {
        return Err(NodeFailure::permanent("INVALID", "the question is empty; give `question`").into());
    }
    let (run, journal) = (here.run(), here.journal());
    let key = run.asking.next_key(&journal);
    let full_key = journal.full_key(&key);
    let is_answered = matches!(job, LaneJob::Answer { key, .. } if *key == full_key) || journal.is_recorded(&key);
    let label = Label { kind: ASKED_KIND, target: here.path() };
    let latest = run.pauses.latest();
    let asked = asked_key(&key);
    let step = journal.step(&asked, label, Durability::OnReturn, &question.text, |_| async {
        let wanted = journal.clock().now().plus(timeout);
        let until = latest.map_or(wanted, |latest| wanted.min(latest));
        Ok::<_, NodeFailure>(Done::ok(AskedQuestion::new(&question, until)))
    });
    let until = stepped(step.await)?.until;
    here.emit_question(&key, &question);
    if is_answered {
        let answer = run.asking.answer(&journal, &key, &question).await?;
        here.emit_answer(&key, &answer);
        return Ok(answer);
    }
    if matches!(job, LaneJob::Timer) && journal.clock().now() >= until {
        let message = format!("nobody answered before {until}; raise the `timeout` of the node");
        return Err(NodeFailure::transient("TIMEOUT", message).into());
    }
    run.pauses.add_question(full_key, until);
    pending().await
}
