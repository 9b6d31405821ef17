//! One turn in hand: the session as it becomes, what is to be published, what the commit writes.

use super::TurnInput;
use crate::budget::Purse;
use crate::execution::read_back::is_answer;
use crate::execution::speech::{Ended, Speech};
use crate::execution::{Services, TurnError, TurnId};
use crate::journal::{Guard, Journal, Stepped};
use crate::model::{ActionAnswer, Models};
use base::http_client::bounded;
use base::telemetry::TraceContext;
use definitions::agent::AgentRecord;
use futures::poll;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::future::Future;
use std::sync::Arc;
use std::task::Poll;
use storage::queue::QueueError;
use storage::store::records::{Change, Record, TimerChange};
use tracing::{debug, error};
use types::event::{EventType, OutEvent, Reply, ReplyKind, StatusEvent, StepEvent};
use types::job::{Job, UserMessage};
use types::session::{Entry, Role, Session, Status, history};
use types::timestamp::Timestamp;
use types::turn::{Outcome, StatusAt, TurnRecord};

/// The most bytes of one reply's text: NATS takes 1 MiB with all that is around it, escaped.
const MAX_REPLY: usize = 256 * 1024;
/// The most actions of a turn's record, and the most bytes of the name of one: a model may write any.
const MAX_ACTIONS: usize = 100;
const MAX_TARGET: usize = 64;
/// The most bytes of a profile as JSON.
const MAX_PROFILE: usize = 64 * 1024;

/// See the module.
pub(super) struct Turn<'a> {
    pub(super) services: &'a Services,
    /// As it becomes; `workflow_state.status` is the status as of now.
    pub(super) session: Session,
    pub(super) jobs: Arc<[Job]>,
    pub(super) agent: Arc<AgentRecord>,
    pub(super) journal: Journal,
    /// What this turn adds to the conversation.
    pub(super) entries: Vec<Entry>,
    /// The user has been answered: by more than a greeting, an interim message or the promise of a human.
    pub(super) answered: bool,
    pub(super) reason: Option<String>,
    /// What the decision loop begins with: a flow of an earlier turn that has failed now.
    pub(super) brought: Vec<Arc<ActionAnswer>>,
    /// Another agent had the session before.
    pub(super) moved: bool,
    /// An earlier holder began the turn.
    pub(super) resumed: bool,
    pub(super) guard: Guard,
    /// Models, as far as the budget lasts.
    pub(super) models: Models,
    purse: Arc<Purse>,
    /// Tokens that the conversation had used before.
    tokens_before: u64,
    id: Arc<TurnId>,
    attempt: u32,
    started_at: Timestamp,
    profile_changed: bool,
    /// The targets of its actions, in order.
    actions: Vec<String>,
    statuses: Vec<StatusAt>,
    /// The status that the session document shows.
    shown: Status,
    /// What it says while it is made, and whether what an earlier holder has said is in it.
    pub(super) speech: Arc<Speech>,
    pub(super) recalled: bool,
    /// What is not published yet.
    pub(super) outbox: Vec<OutEvent>,
}

