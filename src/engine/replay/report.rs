//! The decisions of a turn, and the comparison of two turns.

use crate::action::stand_in::NoAnswer;
use crate::turn::decision::{Decision, NextStatus, parse_decision, parse_plan_and_decision};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use types::excerpt::cut;
use types::session::{Entry, Role};
use types::step::StepRecord;

/// The largest size of a text in the report, in bytes.
const MAX_TEXT: usize = 4 * 1024;
/// The kind of a greeting in the history. Greetings are not compared.
const GREETING: &str = "greeting";

/// The decisions and the reply of a turn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Followed {
    /// The decisions, by iteration.
    pub decisions: Vec<(u32, Decision)>,
    /// The reply to the user, without a greeting.
    pub reply: String,
}

impl Followed {
    /// Reads the decisions from the steps of a turn, and the reply from the history.
    pub fn read(turn_id: &str, steps: &[StepRecord], history: &[Entry]) -> Self {
        let said = history.iter().filter(|entry| {
            entry.turn_id == turn_id && entry.role == Role::Assistant && entry.kind.as_deref() != Some(GREETING)
        });
        let reply = said.map(|entry| entry.text.as_str()).collect::<Vec<_>>().join("\n");
        Self { decisions: decisions(steps), reply }
    }

    /// The actions that the turn asked for, with their iterations.
    fn actions(&self) -> Vec<(u32, Value)> {
        let action = |(iteration, decision): &(u32, Decision)| {
            let action = decision.action.as_ref().map(|action| json!(action));
            let transfer = || (decision.next_status == NextStatus::Transferred).then(|| json!({"type": "TRANSFER"}));
            Some((*iteration, action.or_else(transfer)?))
        };
        self.decisions.iter().filter_map(action).collect()
    }
}

/// The decisions that a turn followed: the last answer for each iteration, after corrections.
fn decisions(steps: &[StepRecord]) -> Vec<(u32, Decision)> {
    let mut found = BTreeMap::new();
    for step in steps {
        let Some((iteration, rest)) = step.key.split_once('/') else { continue };
        let (Ok(iteration), Some(content)) = (iteration.parse::<u32>(), step.output.as_str()) else { continue };
        if rest != "decide" && !rest.starts_with("decide/correct[") {
            continue;
        }
        let decision = parse_plan_and_decision(content).map(|(_, decision)| decision);
        // Steps are ordered by key, so a correction follows the answer that it corrects.
        if let Ok(decision) = decision.or_else(|_| parse_decision(content)) {
            found.insert(iteration, decision);
        }
    }
    found.into_iter().collect()
}

/// The first difference between the actions of two turns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Divergence {
    /// The iteration, from 0.
    pub iteration: u32,
    /// The recorded action; null if the turn had ended.
    pub was: Value,
    /// The action of the draft; null if its turn had ended.
    pub now: Value,
}

/// The result of the comparison of a replayed turn with the recorded one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum TurnEnd {
    /// The same actions and the same words.
    Same,
    /// The same actions, other words.
    ReplyDiffers {
        /// The recorded words.
        was: String,
        /// The words of the draft.
        now: String,
    },
    /// Another action, target or params.
    ActionsDiffer {
        /// The first difference.
        first: Divergence,
    },
    /// The draft asked for a call that was never recorded, so the rest of the turn cannot be judged.
    Diverged {
        /// The first difference.
        first: Divergence,
        /// The calls without a recorded result.
        missing: Vec<String>,
    },
    /// The turn was cancelled, or the engine failed.
    Failed {
        /// Why.
        reason: String,
    },
    /// The records of the turn are incomplete, so it was not replayed.
    Partial {
        /// The missing records.
        reason: String,
    },
}

impl TurnEnd {
    /// Compares a turn of a draft with the recorded one. `missing` are the calls that had no recorded result.
    pub fn compare(was: &Followed, now: &Followed, missing: &[NoAnswer]) -> Self {
        if let Some(first) = divergence(&was.actions(), &now.actions()) {
            return match missing {
                [] => Self::ActionsDiffer { first },
                _ => Self::Diverged { first, missing: missing.iter().map(ToString::to_string).collect() },
            };
        }
        if was.reply == now.reply {
            return Self::Same;
        }
        let shown = |text: &str| cut(text, MAX_TEXT).into_owned();
        Self::ReplyDiffers { was: shown(&was.reply), now: shown(&now.reply) }
    }
}

