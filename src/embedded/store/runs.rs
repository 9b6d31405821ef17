//! Records of workflow runs.

use super::fault::FileFault;
use super::sessions;
use super::tables::{RUN_ENDS, RUN_TIMES, RUNS, Tables, decode, encode};
use redb::{ReadTransaction, ReadableTable};
use types::page::{Page, PageBuilder};
use types::run::{RunQuery, RunRecord};
use types::timestamp::Timestamp;

/// The number of runs in one deletion, so that other operations run in between.
const PRUNE_BATCH: usize = 256;

fn name(run_id: &str) -> String {
    format!("run `{run_id}`")
}

/// Inserts a run. Returns false when it exists.
pub(super) fn put(tables: &mut Tables<'_>, run: &RunRecord) -> Result<bool, FileFault> {
    if tables.runs.get(run.run_id.as_str())?.is_some() {
        return Ok(false);
    }
    update(tables, run, 0).map(|()| true)
}

/// Writes a run, unless a later epoch wrote the stored record.
pub(super) fn update(tables: &mut Tables<'_>, run: &RunRecord, epoch: u64) -> Result<(), FileFault> {
    let bytes = encode("the run", run)?;
    let id = run.run_id.as_str();
    let before = match tables.runs.get(id)? {
        Some(found) if found.value().0 > epoch => return Ok(()),
        Some(found) => decode::<RunRecord>(|| name(id), found.value().1).ok(),
        None => None,
    };
    if let Some(before) = before {
        forget_times(tables, &before)?;
    }
    tables.runs.insert(id, (epoch, bytes.as_slice()))?;
    tables.run_times.insert((run.created_at.as_millis(), id), ())?;
    if let Some(ended_at) = run.ended_at {
        tables.run_ends.insert((ended_at.as_millis(), id), ())?;
    }
    Ok(())
}

fn forget_times(tables: &mut Tables<'_>, run: &RunRecord) -> Result<(), FileFault> {
    let id = run.run_id.as_str();
    tables.run_times.remove((run.created_at.as_millis(), id))?;
    if let Some(ended_at) = run.ended_at {
        tables.run_ends.remove((ended_at.as_millis(), id))?;
    }
    Ok(())
}

/// Deletes a run, but not its lane.
pub(super) fn erase(tables: &mut Tables<'_>, run_id: &str) -> Result<(), FileFault> {
    let run = match tables.runs.remove(run_id)? {
        Some(found) => decode::<RunRecord>(|| name(run_id), found.value().1).ok(),
        None => None,
    };
    if let Some(run) = run {
        forget_times(tables, &run)?;
    }
    Ok(())
}

/// Reads one run.
pub(super) fn one(read: &ReadTransaction, run_id: &str) -> Result<Option<RunRecord>, FileFault> {
    match read.open_table(RUNS)?.get(run_id)? {
        Some(found) => decode(|| name(run_id), found.value().1).map(Some),
        None => Ok(None),
    }
}

/// Implements [`Store::runs_page`](storage::store::Store::runs_page).
pub(super) fn list(read: &ReadTransaction, query: &RunQuery) -> Result<Page<RunRecord>, FileFault> {
    let mut page = PageBuilder::new(query.limit, query.max_bytes);
    let (by_time, runs) = (read.open_table(if query.by_end { RUN_ENDS } else { RUN_TIMES })?, read.open_table(RUNS)?);
    let rows = match &query.after {
        Some((at, id)) => by_time.range(..(at.as_millis(), id.as_str()))?,
        None => by_time.iter()?,
    };
    for row in rows.rev() {
        let (key, _) = row?;
        let id = key.value().1;
        let Some(found) = runs.get(id)? else { continue };
        let bytes = found.value().1;
        let run = decode(|| name(id), bytes)?;
        if fits(query, &run) && !page.push(run, bytes.len()) {
            break;
        }
    }
    Ok(page.finish())
}

fn fits(query: &RunQuery, run: &RunRecord) -> bool {
    query.workflow_id.as_ref().is_none_or(|wanted| run.workflow_id == *wanted)
        && query.status.is_none_or(|wanted| run.status == wanted)
        && query.origin_session.as_ref().is_none_or(|wanted| run.origin_session.as_ref() == Some(wanted))
        && query.lane.as_ref().is_none_or(|wanted| run.lane == *wanted)
        && query.turn_id.as_ref().is_none_or(|wanted| run.turn_id == *wanted)
}

/// Deletes a batch of runs that ended before `before`. Returns true when there may be more.
pub(super) fn prune(tables: &mut Tables<'_>, before: Timestamp) -> Result<bool, FileFault> {
    let mut old = Vec::new();
    for row in tables.run_ends.range(..(before.as_millis(), ""))?.take(PRUNE_BATCH) {
        let (key, _) = row?;
        old.push((key.value().0, key.value().1.to_owned()));
    }
    for (at, id) in &old {
        erase(tables, id)?;
        tables.run_ends.remove((*at, id.as_str()))?;
        sessions::forget_lane(tables, id)?;
    }
    Ok(old.len() == PRUNE_BATCH)
}
