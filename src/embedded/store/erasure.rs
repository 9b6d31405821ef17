//! Deletion of sessions, runs, agents and workflows.

use super::fault::FileFault;
use super::history::FIRST_ENTRY;
use super::sessions::Sessions;
use super::tables::{Bytes, Tables, Text, decode, encode};
use super::versioned_table::HasVersionTables;
use super::{EmbeddedStore, drafts, expiry, runs};
use async_trait::async_trait;
use definitions::agent::AgentRecord;
use definitions::workflow::definition::WorkflowRecord;
use redb::{ReadableTable, Table};
use std::sync::Arc;
use std::time::Duration;
use storage::store::erasure::{ErasedDefinition, ErasedRecords, Erasure, ExpiredVersions, SeizedLane};
use storage::store::versioned::Versioned;
use storage::store::{Result, lane};
use types::authoring::Artifact;
use types::run::RunRecord;
use types::session::Session;
use types::timestamp::Timestamp;

/// The name in the table `meta` of the time of the last deletion. The free pages of the file may still hold deleted
/// data, so the next start writes the file again.
pub(super) const ERASED: &str = "erased";

#[async_trait]
impl Erasure for EmbeddedStore {
    async fn seize(&self, session_id: &str, owner: &str, lease: Duration) -> Result<SeizedLane> {
        let (sessions, id, owner) = (Arc::clone(&self.sessions), session_id.to_owned(), owner.to_owned());
        let seized = self.file.write(move |tables| sessions.seize(tables, &id, &owner, lease)).await?;
        self.cache.forget(session_id);
        Ok(seized)
    }

    async fn erase_records(&self, session_id: &str) -> Result<ErasedRecords> {
        let id = session_id.to_owned();
        let erased = self.file.write(move |tables| erase_records(tables, &id)).await?;
        self.catalog.forget_all_versions();
        Ok(erased)
    }

    async fn erase_lane(&self, session_id: &str, epoch: u64) -> Result<bool> {
        let (sessions, id) = (Arc::clone(&self.sessions), session_id.to_owned());
        let erased = self.file.write(move |tables| sessions.erase(tables, &id, epoch)).await?;
        self.cache.forget(session_id);
        Ok(erased)
    }

    async fn lanes_of_user(&self, user_id: &str, limit: usize) -> Result<Vec<String>> {
        let user_id = user_id.to_owned();
        // By the writer, which sees the sessions with an open lane, too. A deletion is rare.
        Ok(self.file.write(move |tables| lanes_of_user(tables, &user_id, limit)).await?)
    }

    async fn erase_agent(&self, agent_id: &str) -> Result<ErasedDefinition> {
        let id = agent_id.to_owned();
        let erased = self.file.write(move |tables| erase_agent(tables, &id)).await?;
        self.catalog.forget_agent(agent_id);
        Ok(erased)
    }

    async fn erase_workflow(&self, workflow_id: &str) -> Result<ErasedDefinition> {
        let id = workflow_id.to_owned();
        let erased = self.file.write(move |tables| erase_workflow(tables, &id)).await?;
        self.catalog.workflows.forget(workflow_id);
        Ok(erased)
    }

    async fn closed_sessions(&self, closed_for: Duration, limit: usize) -> Result<Vec<(String, Timestamp)>> {
        let before = self.file.clock().now().minus(closed_for);
        Ok(self.file.read(|read| expiry::closed_sessions(read, before, limit))?)
    }

    async fn seize_closed(
        &self,
        session_id: &str,
        closed_at: Timestamp,
        owner: &str,
        lease: Duration,
    ) -> Result<Option<SeizedLane>> {
        let (sessions, id, owner) = (Arc::clone(&self.sessions), session_id.to_owned(), owner.to_owned());
        let work = move |tables: &mut Tables<'_>| {
            let as_found = |session: &Session| session.closed_at == Some(closed_at) && !lane::is_open(session);
            match sessions.get(tables, &id)?.is_some_and(|session| as_found(&session)) {
                true => sessions.seize(tables, &id, &owner, lease).map(Some),
                false => Ok(None),
            }
        };
        let seized = self.file.write(work).await?;
        self.cache.forget(session_id);
        Ok(seized)
    }

    async fn expire_versions(&self, grace: Duration, limit: usize) -> Result<ExpiredVersions> {
        Ok(self.expire_all(grace, limit).await?)
    }

    fn forget(&self, session_id: &str) {
        self.cache.forget(session_id);
    }
}

