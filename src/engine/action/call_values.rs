//! The values of the placeholders of a call: its params, and the facts of its session. `{session.…}` always names a fact of
//! the session, so no param that a model or a user chooses can stand for one.

use crate::template::{TemplatePart, lookup, pieces};
use serde_json::{Map, Value};
use types::agent::{HttpCall, SESSION_PLACEHOLDERS};

/// The session for which a call is made, as the engine knows it. APIs can authorise by it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionFacts {
    /// Id of the session; `None` for a run that belongs to no session.
    pub id: Option<String>,
    /// The user of the session; `None` if no message has named one.
    pub user_id: Option<String>,
    /// The channel.
    pub channel: Option<String>,
}

impl SessionFacts {
    /// The facts, without empty ones.
    pub fn new(id: &str, user_id: &str, channel: &str) -> Self {
        let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        Self { id: given(id), user_id: given(user_id), channel: given(channel) }
    }

    fn find(&self, path: &str) -> Option<&str> {
        match path {
            "session.id" => self.id.as_deref(),
            "session.user_id" => self.user_id.as_deref(),
            "session.channel" => self.channel.as_deref(),
            _ => None,
        }
    }

    /// The error of a placeholder of the session without a value. A call without it might act for everybody, so the call is
    /// not made.
    fn missing(path: &str) -> String {
        let why = match path {
            "session.user_id" => "no message of the session has named its user; send `user_id` with the messages",
            "session.id" | "session.channel" => {
                "the run belongs to no session; start it with `session_id` and `channel`"
            }
            _ => {
                let known: Vec<_> = SESSION_PLACEHOLDERS.iter().map(|name| format!("`{{{name}}}`")).collect();
                return format!("there is no `{{{path}}}`; known are {}", known.join(", "));
            }
        };
        format!("`{{{path}}}` has no value: {why}")
    }
}

/// The values of a call's placeholders.
#[derive(Clone, Copy)]
pub(super) struct CallValues<'a> {
    pub(super) params: &'a Map<String, Value>,
    pub(super) session: &'a SessionFacts,
}

impl CallValues<'_> {
    /// The value at a path.
    pub(super) fn find(&self, path: &str) -> Option<Value> {
        if is_of_session(path) {
            return self.session.find(path).map(Value::from);
        }
        lookup(self.params, path).cloned()
    }

    /// Checks that all placeholders of the session have values. `has_body` is false if the body of the template is not used.
    pub(super) fn check(&self, call: &HttpCall, has_body: bool) -> Result<(), String> {
        self.check_text(&call.url)?;
        call.headers.values().try_for_each(|text| self.check_text(text))?;
        call.query.values().try_for_each(|value| self.check_value(value))?;
        call.body.iter().filter(|_| has_body).try_for_each(|value| self.check_value(value))
    }

    fn check_value(&self, value: &Value) -> Result<(), String> {
        match value {
            Value::String(text) => self.check_text(text),
            Value::Array(items) => items.iter().try_for_each(|item| self.check_value(item)),
            Value::Object(fields) => fields.values().try_for_each(|field| self.check_value(field)),
            Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
        }
    }

    fn check_text(&self, text: &str) -> Result<(), String> {
        let missing = pieces(text).into_iter().find_map(|piece| match piece {
            TemplatePart::Placeholder(path) if is_of_session(path) && self.session.find(path).is_none() => Some(path),
            _ => None,
        });
        missing.map_or(Ok(()), |path| Err(SessionFacts::missing(path)))
    }
}

fn is_of_session(path: &str) -> bool {
    path.starts_with("session.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn no_param_stands_for_a_fact_of_the_session() {
        let params: Map<String, Value> = serde_json::from_value(json!({
            "session": {"id": "forged", "user_id": "forged", "other": "forged"}, "session.id": "forged",
            "session.user_id": "forged", "session.other": "forged",
        }))
        .unwrap();
        let session = SessionFacts::new("s1", "", "web");
        let values = CallValues { params: &params, session: &session };
        assert_eq!(
            (values.find("session.id"), values.find("session.channel")),
            (Some("s1".into()), Some("web".into()))
        );
        for path in ["session.user_id", "session.other", "session.id.x"] {
            assert_eq!(values.find(path), None, "{path}");
        }
        assert_eq!(values.find("session").unwrap()["id"], "forged", "the param itself is data");
    }

    #[test]
    fn a_call_without_a_fact_that_it_needs_is_refused() {
        let call = |call: Value| serde_json::from_value::<HttpCall>(call).unwrap();
        let (params, session) = (Map::new(), SessionFacts::new("s1", "", "web"));
        let values = CallValues { params: &params, session: &session };
        for needy in [
            json!({"url": "https://h/{session.user_id}"}),
            json!({"url": "https://h/", "headers": {"X-User": "u {session.user_id}"}}),
            json!({"url": "https://h/", "query": {"a": ["{session.user_id}"]}}),
            json!({"url": "https://h/", "body": {"a": {"b": "{session.user_id}"}}}),
        ] {
            let refused = values.check(&call(needy.clone()), true).unwrap_err();
            assert!(refused.contains("`{session.user_id}` has no value"), "{needy}: {refused}");
        }
        let fine =
            call(json!({"url": "https://h/{session.id}", "body": "{session.user_id}", "headers": {"a": "{gone}"}}));
        assert_eq!(values.check(&fine, false), Ok(()));
        let unknown = call(json!({"url": "https://h/{session.name}"}));
        assert!(values.check(&unknown, true).unwrap_err().contains("known are `{session.id}`"));
    }
}
