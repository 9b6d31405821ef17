//! State of one running turn: the session with the turn's changes, and the events to publish. [`replies`] adds replies
//! and history entries, [`change`] builds the change for the commit, [`step_begin`] announces a long step.

mod change;
mod replies;
mod step_begin;

pub(in crate::turn) use step_begin::{StepName, run_beside};

use crate::action::call_values::SessionFacts;
use crate::budget::TokenMeter;
use crate::execution::reply_stream::ReplyStream;
use crate::execution::{Services, TurnError, TurnId};
use crate::journal::{Guard, Journal, Stepped};
use crate::model::{ActionAnswer, Models};
use crate::turn::TurnInput;
use base::http_client::bounded;
use definitions::agent::AgentRecord;
use futures::poll;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::future::Future;
use std::sync::Arc;
use std::task::Poll;
use storage::store::records::Record;
use tracing::{debug, error, warn};
use types::event::{EventType, OutEvent, StatusEvent, StepEvent};
use types::job::{DEFAULT_CHANNEL, Job, UserMessage};
use types::session::{Entry, Session, Status, Task};
use types::timestamp::Timestamp;
use types::turn::StatusAt;

/// Limit on the number of actions in a turn's record.
const MAX_ACTIONS: usize = 100;
/// Limit in bytes on the name of one action in the turn's record. The name comes from the model, so it can be any
/// text.
const MAX_TARGET: usize = 64;
/// Limit in bytes on a session's profile as JSON.
const MAX_PROFILE: usize = 64 * 1024;

/// A running turn: the session with the turn's changes, and the events that it has not published yet.
pub(in crate::turn) struct Turn<'a> {
    pub(in crate::turn) services: &'a Services,
    /// The session with the changes of this turn. `workflow_state.status` is the current status.
    pub(in crate::turn) session: Session,
    pub(in crate::turn) jobs: Arc<[Job]>,
    pub(in crate::turn) agent: Arc<AgentRecord>,
    pub(in crate::turn) journal: Journal,
    /// Entries that this turn adds to the history.
    pub(in crate::turn) entries: Vec<Entry>,
    /// True once the user has a real reply: anything but a greeting, an interim text or a handoff text.
    pub(in crate::turn) answered: bool,
    /// How many replies this turn has sent in all attempts, without chunks.
    pub(in crate::turn) replies: u32,
    pub(in crate::turn) reason: Option<String>,
    /// Results with which the decision loop starts: the failure of a flow that an earlier turn began.
    pub(in crate::turn) initial_results: Vec<Arc<ActionAnswer>>,
    /// True if another agent handled the session's previous turn.
    pub(in crate::turn) moved: bool,
    /// True if an earlier attempt started this turn.
    pub(in crate::turn) resumed: bool,
    pub(in crate::turn) guard: Guard,
    /// The models, limited by the turn's token budget.
    pub(in crate::turn) models: Models,
    token_meter: Arc<TokenMeter>,
    /// Tokens that the conversation had used before this turn.
    tokens_before: u64,
    id: Arc<TurnId>,
    attempt: u32,
    started_at: Timestamp,
    profile_changed: bool,
    /// Targets of the turn's actions, in order, for the turn's record.
    actions: Vec<String>,
    statuses: Vec<StatusAt>,
    /// The last status event of this attempt.
    last_status: Option<StatusEvent>,
    /// The status in the stored session document.
    stored_status: Status,
    /// The text that is being published in chunks.
    pub(in crate::turn) reply_stream: Arc<ReplyStream>,
    /// True once `reply_stream` includes the chunks that an earlier attempt has published.
    pub(in crate::turn) recalled: bool,
    /// The suspended task that this turn's message continues.
    pub(in crate::turn) task: Option<Box<Task>>,
    /// Events that are not published yet.
    pub(in crate::turn) outbox: Vec<OutEvent>,
}

