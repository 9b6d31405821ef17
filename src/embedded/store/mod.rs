//! The store in the embedded file, for `turnwheel dev` and for tests. [`EmbeddedStore`] implements [`Store`].
//!
//! A write takes this way: [`EmbeddedStore`] → [`sessions`] or [`turns`], which apply [`lane`] → [`mod@file`].
//!
//! - Conversations: [`sessions`], their open [`lanes`] and [`history`], [`turns`] with their steps, [`runs`],
//!   `authoring`. `holding`: taking, keeping and committing a lane.
//! - Definitions: [`versioned_table`], `labels` (listings of versions), `session_plans`, [`catalog`], `knowledge`,
//!   and `shared_definitions` of a rehearsal.
//! - Reads: `session_listing`, `handoffs`, [`queries`], `sizes`. Deletion: `erasure`, `expiry`. The trail:
//!   [`mod@audit`].
//! - [`mod@file`] with its writer, [`mod@copy`], [`tables`] (the layout), [`migrate`] and `layout_1` (earlier layouts),
//!   [`pending_rows`] (shared by a commit's operations), [`publisher`] (of outboxes), [`rights`], `secret`,
//!   `open_error`.

mod audit;
mod authoring;
mod catalog;
mod copy;
mod drafts;
mod erasure;
mod expiry;
mod fault;
mod file;
mod first_failure;
mod handoffs;
mod history;
mod holding;
mod knowledge;
mod labels;
mod lanes;
mod layout_1;
pub mod migrate;
mod open_error;
mod pending_rows;
mod prune;
mod publisher;
mod queries;
mod rights;
mod runs;
mod secret;
mod session_listing;
mod session_plans;
mod sessions;
mod shared_definitions;
mod sizes;
mod tables;
mod turns;
mod versioned_table;

pub use copy::{finish, with_ending};
pub use file::EmbeddedFile;
pub use open_error::OpenError;

pub(crate) use fault::FileFault;
pub use publisher::{Publisher, StoredEvent};
pub use shared_definitions::SharedDefinitions;
pub use tables::{DEAD, EVENT_INDEX, EVENTS, JOB_IDS, JOBS, LAYOUT, META, Tables, decode, encode};

use async_trait::async_trait;
use base::clock::Moment;
use catalog::Catalog;
use decisions::world::WorkflowStatus;
use definitions::agent::AgentRecord;
use definitions::knowledge::source::{Source, SourceEntry};
use definitions::workflow::definition::WorkflowRecord;
use definitions::workflow::session_plan::SessionPlan;
use session_cache::SessionCache;
use sessions::Sessions;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use storage::backup::FileCopy;
use storage::store::process::{ANNOUNCEMENT_EXPIRY, Process};
use storage::store::records::{
    AbandonedLane, Acquire, Acquired, Commit, Committed, DueTimer, DueTimers, HandoffPage, HandoffQuery, IdleSession,
    LeaseKey, Record, Recorded, SessionPage, SessionQuery, SessionSize, TimerPlace, TurnPlace,
};
use storage::store::{Result, Store, StoreError, lane, session_cache, versioned::Listed};
use types::audit::{AuditEntry, AuditQuery};
use types::page::{Bounds, Page};
use types::plan::Plan;
use types::run::{RunQuery, RunRecord};
use types::session::Session;
use types::step::StepRecord;
use types::timestamp::Timestamp;
use types::turn::{DayUse, TurnRecord};

/// The name of the file in the folder `data_dir`.
pub const FILE_NAME: &str = "turnwheel.redb";

/// The path of the file for these settings.
pub fn path(settings: &base::config::Settings) -> PathBuf {
    settings.data_dir.join(FILE_NAME)
}

/// The store in an [`EmbeddedFile`]. A file has one store.
#[derive(Debug)]
pub struct EmbeddedStore {
    file: Arc<EmbeddedFile>,
    sessions: Arc<Sessions>,
    /// The cache of the sessions that this process saw last.
    cache: SessionCache,
    catalog: Arc<Catalog>,
    /// The setting `retention.turns`.
    keep_turns: Duration,
    /// How long the plans of sessions are kept after their last use.
    keep_plans: Duration,
    /// The setting `retention.audit`.
    keep_audit: Duration,
    /// The announced processes with their expiry. Not in the file, since they end with this process.
    processes: Mutex<BTreeMap<String, (Moment, Process)>>,
    /// Where the search for expired versions continues.
    places: expiry::Places,
}

