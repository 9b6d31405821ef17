//! The plans of sessions: workflows with an owner and a state. The workflow is in the tables of workflows, the state in
//! a table of its own.

use super::EmbeddedFile;
use super::erasure::erase_pairs;
use super::fault::FileFault;
use super::tables::{PLAN_STATES, SESSION_PLANS, Tables, decode, encode};
use super::versioned_table::{VersionedTable, insert_version};
use decisions::world::WorkflowStatus;
use definitions::workflow::definition::WorkflowRecord;
use definitions::workflow::session_plan::{MAX_PLANS, PlanState, SessionPlan};
use redb::{ReadTransaction, ReadableTable};
use storage::store::VersionLabel;
use storage::store::versioned::Versioned;
use storage::store::versions::Reason;
use tracing::warn;
use types::timestamp::Timestamp;

/// The number of plans in one deletion, so that other operations run in between.
const PRUNE_BATCH: usize = 256;

/// Implements [`Store::put_session_plan`](storage::store::Store::put_session_plan).
pub(super) fn put(tables: &mut Tables<'_>, plan: &WorkflowRecord, agent_id: &str) -> Result<(), FileFault> {
    let (id, session_id) = (plan.id(), plan.owner_session.as_deref().unwrap_or_default());
    let (now, known) = (tables.clock.now(), state(tables, id)?);
    let is_free = known.is_some() || tables.workflows.get(id)?.is_none();
    if !is_free || known.as_ref().is_some_and(|known| known.owner_session != session_id) {
        let problem = format!("workflow `{id}` does not belong to session `{session_id}`");
        return Err(FileFault::Refused(problem.into()));
    }
    insert_version(tables, plan, Reason::Applied, &VersionLabel::default())?;
    let bytes = encode(WorkflowRecord::WHAT, &plan.fields())?;
    tables.workflows.insert(id, bytes.as_slice())?;
    let state = known.unwrap_or_else(|| PlanState::new(session_id, agent_id, now));
    write(tables, id, &PlanState { agent_id: agent_id.to_owned(), used_at: now, ..state })?;
    drop_old(tables, session_id)
}

/// Deletes all plans of the session except the last used ones. Their versions and states stay until they expire, since
/// a run may need them.
fn drop_old(tables: &mut Tables<'_>, session_id: &str) -> Result<(), FileFault> {
    let mut ids = Vec::new();
    for row in tables.session_plans.range((session_id, "")..)? {
        let (key, _) = row?;
        match key.value() {
            (owner, id) if owner == session_id => ids.push(id.to_owned()),
            _ => break,
        }
    }
    let mut plans = Vec::new();
    for id in ids {
        plans.extend(state(tables, &id)?.map(|state| (id, state)));
    }
    plans.sort_by(|one, other| order(other).cmp(&order(one)));
    let old = plans.into_iter().skip(MAX_PLANS).filter(|(_, state)| state.status != WorkflowStatus::Running);
    for (id, _) in old {
        tables.workflows.remove(id.as_str())?;
        tables.session_plans.remove((session_id, id.as_str()))?;
    }
    Ok(())
}

fn order(plan: &(String, PlanState)) -> (Timestamp, &str) {
    (plan.1.used_at, &plan.0)
}

fn state(tables: &Tables<'_>, id: &str) -> Result<Option<PlanState>, FileFault> {
    match tables.plan_states.get(id)? {
        Some(found) => decode(|| name(id), found.value()).map(Some),
        None => Ok(None),
    }
}

fn write(tables: &mut Tables<'_>, id: &str, state: &PlanState) -> Result<(), FileFault> {
    let bytes = encode("the state of a plan", state)?;
    tables.plan_states.insert(id, bytes.as_slice())?;
    tables.session_plans.insert((state.owner_session.as_str(), id), ())?;
    Ok(())
}

fn name(id: &str) -> String {
    format!("the state of plan `{id}`")
}