fn divergence(was: &[(u32, Value)], now: &[(u32, Value)]) -> Option<Divergence> {
    let at = was.iter().zip(now).position(|((_, was), (_, now))| was != now);
    let at = at.or_else(|| (was.len() != now.len()).then(|| was.len().min(now.len())))?;
    let action = |actions: &[(u32, Value)]| actions.get(at).map_or(Value::Null, |(_, action)| action.clone());
    // The iteration of the draft. If the draft's turn has no such action, the iteration of the recorded action.
    let iteration = now.get(at).or_else(|| was.get(at)).map_or(0, |(iteration, _)| *iteration);
    Some(Divergence { iteration, was: action(was), now: action(now) })
}

/// One turn with its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayedTurn {
    /// The session.
    pub session_id: String,
    /// The turn.
    pub turn_id: String,
    /// The user's words.
    pub said: String,
    /// The result.
    #[serde(flatten)]
    pub end: TurnEnd,
}

/// The report of a replay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Replayed {
    /// Turns with the same actions and words.
    pub same: usize,
    /// Turns with the same actions and other words.
    pub reply_differs: usize,
    /// Turns with other actions.
    pub actions_differ: usize,
    /// Turns that cannot be judged further.
    pub diverged: usize,
    /// Turns that failed.
    pub failed: usize,
    /// Turns whose records are incomplete.
    pub partial: usize,
    /// The turns, the newest first.
    pub turns: Vec<ReplayedTurn>,
}

impl Replayed {
    /// Collects the turns.
    pub fn new(turns: Vec<ReplayedTurn>) -> Self {
        let mut report = Self { turns: Vec::new(), ..Self::default() };
        for turn in &turns {
            *match turn.end {
                TurnEnd::Same => &mut report.same,
                TurnEnd::ReplyDiffers { .. } => &mut report.reply_differs,
                TurnEnd::ActionsDiffer { .. } => &mut report.actions_differ,
                TurnEnd::Diverged { .. } => &mut report.diverged,
                TurnEnd::Failed { .. } => &mut report.failed,
                TurnEnd::Partial { .. } => &mut report.partial,
            } += 1;
        }
        Self { turns, ..report }
    }

    /// True if no turn took other actions.
    pub const fn acts_alike(&self) -> bool {
        self.actions_differ + self.diverged + self.failed == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::timestamp::Timestamp;

    fn step(key: &str, output: &Value) -> StepRecord {
        serde_json::from_value(json!({
            "key": key, "kind": "model", "target": "default", "input_hash": "", "output": output.to_string(), "ok": true,
            "ms": 1, "at": Timestamp::default(),
        }))
        .unwrap()
    }

    fn act(target: &str) -> Value {
        let action = json!({"type": "TOOL", "target": target, "params": {"id": 1}});
        json!({"next_status": "processing", "action": action, "response": null})
    }

    fn say(text: &str) -> Value {
        json!({"next_status": "typing", "action": null, "response": text})
    }

    fn followed(steps: &[(&str, Value)], reply: &str) -> Followed {
        let steps: Vec<_> = steps.iter().map(|(key, output)| step(key, output)).collect();
        Followed { reply: reply.into(), ..Followed::read("m-1", &steps, &[]) }
    }

    #[test]
    fn the_first_other_action_is_named() {
        let was =
            followed(&[("0/decide", json!({"plan": {}, "decision": act("eta")})), ("1/decide", say("两天"))], "两天");
        let same = followed(&[("0/decide", act("eta")), ("1/decide", say("两天"))], "两天");
        assert_eq!(TurnEnd::compare(&was, &same, &[]), TurnEnd::Same);
        let words = followed(&[("0/decide", act("eta")), ("1/decide", say("2 days"))], "2 days");
        assert!(matches!(TurnEnd::compare(&was, &words, &[]), TurnEnd::ReplyDiffers { now, .. } if now == "2 days"));
        let none = followed(&[("0/decide", say("?"))], "?");
        let TurnEnd::ActionsDiffer { first } = TurnEnd::compare(&was, &none, &[]) else { panic!() };
        assert_eq!((first.iteration, &first.was["target"], first.now), (0, &json!("eta"), Value::Null));
        let more = followed(&[("0/decide", act("eta")), ("1/decide", act("book"))], "");
        let missing = [NoAnswer::NotRecorded("book".into())];
        let TurnEnd::Diverged { first, missing } = TurnEnd::compare(&was, &more, &missing) else { panic!() };
        assert_eq!((first.iteration, first.was, &first.now["target"]), (1, Value::Null, &json!("book")));
        assert!(missing[0].contains("`book`"));
    }

    #[test]
    fn a_corrected_decision_is_the_one_that_was_followed() {
        let corrected =
            followed(&[("0/decide", json!("prose")), ("0/decide/correct[1]", act("eta")), ("0/act", json!({}))], "");
        assert_eq!(corrected.decisions.len(), 1);
        assert_eq!(corrected.actions()[0].1["target"], "eta");
    }
}
