//! The checks of a draft: the same validators as for documents that a person stores, the rule for secrets, and a
//! rehearsal of its tests in memory.

use super::artifact::{ReadError, read};
use super::{Workbench, failing_calls, secrets};
use crate::admission::{self, AdmissionError, WorkersOverview};
use crate::rehearsal::{Draft, DraftKnowledge, RehearsalTest, Rehearsed, RehearsedTest, TestResult};
use decisions::authoring::Checked;
use definitions::difference::new_hosts;
use definitions::document::Finding;
use serde_json::{Value, json};
use std::time::Duration;
use storage::store::{Definition, DraftVersion, StoreError};
use thiserror::Error;
use types::allowed_secrets::AllowedSecrets;
use types::authoring::StoredState;
use types::authoring::message::{Debugging, TestResults};
use types::excerpt::cut;
use types::plan::Plan;

/// The part of a stage's time that the rehearsal must not use.
const MARGIN: Duration = Duration::from_secs(2);
/// The largest size of one value in the report of a test, in bytes.
const MAX_VALUE: usize = 4 * 1024;
/// The most findings in a report, and the most calls in the report of a test.
const MAX_FINDINGS: usize = 50;
/// The largest size of one call in the report of a test, in bytes.
const MAX_CALL: usize = 256;

/// Why a draft could not be checked.
#[derive(Debug, Error)]
pub enum CheckError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The document of the draft no longer exists. The model writes it again.
    #[error("the draft {0} is no longer stored")]
    Lost(String),
}

/// The result of the checks of a draft.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// For the machine of the dialogue.
    pub checked: Checked,
    /// The plan of the agent, made by the rehearsal.
    pub plan: Option<Plan>,
}

/// Checks the last draft of a dialogue within `limit`, the remaining time of its stage. Caches the plan of its agent,
/// so that the first user after the publication does not wait for the planning.
pub async fn check(bench: &Workbench, stored: &StoredState, limit: Duration) -> Result<Checked, CheckError> {
    let lost = || CheckError::Lost(stored.draft.as_ref().map(|draft| draft.hash.clone()).unwrap_or_default());
    let version = super::artifact::draft(bench.store.as_ref(), stored, None).await?.ok_or_else(lost)?;
    let base = super::artifact::source(bench.store.as_ref(), stored).await?;
    let store = bench.store.as_ref();
    let reads_texts = super::artifact::reads_texts(store, stored, &stored.state.user_id).await?;
    let subject = Subject {
        version: &version,
        cases: &cases(stored),
        base: base.as_ref().map(|base| &base.document),
        knowledge: DraftKnowledge::stored(reads_texts),
    };
    let verdict = examine(bench, subject, limit).await?;
    if let Some(plan) = verdict.plan {
        bench.store.put_plan(plan).await?;
    }
    Ok(verdict.checked)
}

/// Returns the tests that the model has written for the current draft.
pub(super) fn cases(stored: &StoredState) -> Vec<RehearsalTest> {
    let cases = stored.draft.iter().flat_map(|draft| &draft.cases);
    cases.filter_map(|text| serde_json::from_str(text).ok()).collect()
}

/// A document to examine.
#[derive(Clone, Debug)]
pub struct Subject<'a> {
    /// The document. It need not be stored.
    pub version: &'a DraftVersion,
    /// Its tests.
    pub cases: &'a [RehearsalTest],
    /// The document from which it was made.
    pub base: Option<&'a Value>,
    /// The texts from which an agent answers.
    pub knowledge: DraftKnowledge,
}

