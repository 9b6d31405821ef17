//! What goes wrong: processes killed and paused, servers restarted, killed, voted out. Which, when and for how long is drawn
//! from the seed; a fault whose victim suffers already is left out.
//!
//! A run has scenes: in every second one the servers are left alone, so that recoveries can be seen that wait for nothing
//! but a worker.

use super::cast::{Actor, Cast};
use super::error::ChaosError;
use super::recovery::{Outages, Recovery};
use super::servers::{Mongo, Nats};
use crate::tasks::{OnPanic, Tasks};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Mutex as Turnstile, OwnedMutexGuard};
use tokio::time::{Instant, sleep};

/// How long a scene is.
const SCENE: Duration = Duration::from_secs(20);

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// SIGKILL to a worker.
    WorkerKill,
    /// SIGSTOP to a worker, SIGCONT later: often after its leases are gone.
    WorkerPause,
    /// SIGKILL to a scheduler.
    SchedulerKill,
    /// SIGSTOP to a scheduler, SIGCONT later.
    SchedulerPause,
    /// SIGKILL to the gateway.
    GatewayKill,
    /// An orderly restart of NATS.
    NatsRestart,
    /// SIGKILL to NATS.
    NatsKill,
    /// SIGSTOP to NATS, SIGCONT later.
    NatsPause,
    /// MongoDB's primary hands over.
    MongodbStepDown,
    /// SIGKILL to MongoDB's primary.
    MongodbKill,
    /// SIGSTOP to MongoDB's primary, SIGCONT later: often after another one was elected.
    MongodbPause,
}

impl Fault {
    /// All, with how often each comes in comparison.
    const ALL: [(Self, u32); 11] = [
        (Self::WorkerKill, 8),
        (Self::WorkerPause, 4),
        (Self::SchedulerKill, 2),
        (Self::SchedulerPause, 1),
        (Self::GatewayKill, 2),
        (Self::NatsRestart, 2),
        (Self::NatsKill, 2),
        (Self::NatsPause, 1),
        (Self::MongodbStepDown, 2),
        (Self::MongodbKill, 2),
        (Self::MongodbPause, 1),
    ];

