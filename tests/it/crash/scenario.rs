//! What is tried at every point: agents, messages, and a model and an API that answer by what they are asked, so that
//! whoever repeats a turn gets the same answers.

use crate::scenarios::{acts, answer, sales_with};
use crate::support::script::{Answer, Asked, action, decision, plan};
use serde_json::{Value, json};
use std::time::Duration;
use turnwheel::queue::Command;
use turnwheel::session::{Session, Status};

/// What one message is.
pub type Message = (&'static str, Value);

/// One course of events.
#[derive(Clone)]
pub struct Scenario {
    pub name: &'static str,
    pub agent: Value,
    pub workflows: Vec<Value>,
    pub model: fn(&Asked) -> Answer,
    /// Handled before any fault.
    pub before: Vec<Message>,
    /// Each wave is sent when the one before it has been handled, or at the fault.
    pub waves: Vec<Vec<Message>>,
    /// A scheduler runs as well.
    pub timers: bool,
    pub max_attempts: u32,
    /// Who wakes up from a pause learns that its leases are lost, and the pauses are none that strike between a worker's
    /// look at its lease and what it publishes: of a turn that was given up nothing keeps that back.
    pub learns: bool,
    /// Reads lag behind writes as far as they may.
    pub lags: bool,
    /// Whatever happens, every conversation ends up as it does undisturbed.
    pub same: bool,
    /// How session s1 has to end.
    pub end: fn(&Session) -> bool,
}

impl Scenario {
    fn new(name: &'static str, model: fn(&Asked) -> Answer) -> Self {
        Self {
            name,
            agent: agent(json!({})),
            workflows: Vec::new(),
            model,
            before: Vec::new(),
            waves: Vec::new(),
            timers: false,
            max_attempts: 5,
            learns: false,
            lags: false,
            same: true,
            end: |session| session.workflow_state.status == Status::Ready,
        }
    }

    fn after_greeting(mut self) -> Self {
        self.before = vec![says("m-0", "你好")];
        self
    }

    fn wave(mut self, wave: Vec<Message>) -> Self {
        self.waves.push(wave);
        self
    }

    fn with(mut self, fields: Value) -> Self {
        self.agent = agent(fields);
        self
    }

    fn ending(mut self, end: fn(&Session) -> bool) -> Self {
        self.end = end;
        self
    }
}

#[allow(clippy::needless_pass_by_value, reason = "as a scenario writes it")]
fn agent(fields: Value) -> Value {
    sales_with(&fields)
}

/// A message of the user in s1.
fn says(job_id: &str, text: &str) -> Message {
    says_in("s1", job_id, text)
}

fn says_in(session_id: &'static str, job_id: &str, text: &str) -> Message {
    let job = json!({"type": "user_message", "session_id": session_id, "agent_id": "sales", "job_id": job_id, "text": text,
                     "user_id": "u1", "channel": "web"});
    (session_id, job)
}

fn control(job_id: &str, command: Command) -> Message {
    ("s1", json!({"type": "control", "session_id": "s1", "job_id": job_id, "command": command, "by": "op"}))
}

/// The decision alone, or with a plan that greets.
fn decided(asked: &Asked, decision: Value) -> Answer {
    Answer::json(&if asked.schema == "plan_and_decision" {
        plan(json!("您好，我是小智"), &decision)
    } else {
        decision
    })
}

/// Answers every message with itself.
fn echo(asked: &Asked) -> Answer {
    decided(asked, answer(&format!("{}!", asked.user)))
}

/// One message to a session that knows its agent.
pub fn plain_turn() -> Scenario {
    Scenario::new("plain turn", echo).after_greeting().wave(vec![says("m-1", "在吗")])
}

/// A turn whose model answers at once, so that it waits for nothing between its lane and its commit.
pub fn instant_turn() -> Scenario {
    let rules = json!([{"when": {"always": true}, "decide": {"next_status": "typing", "response": "在的"}}]);
    let offline = json!({"model": "offline", "rules": rules});
    Scenario::new("instant turn", |_| Answer::Hang).with(offline).after_greeting().wave(vec![says("m-1", "在吗")])
}

/// The first message of all: plan, greeting, answer.
pub fn greeting() -> Scenario {
    Scenario::new("greeting", echo).wave(vec![says("m-1", "你好")])
}

/// A SKILL with an interim message, a TOOL, and an answer that is prose at first and has to be corrected.
pub fn two_actions() -> Scenario {
    let question = "查一下订单 A1001 的物流并告诉我几天到";
    // Which of the two comes first is another at every second call.
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

/// A SYSTEM action that the user does not see.
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

/// A handoff after which the agent goes on.
pub fn handoff_that_notifies() -> Scenario {
    Scenario::new("handoff (notify)", hands_over).wave(vec![says("m-1", "转人工")]).wave(vec![says("m-2", "谢谢")])
}

/// A handoff, a message for the human, the release, and a message for the agent again.
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

/// The user says goodbye, and comes back.
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

/// An operator cancels, and the user writes again.
pub fn cancel() -> Scenario {
    Scenario::new("cancel", echo)
        .with(an_hour())
        .after_greeting()
        .wave(vec![control("c-1", Command::Cancel)])
        .wave(vec![says("m-1", "在吗")])
        .ending(|session| session.status_reason.is_none() && session.timers.len() == 1)
}

/// An operator cancels while the turn may still run, and the user writes again.
pub fn cancel_meanwhile() -> Scenario {
    let scenario = Scenario { name: "cancel meanwhile", learns: true, same: false, waves: Vec::new(), ..two_actions() };
    let question = "查一下订单 A1001 的物流并告诉我几天到";
    scenario
        .after_greeting()
        .wave(vec![says("m-1", question), control("c-1", Command::Cancel), says("m-2", question)])
        .ending(|session| session.turn.is_none() && session.has_handled("m-2"))
}

/// A timer with a text and an action fires.
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

/// The user writes before the timer is due, which cancels it; the next one fires. Late recoveries let the first one fire
/// too, or arrive when it has been cancelled.
pub fn timer_cancelled() -> Scenario {
    let timer = json!({"name": "follow_up", "delay": "150ms", "message": "还需要帮助吗？"});
    let scenario = Scenario { timers: true, same: false, ..Scenario::new("timer cancelled", echo) };
    scenario
        .with(json!({"timers": [timer]}))
        .wave(vec![says("m-1", "你好")])
        .wave(vec![says("m-2", "还有一个问题")])
        .ending(|session| session.timers.is_empty())
}

/// Three messages that become one turn, and one that may come in time to join them.
pub fn merge() -> Scenario {
    let scenario = Scenario { same: false, ..Scenario::new("merge", echo) };
    scenario
        .with(json!({"double_text": "merge"}))
        .after_greeting()
        .wave(vec![says("m-1", "一"), says("m-2", "二"), says("m-3", "三")])
        .wave(vec![says("m-4", "四")])
}

/// A workflow within a turn, with three model calls at once.
pub fn flow() -> Scenario {
    let model = |asked: &Asked| match asked.schema.as_str() {
        "" => Answer::Content("可行".into()),
        _ => decided(asked, acts("processing", "FLOW", "parallel_analysis", &json!({}))),
    };
    Scenario::new("flow", model).wave(vec![says("m-1", "分析一下")])
}

/// A model that answers task agents so that the inner loop of `research_workflow` goes round twice, and the outer one once.
fn researches(asked: &Asked) -> Answer {
    let text = match asked.user.as_str() {
        user if user.contains("当前迭代: 1") => "资料甲",
        user if user.contains("当前迭代") => "资料乙",
        user if user.contains("检索结果: 资料甲") => "CONTINUE",
        _ => "可行",
    };
    Answer::Content(text.into())
}

fn runs(workflow_id: &str) -> Message {
    let job = json!({"type": "run", "session_id": "r1", "job_id": "r1", "workflow_id": workflow_id, "query": "研究量子计算的最新进展"});
    ("r1", job)
}

/// A workflow of loops and branches in a lane of its own.
pub fn run() -> Scenario {
    Scenario::new("run", researches).wave(vec![runs("research_workflow")])
}

/// A workflow in a lane of its own for a session, whose history it enters.
pub fn session_run() -> Scenario {
    let model = |asked: &Asked| if asked.schema.is_empty() { Answer::Content("可行".into()) } else { echo(asked) };
    let run = json!({"type": "run", "session_id": "r1", "job_id": "r1", "workflow_id": "smart_router", "query": "你好",
                     "origin_session": "s1", "channel": "web"});
    let remembered = |session: &Session| {
        // The model's answers differ in what stands after the first word.
        let words = session.history.iter().filter(|entry| entry.turn_id == "resume-r1").map(|entry| &entry.text);
        words.map(|text| text.split(' ').next().unwrap_or_default()).eq(["你好", "可行"])
    };
    Scenario::new("session run", model).after_greeting().wave(vec![("r1", run)]).ending(remembered)
}

/// A model that plans, misses something, and plans again.
fn plans(asked: &Asked) -> Answer {
    let step = |agent: &str| json!([{"step": 1, "agent": agent, "question": "怎么样？"}]);
    match asked.schema.as_str() {
        "triage_plan" => Answer::json(&json!({"action": "plan", "plan": step("servicenow")})),
        "triage_replan" => Answer::json(&json!({"accept_review": true, "new_plan": step("log_analytics")})),
        "review" => Answer::json(&json!({"is_complete": false, "missing_aspects": ["日志"]})),
        _ => Answer::Content("可行".into()),
    }
}

/// A workflow that plans for itself, on its longest way.
pub fn dynamic_run() -> Scenario {
    Scenario::new("dynamic run", plans).wave(vec![runs("dynamic_ops")])
}

/// One that an operator cancels while it may still run.
pub fn cancelled_run() -> Scenario {
    let cancel =
        json!({"type": "control", "session_id": "r1", "job_id": "c-1", "command": Command::Cancel, "by": "op"});
    let scenario = Scenario { learns: true, same: false, ..Scenario::new("cancelled run", researches) };
    scenario.wave(vec![runs("research_workflow"), ("r1", cancel)])
}

/// Messages that cannot be handled, before, between and without good ones.
pub fn dead_letter() -> Scenario {
    let unknown =
        json!({"type": "user_message", "session_id": "s1", "agent_id": "nobody", "job_id": "m-3", "text": "x"});
    Scenario::new("dead letter", echo)
        .wave(vec![("s1", json!("no job")), says("m-1", "你好"), ("s1", json!({"type": "dance"})), says("m-2", "在吗")])
        .wave(vec![("s1", unknown)])
        .wave(vec![("s9", json!({"type": "user_message", "session_id": "s9"}))])
}

/// A turn that is given up as soon as it has to be begun again.
pub fn given_up() -> Scenario {
    let scenario = Scenario { name: "given up", max_attempts: 1, learns: true, same: false, ..two_actions() };
    scenario.with(an_hour()).wave(vec![says("m-2", "查一下别的")]).ending(|session| session.turn.is_none())
}

/// The model refuses once: the turn is cancelled, unless a repeat of it is answered.
pub fn refusing_model() -> Scenario {
    let model = |asked: &Asked| if asked.index == 1 { Answer::status(418, "scripted") } else { echo(asked) };
    let scenario = Scenario { same: false, ..Scenario::new("refusing model", model) };
    scenario.after_greeting().wave(vec![says("m-1", "在吗")]).wave(vec![says("m-2", "还在吗")])
}

/// A flow whose model refuses one of its calls once: the agent goes on without it.
pub fn refused_flow() -> Scenario {
    let model = |asked: &Asked| match asked.schema.as_str() {
        "" if asked.index == 2 => Answer::status(418, "scripted"),
        "" => Answer::Content("可行".into()),
        _ if asked.system.contains("scripted") => decided(asked, answer("分析不了")),
        _ => decided(asked, acts("processing", "FLOW", "parallel_analysis", &json!({}))),
    };
    // Which branches were ended by the one that failed depends on who ran it: so does what is told of them.
    let scenario = Scenario { same: false, learns: true, ..Scenario::new("refused flow", model) };
    scenario.wave(vec![says("m-1", "分析一下")])
}

/// A flow that panics: the turn is cancelled, on top of what it has said already.
pub fn panicking_flow() -> Scenario {
    let model = |asked: &Asked| match asked.user.as_str() {
        "分析一下" => decided(asked, acts("processing", "FLOW", "broken", &json!({}))),
        _ => echo(asked),
    };
    let scenario = Scenario::new("panicking flow", model).with(json!({"flows": ["broken"]}));
    scenario.wave(vec![says("m-1", "分析一下")]).wave(vec![says("m-2", "在吗")])
}

fn calls_asking(asked: &Asked) -> Answer {
    match asked.user.as_str() {
        _ if asked.schema.is_empty() => Answer::Content(format!("[{}]", asked.user)),
        "售后" => decided(asked, acts("processing", "FLOW", "asking", &json!({}))),
        "退货" => decided(asked, acts("processing", "FLOW", "asks", &json!({}))),
        _ => echo(asked),
    }
}

fn asking(name: &'static str) -> Scenario {
    let stage = |id: &str, input: &str| json!({"id": id, "runnable": "asks", "input": input});
    let workflow = json!({"id": "asking", "stages": [stage("first", "{query}")]});
    let scenario = Scenario { workflows: vec![workflow], ..Scenario::new(name, calls_asking) };
    scenario.with(json!({"flows": ["asks", "asking"]})).ending(|session| {
        session.waiting.is_none() && session.timers.is_empty() && session.workflow_state.status == Status::Ready
    })
}

/// A flow that asks twice, and is answered.
pub fn answered_flow() -> Scenario {
    asking("answered flow")
        .wave(vec![says("m-1", "退货")])
        .wave(vec![says("m-2", "A1001")])
        .wave(vec![says("m-3", "退款")])
}

/// The same as a stage of a workflow, whose run waits.
pub fn answered_run() -> Scenario {
    asking("answered run")
        .wave(vec![says("m-1", "售后")])
        .wave(vec![says("m-2", "A1001")])
        .wave(vec![says("m-3", "退款")])
}

/// A run that waits, which the user leaves, and one that an operator ends.
pub fn left_run() -> Scenario {
    let scenario = asking("left run").wave(vec![says("m-1", "售后")]).wave(vec![says("m-2", "取消")]);
    scenario.wave(vec![says("m-3", "售后")]).wave(vec![control("c-1", Command::Release)])
}

/// Two new sessions that plan the same agent at once. What the model decides beside a plan differs from what it decides
/// with one, so it matters that a turn goes on as it began.
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

/// Three messages that wait behind one another.
pub fn three_messages() -> Scenario {
    Scenario::new("three messages in one lane", echo).after_greeting().wave(vec![
        says("m-1", "一"),
        says("m-2", "二"),
        says("m-3", "三"),
    ])
}

/// The same over reads that lag.
pub fn lagging_messages() -> Scenario {
    Scenario { name: "three messages over lagging reads", lags: true, ..three_messages() }
}

/// Three messages that become one turn, of which a repeat may see only the first.
pub fn lagging_merge() -> Scenario {
    Scenario { name: "merge over lagging reads", lags: true, ..merge() }
}

/// A timer that the scheduler sees a sweep late, and once more after it has fired.
pub fn lagging_timer() -> Scenario {
    Scenario { name: "timer over lagging reads", lags: true, ..timer_fires() }
}

/// What the API answers.
pub fn api(path: &str, _body: &Value) -> (u16, Value, Duration) {
    let answer = match path {
        path if path.starts_with("/orders/") => json!({"status": "shipped"}),
        path if path.starts_with("/eta") => json!({"days": "two_days"}),
        _ => json!({"done": true}),
    };
    (200, answer, Duration::ZERO)
}
