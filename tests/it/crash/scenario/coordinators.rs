//! Scenarios of agents with `mode: coordinator`.

use super::*;

/// A decision in the form of the model's answer.
fn decides(asked: &Asked, kind: &str, mut payload: Value) -> Answer {
    payload["action_type"] = json!(kind);
    let answer = json!({"reasoning": "因为", "decisions": [{"decision_type": kind, "payload": payload}]});
    Answer::json(&if asked.schema == "plan_and_conversation_decision" {
        json!({"plan": {"greeting": "您好，我是小智"}, "answer": answer})
    } else {
        answer
    })
}

fn replies(asked: &Asked, text: &str, intent: &str) -> Answer {
    decides(asked, "respond", json!({"response": text, "intent": intent, "confidence": 0.9}))
}

fn coordinates(asked: &Asked) -> Answer {
    match asked.user.as_str() {
        _ if asked.schema.is_empty() => Answer::Content("可行".into()),
        // The first answer is not valid. The next question has its error.
        "你好" if !asked.system.contains("respond: `intent`") => replies(asked, "你好", "unknown"),
        "查报价" if !asked.system.contains("\"ok\":true") => {
            decides(asked, "spawn_subagent", json!({"subagent_type": "researcher", "task_payload": {"query": "报价"}}))
        }
        "退货" => {
            decides(asked, "request_clarification", json!({"question": "退哪一单？", "options": ["A1001", "A1002"]}))
        }
        user => replies(asked, &format!("{user}!"), "simple_query"),
    }
}

fn coordinator(name: &'static str) -> Scenario {
    let subagent = json!({"type": "researcher", "runnable": "smart_router", "description": "查资料",
        "input": {"type": "object", "required": ["query"]}});
    Scenario::new(name, coordinates).with(json!({"mode": "coordinator", "subagents": [subagent]}))
}

/// A decision that is rejected once.
pub fn rejected_decision() -> Scenario {
    coordinator("rejected decision").wave(vec![says("m-1", "你好")])
}

/// A sub-agent, whose result the next answer uses.
pub fn sub_agent() -> Scenario {
    coordinator("sub-agent").wave(vec![says("m-1", "查报价")])
}

/// A question to the user, and the message that continues the task.
pub fn clarification() -> Scenario {
    let continued = |session: &Session| session.task.is_none() && session.workflow_state.status == Status::Ready;
    coordinator("clarification").wave(vec![says("m-1", "退货")]).wave(vec![says("m-2", "A1001")]).ending(continued)
}
