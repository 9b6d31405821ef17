//! Replays of recorded turns against the draft of an agent.
//!
//! A report is kept in the memory of the gateway that made it, not in the state of the dialogue, because it quotes
//! other users. The author must not read these quotes, and the erasure of such a user would not find them there. Here
//! the erasure drops the report; other gateways keep it for at most an hour. A replay can be repeated.

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
use engine::replay::{RecordedTurn, Replayed, all_failed};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::sleep;
use types::timestamp::Timestamp;

/// How many replays run at the same time.
const CONCURRENT: usize = 2;
/// How many reports are kept.
const KEPT: usize = 32;
/// How long a report is kept, from the beginning of its replay.
const LIFETIME: Duration = Duration::from_secs(60 * 60);
/// The longest time of a replay.
const LIMIT: Duration = Duration::from_secs(15 * 60);

/// A replay that has begun.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct StartedReplay {
    /// The id. `GET …/replay/{replay_id}` returns the report.
    replay_id: String,
}

/// The progress of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ReplayStatus {
    /// Turns are being replayed. The report has no turns yet.
    Running,
    /// The report is complete.
    Completed,
}

/// The report of a replay.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct ReplayReport {
    /// Its id.
    replay_id: String,
    /// The dialogue.
    session_id: String,
    /// The id of the agent that the draft describes.
    workflow_id: String,
    /// The hash of the draft.
    hash: String,
    /// The agent whose turns are replayed.
    agent_id: String,
    /// The progress.
    status: ReplayStatus,
    /// When it began.
    started_at: Timestamp,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<Timestamp>,
    /// The turns, and the number of turns with each outcome.
    #[serde(flatten)]
    report: Replayed,
}

/// A kept report, and whom it quotes.
struct Kept {
    report: ReplayReport,
    users: BTreeSet<String>,
    sessions: BTreeSet<String>,
}

impl Kept {
    fn new(report: ReplayReport, turns: &[RecordedTurn]) -> Self {
        let users = turns.iter().map(|turn| turn.user_id.clone()).collect();
        let sessions = turns.iter().map(|turn| turn.session_id.clone()).collect();
        Self { report, users, sessions }
    }
}

/// The replays of one gateway. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Replays {
    kept: Arc<Mutex<VecDeque<Kept>>>,
    running: Arc<Semaphore>,
    tasks: Tasks,
}

impl Default for Replays {
    fn default() -> Self {
        Self { kept: Arc::default(), running: Arc::new(Semaphore::new(CONCURRENT)), tasks: Tasks::new() }
    }
}

impl Replays {
    fn kept(&self) -> MutexGuard<'_, VecDeque<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, begun: Kept) {
        let mut kept = self.kept();
        kept.truncate(KEPT - 1);
        kept.push_front(begun);
    }

    fn complete(&self, replay_id: &str, report: Replayed) {
        let mut kept = self.kept();
        if let Some(known) = kept.iter_mut().map(|kept| &mut kept.report).find(|known| known.replay_id == replay_id) {
            (known.status, known.ended_at, known.report) = (ReplayStatus::Completed, Some(clock::now()), report);
        }
    }

    fn find(&self, session_id: &str, replay_id: &str) -> Option<ReplayReport> {
        let kept = self.kept();
        let mut reports = kept.iter().map(|kept| &kept.report);
        reports.find(|known| known.session_id == session_id && known.replay_id == replay_id).cloned()
    }

    fn drop_report(&self, replay_id: &str) {
        self.kept().retain(|kept| kept.report.replay_id != replay_id);
    }

    /// Drops the reports that quote a user. One that is still being made will not be kept.
    pub(crate) fn forget_user(&self, user_id: &str) {
        self.kept().retain(|kept| !kept.users.contains(user_id));
    }

    /// Drops the reports that quote a session, and those of a dialogue.
    pub(crate) fn forget_session(&self, session_id: &str) {
        self.kept().retain(|kept| kept.report.session_id != session_id && !kept.sessions.contains(session_id));
    }
}

/// Completes the report of a replay: as failed, if it does not end.
struct Running {
    replays: Replays,
    replay_id: String,
    report: Option<Replayed>,
}

impl Running {
    fn of(replays: &Replays, replay_id: &str, turns: &[RecordedTurn]) -> Self {
        let broken_off = all_failed(turns, "the replay broke off; the log of the gateway has the reason");
        Self { replays: replays.clone(), replay_id: replay_id.to_owned(), report: Some(broken_off) }
    }

