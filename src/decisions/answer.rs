//! Reads the model's answer: `conversation_decision` and `plan_and_conversation_decision`. Every error is a text that the
//! model reads.

use crate::kind::{Decision, DecisionType, Intent};
use crate::limits::MAX_DECISIONS;
use crate::path::shown;
use crate::table::payloads::ACTION_TYPE;
use serde_json::{Map, Value};
use types::json_kind::json_kind;

/// An answer of the model, read and not validated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// The model's explanation, for the log.
    pub reasoning: Option<String>,
    /// The model's reading of the message.
    pub intent: Option<Intent>,
    /// The decisions, in the order of the answer.
    pub decisions: Vec<Decision>,
    /// The action of an ordinary agent. It counts if there are no decisions.
    pub action: Option<Map<String, Value>>,
}

impl Answer {
    /// Reads an answer. One decision without the list, and a bare payload with `action_type`, are read, too.
    pub fn read(answer: &Map<String, Value>) -> Result<Self, Vec<String>> {
        let mut errors = Vec::new();
        let read = Self {
            reasoning: answer.get("reasoning").and_then(Value::as_str).map(str::to_owned),
            // An unknown intent has no effect.
            intent: answer.get("intent").and_then(Value::as_str).and_then(Intent::parse),
            decisions: decisions(answer, &mut errors),
            action: action(answer, &mut errors),
        };
        if errors.is_empty() && read.decisions.is_empty() && read.action.is_none() {
            errors.push("`decisions` is empty, and there is no `action`; give at least one decision".to_owned());
        }
        if errors.is_empty() { Ok(read) } else { Err(errors) }
    }

    /// Reads `{"plan": …, "answer": …}`. Returns the plan as it is, with the answer.
    pub fn read_with_plan(both: &Map<String, Value>) -> Result<(Map<String, Value>, Self), Vec<String>> {
        let part = |name: &str| match both.get(name) {
            Some(Value::Object(part)) => Ok(part),
            Some(other) => Err(vec![format!("`{name}` is {}; give an object", json_kind(other))]),
            None => Err(vec![format!("`{name}` is missing; give {{\"plan\": {{…}}, \"answer\": {{…}}}}")]),
        };
        match (part("plan"), part("answer").and_then(Self::read)) {
            (Ok(plan), Ok(answer)) => Ok((plan.clone(), answer)),
            (plan, answer) => Err(plan.err().into_iter().chain(answer.err()).flatten().collect()),
        }
    }

    /// A warning for each decision that does not usually follow from the intent.
    pub fn unusual(&self) -> Vec<String> {
        let Some(intent) = self.intent else { return Vec::new() };
        let unusual = self.decisions.iter().filter(|decision| !intent.decisions().contains(&decision.decision_type));
        let warning = |decision: &Decision| {
            let usual: Vec<_> = intent.decisions().iter().map(|kind| format!("`{kind}`")).collect();
            let (intent, kind) = (intent.as_str(), decision.decision_type);
            format!("`intent` is {intent}, and the decision is `{kind}`; usual is {}", usual.join(" or "))
        };
        unusual.map(warning).collect()
    }
}

fn decisions(answer: &Map<String, Value>, errors: &mut Vec<String>) -> Vec<Decision> {
    match answer.get("decisions") {
        Some(Value::Array(list)) if list.len() > MAX_DECISIONS => {
            errors.push(format!("`decisions` has {} entries; give at most {MAX_DECISIONS}", list.len()));
            Vec::new()
        }
        Some(Value::Array(list)) => {
            let read = list.iter().enumerate().map(|(at, item)| (format!("decisions[{at}]"), item));
            read.filter_map(|(path, item)| one(&path, item, errors)).collect()
        }
        Some(Value::Null) | None if answer.contains_key("decision_type") || answer.contains_key(ACTION_TYPE) => {
            one("decision", &Value::Object(answer.clone()), errors).into_iter().collect()
        }
        Some(Value::Null) | None => Vec::new(),
        Some(one_decision @ Value::Object(_)) => one("decisions", one_decision, errors).into_iter().collect(),
        Some(other) => {
            errors.push(format!("`decisions` is {}; give a list", json_kind(other)));
            Vec::new()
        }
    }
}