impl<'a> Turn<'a> {
    /// Starts the turn, or starts it again. A repeated turn starts from the same status as its first attempt.
    pub(in crate::turn) async fn open(services: &'a Services, input: Box<TurnInput>) -> Result<Box<Self>, TurnError> {
        let TurnInput { mut session, jobs, turn, agent, resumed, guard } = *input;
        let journal = Journal::open(services.leased_turn(&session, &turn.id, guard.clone()), resumed).await?;
        let stored_status = session.workflow_state.status;
        let (attempt, started_at) = match &session.turn {
            Some(open) => {
                session.workflow_state.status = open.status;
                (open.attempt, open.at)
            }
            None => (1, services.clock.now()),
        };
        // A user message reopens a closed session as a new conversation, so its token count restarts at 0.
        let opened = session.closed_at.is_some() && jobs.iter().any(|job| job.user_message().is_some());
        let tokens_before = if opened { 0 } else { session.tokens };
        let token_meter = TokenMeter::for_turn(&services.budgets, journal.clone(), &agent.config, tokens_before);
        let models = services.models.limited_by(Arc::<TokenMeter>::clone(&token_meter));
        // Boxed: otherwise the future of every async function that takes the turn would hold a copy of it.
        let mut turn = Box::new(Self {
            services,
            session,
            jobs,
            agent,
            journal,
            entries: Vec::new(),
            answered: false,
            replies: 0,
            reason: None,
            initial_results: Vec::new(),
            moved: false,
            resumed,
            guard,
            models,
            token_meter,
            tokens_before,
            id: turn,
            attempt,
            started_at,
            profile_changed: false,
            actions: Vec::new(),
            statuses: Vec::new(),
            last_status: None,
            stored_status,
            reply_stream: Arc::new(ReplyStream::new(services.clock.clone())),
            recalled: false,
            task: None,
            outbox: Vec::new(),
        });
        turn.adopt_addressing();
        Ok(turn)
    }

    /// Sets the session's user, channel and agent from the turn's messages. The last channel wins. The user is that of
    /// the first message that names one, because APIs authorise by it: another user's message is handled as a message
    /// of the session's user, and its history entry names who sent it.
    fn adopt_addressing(&mut self) {
        let before = std::mem::replace(&mut self.session.agent_id, self.agent.config.id.clone());
        self.moved = !before.is_empty() && before != self.session.agent_id;
        for job in self.jobs.iter() {
            if let Some(message) = job.user_message() {
                match &message.user_id {
                    Some(user_id) if self.session.user_id.is_empty() => self.session.user_id.clone_from(user_id),
                    Some(user_id) if *user_id != self.session.user_id => {
                        let (session_id, user) = (&self.session.session_id, &self.session.user_id);
                        warn!(%session_id, %user, sent_by = %user_id, "message of another user; the session keeps its user");
                    }
                    Some(_) | None => {}
                }
                if let Some(channel) = &message.channel {
                    self.session.channel.clone_from(channel);
                }
            }
        }
        if self.session.channel.is_empty() {
            DEFAULT_CHANNEL.clone_into(&mut self.session.channel);
        }
    }

    /// The session, as calls of APIs name it.
    pub(in crate::turn) fn session_facts(&self) -> SessionFacts {
        SessionFacts::new(&self.session.session_id, &self.session.user_id, &self.session.channel)
    }

    pub(in crate::turn) fn status(&self) -> Status {
        self.session.workflow_state.status
    }

    pub(in crate::turn) fn messages(&self) -> impl Iterator<Item = &UserMessage> {
        self.jobs.iter().filter_map(Job::user_message)
    }

    /// Changes the status to `to` and queues the status event. Does nothing if the status is already `to`. An illegal
    /// transition is logged, and the status stays as it is.
    pub(in crate::turn) fn transition(&mut self, to: Status) {
        let from = self.status();
        if from == to {
            return;
        }
        if let Err(refused) = from.check(to) {
            error!(session_id = %self.session.session_id, turn_id = %self.id.id, "{refused}; status unchanged");
            return;
        }
        let at = self.services.clock.now();
        let event = StatusEvent {
            session_id: self.session.session_id.clone(),
            turn_id: self.id.id.clone(),
            status: to,
            previous: from,
            reason: self.reason.clone().filter(|_| to == Status::Cancelled),
            at,
            turn: None,
        };
        debug!(%from, %to, "status");
        let key = format!("status/{}", self.statuses.len());
        self.publish(EventType::Status, &key, &event);
        self.last_status = Some(event);
        self.statuses.push(StatusAt { status: to, at });
        self.session.workflow_state.status = to;
    }

    /// Adopts a status that an earlier attempt of this turn has published.
    pub(in crate::turn) fn adopt_status(&mut self, status: StatusAt) {
        self.session.workflow_state.status = status.status;
        self.statuses.push(status);
    }

    /// True if this attempt or an earlier one has set the status `cancelled`.
    pub(in crate::turn) fn is_cancelled(&self) -> bool {
        self.statuses.last().is_some_and(|last| last.status == Status::Cancelled)
    }

    /// Queues the event of a finished step.
    pub(in crate::turn) fn step_finished<O>(&mut self, kind: &str, target: &str, stepped: &Stepped<O>) {
        self.publish_step(kind, target, &stepped.key, stepped.ok, stepped.ms);
    }