impl EmbeddedStore {
    /// Opens the store in `file`. Leases in the file are void, because they belong to an earlier process.
    pub fn new(file: Arc<EmbeddedFile>, settings: &base::config::Settings) -> Result<Arc<Self>> {
        Self::with_shared(file, settings, SharedDefinitions::default())
    }

    /// Opens the store in `file` like [`Self::new`]. It also has these definitions, which are not written to the file.
    pub fn with_shared(
        file: Arc<EmbeddedFile>,
        settings: &base::config::Settings,
        shared: SharedDefinitions,
    ) -> Result<Arc<Self>> {
        let sessions = Arc::new(Sessions::load(&file)?);
        let (cache, keep_turns) = (SessionCache::default(), settings.retention.turns.0);
        let catalog = Arc::new(Catalog::over(shared));
        let (processes, places, keep_plans) =
            (Mutex::default(), Mutex::default(), keep_turns.max(settings.retention.idle.0));
        let keep_audit = settings.retention.audit.0;
        Ok(Arc::new(Self { file, sessions, cache, catalog, keep_turns, keep_plans, keep_audit, processes, places }))
    }

    fn processes(&self) -> MutexGuard<'_, BTreeMap<String, (Moment, Process)>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    async fn acquire(&self, request: Acquire) -> Result<Acquired> {
        self.take_lane(request).await
    }

    async fn record(&self, request: Record) -> Result<Vec<Recorded>> {
        let (sessions, steps) = (Arc::clone(&self.sessions), turns::encode_steps(&request.steps)?);
        Ok(self.file.write(move |tables| turns::record(tables, &sessions, &request, &steps)).await?)
    }

    async fn steps(&self, session_id: &str, turn_id: &str) -> Result<Vec<StepRecord>> {
        Ok(self.file.read(|read| queries::steps(read, session_id, turn_id))?)
    }

    async fn steps_page(&self, session_id: &str, turn_id: &str, bounds: Bounds<String>) -> Result<Page<StepRecord>> {
        Ok(self.file.read(|read| queries::steps_page(read, session_id, turn_id, &bounds))?)
    }

    async fn commit(&self, request: Commit) -> Result<Committed> {
        self.commit_turn(request).await
    }

    async fn release(&self, session_id: &str, epoch: u64, counts_as_attempt: bool) -> Result<bool> {
        let (sessions, session_id) = (Arc::clone(&self.sessions), session_id.to_owned());
        let work = move |tables: &mut Tables<'_>| {
            let now = tables.clock.now();
            sessions.change(tables, &session_id, |session| lane::release(session, epoch, counts_as_attempt, now))
        };
        Ok(self.file.write(work).await?)
    }

    async fn undo_attempt(&self, session_id: &str, begun: Timestamp) -> Result<()> {
        let (sessions, session_id) = (Arc::clone(&self.sessions), session_id.to_owned());
        let work = move |tables: &mut Tables<'_>| {
            sessions.change(tables, &session_id, |session| lane::undo_attempt(session, begun))
        };
        self.file.write(work).await?;
        Ok(())
    }

    async fn renew(&self, held: &[LeaseKey], lease: Duration) -> Result<Vec<LeaseKey>> {
        self.renew_leases(held, lease).await
    }

    async fn plan(&self, workflow_id: &str, hash: &str) -> Result<Option<Arc<Plan>>> {
        Ok(self.catalog.plan(&self.file, workflow_id, hash)?)
    }

    async fn put_plan(&self, plan: Plan) -> Result<Arc<Plan>> {
        Ok(self.file.write(move |tables| catalog::put_plan(tables, plan)).await?)
    }

    async fn agent(&self, agent_id: &str) -> Result<Option<Arc<AgentRecord>>> {
        Ok(self.catalog.agents.current(&self.file, agent_id)?)
    }

    async fn agent_version(&self, agent_id: &str, hash: &str) -> Result<Option<Arc<AgentRecord>>> {
        Ok(self.catalog.agents.version(&self.file, agent_id, hash)?)
    }

    async fn put_agent(&self, agent: AgentRecord) -> Result<bool> {
        Ok(self.catalog.agents.put(&self.file, agent).await?)
    }

    async fn agent_version_count(&self, id: &str) -> Result<u64> {
        Ok(self.catalog.agents.version_count(&self.file, id)?)
    }

    async fn put_agent_version(&self, agent: &AgentRecord) -> Result<()> {
        Ok(self.catalog.agents.put_version(&self.file, agent).await?)
    }

    async fn agents(&self) -> Result<Listed<AgentRecord>> {
        self.catalog.agents.all(&self.file)
    }

    async fn workflow(&self, workflow_id: &str) -> Result<Option<Arc<WorkflowRecord>>> {
        Ok(self.catalog.workflows.current(&self.file, workflow_id)?)
    }

    async fn workflow_version(&self, workflow_id: &str, hash: &str) -> Result<Option<Arc<WorkflowRecord>>> {
        Ok(self.catalog.workflows.version(&self.file, workflow_id, hash)?)
    }

    async fn put_workflow(&self, workflow: WorkflowRecord) -> Result<bool> {
        Ok(self.catalog.workflows.put(&self.file, workflow).await?)
    }

    async fn workflow_version_count(&self, id: &str) -> Result<u64> {
        Ok(self.catalog.workflows.version_count(&self.file, id)?)
    }

    async fn put_workflow_version(&self, workflow: &WorkflowRecord) -> Result<()> {
        Ok(self.catalog.workflows.put_version(&self.file, workflow).await?)
    }

    async fn workflows(&self) -> Result<Listed<WorkflowRecord>> {
        self.catalog.workflows.all(&self.file)
    }

    async fn put_session_plan(&self, plan: WorkflowRecord, agent_id: &str) -> Result<()> {
        let agent_id = agent_id.to_owned();
        Ok(self.file.write(move |tables| session_plans::put(tables, &plan, &agent_id)).await?)
    }

    async fn plans_of(&self, session_id: &str) -> Result<Vec<SessionPlan>> {
        Ok(session_plans::list(&self.file, &self.catalog.workflows, session_id)?)
    }

    async fn set_workflow_state(
        &self,
        workflow_id: &str,
        from: &[WorkflowStatus],
        to: WorkflowStatus,
        run_id: Option<&str>,
    ) -> Result<bool> {
        let (id, from, run_id) = (workflow_id.to_owned(), from.to_vec(), run_id.map(str::to_owned));
        let work = move |tables: &mut Tables<'_>| session_plans::set_state(tables, &id, &from, to, run_id.as_deref());
        Ok(self.file.write(work).await?)
    }

    async fn put_run(&self, run: RunRecord) -> Result<bool> {
        Ok(self.file.write(move |tables| runs::put(tables, &run)).await?)
    }

    async fn update_run(&self, run: RunRecord, epoch: u64) -> Result<()> {
        Ok(self.file.write(move |tables| runs::update(tables, &run, epoch)).await?)
    }

    async fn run(&self, run_id: &str) -> Result<Option<RunRecord>> {
        Ok(self.file.read(|read| runs::one(read, run_id))?)
    }

    async fn runs_page(&self, query: RunQuery) -> Result<Page<RunRecord>> {
        Ok(self.file.read(|read| runs::list(read, &query))?)
    }

    async fn put_knowledge(&self, source: Source) -> Result<bool> {
        Ok(self.file.write(move |tables| knowledge::put(tables, &source)).await?)
    }

    async fn remove_knowledge(&self, agent_id: &str, source: &str) -> Result<bool> {
        let (agent_id, source) = (agent_id.to_owned(), source.to_owned());
        Ok(self.file.write(move |tables| knowledge::remove(tables, &agent_id, &source)).await?)
    }

    async fn knowledge_entries(&self, agent_id: Option<&str>) -> Result<Vec<SourceEntry>> {
        Ok(self.file.read(|read| knowledge::entries(read, agent_id))?)
    }

    async fn knowledge(&self, agent_id: &str) -> Result<Vec<Source>> {
        Ok(self.file.read(|read| knowledge::read_sources(read, agent_id))?)
    }

    async fn session(&self, session_id: &str) -> Result<Option<Session>> {
        Ok(self.file.read(|read| queries::session(read, session_id))?)
    }

    async fn handoffs(&self, query: HandoffQuery) -> Result<HandoffPage> {
        Ok(self.file.read(|read| handoffs::list(read, &query))?)
    }

    async fn prompt(&self, session_id: &str, turn_id: &str, key: &str) -> Result<Option<Vec<u8>>> {
        Ok(self.file.read(|read| queries::prompt(read, session_id, turn_id, key))?)
    }

    async fn sessions_page(&self, query: SessionQuery) -> Result<SessionPage> {
        Ok(self.file.read(|read| session_listing::sessions(read, &query))?)
    }

    async fn turns_page(&self, session_id: &str, bounds: Bounds<TurnPlace>) -> Result<Page<TurnRecord>> {
        Ok(self.file.read(|read| queries::turns(read, session_id, &bounds))?)
    }

    async fn turn(&self, session_id: &str, turn_id: &str) -> Result<Option<TurnRecord>> {
        Ok(self.file.read(|read| queries::turn(read, session_id, turn_id))?)
    }

    async fn tokens_of_day(&self, day: &str, agent_ids: Vec<String>) -> Result<HashMap<String, u64>> {
        Ok(self.file.read(|read| queries::tokens_of_day(read, day, &agent_ids))?)
    }

    async fn use_tokens(&self, used: DayUse) -> Result<()> {
        Ok(self.file.write(move |tables| turns::add_to_day(tables, &used)).await?)
    }

    async fn due_timers(&self, horizon: Duration, limit: usize) -> Result<DueTimers> {
        let (now, at) = (self.file.clock().now(), self.file.clock().moment());
        let timers = self.file.read(|read| queries::due_timers(read, now.plus(horizon), limit))?;
        Ok(DueTimers { now, at, timers })
    }

    async fn timers_page(&self, bounds: Bounds<TimerPlace>) -> Result<Page<DueTimer>> {
        Ok(self.file.read(|read| queries::timers_page(read, &bounds))?)
    }

    async fn abandoned_lanes(&self, grace: Duration, limit: usize) -> Result<Vec<AbandonedLane>> {
        Ok(self.sessions.abandoned(self.file.clock().now().minus(grace), limit))
    }

    async fn idle_sessions(&self, idle: Duration, limit: usize) -> Result<Vec<IdleSession>> {
        let before = self.file.clock().now().minus(idle);
        Ok(self.file.read(|read| queries::idle_sessions(read, before, limit))?)
    }

    async fn prune(&self) -> Result<u64> {
        Ok(self.prune_all().await?)
    }

    async fn lead(&self, role: &str, owner: &str, lease: Duration) -> Result<bool> {
        let (role, owner) = (role.to_owned(), owner.to_owned());
        Ok(self.file.write(move |tables| catalog::lead(tables, &role, &owner, lease, tables.clock.now())).await?)
    }

    async fn resign(&self, role: &str, owner: &str) -> Result<()> {
        let (role, owner) = (role.to_owned(), owner.to_owned());
        Ok(self.file.write(move |tables| catalog::resign(tables, &role, &owner)).await?)
    }

    async fn announce(&self, process: Process) -> Result<()> {
        self.processes()
            .insert(process.process_id.clone(), (self.file.clock().moment() + ANNOUNCEMENT_EXPIRY, process));
        Ok(())
    }

    async fn depart(&self, process_id: &str) -> Result<()> {
        self.processes().remove(process_id);
        Ok(())
    }

    async fn processes(&self) -> Result<Vec<Process>> {
        let now = self.file.clock().moment();
        let announced = self.processes();
        let current = announced.values().filter(|(until, _)| *until > now);
        let mut processes: Vec<Process> = current.map(|(_, process)| process.clone()).collect();
        Process::sort(&mut processes);
        Ok(processes)
    }

    async fn put_audit(&self, entry: AuditEntry) -> Result<()> {
        Ok(self.file.write(move |tables| audit::put(tables, &entry)).await?)
    }

    async fn audit(&self, query: AuditQuery) -> Result<Vec<AuditEntry>> {
        Ok(audit::list(&self.file, &query)?)
    }

    async fn shared_secret(&self, name: &str, candidate: [u8; 32]) -> Result<[u8; 32]> {
        let name = name.to_owned();
        Ok(self.file.write(move |tables| secret::get_or_put(tables, &name, &candidate)).await?)
    }

    async fn largest_sessions(&self, limit: usize) -> Result<Vec<SessionSize>> {
        Ok(self.file.read(|read| sizes::largest_sessions(read, limit))?)
    }

    async fn copy_file(&self) -> Result<Option<FileCopy>> {
        let file = Arc::clone(&self.file);
        let copied = tokio::task::spawn_blocking(move || file.copy_file()).await;
        Ok(copied.map_err(StoreError::unavailable)??)
    }

    async fn ping(&self) -> Result<()> {
        Ok(self.file.check()?)
    }
}
