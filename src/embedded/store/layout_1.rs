//! The first layout of the file, and its conversion. Each entry of a history, each event and each id of a job had a row
//! of its own.

use super::fault::FileFault;
use super::history::FIRST_ENTRY;
use super::sessions::IDLE_FLAG;
use super::tables::{self, Bytes, Definition, Text};
use redb::{Key, ReadOnlyTable, ReadTransaction, TableDefinition, TableError, Value, WriteTransaction};

/// Session → (`updated_at`, flags, the session without its history).
pub(super) const SESSIONS: Definition<Text, (i64, u8, Bytes)> = TableDefinition::new("sessions");
/// (Session, number) → entry of its history.
pub(super) const HISTORY: Definition<(Text, u64), Bytes> = TableDefinition::new("history");
/// (Session, turn) → (`committed_at`, record).
pub(super) const TURNS: Definition<(Text, Text), (i64, Bytes)> = TableDefinition::new("turns");
/// (Time, session, turn).
pub(super) const TURN_AGES: Definition<(i64, Text, Text), ()> = TableDefinition::new("turn_ages");
/// Sequence → (time, message id).
pub(super) const JOB_IDS: Definition<u64, (i64, Text)> = TableDefinition::new("job_ids");
/// Sequence → (channel, type, payload).
pub(super) const EVENTS: Definition<u64, (Text, Text, Bytes)> = TableDefinition::new("events");
/// Sequence → (time, session, message id).
pub(super) const EVENT_INDEX: Definition<u64, (i64, Text, Option<Text>)> = TableDefinition::new("event_index");

/// Copies all rows of a file of the first layout into a file of the current one.
pub(super) fn convert(
    from: &ReadTransaction,
    to: &WriteTransaction,
    progress: &mut dyn FnMut(&str),
) -> Result<(), FileFault> {
    progress("sessions");
    sessions(from, to)?;
    progress("turns");
    turns(from, to)?;
    progress("events");
    events(from, to)?;
    progress("tables without a change");
    macro_rules! same {
        ($($definition:ident)*) => { $(tables::copy(from, to, tables::$definition)?;)* };
    }
    same! { META LANES STEPS TIMERS PLANS AGENTS AGENT_VERSIONS KNOWLEDGE PASSAGES WORKFLOWS WORKFLOW_VERSIONS }
    same! { RUNS RUN_TIMES RUN_ENDS AGENT_DAYS JOBS DEAD }
    Ok(())
}

fn sessions(from: &ReadTransaction, to: &WriteTransaction) -> Result<(), FileFault> {
    let history = open(from, HISTORY)?;
    if let Some(sessions) = open(from, SESSIONS)? {
        let mut converted = to.open_table(tables::SESSIONS)?;
        for row in sessions.range::<&str>(..)? {
            let (id, session) = row?;
            let (id, (updated_at, flags, bytes)) = (id.value(), session.value());
            let first = match &history {
                Some(history) => history.range((id, 0)..=(id, u64::MAX))?.next().transpose()?,
                None => None,
            };
            let first = first.map_or(FIRST_ENTRY, |(key, _)| key.value().1);
            converted.insert(id, (updated_at, flags & IDLE_FLAG, first, bytes))?;
        }
    }
    let Some(history) = history else { return Ok(()) };
    let mut converted = to.open_table(tables::HISTORY)?;
    for row in history.range::<(&str, u64)>(..)? {
        let (key, entry) = row?;
        converted.insert(key.value(), vec![entry.value()])?;
    }
    Ok(())
}

fn turns(from: &ReadTransaction, to: &WriteTransaction) -> Result<(), FileFault> {
    if let Some(turns) = open(from, TURNS)? {
        let mut converted = to.open_table(tables::TURNS)?;
        for row in turns.range::<(&str, &str)>(..)? {
            let (key, turn) = row?;
            let (committed_at, record) = turn.value();
            // Their steps are all in the table `steps`.
            converted.insert(key.value(), (committed_at, record, Vec::new()))?;
        }
    }
    let Some(ages) = open(from, TURN_AGES)? else { return Ok(()) };
    let mut converted = to.open_table(tables::TURN_AGES)?;
    for (row, number) in ages.range::<(i64, &str, &str)>(..)?.zip(0..) {
        let (key, _) = row?;
        let (at, session_id, turn_id) = key.value();
        converted.insert((at, number), vec![(session_id, turn_id)])?;
    }
    Ok(())
}

fn events(from: &ReadTransaction, to: &WriteTransaction) -> Result<(), FileFault> {
    if let Some(ids) = open(from, JOB_IDS)? {
        let mut converted = to.open_table(tables::JOB_IDS)?;
        for row in ids.range::<u64>(..)? {
            let (seq, id) = row?;
            let (at, id) = id.value();
            converted.insert(seq.value(), (at, vec![(seq.value(), id)]))?;
        }
    }
    if let Some(events) = open(from, EVENTS)? {
        let mut converted = to.open_table(tables::EVENTS)?;
        for row in events.range::<u64>(..)? {
            let (seq, event) = row?;
            converted.insert(seq.value(), vec![event.value()])?;
        }
    }
    let Some(index) = open(from, EVENT_INDEX)? else { return Ok(()) };
    let mut converted = to.open_table(tables::EVENT_INDEX)?;
    for row in index.range::<u64>(..)? {
        let (seq, event) = row?;
        let (at, session_id, id) = event.value();
        converted.insert(seq.value(), (at, vec![(seq.value(), session_id, id)]))?;
    }
    Ok(())
}

/// Opens a table; `None` when the version that wrote the file did not have it.
fn open<K: Key + 'static, V: Value + 'static>(
    from: &ReadTransaction,
    table: Definition<K, V>,
) -> Result<Option<ReadOnlyTable<K, V>>, FileFault> {
    match from.open_table(table) {
        Ok(table) => Ok(Some(table)),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