    /// Queues the event of a step with this key, success and duration in milliseconds.
    pub(in crate::turn) fn publish_step(&mut self, kind: &str, target: &str, key: &str, ok: bool, ms: u64) {
        let event = StepEvent::ended(&self.session.session_id, &self.id.id, key, kind, target, ok, ms);
        self.publish(EventType::Step, &format!("step/{key}"), &event);
    }

    /// Adds an action to the turn's record.
    pub(in crate::turn) fn add_action(&mut self, target: &str) {
        if self.actions.len() < MAX_ACTIONS {
            self.actions.push(bounded(target, MAX_TARGET));
        }
    }

    /// Merges `params` into the session's profile. Returns an error for the model, and changes nothing, if the
    /// profile would exceed its limit.
    pub(in crate::turn) fn update_profile(&mut self, params: &Map<String, Value>) -> Result<(), String> {
        let mut profile = self.session.profile.clone();
        profile.extend(params.clone());
        let bytes = json!(profile).to_string().len();
        if bytes > MAX_PROFILE {
            return Err(format!("the profile would have {bytes} bytes, more than {MAX_PROFILE}"));
        }
        self.session.profile = profile;
        self.profile_changed = true;
        Ok(())
    }

    /// Makes the turn's progress visible: stores the status, then publishes the queued events.
    pub(in crate::turn) async fn settle(&mut self) -> Result<(), TurnError> {
        self.store_status().await?;
        self.flush().await
    }

    /// Stores the status, then runs the step `slow` and publishes the queued events concurrently, and the step's begin
    /// if it is under way for long.
    ///
    /// The work that a status announces never starts before that status is durable; its event may follow a moment
    /// later. If `slow` completes on its first poll, as a replayed step does, the queued events are published with
    /// the next batch.
    pub(in crate::turn) async fn run_while_publishing<T>(
        &mut self,
        step: StepName<'_>,
        mut slow: impl Future<Output = T> + Unpin,
    ) -> Result<T, TurnError> {
        self.store_status().await?;
        if let Poll::Ready(done) = poll!(&mut slow) {
            return Ok(done);
        }
        self.publish_and_run(step, slow).await
    }

    /// Like [`Turn::run_while_publishing`], for a future that publishes events itself. The queued events are always
    /// published, ahead of those of `saying`.
    pub(in crate::turn) async fn publish_and_run<T>(
        &mut self,
        step: StepName<'_>,
        saying: impl Future<Output = T>,
    ) -> Result<T, TurnError> {
        self.store_status().await?;
        // Boxed so that the rare wait does not enlarge the future of every step.
        let begin = Box::pin(self.announcement(step).publish());
        run_beside(self.publish_queued(), saying, begin).await
    }

    /// Stores the status, unless the stored session document already has it. Durable on return.
    async fn store_status(&mut self) -> Result<(), TurnError> {
        let status = self.status();
        if self.stored_status != status {
            let request = Record {
                session_id: self.session.session_id.clone(),
                epoch: self.session.epoch,
                turn_id: self.id.id.clone(),
                steps: self.journal.take_notes(),
                status: Some(status),
            };
            self.services.store.record(request).await?;
            self.stored_status = status;
        }
        Ok(())
    }

    /// Publishes the queued events.
    pub(in crate::turn) async fn flush(&mut self) -> Result<(), TurnError> {
        self.publish_queued().await
    }

    fn publish_queued(&mut self) -> impl Future<Output = Result<(), TurnError>> + use<> {
        let (events, guard) = (std::mem::take(&mut self.outbox), self.guard.clone());
        let queue = Arc::clone(&self.services.queue);
        async move {
            match events.is_empty() {
                true => Ok(()),
                false if !guard.holds().await? => Err(TurnError::Lost),
                false => Ok(queue.emit(events.into()).await?),
            }
        }
    }

    pub(in crate::turn) fn turn_id(&self) -> &str {
        &self.id.id
    }

    /// When the first attempt of the turn started.
    pub(in crate::turn) fn started_at(&self) -> Timestamp {
        self.started_at
    }

    pub(in crate::turn) fn publish(&mut self, event_type: EventType, key: &str, event: &impl Serialize) {
        self.outbox.push(OutEvent {
            channel: self.session.channel.clone(),
            session_id: self.session.session_id.clone(),
            event_type,
            msg_id: Some(self.journal.idempotency_key(key)),
            // Plain data with text keys always serialises.
            payload: serde_json::to_vec(event).unwrap_or_default().into(),
        });
    }
}
