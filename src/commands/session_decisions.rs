//! The decisions of a session's turns, as recorded and judged again.

use crate::error::CommandError;
use crate::paging::json_bytes;
use crate::sessions::turn_place;
use base::config::{SecretValues, Settings};
use decisions::event::masked;
use decisions::judge::Coordinator;
use decisions::kind::Decision;
use decisions::world::Snapshot;
use definitions::coordinator::{DecisionLimits, workflow_facts};
use engine::execution::scripts::with_scripts;
use engine::turn::{DecisionOutcome, RecordedDecision, decisions_of_turn};
use futures::{StreamExt, TryStreamExt, stream};
use sandbox::Sandbox;
use serde::{Deserialize, Serialize};
use std::pin::pin;
use storage::store::Store;
use storage::store::records::TurnPlace;
use types::ids;
use types::page::{Bounds, MAX_PAGE_BYTES, PageBuilder, Place};

/// Turns whose steps are read concurrently.
const CONCURRENT_READS: usize = 8;

/// A decision of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SessionDecision {
    /// The decision with its recorded verdict.
    #[serde(flatten)]
    pub recorded: RecordedDecision,
    /// The verdict by the rules, settings and agent file of now; only with `replay`, and only of a decision that was
    /// judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<VerdictNow>,
}

impl SessionDecision {
    /// True if the decision would be judged in another way now.
    pub fn differs(&self) -> bool {
        let was_valid = self.recorded.outcome == DecisionOutcome::Valid;
        self.now.as_ref().is_some_and(|now| now.is_valid != was_valid)
    }
}

/// The verdict on a recorded decision by the rules of now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct VerdictNow {
    /// True if it would be carried out, as it is or after correction.
    pub is_valid: bool,
    /// The errors.
    pub errors: Vec<String>,
}

/// The decisions of a session's last `turns` turns, in the order in which they were taken, with secrets masked. With
/// `replay` each is judged again: `models` are the known models besides `default` and `offline`, and `sandbox` compiles
/// scripts.
pub async fn session_decisions(
    store: &dyn Store,
    settings: &Settings,
    models: &[String],
    sandbox: &Sandbox,
    session_id: &str,
    turns: usize,
    replay: bool,
) -> Result<Vec<SessionDecision>, CommandError> {
    let bounds = Bounds { after: None, limit: turns, max_bytes: MAX_PAGE_BYTES };
    Ok(decisions_page(store, settings, models, sandbox, session_id, bounds, replay).await?.decisions)
}

/// The decisions of some turns of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct DecisionPage {
    /// The decisions, in the order in which they were taken.
    pub decisions: Vec<SessionDecision>,
    /// The number of turns, also those without decisions.
    pub turns: usize,
    /// The cursor of the page with earlier turns.
    pub next: Option<String>,
}

/// A page of the decisions of [`session_decisions`]: those of at most `bounds.limit` turns, which are the last ones before
/// the place. The next page has earlier ones.
pub async fn decisions_page(
    store: &dyn Store,
    settings: &Settings,
    models: &[String],
    sandbox: &Sandbox,
    session_id: &str,
    bounds: Bounds<TurnPlace>,
    replay: bool,
) -> Result<DecisionPage, CommandError> {
    ids::check("session_id", session_id)?;
    let session = store.session(session_id).await?.ok_or_else(|| CommandError::unknown_session(session_id))?;
    let world = match replay {
        true => {
            let agent = store.agent(&session.agent_id).await?;
            let config = agent.as_ref().map(|agent| agent.config.as_ref());
            Some(DecisionLimits::new(settings, models).world(config))
        }
        false => None,
    };
    let listed = store.turns_page(session_id, bounds).await?;
    let has_more = listed.has_more;
    let mut read = pin!(
        stream::iter(listed.items)
            .map(async |turn| {
                let steps = store.steps(session_id, &turn.turn_id).await?;
                Ok::<_, CommandError>((decisions_of_turn(&turn.turn_id, &steps), turn))
            })
            .buffered(CONCURRENT_READS)
    );
    let secrets = SecretValues::from_settings(settings);
    let mut page = PageBuilder::new(usize::MAX, MAX_PAGE_BYTES);
    while let Some((recorded, turn)) = read.try_next().await? {
        let mut decisions = Vec::new();
        for recorded in recorded {
            let was_judged = matches!(recorded.outcome, DecisionOutcome::Valid | DecisionOutcome::Rejected);
            let now = match world.as_ref().filter(|_| was_judged) {
                Some(world) => Some(again(store, &recorded, world.clone(), sandbox).await?),
                None => None,
            };
            decisions.push(SessionDecision { recorded: masked_decision(recorded, &secrets), now });
        }
        let bytes = json_bytes(&decisions);
        if !page.push((decisions, turn), bytes) {
            break;
        }
    }
    let page = page.finish();
    let last = page.items.last().filter(|_| page.has_more || has_more);
    let next = last.map(|(_, turn)| turn_place(turn).cursor());
    let turns = page.items.len();
    let decisions = page.items.into_iter().rev().flat_map(|(decisions, _)| decisions).collect();
    Ok(DecisionPage { decisions, turns, next })
}

fn masked_decision(mut recorded: RecordedDecision, secrets: &SecretValues) -> RecordedDecision {
    let mask = |text: &str| secrets.mask(text);
    recorded.payload = masked(&recorded.payload, &mask);
    recorded.corrected = recorded.corrected.map(|corrected| masked(&corrected, &mask));
    for text in recorded.errors.iter_mut().chain(&mut recorded.warnings) {
        *text = mask(text);
    }
    recorded
}

/// Judges a decision again, with the version and the status of the workflow with which it was judged.
async fn again(
    store: &dyn Store,
    recorded: &RecordedDecision,
    mut world: Snapshot,
    sandbox: &Sandbox,
) -> Result<VerdictNow, CommandError> {
    if let Some(judged) = &recorded.workflow
        && let Some(version) = store.workflow_version(&judged.workflow_id, &judged.hash).await?
    {
        world.add(workflow_facts(&version, judged.status));
        world.current = Some(judged.workflow_id.clone());
    }
    let world = with_scripts(&world, &recorded.payload, sandbox).await;
    let decision = Decision::new(recorded.decision_type, recorded.payload.clone());
    let verdicts = Coordinator::new(world.as_ref()).verdicts(decision);
    let is_valid = verdicts.valid_after_correction;
    Ok(VerdictNow { is_valid, errors: if is_valid { Vec::new() } else { verdicts.given.errors } })
}
