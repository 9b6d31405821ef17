//! The store in one file, for one process. [`file`] has the file with its one writer, [`tables`] what is in it, [`lane`] the
//! lane's rules, [`sessions`] the session documents, [`journal`] turns and steps. The embedded queue lives in the same file.

pub(crate) mod fault;
pub(crate) mod file;
mod journal;
mod lane;
mod sessions;
pub(crate) mod tables;

pub use file::{EmbeddedFile, OpenError};

use super::{
    AbandonedLane, Acquire, Acquired, Commit, Committed, DueTimer, DueTimers, Grant, Held, Record, Recorded, Result,
    SessionQuery, Store, TurnRecord,
};
use crate::agent::{AgentRecord, StoredAgent};
use crate::clock::{self, Timestamp};
use crate::config::Settings;
use crate::journal::StepRecord;
use crate::plan::Plan;
use crate::session::{Kind, Session, Status};
use async_trait::async_trait;
use fault::Fault;
use lane::Taken;
use moka::sync::Cache;
use redb::ReadableTable;
use std::sync::Arc;
use std::time::Duration;
use tables::{decode, encode};

/// See the module.
pub struct EmbeddedStore {
    file: Arc<EmbeddedFile>,
    /// How long turns and steps are kept.
    retention: Duration,
    /// Configurations by (agent, hash), which never change.
    versions: Cache<(String, String), Arc<AgentRecord>>,
}

impl EmbeddedStore {
    /// The store in `file`.
    pub fn new(file: Arc<EmbeddedFile>, settings: &Settings) -> Self {
        Self { file, retention: settings.retention.turns.0, versions: Cache::new(1_000) }
    }

    fn agent_of(&self, stored: &[u8]) -> Result<Arc<AgentRecord>> {
        let stored: StoredAgent = decode(|| "an agent".into(), stored)?;
        let key = (stored.agent_id.clone(), stored.hash.clone());
        if let Some(known) = self.versions.get(&key) {
            return Ok(known);
        }
        let what = format!("agent `{}`", stored.agent_id);
        let agent = AgentRecord::from_stored(stored)
            .map(Arc::new)
            .map_err(|error| Fault::Damaged { what, problem: error.to_string() })?;
        self.versions.insert(key, Arc::clone(&agent));
        Ok(agent)
    }

