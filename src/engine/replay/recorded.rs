//! Recorded turns: the message, the conversation before it, the results of the calls, and the decisions.

use super::report::Followed;
use crate::action::ActionResult;
use crate::action::stand_in::{HANDOFF_ID, RecordedCall};
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::{Map, Value};
use std::cmp::Reverse;
use storage::store::records::SessionQuery;
use storage::store::{Store, StoreError};
use types::action::ActionKind;
use types::job::{JobBody, UserMessage};
use types::outcome::Outcome;
use types::session::{Entry, Kind, Role, Session, history};
use types::step::StepRecord;
use types::timestamp::Timestamp;
use types::turn::TurnRecord;

/// Sessions and turns that are read concurrently.
const CONCURRENT_READS: usize = 8;
/// The largest number of an agent's sessions in which its last turns are searched.
const MAX_SESSIONS: usize = 100;

/// A recorded turn of a user's message.
#[derive(Clone, Debug)]
pub struct RecordedTurn {
    /// The session.
    pub session_id: String,
    /// The turn.
    pub turn_id: String,
    /// The user.
    pub user_id: String,
    /// The channel.
    pub channel: String,
    /// The message.
    pub message: UserMessage,
    /// The data for a replay of the turn, or the reason why it cannot be replayed.
    pub replayable: Result<Replayable, String>,
}

/// The data for a replay of a turn.
#[derive(Clone, Debug)]
pub struct Replayable {
    /// The conversation before the turn; empty if the turn was the first one.
    pub before: Vec<Entry>,
    /// The profile of the user. The store has only the latest one.
    pub profile: Map<String, Value>,
    /// The calls of the turn with their results.
    pub calls: Vec<RecordedCall>,
    /// The decisions and the reply of the turn.
    pub followed: Followed,
}

impl RecordedTurn {
    /// Reads a turn from its records. `None` if it did not handle a user's message.
    pub fn read(session: &Session, turn: &TurnRecord, steps: &[StepRecord]) -> Option<Self> {
        let JobBody::UserMessage(message) = &turn.job.body else { return None };
        Some(Self {
            session_id: session.session_id.clone(),
            turn_id: turn.turn_id.clone(),
            user_id: session.user_id.clone(),
            channel: session.channel.clone(),
            message: UserMessage::clone(message),
            replayable: replayable(session, turn, steps),
        })
    }
}

fn replayable(session: &Session, turn: &TurnRecord, steps: &[StepRecord]) -> Result<Replayable, String> {
    let of_turn = |entry: &Entry| entry.turn_id == turn.turn_id;
    let Some(begin) = session.history.iter().position(of_turn) else {
        return Err("the history of its session no longer has it".to_owned());
    };
    let before = &session.history[..begin];
    if begin < ENOUGH && is_cut(session, begin, turn) {
        return Err("the history of its session no longer has all that was said before".to_owned());
    }
    if session.history.iter().filter(|entry| of_turn(entry) && entry.role == Role::User).count() > 1 {
        return Err("it answered several merged messages".to_owned());
    }
    if turn.outcome == Outcome::Cancelled {
        return Err("it was cancelled".to_owned());
    }
    let followed = Followed::read(&turn.turn_id, steps, &session.history);
    if followed.decisions.is_empty() {
        return Err("it has no recorded decisions: they have expired, or its agent is a coordinator".to_owned());
    }
    let calls = calls(&followed, steps);
    Ok(Replayable { before: before.to_vec(), profile: session.profile.clone(), calls, followed })
}

/// True if the history begins in the middle of the conversation: it shows the model less than it saw then.
fn is_cut(session: &Session, begin: usize, turn: &TurnRecord) -> bool {
    let began_later = |at: Timestamp| session.created_at.until(at) > FIRST_TURN;
    let first = session.history.first();
    let has_lost = history::is_full(&session.history) && first.is_some_and(|first| began_later(first.at));
    has_lost || (begin == 0 && began_later(turn.started_at))
}

/// With as many entries before it, a turn of a history that is cut is replayed. The entries that are lost were further
/// away.
const ENOUGH: usize = 50;

/// The longest time from the creation of a session to the start of its first turn.
const FIRST_TURN: std::time::Duration = std::time::Duration::from_secs(60);

