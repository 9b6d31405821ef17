//! The deterministic rule model: it reads no prompts, only `facts`, and answers by the agent file's `rules`, so that a
//! newcomer and the tests need no key.
//!
//! Which rule speaks:
//! - at the start of a turn the first rule, from the top, whose conditions all hold;
//! - after an action the first rule with a fitting `result_of`; if there is none, the first `always` that ends the turn.
//!   An `always` rule that decides `processing` is passed over then: it would run its action again and again.
//!
//! Where knowledge has been found it keeps what was decided and quotes the best passage.
//!
//! Placeholders of `decide`: the rule's own named groups, `{message}`, and after an action `{result…}`, `{error}`, `{ok}`.

use super::{Facts, Grounds, Model, ModelError, ModelReply, ModelRequest};
use crate::action::template::{Filler, Missing, descend};
use crate::journal::Tokens;
use crate::knowledge::{sentences, terms};
use crate::prompt::is_chinese;
use async_trait::async_trait;
use moka::sync::Cache;
use regex::Regex;
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::sync::LazyLock;

/// What it calls itself.
pub const NAME: &str = "offline";

static PATTERNS: LazyLock<Cache<String, Result<Regex, String>>> = LazyLock::new(|| Cache::new(1_000));

/// The deterministic rule model.
#[derive(Clone, Copy, Debug, Default)]
pub struct Offline;

impl Offline {
    /// It has no state.
    pub fn new() -> Self {
        Self
    }
}

#[async_trait]
impl Model for Offline {
    async fn complete(&self, request: ModelRequest) -> Result<ModelReply, ModelError> {
        let refused = |problem: String| ModelError::Refused { model: NAME.into(), problem };
        let content = match request.schema.as_ref().map(|schema| schema.name.as_ref()) {
            None => match &request.facts.grounds {
                Some(grounds) => quotation(grounds, &request.facts.message),
                None => echo(&request),
            },
            Some("decision" | "plan_and_decision") => answer(&request.facts).map_err(refused)?.to_string(),
            Some(other) => {
                return Err(refused(format!(
                    "it answers by an agent's rules and cannot make a `{other}`; give the agent another model"
                )));
            }
        };
        Ok(ModelReply { content, model: NAME.into(), tokens: Tokens::default(), attempts: 1 })
    }
}

/// Says that it is no language model, and what it was asked.
fn echo(request: &ModelRequest) -> String {
    let asked = match request.facts.message.as_str() {
        "" => request.messages.last().map(|message| message.content.as_str()).unwrap_or_default(),
        message => message,
    };
    let words = asked.split_whitespace().collect::<Vec<_>>().join(" ");
    let brief: String = words.chars().take(80).collect();
    let dots = if brief.len() < words.len() { "…" } else { "" };
    if is_chinese(asked) {
        format!("（离线模型）关于“{brief}{dots}”")
    } else {
        format!("(offline model) on \"{brief}{dots}\"")
    }
}

/// The most bytes that are quoted beyond the first sentence.
const MAX_QUOTED: usize = 300;

/// What was decided, and below it, labelled, what the best passage says to the question.
fn quotation(grounds: &Grounds, question: &str) -> String {
    let Some(best) = grounds.hits.first() else { return grounds.decided.clone() };
    let (words, source) = (quoted(&best.text, question), &best.source);
    let line = match is_chinese(question) {
        true => format!("（离线模型）《{source}》：{words}"),
        false => format!("(offline model) {source}: {words}"),
    };
    if grounds.decided.is_empty() { line } else { format!("{}\n{line}", grounds.decided) }
}

/// The sentence of a passage that has most of the question's words, the first of several, and those after it that are short.
fn quoted(passage: &str, question: &str) -> String {
    let asked: HashSet<String> = terms(question).into_iter().collect();
    let sentences: Vec<&str> = sentences(passage).into_iter().map(|range| passage[range].trim()).collect();
    let shared = |sentence: &str| terms(sentence).iter().filter(|word| asked.contains(*word)).count();
    let best = (0..sentences.len()).rev().max_by_key(|at| shared(sentences[*at])).unwrap_or(0);
    let (mut quoted, mut end) = (0, best);
    while end < sentences.len() && (end == best || quoted + sentences[end].len() <= MAX_QUOTED) {
        quoted += sentences[end].len();
        end += 1;
    }
    let plain = |sentence: &&str| sentence.trim_start_matches(['-', '*', '+', '>', '#', '|', ' ']).replace("**", "");
    let parts: Vec<String> = sentences[best..end].iter().map(plain).filter(|sentence| !sentence.is_empty()).collect();
    let blank = if is_chinese(passage) { "" } else { " " };
    parts.join(blank)
}