impl<'a> Turn<'a> {
    /// Begins the turn, or begins it again: from the status that it began with the first time.
    pub(super) async fn open(services: &'a Services, input: Box<TurnInput>) -> Result<Box<Self>, TurnError> {
        let TurnInput { mut session, jobs, turn, agent, resumed, guard } = *input;
        let (place, id) = (services.place(), (session.session_id.as_str(), turn.id.as_str()));
        let journal = Journal::open(place, id, (session.epoch, guard.clone()), resumed).await?;
        let shown = session.workflow_state.status;
        let (attempt, started_at) = match &session.turn {
            Some(open) => {
                session.workflow_state.status = open.status;
                (open.attempt, open.at)
            }
            None => (1, services.clock.now()),
        };
        // A conversation that is opened again begins anew.
        let opened = session.closed_at.is_some() && jobs.iter().any(|job| job.user_message().is_some());
        let tokens_before = if opened { 0 } else { session.tokens };
        let purse = Purse::of_turn(&services.budgets, journal.clone(), &agent.config, tokens_before);
        let models = services.models.within(Arc::<Purse>::clone(&purse));
        // Handed on by place: each function that waits would hold a copy otherwise, in each of thousands of turns.
        let mut turn = Box::new(Self {
            services,
            session,
            jobs,
            agent,
            journal,
            entries: Vec::new(),
            answered: false,
            reason: None,
            brought: Vec::new(),
            moved: false,
            resumed,
            guard,
            models,
            purse,
            tokens_before,
            id: turn,
            attempt,
            started_at,
            profile_changed: false,
            actions: Vec::new(),
            statuses: Vec::new(),
            shown,
            speech: Arc::new(Speech::new(services.clock.clone())),
            recalled: false,
            outbox: Vec::new(),
        });
        turn.adopt_addressing();
        Ok(turn)
    }

    /// The last message says who writes, over which channel, to which agent.
    fn adopt_addressing(&mut self) {
        let before = std::mem::replace(&mut self.session.agent_id, self.agent.config.id.clone());
        self.moved = !before.is_empty() && before != self.session.agent_id;
        for job in self.jobs.iter() {
            if let Some(message) = job.user_message() {
                if let Some(user_id) = &message.user_id {
                    self.session.user_id.clone_from(user_id);
                }
                if let Some(channel) = &message.channel {
                    self.session.channel.clone_from(channel);
                }
            }
        }
        if self.session.channel.is_empty() {
            "default".clone_into(&mut self.session.channel);
        }
    }

    pub(super) fn status(&self) -> Status {
        self.session.workflow_state.status
    }

    pub(super) fn messages(&self) -> impl Iterator<Item = &UserMessage> {
        self.jobs.iter().filter_map(Job::user_message)
    }

    /// Goes to `to`, publishing the transition. A status that follows itself is not one; an illegal one is refused and
    /// logged.
    pub(super) fn transition(&mut self, to: Status) {
        let from = self.status();
        if from == to {
            return;
        }
        if let Err(refused) = from.check(to) {
            error!(session_id = %self.session.session_id, turn_id = %self.id.id, "{refused}; the status stays");
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
        };
        debug!(%from, %to, "status");
        let key = format!("status/{}", self.statuses.len());
        self.publish(EventType::Status, &key, &event);
        self.statuses.push(StatusAt { status: to, at });
        self.session.workflow_state.status = to;
    }

    /// Takes a status over that has been published for this turn before.
    pub(super) fn adopt_status(&mut self, status: StatusAt) {
        self.session.workflow_state.status = status.status;
        self.statuses.push(status);
    }

    /// True when the turn has been cancelled, by this attempt or an earlier one.
    pub(super) fn is_cancelled(&self) -> bool {
        self.statuses.last().is_some_and(|last| last.status == Status::Cancelled)
    }

    /// Says something to the user, under an id that stays the same however often the turn is repeated.
    pub(super) fn reply(&mut self, kind: ReplyKind, key: &str, text: &str) {
        self.reply_with(kind, key, text, Map::new());
    }

    /// The same with what else there is to know about it.
    pub(super) fn reply_with(&mut self, kind: ReplyKind, key: &str, text: &str, mut metadata: Map<String, Value>) {
        if text.is_empty() {
            return;
        }
        mark_cut(&mut metadata, text);
        self.answered |= is_answer(kind);
        let Ended { stream_id, supersedes } = self.speech.end(text);
        let reply = Reply { metadata: metadata.clone(), stream_id, supersedes, ..self.words(kind, key, text) };
        self.publish(EventType::Reply, key, &reply);
        self.remember(Role::Assistant, text, Some(kind), metadata);
    }

