//! Turns and steps.

use super::fault::Fault;
use super::tables::{STEPS, TURNS, Tables, decode, encode};
use crate::clock::Timestamp;
use crate::journal::StepRecord;
use crate::store::{Change, Recorded, TurnRecord};
use redb::{ReadTransaction, ReadableTable};

/// Records a step unless it is recorded.
pub(super) fn record(
    tables: &mut Tables<'_>,
    session_id: &str,
    turn_id: &str,
    step: &StepRecord,
) -> Result<Recorded, Fault> {
    let key = (session_id, turn_id, step.key.as_str());
    if let Some(earlier) = tables.steps.get(key)? {
        return Ok(Recorded::Existing(Box::new(decode(|| format!("step {key:?}"), earlier.value())?)));
    }
    tables.steps.insert(key, encode("a step's result", step)?.as_slice())?;
    Ok(Recorded::New)
}

/// Writes a turn's record and the steps that are not recorded yet.
pub(super) fn write_turn(tables: &mut Tables<'_>, change: &Change) -> Result<(), Fault> {
    let turn = &change.turn;
    let (session_id, turn_id, at) = (turn.session_id.as_str(), turn.turn_id.as_str(), turn.committed_at.as_millis());
    let bytes = encode("a turn", turn)?;
    for step in &change.steps {
        record(tables, session_id, turn_id, step)?;
    }
    tables.turns.insert((session_id, turn_id), (at, bytes.as_slice()))?;
    tables.turn_ages.insert((at, session_id, turn_id), ())?;
    Ok(())
}

pub(super) fn steps(read: &ReadTransaction, session_id: &str, turn_id: &str) -> Result<Vec<StepRecord>, Fault> {
    let table = read.open_table(STEPS)?;
    let mut steps = Vec::new();
    for row in table.range((session_id, turn_id, "")..)? {
        let (key, value) = row?;
        if (key.value().0, key.value().1) != (session_id, turn_id) {
            break;
        }
        steps.push(decode(|| format!("a step of turn `{turn_id}`"), value.value())?);
    }
    Ok(steps)
}

pub(super) fn turn(read: &ReadTransaction, session_id: &str, turn_id: &str) -> Result<Option<TurnRecord>, Fault> {
    let table = read.open_table(TURNS)?;
    let row = table.get((session_id, turn_id))?;
    row.map(|row| decode(|| format!("turn `{turn_id}`"), row.value().1)).transpose()
}

/// The turns of a session, newest first.
pub(super) fn turns(read: &ReadTransaction, session_id: &str, limit: usize) -> Result<Vec<TurnRecord>, Fault> {
    let table = read.open_table(TURNS)?;
    let mut turns: Vec<TurnRecord> = Vec::new();
    for row in table.range((session_id, "")..)? {
        let (key, value) = row?;
        if key.value().0 != session_id {
            break;
        }
        turns.push(decode(|| format!("a turn of session `{session_id}`"), value.value().1)?);
    }
    turns.sort_by_key(|turn| std::cmp::Reverse(turn.started_at));
    turns.truncate(limit);
    Ok(turns)
}

/// Deletes the turns committed before `before`, with their steps; answers how many.
pub(super) fn prune(tables: &mut Tables<'_>, before: Timestamp) -> Result<u64, Fault> {
    let mut expired = Vec::new();
    for row in tables.turn_ages.range(..(before.as_millis(), "", ""))? {
        let key = row?.0;
        let (at, session_id, turn_id) = key.value();
        expired.push((at, session_id.to_owned(), turn_id.to_owned()));
    }
    for (at, session_id, turn_id) in &expired {
        tables.turn_ages.remove((*at, session_id.as_str(), turn_id.as_str()))?;
        tables.turns.remove((session_id.as_str(), turn_id.as_str()))?;
        let mut keys = Vec::new();
        for row in tables.steps.range((session_id.as_str(), turn_id.as_str(), "")..)? {
            let key = row?.0;
            let (session, turn, step) = key.value();
            if (session, turn) != (session_id.as_str(), turn_id.as_str()) {
                break;
            }
            keys.push(step.to_owned());
        }
        for key in keys {
            tables.steps.remove((session_id.as_str(), turn_id.as_str(), key.as_str()))?;
        }
    }
    Ok(u64::try_from(expired.len()).unwrap_or(u64::MAX))
}
