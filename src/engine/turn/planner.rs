//! Turns the draft of phase 1 into a plan. The model may rewrite texts; tools and skills stay as configured.

use crate::turn::decision::PlanDraft;
use crate::turn::placeholder::is_placeholder;
use base::http_client::bounded;
use definitions::agent::AgentRecord;
use serde_json::{Value, json};
use tracing::warn;
use types::agent::{AgentConfig, TimerConfig};
use types::plan::Plan;
use types::timer::{MAX_TIMER_BYTES, MAX_TIMERS};
use types::timestamp::Timestamp;

/// Maximum number of bytes of an invented target in the log.
const MAX_TARGET: usize = 64;

/// Completes the draft of phase 1 to the plan of `agent`. The configured name, tone, greeting and timers are used
/// unchanged. The draft provides the rewritten texts and fills fields that the configuration leaves out.
pub fn complete(agent: &AgentRecord, draft: PlanDraft, now: Timestamp) -> Plan {
    let config = &agent.config;
    let timers = if config.timers.is_empty() { extracted(config, &draft.timers) } else { config.timers.clone() };
    let configured = |text: &str, drafted: Option<String>| match text.trim().is_empty() {
        true => drafted.unwrap_or_default(),
        false => text.to_owned(),
    };
    Plan {
        name: configured(&config.name, draft.name),
        tone: configured(&config.tone, draft.tone),
        greeting: config.greeting.clone().filter(|text| !text.trim().is_empty()).or(draft.greeting),
        sop: draft.sop.unwrap_or_else(|| config.sop.clone()),
        constraints: draft.constraints.unwrap_or_else(|| config.constraints.clone()),
        timers: (!timers.is_empty()).then_some(timers),
        ..unplanned(agent, now)
    }
}

/// The plan that equals the configuration, for a turn that does not ask the model to parse it.
pub(crate) fn unplanned(agent: &AgentRecord, now: Timestamp) -> Plan {
    let config = &agent.config;
    Plan {
        workflow_id: config.id.clone(),
        hash: agent.hash.clone(),
        name: config.name.clone(),
        tone: config.tone.clone(),
        greeting: config.greeting.clone(),
        sop: config.sop.clone(),
        tools: config.tools.clone(),
        skills: config.skills.clone(),
        timers: (!config.timers.is_empty()).then(|| config.timers.clone()),
        constraints: config.constraints.clone(),
        created_at: now,
    }
}

/// The timers that the model found in the configuration. Drops timers that could not be armed or could not fire.
fn extracted(config: &AgentConfig, timers: &[Value]) -> Vec<TimerConfig> {
    let keep = |value: &Value| match timer(config, value) {
        Ok(timer) => Some(timer),
        Err(problem) => {
            warn!(agent_id = config.id, timer = %value, "dropped a timer that the model extracted: {problem}");
            None
        }
    };
    let kept: Vec<TimerConfig> = timers.iter().take(MAX_TIMERS).filter_map(keep).collect();
    if timers.len() > MAX_TIMERS {
        warn!(agent_id = config.id, "the model extracted {} timers; the first {MAX_TIMERS} count", timers.len());
    }
    kept
}

/// Reads and checks one extracted timer. The error is for the log.
fn timer(config: &AgentConfig, value: &Value) -> Result<TimerConfig, String> {
    let mut timer: TimerConfig = serde_json::from_value(value.clone()).map_err(|error| error.to_string())?;
    timer.message = timer.message.filter(|text| !text.trim().is_empty() && !is_placeholder(text));
    if is_placeholder(&timer.name) {
        timer.name.clear();
    }
    if timer.delay.is_zero() {
        return Err("its delay is zero".to_owned());
    }
    match &timer.action {
        None if timer.message.is_none() => return Err("it has neither message nor action".to_owned()),
        Some(action) if !config.targets(action.kind).contains(&action.target.as_str()) => {
            let kind = action.kind.as_str();
            return Err(format!("the agent has no {kind} `{}`", bounded(&action.target, MAX_TARGET)));
        }
        _ => {}
    }
    if json!(timer).to_string().len() > MAX_TIMER_BYTES {
        return Err(format!("it has more than {MAX_TIMER_BYTES} bytes"));
    }
    Ok(timer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(fields: &Value) -> AgentRecord {
        let mut document =
            json!({"id": "sales", "sop": "问候", "tools": [{"id": "now", "builtin": "now"}], "flows": ["report"]});
        document.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        AgentRecord::from_document(document, Timestamp::default()).unwrap()
    }

    fn draft(timers: &Value) -> PlanDraft {
        let text = |text: &str| Some(text.to_owned());
        let timers = timers.as_array().cloned().unwrap_or_default();
        PlanDraft {
            name: text("Bob"),
            tone: text("rude"),
            greeting: text("Hi there"),
            sop: text("1. 问候"),
            timers,
            ..PlanDraft::default()
        }
    }

    #[test]
    fn what_the_file_says_word_for_word_is_never_the_model_s() {
        let configured = agent(&json!({"name": "小智", "tone": "热情", "greeting": "您好"}));
        let plan = complete(&configured, draft(&json!([])), Timestamp::default());
        assert_eq!((plan.name.as_str(), plan.tone.as_str()), ("小智", "热情"));
        assert_eq!((plan.greeting.as_deref(), plan.sop.as_str()), (Some("您好"), "1. 问候"));
        let silent = complete(&agent(&json!({"greeting": " "})), draft(&json!([])), Timestamp::default());
        assert_eq!((silent.name.as_str(), silent.greeting.as_deref()), ("Bob", Some("Hi there")));
    }

    #[test]
    fn extracted_timers_are_checked() {
        let act = |kind: &str, target: &str| json!({"type": kind, "target": target, "params": {}});
        let timers = json!([
            {"name": "ask", "delay": "30m", "message": "还在吗？"},
            {"name": "…", "delay": 60, "message": "…", "action": act("TOOL", "now")},
            {"name": "flow", "delay": "1h", "action": act("FLOW", "report")},
            {"name": "close", "delay": "1h", "action": act("SYSTEM", "close_conversation")},
            {"name": "made up", "delay": "1h", "action": act("TOOL", "send_email")},
            {"name": "unknown operation", "delay": "1h", "action": act("SYSTEM", "reboot")},
            {"name": "empty", "delay": "1h", "message": "  "},
            {"name": "copied", "delay": "1h", "message": "…"},
            {"name": "at once", "delay": 0, "message": "还在吗？"},
            {"name": "no delay", "message": "还在吗？"},
            {"name": "large", "delay": "1h", "message": "长".repeat(MAX_TIMER_BYTES)},
            "after an hour",
        ]);
        let kept = complete(&agent(&json!({})), draft(&timers), Timestamp::default()).timers.unwrap();
        let names: Vec<&str> = kept.iter().map(|timer| timer.name.as_str()).collect();
        assert_eq!(names, ["ask", "", "flow", "close"]);
        assert_eq!(kept[1].message, None);
        let own = json!({"timers": [{"name": "mine", "delay": "5m", "message": "在吗"}]});
        let kept = complete(&agent(&own), draft(&timers), Timestamp::default()).timers.unwrap();
        assert_eq!(kept.len(), 1, "the file's timers are used unchanged");
        let many: Vec<Value> = (0..=MAX_TIMERS).map(|_| json!({"delay": 5, "message": "在吗"})).collect();
        assert_eq!(
            complete(&agent(&json!({})), draft(&json!(many)), Timestamp::default()).timers.unwrap().len(),
            MAX_TIMERS
        );
    }
}
