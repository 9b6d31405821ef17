//! The store on MongoDB. [`MongoStore`] implements [`Store`].
//!
//! - [`connect`]: the client, the indexes and the background tasks.
//! - [`acquire`]: acquiring lanes. [`commits`]: committing turns. [`lane`]: releasing and renewing lanes. Each applies
//!   the rules of [`storage::store::lane`] to a session that was read or is in the
//!   [`session_cache`](storage::store::session_cache), with times of the [`clock`].
//! - [`update_ops`]: the updates that write the result. They apply only if the session has not changed since, and are
//!   guarded by the [`fence`] or by the fields of the lane.
//! - [`journal`]: steps and turns. [`runs`]: runs of workflows. [`days`]: daily token counters.
//! - [`versioned_collection`]: agents and workflows. `labels`: the listing of their versions.
//!   `session_plans`: the plans of sessions. [`plans`]: plans.
//!   `knowledge`: knowledge sources.
//! - [`timers`]: due timers and the scheduler's election. `session_listing`: listings of sessions. [`queries`]: other
//!   reads. `processes`: announcements of processes. `handoffs`: the listing of handoffs.
//! - `authoring`: authoring dialogues. `erasure`: deletion. `expiry`: deletion of expired data. `sizes`: the size of
//!   the data.
//! - [`meta`]: the claim of the database and the readiness probe.
//! - [`schema`]: the version of the collections and indexes.
//! - [`command`]: sending commands, with time limits. [`document`]: conversion to and from BSON. [`problem`]: error
//!   texts.

mod acquire;
mod audit;
mod authoring;
mod clock;
mod command;
mod commits;
pub mod connect;
mod days;
mod document;
mod drafts;
mod erasure;
mod expiry;
mod fence;
mod handoffs;
mod journal;
mod knowledge;
mod labels;
mod lane;
pub mod meta;
mod plans;
pub mod problem;
mod processes;
mod queries;
mod runs;
pub mod schema;
mod session_listing;
mod session_plans;
mod sizes;
mod timers;
mod update_ops;
mod versioned_collection;

pub use authoring::{STATES, validator};
pub use command::{Bulk, Commands, Durability};
pub use document::put;
pub use versioned_collection::CURRENT_TTL;

use async_trait::async_trait;
use clock::ServerClock;
use decisions::world::WorkflowStatus;
use definitions::agent::AgentRecord;
use definitions::knowledge::source::{Source, SourceEntry};
use definitions::workflow::definition::WorkflowRecord;
use definitions::workflow::session_plan::SessionPlan;
use moka::future::Cache;
use mongodb::{Client, Database};
use runs::RunWrite;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::queue::Storage;
use storage::store::batcher::Batcher;
use storage::store::records::{
    AbandonedLane, Acquire, Acquired, Commit, Committed, DueTimer, DueTimers, HandoffPage, HandoffQuery, IdleSession,
    LeaseKey, Record, Recorded, SessionPage, SessionQuery, TimerPlace, TurnPlace,
};
use storage::store::session_cache::SessionCache;
use storage::store::versions::Reason;
use storage::store::{Listed, Process, Result, SessionSize, Store, StoreError, VersionLabel};
use tokio::sync::Mutex;
use types::audit::{AuditEntry, AuditQuery};
use types::page::{Bounds, Page};
use types::plan::Plan;
use types::run::{RunQuery, RunRecord};
use types::session::Session;
use types::step::StepRecord;
use types::timestamp::Timestamp;
use types::turn::{DayUse, TurnRecord};
use versioned_collection::VersionedCollection;

/// The store on MongoDB. Concurrent calls share bulk commands.
pub struct MongoStore {
    db: Db,
    acquires: Batcher<Acquire, Acquired>,
    records: Batcher<Record, Vec<Recorded>>,
    commits: Batcher<Commit, Committed>,
    reads: Batcher<String, Option<Session>>,
    run_writes: Batcher<RunWrite, bool>,
    agents: VersionedCollection<AgentRecord>,
    workflows: VersionedCollection<WorkflowRecord>,
    /// Plans by (agent, hash). Entries expire soon, so that a deleted plan is noticed.
    plans: Cache<(String, String), Arc<Plan>>,
    /// Where the search for expired versions continues.
    places: expiry::Places,
}

/// The database, and the state that its readers and writers share. Cheap to clone.
#[derive(Clone)]
struct Db {
    client: Client,
    database: Database,
    commands: Commands,
    /// How long turns, steps and ended runs are kept.
    retention: Duration,
    /// How long the plans of sessions and their versions are kept after their last use.
    plan_retention: Duration,
    /// The setting `retention.audit`.
    audit_retention: Duration,
    cache: SessionCache,
    clock: ServerClock,
    /// When the last probe succeeded.
    probed: Arc<Mutex<Option<Instant>>>,
}

