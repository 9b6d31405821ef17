//! Reads that no write needs.

use super::fault::FileFault;
use super::sessions::{IDLE_FLAG, is_idle};
use super::tables::{AGENT_DAYS, SESSIONS, STEPS, TIMERS, TURNS, decode};
use super::{history, lanes};
use redb::{ReadTransaction, ReadableTable};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use storage::store::records::{DueTimer, IdleSession, SessionQuery};
use types::session::{Kind, Session};
use types::step::StepRecord;
use types::timestamp::Timestamp;
use types::turn::{TurnMark, TurnRecord};

/// The name of a session in errors.
pub(super) fn session_name(id: &str) -> String {
    format!("session `{id}`")
}

/// The name of a turn in errors.
pub(super) fn turn_name(session: &str, turn: &str) -> String {
    format!("turn `{session}/{turn}`")
}

/// Returns the tokens that agents have used on a day.
pub(super) fn tokens_of_day(
    read: &ReadTransaction,
    day: &str,
    agent_ids: &[String],
) -> Result<HashMap<String, u64>, FileFault> {
    let table = read.open_table(AGENT_DAYS)?;
    let mut used = HashMap::new();
    for agent_id in agent_ids {
        if let Some(tokens) = table.get((day, agent_id.as_str()))? {
            used.insert(agent_id.clone(), tokens.value());
        }
    }
    Ok(used)
}

/// Reads one session with its history.
pub(super) fn session(read: &ReadTransaction, id: &str) -> Result<Option<Session>, FileFault> {
    let Some(mut session) = head(&read.open_table(SESSIONS)?, id)? else { return Ok(None) };
    if let Some(lane) = lanes::one(read, id)? {
        lane.apply_to(&mut session);
    }
    session.history = Arc::new(history::read(read, id)?);
    Ok(Some(session))
}

type SessionTable = redb::ReadOnlyTable<&'static str, (i64, u8, u64, &'static [u8])>;

/// Reads a session as its last commit wrote it, without its history.
pub(super) fn head(table: &SessionTable, id: &str) -> Result<Option<Session>, FileFault> {
    match table.get(id)? {
        Some(value) => decode(|| session_name(id), value.value().3).map(Some),
        None => Ok(None),
    }
}

/// Lists sessions, the last changed first. Decodes only the sessions that it returns or has to filter.
pub(super) fn sessions(read: &ReadTransaction, query: &SessionQuery) -> Result<Vec<Session>, FileFault> {
    let (table, mut lanes) = (read.open_table(SESSIONS)?, lanes::all(read)?);
    let mut order = Vec::new();
    for row in table.iter()? {
        let (id, value) = row?;
        let updated_at = lanes.get(id.value()).map_or(value.value().0, |lane| lane.updated_at.as_millis());
        order.push((Reverse(updated_at), id.value().to_owned()));
    }
    order.sort_unstable();
    let mut found = Vec::new();
    for (_, id) in order {
        if found.len() >= query.limit {
            break;
        }
        let Some(mut session) = head(&table, &id)? else { continue };
        if let Some(lane) = lanes.remove(&id) {
            lane.apply_to(&mut session);
        }
        if session.kind != Kind::Run
            && query.status.is_none_or(|status| session.workflow_state.status == status)
            && query.agent_id.as_ref().is_none_or(|agent| session.agent_id == *agent)
            && query.scope.covers(&id, &session.channel, &session.agent_id)
        {
            found.push(session);
        }
    }
    Ok(found)
}

/// Lists chat sessions that have waited only for their user since `before`.
pub(super) fn idle_sessions(
    read: &ReadTransaction,
    before: Timestamp,
    limit: usize,
) -> Result<Vec<IdleSession>, FileFault> {
    let (lanes, sessions, mut idle) = (lanes::all(read)?, read.open_table(SESSIONS)?, Vec::new());
    for row in sessions.iter()? {
        let (id, value) = row?;
        let (updated_at, flags, ..) = value.value();
        if idle.len() >= limit {
            break;
        }
        if flags & IDLE_FLAG == 0 || updated_at >= before.as_millis() || lanes.contains_key(id.value()) {
            continue;
        }
        // An earlier version also flagged sessions with timers.
        let session = head(&sessions, id.value())?.filter(is_idle);
        idle.extend(session.map(|Session { session_id, last_seq, .. }| IdleSession { session_id, last_seq }));
    }
    Ok(idle)
}

/// Reads all steps of a turn, ordered by key.
pub(super) fn steps(read: &ReadTransaction, session: &str, turn: &str) -> Result<Vec<StepRecord>, FileFault> {
    let (table, turns) = (read.open_table(STEPS)?, read.open_table(TURNS)?);
    let name = |key: &str| format!("step `{key}` of {}", turn_name(session, turn));
    let mut steps = BTreeMap::new();
    for row in table.range((session, turn, "")..)? {
        let (key, value) = row?;
        let (of_session, of_turn, key) = key.value();
        if (of_session, of_turn) != (session, turn) {
            break;
        }
        steps.insert(key.to_owned(), decode(|| name(key), value.value())?);
    }
    if let Some(turn) = turns.get((session, turn))? {
        for (key, step) in turn.value().2 {
            steps.insert(key.to_owned(), decode(|| name(key), step)?);
        }
    }
    Ok(steps.into_values().collect())
}

/// Implements [`Store::turns`](storage::store::Store::turns).
pub(super) fn turns(read: &ReadTransaction, session: &str, limit: usize) -> Result<Vec<TurnRecord>, FileFault> {
    let table = read.open_table(TURNS)?;
    let mut order = Vec::new();
    for row in table.range((session, "")..)? {
        let (key, value) = row?;
        let (of, turn) = key.value();
        if of != session {
            break;
        }
        let (committed_at, record, _) = value.value();
        // A record that cannot be decoded fails the listing only if it is listed.
        let started_at =
            decode::<TurnMark>(String::new, record).map_or(committed_at, |mark| mark.started_at.as_millis());
        order.push((started_at, committed_at, turn.to_owned()));
    }
    order.sort_unstable();
    let mut turns = Vec::new();
    for (.., id) in order.into_iter().rev().take(limit) {
        turns.extend(turn(read, session, &id)?);
    }
    Ok(turns)
}

/// Reads one turn.
pub(super) fn turn(read: &ReadTransaction, session: &str, turn: &str) -> Result<Option<TurnRecord>, FileFault> {
    match read.open_table(TURNS)?.get((session, turn))? {
        Some(value) => decode(|| turn_name(session, turn), value.value().1).map(Some),
        None => Ok(None),
    }
}

/// Reads the timers that are due at `until` or earlier, earliest first.
pub(super) fn due_timers(read: &ReadTransaction, until: Timestamp, limit: usize) -> Result<Vec<DueTimer>, FileFault> {
    let sessions = read.open_table(SESSIONS)?;
    let mut due = Vec::new();
    for row in read.open_table(TIMERS)?.range(..(until.as_millis().saturating_add(1), "", ""))? {
        let (key, _) = row?;
        let (_, session_id, timer_id) = key.value();
        if due.len() >= limit {
            break;
        }
        let timers = head(&sessions, session_id)?.map(|session| session.timers).unwrap_or_default();
        let timer = timers.into_iter().find(|timer| timer.timer_id == timer_id);
        due.extend(timer.map(|timer| DueTimer { session_id: session_id.to_owned(), timer }));
    }
    Ok(due)
}
