//! Conversations that are handed off: who writes in them, and the listing.

use crate::enqueue::Accepted;
use crate::error::CommandError;
use crate::last_message::LastMessage;
use crate::operator::{self, claimed, not_transferred, require_transferred};
use crate::paging::{Listing, fit};
use base::clock;
use base::config::{SecretValues, Settings};
use futures::StreamExt;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::time::Duration;
use storage::queue::{self, From, Queue, StreamEvent};
use storage::store::Store;
use storage::store::records::{HandoffCounts, HandoffPage, HandoffPlace, HandoffQuery};
use types::canonical;
use types::event::{Event, EventType, HandoffChange, HandoffEvent, OutEvent};
use types::handoff::{MAX_NAME, MAX_NOTE};
use types::ids;
use types::job::{Command, Control};
use types::page::Page;
use types::session::{Claim, Handoff, Kind, Session, Status};
use types::timestamp::Timestamp;

/// How long a caller waits for the turn of its command.
const TURN_TIMEOUT: Duration = Duration::from_secs(10);

/// The time in which a person's typing in a session is reported once.
const TYPING_INTERVAL_MS: i64 = 3_000;

/// The result of a command about the claim of a handoff.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ClaimResult {
    /// The id of the command's job, which is also the id of its turn.
    pub job_id: String,
    /// The session.
    pub session_id: String,
    /// The handoff after the command. Missing if the command has not ended within 10 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handoff: Option<Handoff>,
}

/// Puts a `claim`, `unclaim` or `transfer` on the lane and waits for its turn, for at most 10 s. The command stays on
/// the lane if its turn takes longer. Fails with `claimed` if another person has the claim, and with `not_transferred`
/// unless a human has the conversation or takes it over.
pub async fn change_claim(
    queue: &dyn Queue,
    store: &dyn Store,
    session_id: &str,
    order: Control,
) -> Result<ClaimResult, CommandError> {
    for (field, name) in [("by", &order.by), ("to", &order.to)] {
        name.as_deref().map_or(Ok(()), |name| check_name(field, name))?;
    }
    order.note.as_deref().map_or(Ok(()), check_note)?;
    check_state(store, session_id, order.take_over).await?;
    let mut events = queue.events(session_id, From::Now).await?;
    let (command, by) = (order.command, order.by.clone().unwrap_or_default());
    let Accepted { job_id, session_id } = operator::control(queue, store, session_id, order).await?;
    let ended = tokio::time::timeout(TURN_TIMEOUT, end_of_turn(&mut events, &job_id)).await;
    let handoff = match ended {
        Ok(Some(TurnResult { handoff: Some(handoff) })) => Some(handoff),
        Ok(Some(TurnResult { handoff: None })) => Some(unchanged(store, &session_id, command, &by).await?),
        // The queue may be unreachable for a moment, but it has the command.
        Ok(None) | Err(_) => None,
    };
    Ok(ClaimResult { job_id, session_id, handoff })
}

/// Fails if no claim can be made. A session whose first message is not processed yet can only be taken over.
async fn check_state(store: &dyn Store, session_id: &str, take_over: bool) -> Result<(), CommandError> {
    ids::check("session_id", session_id)?;
    match store.session(session_id).await? {
        Some(session) if session.kind == Kind::Chat && take_over => Ok(()),
        None if take_over => Ok(()),
        _ => require_transferred(store, session_id).await.map(drop),
    }
}

/// The end of a command's turn.
struct TurnResult {
    /// The handoff in the turn's event; `None` if the turn changed nothing.
    handoff: Option<Handoff>,
}

/// Waits for the end of a job's turn. Returns `None` if the stream of events ends before.
async fn end_of_turn(events: &mut BoxStream<'static, queue::Result<StreamEvent>>, job_id: &str) -> Option<TurnResult> {
    let mut handoff = None;
    while let Some(Ok(event)) = events.next().await {
        match Event::decode(event.event_type, &event.payload) {
            Ok(Event::Handoff(event)) if event.turn_id == job_id => handoff = event.handoff,
            Ok(event) if event.end_of(job_id).is_some() => return Some(TurnResult { handoff }),
            Ok(_) | Err(_) => {}
        }
    }
    None
}

/// The handoff after a command that changed nothing, or why it changed nothing.
async fn unchanged(store: &dyn Store, session_id: &str, command: Command, by: &str) -> Result<Handoff, CommandError> {
    let session = store.session(session_id).await?.ok_or_else(|| CommandError::unknown_session(session_id))?;
    let handoff = match &session.handoff {
        Some(handoff) if session.workflow_state.status == Status::Transferred => handoff.clone(),
        _ => return Err(not_transferred(&session)),
    };
    match &handoff.claim {
        Some(claim) if claim.by != by => Err(claimed(session_id, Some(&claim.by))),
        None if command == Command::Unclaim => Ok(handoff),
        // The claim of another person has ended since.
        None => Err(claimed(session_id, None)),
        Some(_) => Ok(handoff),
    }
}

