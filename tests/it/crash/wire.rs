//! The connection between a process and its queue and store, in which faults strike.

use super::lag::Lag;
use super::plan::{Fault, Plan};
use futures::FutureExt;
use std::collections::{HashMap, HashSet};
use std::future::{Future, pending};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use storage::queue::{Delivery, DeliveryToken, Queue, QueueError};
use storage::store::StoreError;
use storage::store::records::LeaseKey;
use tokio::sync::watch;

/// Upper limit for the wait of a pull and the delay of a redelivery, so that tests take little time.
const SHORT: Duration = Duration::from_millis(40);

/// Whether a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Running,
    Frozen,
    Dead,
}

/// Errors that have a value for an unreachable server.
pub trait Unreachable {
    fn unreachable() -> Self;
}

impl Unreachable for QueueError {
    fn unreachable() -> Self {
        Self::Unavailable("by plan".into())
    }
}

impl Unreachable for StoreError {
    fn unreachable() -> Self {
        Self::Unavailable("by plan".into())
    }
}

/// A call in flight, until it returns or is dropped.
struct Asking<'w>(&'w AtomicUsize);

impl<'w> Asking<'w> {
    fn new(asked: &'w AtomicUsize) -> Self {
        asked.fetch_add(1, Ordering::SeqCst);
        Self(asked)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The connection of one process. It blocks while the process is frozen, and forever when the process is dead.
pub struct Wire {
    pub process: usize,
    pub plan: Arc<Plan>,
    /// Present if reads are stale.
    pub lag: Option<Lag>,
    /// Role and owner of the last successful election of this process.
    pub leads: Mutex<Option<(String, String)>>,
    /// Leases that the process has released. If they turn out to be gone, the process has not lost them.
    given_back: Mutex<HashSet<LeaseKey>>,
    /// Lane and sequence of each pulled delivery.
    places: Mutex<HashMap<DeliveryToken, (String, String)>>,
    /// Calls in flight, and all calls so far; both without pulls.
    asked: AtomicUsize,
    calls: AtomicUsize,
    /// Renewals always succeed for the process, whatever the store returns.
    deaf: AtomicBool,
    state: watch::Sender<State>,
}

impl Wire {
    pub fn new(process: usize, plan: Arc<Plan>, lags: bool) -> Self {
        Self {
            process,
            plan,
            lag: lags.then(Lag::default),
            leads: Mutex::default(),
            given_back: Mutex::default(),
            places: Mutex::default(),
            asked: AtomicUsize::new(0),
            calls: AtomicUsize::new(0),
            deaf: AtomicBool::new(false),
            state: watch::Sender::new(State::Running),
        }
    }

    pub fn set(&self, state: State) {
        self.state.send_replace(state);
    }

    /// From now on the process does not learn that it has lost a lease; only its epoch fences it.
    pub fn deafen(&self) {
        self.deaf.store(true, Ordering::SeqCst);
    }

    pub fn is_deaf(&self) -> bool {
        self.deaf.load(Ordering::SeqCst)
    }

    pub fn is_running(&self) -> bool {
        *self.state.borrow() == State::Running
    }

    /// True while the process waits for a result of queue or store.
    pub fn is_answered(&self) -> bool {
        self.asked.load(Ordering::SeqCst) > 0
    }

    /// Number of calls so far, without pulls.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    async fn ask<T>(&self, call: impl Future<Output = T>) -> T {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let _asking = Asking::new(&self.asked);
        call.await
    }

    pub fn is_alive(&self) -> bool {
        *self.state.borrow() != State::Dead
    }

    /// Waits until the process is dead.
    pub async fn dead(&self) {
        // `self` owns the sender, so the wait can only end with this state.
        let _ = self.state.subscribe().wait_for(|state| *state == State::Dead).await;
    }

    /// Waits until the process runs.
    pub async fn pass(&self) {
        let mut state = self.state.subscribe();
        let _ = state.wait_for(|state| *state == State::Running).await;
    }

    /// Makes a call that is not counted.
    pub async fn plainly<T>(&self, call: impl Future<Output = T> + Send) -> T {
        self.pass().await;
        let answer = self.ask(call).await;
        self.pass().await;
        answer
    }

    /// Makes a call that is counted.
    pub async fn counted<T: Send, E: Unreachable + Send>(
        &self,
        name: &'static str,
        lane: &str,
        call: impl Future<Output = Result<T, E>> + Send,
    ) -> Result<T, E> {
        self.counted_for(name, lane, &[], call).await
    }

    /// Makes a call that is counted for these items.
    pub async fn counted_for<T: Send, E: Unreachable + Send>(
        &self,
        name: &'static str,
        lane: &str,
        items: &[String],
        call: impl Future<Output = Result<T, E>> + Send,
    ) -> Result<T, E> {
        self.pass().await;
        let fault = self.plan.count(self.process, name, lane, items);
        self.strike(fault, self.ask(call).boxed()).await
    }

    async fn strike<T, E: Unreachable>(
        &self,
        fault: Option<Fault>,
        call: impl Future<Output = Result<T, E>> + Send,
    ) -> Result<T, E> {
        let Some(fault) = fault else {
            let answer = call.await;
            self.pass().await;
            return answer;
        };
        let (early, late) = if fault.after() { (Some(call.await), None) } else { (None, Some(call)) };
        if fault.crashes() {
            self.set(State::Dead);
        } else if fault.pauses() {
            self.set(State::Frozen);
        }
        self.plan.struck(self.process);
        if fault.crashes() {
            return pending().await;
        }
        if !fault.pauses() {
            return Err(E::unreachable());
        }
        self.pass().await;
        match (early, late) {
            (Some(answer), _) => answer,
            (None, Some(call)) => call.await,
            (None, None) => Err(E::unreachable()),
        }
    }

    /// Pulls deliveries. A pull counts if it returns any. A fault before it returns them to the queue first, as if
    /// there had been no pull.
    pub async fn pull(&self, queue: &dyn Queue, max: usize, wait: Duration) -> storage::queue::Result<Vec<Delivery>> {
        self.pass().await;
        let mut deliveries = queue.pull(max, wait.min(SHORT)).await?;
        self.pass().await;
        if deliveries.is_empty() {
            return Ok(deliveries);
        }
        let mut pulled = Vec::new();
        for Delivery { message, token, .. } in &deliveries {
            let place = (message.session_id.clone(), message.seq.to_string());
            pulled.push(format!("{}/{}", place.0, place.1));
            self.places.lock().unwrap().insert(token.clone(), place);
        }
        let fault = self.plan.count(self.process, "pull", "", &pulled);
        if fault.is_some_and(|fault| !fault.after()) {
            for delivery in std::mem::take(&mut deliveries) {
                queue.nak(&delivery.token, Duration::ZERO).await?;
            }
        }
        self.strike(fault, async { Ok(deliveries) }).await
    }

    pub fn give_back(&self, held: LeaseKey) {
        self.given_back.lock().unwrap().insert(held);
    }

    pub fn keep(&self, held: &LeaseKey) {
        self.given_back.lock().unwrap().remove(held);
    }

    pub fn has_given_back(&self, held: &LeaseKey) -> bool {
        self.given_back.lock().unwrap().contains(held)
    }

    /// Lane and sequence of a delivery.
    pub fn place(&self, token: &DeliveryToken) -> (String, String) {
        self.places.lock().unwrap().get(token).cloned().unwrap_or_default()
    }

    /// Delays the redelivery of a message, up to [`SHORT`].
    pub async fn nak(&self, queue: &dyn Queue, token: &DeliveryToken, delay: Duration) -> storage::queue::Result<()> {
        let (lane, seq) = self.place(token);
        self.counted_for("nak", &lane, &[seq], queue.nak(token, delay.min(SHORT))).await
    }
}
