//! Runs a scenario with faults and reports the violations.

use super::faulty::{FaultyQueue, FaultyStore};
use super::mover::{LEASE, Mover};
use super::plan::{Fault, Operation, Plan, Point};
use super::process::{CrashProcess, Reach, Role};
use super::scenario::{self, Message, Scenario};
use super::seen;
use super::site::Site;
use super::varied::{plain, varied};
use super::wire::{State, Wire};
use crate::support::engine::{Backend, with_model};
use crate::support::{backend, polled};
use base::clock::{self, Clock};
use base::config::Settings;
use bytes::Bytes;
use definitions::agent::AgentRecord;
use definitions::workflow::definition::WorkflowRecord;
use lab::invariants::{self, AcceptedMessage, Evidence};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use storage::queue::Publish;
use types::run::{RunQuery, RunRecord};
use types::session;

/// Poll interval of a run.
const BETWEEN_LOOKS: Duration = Duration::from_millis(4);

/// Replaces the queue and store of a process.
pub type Mutant = fn(Reach) -> Reach;

/// Leaves the engine unchanged.
pub fn unchanged(backend: Reach) -> Reach {
    backend
}

/// Result of a run.
pub struct Report {
    pub violations: Vec<String>,
    /// Number of points that were reached.
    pub struck: usize,
    /// How a worker lost its lease although no fault kept it from renewing.
    pub lost: Option<&'static str>,
    /// The operations, grouped by the strikes between them.
    pub operations: Vec<Vec<Operation>>,
    /// Role and text of all history entries, by session.
    pub said: BTreeMap<String, Vec<(session::Role, String)>>,
}

/// Runs `scenario` with a fault at each of `points`, one after the other. `patience` limits the time until no work is
/// left.
pub async fn run(site: &Site, scenario: &Scenario, points: &[Point], mutant: Mutant, patience: Duration) -> Report {
    let mut run = Run::prepare(site, scenario, points, mutant, patience).await;
    run.before().await;
    run.through(points).await;
    run.report(points).await
}

struct Run<'s> {
    site: &'s Site,
    scenario: &'s Scenario,
    backend: Backend,
    settings: Settings,
    clock: Clock,
    mover: Mover,
    plan: Arc<Plan>,
    mutant: Mutant,
    patience: Duration,
    processes: Vec<CrashProcess>,
    sent: Vec<AcceptedMessage>,
    violations: Vec<String>,
    struck: usize,
}

/// The next event in a run.
enum Next {
    Strike(usize),
    Rest,
    Late,
}

impl<'s> Run<'s> {
    async fn prepare(
        site: &'s Site,
        scenario: &'s Scenario,
        points: &[Point],
        mutant: Mutant,
        patience: Duration,
    ) -> Self {
        let mut settings = Settings::default();
        settings.worker.max_attempts = scenario.max_attempts;
        let clock = site.clock.clone();
        let backend = backend::embedded_by(clock.clone(), settings, LEASE).await;
        site.model.forget();
        site.model.script(varied(scenario.model));
        site.api.forget();
        site.api.script(scenario::api);
        let text = scenario.agent.to_string().replace("{api}", &site.api.base_url);
        let agent = AgentRecord::from_document(serde_json::from_str(&text).unwrap(), clock::now()).unwrap();
        backend.store.put_agent(agent).await.unwrap();
        if scenario.dialogue {
            crate::authoring::create(backend.store.as_ref(), "s1").await;
        }
        for workflow in &scenario.workflows {
            let text = workflow.to_string().replace("{api}", &site.api.base_url);
            let workflow = WorkflowRecord::from_document(serde_json::from_str(&text).unwrap(), clock::now()).unwrap();
            backend.store.put_workflow(workflow).await.unwrap();
        }
        Self {
            site,
            scenario,
            settings: with_model(backend.settings.clone(), &site.model),
            backend,
            mover: Mover::new(clock.clone()),
            clock,
            plan: Arc::new(Plan::new(points)),
            mutant,
            patience,
            processes: Vec::new(),
            sent: Vec::new(),
            violations: Vec::new(),
            struck: 0,
        }
    }

