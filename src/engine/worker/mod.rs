//! Worker processes: pull wake-ups, take lanes, run turns, commit, publish, acknowledge.
//!
//! [`Worker::run`] pulls only with permits in hand. A wake-up joins its session's lane if this worker drives it already,
//! else starts one ([`lanes`] is the table, [`lane`] drives one, [`hold`] runs the turns of one that is held, [`opening`]
//! settles what a turn begins with, [`work`] is a turn or a run, [`outbox`] publishes its outbox, [`intake`] reads jobs and gives
//! up bad ones). [`renewal`] keeps all leases and deliveries alive together, [`rewind`] tells new messages from handled ones where
//! the stream has gone back, [`health`] pauses the intake while queue or store are away, [`shares`]
//! keeps a slow model from taking all places, [`cancelling`] ends turns in hand that an operator cancels.

mod cancelling;
mod health;
mod hold;
mod intake;
mod lane;
mod lanes;
mod opening;
mod outbox;
mod renewal;
pub mod rewind;
mod shares;
mod stop;
mod work;

use crate::execution::Services;
use base::clock::Clock;
use base::config::Settings;
use base::tasks::{self, OnPanic, Tasks};
use health::{Failures, Health};
use lanes::{Driven, Lanes, Offer};
use shares::Shares;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use storage::queue::{Delivery, Queue};
use storage::store::Store;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

/// How long one pull waits for a wake-up; a stopping worker waits no longer than this for its last pull.
const PULL_WAIT: Duration = Duration::from_secs(1);
/// The most wake-ups of one pull.
const PULL_MAX: usize = 512;

/// One worker process's share of the work.
pub struct Worker {
    shared: Arc<Shared>,
    tasks: Tasks,
}

/// What all lanes of a worker share.
struct Shared {
    services: Services,
    lanes: Arc<Lanes>,
    shares: Arc<Shares>,
    health: Health,
    /// This process, in leases.
    owner: String,
    ack_wait: Duration,
    max_attempts: u32,
    /// No new turns from here on.
    stopping: CancellationToken,
    /// Turns in hand are given back from here on.
    abandoning: CancellationToken,
    namespace: String,
}

