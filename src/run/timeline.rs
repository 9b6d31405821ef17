//! What has happened in a run, for those who look at it: its steps are repeated over the definitions that it began with.

use super::definitions::StoredDefinitions;
use super::{Beginning, earlier};
use crate::action::http::{HttpCaller, SecretFill};
use crate::action::tool::Tools;
use crate::journal::Journal;
use crate::model::Models;
use crate::store::{Result, RunRecord, Store, StoreError};
use crate::workflow::Flows;
use crate::workflow::orchestration::pinned::{PinError, Pinned};
use crate::workflow::orchestration::{RunServices, TimelineEntry, timeline};
use std::sync::{Arc, LazyLock};
use tracing::debug;

/// Nothing is called: a step that is not recorded does not run. It takes a while to be made.
static HTTP: LazyLock<Option<HttpCaller>> = LazyLock::new(|| HttpCaller::new(SecretFill::none(), &[]).ok());

/// The stages of a run as far as they have been begun; none before it has begun, or when what it began with is gone.
/// `flows` are those registered in Rust.
pub async fn of(store: &Arc<dyn Store>, flows: &Flows, run: &RunRecord) -> Result<Vec<TimelineEntry>> {
    if run.turn_id.is_empty() {
        return Ok(Vec::new());
    }
    let ids = (run.lane.as_str(), run.turn_id.as_str());
    let steps = earlier::of_run(store.steps(ids.0, ids.1).await?, &run.prefix);
    let (Some(beginning), Some(http)) = (Beginning::of(&steps, ""), HTTP.clone()) else { return Ok(Vec::new()) };
    let definitions = StoredDefinitions::new(Arc::clone(store));
    let pinned = match Pinned::load(&definitions, flows, &beginning.manifest).await {
        Ok(pinned) => pinned,
        Err(PinError::Unavailable(problem)) => return Err(StoreError::Unavailable(problem)),
        Err(PinError::Unfit(problem)) => {
            debug!(run_id = run.run_id, "the run has no timeline: {problem}");
            return Ok(Vec::new());
        }
    };
    let services = RunServices { models: Models::offline(), http, tools: Tools::default() };
    let journal = Journal::looked_at(Arc::clone(store), ids, steps);
    Ok(timeline(pinned, journal, services, (beginning.input, beginning.request)).await)
}
