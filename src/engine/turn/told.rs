//! A run of the session in a lane of its own has come to its output: its query and its output enter the history.

use super::state::Turn;
use crate::execution::TurnError;
use serde_json::{Map, Value};
use storage::store::records::{Change, TimerChange};
use types::run::RunStatus;
use types::session::Role;
use types::turn::Outcome;

impl Turn<'_> {
    /// Adds what the run was asked and what came of it to the conversation. Nothing is said: whoever asked for the run hears of it
    /// by its events. A run that is not this session's, or was cancelled after all, leaves no entry.
    pub(super) async fn run_told(mut self: Box<Self>, run_id: &str, outcome: &Value) -> Result<Change, TurnError> {
        let Some(run) = self.services.store.run(run_id).await? else { return self.nothing() };
        let is_own = run.origin_session.as_deref() == Some(&self.session.session_id) && run.lane == run.run_id;
        if !is_own || matches!(run.status, RunStatus::Failed | RunStatus::Cancelled) {
            return self.nothing();
        }
        // The run's commit may be on its way still; what the job says is what the run's steps come to.
        let output = run.output.as_deref().or_else(|| outcome["output"].as_str()).unwrap_or_default();
        let metadata = |names: [(&str, &str); 2]| -> Map<String, Value> {
            names.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect()
        };
        let of_run = metadata([("run_id", run_id), ("workflow_id", &run.workflow_id)]);
        self.remember(Role::User, &run.query, None, of_run.clone());
        self.remember(Role::Assistant, output, None, of_run);
        self.finish(Outcome::Silent, TimerChange::Keep)
    }
}
