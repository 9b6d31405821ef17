//! The questions of a run in a lane of its own that wait for an answer, as its recorded steps show them.

use super::Question;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use types::run::RunRecord;
use types::step::StepRecord;
use types::timestamp::Timestamp;

/// Kind of the step that records a question.
pub(crate) const ASKED_KIND: &str = "asked";
/// Beginning of the key of that step.
const ASKED: &str = "asked";
/// Last segment of the key of the step that records a failure.
const FAILED: &str = "failed";

/// Key of the step that records the question with the key `ask[n]`.
pub(crate) fn asked_key(key: &str) -> String {
    format!("{ASKED}{}", key.trim_start_matches("ask"))
}

/// Output of the step that records a question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AskedQuestion {
    pub(crate) question: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) choices: Vec<String>,
    pub(crate) until: Timestamp,
}

impl AskedQuestion {
    pub(crate) fn new(question: &Question, until: Timestamp) -> Self {
        Self { question: question.text.clone(), choices: question.choices.clone(), until }
    }
}

/// A question of a run that waits for an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OpenQuestion {
    /// The place of the node in the run, such as `each[2]/approve`.
    pub node: String,
    /// The question.
    pub question: String,
    /// The suggested answers. Any other answer is accepted, too.
    #[serde(default)]
    pub choices: Vec<String>,
    /// When the node asked.
    pub asked_at: Timestamp,
    /// When the node fails with `TIMEOUT` unless an answer has arrived.
    pub until: Timestamp,
    /// Key of the answer in the run's journal.
    #[serde(skip)]
    #[schemars(skip)]
    pub key: String,
}

impl OpenQuestion {
    /// Id of the job with the answer. All answers to a question have the same id, so the first one counts. A resumed
    /// run, whose steps are in another turn, asks again.
    pub fn job_id(&self, run: &RunRecord) -> String {
        format!("answer-{:x}", md5::compute(format!("{}/{}/{}", run.run_id, run.turn_id, self.key)))
    }
}

/// Returns the open questions in the steps of a run, in the order in which they were asked.
pub fn open_questions(steps: &[StepRecord]) -> Vec<OpenQuestion> {
    let keys: HashSet<&str> = steps.iter().map(|step| step.key.as_str()).collect();
    let mut open: Vec<_> = steps.iter().filter_map(|step| open_question(step, &keys)).collect();
    open.sort_by(|one, other| (one.asked_at, &one.key).cmp(&(other.asked_at, &other.key)));
    open
}

fn open_question(step: &StepRecord, keys: &HashSet<&str>) -> Option<OpenQuestion> {
    let (part, name) = step.key.rsplit_once('/').unwrap_or(("", &step.key));
    let number = name.strip_prefix(ASKED).filter(|_| step.kind == ASKED_KIND)?;
    let key = join(part, &format!("ask{number}"));
    if keys.contains(key.as_str()) || has_failed(part, keys) {
        return None;
    }
    let AskedQuestion { question, choices, until } = serde_json::from_value(step.output.clone()).ok()?;
    Some(OpenQuestion { node: step.target.clone(), question, choices, asked_at: step.at, until, key })
}

/// True if the part of the journal, or one around it, has a recorded failure.
fn has_failed(part: &str, keys: &HashSet<&str>) -> bool {
    let ends = part.match_indices('/').map(|(at, _)| at).chain([part.len()]);
    ends.map(|end| &part[..end]).any(|around| {
        // The attempt of a LOOP has no iteration in its key.
        let attempt = around.rfind('[').filter(|_| around.ends_with(']')).map_or(around, |at| &around[..at]);
        [around, attempt].into_iter().any(|place| keys.contains(join(place, FAILED).as_str()))
    })
}

fn join(part: &str, key: &str) -> String {
    if part.is_empty() { key.to_owned() } else { format!("{part}/{key}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn step(key: &str, kind: &str, at: i64) -> StepRecord {
        let output = match kind {
            ASKED_KIND => json!({"question": key, "until": "2026-05-01T09:00:00.000Z"}),
            _ => Value::Null,
        };
        StepRecord {
            key: key.into(),
            kind: kind.into(),
            target: "node".into(),
            input_hash: String::new(),
            output,
            ok: true,
            ms: 0,
            model: None,
            tokens: None,
            attempts: None,
            charged: None,
            at: Timestamp::from_millis(at),
            prompt: None,
        }
    }

    #[test]
    fn a_question_is_open_until_it_is_answered_or_its_attempt_has_failed() {
        let asked = |key: &str, at| step(key, ASKED_KIND, at);
        let mut steps = vec![
            asked("late/asked[1]", 3),
            asked("first/asked[1]", 1),
            asked("each[2]/inner/asked[1]", 2),
            step("begin", "begin", 0),
        ];
        let open = |steps: &[StepRecord]| open_questions(steps).into_iter().map(|one| one.key).collect::<Vec<_>>();
        assert_eq!(open(&steps), ["first/ask[1]", "each[2]/inner/ask[1]", "late/ask[1]"]);
        steps.push(step("first/ask[1]", "ask", 4));
        assert_eq!(open(&steps), ["each[2]/inner/ask[1]", "late/ask[1]"]);
        steps.push(step("late/failed", "stage", 5));
        steps.push(asked("late~2/asked[1]", 6));
        assert_eq!(open(&steps), ["each[2]/inner/ask[1]", "late~2/ask[1]"]);
        steps.push(step("each/failed", "stage", 7));
        assert_eq!(open(&steps), ["late~2/ask[1]"], "the attempt of the LOOP has failed");
    }
}
