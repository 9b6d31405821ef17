//! How commands reach the system: a cluster's queue and store directly, or the gateway of a running `turnwheel dev`, which
//! alone may open its file.

use crate::client::{Followed, GatewayClient};
use crate::failure::Failure;
use crate::feed::{self, Feed};
use crate::open;
use serde::Deserialize;
use serde_json::json;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use turnwheel::agent::{AgentRecord, StoredAgent};
use turnwheel::config::load::Loaded;
use turnwheel::config::show::masked_address;
use turnwheel::config::{Backend, Budget, Settings};
use turnwheel::crew::Crew;
use turnwheel::gateway::intake::{self, Accepted, NewMessage, NewRun, Order, StartedRun};
use turnwheel::gateway::knowledge::{self, NewText, RemovedSource, StoredSource};
use turnwheel::gateway::letters::{self, Letter, LetterSummary, Replayed};
use turnwheel::gateway::models::{self, ModelList};
use turnwheel::gateway::runs::{self, RunDetails, RunSummary};
use turnwheel::gateway::timers::{self, PendingTimer};
use turnwheel::gateway::workflows::{self, WorkflowSummary};
use turnwheel::gateway::{AgentSummary, SessionSummary, TurnDetails, applied, turns_of};
use turnwheel::knowledge::files::{self, Changes, NamedText};
use turnwheel::knowledge::{Hit, Library, Origin, SourceEntry};
use turnwheel::model::registry::ModelInfo;
use turnwheel::queue::{From, Queue};
use turnwheel::session::Session;
use turnwheel::store::{RunQuery, RunRecord, SessionQuery, Store};
use turnwheel::tasks::Tasks;
use turnwheel::workflow::Flows;
use turnwheel::workflow::orchestration::definition::{StoredWorkflow, WorkflowRecord};

/// How long a command waits for a cluster's servers.
const OPENING: Duration = Duration::from_secs(10);

/// After this the user is told what is waited for.
const NOTICE: Duration = Duration::from_secs(1);

/// A way into the system.
pub enum Access {
    /// Queue and store of a cluster.
    Direct {
        /// The queue.
        queue: Arc<dyn Queue>,
        /// The store.
        store: Arc<dyn Store>,
        /// The models that agents may name.
        models: Vec<ModelInfo>,
        /// What agents may use that do not say.
        budget: Budget,
    },
    /// A gateway.
    Gateway(GatewayClient),
}

impl Access {
    /// The way that the settings name; without any, that of the running `dev`.
    pub async fn open(loaded: &Loaded, tasks: &Tasks) -> anyhow::Result<Self> {
        let settings = &loaded.settings;
        if loaded.backend_is_explicit() && settings.backend == Backend::Cluster {
            return cluster(settings, tasks).await;
        }
        match running_dev(settings).await? {
            Some(client) => {
                eprintln!("using the dev server at {}", client.base());
                Ok(Self::Gateway(client))
            }
            None => Err(nothing_found(settings).into()),
        }
    }

    pub async fn send(&self, message: NewMessage) -> anyhow::Result<Accepted> {
        match self {
            Self::Direct { queue, store, .. } => direct(intake::submit(queue.as_ref(), store.as_ref(), message).await),
            Self::Gateway(client) => client.send(&message).await,
        }
    }

    pub async fn list_sessions(&self, query: SessionQuery) -> anyhow::Result<Vec<SessionSummary>> {
        match self {
            Self::Direct { store, .. } => {
                Ok(store.sessions(query).await?.into_iter().map(SessionSummary::from).collect())
            }
            Self::Gateway(client) => client.sessions(&query).await,
        }
    }

    /// A session, without what is to be published; through a gateway without its lease, too.
    pub async fn get_session(&self, session_id: &str) -> anyhow::Result<Option<Session>> {
        match self {
            Self::Direct { store, .. } => {
                let session = store.session(session_id).await?;
                Ok(session.map(|session| Session { outbox: Vec::new(), ..session }))
            }
            Self::Gateway(client) => client.session(session_id).await,
        }
    }

    /// True when jobs of the session wait, as far as they can be seen from here.
    pub async fn has_jobs(&self, session: &Session) -> anyhow::Result<bool> {
        match self {
            Self::Direct { queue, .. } => {
                Ok(queue.next_in_lane(&session.session_id, session.last_seq, 0).await?.is_some())
            }
            Self::Gateway(_) => Ok(session.pending_seq > session.last_seq),
        }
    }