/// Checks a document, and writes nothing.
pub async fn examine(bench: &Workbench, subject: Subject<'_>, limit: Duration) -> Result<Verdict, StoreError> {
    let Subject { version, cases, base, knowledge } = subject;
    let started = bench.clock.moment();
    let (admitted, errors, mut warnings) = validate(bench, version).await?;
    if let Some(base) = base {
        warnings.extend(new_hosts(base, &version.document).into_iter().map(|called| {
            let problem = format!("calls a host that the document it began with does not call: `{}`", called.host);
            json!({"path": called.path, "problem": problem, "rule": "new_host"})
        }));
    }
    let mut report = Debugging { errors, warnings, ..Debugging::default() };
    let mut plan = None;
    if let Some(definition) = admitted.filter(|_| report.errors.is_empty()) {
        let mut tests = cases.to_vec();
        tests.push(failing_calls::test(version.artifact, &version.document, cases));
        let limit = limit.saturating_sub(MARGIN.min(limit / 5)).saturating_sub(started.until(bench.clock.moment()));
        let rehearsed = rehearse(bench, &drafted(definition, knowledge), &tests, limit).await;
        report.tests = results(&rehearsed);
        plan = rehearsed.plan;
        // The engine's own test does not test the purpose of the document.
        let counts = |test: &RehearsedTest| cases.is_empty() || test.name != failing_calls::NAME;
        let has_run = |test: &RehearsedTest| !matches!(test.result, TestResult::NotRun { .. });
        if !rehearsed.tests.iter().any(|test| counts(test) && has_run(test)) {
            let hint = "give the dialogue more time (`config.timeout_seconds`), or see why no test could run";
            report
                .errors
                .push(json!({"path": "tests", "problem": "no test has run", "hint": hint, "rule": "not_tested"}));
        }
    }
    report.errors.truncate(MAX_FINDINGS);
    report.warnings.truncate(MAX_FINDINGS);
    report.ok = report.errors.is_empty() && report.tests.failed.is_empty();
    let problems = problems(&report);
    Ok(Verdict { checked: Checked { report, problems }, plan })
}

/// Returns the document as an agent or workflow that can work, or the errors of the validators.
pub async fn usable(bench: &Workbench, version: &DraftVersion) -> Result<Result<Definition, Vec<Value>>, StoreError> {
    let (definition, errors, _) = validate(bench, version).await?;
    Ok(definition.ok_or(errors))
}

/// Returns the definition if it can work, the errors, and the warnings.
pub(super) async fn validate(
    bench: &Workbench,
    version: &DraftVersion,
) -> Result<(Option<Definition>, Vec<Value>, Vec<Value>), StoreError> {
    let store = bench.store.as_ref();
    let allowed = WorkersOverview::from_store(store).await?.check_against(store, &bench.known).await?;
    let admitted = match read(version, bench.clock.now()) {
        Ok(Definition::Agent(agent)) => admission::agent(store, &bench.known, agent)
            .await
            .map(|(agent, warnings)| (Definition::Agent(agent), warnings)),
        Ok(Definition::Workflow(workflow)) => admission::workflow(store, bench.flows.clone(), &bench.known, workflow)
            .await
            .map(|(workflow, warnings)| (Definition::Workflow(workflow), warnings)),
        Err(ReadError::Agent(error)) => Err(AdmissionError::Agent(error)),
        Err(ReadError::Workflow(error)) => Err(AdmissionError::Workflow(error)),
    };
    let (admitted, errors, warnings) = match admitted {
        Ok((definition, warnings)) => (Some(definition), Vec::new(), warnings),
        Err(error) => (None, error.into_findings()?, Vec::new()),
    };
    let errors = with_refused_secrets(version, allowed.secrets(), &errors);
    let admitted = admitted.filter(|_| errors.is_empty());
    Ok((admitted, errors, warnings.iter().map(|finding| json!(finding)).collect()))
}

/// Adds the violations of the rule for secrets to the errors. If a validator has reported a violation already, its
/// error only gets the name of the rule.
fn with_refused_secrets(version: &DraftVersion, allowed: &AllowedSecrets, errors: &[Finding]) -> Vec<Value> {
    let refused = secrets::refused(version.artifact, &version.document, allowed);
    let mut found: Vec<Value> = errors
        .iter()
        .map(|finding| {
            let mut shown = json!(finding);
            if refused.iter().any(|(_, refusal)| finding.problem == refusal.problem()) {
                shown["rule"] = secrets::RULE.into();
            }
            shown
        })
        .collect();
    for (secret, refusal) in refused {
        if errors.iter().all(|finding| finding.problem != refusal.problem()) {
            let (problem, hint) = (refusal.problem(), refusal.remedy());
            found.push(json!({"path": secret.path, "problem": problem, "hint": hint, "rule": secrets::RULE}));
        }
    }
    found
}

