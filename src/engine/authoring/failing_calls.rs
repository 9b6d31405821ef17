//! The engine's own test of a draft, in which every call fails. It passes if the draft's replies do not contain the
//! results that the calls have in the model's tests.

use crate::rehearsal::{ExpectedOutput, ExpectedTurn, RehearsalTest, TestTurn, Texts};
use serde_json::{Map, Value};
use types::authoring::Artifact;

/// The name of the test in reports.
pub const NAME: &str = "every call fails";
/// Shorter results, in bytes, are not searched for: a reply may contain them by chance.
const MIN_RESULT: usize = 4;
/// The user's message if the model has written no test.
const GREETING: &str = "你好 / Hello";

/// Returns the engine's test for a draft with these tests of the model.
pub fn test(artifact: Artifact, document: &Value, cases: &[RehearsalTest]) -> RehearsalTest {
    // The test with the most answers gives the draft the most results to invent.
    let case = cases.iter().max_by_key(|case| case.answers.len()).cloned().unwrap_or_default();
    let invented = invented(document, &case);
    let not_contains = (!invented.is_empty()).then_some(Texts::All(invented));
    let test = RehearsalTest { name: NAME.to_owned(), answers: Map::new(), ..RehearsalTest::default() };
    match artifact {
        Artifact::Workflow => {
            let expect = ExpectedOutput { output_contains: None, not_contains, may_fail: true };
            RehearsalTest { input: case.input, expect: Some(expect), ..test }
        }
        Artifact::Agent => {
            let mut said: Vec<String> = case.turns.into_iter().map(|turn| turn.say).collect();
            if said.is_empty() {
                said.push(GREETING.to_owned());
            }
            let expect = ExpectedTurn { not_contains, ..ExpectedTurn::default() };
            let turns = said.into_iter().map(|say| TestTurn { say, expect: expect.clone() }).collect();
            RehearsalTest { turns, ..test }
        }
    }
}

/// Returns the texts in the answers of a test that are neither in the document nor in the user's messages.
fn invented(document: &Value, case: &RehearsalTest) -> Vec<String> {
    let mut results = Vec::new();
    case.answers.values().for_each(|answer| texts(answer, &mut results));
    let mut said = Vec::new();
    texts(document, &mut said);
    said.extend(case.turns.iter().map(|turn| turn.say.clone()));
    case.input.iter().for_each(|input| texts(input, &mut said));
    results.retain(|result| result.len() >= MIN_RESULT && !said.iter().any(|said| said.contains(result.as_str())));
    results.sort_unstable();
    results.dedup();
    results
}

fn texts(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) => found.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| texts(item, found)),
        Value::Object(fields) => fields.values().for_each(|field| texts(field, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn case(json: Value) -> RehearsalTest {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn results_of_the_mocked_calls_must_not_be_said() {
        let cases = [
            case(json!({"name": "a", "turns": [{"say": "A1001?"}], "answers": {}})),
            case(json!({"name": "b", "turns": [{"say": "A1001 呢？"}], "answers":
                {"order": {"id": "A1001", "state": "已发货", "ok": "ok", "greeting": "您好，欢迎"}}})),
        ];
        let document = json!({"greeting": "您好，欢迎光临"});
        let test = test(Artifact::Agent, &document, &cases);
        assert_eq!((test.name.as_str(), test.answers.len(), test.turns[0].say.as_str()), (NAME, 0, "A1001 呢？"));
        assert_eq!(test.turns[0].expect.not_contains, Some(Texts::All(vec!["已发货".into()])));
    }

    #[test]
    fn a_workflow_may_fail_and_a_draft_without_tests_is_tried_all_the_same() {
        let cases = [case(json!({"name": "a", "input": {"q": 1}, "answers": {"fetch": "result"}}))];
        let test = test(Artifact::Workflow, &json!({}), &cases);
        assert_eq!(test.input, Some(json!({"q": 1})));
        assert!(test.expect.unwrap().may_fail);
        assert_eq!(super::test(Artifact::Agent, &json!({}), &[]).turns.len(), 1);
    }
}
