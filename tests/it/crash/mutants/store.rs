//! The store of the mutants. It breaks one promise.

use super::{Broken, Pulled};
use crate::support::designed_panic::designed_panic;
use async_trait::async_trait;
use decisions::world::WorkflowStatus;
use definitions::agent::AgentRecord;
use definitions::knowledge::source::{Source, SourceEntry};
use definitions::workflow::definition::WorkflowRecord;
use definitions::workflow::session_plan::SessionPlan;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use storage::queue::*;
use storage::store::{self, *};
use types::audit::{AuditEntry, AuditQuery};
use types::authoring::{Artifact, Loaded};
use types::page::{Bounds, Page};
use types::plan::Plan;
use types::run::{RunQuery, RunRecord};
use types::session::Session;
use types::step::StepRecord;
use types::timestamp::Timestamp;
use types::turn::{DayUse, TurnRecord};

pub(super) struct MutantStore {
    pub(super) inner: Arc<dyn Store>,
    pub(super) queue: Arc<dyn Queue>,
    pub(super) pulled: Pulled,
    pub(super) broken: Broken,
}

impl MutantStore {
    async fn acknowledge(&self, session_id: &str, last_seq: u64) {
        let tokens = self.pulled.lock().unwrap().remove(session_id).unwrap_or_default();
        for (_, token) in tokens.into_iter().filter(|(seq, _)| *seq <= last_seq) {
            self.queue.ack(&token).await.unwrap();
        }
    }
}

#[async_trait]
impl Authoring for MutantStore {
    async fn create_authoring(&self, new: NewAuthoring) -> store::Result<bool> {
        self.inner.create_authoring(new).await
    }

    async fn authoring(&self, session_id: &str) -> store::Result<Option<Loaded>> {
        self.inner.authoring(session_id).await
    }

    async fn save_authoring(&self, save: SaveAuthoring) -> store::Result<Saved> {
        self.inner.save_authoring(save).await
    }

    async fn authorings(&self, query: AuthoringQuery) -> store::Result<Vec<AuthoringSummary>> {
        self.inner.authorings(query).await
    }
}

#[async_trait]
impl Drafts for MutantStore {
    async fn put_draft(&self, draft: DraftVersion, session_id: &str) -> store::Result<()> {
        self.inner.put_draft(draft, session_id).await
    }

    async fn version_document(&self, artifact: Artifact, id: &str, hash: &str) -> store::Result<Option<Value>> {
        self.inner.version_document(artifact, id, hash).await
    }

    async fn drop_drafts(&self, session_id: &str) -> store::Result<u64> {
        self.inner.drop_drafts(session_id).await
    }

    async fn publish(&self, publish: PublishDefinition) -> store::Result<PublishEnd> {
        self.inner.publish(publish).await
    }

    async fn owner(&self, artifact: Artifact, id: &str) -> store::Result<Option<String>> {
        self.inner.owner(artifact, id).await
    }
}

#[async_trait]
impl Versions for MutantStore {
    async fn versions(&self, artifact: Artifact, id: &str) -> store::Result<Vec<VersionEntry>> {
        self.inner.versions(artifact, id).await
    }

    async fn version_details(&self, kind: Artifact, id: &str, hash: &str) -> store::Result<Option<VersionDetails>> {
        self.inner.version_details(kind, id, hash).await
    }

    async fn open_sessions_without(&self, agent_id: &str, hash: &str) -> store::Result<u64> {
        self.inner.open_sessions_without(agent_id, hash).await
    }
}

#[async_trait]
impl Erasure for MutantStore {
    async fn erase_lane(&self, session_id: &str, epoch: u64) -> store::Result<bool> {
        self.inner.erase_lane(session_id, epoch).await
    }
}

#[async_trait]
impl Store for MutantStore {
    async fn acquire(&self, request: Acquire) -> store::Result<Acquired> {
        self.inner.acquire(request).await
    }

    async fn record(&self, request: Record) -> store::Result<Vec<Recorded>> {
        let recorded = self.inner.record(request).await?;
        Ok(if self.broken == Broken::Records { recorded.iter().map(|_| Recorded::New).collect() } else { recorded })
    }

