//! Tests of a draft, and the comparison of a rehearsed turn or run with its test. The rehearsal itself needs an engine
//! in memory. The layer that can build one implements it: [`Rehearse`]. [`trial`] has the trials, in which a person
//! talks with a draft.

pub mod trial;

use crate::action::stand_in::NoAnswer;
use async_trait::async_trait;
use definitions::agent::AgentRecord;
use definitions::knowledge::files::NamedText;
use definitions::workflow::definition::WorkflowRecord;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::time::Duration;
use thiserror::Error;
use types::action::SYSTEM_OPERATIONS;
use types::authoring::Artifact;
use types::plan::Plan;
use types::session::Status;

/// One test of a draft: a conversation with an agent (`turns`), or a run of a workflow (`input`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RehearsalTest {
    /// The name in reports.
    pub name: String,
    /// The user's messages, one for each turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<TestTurn>,
    /// The input of a workflow: a text, or the inputs of a graph by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// The expected end of a workflow's run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<ExpectedOutput>,
    /// The outputs of skills, tools, flows and nodes, by id; `handoff` is the endpoint of a handoff.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub answers: Map<String, Value>,
}

impl RehearsalTest {
    /// Checks that the test is of the kind that such a draft needs.
    pub fn check(&self, artifact: Artifact) -> Result<(), TestError> {
        let problem = match artifact {
            Artifact::Agent if self.turns.is_empty() => "no `turns`; an agent is tested by messages: give `turns`",
            Artifact::Agent if self.input.is_some() => "an `input`, which is for workflows; remove it",
            Artifact::Workflow if !self.turns.is_empty() => "`turns`, which are for agents; give `input`",
            Artifact::Agent | Artifact::Workflow => return Ok(()),
        };
        Err(TestError::Kind { name: self.name.clone(), problem })
    }
}

/// One message of a test, and the expectations for its turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TestTurn {
    /// The user's text.
    pub say: String,
    /// The expectations for the turn.
    #[serde(default)]
    pub expect: ExpectedTurn,
}

/// The expectations for a turn. A missing field is not checked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExpectedTurn {
    /// The last status of the turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// All skills, tools and flows that the turn calls, in order. An operation of the engine counts if it is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<Vec<String>>,
    /// Texts that the replies must contain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_contains: Option<Texts>,
    /// Texts that the replies must not contain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_contains: Option<Texts>,
}

/// The expectations for the end of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExpectedOutput {
    /// Texts that the output must contain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_contains: Option<Texts>,
    /// Texts that the output must not contain. Only the engine's own tests have them.
    #[serde(skip)]
    pub not_contains: Option<Texts>,
    /// True if the run may fail. Only the engine's own tests allow it.
    #[serde(skip)]
    pub may_fail: bool,
}

/// One text, or a list of texts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Texts {
    /// One text.
    One(String),
    /// Several texts.
    All(Vec<String>),
}

impl Texts {
    fn iter(&self) -> impl Iterator<Item = &str> {
        let texts = match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::All(texts) => texts,
        };
        texts.iter().map(String::as_str)
    }
}

/// Why tests cannot be used.
#[derive(Debug, Error)]
pub enum TestError {
    /// The document has another form.
    #[error("{path}: {source}")]
    Form {
        /// The path of the field.
        path: String,
        /// The problem.
        source: serde_json::Error,
    },
    /// A test is no test of such a draft.
    #[error("the test `{name}` has {problem}")]
    Kind {
        /// The name of the test.
        name: String,
        /// The problem, with the remedy.
        problem: &'static str,
    },
    /// There are no tests.
    #[error("there are no tests; write `tests: [{{name: …, turns: [{{say: …, expect: {{…}}}}]}}]`")]
    None,
}

/// Reads tests: a list, or a table with the list `tests`.
pub fn tests(document: &Value) -> Result<Vec<RehearsalTest>, TestError> {
    let list = document.get("tests").unwrap_or(document);
    let tests: Vec<RehearsalTest> = serde_path_to_error::deserialize(list)
        .map_err(|error| TestError::Form { path: format!("tests{}", error.path()), source: error.into_inner() })?;
    if tests.is_empty() { Err(TestError::None) } else { Ok(tests) }
}

/// A document that is not published.
#[derive(Clone, Debug)]
pub enum Draft {
    /// An agent with what it answers from.
    Agent(AgentRecord, DraftKnowledge),
    /// A workflow.
    Workflow(WorkflowRecord),
}

