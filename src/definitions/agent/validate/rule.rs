//! Checks the rules of the offline model. A rule has conditions (`when`) and a decision (`decide`).

use super::AgentChecker;
use super::call::{placeholders, texts};
use crate::document::finding::quoted;
use crate::document::wording::in_file_terms;
use base::config::nearest::question;
use decisions::kind::DecisionType;
use regex::Regex;
use serde_json::{Map, Value};
use types::action::Action;
use types::agent::coordinator::Mode;

const CONDITIONS: [&str; 6] = ["contains", "matches", "result_of", "ok", "failed", "always"];

/// The legal values of `next_status`.
const STATUSES: [&str; 4] = ["processing", "typing", "ready", "transferred"];

/// Placeholders that have a value after an action.
const RESULT: [&str; 3] = ["result", "error", "ok"];

/// Checks a rule.
pub(super) fn check(check: &mut AgentChecker<'_>, path: &str, rule: &Value) {
    let table = |name: &str| rule.get(name).and_then(Value::as_object);
    let Some(when) = table("when") else {
        check.report.error(format!("{path}.when"), "is missing or not a table", "write `when: {contains: [再见]}`");
        return;
    };
    let Some(decide) = table("decide") else {
        let hint = "write `decide: {next_status: typing, response: …}`";
        check.report.error(format!("{path}.decide"), "is missing or not a table", hint);
        return;
    };
    let names = conditions(check, &format!("{path}.when"), when);
    let ok = when.get("ok").and_then(Value::as_bool);
    if ok.is_some() && ok == when.get("failed").and_then(Value::as_bool) {
        check.report.error(format!("{path}.when"), "`ok` and `failed` contradict each other", "remove one of them");
    }
    decision(check, &format!("{path}.decide"), decide, &names);
}

/// Checks the conditions. Returns the first names of the placeholders that have a value.
fn conditions(check: &mut AgentChecker<'_>, path: &str, when: &Map<String, Value>) -> Vec<String> {
    let mut names = vec!["message".to_owned()];
    if when.is_empty() {
        check.report.error(path, "has no condition", "for a rule that always holds write `always: true`");
    }
    for (condition, value) in when {
        let path = format!("{path}.{condition}");
        match condition.as_str() {
            "contains" => words(check, &path, value),
            "matches" => names.extend(groups(check, &path, value)),
            "result_of" => {
                target(check, &path, value);
                names.extend(RESULT.map(str::to_owned));
            }
            "ok" | "failed" => {
                if !value.is_boolean() {
                    check.report.error(path, "must be true or false", "");
                }
                names.extend(RESULT.map(str::to_owned));
            }
            "always" if *value != Value::Bool(true) => check.report.error(path, "must be true", "remove it otherwise"),
            "always" => {}
            other => {
                let problem = format!("`{other}` is not a condition; known are {}", quoted(CONDITIONS));
                check.report.error(path, problem, question(other, CONDITIONS));
            }
        }
    }
    names
}

fn words(check: &mut AgentChecker<'_>, path: &str, value: &Value) {
    let filled = |value: &Value| value.as_str().is_some_and(|word| !word.is_empty());
    let legal = match value {
        Value::Array(words) => !words.is_empty() && words.iter().all(filled),
        single => filled(single),
    };
    if !legal {
        check.report.error(path, "must be a list of texts, none of them empty", "write `contains: [再见, bye]`");
    }
}

fn groups(check: &mut AgentChecker<'_>, path: &str, value: &Value) -> Vec<String> {
    let Some(pattern) = value.as_str() else {
        check.report.error(path, "must be a text with a regular expression", "");
        return Vec::new();
    };
    match Regex::new(pattern) {
        Ok(pattern) => pattern.capture_names().flatten().map(str::to_owned).collect(),
        Err(error) => {
            let problem = error.to_string();
            let problem = problem.lines().last().unwrap_or_default().trim().trim_start_matches("error: ").to_owned();
            check.report.error(path, format!("is not a regular expression: {problem}"), "");
            Vec::new()
        }
    }
}

fn target(check: &mut AgentChecker<'_>, path: &str, value: &Value) {
    let skills = check.config.skills.iter().map(|skill| skill.id.as_str());
    let tools = check.config.tools.iter().map(|tool| tool.id.as_str());
    // The results of a coordinator's decisions have the names of their types.
    let decisions: &[DecisionType] = if check.config.mode == Mode::Coordinator { &DecisionType::ALL } else { &[] };
    let known: Vec<&str> = skills.chain(tools).chain(decisions.iter().map(|kind| kind.as_str())).collect();
    let found = value.as_str().unwrap_or_default();
    if !known.contains(&found) {
        let problem = format!("this agent has no skill or tool `{found}`; known are {}", quoted(known.iter().copied()));
        check.report.error(path, problem, question(found, known));
    }
}