fn drafted(definition: Definition, knowledge: DraftKnowledge) -> Draft {
    match definition {
        Definition::Agent(agent) => Draft::Agent(agent, knowledge),
        Definition::Workflow(workflow) => Draft::Workflow(workflow),
    }
}

async fn rehearse(bench: &Workbench, draft: &Draft, tests: &[RehearsalTest], limit: Duration) -> Rehearsed {
    let not_run = |reason: &str| {
        let tests = tests.iter().map(|test| {
            let result = TestResult::NotRun { reason: reason.to_owned() };
            RehearsedTest { name: test.name.clone(), result }
        });
        Rehearsed::new(tests.collect(), None)
    };
    let Some(rehearsal) = &bench.rehearsal else { return not_run("this process cannot rehearse drafts") };
    match rehearsal.rehearse(draft, tests, limit).await {
        Ok(rehearsed) => rehearsed,
        Err(error) => not_run(&error.to_string()),
    }
}

fn results(rehearsed: &Rehearsed) -> TestResults {
    let of = |wanted: fn(&TestResult) -> bool| {
        let tests = rehearsed.tests.iter().filter(|test| wanted(&test.result));
        tests.map(|test| shortened(json!(test))).collect()
    };
    TestResults {
        passed: u32::try_from(rehearsed.passed).unwrap_or(u32::MAX),
        failed: of(|result| matches!(result, TestResult::Failed(_))),
        not_run: of(|result| matches!(result, TestResult::NotRun { .. })),
    }
}

/// Cuts the values of a report: it is an event, which must fit into a message of the queue.
fn shortened(mut test: Value) -> Value {
    for field in ["calls", "unanswered"] {
        let Some(calls) = test.get_mut(field).and_then(Value::as_array_mut) else { continue };
        calls.truncate(MAX_FINDINGS);
        for call in calls {
            if let Some(text) = call.as_str().filter(|text| text.len() > MAX_CALL) {
                *call = cut(text, MAX_CALL).into();
            }
        }
    }
    for field in ["expected", "got", "reason"] {
        let Some(value) = test.get_mut(field) else { continue };
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        if text.len() > MAX_VALUE {
            *value = cut(&text, MAX_VALUE).into();
        }
    }
    test
}

/// Returns the reasons why a draft failed, one sentence each.
fn problems(report: &Debugging) -> Vec<String> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let finding = |finding: &Value| {
        let (path, problem) = (text(&finding["path"]), text(&finding["problem"]));
        let hint = finding["hint"].as_str().filter(|hint| !hint.is_empty());
        let begin = if path.is_empty() { problem } else { format!("{path}: {problem}") };
        hint.map_or(begin.clone(), |hint| format!("{begin}; {hint}"))
    };
    let failed = |test: &Value| {
        let (name, turn, what) = (text(&test["name"]), &test["turn"], text(&test["what"]));
        let mut sentence = format!(
            "test `{name}`, turn {turn}: {what} should be {}, and is {}",
            text(&test["expected"]),
            text(&test["got"])
        );
        let missing: Vec<String> = test["unanswered"].as_array().into_iter().flatten().map(text).collect();
        if !missing.is_empty() {
            sentence.push_str(&format!(" ({})", missing.join("; ")));
        }
        sentence
    };
    report.errors.iter().map(finding).chain(report.tests.failed.iter().map(failed)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_of_a_test_is_bounded() {
        let long = "x".repeat(100_000);
        let test = json!({"name": "n", "result": "failed", "turn": 1, "what": "calls", "expected": long, "got": [long],
            "calls": vec![long.as_str(); 1_000], "unanswered": vec![long.as_str(); 1_000]});
        let short = shortened(test);
        assert!(short.to_string().len() < 3 * (MAX_VALUE + MAX_FINDINGS * MAX_CALL), "{}", short.to_string().len());
        assert_eq!((&short["what"], short["unanswered"].as_array().unwrap().len()), (&json!("calls"), MAX_FINDINGS));
    }
}
