//! The worker: pulls wake-ups, takes lanes, runs turns, commits, publishes the outbox, acknowledges.
//!
//! In the order of the data flow:
//!
//! - [`Worker::run`] pulls deliveries, and only as many as it has free places. [`health`] pauses it while queue or
//!   store are unreachable.
//! - `lease_guard` checks a lane's lease before each step. [`lanes`] is the table of the lanes that this worker drives. A delivery joins the lane of its session, or starts
//!   it.
//! - [`lane`] drives one lane: it reads the job ([`intake`]; a job that cannot run becomes a dead letter), takes a
//!   place for the job's model ([`bulkhead`]) and acquires the lease. [`rewind`] detects a stream that was
//!   replaced or truncated.
//! - [`lane_session`] processes the messages of a lane whose lease this worker holds. [`turn_pinning`] fixes the
//!   configuration and the jobs of a turn, [`work`] runs the turn or the run, [`outbox`] publishes its events after the
//!   commit. [`stop`] decides when unfinished jobs are redelivered.
//! - [`renewal`] renews all leases and deliveries together. [`cancellation`] cancels the turn in flight when an
//!   operator asks for it.

mod bulkhead;
mod cancellation;
mod health;
mod intake;
mod lane;
mod lane_session;
mod lanes;
mod lease_guard;
mod outbox;
mod renewal;
pub mod rewind;
mod stop;
mod turn_pinning;
mod work;

use crate::execution::Services;
use base::clock::Clock;
use base::config::Settings;
use base::tasks::{self, OnPanic, Tasks};
use bulkhead::Bulkhead;
use health::{Health, PullFailures};
use lanes::{Lanes, Offer, RemoveOnPanic};
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use storage::queue::{Delivery, Queue};
use storage::store::Store;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

/// The time that one pull waits for a wake-up. A stopping worker waits at most this long for its last pull.
const PULL_WAIT: Duration = Duration::from_secs(1);
/// Maximum number of wake-ups of one pull.
const MAX_PULL: usize = 512;

/// The worker of this process.
pub struct Worker {
    shared: Arc<WorkerState>,
    tasks: Tasks,
}

/// State shared by all lanes of a worker.
struct WorkerState {
    services: Services,
    lanes: Arc<Lanes>,
    /// The places of each model.
    models: Arc<Bulkhead>,
    /// The places of each agent; `None` without a limit.
    agents: Option<Arc<Bulkhead>>,
    health: Health,
    /// Name of this worker in leases.
    owner: String,
    ack_wait: Duration,
    max_attempts: u32,
    /// Cancelled when the worker stops: no new turn starts.
    stopping: CancellationToken,
    /// Cancelled when the drain timeout is over: turns in flight are aborted and their jobs released.
    abandoning: CancellationToken,
    namespace: String,
}

impl WorkerState {
    fn queue(&self) -> &Arc<dyn Queue> {
        &self.services.queue
    }

    fn store(&self) -> &Arc<dyn Store> {
        &self.services.store
    }

    fn clock(&self) -> &Clock {
        &self.services.clock
    }
}

impl Worker {
    /// Creates a worker. It does nothing until [`Self::run`].
    pub fn new(services: Services, settings: &Settings) -> Self {
        // Contains the process id, so that operators and the chaos command can see which process holds a lease.
        let owner = format!("worker-{}-{}", std::process::id(), uuid::Uuid::new_v4().simple());
        let health = Health::new(Arc::clone(&services.queue), Arc::clone(&services.store), services.clock.clone());
        let lanes = Arc::new(Lanes::new(services.clock.clone()));
        let shared = WorkerState {
            services,
            lanes,
            models: Bulkhead::new(settings.worker.concurrency),
            agents: (settings.worker.agent_concurrency > 0).then(|| Bulkhead::new(settings.worker.agent_concurrency)),
            health,
            owner,
            ack_wait: settings.worker.ack_wait.0,
            max_attempts: settings.worker.max_attempts,
            stopping: CancellationToken::new(),
            abandoning: CancellationToken::new(),
            namespace: settings.namespace.clone(),
        };
        Self { shared: Arc::new(shared), tasks: Tasks::new() }
    }

