//! What front ends see of a conversation that is handed off. They may show all of it to the user, so they get no notes
//! between colleagues, no notes to the agent's model, and no texts that were held.

use axum::body::Bytes;
use serde_json::Value;
use std::sync::Arc;
use types::access::Role;
use types::event::EventType;
use types::session::{Entry, Session};

/// The session as this role sees it.
pub(super) fn shown_to(role: Role, mut session: Session) -> Session {
    if role == Role::Channel {
        if let Some(handoff) = &mut session.handoff {
            (handoff.notes, handoff.held) = (Vec::new(), Vec::new());
        }
        if session.history.iter().any(Entry::is_note) {
            Arc::make_mut(&mut session.history).retain(|entry| !entry.is_note());
        }
    }
    session
}

/// True if this role sees the payloads of these events as they are.
pub(super) fn is_shown_whole(role: Role, event_type: EventType) -> bool {
    role != Role::Channel || event_type != EventType::Handoff
}

/// The payload of an event as this role sees it: like [`shown_to`].
pub(super) fn event_shown_to(role: Role, event_type: EventType, payload: &Bytes) -> Bytes {
    if is_shown_whole(role, event_type) {
        return payload.clone();
    }
    // What cannot be read cannot be cleaned, so it is not shown.
    let Ok(mut event) = serde_json::from_slice::<Value>(payload) else { return Bytes::from_static(b"{}") };
    if let Some(handoff) = event.get_mut("handoff").and_then(Value::as_object_mut) {
        handoff.insert("notes".to_owned(), Value::Array(Vec::new()));
        handoff.insert("held".to_owned(), Value::Array(Vec::new()));
    }
    event.to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use types::session::Role as Speaker;
    use types::timestamp::Timestamp;

    #[test]
    fn a_front_end_gets_nothing_that_is_not_for_the_user() {
        let at = Timestamp::from_millis(0);
        let said = |kind: &str, text: &str| json!({"role": "human", "text": text, "at": at, "kind": kind});
        let mut session = Session::new("s1", at);
        session.history = Arc::new(
            [said("handoff", "您好"), said("note", "已退款")]
                .map(|entry| serde_json::from_value(entry).unwrap())
                .into(),
        );
        assert!(session.history.iter().all(|entry| entry.role == Speaker::Human));
        let handoff = json!({"turn_id": "m-1", "since": at, "summary": "退款", "unread": 1,
            "notes": [{"id": "c-1", "by": "li", "at": at, "text": "难缠"}], "held": [{"text": "稍等", "at": at}]});
        session.handoff = serde_json::from_value(handoff.clone()).unwrap();
        let shown = |role| serde_json::to_string(&shown_to(role, session.clone())).unwrap();
        let event = Bytes::from(json!({"change": "noted", "handoff": handoff}).to_string());
        let payload = |role| String::from_utf8(event_shown_to(role, EventType::Handoff, &event).to_vec()).unwrap();
        for text in [shown(Role::Channel), payload(Role::Channel)] {
            assert!(
                text.contains("退款") && !["难缠", "稍等", "已退款"].iter().any(|hidden| text.contains(hidden)),
                "{text}"
            );
        }
        assert!(shown(Role::Agent).contains("难缠") && shown(Role::Viewer).contains("已退款"));
        assert_eq!(payload(Role::Agent).as_bytes(), event);
        assert_eq!(event_shown_to(Role::Channel, EventType::Handoff, &Bytes::from_static(b"x")), "{}");
        assert_eq!(event_shown_to(Role::Channel, EventType::Reply, &Bytes::from_static(b"x")), "x");
    }
}
