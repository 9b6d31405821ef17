//! Deletion of sessions, runs, agents and workflows, on demand and when they have expired.

use super::{Result, StoreError};
use async_trait::async_trait;
use std::time::Duration;
use types::timestamp::Timestamp;

/// A lane that a deletion has taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeizedLane {
    /// The epoch under which the deletion holds the lane.
    pub epoch: u64,
    /// How long the former holder may still write: the rest of its lease. Zero if no worker held the lane.
    pub busy_for: Duration,
    /// The number of timers that the session had armed.
    pub timers: u64,
    /// False if the session did not exist, so that the call has created a placeholder.
    pub existed: bool,
}

/// The number of deleted records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErasedRecords {
    /// Committed turns.
    pub turns: u64,
    /// Steps. In the embedded file only those outside their turn's record.
    pub steps: u64,
    /// Runs of workflows.
    pub runs: u64,
    /// Plans that belonged to the session.
    pub plans: u64,
}

/// The numbers of things that were deleted with a definition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErasedDefinition {
    /// False if there was no current version.
    pub existed: bool,
    /// Stored versions, the current one included.
    pub versions: u64,
    /// Knowledge sources of an agent.
    pub sources: u64,
    /// Entries of the plan cache of an agent.
    pub plans: u64,
}

/// The numbers of definitions that [`Erasure::expire_versions`] has deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpiredVersions {
    /// Versions of agents.
    pub agents: u64,
    /// Versions of workflows, without those of sessions' plans.
    pub workflows: u64,
    /// Entries of the plan cache.
    pub plans: u64,
}

/// Deletion of data. Every write is durable on return and can be repeated.
///
/// A session is deleted by the holder of its lane: [`Erasure::seize`] takes the lane from any holder, which can then
/// no longer commit. Steps and events are not fenced, so the caller repeats [`Erasure::erase_records`] after
/// [`SeizedLane::busy_for`], and then calls [`Erasure::erase_lane`]. The first epoch of a new session is a time, so
/// that a holder of the deleted session never holds the new one.
///
/// The default methods refuse, for stores that only wrap others.
#[async_trait]
pub trait Erasure: Send + Sync {
    /// Takes the lane for `lease` under a new epoch, also from a worker that holds it. Creates a placeholder if the
    /// session does not exist, so that no worker begins it meanwhile. The session may be one that this version cannot
    /// decode.
    async fn seize(&self, _session_id: &str, _owner: &str, _lease: Duration) -> Result<SeizedLane> {
        Err(cannot())
    }

    /// Deletes turns, steps, runs and plans of a session or run, but not the session itself. Nested runs of its turns
    /// count as its runs.
    async fn erase_records(&self, _session_id: &str) -> Result<ErasedRecords> {
        Err(cannot())
    }

    /// Deletes the session with history, profile and timers, if its lane is still held under `epoch`. Returns false if
    /// it is not.
    async fn erase_lane(&self, _session_id: &str, _epoch: u64) -> Result<bool> {
        Err(cannot())
    }

    /// Returns ids of at most `limit` sessions and runs of a user, in no order.
    async fn lanes_of_user(&self, _user_id: &str, _limit: usize) -> Result<Vec<String>> {
        Err(cannot())
    }

    /// Deletes an agent with its versions, plan cache, knowledge and daily counters.
    async fn erase_agent(&self, _agent_id: &str) -> Result<ErasedDefinition> {
        Err(cannot())
    }

    /// Deletes a workflow, or the plan of a session, with its versions.
    async fn erase_workflow(&self, _workflow_id: &str) -> Result<ErasedDefinition> {
        Err(cannot())
    }

    /// Returns ids of at most `limit` conversations that were closed for longer than `closed_for`, the longest closed
    /// first, with the time of the closing. Leaves out those with an open lane.
    async fn closed_sessions(&self, _closed_for: Duration, _limit: usize) -> Result<Vec<(String, Timestamp)>> {
        Ok(Vec::new())
    }

    /// As [`Erasure::seize`], but only if the session is still as [`Erasure::closed_sessions`] has found it: closed at
    /// `closed_at`, and without a lease or an open turn.
    async fn seize_closed(
        &self,
        _session_id: &str,
        _closed_at: Timestamp,
        _owner: &str,
        _lease: Duration,
    ) -> Result<Option<SeizedLane>> {
        Err(cannot())
    }

    /// Deletes versions of agents and workflows that nothing has used for `grace`, and the cached plans of deleted
    /// versions. A version is in use while it is the current one, while an open conversation last ran with it, and while
    /// a stored run has it. Storing a version again counts as use, too.
    ///
    /// Looks at the next `limit` versions and plans of each kind; each call continues after the previous one, and begins
    /// again at the end. So a version is deleted by the second round over all versions, at the earliest `grace` after
    /// the first.
    async fn expire_versions(&self, _grace: Duration, _limit: usize) -> Result<ExpiredVersions> {
        Ok(ExpiredVersions::default())
    }

    /// Drops the copies of a session that this process has in memory.
    fn forget(&self, _session_id: &str) {}
}

fn cannot() -> StoreError {
    StoreError::refused("this store cannot delete")
}