    /// Sends a text to the user; see [`Turn::reply`].
    pub(super) fn say(&mut self, kind: ReplyKind, key: &str, text: &str, mut metadata: Map<String, Value>) {
        mark_cut(&mut metadata, text);
        let reply = Reply { metadata, ..self.words(kind, key, text) };
        self.publish(EventType::Reply, key, &reply);
    }

    /// A text for the user.
    pub(super) fn words(&self, kind: ReplyKind, key: &str, text: &str) -> Reply {
        Reply {
            reply_id: self.journal.idempotency_key(key),
            session_id: self.session.session_id.clone(),
            agent_id: self.session.agent_id.clone(),
            user_id: self.session.user_id.clone(),
            channel: self.session.channel.clone(),
            turn_id: self.id.id.clone(),
            kind,
            text: history::cut(text, MAX_REPLY).into_owned(),
            seq: 0,
            stream_id: None,
            supersedes: None,
            at: self.services.clock.now(),
            metadata: Map::new(),
        }
    }

    /// Publishes that a step has finished.
    pub(super) fn step_finished<O>(&mut self, kind: &str, target: &str, stepped: &Stepped<O>) {
        let event = StepEvent {
            session_id: self.session.session_id.clone(),
            turn_id: self.id.id.clone(),
            key: stepped.key.clone(),
            kind: kind.to_owned(),
            target: target.to_owned(),
            ok: stepped.ok,
            ms: stepped.ms,
        };
        self.publish(EventType::Step, &format!("step/{}", stepped.key), &event);
    }

    /// Notes an action for the turn's record.
    pub(super) fn acted(&mut self, target: &str) {
        if self.actions.len() < MAX_ACTIONS {
            self.actions.push(bounded(target, MAX_TARGET));
        }
    }

    /// Adds to the conversation.
    pub(super) fn remember(&mut self, role: Role, text: &str, kind: Option<ReplyKind>, metadata: Map<String, Value>) {
        let (at, turn_id) = (self.services.clock.now(), self.id.id.clone());
        let kind = kind.map(|kind| kind.as_str().to_owned());
        self.entries.push(Entry { role, text: text.to_owned(), at, turn_id, kind, metadata }.bounded());
    }

    /// Adds the user's own words to the conversation.
    pub(super) fn remember_user(&mut self) {
        let said: Vec<_> = self.messages().map(|message| (message.text.clone(), message.attachments.clone())).collect();
        for (text, attachments) in said {
            let mut metadata = Map::new();
            if !attachments.is_empty() {
                metadata.insert("attachments".into(), json!(attachments));
            }
            self.remember(Role::User, &text, None, metadata);
        }
    }

