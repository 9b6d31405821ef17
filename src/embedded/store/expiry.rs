//! Expiry of closed conversations, and of versions of agents and workflows that nothing uses.
//!
//! A version that is not in use gets a mark with the time since when; a version that is in use again loses it. A
//! version is deleted when the grace has passed and it still is not in use.

use super::fault::FileFault;
use super::sessions::IDLE_FLAG;
use super::tables::{AGENT_VERSIONS, PLANS, RUNS, SESSIONS, Tables, decode};
use super::versioned_table::HasVersionTables;
use super::{EmbeddedStore, catalog::lock, drafts, lanes};
use definitions::agent::AgentRecord;
use definitions::workflow::definition::WorkflowRecord;
use redb::{ReadTransaction, ReadableTable};
use serde::Deserialize;
use std::collections::{HashMap, HashSet};
use std::ops::Bound;
use std::sync::Mutex;
use std::time::Duration;
use storage::store::ExpiredVersions;
use types::session::Kind;
use types::timestamp::Timestamp;

/// The id and the hash of a version.
type Version = (String, String);

/// The last versions that were looked at, by table.
pub(super) type Places = Mutex<HashMap<&'static str, Version>>;

/// The fields of a session that say which version of which agent it uses.
#[derive(Deserialize)]
pub(super) struct OfSession {
    pub(super) agent_id: String,
    #[serde(default)]
    pub(super) kind: Kind,
    pub(super) workflow_state: OfState,
    #[serde(default)]
    pub(super) closed_at: Option<Timestamp>,
}

#[derive(Deserialize)]
pub(super) struct OfState {
    pub(super) hash: String,
}

/// The fields of a run that the expiry needs.
#[derive(Deserialize)]
struct OfRun {
    workflow_id: String,
    hash: String,
}

/// Implements [`Erasure::closed_sessions`](storage::store::Erasure::closed_sessions).
pub(super) fn closed_sessions(
    read: &ReadTransaction,
    before: Timestamp,
    limit: usize,
) -> Result<Vec<(String, Timestamp)>, FileFault> {
    let (open, mut closed) = (lanes::all(read)?, Vec::new());
    for row in read.open_table(SESSIONS)?.iter()? {
        let (id, value) = row?;
        let (updated_at, flags, _, bytes) = value.value();
        // Closing a conversation changes it. Most of the others are open and idle, so few are decoded.
        if flags & IDLE_FLAG != 0 || updated_at >= before.as_millis() || open.contains_key(id.value()) {
            continue;
        }
        let Ok(session) = decode::<OfSession>(String::new, bytes) else { continue };
        let closed_at = session.closed_at.filter(|at| *at < before && session.kind == Kind::Chat);
        closed.extend(closed_at.map(|at| (at, id.value().to_owned())));
    }
    closed.sort_unstable();
    Ok(closed.into_iter().take(limit).map(|(at, id)| (id, at)).collect())
}

/// The versions with which open conversations last ran, and those of stored runs.
fn versions_in_use(read: &ReadTransaction) -> Result<HashSet<Version>, FileFault> {
    let mut used = HashSet::new();
    for row in read.open_table(SESSIONS)?.iter()? {
        let (_, value) = row?;
        let Ok(session) = decode::<OfSession>(String::new, value.value().3) else { continue };
        if session.closed_at.is_none() {
            used.insert((session.agent_id, session.workflow_state.hash));
        }
    }
    for row in read.open_table(RUNS)?.iter()? {
        let (_, value) = row?;
        if let Ok(run) = decode::<OfRun>(String::new, value.value().1) {
            used.insert((run.workflow_id, run.hash));
        }
    }
    Ok(used)
}

impl EmbeddedStore {
    /// Implements [`Erasure::expire_versions`](storage::store::Erasure::expire_versions).
    pub(super) async fn expire_all(&self, grace: Duration, limit: usize) -> Result<ExpiredVersions, FileFault> {
        let agents = self.expire::<AgentRecord>(grace, limit).await?;
        self.catalog.agents.forget_versions(&agents);
        let workflows = self.expire::<WorkflowRecord>(grace, limit).await?;
        self.catalog.workflows.forget_versions(&workflows);
        let plans = self.expire_plans(grace, limit).await?;
        self.catalog.forget_plans(&plans);
        let count = |deleted: &Vec<Version>| deleted.len() as u64;
        Ok(ExpiredVersions { agents: count(&agents), workflows: count(&workflows), plans: count(&plans) })
    }

