//! The faults of a run: processes are killed and paused, servers are restarted, killed, voted out and cut off from one
//! another. [`plans`] draws them from the seed, [`kind`] lists them, [`strike`] carries one out. A fault is skipped while its
//! victim suffers from another one.
//!
//! A run has scenes. In every second scene no server suffers, so that some recoveries wait for nothing but a worker.

mod kind;
mod plans;
mod strike;

pub use kind::Fault;

use super::cast::Cast;
use super::recovery::{Outages, Recovery};
use super::servers::{Mongo, Nats, Network};
use base::tasks::{OnPanic, Tasks};
use plans::Plans;
use serde::Serialize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Mutex as Turnstile;
use tokio::time::{Instant, sleep};

/// How long a scene is.
const SCENE: Duration = Duration::from_secs(20);

/// A fault that happened.
#[derive(Clone, Debug, Serialize)]
pub struct Happened {
    /// Seconds since the first message.
    pub at_s: f64,
    /// What.
    pub fault: Fault,
    /// To whom.
    pub whom: String,
}

/// Everything that can suffer.
pub(super) struct Stage {
    pub(super) cast: Cast,
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

impl Stage {
    pub(super) fn new(
        cast: Cast,
        (nats, mongo): (Nats, Mongo),
        replicated: bool,
        recovery: Arc<Recovery>,
        outages: Arc<Outages>,
    ) -> Self {
        let (nats, mongo) = (Turnstile::new(nats), Turnstile::new(mongo));
        Self { cast, nats, mongo, recovery, outages, replicated, begun: Instant::now(), notes: Mutex::default() }
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

    /// Notes every process that has ended of its own accord, and starts it again.
    pub(super) async fn look_after_all(&self) {
        for actor in self.cast.all() {
            let mut process = actor.lock().await;
            if let Some(end) = process.ended() {
                self.trouble(format!("{}: {end}", process.name()));
                self.start_again(&mut process);
            }
        }
    }

    fn start_again(&self, process: &mut super::process::Process) {
        if let Err(error) = process.start() {
            self.trouble(error.to_string());
        }
    }
}

/// Lets faults happen until `end`. Each heals by itself in `tasks`.
pub(super) async fn run(stage: &Arc<Stage>, seed: u64, among: &[Fault], end: Instant, tasks: &Tasks) {
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
