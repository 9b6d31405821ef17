//! A store with faults.

use crate::crash::wire::Wire;
use async_trait::async_trait;
use decisions::world::WorkflowStatus;
use definitions::agent::AgentRecord;
use definitions::knowledge::source::{Source, SourceEntry};
use definitions::workflow::definition::WorkflowRecord;
use definitions::workflow::session_plan::SessionPlan;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
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

/// A store behind a wire.
pub struct FaultyStore {
    pub inner: Arc<dyn Store>,
    pub wire: Arc<Wire>,
}

#[async_trait]
impl Authoring for FaultyStore {
    async fn create_authoring(&self, new: NewAuthoring) -> store::Result<bool> {
        let id = new.state.state.session_id.clone();
        self.wire.counted("create_authoring", &id, self.inner.create_authoring(new)).await
    }

    async fn authoring(&self, session_id: &str) -> store::Result<Option<Loaded>> {
        self.wire.counted("authoring", session_id, self.inner.authoring(session_id)).await
    }

    async fn save_authoring(&self, save: SaveAuthoring) -> store::Result<Saved> {
        let id = save.state.state.session_id.clone();
        self.wire.counted("save_authoring", &id, self.inner.save_authoring(save)).await
    }

    async fn authorings(&self, query: AuthoringQuery) -> store::Result<Vec<AuthoringSummary>> {
        self.wire.plainly(self.inner.authorings(query)).await
    }
}

#[async_trait]
impl Drafts for FaultyStore {
    async fn put_draft(&self, draft: DraftVersion, session_id: &str) -> store::Result<()> {
        self.wire.counted("put_draft", session_id, self.inner.put_draft(draft, session_id)).await
    }

    async fn version_document(&self, kind: Artifact, id: &str, hash: &str) -> store::Result<Option<serde_json::Value>> {
        self.wire.plainly(self.inner.version_document(kind, id, hash)).await
    }

    async fn drop_drafts(&self, session_id: &str) -> store::Result<u64> {
        self.wire.plainly(self.inner.drop_drafts(session_id)).await
    }

    async fn publish(&self, publish: PublishDefinition) -> store::Result<PublishEnd> {
        self.wire.counted("publish_definition", "", self.inner.publish(publish)).await
    }

    async fn owner(&self, artifact: Artifact, id: &str) -> store::Result<Option<String>> {
        self.wire.plainly(self.inner.owner(artifact, id)).await
    }
}

#[async_trait]
impl Versions for FaultyStore {
    async fn versions(&self, artifact: Artifact, id: &str) -> store::Result<Vec<VersionEntry>> {
        self.wire.plainly(self.inner.versions(artifact, id)).await
    }

    async fn version_details(&self, kind: Artifact, id: &str, hash: &str) -> store::Result<Option<VersionDetails>> {
        self.wire.plainly(self.inner.version_details(kind, id, hash)).await
    }

    async fn open_sessions_without(&self, agent_id: &str, hash: &str) -> store::Result<u64> {
        self.wire.plainly(self.inner.open_sessions_without(agent_id, hash)).await
    }
}

