//! Replaces all external calls while a draft is rehearsed or replayed: those of skills, tools, handoffs, flows in Rust
//! and nodes of workflows. A call without an answer fails. No call is made.

use super::ActionResult;
use super::would_call::WouldCall;
use decisions::reference::resolve::as_text;
use serde_json::{Map, Value};
use std::sync::{Mutex, MutexGuard, PoisonError};
use thiserror::Error;
use types::excerpt::cut;

/// The id in `answers` for the endpoint of a handoff.
pub const HANDOFF_ID: &str = "handoff";
/// The error code of a node that has no answer.
pub(crate) const NO_ANSWER: &str = "NO_ANSWER";
/// The most reasons that are kept. A loop over thousands of items may ask for each of them, and reports have to stay
/// small.
const MAX_MISSING: usize = 50;
/// The longest address in a reason, in bytes.
const MAX_ADDRESS: usize = 500;

/// Why a call of a rehearsal has no result. The call was not made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoAnswer {
    /// The test has no answer under this id.
    #[error("rehearsal: no answer is given for `{0}`; add it to the `answers` of the test")]
    NotGiven(String),
    /// The recorded turn made no such call.
    #[error("replay: the recorded turn has no call of `{0}`, so its result is unknown")]
    NotRecorded(String),
    /// A call that has no id.
    #[error("rehearsal: `{0}` was not called, because a rehearsal reaches nothing outside")]
    Outside(String),
}

/// A call of a recorded turn.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedCall {
    /// The skill, tool or flow.
    pub target: String,
    /// Its params.
    pub params: Map<String, Value>,
    /// Its result.
    pub result: ActionResult,
}

/// A call that was not made.
#[derive(Clone, Debug, PartialEq)]
pub struct NotMade {
    /// The skill, tool, flow or node; [`HANDOFF_ID`] for a handoff.
    pub id: String,
    /// True if an answer replaced its result.
    pub answered: bool,
    /// The call that would have been made.
    pub would_call: WouldCall,
}

enum Answers {
    /// Outputs by the id of an action or a node.
    Given(Mutex<Map<String, Value>>),
    /// The remaining calls of a recorded turn.
    Recorded(Mutex<Vec<RecordedCall>>),
}

/// Supplies the results of all calls of one rehearsed session, run or turn.
pub struct StandIn {
    answers: Answers,
    /// The first distinct reasons, at most [`MAX_MISSING`].
    missing: Mutex<Vec<NoAnswer>>,
    /// The calls so far; `None` if they are not collected.
    calls: Option<Mutex<Vec<NotMade>>>,
}

impl StandIn {
    /// Returns the given answer for the id of an action or a node, at every call.
    pub fn given(answers: Map<String, Value>) -> Self {
        Self { answers: Answers::Given(Mutex::new(answers)), missing: Mutex::default(), calls: None }
    }

    /// Starts without answers, and collects the calls that would have been made.
    pub fn watched() -> Self {
        Self { calls: Some(Mutex::default()), ..Self::given(Map::new()) }
    }

    /// Replaces the answers, and clears the list of calls without an answer.
    pub fn give(&self, answers: Map<String, Value>) {
        if let Answers::Given(given) = &self.answers {
            *locked(given) = answers;
        }
        locked(&self.missing).clear();
    }

    /// Returns the calls since the last call of this method, in order.
    pub fn take_calls(&self) -> Vec<NotMade> {
        self.calls.as_ref().map(|calls| std::mem::take(&mut *locked(calls))).unwrap_or_default()
    }

    /// Records a call that is not made.
    pub(crate) fn called(&self, id: &str, would_call: impl FnOnce() -> WouldCall) {
        if let Some(calls) = &self.calls {
            let call = NotMade { id: id.to_owned(), answered: self.has(id), would_call: would_call() };
            locked(calls).push(call);
        }
    }

    /// Returns each recorded result once.
    pub fn recorded(calls: Vec<RecordedCall>) -> Self {
        Self { answers: Answers::Recorded(Mutex::new(calls)), missing: Mutex::default(), calls: None }
    }

    /// The first calls that had no answer, in order and each once; at most 50.
    pub fn missing(&self) -> Vec<NoAnswer> {
        locked(&self.missing).clone()
    }

    /// Returns the result of a skill, a tool or a handoff.
    pub(crate) fn call(&self, id: &str, params: &Map<String, Value>) -> ActionResult {
        match &self.answers {
            Answers::Given(answers) => match locked(answers).get(id) {
                // Null means an empty response, as for the response of an API.
                Some(Value::Null) => ActionResult { result: None, ..ActionResult::ok(Value::Null) },
                Some(output) => ActionResult::ok(output.clone()),
                None => ActionResult::failed(self.refuse(id).to_string()),
            },
            Answers::Recorded(calls) => match take(&mut locked(calls), id, params) {
                Some(result) => result,
                None => ActionResult::failed(self.refuse(id).to_string()),
            },
        }
    }

    /// Returns the text of a flow, or the error. Returns `None` for a workflow without an answer: it runs, and its
    /// nodes ask the stand-in.
    pub(crate) fn flow(
        &self,
        id: &str,
        params: &Map<String, Value>,
        is_function: bool,
    ) -> Option<Result<String, String>> {
        match &self.answers {
            Answers::Given(answers) => match locked(answers).get(id) {
                Some(output) => Some(Ok(as_text(output))),
                None => is_function.then(|| Err(self.refuse(id).to_string())),
            },
            Answers::Recorded(_) => {
                let ActionResult { ok, result, error, .. } = self.call(id, params);
                let text = as_text(&result.unwrap_or_default());
                Some(if ok { Ok(text) } else { Err(error.unwrap_or_default()) })
            }
        }
    }