/// Reads `{"decision_type", "confidence", "payload"}` or a bare payload.
fn one(path: &str, item: &Value, errors: &mut Vec<String>) -> Option<Decision> {
    let Value::Object(item) = item else {
        errors.push(format!("`{path}` is {}; give {{\"decision_type\", \"payload\"}}", json_kind(item)));
        return None;
    };
    let is_bare = !item.contains_key("payload") && item.contains_key(ACTION_TYPE);
    let (field, name) = match item.get("decision_type") {
        Some(name) => ("decision_type", Some(name)),
        None => (ACTION_TYPE, item.get("payload").unwrap_or(&Value::Null).get(ACTION_TYPE).or(item.get(ACTION_TYPE))),
    };
    let kind = name.and_then(Value::as_str).and_then(DecisionType::parse);
    if kind.is_none() {
        let found = name.and_then(Value::as_str).map_or("missing".to_owned(), |name| format!("`{}`", shown(name, 40)));
        let known = DecisionType::ALL.map(|kind| format!("`{kind}`")).join(", ");
        errors.push(format!("`{path}.{field}` is {found}; give one of {known}"));
    }
    let payload = match item.get("payload") {
        Some(Value::Object(payload)) => Some(payload.clone()),
        None if is_bare => Some(without_envelope(item)),
        Some(other) => {
            errors.push(format!("`{path}.payload` is {}; give an object", json_kind(other)));
            None
        }
        None => {
            errors.push(format!("`{path}.payload` is missing; give the fields of the decision"));
            None
        }
    };
    let confidence = item.get("confidence").and_then(Value::as_f64).filter(|_| !is_bare);
    Some(Decision { decision_type: kind?, confidence, payload: payload? })
}

/// A bare payload. It may have other fields of an answer, too.
fn without_envelope(item: &Map<String, Value>) -> Map<String, Value> {
    let of_answer = ["decision_type", "reasoning", "action", "decisions"];
    let fields = item.iter().filter(|(name, _)| !of_answer.contains(&name.as_str()));
    fields.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn action(answer: &Map<String, Value>, errors: &mut Vec<String>) -> Option<Map<String, Value>> {
    match answer.get("action") {
        Some(Value::Object(action)) => Some(action.clone()),
        None | Some(Value::Null) => None,
        Some(other) => {
            errors.push(format!("`action` is {}; give an object or null", json_kind(other)));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(answer: Value) -> Result<Answer, Vec<String>> {
        Answer::read(&serde_json::from_value(answer).unwrap())
    }

    #[test]
    fn every_form_of_an_answer_is_read() {
        let payload = json!({"action_type": "continue", "thought": "x"});
        let listed = json!({"reasoning": "r", "intent": "simple_query", "decisions": [{"decision_type": "continue", "confidence": 0.5, "payload": payload}], "action": null});
        let answer = read(listed).unwrap();
        assert_eq!((answer.intent, answer.decisions.len()), (Some(Intent::SimpleQuery), 1));
        assert_eq!(answer.decisions[0].confidence, Some(0.5));
        assert!(answer.unusual()[0].contains("continue"));
        for answer in [
            json!({"decision_type": "continue", "payload": payload}),
            json!({"decisions": {"decision_type": "continue", "payload": payload}}),
            json!({"decisions": [payload]}),
            payload.clone(),
        ] {
            let answer = read(answer).unwrap();
            assert_eq!(answer.decisions[0].decision_type, DecisionType::Continue);
            assert_eq!(json!(answer.decisions[0].payload), payload);
        }
        let action = read(json!({"decisions": [], "action": {"type": "SYSTEM"}})).unwrap();
        assert!(action.decisions.is_empty() && action.action.is_some());
    }

    #[test]
    fn errors_name_the_place() {
        let errors = |answer| read(answer).unwrap_err().join("\n");
        assert!(errors(json!({})).contains("`decisions` is empty"));
        assert!(errors(json!({"decisions": vec![json!({}); 9]})).contains("9 entries"));
        assert!(
            errors(json!({"decisions": [5, {"decision_type": "fly"}]}))
                .contains("`decisions[1].decision_type` is `fly`")
        );
        assert!(errors(json!({"decisions": "x"})).contains("a text"));
        let both = Answer::read_with_plan(&serde_json::from_value(json!({"plan": 1})).unwrap()).unwrap_err();
        assert_eq!(both.len(), 2);
    }
}