#[async_trait]
impl Erasure for FaultyStore {
    async fn erase_lane(&self, session_id: &str, epoch: u64) -> store::Result<bool> {
        self.wire.counted("erase_lane", session_id, self.inner.erase_lane(session_id, epoch)).await
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn acquire(&self, request: Acquire) -> store::Result<Acquired> {
        let (lane, seq) = (request.session_id.clone(), [request.seq.to_string()]);
        let call = async {
            let acquired = self.inner.acquire(request).await?;
            if matches!(acquired, Acquired::Granted(_)) {
                self.wire.plan.note_grant();
            }
            Ok(acquired)
        };
        self.wire.counted_for("acquire", &lane, &seq, call).await
    }

    async fn record(&self, request: Record) -> store::Result<Vec<Recorded>> {
        let lane = request.session_id.clone();
        let steps: Vec<_> = request.steps.iter().map(|step| format!("{}/{}", request.turn_id, step.key)).collect();
        self.wire.counted_for("record", &lane, &steps, self.inner.record(request)).await
    }

    async fn steps(&self, session_id: &str, turn_id: &str) -> store::Result<Vec<StepRecord>> {
        self.wire.counted("steps", session_id, self.inner.steps(session_id, turn_id)).await
    }

    async fn steps_page(
        &self,
        session_id: &str,
        turn_id: &str,
        bounds: Bounds<String>,
    ) -> store::Result<Page<StepRecord>> {
        self.wire.plainly(self.inner.steps_page(session_id, turn_id, bounds)).await
    }

    async fn commit(&self, request: Commit) -> store::Result<Committed> {
        let lane = request.session_id.clone();
        let call = async {
            let held = LeaseKey { session_id: request.session_id.clone(), epoch: request.epoch };
            // A renewal that finds the lease gone may return before this commit does.
            self.wire.give_back(held.clone());
            let committed = self.inner.commit(request).await?;
            match committed {
                Committed::Fenced => self.wire.plan.note_lost("a commit was refused"),
                Committed::Held => self.wire.keep(&held),
                Committed::Released => {}
            }
            Ok(committed)
        };
        self.wire.counted("commit", &lane, call).await
    }

    async fn release(&self, session_id: &str, epoch: u64, counts_as_attempt: bool) -> store::Result<bool> {
        self.wire.give_back(LeaseKey { session_id: session_id.to_owned(), epoch });
        self.wire.counted("release", session_id, self.inner.release(session_id, epoch, counts_as_attempt)).await
    }

    async fn undo_attempt(&self, session_id: &str, begun: Timestamp) -> store::Result<()> {
        self.wire.counted("undo_attempt", session_id, self.inner.undo_attempt(session_id, begun)).await
    }

    async fn renew(&self, held: &[LeaseKey], lease: Duration) -> store::Result<Vec<LeaseKey>> {
        let lost = self.wire.plainly(self.inner.renew(held, lease)).await?;
        if self.wire.is_deaf() {
            return Ok(Vec::new());
        }
        if lost.iter().any(|held| !self.wire.has_given_back(held)) {
            self.wire.plan.note_lost("a renewal was refused");
        }
        Ok(lost)
    }

    async fn put_audit(&self, entry: AuditEntry) -> store::Result<()> {
        self.wire.plainly(self.inner.put_audit(entry)).await
    }

    async fn audit(&self, query: AuditQuery) -> store::Result<Vec<AuditEntry>> {
        self.wire.plainly(self.inner.audit(query)).await
    }

    async fn plan(&self, workflow_id: &str, hash: &str) -> store::Result<Option<Arc<Plan>>> {
        self.wire.counted("plan", "", self.inner.plan(workflow_id, hash)).await
    }

    async fn put_plan(&self, plan: Plan) -> store::Result<Arc<Plan>> {
        self.wire.counted("put_plan", "", self.inner.put_plan(plan)).await
    }

    async fn agent(&self, agent_id: &str) -> store::Result<Option<Arc<AgentRecord>>> {
        self.wire.counted("agent", "", self.inner.agent(agent_id)).await
    }

    async fn agent_version(&self, agent_id: &str, hash: &str) -> store::Result<Option<Arc<AgentRecord>>> {
        self.wire.counted("agent_version", "", self.inner.agent_version(agent_id, hash)).await
    }

    async fn put_agent(&self, agent: AgentRecord) -> store::Result<bool> {
        self.wire.plainly(self.inner.put_agent(agent)).await
    }

    async fn agents(&self) -> store::Result<Listed<AgentRecord>> {
        self.wire.plainly(self.inner.agents()).await
    }

    async fn put_knowledge(&self, source: Source) -> store::Result<bool> {
        self.wire.plainly(self.inner.put_knowledge(source)).await
    }

    async fn remove_knowledge(&self, agent_id: &str, source: &str) -> store::Result<bool> {
        self.wire.plainly(self.inner.remove_knowledge(agent_id, source)).await
    }

    async fn knowledge_entries(&self, agent_id: Option<&str>) -> store::Result<Vec<SourceEntry>> {
        self.wire.plainly(self.inner.knowledge_entries(agent_id)).await
    }

    async fn knowledge(&self, agent_id: &str) -> store::Result<Vec<Source>> {
        self.wire.plainly(self.inner.knowledge(agent_id)).await
    }

    async fn agent_version_count(&self, id: &str) -> store::Result<u64> {
        self.wire.plainly(self.inner.agent_version_count(id)).await
    }

    async fn put_agent_version(&self, agent: &AgentRecord) -> store::Result<()> {
        self.wire.counted("put_agent_version", "", self.inner.put_agent_version(agent)).await
    }

    async fn workflow(&self, workflow_id: &str) -> store::Result<Option<Arc<WorkflowRecord>>> {
        self.wire.counted("workflow", "", self.inner.workflow(workflow_id)).await
    }

    async fn workflow_version(&self, workflow_id: &str, hash: &str) -> store::Result<Option<Arc<WorkflowRecord>>> {
        self.wire.counted("workflow_version", "", self.inner.workflow_version(workflow_id, hash)).await
    }

    async fn put_workflow(&self, workflow: WorkflowRecord) -> store::Result<bool> {
        self.wire.plainly(self.inner.put_workflow(workflow)).await
    }

    async fn workflow_version_count(&self, id: &str) -> store::Result<u64> {
        self.wire.plainly(self.inner.workflow_version_count(id)).await
    }

    async fn put_workflow_version(&self, workflow: &WorkflowRecord) -> store::Result<()> {
        self.wire.counted("put_workflow_version", "", self.inner.put_workflow_version(workflow)).await
    }

    async fn workflows(&self) -> store::Result<Listed<WorkflowRecord>> {
        self.wire.plainly(self.inner.workflows()).await
    }

    async fn put_session_plan(&self, plan: WorkflowRecord, agent_id: &str) -> store::Result<()> {
        self.wire.counted("put_session_plan", "", self.inner.put_session_plan(plan, agent_id)).await
    }

    async fn plans_of(&self, session_id: &str) -> store::Result<Vec<SessionPlan>> {
        self.wire.counted("plans_of", "", self.inner.plans_of(session_id)).await
    }

    async fn set_workflow_state(
        &self,
        workflow_id: &str,
        from: &[WorkflowStatus],
        to: WorkflowStatus,
        run_id: Option<&str>,
    ) -> store::Result<bool> {
        self.wire.counted("set_workflow_state", "", self.inner.set_workflow_state(workflow_id, from, to, run_id)).await
    }

    async fn put_run(&self, run: RunRecord) -> store::Result<bool> {
        self.wire.plainly(self.inner.put_run(run)).await
    }

    async fn update_run(&self, run: RunRecord, epoch: u64) -> store::Result<()> {
        let lane = run.lane.clone();
        self.wire.counted("update_run", &lane, self.inner.update_run(run, epoch)).await
    }

    async fn run(&self, run_id: &str) -> store::Result<Option<RunRecord>> {
        self.wire.counted("run", run_id, self.inner.run(run_id)).await
    }

    async fn runs_page(&self, query: RunQuery) -> store::Result<Page<RunRecord>> {
        self.wire.plainly(self.inner.runs_page(query)).await
    }

    async fn session(&self, session_id: &str) -> store::Result<Option<Session>> {
        let call = async {
            let session = self.inner.session(session_id).await?;
            Ok(match &self.wire.lag {
                Some(lag) => lag.session(session_id, session),
                None => session,
            })
        };
        self.wire.counted("session", session_id, call).await
    }

    async fn handoffs(&self, query: HandoffQuery) -> store::Result<HandoffPage> {
        self.wire.plainly(self.inner.handoffs(query)).await
    }

    async fn prompt(&self, session_id: &str, turn_id: &str, key: &str) -> store::Result<Option<Vec<u8>>> {
        self.wire.plainly(self.inner.prompt(session_id, turn_id, key)).await
    }

    async fn sessions_page(&self, query: SessionQuery) -> store::Result<SessionPage> {
        self.wire.plainly(self.inner.sessions_page(query)).await
    }

    async fn turns_page(&self, session_id: &str, bounds: Bounds<TurnPlace>) -> store::Result<Page<TurnRecord>> {
        self.wire.plainly(self.inner.turns_page(session_id, bounds)).await
    }

    async fn turn(&self, session_id: &str, turn_id: &str) -> store::Result<Option<TurnRecord>> {
        self.wire.plainly(self.inner.turn(session_id, turn_id)).await
    }

    async fn tokens_of_day(&self, day: &str, agent_ids: Vec<String>) -> store::Result<HashMap<String, u64>> {
        self.wire.plainly(self.inner.tokens_of_day(day, agent_ids)).await
    }

    async fn use_tokens(&self, used: DayUse) -> store::Result<()> {
        self.wire.plainly(self.inner.use_tokens(used)).await
    }

    async fn due_timers(&self, horizon: Duration, limit: usize) -> store::Result<DueTimers> {
        let mut due = self.wire.plainly(self.inner.due_timers(horizon, limit)).await?;
        if let Some(lag) = &self.wire.lag {
            due.timers = lag.due(due.timers);
        }
        Ok(due)
    }

    async fn timers_page(&self, bounds: Bounds<TimerPlace>) -> store::Result<Page<DueTimer>> {
        self.wire.plainly(self.inner.timers_page(bounds)).await
    }

    async fn abandoned_lanes(&self, grace: Duration, limit: usize) -> store::Result<Vec<AbandonedLane>> {
        let lanes = self.wire.plainly(self.inner.abandoned_lanes(grace, limit)).await?;
        Ok(match &self.wire.lag {
            Some(lag) => lag.abandoned(lanes),
            None => lanes,
        })
    }

    async fn idle_sessions(&self, idle: Duration, limit: usize) -> store::Result<Vec<IdleSession>> {
        self.wire.plainly(self.inner.idle_sessions(idle, limit)).await
    }

    async fn prune(&self) -> store::Result<u64> {
        self.wire.plainly(self.inner.prune()).await
    }

    async fn lead(&self, role: &str, owner: &str, lease: Duration) -> store::Result<bool> {
        let leads = self.wire.plainly(self.inner.lead(role, owner, lease)).await?;
        if leads {
            *self.wire.leads.lock().unwrap() = Some((role.to_owned(), owner.to_owned()));
        }
        Ok(leads)
    }

    async fn resign(&self, role: &str, owner: &str) -> store::Result<()> {
        self.wire.plainly(self.inner.resign(role, owner)).await
    }

    async fn ping(&self) -> store::Result<()> {
        self.wire.plainly(self.inner.ping()).await
    }
}