/// Implements [`Store::set_workflow_state`](storage::store::Store::set_workflow_state).
pub(super) fn set_state(
    tables: &mut Tables<'_>,
    id: &str,
    from: &[WorkflowStatus],
    to: WorkflowStatus,
    run_id: Option<&str>,
) -> Result<bool, FileFault> {
    let Some(known) = state(tables, id)? else { return Ok(false) };
    if tables.workflows.get(id)?.is_none() || !known.may_become(from, to, run_id) {
        return Ok(false);
    }
    let status_run = run_id.map(str::to_owned).or(known.status_run);
    write(tables, id, &PlanState { status: to, status_run, used_at: tables.clock.now(), ..known })?;
    Ok(true)
}

/// Implements [`Store::plans_of`](storage::store::Store::plans_of).
pub(super) fn list(
    file: &EmbeddedFile,
    workflows: &VersionedTable<WorkflowRecord>,
    session_id: &str,
) -> Result<Vec<SessionPlan>, FileFault> {
    let mut states = file.read(|read| states_of(read, session_id))?;
    states.sort_by(|one, other| order(other).cmp(&order(one)));
    let mut plans = Vec::new();
    for (id, state) in states.into_iter().take(MAX_PLANS) {
        match workflows.current(file, &id) {
            Ok(workflow) => plans.extend(workflow.map(|workflow| SessionPlan { workflow, state })),
            Err(FileFault::Damaged { what, source }) => warn!("plan left out: {what} cannot be decoded: {source}"),
            Err(error) => return Err(error),
        }
    }
    Ok(plans)
}

fn states_of(read: &ReadTransaction, session_id: &str) -> Result<Vec<(String, PlanState)>, FileFault> {
    let (plans, states) = (read.open_table(SESSION_PLANS)?, read.open_table(PLAN_STATES)?);
    let mut found = Vec::new();
    for row in plans.range((session_id, "")..)? {
        let (key, _) = row?;
        let (owner, id) = key.value();
        if owner != session_id {
            break;
        }
        if let Some(state) = states.get(id)? {
            found.push((id.to_owned(), decode(|| name(id), state.value())?));
        }
    }
    Ok(found)
}

/// Deletes a batch of plans that were last used before `before`, with all their versions. Returns true when there may
/// be more.
pub(super) fn prune(tables: &mut Tables<'_>, before: Timestamp) -> Result<bool, FileFault> {
    let mut old = Vec::new();
    for row in tables.plan_states.iter()? {
        let (id, state) = row?;
        let id = id.value();
        // A state that cannot be decoded stays for the version of the program that wrote it.
        let state = decode::<PlanState>(|| name(id), state.value()).ok();
        old.extend(state.filter(|state| state.used_at < before).map(|state| (id.to_owned(), state.owner_session)));
        if old.len() == PRUNE_BATCH {
            break;
        }
    }
    for (id, owner_session) in &old {
        erase(tables, id, owner_session)?;
    }
    Ok(old.len() == PRUNE_BATCH)
}

/// Deletes all plans of a session with their versions. Returns their number.
pub(super) fn erase_of(tables: &mut Tables<'_>, session_id: &str) -> Result<u64, FileFault> {
    let mut owned = Vec::new();
    // Plans that are no longer among the session's last ones have only their states.
    for row in tables.plan_states.iter()? {
        let (id, state) = row?;
        let state = decode::<PlanState>(|| name(id.value()), state.value()).ok();
        if state.is_some_and(|state| state.owner_session == session_id) {
            owned.push(id.value().to_owned());
        }
    }
    for id in &owned {
        erase(tables, id, session_id)?;
    }
    Ok(owned.len() as u64)
}

/// Deletes the state of a plan, if the workflow is one.
pub(super) fn erase_state(tables: &mut Tables<'_>, id: &str) -> Result<(), FileFault> {
    if let Some(state) = state(tables, id)? {
        tables.session_plans.remove((state.owner_session.as_str(), id))?;
    }
    tables.plan_states.remove(id)?;
    Ok(())
}

fn erase(tables: &mut Tables<'_>, id: &str, owner_session: &str) -> Result<(), FileFault> {
    tables.plan_states.remove(id)?;
    tables.session_plans.remove((owner_session, id))?;
    tables.workflows.remove(id)?;
    erase_pairs(&mut tables.workflow_versions, id)?;
    Ok(())
}
