//! The faults of a run. [`kind`] lists them, [`plans`] draws a sequence from the seed, [`strike`] carries out one
//! fault. A fault is skipped while its victim suffers from another one.
//!
//! A run has scenes of 20 seconds. In every second scene no server suffers, so that some recoveries depend on workers
//! alone.

mod kind;
mod plans;
mod strike;

pub use kind::Fault;

use super::processes::Processes;
use super::recovery::{Outages, Recovery};
use super::servers::{Mongo, Nats, Network};
use base::tasks::{OnPanic, Tasks};
use plans::Plans;
use serde::Serialize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Mutex as Turnstile;
use tokio::time::{Instant, sleep};

/// Duration of a scene.
const SCENE_DURATION: Duration = Duration::from_secs(20);

/// A fault that was carried out.
#[derive(Clone, Debug, Serialize)]
pub struct Happened {
    /// Seconds since the first message.
    pub at_s: f64,
    /// The fault.
    pub fault: Fault,
    /// The victim's name.
    pub whom: String,
}

/// All possible victims, and the record of the faults.
pub(super) struct FaultContext {
    pub(super) processes: Processes,
    pub(super) nats: Turnstile<Nats>,
    pub(super) mongo: Turnstile<Mongo>,
    pub(super) recovery: Arc<Recovery>,
    pub(super) outages: Arc<Outages>,
    replicated: bool,
    begun: Instant,
    notes: Mutex<Notes>,
}

#[derive(Default)]
struct Notes {
    happened: Vec<Happened>,
    troubles: Vec<String>,
}

impl FaultContext {
    pub(super) fn new(
        processes: Processes,
        nats: Nats,
        mongo: Mongo,
        replicated: bool,
        recovery: Arc<Recovery>,
        outages: Arc<Outages>,
    ) -> Self {
        let (nats, mongo) = (Turnstile::new(nats), Turnstile::new(mongo));
        Self { processes, nats, mongo, recovery, outages, replicated, begun: Instant::now(), notes: Mutex::default() }
    }

    pub(super) fn happened(&self) -> Vec<Happened> {
        self.notes().happened.clone()
    }

    pub(super) fn troubles(&self) -> Vec<String> {
        self.notes().troubles.clone()
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, fault: Fault, whom: impl Into<String>) {
        let at_s = (self.begun.elapsed().as_secs_f64() * 10.0).round() / 10.0;
        self.notes().happened.push(Happened { at_s, fault, whom: whom.into() });
    }

    fn trouble(&self, problem: impl Into<String>) {
        self.notes().troubles.push(problem.into());
    }

    /// Records every process that has ended unexpectedly, and restarts it.
    pub(super) async fn look_after_all(&self) {
        for actor in self.processes.all() {
            let mut process = actor.lock().await;
            if let Some(end) = process.ended() {
                self.trouble(format!("{}: {end}", process.name()));
                self.start_again(&mut process);
            }
        }
    }

    fn start_again(&self, process: &mut super::process::ManagedProcess) {
        if let Err(error) = process.start() {
            self.trouble(error.to_string());
        }
    }
}

/// Carries out faults until `end`. Each is a task in `tasks`, which ends when the fault has healed.
pub(super) async fn run(stage: &Arc<FaultContext>, seed: u64, among: &[Fault], end: Instant, tasks: &Tasks) {
    for plan in Plans::new(seed, among, stage.replicated, Network::can_cut()) {
        if Instant::now() + plan.gap > end {
            return;
        }
        sleep(plan.gap).await;
        let (stage, stop) = (Arc::clone(stage), tasks.stop_token());
        tasks.spawn("fault", OnPanic::Log, async move {
            tokio::select! {
                () = strike::strike(&stage, plan) => {}
                () = stop.cancelled() => {}
            }
        });
    }
}
