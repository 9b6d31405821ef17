//! What the engine keeps: sessions, journals, plans, timers, agents, what they answer from, workflows and their runs.
//!
//! [`Store`] is the seam; [`mongo`] and [`embedded`] implement it. Callers ask one at a time, implementations gather what
//! arrives together into bulk commands and answer each caller separately (DESIGN.md, "Writes are grouped"). [`lane`] has the
//! lane's rules on a session in memory, which both share.

pub mod records;

pub mod group;
pub mod known;
pub mod lane;
pub mod process;
pub mod versioned;

pub use process::ANNOUNCE;
pub use process::{ANNOUNCED, Process};
pub use records::*;
pub use versioned::{Damaged, Listed};

use async_trait::async_trait;
use definitions::agent::AgentRecord;
use definitions::knowledge::source::{Source, SourceEntry};
use definitions::workflow::definition::WorkflowRecord;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use types::plan::Plan;
use types::run::{RunQuery, RunRecord};
use types::session::Session;
use types::step::StepRecord;
use types::timestamp::Timestamp;
use types::turn::TurnRecord;

/// Why the store did not answer.
#[derive(Clone, Debug, Error)]
pub enum StoreError {
    /// It cannot be reached or does not answer in time: the same call may succeed later.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// What it holds cannot be read: `what` names the document.
    #[error("{what} in the store cannot be read: {problem}")]
    Damaged {
        /// The document.
        what: String,
        /// What is wrong with it.
        problem: String,
    },
    /// It refused the call.
    #[error("the store refused: {0}")]
    Refused(String),
}

/// A result of the store.
pub type Result<T> = std::result::Result<T, StoreError>;

