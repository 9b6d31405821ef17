//! The contract of the store, which holds sessions, journals, plans, timers, agents, knowledge, workflows and runs.
//!
//! - [`Store`]: the trait that the backends implement. A call concerns one session or document; the backends group
//!   concurrent calls into bulk commands.
//! - [`records`]: the requests and results of these calls. [`session_query`]: the filter of a listing of sessions.
//! - [`authoring`]: the states of authoring dialogues. [`drafts`]: the documents that they make.
//! - [`versions`]: the versions of agents and workflows, with who stored them, when and why.
//! - [`erasure`]: deletes what belongs to a session, a user or an agent.
//! - [`lane`]: the rules of a lane, as functions on a session in memory.
//! - [`session_cache`]: the cache of the sessions that this process saw last.
//! - [`batcher`]: grouping of concurrent calls into bulk commands.
//! - [`versioned`]: what agents and workflows have in common as stored documents.
//! - [`mod@process`]: the announcements of running processes.

pub mod records;

pub mod authoring;
pub mod batcher;
pub mod drafts;
pub mod erasure;
pub mod lane;
pub mod process;
pub mod session_cache;
pub mod session_query;
pub mod versioned;
pub mod versions;

pub use authoring::{Authoring, AuthoringQuery, AuthoringSummary, NewAuthoring, SaveAuthoring, Saved};
pub use drafts::{Definition, DraftVersion, Drafts, Over, PublishDefinition, PublishEnd};
pub use erasure::{ErasedDefinition, ErasedRecords, Erasure, ExpiredVersions, SeizedLane};
pub use process::ANNOUNCE_INTERVAL;
pub use process::{ANNOUNCEMENT_EXPIRY, Process};
pub use records::*;
pub use versioned::{Damaged, Listed};
pub use versions::{NO_DIALOGUE, VersionDetails, VersionEntry, VersionLabel, Versions};

use crate::backup::FileCopy;
use crate::queue::Storage;
use async_trait::async_trait;
use base::error::SharedError;
use decisions::world::WorkflowStatus;
use definitions::agent::AgentRecord;
use definitions::knowledge::source::{Source, SourceEntry};
use definitions::workflow::definition::WorkflowRecord;
#[allow(unused_imports, reason = "the documentation links to them")]
use definitions::workflow::session_plan::{MAX_PLANS, PlanState, SessionPlan};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use types::audit::{AuditEntry, AuditQuery};
use types::format::NewerFormat;
use types::page::{Bounds, Page};
use types::plan::Plan;
use types::run::{RunQuery, RunRecord};
use types::session::Session;
use types::step::StepRecord;
use types::timestamp::Timestamp;
use types::turn::{DayUse, TurnRecord};

