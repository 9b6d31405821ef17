//! The deterministic rule model. It does not read prompts, only [`Facts`], and answers by the `rules` of the agent
//! file. First steps and tests therefore need no API key.
//!
//! Choice of the rule:
//! - At the start of a turn: the first rule whose conditions all hold.
//! - After an action: the first rule with a matching `result_of`, `ok` or `failed`. Without such a rule, the first
//!   `always` rule that ends the turn. An `always` rule that decides `processing` is skipped, because it would run its
//!   action again and again.
//!
//! For a task agent (`system_prompt`), `response` is the answer, `action` is a tool call, and `output` is the answer if
//! a structure is requested. Without a matching rule the answer repeats the question. If knowledge was found, the
//! answer is the decided reply followed by a quotation of the best passage (`quotation`).
//!
//! The six answers of an authoring dialogue are made by the fixed rules of `author`.
//!
//! Placeholders in `decide`: the named groups of the rule's own pattern, `{message}`, and after an action `{result…}`,
//! `{error}` and `{ok}`. [`rule`] reads one rule.

mod author;
mod quotation;
pub mod rule;

use super::{DeltaSink, Facts, Model, ModelError, ModelReply, ModelRequest, ModelToolCall};
use crate::prompt::is_chinese;
use async_trait::async_trait;
use decisions::authoring::Question;
use decisions::schema::{CONVERSATION, PLAN_AND_CONVERSATION};
use quotation::quotation;
use rule::{Groups, Rule};
use serde_json::{Value, json};
use types::action::{Action, ActionKind};

/// The name that the model reports.
pub(crate) const OFFLINE_NAME: &str = "offline";

/// Number of pieces of a streamed answer.
const STREAMED_PIECES: usize = 4;

/// The deterministic rule model.
#[derive(Clone, Copy, Debug, Default)]
pub struct Offline;

impl Offline {
    /// Creates the model. It has no state.
    pub fn new() -> Self {
        Self
    }
}

#[async_trait]
impl Model for Offline {
    async fn complete(&self, request: ModelRequest) -> Result<ModelReply, ModelError> {
        let refused = |problem: String| ModelError::Refused { model: OFFLINE_NAME.into(), problem };
        let task = request.facts.agent.as_ref().is_some_and(|agent| agent.is_task_agent());
        let content = match request.schema.as_ref().map(|schema| schema.name.as_ref()) {
            None if task => return serve(&request).map_err(refused),
            None => match &request.facts.grounds {
                Some(grounds) => quotation(grounds, &request.facts.message),
                None => echo(&request),
            },
            Some("decision" | "plan_and_decision") => {
                let answer = answer(&request.facts).map_err(refused)?;
                // A `Value` always serialises. Faster than its `Display`.
                serde_json::to_string(&answer).unwrap_or_default()
            }
            Some(name @ (CONVERSATION | PLAN_AND_CONVERSATION)) => {
                let answer = coordinator_answer(&request.facts).map_err(refused)?;
                let plan = request.facts.agent.as_ref().map_or_else(|| json!({}), |agent| agent.as_plan());
                match name {
                    PLAN_AND_CONVERSATION => json!({"plan": plan, "answer": answer}).to_string(),
                    _ => answer.to_string(),
                }
            }
            Some(name) if let Some(question) = Question::of_schema(name) => match &request.facts.authoring {
                Some(dialogue) => author::answer(question, dialogue).to_string(),
                None if task => structure(&request, name).map_err(refused)?,
                None => return Err(refused(format!("`{name}` needs a dialogue that authors; this request has none"))),
            },
            Some(name) if task => structure(&request, name).map_err(refused)?,
            Some(other) => {
                return Err(refused(format!(
                    "it answers by an agent's rules and cannot make a `{other}`; give the agent another model"
                )));
            }
        };
        Ok(ModelReply::text(content, OFFLINE_NAME))
    }