impl Sessions {
    fn seize(
        &self,
        tables: &mut Tables<'_>,
        id: &str,
        owner: &str,
        lease: Duration,
    ) -> std::result::Result<SeizedLane, FileFault> {
        let (now, existed) = (tables.clock.now(), tables.sessions.get(id)?.is_some());
        let known = match self.get(tables, id) {
            // A session that cannot be decoded can be deleted, too.
            Err(FileFault::Damaged { .. }) => None,
            known => known?,
        };
        let new = known.is_none();
        let first = || Session { epoch: lane::first_epoch(now), ..Session::new(id, now) };
        let mut session = known.unwrap_or_else(first);
        let busy_for = lane::seize(&mut session, owner, lease, now);
        let (epoch, timers) = (session.epoch, session.timers.len() as u64);
        if new {
            let bytes = encode("the session", &session)?;
            self.put(tables, session, FIRST_ENTRY, &bytes)?;
        } else {
            self.put_lane(tables, session)?;
        }
        Ok(SeizedLane { epoch, busy_for, timers, existed })
    }

    fn erase(&self, tables: &mut Tables<'_>, id: &str, epoch: u64) -> std::result::Result<bool, FileFault> {
        let held = |session: &Session| session.epoch == epoch && session.lease.is_some();
        if !self.get(tables, id)?.is_some_and(|session| held(&session)) {
            return Ok(false);
        }
        tables.sessions.remove(id)?;
        tables.lanes.remove(id)?;
        tables.history.retain_in((id, 0)..=(id, u64::MAX), |_, _| false)?;
        // All of its rows, whatever the session's document says.
        tables.timers.retain(|(_, session, _), ()| session != id)?;
        self.remove(id);
        note_deletion(tables);
        Ok(true)
    }
}

/// Makes the next start write the file again.
fn note_deletion(tables: &mut Tables<'_>) {
    let now = tables.clock.now().as_millis().unsigned_abs();
    tables.pending_rows.counter(ERASED, now);
}

fn erase_records(tables: &mut Tables<'_>, id: &str) -> std::result::Result<ErasedRecords, FileFault> {
    let mut erased = ErasedRecords::default();
    let mut turns = Vec::new();
    for row in tables.turns.range((id, "")..)? {
        let (key, turn) = row?;
        let (session, turn_id) = key.value();
        if session != id {
            break;
        }
        erased.steps += turn.value().2.len() as u64;
        turns.push(turn_id.to_owned());
    }
    for turn in &turns {
        tables.turns.remove((id, turn.as_str()))?;
    }
    erased.turns = turns.len() as u64;
    erased.steps += erase_steps(&mut tables.steps, id)?;
    erase_steps(&mut tables.prompts, id)?;
    erased.runs = erase_runs(tables, id)?;
    erased.plans = super::session_plans::erase_of(tables, id)?;
    tables.authoring.remove(id)?;
    drafts::drop_of(tables, id)?;
    Ok(erased)
}

/// Removes the rows of a session. Returns their number.
fn erase_steps(table: &mut Table<'_, (Text, Text, Text), Bytes>, id: &str) -> std::result::Result<u64, FileFault> {
    let mut steps = Vec::new();
    for row in table.range((id, "", "")..)? {
        let (key, _) = row?;
        let (session, turn, step) = key.value();
        if session != id {
            break;
        }
        steps.push((turn.to_owned(), step.to_owned()));
    }
    for (turn, step) in &steps {
        table.remove((id, turn.as_str(), step.as_str()))?;
    }
    Ok(steps.len() as u64)
}

fn erase_runs(tables: &mut Tables<'_>, id: &str) -> std::result::Result<u64, FileFault> {
    let of = |run: &RunRecord| run.origin_session.as_deref() == Some(id) || run.lane == id;
    let mut found = Vec::new();
    for row in tables.runs.iter()? {
        let (run_id, run) = row?;
        // A run that cannot be decoded is found by its own id.
        let run = decode::<RunRecord>(String::new, run.value().1).ok();
        if run_id.value() == id || run.as_ref().is_some_and(of) {
            found.push(run_id.value().to_owned());
        }
    }
    for run_id in &found {
        runs::erase(tables, run_id)?;
    }
    Ok(found.len() as u64)
}