    /// The last turns of a session with their steps, oldest first.
    pub async fn list_turns(&self, session_id: &str, limit: usize) -> anyhow::Result<Vec<TurnDetails>> {
        match self {
            Self::Direct { store, .. } => direct(turns_of(store.as_ref(), session_id, limit).await),
            Self::Gateway(client) => client.turns(session_id, limit).await,
        }
    }

    pub async fn control(&self, session_id: &str, order: Order) -> anyhow::Result<Accepted> {
        match self {
            Self::Direct { queue, store, .. } => {
                direct(intake::command(queue.as_ref(), store.as_ref(), session_id, order).await)
            }
            Self::Gateway(client) => client.control(session_id, &order).await,
        }
    }

    pub async fn list_timers(&self, session_id: Option<&str>, limit: usize) -> anyhow::Result<Vec<PendingTimer>> {
        match self {
            Self::Direct { store, .. } => direct(timers::pending(store.as_ref(), session_id, limit).await),
            Self::Gateway(client) => client.timers(session_id, limit).await,
        }
    }

    pub async fn list_letters(&self, limit: usize) -> anyhow::Result<Vec<LetterSummary>> {
        match self {
            Self::Direct { queue, .. } => direct(letters::newest(queue.as_ref(), limit).await),
            Self::Gateway(client) => client.letters(limit).await,
        }
    }

    /// The dead letter of a number or a job id.
    pub async fn get_letter(&self, which: &str) -> anyhow::Result<Letter> {
        match self {
            Self::Direct { queue, .. } => direct(letters::find(queue.as_ref(), which).await.map(|kept| (&kept).into())),
            Self::Gateway(client) => client.letter(which).await,
        }
    }

    pub async fn replay_letter(&self, which: &str) -> anyhow::Result<Replayed> {
        match self {
            Self::Direct { queue, store, .. } => direct(letters::replay(queue.as_ref(), store.as_ref(), which).await),
            Self::Gateway(client) => client.replay(which).await,
        }
    }

    /// The workers that run now.
    pub async fn crew(&self) -> anyhow::Result<Crew> {
        match self {
            Self::Direct { store, .. } => Ok(Crew::of(store.as_ref()).await?),
            Self::Gateway(client) => Ok(Crew::new(client.processes().await?)),
        }
    }

    pub async fn list_agents(&self) -> anyhow::Result<Vec<AgentSummary>> {
        match self {
            Self::Direct { store, models, budget, .. } => direct(applied(store.as_ref(), models, budget).await),
            Self::Gateway(client) => client.agents().await,
        }
    }

    /// Agents, models and stages that name some.
    pub async fn list_models(&self) -> anyhow::Result<ModelList> {
        match self {
            Self::Direct { store, models, budget, .. } => {
                direct(models::list(store.as_ref(), models.clone(), budget).await)
            }
            Self::Gateway(client) => client.models().await,
        }
    }

    pub async fn get_agent(&self, agent_id: &str) -> anyhow::Result<Option<StoredAgent>> {
        match self {
            Self::Direct { store, .. } => Ok(store.agent(agent_id).await?.map(|agent| agent.to_stored())),
            Self::Gateway(client) => client.agent(agent_id).await,
        }
    }

    /// Applies an agent. True when that changed something.
    pub async fn apply_agent(&self, agent: AgentRecord) -> anyhow::Result<bool> {
        match self {
            Self::Direct { store, .. } => Ok(store.put_agent(agent).await?),
            Self::Gateway(client) => client.apply(&agent).await,
        }
    }

    /// Makes these texts all that the agent's file gives it to answer from. True when that changed something.
    pub async fn apply_knowledge(&self, agent_id: &str, texts: Vec<NamedText>) -> anyhow::Result<bool> {
        if let Self::Direct { store, .. } = self {
            return Ok(files::store(store.as_ref(), agent_id, texts).await?);
        }
        let there = self.list_knowledge(Some(agent_id)).await?;
        let changes = Changes::between(agent_id, &there, texts);
        let mut left = changes.put.len() + changes.remove.len();
        let mut is_last = || {
            left -= 1;
            left == 0
        };
        for NamedText { name, text } in &changes.put {
            let new = NewText { text: text.clone(), origin: Origin::AgentFile };
            self.put_knowledge(agent_id, name, &new, is_last()).await?;
        }
        for name in &changes.remove {
            self.remove_knowledge(agent_id, name, is_last()).await?;
        }
        Ok(!changes.is_empty())
    }

