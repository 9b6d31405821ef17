//! Writes sessions in the state after a first turn without running the turn, to create many of them fast.

use super::Progress;
use super::agent::AGENT;
use base::clock;
use futures::{StreamExt, stream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::store::Store;
use storage::store::records::{Acquire, Acquired, Change, Commit, NewSession, TimerChange};
use types::job::{Job, JobBody, UserMessage};
use types::outcome::Outcome;
use types::session::{Entry, Role, WorkflowState};
use types::timer::NewTimer;
use types::timestamp::Timestamp;
use types::turn::TurnRecord;

/// Concurrent writes: enough to fill the groups in which the store writes.
const MAX_IN_FLIGHT: usize = 1_024;
/// Duration of the lease under which a session is written.
const LEASE: Duration = Duration::from_secs(60);
/// Id of the turn that each session claims to have had.
pub(super) const TURN: &str = "arm";

/// Writes sessions to the store.
pub(super) struct Stored {
    pub(super) store: Arc<dyn Store>,
    /// Hash of the sessions' agent.
    pub(super) agent_hash: String,
    /// Creation time of the jobs stream.
    pub(super) stream: Timestamp,
    /// Stream sequence of the job that each session has processed.
    pub(super) last_seq: u64,
}

impl Stored {
    /// Writes a session for each number, named by `name` and with a history if `words` is true. `timer` returns the
    /// session's timer by its id and its place in the range.
    pub(super) async fn write(
        &self,
        numbers: std::ops::Range<usize>,
        name: fn(usize) -> String,
        words: bool,
        timer: impl Fn(&str, usize) -> Option<NewTimer>,
        verb: &str,
        progress: &dyn Progress,
    ) -> anyhow::Result<()> {
        let (total, mut done, begun) = (numbers.len(), 0, Instant::now());
        let one = |(place, number)| {
            let session_id = name(number);
            let timer = timer(&session_id, place);
            self.write_one(session_id, words, timer)
        };
        let mut written = stream::iter(numbers.enumerate().map(one)).buffer_unordered(MAX_IN_FLIGHT);
        while let Some(outcome) = written.next().await {
            outcome?;
            done += 1;
            let rate = done as f64 / begun.elapsed().as_secs_f64().max(0.001);
            progress.tick(&format!("{done} of {total} {verb}, {rate:.0}/s"));
        }
        Ok(())
    }

    async fn write_one(&self, session_id: String, words: bool, timer: Option<NewTimer>) -> anyhow::Result<()> {
        let acquire = Acquire {
            session_id: session_id.clone(),
            seq: self.last_seq,
            stream: self.stream,
            rewind: None,
            job_id: TURN.to_owned(),
            owner: "bench".to_owned(),
            token: format!("{TURN}-{session_id}"),
            lease: LEASE,
            new_session: NewSession {
                agent_id: AGENT.to_owned(),
                user_id: format!("u-{session_id}"),
                channel: "bench".to_owned(),
                ..NewSession::default()
            },
            pin: None,
        };
        let granted = match self.store.acquire(acquire).await? {
            Acquired::Granted(grant) => grant,
            other => anyhow::bail!("cannot acquire session {session_id}: {other:?}"),
        };
        let commit = Commit {
            session_id: session_id.clone(),
            epoch: granted.session.epoch,
            last_seq: self.last_seq,
            stream: self.stream,
            at: self.stream,
            lease: LEASE,
            sure_until: Some(base::clock::moment() + LEASE),
            change: Some(Box::new(self.change(&session_id, words, timer))),
        };
        self.store.commit(commit).await?;
        Ok(())
    }

    fn change(&self, session_id: &str, words: bool, timer: Option<NewTimer>) -> Change {
        let (now, hash) = (clock::now(), self.agent_hash.clone());
        let message = UserMessage { text: "稍后再说".to_owned(), ..UserMessage::default() };
        let job =
            Job { session_id: session_id.to_owned(), job_id: TURN.to_owned(), body: JobBody::UserMessage(message) };
        let entry = |role, text: &str| Entry {
            role,
            text: text.to_owned(),
            at: now,
            turn_id: TURN.to_owned(),
            kind: None,
            metadata: Default::default(),
        };
        let history = match words {
            true => vec![
                entry(Role::User, "我想了解一下新款车型的价格和现车情况，另外贷款怎么办理？"),
                entry(Role::Assistant, "收到。我们的营业时间是周一至周五 9:00–18:00，稍后有专人联系您。"),
            ],
            false => Vec::new(),
        };
        let turn = TurnRecord {
            session_id: session_id.to_owned(),
            turn_id: TURN.to_owned(),
            job,
            statuses: Vec::new(),
            outcome: Outcome::Answered,
            reason: None,
            attempts: 1,
            queued_at: None,
            started_at: now,
            committed_at: now,
            hash: hash.clone(),
            actions: Vec::new(),
            tokens: 0,
        };
        Change {
            agent_id: AGENT.to_owned(),
            user_id: format!("u-{session_id}"),
            channel: "bench".to_owned(),
            workflow_state: WorkflowState { hash, need_greeting: false, ..WorkflowState::default() },
            status_reason: None,
            profile: None,
            history,
            history_drop: 0,
            jobs: vec![TURN.to_owned()],
            timer_generation: 1,
            timers: TimerChange::Replace(timer.into_iter().collect()),
            closed_at: None,
            handoff: None,
            tokens: 0,
            days: Vec::new(),
            waiting: None,
            task: None,
            current_workflow: None,
            turn,
            run: None,
            steps: Vec::new(),
            outbox: Arc::default(),
        }
    }
}