fn lanes_of_user(tables: &mut Tables<'_>, user_id: &str, limit: usize) -> std::result::Result<Vec<String>, FileFault> {
    #[derive(serde::Deserialize)]
    struct OfUser {
        #[serde(default)]
        user_id: Option<String>,
    }
    let is_of = |bytes: &[u8]| {
        decode::<OfUser>(String::new, bytes).is_ok_and(|found| found.user_id.as_deref() == Some(user_id))
    };
    let mut found = std::collections::BTreeSet::new();
    for row in tables.sessions.iter()? {
        let (id, session) = row?;
        if found.len() < limit && is_of(session.value().3) {
            found.insert(id.value().to_owned());
        }
    }
    for row in tables.runs.iter()? {
        let (id, run) = row?;
        if found.len() < limit && is_of(run.value().1) {
            found.insert(id.value().to_owned());
        }
    }
    Ok(found.into_iter().collect())
}

fn erase_agent(tables: &mut Tables<'_>, id: &str) -> std::result::Result<ErasedDefinition, FileFault> {
    let mut erased = ErasedDefinition { existed: tables.agents.remove(id)?.is_some(), ..ErasedDefinition::default() };
    erased.versions = erase_versions::<AgentRecord>(tables, id)?;
    erased.plans = erase_pairs(&mut tables.plans, id)?;
    erased.sources = erase_pairs(&mut tables.knowledge, id)?;
    erase_pairs(&mut tables.passages, id)?;
    tables.version_marks.retain(|(_, agent, _), _| agent != id)?;
    tables.agent_days.retain(|(_, agent), _| agent != id)?;
    tables.owners.remove((AgentRecord::CURRENT, id))?;
    if erased.existed || erased.versions > 0 {
        super::authoring::forget_artefact(tables, Artifact::Agent, id)?;
    }
    note_deletion(tables);
    Ok(erased)
}

fn erase_workflow(tables: &mut Tables<'_>, id: &str) -> std::result::Result<ErasedDefinition, FileFault> {
    let existed = tables.workflows.remove(id)?.is_some();
    super::session_plans::erase_state(tables, id)?;
    let versions = erase_versions::<WorkflowRecord>(tables, id)?;
    if existed || versions > 0 {
        super::authoring::forget_artefact(tables, Artifact::Workflow, id)?;
    }
    tables.owners.remove((WorkflowRecord::CURRENT, id))?;
    tables.version_marks.retain(|(_, workflow, _), _| workflow != id)?;
    note_deletion(tables);
    Ok(ErasedDefinition { existed, versions, ..ErasedDefinition::default() })
}

/// Deletes the versions of a definition without the drafts that belong to dialogues. Returns their number.
fn erase_versions<T: HasVersionTables>(tables: &mut Tables<'_>, id: &str) -> std::result::Result<u64, FileFault> {
    let mut found = Vec::new();
    for row in T::tables(tables).1.range((id, "")..)? {
        let (key, _) = row?;
        match key.value() {
            (of, hash) if of == id => found.push(hash.to_owned()),
            _ => break,
        }
    }
    let mut erased = 0;
    for hash in &found {
        let key = (T::VERSIONS, id, hash.as_str());
        if drafts::is_of_nobody(&drafts::sessions(tables, key)?) {
            tables.drafts.remove(key)?;
            T::tables(tables).1.remove((id, hash.as_str()))?;
            erased += 1;
        }
    }
    Ok(erased)
}

/// Deletes all rows whose keys begin with `id`. Returns their number.
pub(super) fn erase_pairs(
    table: &mut redb::Table<'_, (&'static str, &'static str), &'static [u8]>,
    id: &str,
) -> std::result::Result<u64, FileFault> {
    let mut found = Vec::new();
    for row in table.range((id, "")..)? {
        let (key, _) = row?;
        match key.value() {
            (of, other) if of == id => found.push(other.to_owned()),
            _ => break,
        }
    }
    for other in &found {
        table.remove((id, other.as_str()))?;
    }
    Ok(found.len() as u64)
}