    fn start(&mut self, role: Role) {
        // The first process reads from the leader. Only its successors may see less than it has recorded.
        let lags = self.scenario.lags && !self.processes.is_empty();
        let wire = Arc::new(Wire::new(self.processes.len(), Arc::clone(&self.plan), lags));
        let queue = FaultyQueue { inner: Arc::clone(&self.backend.queue), wire: Arc::clone(&wire) };
        let store = FaultyStore { inner: Arc::clone(&self.backend.store), wire: Arc::clone(&wire) };
        let backend = (self.mutant)((Arc::new(queue), Arc::new(store)));
        let means = (&self.settings, self.clock.clone());
        self.processes.push(CrashProcess::start(role, wire, self.site.take_kit(), backend, means));
    }

    async fn send(&mut self, messages: &[Message]) {
        for (session_id, job) in messages {
            let payload: Bytes = serde_json::to_vec(job).unwrap().into();
            let publish = Publish { session_id: (*session_id).to_owned(), msg_id: None, payload: payload.clone() };
            let published = self.backend.queue.publish(publish).await.unwrap();
            self.sent.push(AcceptedMessage { session_id: (*session_id).to_owned(), seq: published.seq, payload });
        }
    }

    /// Brings the sessions to the state in which the faults begin.
    async fn before(&mut self) {
        if self.scenario.before.is_empty() {
            return;
        }
        self.start(Role::Worker);
        self.send(&self.scenario.before.clone()).await;
        if !self.rests().await {
            self.violations.push("the messages before the faults are not handled".into());
        }
        self.end(0).await;
    }

    /// Sends one wave after the other, and recovers from every fault.
    async fn through(&mut self, points: &[Point]) {
        let mut waves = self.scenario.waves.clone().into_iter();
        self.plan.arm();
        self.send(&waves.next().unwrap_or_default()).await;
        self.start(Role::Worker);
        if self.scenario.timers {
            self.start(Role::Scheduler);
        }
        loop {
            match self.next().await {
                Next::Strike(process) => {
                    let fault = points[self.struck].fault;
                    self.struck += 1;
                    for wave in waves.by_ref() {
                        self.send(&wave).await;
                    }
                    self.recover(fault, process).await;
                }
                Next::Rest => match waves.next() {
                    Some(wave) => self.send(&wave).await,
                    None => break,
                },
                Next::Late => break,
            }
        }
    }

    async fn next(&self) -> Next {
        let strikes = self.plan.strikes();
        let come = self.looked(|| async {
            if let Some(process) = strikes.borrow().get(self.struck) {
                return Some(Next::Strike(*process));
            }
            // A run is not at rest while a strike is in progress: its effect may precede the stop of the process.
            let rests = self.waits() && self.is_at_rest().await && self.plan.begun() == self.struck;
            rests.then_some(Next::Rest)
        });
        come.await.unwrap_or(Next::Late)
    }

    /// Starts a replacement for the process that a fault has struck, like an operator's supervisor.
    async fn recover(&mut self, fault: Fault, process: usize) {
        let role = self.processes[process].role;
        if fault.crashes() {
            if !self.processes[process].ended(self.patience).await {
                self.violations.push("a crashed process does not end".into());
            }
            // Requests of the old process must arrive before the new process repeats them.
            let site = self.site;
            let gone = async { tokio::join!(site.model.connections().gone(), site.api.connections.gone()) };
            if role == Role::Worker && tokio::time::timeout(self.patience, gone).await.is_err() {
                self.violations.push("the connections of a crashed process do not end".into());
            }
            self.outlive(role).await;
            self.depose(process).await;
            self.start(role);
        } else if fault.pauses() {
            self.outlive(role).await;
            self.depose(process).await;
            let grants = self.plan.grants();
            self.start(role);
            if fault == Fault::PauseBeforeBrief {
                self.looked(|| async {
                    let taken = self.plan.grants() > grants || self.waits() && self.is_at_rest().await;
                    taken.then_some(())
                })
                .await;
            } else {
                self.rests().await;
                if !self.scenario.learns {
                    self.processes[process].wire.deafen();
                }
            }
            self.processes[process].wire.set(State::Running);
            self.end(process).await;
        }
    }

