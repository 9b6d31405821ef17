//! The order in which the decisions of one answer are carried out, and the fate of waiting decisions.

use crate::kind::{Decision, DecisionType};
use serde_json::Value;

/// The priority of a `spawn_subagent` without one.
const MIDDLE: f64 = 5.0;

/// Sorts by the priority of the types. Sub-agents with a higher `priority` come first. Otherwise the order stays.
pub fn sort(decisions: &mut [Decision]) {
    decisions.sort_by(|one, other| {
        let types = one.decision_type.priority().cmp(&other.decision_type.priority());
        types.then_with(|| urgency(other).total_cmp(&urgency(one)))
    });
}

/// Only sub-agents differ.
fn urgency(decision: &Decision) -> f64 {
    match decision.decision_type {
        DecisionType::SpawnSubagent => decision.payload.get("priority").and_then(Value::as_f64).unwrap_or(MIDDLE),
        _ => MIDDLE,
    }
}

/// What becomes of a decision that waited for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is the next one.
    Next,
    /// It was written without the result of the other one. The model decides again.
    Superseded,
    /// It is dropped, because a recovery interrupts everything.
    Interrupted,
    /// It waits with the task for the user's answer. The model then decides again.
    Blocked,
    /// The turn has ended with a reply.
    Ended,
}

/// The fate of `waiting` after `done` was carried out.
pub fn fate(done: DecisionType, waiting: DecisionType) -> Fate {
    match done {
        DecisionType::ErrorRecovery => Fate::Interrupted,
        DecisionType::RequestClarification => Fate::Blocked,
        DecisionType::Respond => Fate::Ended,
        DecisionType::Continue => Fate::Next,
        _ if matches!(waiting, DecisionType::Respond | DecisionType::Continue) => Fate::Superseded,
        _ => Fate::Next,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn decision(kind: DecisionType, payload: Value) -> Decision {
        Decision::new(kind, serde_json::from_value(payload).unwrap())
    }

    #[test]
    fn types_then_sub_agents_then_arrival() {
        let mut decisions = vec![
            decision(DecisionType::Continue, json!({"n": 0})),
            decision(DecisionType::SpawnSubagent, json!({"n": 1, "priority": 2})),
            decision(DecisionType::CreateNode, json!({"n": 2})),
            decision(DecisionType::SpawnSubagent, json!({"n": 3, "priority": 8})),
            decision(DecisionType::CreateNode, json!({"n": 4, "priority": 9})),
            decision(DecisionType::ErrorRecovery, json!({"n": 5})),
            decision(DecisionType::SpawnSubagent, json!({"n": 6})),
        ];
        sort(&mut decisions);
        let order: Vec<_> = decisions.iter().map(|decision| decision.payload["n"].as_u64().unwrap()).collect();
        assert_eq!(order, [5, 3, 6, 1, 2, 4, 0]);
    }

    #[test]
    fn a_reply_written_before_a_result_is_superseded() {
        assert_eq!(fate(DecisionType::CreateNode, DecisionType::Respond), Fate::Superseded);
        assert_eq!(fate(DecisionType::CreateNode, DecisionType::CreateNode), Fate::Next);
        assert_eq!(fate(DecisionType::ErrorRecovery, DecisionType::CreateNode), Fate::Interrupted);
        assert_eq!(fate(DecisionType::RequestClarification, DecisionType::Respond), Fate::Blocked);
    }
}