    /// Pulls and runs jobs until `stop`. Then waits up to `worker.drain_timeout` for the turns in flight, and releases
    /// the jobs of the turns that have not ended.
    ///
    /// Panics if the task that renews the leases panics, after it has drained: a worker without renewals must not
    /// continue.
    pub async fn run(self, settings: &Settings, stop: CancellationToken) {
        let Self { shared, tasks } = self;
        let permits = Arc::new(Semaphore::new(Bulkhead::places(settings.worker.concurrency)));
        info!(owner = shared.owner, concurrency = settings.worker.concurrency, "worker started");
        let renewals = Tasks::new();
        // A panic ends the worker: without renewals every lease would expire.
        renewals.spawn("renewal", OnPanic::Shutdown, renewal::run(Arc::clone(&shared), renewals.stop_token()));
        renewals.spawn("cancelling", OnPanic::Log, cancellation::listen(Arc::clone(&shared), renewals.stop_token()));
        let compared = Arc::clone(&shared);
        renewals.spawn("stream comparison", OnPanic::Log, async move { rewind::compare(&compared).await });
        let knowledge = shared.services.knowledge.clone();
        renewals.spawn("knowledge", OnPanic::Log, knowledge.follow(renewals.stop_token()));
        let taking = tasks::run_as_task(pull_until_stopped(Arc::clone(&shared), permits, tasks.clone(), stop));
        let failed = renewals.stop_token().run_until_cancelled(taking).await.is_none();
        let limit = if failed { Duration::ZERO } else { settings.worker.drain_timeout.0 };
        drain(&shared, &tasks, limit).await;
        renewals.shutdown(Duration::from_secs(1)).await;
        info!(owner = shared.owner, "worker stopped");
        if let Some(problem) = renewals.failure() {
            // Ends the process, as a panic of the worker itself would.
            resume_unwind(Box::new(problem));
        }
    }
}

/// Pulls deliveries and starts their lanes until `stop`.
async fn pull_until_stopped(shared: Arc<WorkerState>, permits: Arc<Semaphore>, tasks: Tasks, stop: CancellationToken) {
    let mut failures = PullFailures::default();
    while !stop.is_cancelled() {
        shared.health.wait(&stop).await;
        match pull(&shared, &permits, &tasks, &stop).await {
            Ok(()) => failures = PullFailures::default(),
            Err(error) => {
                shared.health.report_failure(&error.to_string());
                failures.pause(&error, shared.clock(), &stop).await;
            }
        }
    }
}

/// Pulls once, for as many wake-ups as there are free permits. It takes the permit before it pulls, so that no delivery
/// waits for a place while its ack wait runs.
async fn pull(
    shared: &Arc<WorkerState>,
    permits: &Arc<Semaphore>,
    tasks: &Tasks,
    stop: &CancellationToken,
) -> storage::queue::Result<()> {
    let first = tokio::select! {
        permit = Arc::clone(permits).acquire_owned() => permit,
        () = stop.cancelled() => return Ok(()),
    };
    let Ok(first) = first else { return Ok(()) };
    // Not cancelled by `stop`: deliveries that the queue has handed out must be processed or released.
    let mut pulled = pin!(shared.queue().pull(1, PULL_WAIT));
    let deliveries = tokio::select! {
        biased;
        () = stop.cancelled() => {
            // From now on no lane starts a turn, neither for these deliveries nor for waiting ones.
            shared.stopping.cancel();
            pulled.await?
        }
        deliveries = &mut pulled => deliveries?,
    };
    if deliveries.is_empty() {
        return Ok(());
    }
    let more_pending = deliveries.iter().any(|delivery| delivery.more_pending);
    // Starts the first lane before the second pull, so that it does not wait for it.
    start_lanes(shared, tasks, vec![first], deliveries);
    if !more_pending || stop.is_cancelled() {
        return Ok(());
    }
    let more = permits.available_permits().min(MAX_PULL);
    let free: Vec<_> = (0..more).map_while(|_| Arc::clone(permits).try_acquire_owned().ok()).collect();
    if !free.is_empty() {
        let more = shared.queue().pull(free.len(), Duration::ZERO).await?;
        start_lanes(shared, tasks, free, more);
    }
    Ok(())
}

/// Starts the lanes of these deliveries, each with one permit. A delivery to a lane that runs already takes no permit.
fn start_lanes(
    shared: &Arc<WorkerState>,
    tasks: &Tasks,
    mut free: Vec<OwnedSemaphorePermit>,
    deliveries: Vec<Delivery>,
) {
    for delivery in deliveries {
        let session_id = delivery.message.session_id.clone();
        match shared.lanes.offer(delivery) {
            Offer::Joined(message) => cancellation::cancel_if_commanded(shared, &message),
            Offer::Start => {
                let Some(permit) = free.pop() else { break };
                let shared = Arc::clone(shared);
                tasks.spawn("lane", OnPanic::Log, async move {
                    let _remove_on_panic = RemoveOnPanic { lanes: &shared.lanes, session_id: &session_id };
                    Box::pin(lane::drive(&shared, &session_id)).await;
                    drop(permit);
                });
            }
        }
    }
}

async fn drain(shared: &Arc<WorkerState>, tasks: &Tasks, limit: Duration) {
    shared.stopping.cancel();
    let lanes = shared.lanes.len();
    if lanes > 0 {
        info!(lanes, "finishing the turns in flight");
    }
    if tasks.shutdown(limit).await {
        return;
    }
    warn!(lanes = shared.lanes.len(), "drain timeout exceeded; aborting the remaining turns and releasing their jobs");
    shared.abandoning.cancel();
    if !tasks.shutdown(Duration::from_secs(5)).await {
        debug!("some lanes did not stop; their leases will expire");
    }
}