    /// Expires the leases and deliveries of a worker that has ended. A write of that worker may still be in progress
    /// and take a lease. The store executes writes in order, so when the write below has returned, every earlier one
    /// has, too.
    async fn outlive(&self, role: Role) {
        if role == Role::Worker {
            self.backend.store.resign("nothing", "nobody").await.unwrap();
            self.clock.advance(LEASE);
        }
    }

    /// Returns true if all processes are idle. Advances the clock if they remain idle.
    fn waits(&self) -> bool {
        !self.site.model.is_asked() && !self.site.api.is_asked() && self.mover.look(&self.processes)
    }

    /// Ends the leadership of a scheduler that was killed, whose lease would last for seconds.
    async fn depose(&self, process: usize) {
        let leads = self.processes[process].wire.leads.lock().unwrap().take();
        if let Some((role, owner)) = leads {
            self.backend.store.resign(&role, &owner).await.unwrap();
        }
    }

    async fn end(&mut self, process: usize) {
        if !self.processes[process].stop(self.patience).await {
            self.violations.push("a stopped process does not end".into());
        }
    }

    async fn is_at_rest(&self) -> bool {
        let (queue, store) = (self.backend.queue.as_ref(), self.backend.store.as_ref());
        if !invariants::at_rest(queue, store, &self.sent).await.unwrap() {
            return false;
        }
        // A coordinator starts runs in lanes of their own. When such a run has ended, it publishes to the lane of its session.
        let runs = store.runs(RunQuery::default()).await.unwrap().into_iter().filter(|run| run.notify.is_some());
        let lane = |run: RunRecord| AcceptedMessage { session_id: run.run_id, seq: 0, payload: Bytes::new() };
        let lanes: Vec<_> = runs.map(lane).collect();
        lanes.is_empty()
            || invariants::at_rest(queue, store, &lanes).await.unwrap()
                && invariants::at_rest(queue, store, &self.sent).await.unwrap()
    }

    async fn rests(&self) -> bool {
        self.looked(|| async { (self.waits() && self.is_at_rest().await).then_some(()) }).await.is_some()
    }

    /// Polls `look` until it returns a value. Returns `None` after the run's time limit.
    async fn looked<T, F: Future<Output = Option<T>>>(&self, look: impl Fn() -> F) -> Option<T> {
        polled(self.patience, BETWEEN_LOOKS, look).await
    }

    /// Stops the remaining processes and checks the final state.
    async fn report(mut self, points: &[Point]) -> Report {
        for process in 0..self.processes.len() {
            if self.processes[process].wire.is_alive() {
                self.end(process).await;
            }
        }
        for process in &self.processes {
            if let Some(kit) = process.kit.get() {
                self.site.put_kit(kit.clone());
            }
        }
        let pauses = points.iter().any(|point| point.fault.pauses());
        let evidence = Evidence {
            sent: self.sent.clone(),
            events: None,
            model: self.site.model.asked().iter().map(seen::asked).collect(),
            api: self.site.api.calls("").iter().map(seen::called).collect(),
            outlived: pauses || self.plan.lost().is_some(),
        };
        let (queue, store) = (self.backend.queue.as_ref(), self.backend.store.as_ref());
        let mut violations = std::mem::take(&mut self.violations);
        violations.extend(invariants::check(queue, store, &evidence).await.unwrap());
        let mut said = BTreeMap::new();
        for sent in &self.sent {
            if let Some(session) = store.session(&sent.session_id).await.unwrap() {
                if sent.session_id == "s1" && !(self.scenario.end)(&session) {
                    violations.push(format!("s1 has the wrong final state: {session:?}"));
                }
                let lines = session.history.iter().map(|entry| (entry.role, plain(&entry.text))).collect();
                said.insert(session.session_id, lines);
            }
        }
        violations.dedup();
        let operations = self.plan.seen();
        Report { violations, struck: self.struck, lost: self.plan.lost().filter(|_| !pauses), operations, said }
    }
}