impl Shared {
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
    /// A worker that has not begun.
    pub fn new(services: Services, settings: &Settings) -> Self {
        // The process id tells operators, and the chaos command, whom a lease belongs to.
        let owner = format!("worker-{}-{}", std::process::id(), uuid::Uuid::new_v4().simple());
        let health = Health::new(Arc::clone(&services.queue), Arc::clone(&services.store), services.clock.clone());
        let lanes = Arc::new(Lanes::new(services.clock.clone()));
        let shared = Shared {
            services,
            lanes,
            shares: Shares::new(settings.worker.concurrency),
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

    /// Works until `stop`, then finishes the turns in hand, `drain` at most, and gives the rest back.
    pub async fn run(self, settings: &Settings, stop: CancellationToken) {
        let Self { shared, tasks } = self;
        let permits = Arc::new(Semaphore::new(settings.worker.concurrency));
        info!(owner = shared.owner, concurrency = settings.worker.concurrency, "the worker has begun");
        let renewals = Tasks::new();
        // Without it every lease runs out.
        renewals.spawn("renewal", OnPanic::Shutdown, renewal::run(Arc::clone(&shared), renewals.stop_token()));
        renewals.spawn("cancelling", OnPanic::Log, cancelling::listen(Arc::clone(&shared), renewals.stop_token()));
        let compared = Arc::clone(&shared);
        renewals.spawn("comparison with the stream", OnPanic::Log, async move { rewind::compare(&compared).await });
        let knowledge = shared.services.knowledge.clone();
        renewals.spawn("knowledge", OnPanic::Log, knowledge.follow(renewals.stop_token()));
        let taking = tasks::apart(take_in(Arc::clone(&shared), permits, tasks.clone(), stop));
        let failed = renewals.stop_token().run_until_cancelled(taking).await.is_none();
        let limit = if failed { Duration::ZERO } else { settings.worker.drain_timeout.0 };
        drain(&shared, &tasks, limit).await;
        renewals.shutdown(Duration::from_secs(1)).await;
        info!(owner = shared.owner, "the worker has ended");
        if let Some(problem) = renewals.failure() {
            // Ends the process like a panic of the worker itself.
            resume_unwind(Box::new(problem));
        }
    }
}

/// Pulls until `stop`.
async fn take_in(shared: Arc<Shared>, permits: Arc<Semaphore>, tasks: Tasks, stop: CancellationToken) {
    let mut failures = Failures::default();
    while !stop.is_cancelled() {
        shared.health.wait(&stop).await;
        match pull(&shared, &permits, &tasks, &stop).await {
            Ok(()) => failures = Failures::default(),
            Err(error) => {
                shared.health.failed(&error.to_string());
                failures.pause(&error, shared.clock(), &stop).await;
            }
        }
    }
}

/// One pull, for as many wake-ups as there are free permits. Permit before pull: what is pulled begins at once.
async fn pull(
    shared: &Arc<Shared>,
    permits: &Arc<Semaphore>,
    tasks: &Tasks,
    stop: &CancellationToken,
) -> storage::queue::Result<()> {
    let first = tokio::select! {
        permit = Arc::clone(permits).acquire_owned() => permit,
        () = stop.cancelled() => return Ok(()),
    };
    let Ok(first) = first else { return Ok(()) };
    // Not cancelled by `stop`: what the queue has handed out must be worked off or given back.
    let mut pulled = pin!(shared.queue().pull(1, PULL_WAIT));
    let woken = tokio::select! {
        biased;
        () = stop.cancelled() => {
            // From now on no lane begins a turn, neither of what this pull brings nor of what waits.
            shared.stopping.cancel();
            pulled.await?
        }
        woken = &mut pulled => woken?,
    };
    if woken.is_empty() {
        return Ok(());
    }
    let followed = woken.iter().any(|delivery| delivery.followed);
    // It begins before what else is there is asked for.
    begin(shared, tasks, vec![first], woken);
    if !followed || stop.is_cancelled() {
        return Ok(());
    }
    let more = permits.available_permits().min(PULL_MAX);
    let free: Vec<_> = (0..more).map_while(|_| Arc::clone(permits).try_acquire_owned().ok()).collect();
    if !free.is_empty() {
        let more = shared.queue().pull(free.len(), Duration::ZERO).await?;
        begin(shared, tasks, free, more);
    }
    Ok(())
}

/// Begins with what has come, with a permit for each.
fn begin(shared: &Arc<Shared>, tasks: &Tasks, mut free: Vec<OwnedSemaphorePermit>, deliveries: Vec<Delivery>) {
    for delivery in deliveries {
        let session_id = delivery.message.session_id.clone();
        match shared.lanes.offer(delivery) {
            Offer::Joined(message) => cancelling::obey(shared, &message),
            Offer::Start => {
                let Some(permit) = free.pop() else { break };
                let shared = Arc::clone(shared);
                tasks.spawn("lane", OnPanic::Log, async move {
                    let _driven = Driven { lanes: &shared.lanes, session_id: &session_id };
                    Box::pin(lane::drive(&shared, &session_id)).await;
                    drop(permit);
                });
            }
        }
    }
}

async fn drain(shared: &Arc<Shared>, tasks: &Tasks, limit: Duration) {
    shared.stopping.cancel();
    let lanes = shared.lanes.len();
    if lanes > 0 {
        info!(lanes, "finishing the turns in hand");
    }
    if tasks.shutdown(limit).await {
        return;
    }
    warn!(lanes = shared.lanes.len(), "the drain timeout is over; giving the remaining turns back");
    shared.abandoning.cancel();
    if !tasks.shutdown(Duration::from_secs(5)).await {
        debug!("some lanes did not end; their leases run out");
    }
}
