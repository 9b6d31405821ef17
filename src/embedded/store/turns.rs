//! Recording steps, committing turns, and deleting expired turns.

use super::fault::FileFault;
use super::publisher::{Publisher, StoredEvent};
use super::queries::turn_name;
use super::runs;
use super::sessions::Sessions;
use super::tables::{Tables, decode, encode};
use redb::ReadableTable;
use std::sync::Arc;
use storage::store::lane;
use storage::store::records::{Change, Commit, Committed, DAYS_KEPT, Record, Recorded};
use types::session::Session;
use types::step::StepRecord;
use types::timer::Timer;
use types::timestamp::Timestamp;
use types::turn::DayUse;

/// The number of turns in one deletion, so that other operations run in between.
const PRUNE_BATCH: usize = 256;

/// Implements [`Store::record`](storage::store::Store::record). `steps` are the encoded steps of the request.
pub(super) fn record(
    tables: &mut Tables<'_>,
    sessions: &Sessions,
    request: &Record,
    steps: &[Vec<u8>],
) -> Result<Vec<Recorded>, FileFault> {
    let now = tables.clock.now();
    let recorded = record_steps(tables, &request.session_id, &request.turn_id, &request.steps, steps, now)?;
    if let Some(status) = request.status {
        sessions.change(tables, &request.session_id, |session| {
            let held = session.epoch == request.epoch && session.lease.is_some();
            if held {
                session.workflow_state.status = status;
                session.updated_at = now;
            }
            held
        })?;
    }
    Ok(recorded)
}

/// Encodes steps for the file.
pub(super) fn encode_steps(steps: &[Arc<StepRecord>]) -> Result<Vec<Vec<u8>>, FileFault> {
    steps.iter().map(|step| encode("a step's output", step)).collect()
}

/// Records the steps that have no record yet.
fn record_steps(
    tables: &mut Tables<'_>,
    session_id: &str,
    turn_id: &str,
    steps: &[Arc<StepRecord>],
    encoded: &[Vec<u8>],
    now: Timestamp,
) -> Result<Vec<Recorded>, FileFault> {
    if !steps.is_empty() && !has_steps(tables, session_id, turn_id)? {
        // So that a turn that never commits expires, too.
        tables.pending_rows.turn(now, session_id, turn_id);
    }
    let committed = tables.turns.get((session_id, turn_id))?.map(|row| owned(&row.value().2)).unwrap_or_default();
    let mut recorded = Vec::with_capacity(steps.len());
    for (step, bytes) in steps.iter().zip(encoded) {
        let key = (session_id, turn_id, step.key.as_str());
        let name = || format!("step `{}` of {}", step.key, turn_name(session_id, turn_id));
        let existing = match (committed.iter().find(|(key, _)| *key == step.key), tables.steps.get(key)?) {
            (Some((_, found)), _) => Some(decode(name, found)?),
            (None, Some(found)) => Some(decode(name, found.value())?),
            (None, None) => None,
        };
        recorded.push(match existing {
            Some(existing) => Recorded::Existing(Arc::new(existing)),
            None => {
                tables.steps.insert(key, bytes.as_slice())?;
                keep_prompt(tables, session_id, turn_id, step)?;
                Recorded::New
            }
        });
    }
    Ok(recorded)
}

/// Keeps the prompt of a step in a row of its own, so that readers of steps need not read it.
fn keep_prompt(tables: &mut Tables<'_>, session: &str, turn: &str, step: &StepRecord) -> Result<(), FileFault> {
    if let Some(prompt) = &step.prompt {
        tables.prompts.insert((session, turn, step.key.as_str()), &**prompt)?;
    }
    Ok(())
}

fn owned(steps: &[(&str, &[u8])]) -> Vec<(String, Vec<u8>)> {
    steps.iter().map(|(key, step)| ((*key).to_owned(), step.to_vec())).collect()
}

fn has_steps(tables: &Tables<'_>, session: &str, turn: &str) -> Result<bool, FileFault> {
    match tables.steps.range((session, turn, "")..)?.next() {
        Some(row) => {
            let (key, _) = row?;
            let key = key.value();
            Ok((key.0, key.1) == (session, turn))
        }
        None => Ok(false),
    }
}

/// The encoded records of a change, without the session. They are encoded before anything is written: a document that
/// is refused then leaves no half-written operation, and the writer has less work.
pub(super) struct Encoded {
    steps: Vec<Vec<u8>>,
    turn: Vec<u8>,
    history: Vec<Vec<u8>>,
}

impl Encoded {
    pub(super) fn from_change(change: &Change) -> Result<Self, FileFault> {
        Ok(Self {
            steps: encode_steps(&change.steps)?,
            turn: encode("the turn's record", &change.turn)?,
            history: change.history.iter().map(|entry| encode("a history entry", entry)).collect::<Result<_, _>>()?,
        })
    }
}

/// The result of a commit.
pub(super) struct CommitResult {
    pub(super) committed: Committed,
    /// The time of the commit.
    pub(super) now: Timestamp,
    /// The events that the commit has published.
    pub(super) published: Vec<StoredEvent>,
}