/// What the draft of an agent answers from.
#[derive(Clone, Debug, Default)]
pub struct DraftKnowledge {
    /// Texts that come with the draft.
    pub texts: Vec<NamedText>,
    /// Also the stored texts of the agent with the draft's id. Only for users who may read these texts: a draft
    /// can have any id, and its answers quote the texts.
    pub stored: bool,
}

impl DraftKnowledge {
    /// The stored texts, if `allowed`, and no others.
    pub const fn stored(allowed: bool) -> Self {
        Self { texts: Vec::new(), stored: allowed }
    }

    /// These texts, and no stored ones.
    pub const fn texts(texts: Vec<NamedText>) -> Self {
        Self { texts, stored: false }
    }
}

impl Draft {
    /// The agent whose stored texts the draft answers from.
    pub fn reads_texts_of(&self) -> Option<&str> {
        match self {
            Self::Agent(agent, DraftKnowledge { stored: true, .. }) => Some(agent.id()),
            Self::Agent(..) | Self::Workflow(_) => None,
        }
    }

    /// Checks that the tests are of the kind that this draft needs.
    pub fn check(&self, tests: &[RehearsalTest]) -> Result<(), TestError> {
        let artifact = match self {
            Self::Agent(..) => Artifact::Agent,
            Self::Workflow(_) => Artifact::Workflow,
        };
        tests.iter().try_for_each(|test| test.check(artifact))
    }
}

/// The first difference between a rehearsal and what its test expects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Deviation {
    /// The number of the turn, from 1; 1 for a run.
    pub turn: usize,
    /// The expectation: `status`, `calls`, `reply_contains`, `not_contains`, `output_contains`, or `end`.
    pub what: String,
    /// The expected value.
    pub expected: Value,
    /// The actual value.
    pub got: Value,
    /// The calls of the turn.
    pub calls: Vec<String>,
    /// The calls that had no answer so far, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unanswered: Vec<String>,
}

/// The end of one test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum TestResult {
    /// All expectations were met.
    Passed,
    /// An expectation was not met.
    Failed(Deviation),
    /// The test was not completed, so its result is unknown.
    NotRun {
        /// Why.
        reason: String,
    },
}

/// One test with its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RehearsedTest {
    /// The name of the test.
    pub name: String,
    /// Its end.
    #[serde(flatten)]
    pub result: TestResult,
}

/// The report of a rehearsal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rehearsed {
    /// The number of tests that passed.
    pub passed: usize,
    /// The number of tests that failed.
    pub failed: usize,
    /// The number of tests that were not completed.
    pub not_run: usize,
    /// The tests in the given order.
    pub tests: Vec<RehearsedTest>,
    /// The plan of the agent, made by the rehearsal. If it is stored on publishing, the first user needs no model call
    /// for it.
    #[serde(skip)]
    pub plan: Option<Plan>,
}

impl Rehearsed {
    /// Collects the tests.
    pub fn new(tests: Vec<RehearsedTest>, plan: Option<Plan>) -> Self {
        let count = |is: fn(&TestResult) -> bool| tests.iter().filter(|test| is(&test.result)).count();
        Self {
            passed: count(|result| matches!(result, TestResult::Passed)),
            failed: count(|result| matches!(result, TestResult::Failed(_))),
            not_run: count(|result| matches!(result, TestResult::NotRun { .. })),
            tests,
            plan,
        }
    }

    /// True if at least one test passed, no test failed, and all were completed.
    pub fn is_ok(&self) -> bool {
        self.passed > 0 && self.passed == self.tests.len()
    }
}

/// Rehearses drafts. Nothing but models is called.
#[async_trait]
pub trait Rehearse: Send + Sync {
    /// Rehearses the tests of a draft within `limit`. A test that is not completed in this time is
    /// [`TestResult::NotRun`].
    async fn rehearse(&self, draft: &Draft, tests: &[RehearsalTest], limit: Duration) -> Result<Rehearsed, TestError>;
}

/// A rehearsed turn.
#[derive(Clone, Debug, Default)]
pub struct TurnSeen {
    /// The last status.
    pub status: Status,
    /// Why the turn was cancelled.
    pub reason: Option<String>,
    /// The targets of its actions, in order.
    pub actions: Vec<String>,
    /// Its replies.
    pub replies: Vec<String>,
    /// The calls without an answer.
    pub unanswered: Vec<NoAnswer>,
}

impl TurnSeen {
    /// Returns the first deviation from the expectations in the turn with this number.
    pub fn deviation(&self, turn: usize, expect: &ExpectedTurn) -> Option<Deviation> {
        let (what, expected, got) = self.first_difference(expect)?;
        let unanswered = self.unanswered.iter().map(ToString::to_string).collect();
        Some(Deviation { turn, what: what.to_owned(), expected, got, calls: self.actions.clone(), unanswered })
    }