    /// Returns true if an action has an answer.
    pub(crate) fn has(&self, id: &str) -> bool {
        match &self.answers {
            Answers::Given(answers) => locked(answers).contains_key(id),
            Answers::Recorded(calls) => locked(calls).iter().any(|call| call.target == id),
        }
    }

    /// Returns the given output of a node or an action.
    pub(crate) fn output(&self, id: &str) -> Option<Value> {
        match &self.answers {
            Answers::Given(answers) => locked(answers).get(id).cloned(),
            Answers::Recorded(_) => None,
        }
    }

    /// Records a call without an answer, and returns the error.
    pub(crate) fn refuse(&self, id: &str) -> NoAnswer {
        let reason = match &self.answers {
            Answers::Given(_) => NoAnswer::NotGiven(id.to_owned()),
            Answers::Recorded(_) => NoAnswer::NotRecorded(id.to_owned()),
        };
        self.note(reason)
    }

    /// Records a call of an address that has no id, and returns the error.
    pub(crate) fn refuse_address(&self, address: &str) -> NoAnswer {
        self.note(NoAnswer::Outside(cut(address, MAX_ADDRESS).into_owned()))
    }

    fn note(&self, reason: NoAnswer) -> NoAnswer {
        let mut missing = locked(&self.missing);
        if missing.len() < MAX_MISSING && !missing.contains(&reason) {
            missing.push(reason.clone());
        }
        reason
    }
}

/// Removes and returns the recorded call of this target, preferably the one with the same params.
fn take(calls: &mut Vec<RecordedCall>, id: &str, params: &Map<String, Value>) -> Option<ActionResult> {
    let same = calls.iter().position(|call| call.target == id && call.params == *params);
    let at = same.or_else(|| calls.iter().position(|call| call.target == id))?;
    Some(calls.remove(at).result)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(value: Value) -> Map<String, Value> {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_given_answer_is_the_result_and_a_missing_one_is_a_failure_with_its_reason() {
        let stand_in = StandIn::given(fields(json!({"eta": {"days": 2}, "log": null, "flow": "好"})));
        assert_eq!(stand_in.call("eta", &Map::new()), ActionResult::ok(json!({"days": 2})));
        assert_eq!(stand_in.call("log", &Map::new()).result, None);
        assert_eq!(stand_in.flow("flow", &Map::new(), true), Some(Ok("好".into())));
        assert_eq!(stand_in.flow("workflow", &Map::new(), false), None);
        assert!(stand_in.missing().is_empty());
        let error = stand_in.call("book", &Map::new()).error.unwrap();
        assert!(error.starts_with("rehearsal: no answer is given for `book`"), "{error}");
        assert_eq!(stand_in.missing(), [NoAnswer::NotGiven("book".into())]);
    }

    #[test]
    fn a_watched_one_keeps_what_would_have_been_called() {
        let stand_in = StandIn::watched();
        let call = |id: &str| {
            stand_in.called(id, || WouldCall::request("POST", "https://a.example.com/x?y=1", Some(b"{\"n\":1}")));
            stand_in.call(id, &Map::new()).ok
        };
        stand_in.give(fields(json!({"eta": 2})));
        assert_eq!((call("eta"), call("book"), stand_in.missing().len()), (true, false, 1));
        let made = stand_in.take_calls();
        assert_eq!(
            made.iter().map(|made| (&*made.id, made.answered)).collect::<Vec<_>>(),
            [("eta", true), ("book", false)]
        );
        let shown = json!({"method": "POST", "url": "https://a.example.com/x?y=1", "body": {"n": 1}});
        assert_eq!(json!(made[0].would_call), shown);
        stand_in.give(Map::new());
        assert_eq!(
            (call("eta"), stand_in.missing(), stand_in.take_calls().len()),
            (false, vec![NoAnswer::NotGiven("eta".into())], 1)
        );
    }

    #[test]
    fn of_many_calls_without_an_answer_the_first_distinct_ones_are_kept() {
        let stand_in = StandIn::given(Map::new());
        for nth in 0..20_000 {
            stand_in.refuse("fetch");
            stand_in.refuse_address(&format!("https://a.example.com/{nth}?{}", "x".repeat(10_000)));
        }
        let missing = stand_in.missing();
        assert_eq!((missing.len(), &missing[0]), (MAX_MISSING, &NoAnswer::NotGiven("fetch".into())));
        assert!(missing.iter().all(|reason| reason.to_string().len() < 2 * MAX_ADDRESS), "{missing:?}");
        assert!(missing.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn a_recorded_call_answers_once_and_equal_params_go_first() {
        let call = |order: &str, days: u32| RecordedCall {
            target: "eta".into(),
            params: fields(json!({"order_id": order})),
            result: ActionResult::ok(json!(days)),
        };
        let stand_in = StandIn::recorded(vec![call("A1", 1), call("A2", 2)]);
        let ask = |order: &str| stand_in.call("eta", &fields(json!({"order_id": order}))).result;
        assert_eq!((ask("A2"), ask("A3"), ask("A3")), (Some(json!(2)), Some(json!(1)), None));
        assert_eq!(stand_in.missing(), [NoAnswer::NotRecorded("eta".into())]);
    }
}