fn answer(facts: &Facts) -> Result<Value, String> {
    let decision = decide(facts)?;
    Ok(match &facts.agent {
        Some(agent) if facts.plan => json!({"plan": agent.as_plan(), "decision": decision}),
        None if facts.plan => json!({"plan": {}, "decision": decision}),
        _ => decision,
    })
}

fn decide(facts: &Facts) -> Result<Value, String> {
    let rules = facts.agent.as_ref().map(|agent| agent.rules.as_slice()).unwrap_or_default();
    let parsed: Vec<(usize, Rule<'_>)> = rules
        .iter()
        .enumerate()
        .map(|(at, rule)| {
            Rule::parse(rule).map(|rule| (at + 1, rule)).map_err(|error| format!("rule {}: {error}", at + 1))
        })
        .collect::<Result<_, _>>()?;
    let mut found = parsed.iter().find_map(|(number, rule)| Some((*number, rule, rule.matches(facts)?)));
    if found.is_none() && facts.last_action.is_some() {
        found = parsed.iter().find_map(|(number, rule)| Some((*number, rule, rule.closes(facts)?)));
    }
    match found {
        Some((number, rule, groups)) => rule.decision(number, facts, &groups),
        None => Ok(no_rule(facts)),
    }
}

fn no_rule(facts: &Facts) -> Value {
    let agent = facts.agent.as_ref().map_or("", |agent| agent.sop.as_str());
    let response = if is_chinese(&facts.message) || facts.message.is_empty() && is_chinese(agent) {
        "抱歉，我是离线规则模型，没有适用于这种情况的规则。"
    } else {
        "Sorry, I am the offline rule model and have no rule for this."
    };
    json!({"reasoning": "offline: no rule", "next_status": "typing", "action": null, "response": response})
}

type Groups = Map<String, Value>;

/// One entry of an agent file's `rules`.
#[derive(Clone, Debug)]
pub struct Rule<'a> {
    contains: Vec<String>,
    pattern: Option<Regex>,
    result_of: Option<&'a str>,
    always: bool,
    decide: &'a Map<String, Value>,
}

impl<'a> Rule<'a> {
    /// Reads a rule, or says what is wrong with it.
    pub fn parse(rule: &'a Value) -> Result<Self, String> {
        let when = rule.get("when").and_then(Value::as_object).ok_or("`when` is missing, or not an object")?;
        let decide = rule.get("decide").and_then(Value::as_object).ok_or("`decide` is missing, or not an object")?;
        let mut parsed = Self { contains: Vec::new(), pattern: None, result_of: None, always: false, decide };
        for (condition, value) in when {
            match condition.as_str() {
                "contains" => parsed.contains = words(value)?,
                "matches" => parsed.pattern = Some(pattern(value)?),
                "result_of" => {
                    parsed.result_of = Some(value.as_str().ok_or("`result_of` has to be an action's target")?)
                }
                "always" => parsed.always = value.as_bool().ok_or("`always` has to be true")?,
                other => {
                    return Err(format!(
                        "`{other}` is not a condition; allowed are `contains`, `matches`, `result_of` and `always`"
                    ));
                }
            }
        }
        if parsed.contains.is_empty() && parsed.pattern.is_none() && parsed.result_of.is_none() && !parsed.always {
            return Err("`when` has no condition; for a rule that always holds write `always: true`".into());
        }
        Ok(parsed)
    }

    /// The groups that its pattern found, if all its conditions hold.
    fn matches(&self, facts: &Facts) -> Option<Groups> {
        let last = facts.last_action.as_ref().map(|(target, _)| target.as_str());
        (self.result_of == last).then(|| self.fits(&facts.message)).flatten()
    }