fn calls(followed: &Followed, steps: &[StepRecord]) -> Vec<RecordedCall> {
    let output = |key: &str| steps.iter().find(|step| step.key == key).map(|step| step.output.clone());
    let mut calls = Vec::new();
    for (iteration, decision) in &followed.decisions {
        let Some(action) = &decision.action else { continue };
        let result = match action.kind {
            ActionKind::Skill | ActionKind::Tool => {
                output(&format!("{iteration}/act")).and_then(|output| serde_json::from_value(output).ok())
            }
            ActionKind::Flow => output(&format!("{iteration}/flow")).map(|output| match output.get("error") {
                Some(error) => ActionResult::failed(error.as_str().unwrap_or_default().to_owned()),
                // The record of a flow has no text: its text is the turn's last reply.
                None => ActionResult::ok(followed.reply.clone().into()),
            }),
            ActionKind::System => None,
        };
        let (target, params) = (action.target.clone(), action.params.clone());
        calls.extend(result.map(|result| RecordedCall { target, params, result }));
    }
    if let Some(step) = steps.iter().find(|step| step.kind == "handoff" && step.ok) {
        let result = serde_json::from_value(step.output.clone()).unwrap_or_else(|_| ActionResult::ok(Value::Null));
        calls.push(RecordedCall { target: HANDOFF_ID.to_owned(), params: Map::new(), result });
    }
    calls
}

/// Reads the last turns of users' messages to an agent, the newest first.
pub async fn last_turns(store: &dyn Store, agent_id: &str, count: usize) -> Result<Vec<RecordedTurn>, StoreError> {
    let query =
        SessionQuery { agent_id: Some(agent_id.to_owned()), limit: count.min(MAX_SESSIONS), ..SessionQuery::default() };
    let sessions = store.sessions(query).await?.into_iter().filter(|session| session.kind == Kind::Chat);
    let found: Vec<Vec<(TurnRecord, String)>> = stream::iter(sessions)
        .map(async |session| {
            let turns = store.turns(&session.session_id, count).await?;
            Ok::<_, StoreError>(turns.into_iter().map(|turn| (turn, session.session_id.clone())).collect())
        })
        .buffered(CONCURRENT_READS)
        .try_collect()
        .await?;
    let mut found: Vec<_> = found.into_iter().flatten().collect();
    found.retain(|(turn, _)| matches!(turn.job.body, JobBody::UserMessage(_)));
    found.sort_by_key(|(turn, _)| Reverse(turn.started_at));
    found.truncate(count);
    let read: Vec<Option<RecordedTurn>> = stream::iter(found)
        .map(async |(turn, session_id)| {
            let steps = store.steps(&session_id, &turn.turn_id).await?;
            let session = store.session(&session_id).await?;
            Ok::<_, StoreError>(session.and_then(|session| RecordedTurn::read(&session, &turn, &steps)))
        })
        .buffered(CONCURRENT_READS)
        .try_collect()
        .await?;
    Ok(read.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A conversation of this many turns, one in a minute, of which the history keeps what it can.
    fn conversation(turns: i64) -> Session {
        let at = |nth: i64| Timestamp::from_millis(nth * 60_000);
        let mut session = Session::new("s", at(0));
        let mut said = Vec::new();
        for nth in 0..turns {
            for role in ["user", "assistant"] {
                let entry = json!({"role": role, "text": "…", "at": at(nth), "turn_id": format!("m-{nth}")});
                history::append(&mut said, vec![serde_json::from_value(entry).unwrap()]);
            }
        }
        session.history = std::sync::Arc::new(said);
        session
    }

    /// Whether a turn is partial because of the history.
    fn is_partial(session: &Session, nth: i64) -> bool {
        let at = Timestamp::from_millis(nth * 60_000);
        let turn_id = format!("m-{nth}");
        let job = json!({"type": "user_message", "session_id": "s", "job_id": turn_id, "text": "…"});
        let turn: TurnRecord = serde_json::from_value(json!({
            "session_id": "s", "turn_id": turn_id, "job": job, "statuses": [], "outcome": "answered", "attempts": 1,
            "started_at": at, "committed_at": at, "hash": "", "actions": [], "tokens": 0,
        }))
        .unwrap();
        // Without steps no turn can be replayed, but that is found later.
        replayable(session, &turn, &[]).unwrap_err().contains("all that was said before")
    }

    #[test]
    fn a_turn_that_saw_more_than_the_history_has_is_partial() {
        let whole = conversation(40);
        assert!((0..40).all(|nth| !is_partial(&whole, nth)));
        let cut = conversation(80);
        assert_eq!(cut.history[0].turn_id, "m-30");
        assert_eq!([30, 31, 54, 55, 79].map(|nth| is_partial(&cut, nth)), [true, true, true, false, false]);
    }
}