    async fn expire<T: HasVersionTables>(&self, grace: Duration, limit: usize) -> Result<Vec<Version>, FileFault> {
        let place = lock(&self.places).remove(T::VERSIONS);
        let page = self.file.read(|read| page(&read.open_table(T::VERSION_TABLE)?, place, limit))?;
        if page.len() == limit {
            lock(&self.places).extend(page.last().map(|last| (T::VERSIONS, last.clone())));
        }
        // The conversations are read outside of the writer, because there may be many.
        let used = if page.is_empty() { HashSet::new() } else { self.file.read(versions_in_use)? };
        self.file.write(move |tables| sweep::<T>(tables, page, &used, grace)).await
    }

    async fn expire_plans(&self, grace: Duration, limit: usize) -> Result<Vec<Version>, FileFault> {
        #[derive(Deserialize)]
        struct OfPlan {
            created_at: Timestamp,
        }
        let (place, before) = (lock(&self.places).remove("plans"), self.file.clock().now().minus(grace));
        let (page, gone) = self.file.read(|read| {
            let (plans, versions) = (read.open_table(PLANS)?, read.open_table(AGENT_VERSIONS)?);
            let (page, mut gone) = (page(&plans, place, limit)?, Vec::new());
            for (id, hash) in &page {
                let key = (id.as_str(), hash.as_str());
                let Some(plan) = plans.get(key)? else { continue };
                let old = decode::<OfPlan>(String::new, plan.value()).is_ok_and(|plan| plan.created_at < before);
                if old && versions.get(key)?.is_none() {
                    gone.push((id.clone(), hash.clone()));
                }
            }
            Ok((page, gone))
        })?;
        if page.len() == limit {
            lock(&self.places).extend(page.last().map(|last| ("plans", last.clone())));
        }
        if gone.is_empty() {
            return Ok(gone);
        }
        let work = move |tables: &mut Tables<'_>| {
            for (id, hash) in &gone {
                tables.plans.remove((id.as_str(), hash.as_str()))?;
            }
            Ok(gone)
        };
        self.file.write(work).await
    }
}

/// The next `limit` keys after `place`.
fn page(
    table: &impl ReadableTable<(&'static str, &'static str), &'static [u8]>,
    place: Option<Version>,
    limit: usize,
) -> Result<Vec<Version>, FileFault> {
    let (id, hash) = place.unwrap_or_default();
    let mut page = Vec::new();
    for row in table.range((Bound::Excluded((id.as_str(), hash.as_str())), Bound::Unbounded))?.take(limit) {
        let (key, _) = row?;
        page.push((key.value().0.to_owned(), key.value().1.to_owned()));
    }
    Ok(page)
}

/// Marks versions that are no longer in use, and deletes and returns the unused ones after `grace`.
fn sweep<T: HasVersionTables>(
    tables: &mut Tables<'_>,
    page: Vec<Version>,
    used: &HashSet<Version>,
    grace: Duration,
) -> Result<Vec<Version>, FileFault> {
    let (now, mut deleted) = (tables.clock.now(), Vec::new());
    for version in page {
        let (id, hash) = (version.0.as_str(), version.1.as_str());
        // The versions of a session's plan expire with it.
        if tables.plan_states.get(id)?.is_some() {
            continue;
        }
        let current = match T::tables(tables).0.get(id)? {
            Some(found) => decode::<OfState>(String::new, found.value()).ok().map(|found| found.hash),
            None => None,
        };
        let key = (T::VERSIONS, id, hash);
        // A draft is used while one of its dialogues exists.
        let mut in_use = current.as_deref() == Some(hash) || used.contains(&version);
        for session in drafts::sessions(tables, key)? {
            in_use |= tables.authoring.get(session.as_str())?.is_some();
        }
        let since = tables.version_marks.get(key)?.map(|mark| Timestamp::from_millis(mark.value()));
        match since {
            _ if in_use => {
                tables.version_marks.remove(key)?;
            }
            None => {
                tables.version_marks.insert(key, now.as_millis())?;
            }
            Some(since) if since <= now.minus(grace) => {
                tables.version_marks.remove(key)?;
                tables.drafts.remove(key)?;
                T::tables(tables).1.remove((id, hash))?;
                deleted.push(version);
            }
            Some(_) => {}
        }
    }
    Ok(deleted)
}

/// Removes the mark of a version that is stored again.
pub(super) fn unmark<T: HasVersionTables>(tables: &mut Tables<'_>, record: &T) -> Result<(), FileFault> {
    tables.version_marks.remove((T::VERSIONS, record.id(), record.hash()))?;
    Ok(())
}