    fn first_difference(&self, expect: &ExpectedTurn) -> Option<(&'static str, Value, Value)> {
        // A cancelled turn is a failure, unless the test expects the cancellation.
        let wanted = expect.status.or_else(|| (self.status == Status::Cancelled).then_some(Status::Ready));
        if let Some(wanted) = wanted.filter(|wanted| *wanted != self.status) {
            let reason = self.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
            return Some(("status", json!(wanted), format!("{}{reason}", self.status.as_str()).into()));
        }
        if let Some(wanted) = &expect.calls {
            let counts = |action: &&String| !SYSTEM_OPERATIONS.contains(&action.as_str()) || wanted.contains(action);
            let made: Vec<&String> = self.actions.iter().filter(counts).collect();
            if made != wanted.iter().collect::<Vec<_>>() {
                return Some(("calls", json!(wanted), json!(made)));
            }
        }
        let said = self.replies.join("\n");
        if let Some(text) = expect.reply_contains.iter().flat_map(Texts::iter).find(|text| !said.contains(text)) {
            return Some(("reply_contains", json!(text), json!(said)));
        }
        let unwanted = expect.not_contains.iter().flat_map(Texts::iter).find(|text| said.contains(text));
        unwanted.map(|text| ("not_contains", json!(text), json!(said)))
    }
}

/// Returns the first deviation of a run: `output` is its output, or the reason of its failure.
pub fn run_deviation(
    output: Result<&str, String>,
    expect: Option<&ExpectedOutput>,
    unanswered: &[NoAnswer],
) -> Option<Deviation> {
    let unanswered = unanswered.iter().map(ToString::to_string).collect();
    let deviation = |what: &str, expected: Value, got: Value| {
        Some(Deviation { turn: 1, what: what.to_owned(), expected, got, calls: Vec::new(), unanswered })
    };
    let output = match output {
        Ok(output) => output,
        Err(_) if expect.is_some_and(|expect| expect.may_fail) => return None,
        Err(problem) => return deviation("end", json!("completed"), json!(problem)),
    };
    let wanted = expect.and_then(|expect| expect.output_contains.as_ref());
    let missing = wanted.into_iter().flat_map(Texts::iter).find(|text| !output.contains(text));
    if let Some(text) = missing {
        return deviation("output_contains", json!(text), json!(output));
    }
    let unwanted = expect.and_then(|expect| expect.not_contains.as_ref());
    let found = unwanted.into_iter().flat_map(Texts::iter).find(|text| output.contains(text));
    found.and_then(|text| deviation("not_contains", json!(text), json!(output)))
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn tests_are_read_and_the_wrong_field_is_named() {
        let good = json!({"tests": [{"name": "eta", "turns": [{"say": "A1?", "expect": {"calls": ["eta"]}}],
                                     "answers": {"eta": {"days": 2}}}]});
        assert_eq!(tests(&good).unwrap()[0].turns[0].expect.calls, Some(vec!["eta".to_owned()]));
        let error = tests(&json!([{"name": "x", "turns": [{"say": "a", "expects": {}}]}])).unwrap_err().to_string();
        assert!(error.contains("turns[0]") && error.contains("expects"), "{error}");
        assert!(matches!(tests(&json!([])), Err(TestError::None)));
    }

    #[test]
    fn the_first_deviation_of_a_turn_is_named() {
        let seen = TurnSeen {
            actions: vec!["update_profile".into(), "eta".into()],
            replies: vec!["您好".into(), "两天后送到".into()],
            ..TurnSeen::default()
        };
        let what = |expect: Value| {
            seen.deviation(2, &serde_json::from_value(expect).unwrap())
                .map(|deviation| (deviation.turn, deviation.what))
        };
        assert_eq!(what(json!({"status": "ready", "calls": ["eta"], "reply_contains": ["您好", "两天"]})), None);
        assert_eq!(what(json!({"calls": ["update_profile", "eta"], "not_contains": "三天"})), None);
        let of = |what: &str| Some((2, what.to_owned()));
        assert_eq!(what(json!({"status": "transferred", "calls": []})), of("status"));
        assert_eq!(what(json!({"calls": []})), of("calls"));
        assert_eq!(what(json!({"reply_contains": "三天"})), of("reply_contains"));
        assert_eq!(what(json!({"not_contains": ["三天", "两天"]})), of("not_contains"));
        let cancelled = TurnSeen { status: Status::Cancelled, ..seen };
        assert_eq!(cancelled.deviation(1, &ExpectedTurn::default()).unwrap().what, "status");
    }
}
