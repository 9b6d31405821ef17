//! Reads that no write needs.

use super::fault::FileFault;
use super::sessions::{IDLE_FLAG, is_idle};
use super::tables::{AGENT_DAYS, PROMPTS, SESSIONS, STEPS, TIMERS, TURNS, decode, encode};
use super::{history, lanes};
use redb::{ReadTransaction, ReadableTable};
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use storage::store::records::{DueTimer, IdleSession, TimerPlace, TurnPlace};
use types::page::{Bounds, Page, PageBuilder};
use types::session::Session;
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

pub(super) type SessionTable = redb::ReadOnlyTable<&'static str, (i64, u8, u64, &'static [u8])>;

/// Reads a session as its last commit wrote it, without its history.
pub(super) fn head(table: &SessionTable, id: &str) -> Result<Option<Session>, FileFault> {
    match table.get(id)? {
        Some(value) => decode(|| session_name(id), value.value().3).map(Some),
        None => Ok(None),
    }
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

/// Reads the kept prompt of a step.
pub(super) fn prompt(
    read: &ReadTransaction,
    session: &str,
    turn: &str,
    key: &str,
) -> Result<Option<Vec<u8>>, FileFault> {
    let table = read.open_table(PROMPTS)?;
    let found = table.get((session, turn, key))?;
    Ok(found.map(|row| row.value().to_vec()))
}

/// Reads a page of the steps of a turn, ordered by key.
pub(super) fn steps_page(
    read: &ReadTransaction,
    session: &str,
    turn: &str,
    bounds: &Bounds<String>,
) -> Result<Page<StepRecord>, FileFault> {
    let mut page = PageBuilder::new(bounds.limit, bounds.max_bytes);
    let is_behind = |step: &StepRecord| bounds.after.as_ref().is_none_or(|after| step.key > *after);
    for step in steps(read, session, turn)?.into_iter().filter(is_behind) {
        let bytes = encode("a step", &step)?.len();
        if !page.push(step, bytes) {
            break;
        }
    }
    Ok(page.finish())
}

/// Implements [`Store::turns_page`](storage::store::Store::turns_page).
pub(super) fn turns(
    read: &ReadTransaction,
    session: &str,
    bounds: &Bounds<TurnPlace>,
) -> Result<Page<TurnRecord>, FileFault> {
    let table = read.open_table(TURNS)?;
    let mut order = Vec::new();
    for row in table.range((session, "")..)? {
        let (key, value) = row?;
        let (of, turn) = key.value();
        if of != session {
            break;
        }
        let (committed_at, record, _) = value.value();
        let committed_at = Timestamp::from_millis(committed_at);
        // A record that cannot be decoded fails the listing only if it is listed.
        let started_at = decode::<TurnMark>(String::new, record).map_or(committed_at, |mark| mark.started_at);
        order.push((started_at, (committed_at, turn.to_owned())));
    }
    order.retain(|place| bounds.after.as_ref().is_none_or(|after| place < after));
    order.sort_unstable();
    let mut page = PageBuilder::new(bounds.limit, bounds.max_bytes);
    for (_, (_, id)) in order.into_iter().rev() {
        let Some(row) = table.get((session, id.as_str()))? else { continue };
        let (_, record, _) = row.value();
        if !page.push(decode(|| turn_name(session, &id), record)?, record.len()) {
            break;
        }
    }
    Ok(page.finish())
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

/// Implements [`Store::timers_page`](storage::store::Store::timers_page).
pub(super) fn timers_page(read: &ReadTransaction, bounds: &Bounds<TimerPlace>) -> Result<Page<DueTimer>, FileFault> {
    let (sessions, timers) = (read.open_table(SESSIONS)?, read.open_table(TIMERS)?);
    let mut page = PageBuilder::new(bounds.limit, bounds.max_bytes);
    let rows = match &bounds.after {
        Some((due_at, (session, timer))) => {
            let after = (due_at.as_millis(), session.as_str(), timer.as_str());
            timers.range::<(i64, &str, &str)>((Bound::Excluded(after), Bound::Unbounded))?
        }
        None => timers.iter()?,
    };
    for row in rows {
        let (key, _) = row?;
        let (_, session_id, timer_id) = key.value();
        let of_session = head(&sessions, session_id)?.map(|session| session.timers).unwrap_or_default();
        let Some(timer) = of_session.into_iter().find(|timer| timer.timer_id == timer_id) else { continue };
        let bytes = encode("a timer", &timer)?.len();
        if !page.push(DueTimer { session_id: session_id.to_owned(), timer }, bytes) {
            break;
        }
    }
    Ok(page.finish())
}