/// Implements [`Store::commit`](storage::store::Store::commit). `encoded` has the records of the request's change. When
/// the queue is in the same file, the commit publishes the outbox itself, and the stored outbox is empty.
pub(super) fn commit(
    tables: &mut Tables<'_>,
    sessions: &Sessions,
    publisher: Option<&dyn Publisher>,
    request: &Commit,
    encoded: Option<&Encoded>,
) -> Result<CommitResult, FileFault> {
    let now = tables.clock.now();
    let id = request.session_id.as_str();
    let holds = |session: &Session| session.epoch == request.epoch && session.lease.is_some();
    let Some(mut session) = sessions.get(tables, id)?.filter(holds) else {
        return Ok(CommitResult { committed: Committed::Fenced, now, published: Vec::new() });
    };
    let armed = session.timers.clone();
    match &request.change {
        Some(change) => {
            lane::apply(&mut session, change, now);
            session.outbox = if publisher.is_some() { Vec::new() } else { change.outbox.to_vec() };
            session.outbox_unread = false;
        }
        None => lane::finish_unchanged(&mut session),
    }
    let committed = lane::finish(&mut session, request, now);
    let bytes = encode("the session", &session)?;
    if let (Some(change), Some(encoded)) = (&request.change, encoded) {
        if let Some(run) = &change.run {
            runs::update(tables, run, request.epoch)?;
        }
        write_change(tables, id, change, encoded)?;
        write_timers(tables, &armed, &session)?;
    }
    let (said, dropped) = match (&request.change, encoded) {
        (Some(change), Some(encoded)) => (encoded.history.as_slice(), change.history_drop),
        _ => (&[][..], 0),
    };
    let first = sessions.append_history(tables, id, request.epoch, said, dropped)?;
    sessions.put(tables, session, first, &bytes)?;
    let published = match (publisher, &request.change) {
        (Some(publisher), Some(change)) => publisher.emit(tables, &change.outbox)?,
        _ => Vec::new(),
    };
    Ok(CommitResult { committed, now, published })
}

fn write_change(tables: &mut Tables<'_>, id: &str, change: &Change, encoded: &Encoded) -> Result<(), FileFault> {
    let key = (id, change.turn.turn_id.as_str());
    // Replaces the records of a worker that has lost its lease.
    let steps: Vec<(&str, &[u8])> =
        change.steps.iter().zip(&encoded.steps).map(|(step, bytes)| (step.key.as_str(), bytes.as_slice())).collect();
    for step in &change.steps {
        keep_prompt(tables, key.0, key.1, step)?;
    }
    let at = change.turn.committed_at;
    tables.turns.insert(key, (at.as_millis(), encoded.turn.as_slice(), steps))?;
    tables.pending_rows.turn(at, key.0, key.1);
    change.days.iter().try_for_each(|used| add_to_day(tables, used))
}

pub(super) fn add_to_day(tables: &mut Tables<'_>, used: &DayUse) -> Result<(), FileFault> {
    let key = (used.day.as_str(), used.agent_id.as_str());
    let before = tables.agent_days.get(key)?.map_or(0, |tokens| tokens.value());
    tables.agent_days.insert(key, before.saturating_add(used.tokens))?;
    Ok(())
}

/// Deletes the daily token counters that are older than [`DAYS_KEPT`].
pub(super) fn prune_days(tables: &mut Tables<'_>, now: Timestamp) -> Result<(), FileFault> {
    let first = now.minus(DAYS_KEPT).day();
    tables.agent_days.retain_in(..(first.as_str(), ""), |_, _| false)?;
    Ok(())
}

fn write_timers(tables: &mut Tables<'_>, before: &[Timer], session: &Session) -> Result<(), FileFault> {
    let id = session.session_id.as_str();
    let due = |timer: &Timer| timer.due_at.as_millis();
    for timer in before {
        tables.timers.remove((due(timer), id, timer.timer_id.as_str()))?;
    }
    for timer in &session.timers {
        tables.timers.insert((due(timer), id, timer.timer_id.as_str()), ())?;
    }
    Ok(())
}

/// Deletes a batch of turns that were last changed before `before`. Returns how many, and whether there may be more.
pub(super) fn prune(tables: &mut Tables<'_>, before: Timestamp) -> Result<(u64, bool), FileFault> {
    let before = before.as_millis();
    let mut old = Vec::new();
    let (mut marks, mut more) = (Vec::new(), false);
    for row in tables.turn_ages.range(..(before, 0))? {
        more = old.len() >= PRUNE_BATCH;
        if more {
            break;
        }
        let (mark, turns) = row?;
        marks.push(mark.value());
        old.extend(turns.value().into_iter().map(|(session, turn)| (session.to_owned(), turn.to_owned())));
    }
    for mark in marks {
        tables.turn_ages.remove(mark)?;
    }
    let mut pruned = 0;
    for (session, turn) in &old {
        let key = (session.as_str(), turn.as_str());
        let committed_at = tables.turns.get(key)?.map(|turn| turn.value().0);
        if committed_at.is_some_and(|at| at >= before) {
            // The turn was committed after this mark, so it has a later mark.
            continue;
        }
        remove_steps(tables, session, turn)?;
        if tables.turns.remove(key)?.is_some() {
            pruned += 1;
        }
    }
    Ok((pruned, more))
}

/// Removes the steps of a turn that were recorded before its commit, and all of its prompts.
fn remove_steps(tables: &mut Tables<'_>, session: &str, turn: &str) -> Result<(), FileFault> {
    for table in [&mut tables.steps, &mut tables.prompts] {
        let mut keys = Vec::new();
        for row in table.range((session, turn, "")..)? {
            let (key, _) = row?;
            let key = key.value();
            if (key.0, key.1) != (session, turn) {
                break;
            }
            keys.push(key.2.to_owned());
        }
        for key in keys {
            table.remove((session, turn, key.as_str()))?;
        }
    }
    Ok(())
}