fn decision(check: &mut AgentChecker<'_>, path: &str, decide: &Map<String, Value>, names: &[String]) {
    let given = |name: &str| decide.get(name).filter(|value| !value.is_null());
    let (response, action, output) = (given("response"), given("action"), given("output"));
    let status = given("next_status").and_then(Value::as_str).unwrap_or_default();
    let task = check.config.is_task_agent();
    let (decisions, is_coordinator) = (given("decisions"), check.config.mode == Mode::Coordinator);
    // A coordinator's `output` is its whole answer, and so are its `decisions`.
    let whole = is_coordinator && (output.is_some() || decisions.is_some());
    let left_out = (task || whole) && given("next_status").is_none();
    if !left_out && !STATUSES.contains(&status) {
        let problem = format!("found `{status}`; allowed are {}", quoted(STATUSES));
        check.report.error(format!("{path}.next_status"), problem, question(status, STATUSES));
    }
    if response.is_some_and(|response| !response.is_string()) {
        check.report.error(format!("{path}.response"), "must be a text", "");
    }
    if output.is_some_and(|output| !output.is_object()) {
        let hint = "write `output: {is_complete: true}`";
        check.report.error(format!("{path}.output"), "must be a table: the structured answer", hint);
    }
    if let Some(decisions) = decisions {
        listed(check, &format!("{path}.decisions"), decisions, is_coordinator);
    }
    if task {
        serves(check, path, action, response.or(output));
    } else if !whole {
        if output.is_some() {
            check.report.warn(format!("{path}.output"), "has no effect: a chat agent decides", "remove it");
        }
        leads_on(check, path, status, action, response);
    }
    if let Some(action) = action {
        match serde_path_to_error::deserialize::<_, Action>(action) {
            Ok(action) => check.action(&format!("{path}.action"), &action),
            Err(error) => {
                let field = error.path().to_string();
                let field = if field == "." { String::new() } else { format!(".{field}") };
                check.report.error(format!("{path}.action{field}"), in_file_terms(&error.inner().to_string()), "");
            }
        }
    }
    let mut found = Vec::new();
    response.iter().for_each(|response| texts(&format!("{path}.response"), response, &mut found));
    output.iter().for_each(|output| texts(&format!("{path}.output"), output, &mut found));
    decisions.iter().for_each(|decisions| texts(&format!("{path}.decisions"), decisions, &mut found));
    action.iter().for_each(|action| texts(&format!("{path}.action"), action, &mut found));
    filled(check, &found, names);
}

/// Checks the decisions of a rule. Their payloads are checked when they are judged, since placeholders fill them.
fn listed(check: &mut AgentChecker<'_>, path: &str, decisions: &Value, is_coordinator: bool) {
    if !is_coordinator {
        check.report.warn(path, "has no effect: only agents with `mode: coordinator` have decisions", "remove it");
    }
    let Some(decisions) = decisions.as_array().filter(|decisions| !decisions.is_empty()) else {
        let hint = "write `decisions: [{decision_type: respond, payload: {…}}]`";
        check.report.error(path, "must be a list with at least one decision", hint);
        return;
    };
    let known = DecisionType::ALL.map(DecisionType::as_str);
    for (at, decision) in decisions.iter().enumerate() {
        let found = decision.get("decision_type").and_then(Value::as_str).unwrap_or_default();
        if !known.contains(&found) {
            let problem = format!("found `{found}`; allowed are {}", quoted(known));
            check.report.error(format!("{path}[{at}].decision_type"), problem, question(found, known));
        }
        if !decision.get("payload").is_some_and(Value::is_object) {
            check.report.error(format!("{path}[{at}].payload"), "must be a table with the fields of the decision", "");
        }
    }
}

/// Warns of placeholders without a value in these texts.
fn filled(check: &mut AgentChecker<'_>, found: &[(String, &str)], names: &[String]) {
    for (path, text) in found {
        for placeholder in placeholders(text) {
            let root = placeholder.split('.').next().unwrap_or(placeholder);
            if !names.iter().any(|name| name == root) {
                let known = quoted(names.iter().map(String::as_str));
                let problem = format!("`{{{placeholder}}}` has no value in this rule; known are {known}");
                check.report.warn(path.clone(), problem, "name a group in `matches`, or add `result_of`");
            }
        }
    }
}

/// Checks a task agent's decision: it answers its stage or calls a tool, and needs no status.
fn serves(check: &mut AgentChecker<'_>, path: &str, action: Option<&Value>, response: Option<&Value>) {
    if action.is_none() && response.is_none() {
        let hint = "write `response: …`, or `action: {type: TOOL, target: …}`";
        check.report.error(path, "has neither `response` nor `action`", hint);
    }
    let kind = action.and_then(|action| action.get("type")).and_then(Value::as_str);
    if let Some(kind @ ("SKILL" | "FLOW" | "SYSTEM")) = kind {
        let problem = format!("found `{kind}`; a task agent calls tools only");
        check.report.error(format!("{path}.action.type"), problem, "write `type: TOOL`");
    }
}

/// Checks that a chat agent's decision has the fields that its status requires.
fn leads_on(check: &mut AgentChecker<'_>, path: &str, status: &str, action: Option<&Value>, response: Option<&Value>) {
    match (status, action, response) {
        (status @ ("typing" | "transferred"), _, None) => {
            check.report.error(path, format!("`{status}` needs a `response`"), "write the text for the user");
        }
        ("ready", _, Some(_)) => {
            let hint = "use `typing` to send it";
            check.report.warn(
                format!("{path}.response"),
                "is dropped, because `ready` ends the turn without a reply",
                hint,
            );
        }
        ("processing", None, None) => {
            check.report.warn(path, "`processing` without an action makes no progress", "give it an `action`");
        }
        _ => {}
    }
}
