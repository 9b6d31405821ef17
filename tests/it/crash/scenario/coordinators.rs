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

pub(super) fn replies(asked: &Asked, text: &str, intent: &str) -> Answer {
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

/// Makes a plan of two model calls, runs it in the mode that the message names, and replies.
fn plans(asked: &Asked) -> Answer {
    if asked.schema.is_empty() {
        return Answer::Content("可行".into());
    }
    let has = |kind: &str| asked.system.contains(&format!("{kind}: {{\"ok\":true"));
    if has("execute_workflow") {
        return replies(asked, "做好了", "simple_query");
    }
    if has("create_workflow_plan") {
        let id = asked.system.split("\"workflow_id\":\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        let mode = if asked.user == "后台执行" { "async" } else { "sync" };
        let execute = json!({"workflow_id": id, "execution_mode": mode, "notify_on_completion": true});
        return decides(asked, "execute_workflow", execute);
    }
    let node = |id: &str, prompt: &str| json!({"node_id": id, "type": "LLM", "name": id, "config": {"prompt": prompt}});
    let nodes = json!([node("draft", "起草"), node("check", "检查：${draft.output.text}")]);
    let edges = json!([{"source": "draft", "target": "check"}]);
    decides(asked, "create_workflow_plan", json!({"name": "写报告", "description": "", "nodes": nodes, "edges": edges}))
}

/// A plan that is made and run within one turn.
pub fn planned_work() -> Scenario {
    let planned =
        |session: &Session| session.current_workflow.is_some() && session.workflow_state.status == Status::Ready;
    Scenario::new("plan", plans).with(json!({"mode": "coordinator"})).wave(vec![says("m-1", "执行")]).ending(planned)
}

/// A plan that runs in a lane of its own, and the notice of its end.
pub fn background_run() -> Scenario {
    let noticed = |session: &Session| {
        let notices = session.history.iter().filter(|entry| entry.turn_id.starts_with("resume-"));
        notices.map(|entry| entry.text.contains("已经完成")).eq([true])
    };
    let scenario = Scenario::new("background run", plans).with(json!({"mode": "coordinator"}));
    scenario.wave(vec![says("m-1", "后台执行")]).ending(noticed)
}

/// A question to the user, and the message that continues the task.
pub fn clarification() -> Scenario {
    let continued = |session: &Session| session.task.is_none() && session.workflow_state.status == Status::Ready;
    coordinator("clarification").wave(vec![says("m-1", "退货")]).wave(vec![says("m-2", "A1001")]).ending(continued)
}