    async fn stream(&self, request: ModelRequest, deltas: DeltaSink) -> Result<ModelReply, ModelError> {
        let reply = self.complete(request).await?;
        let chars: Vec<char> = reply.content.chars().collect();
        for piece in chars.chunks(chars.len().div_ceil(STREAMED_PIECES).max(1)) {
            deltas.send(&piece.iter().collect::<String>());
            // Lets the reader receive the pieces one by one.
            tokio::task::yield_now().await;
        }
        Ok(reply)
    }
}

/// The answer of a task agent, by its rules.
fn serve(request: &ModelRequest) -> Result<ModelReply, String> {
    let Some((number, rule, groups)) = find(&request.facts)? else {
        return Ok(ModelReply::text(echo(request), OFFLINE_NAME));
    };
    let mut decision = rule.decision(number, &request.facts, &groups)?;
    let mut reply = ModelReply::text(decision["response"].as_str().unwrap_or_default(), OFFLINE_NAME);
    if !decision["action"].is_null() {
        let action: Action = serde_json::from_value(decision["action"].take())
            .map_err(|error| format!("rule {number}: `action`: {error}"))?;
        if action.kind != ActionKind::Tool {
            let kind = action.kind.as_str();
            return Err(format!(
                "rule {number}: `action` is a {kind}; a task agent has tools only, write `type: TOOL`"
            ));
        }
        let id = format!("call_{}", request.messages.len());
        reply.tool_calls.push(ModelToolCall::new(id, action.target, json!(action.params).to_string()));
    } else if decision["response"].is_null() {
        match &decision["output"] {
            Value::Null => return Err(format!("rule {number} has neither `response` nor `action`; give it one")),
            output => reply.content = output.to_string(),
        }
    }
    Ok(reply)
}

/// The answer of a task agent if a structure is requested, by its rules.
fn structure(request: &ModelRequest, name: &str) -> Result<String, String> {
    let Some((number, rule, groups)) = find(&request.facts)? else {
        let agent = request.facts.agent.as_ref().map_or("", |agent| agent.id.as_str());
        return Err(format!(
            "it answers by rules, and none of agent `{agent}` fits; add a rule with \
             `output: {{…}}` for `{name}`, or use another model"
        ));
    };
    let decision = rule.decision(number, &request.facts, &groups)?;
    match (&decision["output"], &decision["response"]) {
        (Value::Null, Value::String(response)) => Ok(response.clone()),
        (Value::Null, _) => Err(format!("rule {number} has no `output`, which `{name}` needs")),
        (output, _) => Ok(output.to_string()),
    }
}

/// The answer without a matching rule: names the model and repeats the start of the question.
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

/// The answer of a coordinator, by its rules: `output` as it is, else `decisions`, else `response` as a reply, else
/// `action`.
fn coordinator_answer(facts: &Facts) -> Result<Value, String> {
    let mut decision = decide(facts)?;
    if let Some(answer) = decision.get_mut("output").filter(|output| output.is_object()) {
        return Ok(answer.take());
    }
    let reasoning = decision["reasoning"].take();
    if let Some(decisions) = decision.get_mut("decisions").filter(|decisions| decisions.is_array()) {
        return Ok(json!({"reasoning": reasoning, "intent": null, "decisions": decisions.take(), "action": null}));
    }
    let Some(text) = decision["response"].as_str().filter(|_| decision["action"].is_null()) else {
        return Ok(json!({"reasoning": reasoning, "decisions": [], "action": decision["action"]}));
    };
    let reply = json!({"action_type": "respond", "response": text, "intent": "simple_query", "confidence": 1.0});
    let decision = json!({"decision_type": "respond", "confidence": 1.0, "payload": reply});
    Ok(json!({"reasoning": reasoning, "intent": "SIMPLE_QUERY", "decisions": [decision], "action": null}))
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
    match find(facts)? {
        Some((number, rule, groups)) => rule.decision(number, facts, &groups),
        None => Ok(no_rule(facts)),
    }
}