    fn ended(mut self, report: Replayed) {
        self.report = Some(report);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(report) = self.report.take() {
            self.replays.complete(&self.replay_id, report);
        }
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
    let begun = ReplayReport {
        replay_id: replay_id.clone(),
        session_id,
        workflow_id: agent.id().to_owned(),
        hash: agent.hash.clone(),
        agent_id,
        status: ReplayStatus::Running,
        started_at: clock::now(),
        ended_at: None,
        report: Replayed::default(),
    };
    replays.remember(Kept::new(begun, &turns));
    let (stop, stopping) = (state.stop.clone(), state.stop.clone());
    let (id, known) = (replay_id.clone(), replays.clone());
    let running = Running::of(&replays, &replay_id, &turns);
    replays.tasks.spawn("replay against a draft", OnPanic::Log, async move {
        let replayed = replayer.replay(&agent, &[], &turns, LIMIT);
        let Some(report) = stop.run_until_cancelled(replayed).await else { return };
        running.ended(report);
        drop(place);
    });
    replays.tasks.spawn("end of a replay's report", OnPanic::Log, async move {
        // A stopped gateway shows nothing.
        let _ = stopping.run_until_cancelled(sleep(LIFETIME)).await;
        known.drop_report(&id);
    });
    Ok((StatusCode::ACCEPTED, Json(StartedReplay { replay_id })))
}

/// Fails for a caller who may see only some sessions: the report contains messages of other users.
fn unlimited(caller: &Caller) -> Result<(), Reject> {
    match caller.scope().is_everything() {
        true => Ok(()),
        false => Err(caller.is_limited("a replay has the messages of other sessions")),
    }
}

pub(super) const SHOW_REPLAY: Operation =
    Operation::get("/api/v1/workflow/{session_id}/replay/{replay_id}", "authoring", "show_authoring_replay")
        .roles(OPERATORS)
        .summary("Shows the report of a replay: the outcome of each turn, with the first different action.")
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
        let hint = "only the gateway that began it has it, among its last 32; begin it again";
        Reject::new(StatusCode::NOT_FOUND, "unknown_replay", message, hint)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::job::UserMessage;

    fn turn(session_id: &str, user_id: &str) -> RecordedTurn {
        RecordedTurn {
            session_id: session_id.into(),
            turn_id: "m-1".into(),
            user_id: user_id.into(),
            channel: "web".into(),
            message: UserMessage { text: "我的电话是 1234".into(), ..UserMessage::default() },
            replayable: Err("of a test".into()),
        }
    }

    /// A replay of turns of these users, each in a session of its own, that has begun.
    fn begun(replays: &Replays, replay_id: &str, users: &[&str]) -> Running {
        let turns: Vec<_> = users.iter().map(|user| turn(&format!("s-{user}"), user)).collect();
        let report = ReplayReport {
            replay_id: replay_id.into(),
            session_id: "d1".into(),
            workflow_id: "shop".into(),
            hash: "h".into(),
            agent_id: "shop".into(),
            status: ReplayStatus::Running,
            started_at: clock::now(),
            ended_at: None,
            report: Replayed::default(),
        };
        replays.remember(Kept::new(report, &turns));
        Running::of(replays, replay_id, &turns)
    }

    #[test]
    fn a_replay_that_breaks_off_has_failed() {
        let replays = Replays::default();
        let running = begun(&replays, "r1", &["anna", "bo"]);
        assert_eq!(replays.find("d1", "r1").unwrap().status, ReplayStatus::Running);
        drop(running);
        let report = replays.find("d1", "r1").unwrap();
        assert_eq!(
            (report.status, report.report.failed, report.ended_at.is_some()),
            (ReplayStatus::Completed, 2, true)
        );
        begun(&replays, "r2", &["anna"]).ended(Replayed { same: 1, ..Replayed::default() });
        assert_eq!(replays.find("d1", "r2").unwrap().report.same, 1);
    }

    #[test]
    fn an_erased_user_or_session_is_quoted_by_no_report() {
        let replays = Replays::default();
        let kept = |ids: [&str; 3]| ids.map(|id| replays.find("d1", id).is_some());
        for (id, users) in [("r1", ["anna", "bo"]), ("r2", ["bo", "cy"]), ("r3", ["cy", "di"])] {
            drop(begun(&replays, id, &users));
        }
        replays.forget_user("anna");
        assert_eq!(kept(["r1", "r2", "r3"]), [false, true, true]);
        replays.forget_session("s-bo");
        assert_eq!(kept(["r1", "r2", "r3"]), [false, false, true]);
        let running = begun(&replays, "r1", &["di"]);
        replays.forget_session("d1");
        drop(running);
        assert_eq!(kept(["r1", "r2", "r3"]), [false, false, false], "also while it is being made");
    }
}