#[async_trait]
impl Store for MongoStore {
    async fn acquire(&self, request: Acquire) -> Result<Acquired> {
        self.acquires.submit(request).await
    }

    async fn record(&self, request: Record) -> Result<Vec<Recorded>> {
        self.records.submit(request).await
    }

    async fn steps(&self, session_id: &str, turn_id: &str) -> Result<Vec<StepRecord>> {
        self.db.steps(session_id, turn_id).await
    }

    async fn steps_page(&self, session_id: &str, turn_id: &str, bounds: Bounds<String>) -> Result<Page<StepRecord>> {
        self.db.steps_page(session_id, turn_id, bounds).await
    }

    async fn commit(&self, request: Commit) -> Result<Committed> {
        self.commits.submit(request).await
    }

    async fn release(&self, session_id: &str, epoch: u64, counts_as_attempt: bool) -> Result<bool> {
        self.db.release(session_id, epoch, counts_as_attempt).await
    }

    async fn undo_attempt(&self, session_id: &str, begun: Timestamp) -> Result<()> {
        self.db.undo_attempt(session_id, begun).await
    }

    async fn renew(&self, held: &[LeaseKey], lease: Duration) -> Result<Vec<LeaseKey>> {
        self.db.renew(held, lease).await
    }

    async fn plan(&self, workflow_id: &str, hash: &str) -> Result<Option<Arc<Plan>>> {
        cached(&self.plans, workflow_id, hash, || self.db.plan(workflow_id, hash)).await
    }

    async fn put_plan(&self, plan: Plan) -> Result<Arc<Plan>> {
        self.db.put_plan(plan).await
    }

    async fn agent(&self, agent_id: &str) -> Result<Option<Arc<AgentRecord>>> {
        self.agents.current(agent_id).await
    }

    async fn agent_version(&self, agent_id: &str, hash: &str) -> Result<Option<Arc<AgentRecord>>> {
        self.agents.version(agent_id, hash).await
    }

    async fn put_agent(&self, agent: AgentRecord) -> Result<bool> {
        self.agents.put(&agent).await
    }

    async fn agent_version_count(&self, id: &str) -> Result<u64> {
        self.agents.version_count(id).await
    }

    async fn put_agent_version(&self, agent: &AgentRecord) -> Result<()> {
        self.agents.put_version(agent, Reason::Kept, &VersionLabel::of_text(agent.source.as_deref())).await
    }

    async fn agents(&self) -> Result<Listed<AgentRecord>> {
        self.agents.all().await
    }

    async fn workflow(&self, workflow_id: &str) -> Result<Option<Arc<WorkflowRecord>>> {
        self.workflows.current(workflow_id).await
    }

    async fn workflow_version(&self, workflow_id: &str, hash: &str) -> Result<Option<Arc<WorkflowRecord>>> {
        self.workflows.version(workflow_id, hash).await
    }

    async fn put_workflow(&self, workflow: WorkflowRecord) -> Result<bool> {
        self.workflows.put(&workflow).await
    }

    async fn workflow_version_count(&self, id: &str) -> Result<u64> {
        self.workflows.version_count(id).await
    }

    async fn put_workflow_version(&self, workflow: &WorkflowRecord) -> Result<()> {
        let label = VersionLabel::of_text(workflow.source.as_deref());
        self.workflows.put_version(workflow, Reason::Kept, &label).await
    }

    async fn workflows(&self) -> Result<Listed<WorkflowRecord>> {
        self.workflows.all().await
    }

    async fn put_session_plan(&self, plan: WorkflowRecord, agent_id: &str) -> Result<()> {
        self.workflows.put_session_plan(&plan, agent_id).await
    }

    async fn plans_of(&self, session_id: &str) -> Result<Vec<SessionPlan>> {
        self.db.plans_of(session_id).await
    }

    async fn set_workflow_state(
        &self,
        workflow_id: &str,
        from: &[WorkflowStatus],
        to: WorkflowStatus,
        run_id: Option<&str>,
    ) -> Result<bool> {
        self.db.set_workflow_state(workflow_id, from, to, run_id).await
    }

    async fn put_run(&self, run: RunRecord) -> Result<bool> {
        self.run_writes.submit(RunWrite::New(run)).await
    }

    async fn update_run(&self, run: RunRecord, epoch: u64) -> Result<()> {
        self.run_writes.submit(RunWrite::State(run, epoch)).await.map(|_| ())
    }

    async fn run(&self, run_id: &str) -> Result<Option<RunRecord>> {
        self.db.run(run_id).await
    }

    async fn runs_page(&self, query: RunQuery) -> Result<Page<RunRecord>> {
        self.db.runs(query).await
    }

    async fn put_knowledge(&self, source: Source) -> Result<bool> {
        self.db.put_knowledge(source).await
    }

