//! Answers to the questions of runs in a lane of their own.

use super::enqueue::enqueue;
use super::run_details::{load, questions_of};
use crate::error::{CommandError, ErrorKind};
use base::clock;
use engine::workflow::open_question::OpenQuestion;
use serde::{Deserialize, Serialize};
use storage::queue::Queue;
use storage::store::Store;
use types::job::{Job, JobBody};
use types::run::RunRecord;

/// An answer to a question of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewAnswer {
    /// The answer. A text that equals a choice of the question is that choice.
    pub text: String,
    /// The place of the node that asked, if the run has several open questions. By default the question that was asked
    /// first is answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Who answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

impl NewAnswer {
    /// An answer to the question that was asked first.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

/// A question that has its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AnsweredRun {
    /// The id of the run.
    pub run_id: String,
    /// The id of its workflow.
    pub workflow_id: String,
    /// The place of the node that asked.
    pub node: String,
    /// The question that is answered.
    pub question: String,
}

/// Puts an answer on the lane of the run that has asked. Durable on return; a worker continues the run with it. The same
/// answer twice is one answer.
///
/// Fails with `not_waiting` if no question is open, if its time is over, or if another answer to it is on the lane.
pub async fn answer_run(
    queue: &dyn Queue,
    store: &dyn Store,
    run_id: &str,
    answer: NewAnswer,
) -> Result<AnsweredRun, CommandError> {
    let run = load(store, run_id).await?;
    if answer.text.trim().is_empty() {
        return Err(CommandError::invalid("empty_answer", "text is empty", "give the answer as `text`"));
    }
    if run.lane != run.run_id {
        let message = format!("run `{run_id}` is a part of turn `{}` of session `{}`", run.turn_id, run.lane);
        let hint = "send the answer as a message of that session";
        return Err(CommandError::new(ErrorKind::Conflict, "run_of_turn", message, hint));
    }
    let asked = open_question(store, &run, answer.node.as_deref()).await?;
    let job_id = asked.job_id(&run);
    let answered = AnsweredRun {
        run_id: run.run_id.clone(),
        workflow_id: run.workflow_id.clone(),
        node: asked.node,
        question: asked.question,
    };
    let NewAnswer { text, by, .. } = answer;
    let body = JobBody::Answer { question: asked.key, text, by };
    let job = Job { session_id: run.run_id.clone(), job_id, body };
    job.check()?;
    let (_, published) = enqueue(queue, job.clone()).await?;
    if published.duplicate && !is_same(queue, &job, published.seq).await? {
        let message = format!("another answer to the question of `{}` is on its way", answered.node);
        let hint = "name the `node` to answer another open question; `turnwheel runs show` lists them";
        return Err(CommandError::new(ErrorKind::Conflict, "not_waiting", message, hint));
    }
    Ok(answered)
}

/// The question that is answered: the first open one, or that of `node`.
async fn open_question(store: &dyn Store, run: &RunRecord, node: Option<&str>) -> Result<OpenQuestion, CommandError> {
    let open = questions_of(store, run).await?;
    let places: Vec<String> = open.iter().map(|asked| format!("`{}`", asked.node)).collect();
    let message = match (open.is_empty(), node) {
        (true, _) => format!("run `{}` is `{}` and has no open question", run.run_id, run.status.as_str()),
        (false, node) => {
            let is_named = |asked: &OpenQuestion| node.is_none_or(|node| asked.node == node);
            match open.into_iter().find(is_named) {
                Some(asked) if clock::now() <= asked.until => return Ok(asked),
                Some(asked) => format!("the time for an answer to `{}` was over at {}", asked.node, asked.until),
                None => format!("`{}` has no open question; the open ones: {}", node.unwrap_or(""), places.join(", ")),
            }
        }
    };
    let hint = "`turnwheel runs show` lists the open questions of a run";
    Err(CommandError::new(ErrorKind::Conflict, "not_waiting", message, hint))
}

/// True if the stored job that made `job` a duplicate has the same text. A job that is no longer stored counts as the
/// same, since its answer is recorded.
async fn is_same(queue: &dyn Queue, job: &Job, seq: u64) -> Result<bool, CommandError> {
    let first = queue.next_in_lane(&job.session_id, seq.saturating_sub(1), seq).await?;
    let first = first.filter(|first| first.seq == seq).and_then(|first| first.job().ok());
    let text = |body: &JobBody| match body {
        JobBody::Answer { text, .. } => Some(text.trim().to_owned()),
        _ => None,
    };
    Ok(first.is_none_or(|first| text(&first.body) == text(&job.body)))
}
