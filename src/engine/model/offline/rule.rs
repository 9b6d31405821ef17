//! Reads and matches one rule of an agent file.

use crate::model::Facts;
use crate::template::{Filler, Missing, descend};
use moka::sync::Cache;
use regex::Regex;
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

static PATTERNS: LazyLock<Cache<String, Result<Regex, String>>> = LazyLock::new(|| Cache::new(1_000));

/// The values of a pattern's named groups.
pub(super) type Groups = Map<String, Value>;

/// One entry of an agent file's `rules`.
#[derive(Clone, Debug)]
pub struct Rule<'a> {
    contains: Vec<String>,
    pattern: Option<Regex>,
    result_of: Option<&'a str>,
    /// Required outcome of the last action: success or failure.
    ok: Option<bool>,
    always: bool,
    decide: &'a Map<String, Value>,
}

impl<'a> Rule<'a> {
    /// Reads a rule. The error describes the problem and the allowed values.
    pub fn parse(rule: &'a Value) -> Result<Self, String> {
        let when = rule.get("when").and_then(Value::as_object).ok_or("`when` is missing, or not an object")?;
        let decide = rule.get("decide").and_then(Value::as_object).ok_or("`decide` is missing, or not an object")?;
        let mut parsed = Self { contains: Vec::new(), pattern: None, result_of: None, ok: None, always: false, decide };
        for (condition, value) in when {
            match condition.as_str() {
                "contains" => parsed.contains = words(value)?,
                "matches" => parsed.pattern = Some(pattern(value)?),
                "result_of" => {
                    parsed.result_of = Some(value.as_str().ok_or("`result_of` has to be an action's target")?)
                }
                "ok" => parsed.wants(boolean("ok", value)?)?,
                "failed" => parsed.wants(!boolean("failed", value)?)?,
                "always" => parsed.always = value.as_bool().ok_or("`always` has to be true")?,
                other => {
                    return Err(format!(
                        "`{other}` is not a condition; allowed are `contains`, `matches`, `result_of`, `ok`, `failed` and `always`"
                    ));
                }
            }
        }
        let none = parsed.contains.is_empty() && parsed.pattern.is_none() && !parsed.follows_action();
        if none && !parsed.always {
            return Err("`when` has no condition; for a rule that always holds write `always: true`".into());
        }
        Ok(parsed)
    }

    fn wants(&mut self, ok: bool) -> Result<(), String> {
        match self.ok.replace(ok) {
            Some(before) if before != ok => Err("`ok` and `failed` contradict each other; take one out".into()),
            _ => Ok(()),
        }
    }

    /// Whether the rule applies only after an action. Otherwise it applies only before the first one.
    fn follows_action(&self) -> bool {
        self.result_of.is_some() || self.ok.is_some()
    }

    /// Returns the groups of the pattern if all conditions hold.
    pub(super) fn matches(&self, facts: &Facts) -> Option<Groups> {
        let holds = match facts.last_action.as_deref() {
            None => !self.follows_action(),
            Some((target, result)) => {
                let is_ok = result["ok"].as_bool().unwrap_or_default();
                self.follows_action()
                    && self.result_of.is_none_or(|of| of == target)
                    && self.ok.is_none_or(|ok| ok == is_ok)
            }
        };
        holds.then(|| self.fits(&facts.message)).flatten()
    }

    /// Like [`Rule::matches`], for an `always` rule that ends the turn after an action.
    pub(super) fn closes(&self, facts: &Facts) -> Option<Groups> {
        let decided = |name: &str| self.decide.get(name).filter(|value| !value.is_null());
        let goes_on = match facts.agent.as_ref().is_some_and(|agent| agent.is_task_agent()) {
            true => decided("action").is_some(),
            false => decided("next_status").and_then(Value::as_str) == Some("processing"),
        };
        (self.always && !self.follows_action() && !goes_on).then(|| self.fits(&facts.message)).flatten()
    }

    fn fits(&self, message: &str) -> Option<Groups> {
        let lower = message.to_lowercase();
        if !self.contains.is_empty() && !self.contains.iter().any(|word| lower.contains(word)) {
            return None;
        }
        let Some(pattern) = &self.pattern else { return Some(Groups::new()) };
        let captures = pattern.captures(message)?;
        let named = pattern.capture_names().flatten();
        Some(named.filter_map(|name| Some((name.to_owned(), captures.name(name)?.as_str().into()))).collect())
    }

    /// Returns `decide` with its placeholders filled.
    pub(super) fn decision(&self, number: usize, facts: &Facts, groups: &Groups) -> Result<Value, String> {
        let result = facts.last_action.as_ref().map(|last| &last.1);
        let value = |path: &str| -> Option<Value> {
            if let Some(group) = groups.get(path) {
                return Some(group.clone());
            }
            match path.split('.').next()? {
                "message" => (path == "message").then(|| facts.message.clone().into()),
                "result" | "error" | "ok" => descend(result?, path).cloned(),
                _ => None,
            }
        };
        let secret = |token: &str| Ok(token.to_owned());
        let filler = Filler { value: &value, secret: &secret, missing: Missing::Empty };
        let part = |name: &str| self.decide.get(name).map(|part| filler.json(part)).transpose().map(Option::flatten);
        // The response is always a text, even if a placeholder fills all of it.
        let response = match self.decide.get("response").and_then(Value::as_str) {
            Some(template) => filler.text(template)?.map(Value::String),
            None => None,
        };
        Ok(json!({
            "reasoning": format!("offline rule {number}"),
            "next_status": part("next_status")?,
            "action": part("action")?,
            "response": response,
            "output": part("output")?,
            "decisions": part("decisions")?,
        }))
    }
}

fn words(value: &Value) -> Result<Vec<String>, String> {
    let wrong = "`contains` has to be a list of texts";
    match value {
        Value::String(word) => Ok(vec![word.to_lowercase()]),
        Value::Array(list) => {
            list.iter().map(|word| word.as_str().map(str::to_lowercase).ok_or_else(|| wrong.into())).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Err(wrong.into()),
    }
}

fn boolean(name: &str, value: &Value) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| format!("`{name}` has to be true or false"))
}

fn pattern(value: &Value) -> Result<Regex, String> {
    let text = value.as_str().ok_or("`matches` has to be a regular expression")?;
    PATTERNS.get_with(text.to_owned(), || {
        Regex::new(text).map_err(|error| format!("`matches` is not a regular expression: {error}"))
    })
}