    /// Every session without its history.
    fn scan(&self, mut take: impl FnMut(Session)) -> Result<()> {
        Ok(self.file.read(|read| {
            for row in read.open_table(tables::SESSIONS)?.iter()? {
                let (_, value) = row?;
                take(decode(|| "a session".into(), value.value().2)?);
            }
            Ok(())
        })?)
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    async fn acquire(&self, request: Acquire) -> Result<Acquired> {
        let acquired = self.file.write(move |tables| {
            let now = clock::now();
            let mut session = match sessions::load(tables, &request.session_id)? {
                Some(session) => session,
                None => lane::begin(&request, now),
            };
            let taken = lane::acquire(&mut session, &request, now);
            if taken != Taken::Handled {
                sessions::save(tables, &session)?;
            }
            Ok(match taken {
                Taken::Granted { resumed } => {
                    session.history = sessions::history(tables, &session.session_id)?;
                    Acquired::Granted(Box::new(Grant { session, resumed }))
                }
                Taken::Busy(until) => Acquired::Busy(until),
                Taken::Handled => Acquired::Handled,
            })
        });
        Ok(acquired.await?)
    }

    async fn record(&self, request: Record) -> Result<Vec<Recorded>> {
        let recorded = self.file.write(move |tables| {
            if let Some(status) = request.status
                && let Some(mut session) = sessions::load(tables, &request.session_id)?
                && session.epoch == request.epoch
            {
                session.workflow_state.status = status;
                session.updated_at = clock::now();
                sessions::save(tables, &session)?;
            }
            let Record { session_id, turn_id, steps, .. } = &request;
            steps.iter().map(|step| journal::record(tables, session_id, turn_id, step)).collect()
        });
        Ok(recorded.await?)
    }

    async fn steps(&self, session_id: &str, turn_id: &str) -> Result<Vec<StepRecord>> {
        Ok(self.file.read(|read| journal::steps(read, session_id, turn_id))?)
    }

    async fn commit(&self, request: Commit) -> Result<Committed> {
        let committed = self.file.write(move |tables| {
            let now = clock::now();
            let session = sessions::load(tables, &request.session_id)?;
            let Some(mut session) = session.filter(|session| session.epoch == request.epoch) else {
                return Ok(Committed::Fenced);
            };
            if let Some(change) = &request.change {
                // What cannot be stored must be found out before anything is.
                journal::write_turn(tables, change)?;
                sessions::append_history(tables, &session.session_id, change)?;
                sessions::forget_timers(tables, &session)?;
                lane::apply(&mut session, change, now);
                sessions::index_timers(tables, &session)?;
            }
            let committed = lane::finish(&mut session, request.last_seq, request.lease, now);
            sessions::save(tables, &session)?;
            Ok(committed)
        });
        Ok(committed.await?)
    }

    async fn release(&self, session_id: &str, epoch: u64, blame: bool) -> Result<()> {
        let session_id = session_id.to_owned();
        let released = self.file.write(move |tables| {
            if let Some(mut session) = sessions::load(tables, &session_id)?
                && lane::release(&mut session, epoch, blame, clock::now())
            {
                sessions::save(tables, &session)?;
            }
            Ok(())
        });
        Ok(released.await?)
    }

    async fn renew(&self, held: &[Held], lease: Duration) -> Result<Vec<Held>> {
        let held = held.to_vec();
        let lost = self.file.write(move |tables| {
            let now = clock::now();
            let mut lost = Vec::new();
            for held in held {
                if let Some(mut session) = sessions::load(tables, &held.session_id)?
                    && lane::renew(&mut session, held.epoch, lease, now)
                {
                    sessions::save(tables, &session)?;
                } else {
                    lost.push(held);
                }
            }
            Ok(lost)
        });
        Ok(lost.await?)
    }

    async fn plan(&self, workflow_id: &str, hash: &str) -> Result<Option<Arc<Plan>>> {
        let plan = self.file.read(|read| {
            let table = read.open_table(tables::PLANS)?;
            table.get((workflow_id, hash))?.map(|plan| decode(|| "a plan".into(), plan.value())).transpose()
        });
        Ok(plan?.map(Arc::new))
    }

    async fn put_plan(&self, plan: Plan) -> Result<Arc<Plan>> {
        let stored = self.file.write(move |tables| {
            let key = (plan.workflow_id.as_str(), plan.hash.as_str());
            if let Some(earlier) = tables.plans.get(key)? {
                return decode(|| "a plan".into(), earlier.value());
            }
            tables.plans.insert(key, encode("a plan", &plan)?.as_slice())?;
            Ok(plan)
        });
        Ok(Arc::new(stored.await?))
    }

    async fn agent(&self, agent_id: &str) -> Result<Option<Arc<AgentRecord>>> {
        let stored = self.file.read(|read| {
            let table = read.open_table(tables::AGENTS)?;
            Ok(table.get(agent_id)?.map(|stored| stored.value().to_vec()))
        })?;
        stored.map(|stored| self.agent_of(&stored)).transpose()
    }

    async fn agent_version(&self, agent_id: &str, hash: &str) -> Result<Option<Arc<AgentRecord>>> {
        if let Some(known) = self.versions.get(&(agent_id.to_owned(), hash.to_owned())) {
            return Ok(Some(known));
        }
        let stored = self.file.read(|read| {
            let table = read.open_table(tables::AGENT_VERSIONS)?;
            Ok(table.get((agent_id, hash))?.map(|stored| stored.value().to_vec()))
        })?;
        stored.map(|stored| self.agent_of(&stored)).transpose()
    }

    async fn put_agent(&self, agent: AgentRecord) -> Result<bool> {
        let changed = self.file.write(move |tables| {
            let stored = encode("an agent", &agent.to_stored())?;
            let before =
                tables.agents.get(agent.id())?.map(|before: redb::AccessGuard<'_, &[u8]>| before.value().to_vec());
            let before: Option<StoredAgent> = before.map(|before| decode(|| "an agent".into(), &before)).transpose()?;
            if before.is_some_and(|before| before.hash == agent.hash) {
                return Ok(false);
            }
            tables.agent_versions.insert((agent.id(), agent.hash.as_str()), stored.as_slice())?;
            tables.agents.insert(agent.id(), stored.as_slice())?;
            Ok(true)
        });
        Ok(changed.await?)
    }

    async fn agents(&self) -> Result<Vec<Arc<AgentRecord>>> {
        let stored = self.file.read(|read| {
            let table = read.open_table(tables::AGENTS)?;
            let mut all = Vec::new();
            for row in table.iter()? {
                all.push(row?.1.value().to_vec());
            }
            Ok(all)
        })?;
        stored.iter().map(|stored| self.agent_of(stored)).collect()
    }

    async fn session(&self, session_id: &str) -> Result<Option<Session>> {
        Ok(self.file.read(|read| sessions::read(read, session_id))?)
    }

    async fn sessions(&self, query: SessionQuery) -> Result<Vec<Session>> {
        let mut found = Vec::new();
        self.scan(|session| {
            let status = query.status.is_none_or(|status| session.workflow_state.status == status);
            if status && query.agent_id.as_ref().is_none_or(|agent_id| session.agent_id == *agent_id) {
                found.push(session);
            }
        })?;
        found.sort_by_key(|session| std::cmp::Reverse(session.updated_at));
        found.truncate(query.limit);
        Ok(found)
    }

    async fn turns(&self, session_id: &str, limit: usize) -> Result<Vec<TurnRecord>> {
        Ok(self.file.read(|read| journal::turns(read, session_id, limit))?)
    }

    async fn turn(&self, session_id: &str, turn_id: &str) -> Result<Option<TurnRecord>> {
        Ok(self.file.read(|read| journal::turn(read, session_id, turn_id))?)
    }

    async fn due_timers(&self, horizon: Duration, limit: usize) -> Result<DueTimers> {
        let now = clock::now();
        let due = self.file.read(|read| sessions::due(read, now.plus(horizon), limit))?;
        let timers = due.into_iter().map(|(session_id, timer)| DueTimer { session_id, timer }).collect();
        Ok(DueTimers { now: clock::now(), timers })
    }

    async fn abandoned_lanes(&self, grace: Duration, limit: usize) -> Result<Vec<AbandonedLane>> {
        let before = clock::now().minus(grace);
        let mut found = Vec::new();
        self.scan(|session| {
            let unheld = session.lease.is_some() || session.updated_at < before;
            if found.len() < limit && unheld && lane::is_abandoned(&session, before) {
                found.push(AbandonedLane { session_id: session.session_id, epoch: session.epoch });
            }
        })?;
        Ok(found)
    }

    async fn idle_sessions(&self, before: Timestamp, limit: usize) -> Result<Vec<String>> {
        let mut found = Vec::new();
        self.scan(|session| {
            let idle = matches!(session.workflow_state.status, Status::Ready | Status::Cancelled);
            let open = session.closed_at.is_none() && session.kind == Kind::Chat;
            if found.len() < limit && idle && open && session.updated_at < before {
                found.push(session.session_id);
            }
        })?;
        Ok(found)
    }

    async fn prune(&self) -> Result<u64> {
        let before = clock::now().minus(self.retention);
        Ok(self.file.write(move |tables| journal::prune(tables, before)).await?)
    }

    async fn lead(&self, role: &str, owner: &str, lease: Duration) -> Result<bool> {
        let (role, owner) = (role.to_owned(), owner.to_owned());
        let leads = self.file.write(move |tables| {
            let now = clock::now();
            let leader = tables.leaders.get(role.as_str())?;
            let taken = leader.is_some_and(|leader| leader.value().0 != owner && leader.value().1 > now.as_millis());
            if !taken {
                tables.leaders.insert(role.as_str(), (owner.as_str(), now.plus(lease).as_millis()))?;
            }
            Ok(!taken)
        });
        Ok(leads.await?)
    }

    async fn resign(&self, role: &str, owner: &str) -> Result<()> {
        let (role, owner) = (role.to_owned(), owner.to_owned());
        let resigned = self.file.write(move |tables| {
            let mine = tables.leaders.get(role.as_str())?.is_some_and(|leader| leader.value().0 == owner);
            if mine {
                tables.leaders.remove(role.as_str())?;
            }
            Ok(())
        });
        Ok(resigned.await?)
    }

    async fn ping(&self) -> Result<()> {
        Ok(self.file.check()?)
    }
}