    async fn steps(&self, session_id: &str, turn_id: &str) -> store::Result<Vec<StepRecord>> {
        if self.broken == Broken::Records {
            return Ok(Vec::new());
        }
        self.inner.steps(session_id, turn_id).await
    }

    async fn steps_page(
        &self,
        session_id: &str,
        turn_id: &str,
        bounds: Bounds<String>,
    ) -> store::Result<Page<StepRecord>> {
        self.inner.steps_page(session_id, turn_id, bounds).await
    }

    async fn commit(&self, mut request: Commit) -> store::Result<Committed> {
        match self.broken {
            Broken::Acknowledge => self.acknowledge(&request.session_id, request.last_seq).await,
            Broken::Epoch => {
                let session = self.inner.session(&request.session_id).await?;
                request.epoch = session.map_or(request.epoch, |session| session.epoch);
            }
            Broken::Records | Broken::Renewal => {}
        }
        self.inner.commit(request).await
    }

    async fn release(&self, session_id: &str, epoch: u64, counts_as_attempt: bool) -> store::Result<bool> {
        self.inner.release(session_id, epoch, counts_as_attempt).await
    }

    async fn undo_attempt(&self, session_id: &str, begun: Timestamp) -> store::Result<()> {
        self.inner.undo_attempt(session_id, begun).await
    }

    async fn renew(&self, held: &[LeaseKey], lease: Duration) -> store::Result<Vec<LeaseKey>> {
        if self.broken == Broken::Renewal {
            designed_panic();
        }
        let lost = self.inner.renew(held, lease).await?;
        // A worker without the epoch filter does not learn either that another worker has taken its lane.
        Ok(if self.broken == Broken::Epoch { Vec::new() } else { lost })
    }

    async fn put_audit(&self, entry: AuditEntry) -> store::Result<()> {
        self.inner.put_audit(entry).await
    }

    async fn audit(&self, query: AuditQuery) -> store::Result<Vec<AuditEntry>> {
        self.inner.audit(query).await
    }

    async fn plan(&self, workflow_id: &str, hash: &str) -> store::Result<Option<Arc<Plan>>> {
        self.inner.plan(workflow_id, hash).await
    }

    async fn put_plan(&self, plan: Plan) -> store::Result<Arc<Plan>> {
        self.inner.put_plan(plan).await
    }

    async fn agent(&self, agent_id: &str) -> store::Result<Option<Arc<AgentRecord>>> {
        self.inner.agent(agent_id).await
    }

    async fn agent_version(&self, agent_id: &str, hash: &str) -> store::Result<Option<Arc<AgentRecord>>> {
        self.inner.agent_version(agent_id, hash).await
    }

    async fn put_agent(&self, agent: AgentRecord) -> store::Result<bool> {
        self.inner.put_agent(agent).await
    }

    async fn agents(&self) -> store::Result<Listed<AgentRecord>> {
        self.inner.agents().await
    }

    async fn put_knowledge(&self, source: Source) -> store::Result<bool> {
        self.inner.put_knowledge(source).await
    }

    async fn remove_knowledge(&self, agent_id: &str, source: &str) -> store::Result<bool> {
        self.inner.remove_knowledge(agent_id, source).await
    }

    async fn knowledge_entries(&self, agent_id: Option<&str>) -> store::Result<Vec<SourceEntry>> {
        self.inner.knowledge_entries(agent_id).await
    }

    async fn knowledge(&self, agent_id: &str) -> store::Result<Vec<Source>> {
        self.inner.knowledge(agent_id).await
    }

    async fn agent_version_count(&self, id: &str) -> store::Result<u64> {
        self.inner.agent_version_count(id).await
    }

    async fn put_agent_version(&self, agent: &AgentRecord) -> store::Result<()> {
        self.inner.put_agent_version(agent).await
    }

    async fn workflow(&self, workflow_id: &str) -> store::Result<Option<Arc<WorkflowRecord>>> {
        self.inner.workflow(workflow_id).await
    }

    async fn workflow_version(&self, workflow_id: &str, hash: &str) -> store::Result<Option<Arc<WorkflowRecord>>> {
        self.inner.workflow_version(workflow_id, hash).await
    }

