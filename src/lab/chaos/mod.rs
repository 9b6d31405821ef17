//! `turnwheel chaos`: checks the guarantees on real servers, while processes are killed and servers fail.
//!
//! [`run`] carries out a run:
//! 1. [`servers`] starts NATS and a MongoDB replica set in an [`environment`], a temporary folder that is removed at
//!    the end.
//! 2. [`processes`] starts workers, schedulers and a gateway as [`process`]es. The run itself serves the [`model`] and
//!    the [`api`] behind the actions of the [`agents`] and the nodes of the [`graph`]. [`authoring`] has the model's answers
//!    in authoring dialogues.
//! 3. [`load`] holds conversations by the [`script`], in the language of [`conversations`], while [`faults`] happen.
//!    [`recovery`] measures how long a killed worker's turns take.
//! 4. When all lanes are idle, the [`observer`] gathers the [`evidence`], and the [`checker`] compares them with the
//!    promises. [`report`] is the verdict.
//!
//! The seed determines all conversations and faults.

mod agents;
mod api;
mod authoring;
mod checker;
mod conversations;
mod environment;
mod error;
mod evidence;
mod faults;
mod graph;
mod load;
mod model;
mod observer;
mod process;
mod processes;
mod recovery;
mod report;
mod script;
mod servers;

pub use checker::{Counts, Promise, Violation};
pub use error::ChaosError;
pub use faults::{Fault, Happened};
pub use load::Published;
pub use recovery::{Recovered, Times};
pub use report::Verdict;
pub use servers::Programs;

use agents::Manner;
use api::Api;
use axum::Router;
use base::clock;
use base::config::Settings;
use base::tasks::{OnPanic, Tasks};
use checker::Findings;
use definitions::agent::AgentRecord;
use definitions::workflow::definition::WorkflowRecord;
use environment::RunEnvironment;
use faults::FaultContext;
use load::{Ledger, SimulatedUsers};
use observer::Observer;
use processes::Processes;
use recovery::{Outages, Recovery};
use report::seconds;
use serde::Serialize;
use servers::{Mongo, Nats};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::{Instant, interval, sleep_until};
use tokio_util::sync::CancellationToken;

/// Time limit for the last faults to heal, and for the started conversations to end.
const HEALING_TIMEOUT: Duration = Duration::from_secs(150);
/// Time limit for all lanes to become idle after that.
const QUIET_TIMEOUT: Duration = Duration::from_secs(90);
/// Interval of progress lines.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);
/// No conversation starts while the backlog exceeds the messages of this many seconds.
const BACKLOG_SECONDS: f64 = 20.0;

/// Options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Determines conversations and faults.
    pub seed: u64,
    /// How long faults happen.
    pub duration: Duration,
    /// Messages per second.
    pub rate: f64,
    /// Worker processes.
    pub workers: usize,
    /// NATS servers, each with a copy of every stream.
    pub replicas: usize,
    /// Members of the MongoDB replica set.
    pub members: usize,
    /// Only these faults; empty for all.
    pub faults: Vec<Fault>,
    /// The programs of the servers.
    pub programs: Programs,
    /// The Turnwheel program for workers, schedulers and gateway.
    pub turnwheel: PathBuf,
    /// The processes get `worker` and `lane` of these settings.
    pub settings: Settings,
    /// Log filter of the processes; the default filter if `None`.
    pub log: Option<String>,
    /// Keep the folder with logs and facts. The run always keeps it after a broken promise.
    pub keep: bool,
}

impl Options {
    fn can_be_carried_out(&self) -> Result<(), ChaosError> {
        match self.faults.iter().find(|fault| self.replicas < 2 && fault.needs_replicas()) {
            Some(fault) => Err(ChaosError::NeedsReplicas(*fault)),
            None => Ok(()),
        }
    }
}

/// Carries out a run, and calls `tell` with lines of progress. On return all processes have ended, and the folder is
/// removed unless it is kept, even if `stop` was cancelled.
pub async fn run(
    options: Options,
    stop: CancellationToken,
    tell: impl Fn(String) + Send + Sync + 'static,
) -> Result<Verdict, ChaosError> {
    options.can_be_carried_out()?;
    let mut environment = RunEnvironment::new()?;
    let tasks = Tasks::new();
    let outcome = tokio::select! {
        outcome = play(&options, &environment, &tasks, Arc::new(tell)) => outcome,
        () = stop.cancelled() => Err(ChaosError::Stopped),
    };
    tasks.stop();
    let failed = !matches!(&outcome, Ok(verdict) if verdict.clean) && !matches!(outcome, Err(ChaosError::Stopped));
    let kept = (options.keep || failed).then(|| environment.keep());
    outcome.map(|verdict| Verdict { folder: kept, ..verdict })
}