/// Durable state. "Durable" below means: majority-acknowledged in MongoDB, synced to the file in the embedded store.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    // --- the lane

    /// Takes the lease of a session if it is free or expired, creating the session if it is new; else raises
    /// `pending_seq`. One atomic update. On return the lease, epoch, `turn` marker and announced status (or the raised
    /// `pending_seq`) are durable. A grant may leave the outbox out: see [`Session::outbox_unread`](types::session::Session).
    async fn acquire(&self, request: Acquire) -> Result<Acquired>;

    /// Records steps, first writer wins, and optionally shows a status in the session document (fenced by epoch, without
    /// an error when stale). On return each step is durable: the given one, or the one that was there before. Answers in
    /// the order of `request.steps`.
    async fn record(&self, request: Record) -> Result<Vec<Recorded>>;

    /// All recorded steps of a turn.
    async fn steps(&self, session_id: &str, turn_id: &str) -> Result<Vec<StepRecord>>;

    /// Ends a turn: state, history, `last_seq`, timers, tokens and outbox in one update filtered by epoch, after the turn's record,
    /// its run's and remaining steps are durable. What it adds to agents' days is added once it is committed, and only then; a
    /// crash of the process right between the two may lose it, but never adds it twice. Those steps replace what was on record under their keys, unless a newer holder
    /// wrote it. The outbox replaces the former one; without a change, it is removed. Releases the lease if
    /// `pending_seq <= last_seq`, else renews it. When the epoch is stale or the lease was handed back it answers
    /// [`Committed::Fenced`], and nothing of the session has changed.
    async fn commit(&self, request: Commit) -> Result<Committed>;

    /// Hands a lease back without a commit; steps recorded so far stay for whoever is next. `blame` keeps the attempt
    /// counted. Durable on return; false, and nothing done, when the lease was not the caller's any more.
    async fn release(&self, session_id: &str, epoch: u64, blame: bool) -> Result<bool>;

    /// Takes back one attempt of the turn that began at `begun` if it is still in hand, whoever holds it: it was broken off
    /// by queue or store being away. Durable on return.
    async fn forgive(&self, session_id: &str, begun: Timestamp) -> Result<()>;

    /// Extends leases. Answers which of them are lost. One command for all.
    async fn renew(&self, held: &[Held], lease: Duration) -> Result<Vec<Held>>;

    // --- plans and agents

    /// The cached plan of (workflow, hash).
    async fn plan(&self, workflow_id: &str, hash: &str) -> Result<Option<Arc<Plan>>>;

    /// Stores a plan unless one is there, and answers the one that is there now. Durable on return.
    async fn put_plan(&self, plan: Plan) -> Result<Arc<Plan>>;

    /// The agent as last applied; never older than the last `put_agent` that had returned when this was called.
    async fn agent(&self, agent_id: &str) -> Result<Option<Arc<AgentRecord>>>;

    /// The agent as it was under `hash`, also after a newer one was applied.
    async fn agent_version(&self, agent_id: &str, hash: &str) -> Result<Option<Arc<AgentRecord>>>;

    /// Applies an agent. Durable on return, and every later [`Store::agent`] on any process sees it. True when it
    /// changed something.
    async fn put_agent(&self, agent: AgentRecord) -> Result<bool>;

    /// Keeps a version that nobody has applied, such as that of a compiled-in agent, for [`Store::agent_version`].
    async fn put_agent_version(&self, agent: &AgentRecord) -> Result<()>;

    /// All agents, by id. One that cannot be read does not hide the others.
    async fn agents(&self) -> Result<Listed<AgentRecord>>;

    // --- knowledge

    /// Stores a source, in place of one of the same agent and name. Durable on return, and every later call on any process
    /// sees it. True when it changed something.
    async fn put_knowledge(&self, source: Source) -> Result<bool>;

    /// Removes a source. Durable on return; false when there was none.
    async fn remove_knowledge(&self, agent_id: &str, source: &str) -> Result<bool>;

    /// The sources of an agent or of all, without their passages, by agent and name. Cheap: workers ask again and again.
    async fn knowledge_entries(&self, agent_id: Option<&str>) -> Result<Vec<SourceEntry>>;

    /// An agent's sources with their passages, by name.
    async fn knowledge(&self, agent_id: &str) -> Result<Vec<Source>>;

    // --- workflows and their runs

    /// The workflow as last registered; never older than the last `put_workflow` that had returned when this was called.
    async fn workflow(&self, workflow_id: &str) -> Result<Option<Arc<WorkflowRecord>>>;

    /// The workflow as it was under `hash`, also after a newer one was registered.
    async fn workflow_version(&self, workflow_id: &str, hash: &str) -> Result<Option<Arc<WorkflowRecord>>>;

    /// Registers a workflow. Durable on return, and every later [`Store::workflow`] on any process sees it. True when it
    /// changed something.
    async fn put_workflow(&self, workflow: WorkflowRecord) -> Result<bool>;

    /// Keeps a version that nobody has registered, such as that of a compiled-in workflow, for [`Store::workflow_version`].
    async fn put_workflow_version(&self, workflow: &WorkflowRecord) -> Result<()>;

    /// All workflows, by id. One that cannot be read does not hide the others.
    async fn workflows(&self) -> Result<Listed<WorkflowRecord>>;

    /// Inserts a run unless it is there; true when it was not. Durable on return.
    async fn put_run(&self, run: RunRecord) -> Result<bool>;

    /// Writes a run over what is there, unless that was written under a later epoch of its lane. Durable on return. A run in
    /// a lane of its own is written at its end by the commit ([`Change::run`]).
    async fn update_run(&self, run: RunRecord, epoch: u64) -> Result<()>;

    /// One run.
    async fn run(&self, run_id: &str) -> Result<Option<RunRecord>>;

    /// Runs, newest first, or by their ends: see [`RunQuery::by_end`].
    async fn runs(&self, query: RunQuery) -> Result<Vec<RunRecord>>;

    // --- queries

    /// One session. Right after an election a store may respond with an older state: a caller that builds on it compares `epoch`
    /// and `last_seq` with the values that it knows.
    async fn session(&self, session_id: &str) -> Result<Option<Session>>;

    /// Sessions, last changed first, without their histories.
    async fn sessions(&self, query: SessionQuery) -> Result<Vec<Session>>;

    /// Turns of a session, newest first.
    async fn turns(&self, session_id: &str, limit: usize) -> Result<Vec<TurnRecord>>;

    /// One turn.
    async fn turn(&self, session_id: &str, turn_id: &str) -> Result<Option<TurnRecord>>;

    /// Tokens that the committed turns of a day (such as `2026-01-02`) have used of each agent's; none of an agent without any.
    async fn tokens_of_day(&self, day: &str, agent_ids: Vec<String>) -> Result<HashMap<String, u64>>;

    // --- timers and housekeeping

    /// Timers due within `horizon` of the store's clock, earliest first, `limit` at most.
    async fn due_timers(&self, horizon: Duration, limit: usize) -> Result<DueTimers>;

    /// Sessions with work and no holder: `pending_seq > last_seq` or an open turn, and no lease, or one that expired
    /// more than `grace` ago by the store's clock. The longest abandoned come first.
    async fn abandoned_lanes(&self, grace: Duration, limit: usize) -> Result<Vec<AbandonedLane>>;

    /// Open (not closed) `ready` or `cancelled` chat sessions that nothing waits for, no timer and no flow, and that are
    /// unchanged for more than `idle` by the store's clock.
    async fn idle_sessions(&self, idle: Duration, limit: usize) -> Result<Vec<IdleSession>>;

    /// Deletes expired turns with their steps, and expired runs; a store that does so by itself does nothing. Answers how many turns.
    async fn prune(&self) -> Result<u64>;

    /// Takes or renews the leadership of `role` for `lease`. True when `owner` leads on return.
    async fn lead(&self, role: &str, owner: &str, lease: Duration) -> Result<bool>;

    /// Gives the leadership back, so that a standby takes over at once.
    async fn resign(&self, role: &str, owner: &str) -> Result<()>;

    /// Lists a process for [`ANNOUNCED`], or renews it. Not durable.
    async fn announce(&self, _process: Process) -> Result<()> {
        Ok(())
    }

    /// Takes an announcement back.
    async fn depart(&self, _process_id: &str) -> Result<()> {
        Ok(())
    }

    /// The processes that have announced themselves lately, by their start.
    async fn processes(&self) -> Result<Vec<Process>> {
        Ok(Vec::new())
    }

    /// An error when the store cannot be reached.
    async fn ping(&self) -> Result<()>;
}