    async fn put_workflow(&self, workflow: WorkflowRecord) -> store::Result<bool> {
        self.inner.put_workflow(workflow).await
    }

    async fn workflow_version_count(&self, id: &str) -> store::Result<u64> {
        self.inner.workflow_version_count(id).await
    }

    async fn put_workflow_version(&self, workflow: &WorkflowRecord) -> store::Result<()> {
        self.inner.put_workflow_version(workflow).await
    }

    async fn workflows(&self) -> store::Result<Listed<WorkflowRecord>> {
        self.inner.workflows().await
    }

    async fn put_session_plan(&self, plan: WorkflowRecord, agent_id: &str) -> store::Result<()> {
        self.inner.put_session_plan(plan, agent_id).await
    }

    async fn plans_of(&self, session_id: &str) -> store::Result<Vec<SessionPlan>> {
        self.inner.plans_of(session_id).await
    }

    async fn set_workflow_state(
        &self,
        workflow_id: &str,
        from: &[WorkflowStatus],
        to: WorkflowStatus,
        run_id: Option<&str>,
    ) -> store::Result<bool> {
        self.inner.set_workflow_state(workflow_id, from, to, run_id).await
    }

    async fn put_run(&self, run: RunRecord) -> store::Result<bool> {
        self.inner.put_run(run).await
    }

    async fn update_run(&self, run: RunRecord, epoch: u64) -> store::Result<()> {
        self.inner.update_run(run, epoch).await
    }

    async fn run(&self, run_id: &str) -> store::Result<Option<RunRecord>> {
        self.inner.run(run_id).await
    }

    async fn runs_page(&self, query: RunQuery) -> store::Result<Page<RunRecord>> {
        self.inner.runs_page(query).await
    }

    async fn session(&self, session_id: &str) -> store::Result<Option<Session>> {
        self.inner.session(session_id).await
    }

    async fn handoffs(&self, query: HandoffQuery) -> store::Result<HandoffPage> {
        self.inner.handoffs(query).await
    }

    async fn prompt(&self, session_id: &str, turn_id: &str, key: &str) -> store::Result<Option<Vec<u8>>> {
        self.inner.prompt(session_id, turn_id, key).await
    }

    async fn sessions_page(&self, query: SessionQuery) -> store::Result<SessionPage> {
        self.inner.sessions_page(query).await
    }

    async fn turns_page(&self, session_id: &str, bounds: Bounds<TurnPlace>) -> store::Result<Page<TurnRecord>> {
        self.inner.turns_page(session_id, bounds).await
    }

    async fn turn(&self, session_id: &str, turn_id: &str) -> store::Result<Option<TurnRecord>> {
        self.inner.turn(session_id, turn_id).await
    }

    async fn tokens_of_day(&self, day: &str, agent_ids: Vec<String>) -> store::Result<HashMap<String, u64>> {
        self.inner.tokens_of_day(day, agent_ids).await
    }

    async fn use_tokens(&self, used: DayUse) -> store::Result<()> {
        self.inner.use_tokens(used).await
    }

    async fn due_timers(&self, horizon: Duration, limit: usize) -> store::Result<DueTimers> {
        self.inner.due_timers(horizon, limit).await
    }

    async fn timers_page(&self, bounds: Bounds<TimerPlace>) -> store::Result<Page<DueTimer>> {
        self.inner.timers_page(bounds).await
    }

    async fn abandoned_lanes(&self, grace: Duration, limit: usize) -> store::Result<Vec<AbandonedLane>> {
        self.inner.abandoned_lanes(grace, limit).await
    }

    async fn idle_sessions(&self, idle: Duration, limit: usize) -> store::Result<Vec<IdleSession>> {
        self.inner.idle_sessions(idle, limit).await
    }

    async fn prune(&self) -> store::Result<u64> {
        self.inner.prune().await
    }

    async fn lead(&self, role: &str, owner: &str, lease: Duration) -> store::Result<bool> {
        self.inner.lead(role, owner, lease).await
    }

    async fn resign(&self, role: &str, owner: &str) -> store::Result<()> {
        self.inner.resign(role, owner).await
    }

    async fn ping(&self) -> store::Result<()> {
        self.inner.ping().await
    }
}
