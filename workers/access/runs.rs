//! Runs of workflows.

use super::{Access, direct};
use crate::client::Followed;
use crate::feed::{self, Feed};
use base::tasks::Tasks;
use commands::run_details::{RunDetails, RunSummary};
use commands::runs::{NewRun, StartedRun};
use engine::workflow::Flows;
use serde_json::json;
use storage::queue::From;
use types::run::{RunQuery, RunRecord};

impl Access {
    pub async fn start_run(&self, new: NewRun) -> anyhow::Result<StartedRun> {
        match self {
            Self::Direct { queue, store, .. } => {
                direct(commands::runs::start_run(queue.as_ref(), store.as_ref(), new).await)
            }
            Self::Gateway(client) => client.start_run(&new).await,
        }
    }

    pub async fn list_runs(&self, query: RunQuery) -> anyhow::Result<Vec<RunSummary>> {
        match self {
            Self::Direct { store, .. } => Ok(store.runs(query).await?.into_iter().map(RunSummary::from).collect()),
            Self::Gateway(client) => client.runs(&query).await,
        }
    }

    pub async fn get_run(&self, run_id: &str) -> anyhow::Result<RunDetails> {
        match self {
            Self::Direct { store, .. } => {
                direct(commands::run_details::details(store, &Flows::builtin(), run_id).await)
            }
            Self::Gateway(client) => client.run(run_id).await,
        }
    }

    pub async fn cancel_run(
        &self,
        run_id: &str,
        reason: Option<String>,
        by: Option<String>,
    ) -> anyhow::Result<StartedRun> {
        match self {
            Self::Direct { queue, store, .. } => {
                direct(commands::runs::cancel_run(queue.as_ref(), store.as_ref(), run_id, reason, by).await)
            }
            Self::Gateway(client) => client.order_run(run_id, "cancel", &json!({ "reason": reason, "by": by })).await,
        }
    }

    pub async fn resume_run(&self, run_id: &str) -> anyhow::Result<StartedRun> {
        match self {
            Self::Direct { queue, store, .. } => {
                direct(commands::runs::resume_run(queue.as_ref(), store.as_ref(), run_id).await)
            }
            Self::Gateway(client) => client.order_run(run_id, "resume", &json!({})).await,
        }
    }

    pub async fn restart_run(&self, run_id: &str, from_stage: String) -> anyhow::Result<StartedRun> {
        match self {
            Self::Direct { queue, store, .. } => {
                direct(commands::run_details::again(queue.as_ref(), store.as_ref(), run_id, from_stage).await)
            }
            Self::Gateway(client) => client.order_run(run_id, "restart", &json!({ "from_stage": from_stage })).await,
        }
    }

    /// Follows a run from its first stored event.
    pub async fn follow_run(&self, run: &RunRecord, tasks: &Tasks) -> anyhow::Result<Feed> {
        match self {
            Self::Direct { queue, .. } => {
                let stream = run.origin_session.as_deref().unwrap_or(&run.run_id);
                Ok(feed::of_queue(queue.events(stream, From::After(0)).await?, tasks))
            }
            Self::Gateway(client) => {
                feed::of_gateway(client.clone(), Followed::Run(run.run_id.clone()), Some(0), tasks).await
            }
        }
    }
}