    /// As [`Rule::matches`], for an `always` after an action that no rule names.
    fn closes(&self, facts: &Facts) -> Option<Groups> {
        let goes_on = self.decide.get("next_status").and_then(Value::as_str) == Some("processing");
        (self.always && self.result_of.is_none() && !goes_on).then(|| self.fits(&facts.message)).flatten()
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

    /// `decide` with its placeholders filled.
    fn decision(&self, number: usize, facts: &Facts, groups: &Groups) -> Result<Value, String> {
        let result = facts.last_action.as_ref().map(|(_, result)| result);
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
        // A response is a text whatever fills it.
        let response = match self.decide.get("response").and_then(Value::as_str) {
            Some(template) => filler.text(template)?.map(Value::String),
            None => None,
        };
        Ok(json!({
            "reasoning": format!("offline rule {number}"),
            "next_status": part("next_status")?,
            "action": part("action")?,
            "response": response,
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

fn pattern(value: &Value) -> Result<Regex, String> {
    let text = value.as_str().ok_or("`matches` has to be a regular expression")?;
    PATTERNS.get_with(text.to_owned(), || {
        Regex::new(text).map_err(|error| format!("`matches` is not a regular expression: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::AgentConfig;
    use crate::knowledge::Hit;
    use crate::model::{PromptMessage, PromptRole, ResponseSchema};
    use std::sync::Arc;

    #[tokio::test]
    async fn from_knowledge_it_quotes_the_best_passage_below_what_was_decided() {
        let said = async |decided: &str, text: &str, message: &str| {
            let hit = Hit { source: "kb/a.md".into(), heading: String::new(), line: 1, text: text.into(), score: 1.0 };
            let grounds = Some(Arc::new(Grounds { decided: decided.into(), hits: vec![hit] }));
            let facts = Facts { message: message.into(), grounds, ..Facts::default() };
            let messages = Arc::default();
            let request = ModelRequest { messages, schema: None, idempotency_key: String::new(), facts };
            Offline::new().complete(request).await.unwrap().content
        };
        let text = "我们卖车。- **电池**保修八年。运费由我们承担。";
        assert_eq!(
            said("请稍等。", text, "电池保修多久").await,
            "请稍等。\n（离线模型）《kb/a.md》：电池保修八年。运费由我们承担。"
        );
        let long = format!("One. Routers have lights. {}.", "x".repeat(MAX_QUOTED));
        assert_eq!(said("", &long, "which light").await, "(offline model) kb/a.md: Routers have lights.");
        assert_eq!(
            said("", "- one\n- two routers\n- three", "a router").await,
            "(offline model) kb/a.md: two routers three"
        );
    }

    fn agent() -> Arc<AgentConfig> {
        Arc::new(
            serde_json::from_value(json!({
                "id": "sales", "name": "小智", "tone": "热情", "greeting": "您好", "sop": "步骤", "constraints": "简短",
                "timers": [{"name": "follow_up", "delay": "30m", "message": "还在吗"}],
                "rules": [
                    {"when": {"contains": ["再见", "BYE"]}, "decide": {"next_status": "ready",
                        "action": {"type": "SYSTEM", "target": "close_conversation", "params": {}}}},
                    {"when": {"matches": "订单\\s*(?<order_id>\\w+)(?<rest>x)?"}, "decide": {"next_status": "processing",
                        "action": {"type": "SKILL", "target": "query_order",
                            "params": {"order_id": "{order_id}", "rest": "{rest}", "note": "{order_id}!"}}}},
                    {"when": {"result_of": "query_order", "matches": "急"},
                        "decide": {"next_status": "typing", "response": "急件：{result.items.0.status}"}},
                    {"when": {"result_of": "query_order"},
                        "decide": {"next_status": "typing", "response": "{result.status}/{error}/{ok}/{gone}/{result.n}"}},
                    {"when": {"result_of": "first"}, "decide": {"next_status": "processing",
                        "action": {"type": "TOOL", "target": "second", "params": {"all": "{result}", "n": "{result.n}"}}}},
                    {"when": {"always": true}, "decide": {"next_status": "processing",
                        "action": {"type": "TOOL", "target": "log", "params": {"text": "{message}"}}}},
                    {"when": {"always": true}, "decide": {"next_status": "typing", "response": "请再说详细一点？"}}
                ]
            }))
            .unwrap(),
        )
    }

    fn decision(message: &str, last: Option<(&str, Value)>) -> Value {
        let last_action = last.map(|(target, result)| (target.to_owned(), result));
        answer(&Facts { agent: Some(agent()), message: message.into(), last_action, ..Facts::default() }).unwrap()
    }

    #[test]
    fn the_first_rule_whose_conditions_hold_speaks() {
        assert_eq!(decision("Good bye", None)["action"]["target"], "close_conversation");
        let found = decision("查一下订单 A1", None);
        assert_eq!(found["action"]["params"], json!({"order_id": "A1", "note": "A1!"}));
        assert_eq!((&found["reasoning"], &found["response"]), (&json!("offline rule 2"), &Value::Null));
        assert_eq!(decision("{order_id}", None)["action"]["params"]["text"], "{order_id}");
    }

    #[test]
    fn results_fill_the_response_and_params_keep_their_types() {
        let result = json!({"ok": true, "result": {"status": "{ok}已发货", "n": 2, "items": [{"status": "到了"}]}});
        assert_eq!(decision("订单 A1", Some(("query_order", result.clone())))["response"], "{ok}已发货//true//2");
        assert_eq!(decision("急", Some(("query_order", result.clone())))["response"], "急件：到了");
        let failed = json!({"ok": false, "error": "HTTP 500"});
        assert_eq!(decision("订单 A1", Some(("query_order", failed)))["response"], "/HTTP 500/false//");
        let params = &decision("", Some(("first", result.clone())))["action"]["params"];
        assert_eq!(params, &json!({"all": result["result"], "n": 2}));
    }

    #[test]
    fn an_always_rule_does_not_run_its_action_again() {
        let first = decision("你好", None);
        assert_eq!(first["action"]["target"], "log");
        let then = decision("你好", Some(("log", json!({"ok": true}))));
        assert_eq!((&then["action"], &then["reasoning"]), (&Value::Null, &json!("offline rule 7")));
    }

    #[tokio::test]
    async fn phase_one_takes_the_configuration_over_unchanged() {
        let reply =
            ask(Some("plan_and_decision"), Facts { agent: Some(agent()), plan: true, ..Facts::default() }).await;
        let content: Value = serde_json::from_str(&reply.unwrap().content).unwrap();
        assert_eq!(content["plan"]["sop"], "步骤");
        assert_eq!(content["plan"]["timers"][0]["delay"], "30m");
        assert_eq!(content["decision"]["next_status"], "processing");
    }

    #[tokio::test]
    async fn without_a_rule_it_says_that_it_is_the_offline_model() {
        let facts = |message: &str| Facts { message: message.into(), ..Facts::default() };
        let reply = ask(Some("decision"), facts("hi")).await.unwrap();
        assert!(reply.content.contains("offline rule model") && reply.model == "offline", "{}", reply.content);
        assert!(ask(Some("decision"), facts("你好")).await.unwrap().content.contains("离线规则模型"));
        assert_eq!(ask(None, facts("分析市场")).await.unwrap().content, "（离线模型）关于“分析市场”");
        assert_eq!(ask(None, facts("")).await.unwrap().content, "(offline model) on \"the prompt\"");
        assert!(ask(Some("triage_plan"), facts("x")).await.unwrap_err().to_string().contains("`triage_plan`"));
    }

    #[test]
    fn wrong_rules_are_named() {
        for (rule, part) in [
            (json!({"decide": {}}), "`when` is missing"),
            (json!({"when": {"matches": "("}, "decide": {}}), "not a regular expression"),
            (json!({"when": {"contain": ["x"]}, "decide": {}}), "`contain` is not a condition"),
            (json!({"when": {}, "decide": {}}), "`always: true`"),
            (json!({"when": {"always": true}}), "`decide` is missing"),
        ] {
            let error = Rule::parse(&rule).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    async fn ask(schema: Option<&'static str>, facts: Facts) -> Result<ModelReply, ModelError> {
        let schema = schema.map(|name| ResponseSchema {
            name: name.into(),
            strict: false,
            schema: json!({"type": "object"}).into(),
        });
        let messages = Arc::new(vec![PromptMessage { role: PromptRole::User, content: "the prompt".into() }]);
        Offline::new().complete(ModelRequest { messages, schema, idempotency_key: "k".into(), facts }).await
    }
}