type Tell = Arc<dyn Fn(String) + Send + Sync>;

async fn play(
    options: &Options,
    environment: &RunEnvironment,
    tasks: &Tasks,
    tell: Tell,
) -> Result<Verdict, ChaosError> {
    tell(format!("seed {}; starting NATS, MongoDB and the processes", options.seed));
    let api = Api::default();
    let address = serve(api.router().merge(model::router()), tasks).await?;
    let (programs, replicated) = (&options.programs, options.replicas > 1);
    let nats = Nats::start(environment, &programs.nats_server, options.replicas, tasks).await?;
    let mongo = Mongo::start(environment, &programs.mongod, options.members, replicated, tasks).await?;
    let settings = processes::settings(&options.settings, &nats.url(), options.replicas, &mongo.uri())?;
    let observer = Observer::new(&settings, &mongo.client(), tasks).await?;
    for manner in Manner::APPLIED {
        apply(&observer, manner, &address).await?;
    }
    register(&observer, &address).await?;
    let processes = Processes::start(environment, options, &settings, &format!("{address}/v1")).await?;
    let load = SimulatedUsers::new(options.seed, Arc::clone(&observer.queue), processes.gateway_url.clone())
        .map_err(|error| ChaosError::failed("cannot create an HTTP client", error))?;
    let outages = Arc::<Outages>::default();
    let sessions = mongo.client().database(&settings.mongodb.database).collection("sessions");
    let recovery = Recovery::new(sessions, Arc::clone(&outages), settings.worker.ack_wait.0);
    let stage = Arc::new(FaultContext::new(processes, nats, mongo, replicated, Arc::clone(&recovery), outages));
    let run = Run { options, observer: Arc::new(observer), load, stage, recovery, api, tell };
    run.through(environment.path(), tasks).await
}

async fn serve(router: Router, tasks: &Tasks) -> Result<String, ChaosError> {
    let listener = TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.map_err(|error| ChaosError::failed("the server of model and API cannot listen", error))?;
    let address = listener
        .local_addr()
        .map_err(|error| ChaosError::failed("the server of model and API has no address", error))?;
    let stop = tasks.stop_token();
    tasks.spawn("model and API", OnPanic::Log, async move {
        // The server stops with the run. Clients that still send requests then are killed.
        let _ = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await;
    });
    Ok(format!("http://{address}"))
}

async fn apply(observer: &Observer, manner: Manner, api: &str) -> Result<(), ChaosError> {
    let record = AgentRecord::from_document(manner.document(api), clock::now());
    let record = record.map_err(|error| ChaosError::failed("invalid agent file of the run", error))?;
    let applied = observer.store.put_agent(record).await;
    applied.map(|_| ()).map_err(|error| ChaosError::failed("cannot store an agent of the run", error))
}

async fn register(observer: &Observer, api: &str) -> Result<(), ChaosError> {
    let record = WorkflowRecord::from_document(graph::document(api), clock::now());
    let record = record.map_err(|error| ChaosError::failed("invalid workflow of the run", error))?;
    let stored = observer.store.put_workflow(record).await;
    stored.map(|_| ()).map_err(|error| ChaosError::failed("cannot store the workflow of the run", error))
}

/// All parts of a run.
struct Run<'a> {
    options: &'a Options,
    observer: Arc<Observer>,
    load: Arc<SimulatedUsers>,
    stage: Arc<FaultContext>,
    recovery: Arc<Recovery>,
    api: Api,
    tell: Tell,
}

