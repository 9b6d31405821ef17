//! Turns for a completed run: add the query and the output of a run in its own lane to the session's history.

use super::state::Turn;
use crate::execution::TurnError;
use serde_json::{Map, Value};
use storage::store::records::{Change, TimerChange};
use types::outcome::Outcome;
use types::run::RunStatus;
use types::session::Role;

impl Turn<'_> {
    /// Adds the run's query and output to the history. Publishes no reply, since the run's events have reported the
    /// output. For a run that a coordinator agent has started it replies with a notice instead. Does nothing if the run belongs to another session, is a flow of a turn, has failed or was cancelled.
    pub(super) async fn add_run_result(
        mut self: Box<Self>,
        run_id: &str,
        outcome: &Value,
    ) -> Result<Change, TurnError> {
        let Some(run) = self.services.store.run(run_id).await? else { return self.finish_without_change() };
        let is_own = run.origin_session.as_deref() == Some(&self.session.session_id) && run.lane == run.run_id;
        match run.notify {
            Some(true) if is_own => return self.give_notice(&run, outcome),
            None if is_own && !matches!(run.status, RunStatus::Failed | RunStatus::Cancelled) => {}
            _ => return self.finish_without_change(),
        }
        // The run may not be committed yet. The output in the job is the same, since the run's steps are recorded.
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
