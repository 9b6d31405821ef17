//! A worker or a scheduler that can be killed: it has a runtime of its own, which ends with all its tasks.

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

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Worker,
    Scheduler,
}

/// How a process reaches queue and store.
pub type Reach = (Arc<dyn Queue>, Arc<dyn Store>);

/// The settings and the clock of a process.
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

/// See the module.
pub struct Process {
    pub role: Role,
    pub wire: Arc<Wire>,
    pub kit: Arc<OnceLock<Kit>>,
    pulse: Arc<Pulse>,
    stop: CancellationToken,
    ended: watch::Receiver<bool>,
}

impl Process {
    /// Starts it with the clients given, or with new ones.
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
            // Every task of the process is dropped here, whatever it was doing.
            runtime.shutdown_background();
            ended.send_replace(true);
        };
        std::thread::Builder::new().name(format!("{role:?}")).spawn(run).unwrap();
        process
    }

    /// True unless it is frozen or over.
    pub fn is_running(&self) -> bool {
        self.wire.is_running() && !*self.ended.borrow()
    }

    /// For an idle process how often it has become idle, and how many calls it has made. A process that awaits an answer of queue
    /// or store is not idle.
    pub fn waits(&self) -> Option<(usize, usize)> {
        let waits = self.pulse.waits.load(Ordering::SeqCst) && !self.wire.is_answered();
        waits.then(|| (self.pulse.times.load(Ordering::SeqCst), self.wire.calls()))
    }

    /// Asks it to finish what it has in hand; false when it does not.
    pub async fn stop(&mut self, patience: Duration) -> bool {
        self.stop.cancel();
        self.ended(patience).await
    }

    /// Waits for its end; false when it does not come.
    pub async fn ended(&mut self, patience: Duration) -> bool {
        let ended = self.ended.wait_for(|ended| *ended);
        tokio::time::timeout(patience, ended).await.is_ok()
    }
}

impl Drop for Process {
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
