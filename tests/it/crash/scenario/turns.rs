//! Turns for user messages, control commands and timers.

use super::{Scenario, control, decided, echo, says, says_in};
use crate::scenarios::{acts, answer};
use crate::support::script::{Answer, Asked, action, decision};
use serde_json::{Value, json};
use types::job::Command;

/// One message in a session that knows its agent.
pub fn plain_turn() -> Scenario {
    Scenario::new("plain turn", echo).after_greeting().wave(vec![says("m-1", "在吗")])
}

/// A turn whose model responds immediately, so that it does not wait between acquisition and commit.
pub fn instant_turn() -> Scenario {
    let rules = json!([{"when": {"always": true}, "decide": {"next_status": "typing", "response": "在的"}}]);
    let offline = json!({"model": "offline", "rules": rules});
    Scenario::new("instant turn", |_| Answer::Hang).with(offline).after_greeting().wave(vec![says("m-1", "在吗")])
}

/// The first message of a session: plan, greeting, reply.
pub fn greeting() -> Scenario {
    Scenario::new("greeting", echo).wave(vec![says("m-1", "你好")])
}

/// A SKILL with an interim message, a TOOL, and a model response that is prose first and must be corrected.
pub fn two_actions() -> Scenario {
    let question = "查一下订单 A1001 的物流并告诉我几天到";
    // The order of the two actions alternates between calls.
    let model = |asked: &Asked| match (asked.system.contains("shipped"), asked.system.contains("two_days")) {
        (true, true) if asked.user.starts_with("查一下") => Answer::Content("两天到".into()),
        (true, true) => decided(asked, answer("两天到")),
        (ordered, false) if ordered || asked.index % 2 == 1 => {
            decided(asked, acts("processing", "TOOL", "eta", &json!({"order_id": "A1001"})))
        }
        _ => {
            let skill = action("SKILL", "query_order", &json!({"order_id": "A1001"}));
            decided(asked, decision("processing", skill, json!("请稍等")))
        }
    };
    Scenario::new("two actions", model).wave(vec![says("m-1", question)])
}

/// A SYSTEM action without a reply.
pub fn silent_action() -> Scenario {
    let model = |asked: &Asked| match asked.user.as_str() {
        "换号码了" => decided(asked, acts("ready", "SYSTEM", "update_profile", &json!({"phone": "138"}))),
        _ => echo(asked),
    };
    Scenario::new("silent action", model)
        .after_greeting()
        .wave(vec![says("m-1", "换号码了")])
        .ending(|session| session.profile.get("phone") == Some(&json!("138")))
}

fn hands_over(asked: &Asked) -> Answer {
    let handoff = decision("transferred", action("SYSTEM", "handoff", &json!({})), json!("正在为您转接"));
    if asked.user == "转人工" { decided(asked, handoff) } else { echo(asked) }
}

/// A handoff after which the agent continues.
pub fn handoff_that_notifies() -> Scenario {
    Scenario::new("handoff (notify)", hands_over).wave(vec![says("m-1", "转人工")]).wave(vec![says("m-2", "谢谢")])
}

/// A handoff, a message for the human, the release, and a message for the agent.
pub fn handoff_that_holds() -> Scenario {
    Scenario::new("handoff (hold)", hands_over)
        .with(json!({"handoff": {"mode": "hold", "http": {"method": "POST", "url": "{api}/desk"}}}))
        .wave(vec![says("m-1", "转人工")])
        .wave(vec![says("m-2", "有人吗")])
        .wave(vec![control("c-1", Command::Release)])
        .wave(vec![says("m-3", "谢谢")])
        .ending(|session| session.handoff.is_none() && session.timers.is_empty())
}

fn an_hour() -> Value {
    json!({"timers": [{"name": "follow_up", "delay": "1h", "message": "还在吗？"}]})
}

/// The user says goodbye and returns later.
pub fn close() -> Scenario {
    let model = |asked: &Asked| match asked.user.as_str() {
        "再见" => decided(asked, acts("ready", "SYSTEM", "close_conversation", &json!({}))),
        _ => echo(asked),
    };
    Scenario::new("close", model)
        .with(an_hour())
        .after_greeting()
        .wave(vec![says("m-1", "再见")])
        .wave(vec![says("m-2", "我又来了")])
        .ending(|session| session.closed_at.is_none() && session.timers.len() == 1)
}

/// An operator cancels, then the user writes again.
pub fn cancel() -> Scenario {
    Scenario::new("cancel", echo)
        .with(an_hour())
        .after_greeting()
        .wave(vec![control("c-1", Command::Cancel)])
        .wave(vec![says("m-1", "在吗")])
        .ending(|session| session.status_reason.is_none() && session.timers.len() == 1)
}

