//! From phase 1's draft to a plan. The model rewrites texts; tools and skills stay as configured (E-11).

use super::Plan;
use crate::agent::{AgentRecord, TimerConfig};
use crate::clock;
use crate::timer::{MAX_TIMER_BYTES, MAX_TIMERS};
use crate::turn::decision::PlanDraft;
use serde_json::{Value, json};
use tracing::warn;

/// The plan of `agent` as phase 1 drafted it. What the draft leaves out is taken from the configuration; the file's timers,
/// when it has any, are used unchanged.
pub fn complete(agent: &AgentRecord, draft: PlanDraft) -> Plan {
    let config = &agent.config;
    let timers = if config.timers.is_empty() { extracted(&draft.timers) } else { config.timers.clone() };
    Plan {
        name: draft.name.unwrap_or_else(|| config.name.clone()),
        tone: draft.tone.unwrap_or_else(|| config.tone.clone()),
        greeting: draft.greeting.or_else(|| config.greeting.clone()),
        sop: draft.sop.unwrap_or_else(|| config.sop.clone()),
        constraints: draft.constraints.unwrap_or_else(|| config.constraints.clone()),
        timers: (!timers.is_empty()).then_some(timers),
        ..unplanned(agent)
    }
}

/// The configuration as it is, for a turn that may not ask the model to parse it.
pub fn unplanned(agent: &AgentRecord) -> Plan {
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
        created_at: clock::now(),
    }
}

fn extracted(timers: &[Value]) -> Vec<TimerConfig> {
    let read = |value: &Value| match serde_json::from_value::<TimerConfig>(value.clone()) {
        Ok(timer) if timer.delay.is_zero() => Err("its delay is zero".to_owned()),
        Ok(timer) if timer.message.is_none() && timer.action.is_none() => {
            Err("it has neither message nor action".into())
        }
        Ok(timer) if json!(timer).to_string().len() > MAX_TIMER_BYTES => {
            Err(format!("it has more than {MAX_TIMER_BYTES} bytes"))
        }
        Ok(timer) => Ok(timer),
        Err(error) => Err(error.to_string()),
    };
    let keep = |value: &Value| match read(value) {
        Ok(timer) => Some(timer),
        Err(problem) => {
            warn!(timer = %value, "a timer that the model extracted is dropped: {problem}");
            None
        }
    };
    let kept: Vec<TimerConfig> = timers.iter().take(MAX_TIMERS).filter_map(keep).collect();
    if timers.len() > MAX_TIMERS {
        warn!("the model extracted {} timers; the first {MAX_TIMERS} count", timers.len());
    }
    kept
}