impl Run<'_> {
    async fn through(self, folder: &Path, tasks: &Tasks) -> Result<Verdict, ChaosError> {
        let (talks, faults) = (Tasks::child_of(&tasks.stop_token()), Tasks::child_of(&tasks.stop_token()));
        self.watch(tasks);
        let end = Instant::now() + self.options.duration;
        tokio::join!(
            self.load.run(self.options.rate, end, &talks),
            faults::run(&self.stage, self.options.seed, &self.options.faults, end, &faults),
            sleep_until(end),
        );
        (self.tell)("the faults are over; waiting until no work is left".to_owned());
        self.end_of(&faults, "faults did not heal").await?;
        self.stage.look_after_all().await;
        self.end_of(&talks, "messages could not be published").await?;
        let quiet = self.observer.quiet(QUIET_TIMEOUT).await;
        self.stage.look_after_all().await;
        let mended = self.mended(quiet.is_some()).await?;
        let mut evidence = self.observer.evidence().await?;
        let Ledger { sent, bad, troubles } = self.load.published();
        evidence.calls = self.api.calls();
        (evidence.sent, evidence.bad) = (sent, bad);
        evidence.troubles = [troubles, self.stage.troubles()].concat();
        let mut findings = checker::check(&evidence);
        findings.violations.extend(self.observer.invariants(&evidence).await?);
        let verdict = self.verdict(findings, quiet, self.observer.redeliveries().await, mended);
        if self.options.keep || !verdict.clean {
            write(&evidence, &folder.join("facts.json"))?;
            write(&verdict, &folder.join("verdict.json"))?;
        }
        Ok(verdict)
    }

    /// Waits until all NATS servers have the same messages, because the checker may read from any of them. Returns how
    /// many servers the run had to restart for that.
    async fn mended(&self, quiet: bool) -> Result<u64, ChaosError> {
        let mut nats = self.stage.nats.lock().await;
        if quiet {
            nats.agree().await?;
        }
        Ok(nats.mended())
    }

    /// Waits until all tasks have finished.
    async fn end_of(&self, tasks: &Tasks, problem: &str) -> Result<(), ChaosError> {
        if tasks.finish(HEALING_TIMEOUT).await {
            return Ok(());
        }
        Err(ChaosError::failed(problem, format!("not finished {} s after the end", HEALING_TIMEOUT.as_secs())))
    }

    /// Starts the background tasks: measuring recoveries, watching the backlog, reporting progress.
    fn watch(&self, tasks: &Tasks) {
        let (recovery, stop) = (Arc::clone(&self.recovery), tasks.stop_token());
        tasks.spawn("recovery", OnPanic::Log, async move { recovery.watch(stop).await });
        let (observer, load, stage) = (Arc::clone(&self.observer), Arc::clone(&self.load), Arc::clone(&self.stage));
        let (tell, stop) = (Arc::clone(&self.tell), tasks.stop_token());
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // A few thousand.
        let limit = (self.options.rate * BACKLOG_SECONDS) as u64;
        let watch = async move {
            let (begun, mut look, mut told) = (Instant::now(), interval(Duration::from_secs(1)), Instant::now());
            loop {
                look.tick().await;
                let Ok(jobs) = observer.jobs().await else { continue };
                load.held_up.store(jobs > limit, Ordering::Relaxed);
                if told.elapsed() < PROGRESS_INTERVAL {
                    continue;
                }
                told = Instant::now();
                let (messages, happened) = (load.count().messages, stage.happened());
                let turns = observer.turns().await.map_or_else(|| "?".to_owned(), |turns| turns.to_string());
                let last = happened.last().map(|last| format!(", last {} of {}", last.fault, last.whom));
                tell(format!(
                    "{:>4} s: {messages} messages, {turns} turns, {jobs} jobs waiting, {} faults{}",
                    begun.elapsed().as_secs(),
                    happened.len(),
                    last.unwrap_or_default(),
                ));
            }
        };
        tasks.spawn("progress", OnPanic::Log, async move {
            tokio::select! {
                () = watch => {}
                () = stop.cancelled() => {}
            }
        });
    }

    fn verdict(&self, findings: Findings, quiet: Option<Duration>, redeliveries: Option<u64>, mended: u64) -> Verdict {
        let happened = self.stage.happened();
        Verdict {
            clean: findings.violations.is_empty() && quiet.is_some(),
            seed: self.options.seed,
            minutes: self.options.duration.as_secs_f64() / 60.0,
            replicas: self.options.replicas,
            members: self.options.members,
            published: self.load.count(),
            counts: findings.counts,
            faults: report::by_kind(&happened),
            redeliveries,
            mended,
            recovery: self.recovery.measured(),
            timers_late: Times::from_durations(findings.lateness),
            quiet_after_s: quiet.map(seconds),
            violations: findings.violations,
            happened,
            folder: None,
        }
    }
}

fn write(found: &impl Serialize, path: &Path) -> Result<(), ChaosError> {
    let text = serde_json::to_vec(found).map_err(|error| ChaosError::failed("cannot encode the findings", error))?;
    std::fs::write(path, text).map_err(error::file(path))
}
