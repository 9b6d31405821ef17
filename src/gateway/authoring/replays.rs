//! Replays of recorded turns against the draft of an agent.
//!
//! A report is kept in the memory of the gateway that made it, not in the state of the dialogue: it quotes what other users
//! have said, which neither the author may read nor the erasure of a user could find there. It can be made again.

use super::dialogues::load;
use super::trials::cannot_rehearse;
use crate::caller::Caller;
use crate::input::{Body, Params};
use crate::operation::Operation;
use crate::roles::OPERATORS;
use crate::{GatewayState, Reject};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use base::clock;
use base::tasks::{OnPanic, Tasks};
use commands::authoring::trial::{self, ReplayOrder, ReplayRequest};
use commands::enqueue::new_id;
use engine::replay::Replayed;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use types::timestamp::Timestamp;

/// How many replays run at the same time.
const CONCURRENT: usize = 2;
/// How many reports are kept.
const KEPT: usize = 32;
/// The longest time of a replay.
const LIMIT: Duration = Duration::from_secs(15 * 60);

/// A replay that has begun.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct StartedReplay {
    /// Its id: `GET …/replay/{replay_id}` has its report.
    replay_id: String,
}

/// Whether a replay goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ReplayStatus {
    /// Turns are being replayed. The report has none yet.
    Running,
    /// The report is whole.
    Completed,
}

/// The report of a replay.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct ReplayReport {
    /// Its id.
    replay_id: String,
    /// The dialogue.
    session_id: String,
    /// The agent that the draft is to be.
    workflow_id: String,
    /// The hash of the draft.
    hash: String,
    /// The agent whose turns they are.
    agent_id: String,
    /// Whether it goes on.
    status: ReplayStatus,
    /// When it began.
    started_at: Timestamp,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<Timestamp>,
    /// The turns and their numbers.
    #[serde(flatten)]
    report: Replayed,
}

/// The replays of one gateway. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Replays {
    kept: Arc<Mutex<VecDeque<ReplayReport>>>,
    running: Arc<Semaphore>,
    tasks: Tasks,
}

impl Default for Replays {
    fn default() -> Self {
        Self { kept: Arc::default(), running: Arc::new(Semaphore::new(CONCURRENT)), tasks: Tasks::new() }
    }
}

impl Replays {
    fn kept(&self) -> MutexGuard<'_, VecDeque<ReplayReport>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, begun: ReplayReport) {
        let mut kept = self.kept();
        kept.truncate(KEPT - 1);
        kept.push_front(begun);
    }

    fn complete(&self, replay_id: &str, report: Replayed) {
        if let Some(known) = self.kept().iter_mut().find(|known| known.replay_id == replay_id) {
            (known.status, known.ended_at, known.report) = (ReplayStatus::Completed, Some(clock::now()), report);
        }
    }

    fn find(&self, session_id: &str, replay_id: &str) -> Option<ReplayReport> {
        self.kept().iter().find(|known| known.session_id == session_id && known.replay_id == replay_id).cloned()
    }
}

pub(super) const REPLAY: Operation = Operation::post(
    "/api/v1/workflow/{session_id}/replay",
    "authoring",
    "replay_against_authoring_draft",
)
.roles(OPERATORS)
.summary("Replays the last turns of an agent against the last draft of an authoring dialogue.")
.details(
    "In memory: each turn begins with its own conversation, and gets the recorded results of its calls. Nothing but \
             models is called.",
)
.body::<ReplayRequest>()
.accepted::<StartedReplay>("The replay has begun");
pub(super) async fn replay(
    State(state): State<GatewayState>,
    caller: Caller,
    Params(session_id): Params<String>,
    Body(request): Body<ReplayRequest>,
) -> Result<(StatusCode, Json<StartedReplay>), Reject> {
    let dialogue = load(&state, &caller, &session_id).await?;
    unlimited(&caller)?;
    let ReplayOrder { agent, agent_id, turns } = trial::replay(&state.workbench(), &dialogue, request).await?;
    let replayer = state.replayer.clone().ok_or_else(cannot_rehearse)?;
    trial::has_budget(&state.store, &state.settings.budget).await?;
    let replays = state.replays.clone();
    let place = Arc::clone(&replays.running).try_acquire_owned().map_err(|_| {
        let message = format!("{CONCURRENT} replays are running");
        Reject::unavailable("too_many_replays", message, "begin this one when another has ended")
    })?;
    let replay_id = new_id();
    replays.remember(ReplayReport {
        replay_id: replay_id.clone(),
        session_id,
        workflow_id: agent.id().to_owned(),
        hash: agent.hash.clone(),
        agent_id,
        status: ReplayStatus::Running,
        started_at: clock::now(),
        ended_at: None,
        report: Replayed::default(),
    });
    let (stop, id, known) = (state.stop.clone(), replay_id.clone(), replays.clone());
    replays.tasks.spawn("replay against a draft", OnPanic::Log, async move {
        let _place = place;
        let replayed = replayer.replay(&agent, &[], &turns, LIMIT);
        if let Some(report) = stop.run_until_cancelled(replayed).await {
            known.complete(&id, report);
        }
    });
    Ok((StatusCode::ACCEPTED, Json(StartedReplay { replay_id })))
}

/// Fails for a caller who may see only some sessions: a replay has the messages of others.
fn unlimited(caller: &Caller) -> Result<(), Reject> {
    match caller.scope().is_everything() {
        true => Ok(()),
        false => Err(caller.is_limited("a replay has the messages of other sessions")),
    }
}

pub(super) const SHOW_REPLAY: Operation =
    Operation::get("/api/v1/workflow/{session_id}/replay/{replay_id}", "authoring", "show_authoring_replay")
        .roles(OPERATORS)
        .summary("Shows the report of a replay: how each turn would have gone, with the first other action.")
        .details("The gateway that began the replay has its last 32 reports in memory.")
        .ok::<ReplayReport>("The report");
pub(super) async fn show_replay(
    State(state): State<GatewayState>,
    caller: Caller,
    Params((session_id, replay_id)): Params<(String, String)>,
) -> Result<Json<ReplayReport>, Reject> {
    load(&state, &caller, &session_id).await?;
    unlimited(&caller)?;
    state.replays.find(&session_id, &replay_id).map(Json).ok_or_else(|| {
        let message = format!("there is no replay `{replay_id}` of session `{session_id}`");
        let hint = "the gateway that began it has the last 32 in memory; begin it again";
        Reject::new(StatusCode::NOT_FOUND, "unknown_replay", message, hint)
    })
}