    /// Merges into the profile. A profile that would grow past its bound stays as it is.
    pub(super) fn update_profile(&mut self, params: &Map<String, Value>) -> Result<(), String> {
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

    /// Makes what has been collected visible: first the document's status, then the events.
    pub(super) async fn settle(&mut self) -> Result<(), TurnError> {
        self.announce().await?;
        self.flush().await
    }

    /// Runs something slow, such as a step, while what has been collected is published. What a status announces never
    /// starts before the status is durable (E-05); its event may come a moment later. What is over at once, such as a step
    /// on record, is over before its event could be out: that goes with what follows.
    pub(super) async fn beside<T>(&mut self, mut slow: impl Future<Output = T> + Unpin) -> Result<T, TurnError> {
        self.announce().await?;
        if let Poll::Ready(done) = poll!(&mut slow) {
            return Ok(done);
        }
        self.behind(slow).await
    }

    /// The same for what says something itself: that comes after what has been collected.
    pub(super) async fn behind<T>(&mut self, saying: impl Future<Output = T>) -> Result<T, TurnError> {
        self.announce().await?;
        let (published, done) = futures::join!(self.publishing(), saying);
        published?;
        Ok(done)
    }

    /// Makes the status durable.
    async fn announce(&mut self) -> Result<(), TurnError> {
        let status = self.status();
        if self.shown != status {
            let request = Record {
                session_id: self.session.session_id.clone(),
                epoch: self.session.epoch,
                turn_id: self.id.id.clone(),
                steps: self.journal.take_notes(),
                status: Some(status),
            };
            self.services.store.record(request).await?;
            self.shown = status;
        }
        Ok(())
    }

    /// Publishes what has been collected.
    pub(super) async fn flush(&mut self) -> Result<(), TurnError> {
        self.publishing().await
    }

    fn publishing(&mut self) -> impl Future<Output = Result<(), TurnError>> + use<> {
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

    /// Makes the change that the commit writes. What is not published yet goes with it.
    pub(super) fn finish(mut self: Box<Self>, outcome: Outcome, mut timers: TimerChange) -> Result<Change, TurnError> {
        self.check_outbox()?;
        if let TimerChange::Replace(timers) = &mut timers {
            self.session.timer_generation += 1;
            let trace = TraceContext::current();
            for timer in timers {
                timer.traceparent = trace.as_ref().map(TraceContext::traceparent);
            }
        }
        let spent = self.journal.spending();
        let history_drop = history::excess(&self.session.history, &self.entries);
        let job = self.jobs[0].clone();
        let cancelled = self.status() == Status::Cancelled;
        let turn = TurnRecord {
            session_id: self.session.session_id.clone(),
            turn_id: self.id.id.clone(),
            job,
            statuses: self.statuses,
            outcome,
            reason: self.reason.clone(),
            attempts: self.attempt,
            queued_at: Some(self.id.at),
            started_at: self.started_at,
            committed_at: self.services.clock.now(),
            hash: self.agent.hash.clone(),
            actions: self.actions,
            tokens: spent.total,
        };
        Ok(Change {
            agent_id: self.session.agent_id,
            user_id: self.session.user_id,
            channel: self.session.channel,
            workflow_state: self.session.workflow_state,
            // A turn that finds the session cancelled, and leaves it so, leaves the reason, too.
            status_reason: self.reason.or(self.session.status_reason).filter(|_| cancelled),
            profile: self.profile_changed.then_some(self.session.profile),
            history: self.entries,
            history_drop,
            jobs: self.jobs.iter().map(|job| job.job_id.clone()).collect(),
            timer_generation: self.session.timer_generation,
            timers,
            closed_at: self.session.closed_at,
            handoff: self.session.handoff,
            tokens: self.tokens_before.saturating_add(spent.total),
            days: self.purse.days(&spent),
            waiting: self.session.waiting,
            turn,
            run: None,
            steps: self.journal.take_notes(),
            outbox: self.outbox.into(),
        })
    }

    /// What the queue does not take would never be published: then the turn must not be committed.
    fn check_outbox(&self) -> Result<(), TurnError> {
        let limit = self.services.queue.max_payload();
        match self.outbox.iter().map(|event| event.payload.len()).max() {
            Some(bytes) if bytes > limit => Err(QueueError::TooLarge { bytes, limit }.into()),
            _ => Ok(()),
        }
    }

    /// Ends a turn that has nothing to do.
    pub(super) fn nothing(self: Box<Self>) -> Result<Change, TurnError> {
        self.finish(Outcome::Noop, TimerChange::Keep)
    }

    pub(super) fn turn_id(&self) -> &str {
        &self.id.id
    }

    /// When the turn was begun for the first time.
    pub(super) fn started_at(&self) -> Timestamp {
        self.started_at
    }

    pub(super) fn publish(&mut self, event_type: EventType, key: &str, event: &impl Serialize) {
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

/// Marks a reply whose text is cut, with the length of the whole text.
fn mark_cut(metadata: &mut Map<String, Value>, text: &str) {
    if text.len() > MAX_REPLY {
        metadata.insert("truncated".into(), json!(true));
        metadata.insert("bytes".into(), json!(text.len()));
    }
}