    /// Stores a text. After the `last` of several they are in use, which takes an index of all the agent's texts.
    pub async fn put_knowledge(
        &self,
        agent_id: &str,
        name: &str,
        new: &NewText,
        last: bool,
    ) -> anyhow::Result<StoredSource> {
        match self {
            Self::Direct { store, .. } => direct(knowledge::put(store.as_ref(), agent_id, name, new).await),
            Self::Gateway(client) => client.put_knowledge(agent_id, name, new, last).await,
        }
    }

    /// Removes a text; see [`Access::put_knowledge`].
    pub async fn remove_knowledge(&self, agent_id: &str, name: &str, last: bool) -> anyhow::Result<RemovedSource> {
        match self {
            Self::Direct { store, .. } => direct(knowledge::remove(store.as_ref(), agent_id, name).await),
            Self::Gateway(client) => client.remove_knowledge(agent_id, name, last).await,
        }
    }

    pub async fn list_knowledge(&self, agent_id: Option<&str>) -> anyhow::Result<Vec<SourceEntry>> {
        match self {
            Self::Direct { store, .. } => direct(knowledge::sources(store.as_ref(), agent_id).await),
            Self::Gateway(client) => client.knowledge(agent_id).await,
        }
    }

    pub async fn search_knowledge(&self, agent_id: &str, query: &str, limit: usize) -> anyhow::Result<Vec<Hit>> {
        match self {
            Self::Direct { store, .. } => {
                let library = Library::new(Arc::clone(store));
                direct(knowledge::search((store.as_ref(), &library), agent_id, query, Some(limit)).await)
            }
            Self::Gateway(client) => client.search_knowledge(agent_id, query, limit).await,
        }
    }

    /// Follows a session's events after `last_id`, or from now on. A gateway answers 404 for a session unknown to it.
    pub async fn follow(&self, session_id: &str, last_id: Option<u64>, tasks: &Tasks) -> anyhow::Result<Feed> {
        match self {
            Self::Direct { queue, .. } => {
                let events = queue.events(session_id, last_id.map_or(From::Now, From::After)).await?;
                Ok(feed::of_queue(events, tasks))
            }
            Self::Gateway(client) => {
                let followed = Followed::Session(session_id.to_owned());
                feed::of_gateway(client.clone(), followed, last_id, tasks).await
            }
        }
    }

    /// All workflows, also those that are compiled in.
    pub async fn list_workflows(&self) -> anyhow::Result<Vec<WorkflowSummary>> {
        match self {
            Self::Direct { store, .. } => direct(workflows::summaries(store.as_ref()).await),
            Self::Gateway(client) => client.workflows().await,
        }
    }

    pub async fn get_workflow(&self, workflow_id: &str) -> anyhow::Result<Option<StoredWorkflow>> {
        match self {
            Self::Direct { store, .. } => {
                let found = direct(workflows::find(store.as_ref(), workflow_id).await)?;
                Ok(found.map(|workflow| workflow.to_stored()))
            }
            Self::Gateway(client) => client.workflow(workflow_id).await,
        }
    }

    /// Registers a workflow. True when that changed something.
    pub async fn register(&self, workflow: WorkflowRecord) -> anyhow::Result<bool> {
        match self {
            Self::Direct { store, models, .. } => {
                let known: Vec<String> = models.iter().map(|model| model.name.clone()).collect();
                let here = (Flows::builtin().ids(), known);
                direct(workflows::register(store.as_ref(), here, workflow).await.map(|registered| registered.changed))
            }
            Self::Gateway(client) => client.register(&workflow).await,
        }
    }

    pub async fn start_run(&self, new: NewRun) -> anyhow::Result<StartedRun> {
        match self {
            Self::Direct { queue, store, .. } => direct(intake::start_run(queue.as_ref(), store.as_ref(), new).await),
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
            Self::Direct { store, .. } => direct(runs::details(store, &Flows::builtin(), run_id).await),
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
                direct(intake::cancel_run(queue.as_ref(), store.as_ref(), run_id, reason, by).await)
            }
            Self::Gateway(client) => client.order_run(run_id, "cancel", &json!({ "reason": reason, "by": by })).await,
        }
    }

    pub async fn resume_run(&self, run_id: &str) -> anyhow::Result<StartedRun> {
        match self {
            Self::Direct { queue, store, .. } => {
                direct(intake::resume_run(queue.as_ref(), store.as_ref(), run_id).await)
            }
            Self::Gateway(client) => client.order_run(run_id, "resume", &json!({})).await,
        }
    }

    pub async fn restart_run(&self, run_id: &str, from_stage: String) -> anyhow::Result<StartedRun> {
        match self {
            Self::Direct { queue, store, .. } => {
                direct(runs::again(queue.as_ref(), store.as_ref(), run_id, from_stage).await)
            }
            Self::Gateway(client) => client.order_run(run_id, "restart", &json!({ "from_stage": from_stage })).await,
        }
    }

    /// Follows a run from its beginning.
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

