//! A worker or scheduler that can be killed: it has its own runtime, whose shutdown drops all its tasks.

use super::site::Kit;
use super::wire::{State, Wire};
use base::clock::Clock;
use base::config::Settings;
use engine::timer::scheduler::Scheduler;
use engine::worker::Worker;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use storage::queue::Queue;
use storage::store::Store;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Part of the engine that a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Worker,
    Scheduler,
}

/// Queue and store as a process sees them.
pub type Reach = (Arc<dyn Queue>, Arc<dyn Store>);

/// Settings and clock of a process.
pub type Means<'s> = (&'s Settings, Clock);

/// Whether the thread of a process is parked, and how often it has been.
#[derive(Default)]
struct Pulse {
    waits: AtomicBool,
    times: AtomicUsize,
}

impl Pulse {
    fn rest(&self) {
        self.times.fetch_add(1, Ordering::SeqCst);
        self.waits.store(true, Ordering::SeqCst);
    }

    fn go_on(&self) {
        self.waits.store(false, Ordering::SeqCst);
    }
}

/// A running process.
pub struct CrashProcess {
    pub role: Role,
    pub wire: Arc<Wire>,
    pub kit: Arc<OnceLock<Kit>>,
    pulse: Arc<Pulse>,
    stop: CancellationToken,
    ended: watch::Receiver<bool>,
}

impl CrashProcess {
    /// Starts the process with the given clients, or with new ones.
    pub fn start(role: Role, wire: Arc<Wire>, kit: Option<Kit>, backend: Reach, (settings, clock): Means<'_>) -> Self {
        let (stop, settings) = (CancellationToken::new(), settings.clone());
        let (told, ended) = (stop.clone(), watch::Sender::new(false));
        let (pulse, kept) = (Arc::<Pulse>::default(), Arc::clone(&wire));
        let (resting, going) = (Arc::clone(&pulse), Arc::clone(&pulse));
        let process = Self { role, wire: kept, kit: Arc::default(), pulse, stop, ended: ended.subscribe() };
        let used = Arc::clone(&process.kit);
        let run = move || {
            let kit = used.get_or_init(|| kit.unwrap_or_else(|| Kit::new(&settings)));
            let (queue, store) = backend;
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            runtime.on_thread_park(move || resting.rest()).on_thread_unpark(move || going.go_on());
            let runtime = runtime.enable_all().build().unwrap();
            runtime.block_on(until_dead(&wire, async {
                match role {
                    Role::Worker => {
                        Worker::new(kit.services(queue, store, clock), &settings).run(&settings, told).await;
                    }
                    Role::Scheduler => Scheduler::new(queue, store, clock, &settings).run(told).await,
                }
            }));
            // Drops every task of the process at its current point.
            runtime.shutdown_background();
            ended.send_replace(true);
        };
        std::thread::Builder::new().name(format!("{role:?}")).spawn(run).unwrap();
        process
    }

    /// True unless the process is frozen or has ended.
    pub fn is_running(&self) -> bool {
        self.wire.is_running() && !*self.ended.borrow()
    }

    /// For an idle process, how often it has become idle and how many calls it has made. A process that waits for queue
    /// or store is not idle.
    pub fn waits(&self) -> Option<(usize, usize)> {
        let waits = self.pulse.waits.load(Ordering::SeqCst) && !self.wire.is_answered();
        waits.then(|| (self.pulse.times.load(Ordering::SeqCst), self.wire.calls()))
    }

    /// Asks the process to finish its work in flight. Returns false if it does not stop within `patience`.
    pub async fn stop(&mut self, patience: Duration) -> bool {
        self.stop.cancel();
        self.ended(patience).await
    }

    /// Waits for the end of the process. Returns false after `patience`.
    pub async fn ended(&mut self, patience: Duration) -> bool {
        let ended = self.ended.wait_for(|ended| *ended);
        tokio::time::timeout(patience, ended).await.is_ok()
    }
}

impl Drop for CrashProcess {
    fn drop(&mut self) {
        self.wire.set(State::Dead);
    }
}

async fn until_dead(wire: &Wire, work: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        () = wire.dead() => {}
        () = work => {}
    }
}