/// Finds the rule to apply. Returns its number, the rule, and the groups of its pattern.
fn find(facts: &Facts) -> Result<Option<(usize, Rule<'_>, Groups)>, String> {
    let rules = facts.agent.as_ref().map(|agent| agent.rules.as_slice()).unwrap_or_default();
    let parsed = rules
        .iter()
        .enumerate()
        .map(|(at, rule)| Rule::parse(rule).map_err(|error| format!("rule {}: {error}", at + 1)));
    let mut parsed = parsed.collect::<Result<Vec<_>, _>>()?;
    let mut found = parsed.iter().enumerate().find_map(|(at, rule)| Some((at, rule.matches(facts)?)));
    if found.is_none() && facts.last_action.is_some() {
        found = parsed.iter().enumerate().find_map(|(at, rule)| Some((at, rule.closes(facts)?)));
    }
    Ok(found.map(|(at, groups)| (at + 1, parsed.swap_remove(at), groups)))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{PromptMessage, PromptRole, ResponseSchema};
    use std::sync::Arc;
    use types::agent::AgentConfig;

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
        let last_action = last.map(|(target, result)| Arc::new((target.to_owned(), result)));
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
    fn a_rule_can_ask_whether_the_action_failed() {
        let decide = |text: &str| json!({"next_status": "typing", "response": text});
        let agent: AgentConfig = serde_json::from_value(json!({
            "id": "a", "sop": "x",
            "rules": [
                {"when": {"result_of": "order", "failed": true}, "decide": decide("no such order")},
                {"when": {"failed": true, "matches": "(?<id>A1)"}, "decide": decide("{id} failed")},
                {"when": {"failed": true}, "decide": decide("failed")},
                {"when": {"result_of": "order"}, "decide": decide("{result}")},
                {"when": {"ok": true}, "decide": decide("done")},
                {"when": {"always": true}, "decide": decide("else")},
            ]
        }))
        .unwrap();
        let agent = Arc::new(agent);
        let said = |message: &str, last: Option<(&str, bool)>| {
            let result =
                |ok| if ok { json!({"ok": true, "result": "sent"}) } else { json!({"ok": false, "error": "500"}) };
            let last_action = last.map(|(target, ok)| Arc::new((target.to_owned(), result(ok))));
            let facts =
                Facts { agent: Some(Arc::clone(&agent)), message: message.into(), last_action, ..Facts::default() };
            answer(&facts).unwrap()["response"].as_str().unwrap().to_owned()
        };
        assert_eq!(said("A1", Some(("order", false))), "no such order");
        assert_eq!(said("A1", Some(("eta", false))), "A1 failed");
        assert_eq!(said("x", Some(("eta", false))), "failed");
        assert_eq!(said("x", Some(("order", true))), "sent");
        assert_eq!(said("x", Some(("eta", true))), "done");
        assert_eq!(said("x", None), "else", "before the first action neither `ok` nor `failed` holds");
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
            (json!({"when": {"failed": "yes"}, "decide": {}}), "`failed` has to be true or false"),
            (json!({"when": {"failed": true, "ok": true}, "decide": {}}), "contradict"),
            (json!({"when": {}, "decide": {}}), "`always: true`"),
            (json!({"when": {"always": true}}), "`decide` is missing"),
        ] {
            let error = Rule::parse(&rule).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[tokio::test]
    async fn a_task_agent_answers_in_words_and_calls_its_tools() {
        let agent: AgentConfig = serde_json::from_value(json!({
            "id": "task", "system_prompt": "查天气。", "tools": [{"id": "weather"}],
            "rules": [
                {"when": {"result_of": "weather"}, "decide": {"response": "{message}：{result.sky}{error}"}},
                {"when": {"matches": "(?<city>上海|北京)"}, "decide": {"response": "我看看。",
                    "action": {"type": "TOOL", "target": "weather", "params": {"city": "{city}"}}}},
                {"when": {"contains": "bad"}, "decide": {"action": {"type": "SKILL", "target": "x", "params": {}}}},
                {"when": {"contains": "idle"}, "decide": {"next_status": "ready"}},
            ]
        }))
        .unwrap();
        let agent = Arc::new(agent);
        let facts = |message: &str, last: Option<Value>| Facts {
            agent: Some(Arc::clone(&agent)),
            message: message.into(),
            last_action: last.map(|result| Arc::new(("weather".into(), result))),
            ..Facts::default()
        };
        let called = ask(None, facts("上海明天", None)).await.unwrap();
        let call = &called.tool_calls[0];
        assert_eq!((called.content.as_str(), call.name.as_str()), ("我看看。", "weather"));
        assert_eq!((call.id.as_str(), call.arguments.as_str()), ("call_1", r#"{"city":"上海"}"#));
        let result = json!({"ok": true, "result": {"sky": "晴"}});
        assert_eq!(
            ask(None, facts("上海明天", Some(result))).await.unwrap(),
            ModelReply::text("上海明天：晴", "offline")
        );
        assert_eq!(ask(None, facts("在吗", None)).await.unwrap().content, "（离线模型）关于“在吗”");
        for (message, part) in [("bad", "write `type: TOOL`"), ("idle", "neither `response` nor `action`")] {
            assert!(ask(None, facts(message, None)).await.unwrap_err().to_string().contains(part), "{message}");
        }
    }

    #[tokio::test]
    async fn a_task_agent_answers_with_a_structure_where_one_is_wanted() {
        let agent: AgentConfig = serde_json::from_value(json!({
            "id": "planner", "system_prompt": "计划。",
            "rules": [
                {"when": {"matches": "P(?<level>[1-4])"}, "decide": {"output": {"action": "plan",
                    "plan": [{"step": 1, "agent": "servicenow", "question": "P{level}？"}]}}},
                {"when": {"contains": "words"}, "decide": {"response": "{\"action\":\"reject\"}"}},
                {"when": {"contains": "tool"}, "decide": {"action": {"type": "TOOL", "target": "x", "params": {}}}},
            ]
        }))
        .unwrap();
        let agent = Arc::new(agent);
        let facts =
            |message: &str| Facts { agent: Some(Arc::clone(&agent)), message: message.into(), ..Facts::default() };
        let planned = ask(Some("triage_plan"), facts("有哪些P1")).await.unwrap().content;
        let steps = json!([{"step": 1, "agent": "servicenow", "question": "P1？"}]);
        assert_eq!(serde_json::from_str::<Value>(&planned).unwrap(), json!({"action": "plan", "plan": steps}));
        assert_eq!(ask(None, facts("有哪些P1")).await.unwrap().content, planned, "even if a text is requested");
        assert_eq!(ask(Some("review"), facts("words")).await.unwrap().content, "{\"action\":\"reject\"}");
        for (message, part) in
            [("tool", "rule 3 has no `output`, which `review` needs"), ("其他", "none of agent `planner` fits")]
        {
            let refused = ask(Some("review"), facts(message)).await.unwrap_err().to_string();
            assert!(refused.contains(part), "{refused}");
        }
    }

    #[tokio::test]
    async fn a_streamed_answer_comes_in_a_few_pieces() {
        let (sink, mut deltas) = crate::model::delta::deltas();
        let request = ModelRequest::new(vec![PromptMessage::new(PromptRole::User, "研究电池回收")]);
        let read = async {
            let mut pieces = Vec::new();
            while let Some(piece) = deltas.next().await {
                pieces.push(piece.content);
            }
            pieces
        };
        let model = Offline::new();
        let (reply, pieces) = tokio::join!(model.stream(request, sink), read);
        assert_eq!(pieces.concat(), reply.unwrap().content);
        assert!((2..=STREAMED_PIECES).contains(&pieces.len()), "{pieces:?}");
    }

    async fn ask(schema: Option<&'static str>, facts: Facts) -> Result<ModelReply, ModelError> {
        let request = ModelRequest::new(vec![PromptMessage::new(PromptRole::User, "the prompt")]).with_facts(facts);
        let named = |name: &'static str| ResponseSchema {
            name: name.into(),
            strict: false,
            schema: json!({"type": "object"}).into(),
        };
        let request = match schema.map(named) {
            Some(schema) => request.with_schema(schema),
            None => request,
        };
        Offline::new().complete(request).await
    }
}