/// An operator cancels while the turn may be in progress, then the user writes again.
pub fn cancel_meanwhile() -> Scenario {
    let scenario = Scenario { name: "cancel meanwhile", learns: true, same: false, waves: Vec::new(), ..two_actions() };
    let question = "查一下订单 A1001 的物流并告诉我几天到";
    scenario
        .after_greeting()
        .wave(vec![says("m-1", question), control("c-1", Command::Cancel), says("m-2", question)])
        .ending(|session| session.turn.is_none() && session.has_handled("m-2"))
}

/// A timer with a message and an action fires.
pub fn timer_fires() -> Scenario {
    let model = |asked: &Asked| match asked.user.as_str() {
        "(no new message)" => decided(asked, decision("ready", Value::Null, Value::Null)),
        _ => echo(asked),
    };
    let action = json!({"type": "TOOL", "target": "log_followup", "params": {}});
    let timer = json!({"name": "follow_up", "delay": "60ms", "message": "还需要帮助吗？", "action": action});
    let scenario = Scenario { timers: true, ..Scenario::new("timer fires", model) };
    scenario
        .with(json!({"timers": [timer]}))
        .wave(vec![says("m-1", "你好")])
        .ending(|session| session.timers.is_empty())
}

/// The user's message cancels the first timer before it is due; the second one fires. After a slow recovery the first
/// timer may fire, too, or arrive after its cancellation.
pub fn timer_cancelled() -> Scenario {
    let timer = json!({"name": "follow_up", "delay": "150ms", "message": "还需要帮助吗？"});
    let scenario = Scenario { timers: true, same: false, ..Scenario::new("timer cancelled", echo) };
    scenario
        .with(json!({"timers": [timer]}))
        .wave(vec![says("m-1", "你好")])
        .wave(vec![says("m-2", "还有一个问题")])
        .ending(|session| session.timers.is_empty())
}

/// Three messages that are merged into one turn, and one that may arrive early enough to join them.
pub fn merge() -> Scenario {
    let scenario = Scenario { same: false, ..Scenario::new("merge", echo) };
    scenario
        .with(json!({"double_text": "merge"}))
        .after_greeting()
        .wave(vec![says("m-1", "一"), says("m-2", "二"), says("m-3", "三")])
        .wave(vec![says("m-4", "四")])
}

/// Messages that are dead-lettered, before, between and without valid ones.
pub fn dead_letter() -> Scenario {
    let unknown =
        json!({"type": "user_message", "session_id": "s1", "agent_id": "nobody", "job_id": "m-3", "text": "x"});
    Scenario::new("dead letter", echo)
        .wave(vec![("s1", json!("no job")), says("m-1", "你好"), ("s1", json!({"type": "dance"})), says("m-2", "在吗")])
        .wave(vec![("s1", unknown)])
        .wave(vec![("s9", json!({"type": "user_message", "session_id": "s9"}))])
}

/// A turn that is dead-lettered when it would begin a second time.
pub fn given_up() -> Scenario {
    let scenario = Scenario { name: "given up", max_attempts: 1, learns: true, same: false, ..two_actions() };
    scenario.with(an_hour()).wave(vec![says("m-2", "查一下别的")]).ending(|session| session.turn.is_none())
}

/// The model refuses once. The turn is cancelled, unless a repeated call succeeds.
pub fn refusing_model() -> Scenario {
    let model = |asked: &Asked| if asked.index == 1 { Answer::status(418, "scripted") } else { echo(asked) };
    let scenario = Scenario { same: false, ..Scenario::new("refusing model", model) };
    scenario.after_greeting().wave(vec![says("m-1", "在吗")]).wave(vec![says("m-2", "还在吗")])
}

/// Two new sessions that plan the same agent concurrently. The model's decision differs with and without a plan, so a
/// resumed turn must keep its form.
pub fn two_sessions() -> Scenario {
    let model = |asked: &Asked| match asked.schema.as_str() {
        "plan_and_decision" => {
            decided(asked, acts("processing", "SKILL", "query_order", &json!({"order_id": asked.user})))
        }
        _ if asked.system.contains("shipped") => decided(asked, answer("已发货")),
        _ => echo(asked),
    };
    let scenario = Scenario { same: false, ..Scenario::new("two sessions at once", model) };
    scenario.wave(vec![says_in("s1", "m-1", "A1001"), says_in("s2", "m-1", "A1002")])
}

/// Three messages that wait in one lane.
pub fn three_messages() -> Scenario {
    Scenario::new("three messages in one lane", echo).after_greeting().wave(vec![
        says("m-1", "一"),
        says("m-2", "二"),
        says("m-3", "三"),
    ])
}

/// Three messages in one lane, with stale reads.
pub fn lagging_messages() -> Scenario {
    Scenario { name: "three messages over lagging reads", lags: true, ..three_messages() }
}

/// Three messages that are merged; after a fault, a stale read may show only the first.
pub fn lagging_merge() -> Scenario {
    Scenario { name: "merge over lagging reads", lags: true, ..merge() }
}

/// A timer that the scheduler sees one sweep late, and once more after it has fired.
pub fn lagging_timer() -> Scenario {
    Scenario { name: "timer over lagging reads", lags: true, ..timer_fires() }
}