    async fn remove_knowledge(&self, agent_id: &str, source: &str) -> Result<bool> {
        self.db.remove_knowledge(agent_id, source).await
    }

    async fn knowledge_entries(&self, agent_id: Option<&str>) -> Result<Vec<SourceEntry>> {
        self.db.knowledge_entries(agent_id).await
    }

    async fn knowledge(&self, agent_id: &str) -> Result<Vec<Source>> {
        self.db.knowledge(agent_id).await
    }

    async fn session(&self, session_id: &str) -> Result<Option<Session>> {
        self.reads.submit(session_id.to_owned()).await
    }

    async fn handoffs(&self, query: HandoffQuery) -> Result<HandoffPage> {
        self.db.handoffs(query).await
    }

    async fn prompt(&self, session_id: &str, turn_id: &str, key: &str) -> Result<Option<Vec<u8>>> {
        self.db.prompt(session_id, turn_id, key).await
    }

    async fn sessions_page(&self, query: SessionQuery) -> Result<SessionPage> {
        self.db.sessions(query).await
    }

    async fn turns_page(&self, session_id: &str, bounds: Bounds<TurnPlace>) -> Result<Page<TurnRecord>> {
        self.db.turns(session_id, bounds).await
    }

    async fn turn(&self, session_id: &str, turn_id: &str) -> Result<Option<TurnRecord>> {
        self.db.turn(session_id, turn_id).await
    }

    async fn tokens_of_day(&self, day: &str, agent_ids: Vec<String>) -> Result<HashMap<String, u64>> {
        self.db.tokens_of_day(day, agent_ids).await
    }

    async fn use_tokens(&self, used: DayUse) -> Result<()> {
        self.db.use_tokens(&used).await
    }

    async fn due_timers(&self, horizon: Duration, limit: usize) -> Result<DueTimers> {
        self.db.due_timers(horizon, limit).await
    }

    async fn timers_page(&self, bounds: Bounds<TimerPlace>) -> Result<Page<DueTimer>> {
        self.db.timers_page(bounds).await
    }

    async fn abandoned_lanes(&self, grace: Duration, limit: usize) -> Result<Vec<AbandonedLane>> {
        self.db.abandoned_lanes(grace, limit).await
    }

    async fn idle_sessions(&self, idle: Duration, limit: usize) -> Result<Vec<IdleSession>> {
        self.db.idle_sessions(idle, limit).await
    }

    /// Does nothing: MongoDB's TTL indexes delete expired documents.
    async fn prune(&self) -> Result<u64> {
        Ok(0)
    }

    async fn lead(&self, role: &str, owner: &str, lease: Duration) -> Result<bool> {
        self.db.lead(role, owner, lease).await
    }

    async fn resign(&self, role: &str, owner: &str) -> Result<()> {
        self.db.resign(role, owner).await
    }

    async fn announce(&self, process: Process) -> Result<()> {
        self.db.announce(&process).await
    }

    async fn depart(&self, process_id: &str) -> Result<()> {
        self.db.depart(process_id).await
    }

    async fn processes(&self) -> Result<Vec<Process>> {
        self.db.processes().await
    }

    async fn put_audit(&self, entry: AuditEntry) -> Result<()> {
        self.db.put_audit(&entry).await
    }

    async fn audit(&self, query: AuditQuery) -> Result<Vec<AuditEntry>> {
        self.db.audit(query).await
    }

    async fn storage(&self) -> Result<Vec<Storage>> {
        self.db.stored_bytes().await
    }

    async fn largest_sessions(&self, limit: usize) -> Result<Vec<SessionSize>> {
        self.db.largest_sessions(limit).await
    }

    async fn shared_secret(&self, name: &str, candidate: [u8; 32]) -> Result<[u8; 32]> {
        self.db.shared_secret(name, &candidate).await
    }

    async fn ping(&self) -> Result<()> {
        self.db.ping().await
    }
}

/// Returns the cached value, or loads it. Of several concurrent callers one loads the value, and the others wait for
/// it. Only a load allocates the driver's future, which is some kilobytes large; nearly every turn finds the value.
async fn cached<V, Load>(
    cache: &Cache<(String, String), V>,
    id: &str,
    hash: &str,
    load: impl FnOnce() -> Load,
) -> Result<Option<V>>
where
    V: Clone + Send + Sync + 'static,
    Load: Future<Output = Result<Option<V>>>,
{
    let key = (id.to_owned(), hash.to_owned());
    if let Some(found) = cache.get(&key).await {
        return Ok(Some(found));
    }
    let load = load();
    let load = async { load.await.map_err(Some)?.ok_or(None::<StoreError>) };
    match Box::pin(cache.try_get_with(key, load)).await {
        Ok(found) => Ok(Some(found)),
        Err(missing) => missing.as_ref().clone().map_or(Ok(None), Err),
    }
}
