//! The agents of a run: one with a turn for each message, one with follow-up timers, one that merges messages; and the
//! built-in one of authoring dialogues.

use super::conversations::GREETING;
use super::graph::GRAPH;
use serde::Serialize;
use serde_json::{Value, json};
use std::time::Duration;

/// Name and delay of the timers of [`Manner::Timed`]. The first sends a message, the second calls an action.
pub(super) const TIMERS: [(&str, Duration); 2] =
    [("nudge", Duration::from_millis(1_500)), ("follow_up", Duration::from_millis(2_500))];

/// Text of the first timer.
pub(super) const NUDGE: &str = "Are you still there?";

/// How an agent treats the messages of its sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Manner {
    /// One turn for each message.
    Plain,
    /// One turn for each message, and follow-up timers.
    Timed,
    /// One turn for all waiting messages.
    Merging,
    /// An authoring dialogue: one turn for each message, which may write and publish a workflow.
    Authoring,
}

impl Manner {
    /// The agents that the run applies.
    pub(super) const APPLIED: [Self; 3] = [Self::Plain, Self::Timed, Self::Merging];

    /// The agent's id.
    pub(super) const fn agent_id(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Timed => "timed",
            Self::Merging => "merging",
            Self::Authoring => "authoring",
        }
    }

    /// The agent file. `api` is the base URL of its actions.
    pub(super) fn document(self, api: &str) -> Value {
        let tagged = json!({"type": "object", "properties": {"tag": {"type": "string"}}, "required": ["tag"]});
        let mut agent = json!({
            "id": self.agent_id(),
            "name": "Chaos",
            "tone": "plain",
            "greeting": GREETING,
            "sop": "Do what the message says.",
            "flows": [GRAPH],
            "double_text": if self == Self::Merging { "merge" } else { "queue" },
            "skills": [{
                "id": "order", "description": "Orders.", "condition": "the message orders", "params": tagged,
                "http": {"method": "POST", "url": format!("{api}/order")},
            }],
            "tools": [
                {"id": "eta", "description": "When it comes.", "params": tagged,
                 "http": {"method": "GET", "url": format!("{api}/eta"), "query": {"tag": "{tag}"}}},
                {"id": "follow_up", "description": "Follows up.", "http": {"method": "POST", "url": format!("{api}/follow_up")}},
            ],
        });
        if self == Self::Timed {
            let [(nudge, soon), (follow_up, later)] = TIMERS;
            agent["timers"] = json!([
                {"name": nudge, "delay": format!("{}ms", soon.as_millis()), "message": NUDGE},
                {"name": follow_up, "delay": format!("{}ms", later.as_millis()),
                 "action": {"type": "TOOL", "target": "follow_up", "params": {}}},
            ]);
        }
        agent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use definitions::agent::AgentRecord;
    use types::timestamp::Timestamp;

    #[test]
    fn the_agents_can_be_applied() {
        for manner in Manner::APPLIED {
            let document = manner.document("http://127.0.0.1:1");
            let record = AgentRecord::from_document(document, Timestamp::from_millis(0)).unwrap();
            let timers: Vec<Duration> = record.config.timers.iter().map(|timer| timer.delay).collect();
            let wanted = if manner == Manner::Timed { TIMERS.map(|(_, delay)| delay).to_vec() } else { Vec::new() };
            assert_eq!(timers, wanted, "{manner:?}");
        }
    }
}