/// Puts a note for colleagues on the lane. Durable on return. Fails with `not_transferred` unless a human has the
/// conversation.
pub async fn add_note(
    queue: &dyn Queue,
    store: &dyn Store,
    session_id: &str,
    order: Control,
) -> Result<Accepted, CommandError> {
    order.by.as_deref().map_or(Ok(()), |name| check_name("by", name))?;
    check_note(order.note.as_deref().unwrap_or_default())?;
    require_transferred(store, session_id).await?;
    operator::control(queue, store, session_id, order).await
}

/// Publishes the event that a person is writing, at most one for each person and session in 3 s. Nothing else changes.
/// Fails with `not_transferred` unless a human has the conversation.
pub async fn report_typing(
    queue: &dyn Queue,
    store: &dyn Store,
    session_id: &str,
    by: String,
) -> Result<(), CommandError> {
    ids::check("session_id", session_id)?;
    check_name("by", &by)?;
    let Session { session_id, channel, handoff, .. } = require_transferred(store, session_id).await?;
    let (at, turn_id) = (clock::now(), handoff.map(|handoff| handoff.turn_id).unwrap_or_default());
    // The queue drops further events with this id, whichever gateway publishes them.
    let person = canonical::hash(&json!(by));
    let msg_id = Some(format!("{session_id}/typing/{person}/{}", at.as_millis() / TYPING_INTERVAL_MS));
    let (change, by) = (HandoffChange::Typing, Some(by));
    let event = HandoffEvent { session_id: session_id.clone(), turn_id, change, by, handoff: None, at };
    // Plain data with text keys always serialises.
    let payload = serde_json::to_vec(&event).unwrap_or_default().into();
    let event = OutEvent { channel, session_id, event_type: EventType::Handoff, msg_id, payload };
    Ok(queue.emit([event].into()).await?)
}

/// Fails with `invalid_name` for a blank name, or one above its limit.
fn check_name(field: &str, name: &str) -> Result<(), CommandError> {
    if name.trim().is_empty() || name.len() > MAX_NAME {
        let message = format!("{field}: the name is blank or has more than {MAX_NAME} bytes");
        return Err(CommandError::invalid("invalid_name", message, "give the name of the person's login"));
    }
    Ok(())
}

/// Fails with `empty_note` for a blank note, and with `too_large` for one above its limit.
pub fn check_note(text: &str) -> Result<(), CommandError> {
    if text.trim().is_empty() {
        return Err(CommandError::invalid("empty_note", "the note is empty", "give its text"));
    }
    if text.len() > MAX_NOTE {
        return Err(CommandError::too_large(format!("the note has {} bytes, more than {MAX_NOTE}", text.len())));
    }
    Ok(())
}

/// A conversation that is handed off, in a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct HandoffSummary {
    /// The session.
    pub session_id: String,
    /// The agent of the session.
    pub agent_id: String,
    /// The id that the channel gives the user.
    pub user_id: String,
    /// The channel of the session.
    pub channel: String,
    /// When the handoff began.
    pub since: Timestamp,
    /// When the oldest user's message arrived that no human has answered; at first when the handoff began. Null while
    /// nothing waits for an answer.
    pub waiting_since: Option<Timestamp>,
    /// The number of the user's messages since the last reply of a human.
    pub unread: u32,
    /// The summary for the service desk.
    pub summary: String,
    /// True if a human took the conversation over, without a handoff by the agent.
    pub taken_over: bool,
    /// The person who may write to the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
    /// The number of notes for colleagues.
    pub note_count: usize,
    /// The last message of the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_message: Option<LastMessage>,
}

impl HandoffSummary {
    /// Returns `None` for a session that is not handed off.
    fn from_session(session: Session, secrets: &SecretValues) -> Option<Self> {
        let last_message = LastMessage::of(&session, secrets);
        let Handoff { since, waiting_since, unread, summary, taken_over, claim, notes, .. } = session.handoff?;
        Some(Self {
            session_id: session.session_id,
            agent_id: session.agent_id,
            user_id: session.user_id,
            channel: session.channel,
            since,
            waiting_since,
            unread,
            summary,
            taken_over,
            claim,
            note_count: notes.len(),
            last_message,
        })
    }

    fn place(&self) -> HandoffPlace {
        let at = self.waiting_since.unwrap_or(self.since);
        (u64::from(self.waiting_since.is_none()), (at, self.session_id.clone()))
    }
}

/// Lists handoffs: first the ones that wait for an answer, the longest waiting first. Secrets in last messages are
/// masked.
pub async fn list(
    store: &dyn Store,
    settings: &Settings,
    query: HandoffQuery,
) -> Result<(Listing<HandoffSummary>, HandoffCounts), CommandError> {
    let HandoffPage { page, counts } = store.handoffs(query).await?;
    let has_more = page.has_more;
    let secrets = SecretValues::from_settings(settings);
    let summary = |session| HandoffSummary::from_session(session, &secrets);
    let items = page.items.into_iter().filter_map(summary).collect();
    Ok((fit(Page { items, has_more }, HandoffSummary::place), counts))
}