/// Why a call to the store failed.
#[derive(Clone, Debug, Error)]
pub enum StoreError {
    /// The store is unreachable or did not respond within its time limit. The call may have taken effect. The same call
    /// may succeed later.
    #[error("the store is unavailable: {0}")]
    Unavailable(#[source] SharedError),
    /// A stored document cannot be decoded: another version of the program wrote it, or a person edited it.
    #[error("{what} in the store cannot be read: {source}")]
    Damaged {
        /// The document, as errors name it.
        what: String,
        /// Why it cannot be decoded.
        source: SharedError,
    },
    /// A newer version of the program wrote a stored document, and only such a version can read it.
    #[error("{what} in the store cannot be read: {source}")]
    Newer {
        /// The document, as errors name it.
        what: String,
        /// The formats of the document and of this version.
        source: NewerFormat,
    },
    /// The store rejected the call. The same call will fail again.
    #[error("the store refused: {0}")]
    Refused(#[source] SharedError),
}

impl StoreError {
    /// Creates [`Self::Unavailable`] from an error or a text.
    pub fn unavailable(cause: impl Into<SharedError>) -> Self {
        Self::Unavailable(cause.into())
    }

    /// Creates [`Self::Refused`] from an error or a text.
    pub fn refused(cause: impl Into<SharedError>) -> Self {
        Self::Refused(cause.into())
    }

    /// Creates [`Self::Damaged`] from an error or a text. `what` names the document.
    pub fn damaged(what: impl Into<String>, source: impl Into<SharedError>) -> Self {
        Self::Damaged { what: what.into(), source: source.into() }
    }
}

/// The result of a call to the store.
pub type Result<T> = std::result::Result<T, StoreError>;

/// Durable state.
///
/// *Durable* means: acknowledged by a majority of the replica set in MongoDB, synced to the file in the embedded store.
/// Times are those of the store's clock. Unless a method says otherwise, reads return durable data of the primary.
///
/// *Errors.* Every call fails with [`StoreError::Unavailable`] when the store is unreachable or does not respond within
/// its time limit (`mongodb.timeout`); a write that failed so may have taken effect. Reads fail with
/// [`StoreError::Damaged`] when a document cannot be decoded, and with [`StoreError::Newer`] when its stamp says that
/// only a newer version can read it. Writes fail with [`StoreError::Refused`] when the store cannot hold the data, for
/// example because a document is too large or nested too deeply.
///
/// *Limits.* A listing with a limit of 0 is empty.
///
/// *Cancel safety.* A caller may drop the future of every call. A dropped read has no effect. A dropped write may still
/// take effect. [`Store::put_agent`], [`Store::put_workflow`], [`Store::renew`] and [`Store::prune`] write several
/// documents: when dropped they may have written some of them, and the caller can repeat them.
#[async_trait]
pub trait Store: Authoring + Drafts + Erasure + Versions + Send + Sync + 'static {
    // --- the lane

    /// Takes the lease of a session's lane, and begins or resumes a turn. Creates the session if it does not exist.
    ///
    /// When another worker holds the lane, the call raises `pending_seq` instead, so that the lease holder continues
    /// with the caller's job. Either is one atomic update. On return the lease, the epoch, the `turn` marker and the
    /// announced status, or else the raised `pending_seq`, are durable.
    ///
    /// The session of a grant may lack its outbox: see [`Session::outbox_unread`](types::session::Session). A lease
    /// that was granted to a dropped or failed call expires by itself.
    async fn acquire(&self, request: Acquire) -> Result<Acquired>;

    /// Records the steps of a turn, and optionally sets the status in the session document.
    ///
    /// The first record of a step wins: an existing one is kept and returned as [`Recorded::Existing`]. The steps are
    /// not fenced; [`Store::commit`] decides between the records of two lease holders. The status is fenced by the
    /// epoch, and a stale epoch is no error.
    ///
    /// On return each step is durable. Returns one result for each step, in the order of `request.steps`.
    async fn record(&self, request: Record) -> Result<Vec<Recorded>>;

    /// Returns all recorded steps of a turn, ordered by key.
    async fn steps(&self, session_id: &str, turn_id: &str) -> Result<Vec<StepRecord>>;

    /// Returns a page of the recorded steps of a turn, ordered by key. A place is a key.
    async fn steps_page(&self, session_id: &str, turn_id: &str, bounds: Bounds<String>) -> Result<Page<StepRecord>>;

    /// Ends a turn: writes state, history, `last_seq`, timers, tokens and outbox in one update that is fenced by the
    /// epoch.
    ///
    /// The store writes the turn's record, its run's record and the remaining steps before this update, so a committed
    /// turn always has its records. They replace earlier records under the same keys, unless a later lease holder wrote
    /// those. The outbox replaces the former one; without a change, the former one is removed.
    ///
    /// Releases the lease if `pending_seq <= last_seq`, else renews it for `request.lease`. Returns
    /// [`Committed::Fenced`] when the epoch is stale or the lease was released; then the session is unchanged. On
    /// return everything is durable, except for the counters of [`Store::tokens_of_day`]: the store adds to them after
    /// the update, so a crash in between may lose the addition, but never doubles it.
    ///
    /// After [`StoreError::Unavailable`] the outcome is unknown.
    async fn commit(&self, request: Commit) -> Result<Committed>;

    /// Releases the lease of `epoch` without a commit. The recorded steps stay for the next lease holder. The attempt
    /// counts only with `counts_as_attempt`. Durable on return. Returns false, and changes nothing, when the caller no
    /// longer holds the lease.
    async fn release(&self, session_id: &str, epoch: u64, counts_as_attempt: bool) -> Result<bool>;

    /// Decrements the attempt count of the open turn that began at `begun`, whichever worker holds the lane now. For an
    /// attempt that an unreachable queue or store interrupted. Does nothing when that turn is no longer open. Durable
    /// on return.
    async fn undo_attempt(&self, session_id: &str, begun: Timestamp) -> Result<()>;

    /// Extends the leases to `lease` from now, in one command. Returns the leases that are lost. Durable on return.
    async fn renew(&self, held: &[LeaseKey], lease: Duration) -> Result<Vec<LeaseKey>>;

    // --- plans and agents

    /// Returns the cached plan of an agent's configuration, by `workflow_id` and `hash`. On MongoDB, a deleted plan may
    /// still be returned for 100 ms.
    async fn plan(&self, workflow_id: &str, hash: &str) -> Result<Option<Arc<Plan>>>;

    /// Stores a plan unless one with the same key exists. Returns the plan that is stored now, which may be another
    /// process's. Durable on return.
    async fn put_plan(&self, plan: Plan) -> Result<Arc<Plan>>;

    /// Returns the current version of an agent, never older than the last [`Store::put_agent`] that had returned before
    /// this call.
    async fn agent(&self, agent_id: &str) -> Result<Option<Arc<AgentRecord>>>;

    /// Returns the version of an agent with this hash, also when a newer one is current.
    async fn agent_version(&self, agent_id: &str, hash: &str) -> Result<Option<Arc<AgentRecord>>>;

    /// Makes a version of an agent the current one. Durable on return, and every later [`Store::agent`] in any process
    /// returns it. Returns false when this version already was the current one. Keeps the text of the record as the
    /// version's source. Refuses a version that is stored with another document.
    async fn put_agent(&self, agent: AgentRecord) -> Result<bool>;

    /// Returns the number of stored versions of an agent.
    async fn agent_version_count(&self, agent_id: &str) -> Result<u64>;

    /// Stores a version for [`Store::agent_version`] without making it the current one. For agents that are compiled
    /// into the program. Durable on return. Refuses a version that is stored with another document.
    async fn put_agent_version(&self, agent: &AgentRecord) -> Result<()>;

    /// Returns the current versions of all agents, ordered by id. An agent that cannot be decoded is listed separately
    /// and does not hide the others.
    async fn agents(&self) -> Result<Listed<AgentRecord>>;

    // --- knowledge

    /// Stores a knowledge source, and replaces one of the same agent and name. Durable on return, and every later call
    /// in any process sees it. Returns false when the stored source is the same.
    async fn put_knowledge(&self, source: Source) -> Result<bool>;

    /// Removes a knowledge source. Durable on return. Returns false when it did not exist.
    async fn remove_knowledge(&self, agent_id: &str, source: &str) -> Result<bool>;

    /// Returns the knowledge sources of one agent, or of all agents, without their passages, ordered by agent and name.
    /// Cheap, since workers call it repeatedly.
    async fn knowledge_entries(&self, agent_id: Option<&str>) -> Result<Vec<SourceEntry>>;

    /// Returns an agent's knowledge sources with their passages, ordered by name.
    async fn knowledge(&self, agent_id: &str) -> Result<Vec<Source>>;

    // --- workflows and their runs

    /// Returns the current version of a workflow, never older than the last [`Store::put_workflow`] that had returned
    /// before this call.
    async fn workflow(&self, workflow_id: &str) -> Result<Option<Arc<WorkflowRecord>>>;

    /// Returns the version of a workflow with this hash, also when a newer one is current.
    async fn workflow_version(&self, workflow_id: &str, hash: &str) -> Result<Option<Arc<WorkflowRecord>>>;

    /// Makes a version of a workflow the current one. Durable on return, and every later [`Store::workflow`] in any
    /// process returns it. Returns false when this version already was the current one. Keeps the text of the record as
    /// the version's source. Refuses a version that is stored with another document.
    async fn put_workflow(&self, workflow: WorkflowRecord) -> Result<bool>;

    /// Returns the number of stored versions of a workflow.
    async fn workflow_version_count(&self, workflow_id: &str) -> Result<u64>;

    /// Stores a version for [`Store::workflow_version`] without making it the current one. For workflows that are
    /// compiled into the program. Durable on return. Refuses a version that is stored with another document.
    async fn put_workflow_version(&self, workflow: &WorkflowRecord) -> Result<()>;

    /// Returns the current versions of all workflows, ordered by id, without the plans of sessions. A workflow that
    /// cannot be decoded is listed separately and does not hide the others.
    async fn workflows(&self) -> Result<Listed<WorkflowRecord>>;

    /// Stores a version of a session's plan and makes it the current one, for [`Store::workflow`], too. A new plan has
    /// the status `READY`; the status of a known one stays. The session keeps its last [`MAX_PLANS`] plans, and plans
    /// that run. A plan is kept for `retention.idle` after its last use. Its versions are kept as long, and at least
    /// for `retention.turns`. Durable on return. Fails with `Refused` when the id belongs to another session or to an
    /// operator's workflow.
    async fn put_session_plan(&self, plan: WorkflowRecord, agent_id: &str) -> Result<()>;

    /// Returns the plans of a session, the last used first, at most [`MAX_PLANS`]. Leaves out plans that it cannot
    /// decode.
    async fn plans_of(&self, session_id: &str) -> Result<Vec<SessionPlan>>;

    /// Sets the status of a session's plan, if [`PlanState::may_become`] allows it. A plan that begins to run remembers
    /// `run_id`. Returns false, and changes nothing, when it is not allowed or there is no such plan. Durable on
    /// return.
    async fn set_workflow_state(
        &self,
        workflow_id: &str,
        from: &[WorkflowStatus],
        to: WorkflowStatus,
        run_id: Option<&str>,
    ) -> Result<bool>;

    /// Inserts the record of a run. Durable on return. Returns false, and changes nothing, when the run already has a
    /// record.
    async fn put_run(&self, run: RunRecord) -> Result<bool>;

    /// Overwrites the record of a run, unless a later epoch of its lane wrote the stored one. Durable on return. For a
    /// run in a lane of its own, the commit writes the final record ([`Change::run`]).
    async fn update_run(&self, run: RunRecord, epoch: u64) -> Result<()>;

    /// Returns the record of a run.
    async fn run(&self, run_id: &str) -> Result<Option<RunRecord>>;

    /// Returns the records of runs, newest first by `created_at`, or the latest ended first with [`RunQuery::by_end`].
    /// Equal times are ordered by run id, descending.
    async fn runs(&self, query: RunQuery) -> Result<Vec<RunRecord>> {
        Ok(self.runs_page(query).await?.items)
    }

    /// Returns the runs of [`Store::runs`], and whether there are more.
    async fn runs_page(&self, query: RunQuery) -> Result<Page<RunRecord>>;

    // --- queries

    /// Returns one session. Directly after an election a store may return an older state: a caller that builds on the
    /// result compares `epoch` and `last_seq` with the values that it knows.
    async fn session(&self, session_id: &str) -> Result<Option<Session>>;

    /// Returns sessions with only the last entry of their histories, the last changed first. Commits and recorded
    /// statuses are changes. A store may also count acquisitions and releases. Sessions that changed in the same
    /// millisecond are ordered by id, descending.
    async fn sessions(&self, query: SessionQuery) -> Result<Vec<Session>> {
        Ok(self.sessions_page(query).await?.page.items)
    }

    /// Returns the sessions of [`Store::sessions`], and where the listing continues.
    async fn sessions_page(&self, query: SessionQuery) -> Result<SessionPage>;

    /// Returns the kept prompt of a recorded step, compressed as it was recorded. `None` if the step or its prompt is
    /// not stored.
    async fn prompt(&self, session_id: &str, turn_id: &str, key: &str) -> Result<Option<Vec<u8>>>;

    /// Returns a page of the sessions that are handed off, in the order of [`HandoffPlace`], and how many there are.
    async fn handoffs(&self, query: HandoffQuery) -> Result<HandoffPage>;

    /// Returns at most `limit` turns of a session, newest first by `started_at`. Equal starts are ordered by
    /// `committed_at`, then by turn id, both descending.
    async fn turns(&self, session_id: &str, limit: usize) -> Result<Vec<TurnRecord>> {
        Ok(self.turns_page(session_id, Bounds::first(limit)).await?.items)
    }

    /// Returns a page of the turns of a session, in the order of [`Store::turns`].
    async fn turns_page(&self, session_id: &str, bounds: Bounds<TurnPlace>) -> Result<Page<TurnRecord>>;

    /// Returns the record of one turn.
    async fn turn(&self, session_id: &str, turn_id: &str) -> Result<Option<TurnRecord>>;

    /// Returns the tokens that committed turns have used on a day (UTC, for example `2026-01-02`), by agent. Agents
    /// without usage are missing in the result. The counters may include additions that are not durable yet.
    async fn tokens_of_day(&self, day: &str, agent_ids: Vec<String>) -> Result<HashMap<String, u64>>;

    /// Adds the tokens of a model call that belongs to no turn to the counters of [`Store::tokens_of_day`]. A
    /// repetition adds them again.
    async fn use_tokens(&self, used: DayUse) -> Result<()>;

    // --- timers and housekeeping

    /// Returns at most `limit` timers that are due within `horizon` from now, earliest first. Timers that are due in
    /// the same millisecond have no order.
    async fn due_timers(&self, horizon: Duration, limit: usize) -> Result<DueTimers>;

    /// Returns a page of the timers of all sessions, next due first. Timers that are due in the same millisecond are
    /// ordered by session, then by timer id.
    async fn timers_page(&self, bounds: Bounds<TimerPlace>) -> Result<Page<DueTimer>>;

    /// Returns at most `limit` lanes with work and no lease holder, the longest abandoned first. A lane has work when
    /// `pending_seq > last_seq` or a turn is open. It has no lease holder when it has no lease, or one that expired.
    /// Either must have been so for at least `grace`.
    async fn abandoned_lanes(&self, grace: Duration, limit: usize) -> Result<Vec<AbandonedLane>>;

    /// Returns at most `limit` chat sessions that are ready to be closed: not closed yet, with the status `ready` or
    /// `cancelled`, without timers, without a flow that waits, without a lease or an open turn, and unchanged for more
    /// than `idle`. They have no order.
    async fn idle_sessions(&self, idle: Duration, limit: usize) -> Result<Vec<IdleSession>>;

    /// Deletes expired turns with their steps, and expired runs. Returns the number of deleted turns. MongoDB deletes
    /// expired documents by itself, so there the call does nothing. When the future is dropped, the rest stays for the
    /// next call.
    async fn prune(&self) -> Result<u64>;

    /// Takes or renews the leadership of `role` for `lease` from now. Durable on return. Returns true when `owner` is
    /// the leader on return.
    async fn lead(&self, role: &str, owner: &str, lease: Duration) -> Result<bool>;

    /// Ends the leadership of `owner`, so that a standby can take over immediately. Does nothing when `owner` is not
    /// the leader. Durable on return.
    async fn resign(&self, role: &str, owner: &str) -> Result<()>;

    /// Lists a process in [`Store::processes`] for the time [`ANNOUNCEMENT_EXPIRY`], or prolongs its entry. Not
    /// durable.
    async fn announce(&self, _process: Process) -> Result<()> {
        Ok(())
    }

    /// Removes a process from [`Store::processes`].
    async fn depart(&self, _process_id: &str) -> Result<()> {
        Ok(())
    }

    /// Returns the processes whose announcements have not expired, ordered by their start, then by their id.
    async fn processes(&self) -> Result<Vec<Process>> {
        Ok(Vec::new())
    }

    /// Stores an entry of the audit trail, and replaces one with the same id. Durable on return. The entry is kept for
    /// `retention.audit`.
    async fn put_audit(&self, entry: AuditEntry) -> Result<()>;

    /// Returns entries of the audit trail in the order of their ids: the first after `query.after`, or the last ones.
    async fn audit(&self, query: AuditQuery) -> Result<Vec<AuditEntry>>;

    /// Returns the secret of this name that all processes of the installation share. The first call stores
    /// its `candidate`. Durable on return. The default method refuses, for stores that only wrap others.
    async fn shared_secret(&self, _name: &str, _candidate: [u8; 32]) -> Result<[u8; 32]> {
        Err(StoreError::refused("this store keeps no secrets"))
    }

    /// Returns the disk usage of the database. Empty when it is that of the queue, too, and when there are no figures.
    async fn storage(&self) -> Result<Vec<Storage>> {
        Ok(Vec::new())
    }

    /// Returns at most `limit` of the largest conversations and lanes of runs, the largest first. May look at a part
    /// of them only: the sessions that changed last, and sessions with many steps.
    async fn largest_sessions(&self, _limit: usize) -> Result<Vec<SessionSize>> {
        Ok(Vec::new())
    }

    /// Returns a copy of the file that holds this store and its queue, as of one moment, while both are in use. `None`
    /// if they are in no file.
    async fn copy_file(&self) -> Result<Option<FileCopy>> {
        Ok(None)
    }

    /// Checks that the store is reachable and takes writes. Fails with [`StoreError::Unavailable`] when it does not.
    async fn ping(&self) -> Result<()>;
}