    /// Its name on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WorkerKill => "worker-kill",
            Self::WorkerPause => "worker-pause",
            Self::SchedulerKill => "scheduler-kill",
            Self::SchedulerPause => "scheduler-pause",
            Self::GatewayKill => "gateway-kill",
            Self::NatsRestart => "nats-restart",
            Self::NatsKill => "nats-kill",
            Self::NatsPause => "nats-pause",
            Self::MongodbStepDown => "mongodb-step-down",
            Self::MongodbKill => "mongodb-kill",
            Self::MongodbPause => "mongodb-pause",
        }
    }

    /// All names.
    pub fn names() -> Vec<&'static str> {
        Self::ALL.iter().map(|(fault, _)| fault.as_str()).collect()
    }

    /// True when queue or store suffer.
    const fn hits_servers(self) -> bool {
        match self {
            Self::NatsRestart | Self::NatsKill | Self::NatsPause => true,
            Self::MongodbStepDown | Self::MongodbKill | Self::MongodbPause => true,
            Self::WorkerKill | Self::WorkerPause | Self::SchedulerKill | Self::SchedulerPause | Self::GatewayKill => {
                false
            }
        }
    }

    /// For how long, in milliseconds.
    const fn lasts(self) -> std::ops::Range<u64> {
        match self {
            Self::WorkerKill | Self::SchedulerKill | Self::GatewayKill => 0..5_000,
            // Around the six seconds of a lease, so that some wake up in time and some do not.
            Self::WorkerPause | Self::SchedulerPause => 1_000..14_000,
            Self::NatsRestart | Self::NatsKill | Self::NatsPause => 0..4_000,
            Self::MongodbStepDown => 0..1,
            Self::MongodbKill | Self::MongodbPause => 500..8_000,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for Fault {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl FromStr for Fault {
    type Err = ChaosError;

    fn from_str(text: &str) -> Result<Self, ChaosError> {
        let known = Self::ALL.iter().map(|(fault, _)| *fault).find(|fault| fault.as_str() == text);
        known.ok_or_else(|| ChaosError::UnknownFault(text.to_owned(), Self::names().join(", ")))
    }
}

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

/// A fault as drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Plan {
    gap: Duration,
    fault: Fault,
    lasts: Duration,
    /// Picks the victim.
    lot: usize,
}

/// All faults of a run, without end.
struct Plans {
    rng: StdRng,
    among: Vec<Fault>,
    /// How long after the beginning the last one happens.
    at: Duration,
}

impl Plans {
    fn new(seed: u64, among: &[Fault]) -> Self {
        Self { rng: StdRng::seed_from_u64(seed), among: among.to_vec(), at: Duration::ZERO }
    }

    /// Whether a fault may happen in this scene; servers suffer in the first scene unless nothing else may.
    fn is_possible(&self, fault: Fault, scene: u64) -> bool {
        let named = |fault: &Fault| self.among.is_empty() || self.among.contains(fault);
        let only_servers = Fault::ALL.iter().all(|(fault, _)| !named(fault) || fault.hits_servers());
        named(&fault) && (!fault.hits_servers() || scene.is_multiple_of(2) || only_servers)
    }
}

impl Iterator for Plans {
    type Item = Plan;

    fn next(&mut self) -> Option<Plan> {
        let gap = Duration::from_millis(self.rng.random_range(300..3_500));
        self.at += gap;
        let scene = self.at.as_secs() / SCENE.as_secs();
        let possible: Vec<(Fault, u32)> =
            Fault::ALL.into_iter().filter(|(fault, _)| self.is_possible(*fault, scene)).collect();
        let (fault, _) = *possible.choose_weighted(&mut self.rng, |(_, weight)| *weight).ok()?;
        let lasts = Duration::from_millis(self.rng.random_range(fault.lasts()));
        Some(Plan { gap, fault, lasts, lot: self.rng.random_range(0..1_000) })
    }
}

/// Everything that can suffer.
pub(super) struct Stage {
    pub(super) cast: Cast,
    pub(super) nats: Arc<Turnstile<Nats>>,
    pub(super) mongo: Arc<Turnstile<Mongo>>,
    pub(super) recovery: Arc<Recovery>,
    pub(super) outages: Arc<Outages>,
    begun: Instant,
    notes: Mutex<Notes>,
}

#[derive(Default)]
struct Notes {
    happened: Vec<Happened>,
    troubles: Vec<String>,
}

impl Stage {
    pub(super) fn new(cast: Cast, nats: Nats, mongo: Mongo, recovery: Arc<Recovery>, outages: Arc<Outages>) -> Self {
        let (nats, mongo) = (Arc::new(Turnstile::new(nats)), Arc::new(Turnstile::new(mongo)));
        Self { cast, nats, mongo, recovery, outages, begun: Instant::now(), notes: Mutex::default() }
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
    for plan in Plans::new(seed, among) {
        if Instant::now() + plan.gap > end {
            return;
        }
        sleep(plan.gap).await;
        let (stage, stop) = (Arc::clone(stage), tasks.stop_token());
        tasks.spawn("fault", OnPanic::Log, async move {
            tokio::select! {
                () = strike(&stage, plan) => {}
                () = stop.cancelled() => {}
            }
        });
    }
}

async fn strike(stage: &Arc<Stage>, plan: Plan) {
    match plan.fault {
        Fault::WorkerKill => {
            if let Some(worker) = spare_worker(stage, plan.lot) {
                kill(stage, plan, worker, true).await;
            }
        }
        Fault::WorkerPause => {
            if let Some(worker) = spare_worker(stage, plan.lot) {
                pause(stage, plan, worker, true).await;
            }
        }
        Fault::SchedulerKill | Fault::SchedulerPause => {
            let schedulers = &stage.cast.schedulers;
            match free(&schedulers[plan.lot % schedulers.len()]) {
                Some(scheduler) if plan.fault == Fault::SchedulerKill => kill(stage, plan, scheduler, false).await,
                Some(scheduler) => pause(stage, plan, scheduler, false).await,
                None => {}
            }
        }
        Fault::GatewayKill => {
            if let Some(gateway) = free(&stage.cast.gateway) {
                kill(stage, plan, gateway, false).await;
            }
        }
        Fault::NatsRestart | Fault::NatsKill | Fault::NatsPause => nats(stage, plan).await,
        Fault::MongodbStepDown | Fault::MongodbKill | Fault::MongodbPause => mongodb(stage, plan).await,
    }
}

type Victim = OwnedMutexGuard<super::process::Process>;

fn free(actor: &Actor) -> Option<Victim> {
    Arc::clone(actor).try_lock_owned().ok()
}

/// A worker that does not suffer already, if another one is left to take over its turns.
fn spare_worker(stage: &Stage, lot: usize) -> Option<Victim> {
    let workers = &stage.cast.workers;
    let mut free: Vec<Victim> = workers.iter().filter_map(free).collect();
    if free.is_empty() || (free.len() == 1 && workers.len() > 1) {
        return None;
    }
    Some(free.swap_remove(lot % free.len()))
}

async fn kill(stage: &Stage, plan: Plan, mut process: Victim, has_turns: bool) {
    let pid = process.pid();
    let since = Instant::now();
    process.kill().await;
    stage.note(plan.fault, process.name());
    if let Some(pid) = pid.filter(|_| has_turns) {
        stage.recovery.killed(pid, since).await;
    }
    sleep(plan.lasts).await;
    stage.start_again(&mut process);
}

async fn pause(stage: &Stage, plan: Plan, process: Victim, has_turns: bool) {
    process.pause();
    stage.note(plan.fault, process.name());
    if let Some(pid) = process.pid().filter(|_| has_turns) {
        stage.recovery.paused(pid).await;
    }
    sleep(plan.lasts).await;
    process.resume();
}

async fn nats(stage: &Stage, plan: Plan) {
    let Ok(mut nats) = stage.nats.try_lock() else { return };
    let outage = stage.outages.begin();
    stage.note(plan.fault, "nats");
    match plan.fault {
        Fault::NatsPause => nats.pause(),
        Fault::NatsKill => nats.kill().await,
        _ => nats.stop().await,
    }
    sleep(plan.lasts).await;
    if let Err(error) = nats.go_on().await {
        stage.trouble(error.to_string());
    }
    drop(outage);
}

async fn mongodb(stage: &Stage, plan: Plan) {
    let Ok(mut mongo) = stage.mongo.try_lock() else { return };
    let Ok(primary) = mongo.has_primary().await else { return };
    let mut outage = Some(stage.outages.begin());
    stage.note(plan.fault, format!("mongod-{}", primary + 1));
    match plan.fault {
        Fault::MongodbPause => mongo.pause(primary),
        Fault::MongodbKill => mongo.kill(primary).await,
        _ => mongo.step_down().await,
    }
    let back = Instant::now() + plan.lasts;
    // The others go on as soon as they have agreed on another primary.
    let elected = tokio::time::timeout(plan.lasts, mongo.has_primary_beside(primary)).await;
    if elected.is_ok_and(|elected| elected.is_ok()) {
        outage = None;
    }
    sleep(back.saturating_duration_since(Instant::now())).await;
    if let Err(error) = mongo.go_on(primary).await {
        stage.trouble(error.to_string());
    }
    if let Err(error) = mongo.has_primary().await {
        stage.trouble(error.to_string());
    }
    drop(outage);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plans(seed: u64, among: &[Fault]) -> Vec<Plan> {
        Plans::new(seed, among).take(200).collect()
    }

    #[test]
    fn the_seed_says_what_happens() {
        assert_eq!(plans(5, &[]), plans(5, &[]));
        assert_ne!(plans(5, &[]), plans(6, &[]));
        for (fault, _) in Fault::ALL {
            assert!(plans(5, &[]).iter().any(|plan| plan.fault == fault), "{fault}");
            assert_eq!(fault.as_str().parse::<Fault>().unwrap(), fault);
        }
        assert!(plans(5, &[Fault::NatsKill]).iter().all(|plan| plan.fault == Fault::NatsKill));
        assert!(plans(5, &[Fault::NatsKill, Fault::WorkerKill]).iter().any(|plan| plan.fault == Fault::WorkerKill));
        assert!("flood".parse::<Fault>().unwrap_err().to_string().contains("worker-kill"));
    }
}