fn direct<T>(answer: Result<T, turnwheel::gateway::Reject>) -> anyhow::Result<T> {
    answer.map_err(|reject| Failure::from(reject).into())
}

async fn cluster(settings: &Settings, tasks: &Tasks) -> anyhow::Result<Access> {
    let (nats, mongodb) = (masked_address(&settings.nats.url), masked_address(&settings.mongodb.uri));
    let servers = format!("nats.url = {nats}, mongodb.uri = {mongodb}");
    let mut opening = pin!(open::backend(settings, tasks));
    let mut opened = timeout(NOTICE, &mut opening).await;
    if opened.is_err() {
        eprintln!("waiting up to {}s for {servers}", OPENING.as_secs());
        opened = timeout(OPENING - NOTICE, &mut opening).await;
    }
    let problem = match opened {
        Ok(Ok((queue, store))) => {
            let (models, budget) = (ModelInfo::of_settings(settings), settings.budget.clone());
            return Ok(Access::Direct { queue, store, models, budget });
        }
        Ok(Err(error)) => return Err(error),
        // Told to stop, it says what it has waited for.
        Err(_) => {
            tasks.stop();
            let told = timeout(NOTICE, opening).await;
            told.ok().and_then(Result::err).map(|error| format!(" ({error})")).unwrap_or_default()
        }
    };
    let message = format!("the servers do not answer within {}s: {servers}{problem}", OPENING.as_secs());
    let hint = "start them, or correct the settings; `turnwheel config` shows where they come from";
    Err(Failure::new(message, hint).into())
}

fn nothing_found(settings: &Settings) -> Failure {
    let message =
        format!("no dev server is running (looked in {}), and no cluster is set", settings.data_dir.display());
    let hint = "start `turnwheel dev`, or set NATS_URL and MONGODB_URI (or `backend = \"cluster\"`)";
    Failure::new(message, hint)
}

/// What `turnwheel dev` leaves in its `data_dir`.
#[derive(Deserialize)]
struct Marker {
    gateway: String,
}

/// The gateway of the running `dev`. A marker that a killed one left behind does not count: its gateway has to answer.
pub async fn running_dev(settings: &Settings) -> anyhow::Result<Option<GatewayClient>> {
    let Some(address) = marker(&settings.data_dir) else { return Ok(None) };
    let client = GatewayClient::new(&address, settings.gateway.tokens.first().cloned())?;
    Ok(if client.is_alive().await { Some(client) } else { None })
}

fn marker(data_dir: &Path) -> Option<String> {
    let text = std::fs::read_to_string(data_dir.join("dev.json")).ok()?;
    serde_json::from_str::<Marker>(&text).ok().map(|marker| marker.gateway)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(data_dir: &Path, settings: Settings) -> Loaded {
        let settings = Settings { data_dir: data_dir.to_owned(), ..settings };
        Loaded { settings, ..Settings::load(&turnwheel::config::Sources::default()).unwrap() }
    }

    #[tokio::test]
    async fn without_a_dev_server_the_error_says_what_to_start() {
        let dir = tempfile::tempdir().unwrap();
        // A marker whose server is gone: nothing listens on a port that was just given back.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        for content in
            [None, Some("not json".to_owned()), Some(format!("{{\"gateway\":\"http://{address}\",\"pid\":1}}"))]
        {
            if let Some(content) = content {
                std::fs::write(dir.path().join("dev.json"), content).unwrap();
            }
            let opened = Access::open(&loaded(dir.path(), Settings::default()), &Tasks::new()).await;
            let lines = crate::failure::lines(&opened.err().unwrap());
            assert!(lines[1].contains("turnwheel dev") && lines[1].contains("NATS_URL"), "{lines:?}");
        }
    }
}
