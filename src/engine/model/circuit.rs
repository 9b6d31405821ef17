//! A circuit breaker around a model, so that turns do not wait for a server that is down.
//!
//! After [`FAILURE_THRESHOLD`] calls in a row that failed with all their retries, the circuit opens, and further calls
//! fail immediately. After a pause it lets one trial call through. The trial closes the circuit if it succeeds, and
//! otherwise opens it again for twice as long.

use super::{DeltaSink, Model, ModelError, ModelReply, ModelRequest};
use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// Number of failures in a row that opens the circuit.
const FAILURE_THRESHOLD: u32 = 5;
const MIN_PAUSE: Duration = Duration::from_secs(5);
const MAX_PAUSE: Duration = Duration::from_secs(60);

#[derive(Debug)]
enum Circuit {
    Closed { failures: u32 },
    Open { until: Instant, pause: Duration },
    Trial { begun: Instant, pause: Duration },
}

/// State of a model's circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CircuitState {
    /// Calls are made.
    Closed,
    /// Calls fail immediately.
    Open,
    /// A trial call is in flight, or the next call is the trial.
    HalfOpen,
}

impl CircuitState {
    /// The name in JSON, logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// A model behind a circuit breaker.
pub(crate) struct CircuitBreaker {
    name: String,
    inner: Arc<dyn Model>,
    circuit: Mutex<Circuit>,
}

impl CircuitBreaker {
    /// Wraps `inner`, which the settings name `name`. The circuit starts closed.
    pub(crate) fn new(name: &str, inner: Arc<dyn Model>) -> Self {
        Self { name: name.to_owned(), inner, circuit: Mutex::new(Circuit::Closed { failures: 0 }) }
    }

    /// The current state of the circuit.
    pub(crate) fn state(&self) -> CircuitState {
        match *self.lock() {
            Circuit::Closed { .. } => CircuitState::Closed,
            Circuit::Open { until, .. } if Instant::now() < until => CircuitState::Open,
            Circuit::Open { .. } | Circuit::Trial { .. } => CircuitState::HalfOpen,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Circuit> {
        self.circuit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how long the circuit stays open; `None` lets the call through. The first call after the pause is the
    /// trial.
    fn open_for(&self, now: Instant) -> Option<Duration> {
        let mut circuit = self.lock();
        match *circuit {
            Circuit::Closed { .. } => None,
            Circuit::Open { until, .. } if now < until => Some(until - now),
            // A trial whose caller was stopped must not keep the circuit open forever.
            Circuit::Trial { begun, pause } if now < begun + pause => Some(begun + pause - now),
            Circuit::Open { pause, .. } | Circuit::Trial { pause, .. } => {
                *circuit = Circuit::Trial { begun: now, pause };
                None
            }
        }
    }

    fn record_success(&self) {
        let mut circuit = self.lock();
        if !matches!(*circuit, Circuit::Closed { .. }) {
            info!(model = self.name, "circuit closed: the model answers again");
        }
        *circuit = Circuit::Closed { failures: 0 };
    }

    fn record_failure(&self, problem: &str, now: Instant) {
        let mut circuit = self.lock();
        let pause = match *circuit {
            Circuit::Closed { failures } if failures + 1 < FAILURE_THRESHOLD => {
                *circuit = Circuit::Closed { failures: failures + 1 };
                return;
            }
            Circuit::Closed { .. } => MIN_PAUSE,
            // This call started before the circuit opened, so it carries no new information.
            Circuit::Open { .. } => return,
            Circuit::Trial { pause, .. } => (pause * 2).min(MAX_PAUSE),
        };
        warn!(
            model = self.name,
            pause_s = pause.as_secs(),
            "circuit opened: {problem}; calls to the model fail during the pause"
        );
        *circuit = Circuit::Open { until: now + pause, pause };
    }

    /// Returns an error while the circuit is open.
    fn admit(&self) -> Result<(), ModelError> {
        let Some(left) = self.open_for(Instant::now()) else { return Ok(()) };
        let problem = format!("its last calls failed, so the circuit is open for another {:.1} s", left.as_secs_f32());
        Err(ModelError::Unavailable { model: self.name.clone(), attempts: 0, problem })
    }

    fn record_outcome(&self, answer: &Result<ModelReply, ModelError>) {
        match answer {
            Err(ModelError::Unavailable { problem, .. }) => self.record_failure(problem, Instant::now()),
            Ok(_) | Err(_) => self.record_success(),
        }
    }
}

#[async_trait]
impl Model for CircuitBreaker {
    async fn complete(&self, request: ModelRequest) -> Result<ModelReply, ModelError> {
        self.admit()?;
        let answer = self.inner.complete(request).await;
        self.record_outcome(&answer);
        answer
    }

    async fn stream(&self, request: ModelRequest, deltas: DeltaSink) -> Result<ModelReply, ModelError> {
        self.admit()?;
        let answer = self.inner.stream(request, deltas).await;
        self.record_outcome(&answer);
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    #[derive(Default)]
    struct Server {
        up: AtomicBool,
        asked: AtomicU32,
    }

    #[async_trait]
    impl Model for Server {
        async fn complete(&self, _: ModelRequest) -> Result<ModelReply, ModelError> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            if self.up.load(Ordering::SeqCst) {
                return Ok(ModelReply::text("ok", "m"));
            }
            Err(ModelError::Unavailable { model: "m".into(), attempts: 1, problem: "down".into() })
        }
    }

    async fn ask(model: &CircuitBreaker) -> Result<ModelReply, ModelError> {
        model.complete(ModelRequest::new(Vec::new())).await
    }

    #[tokio::test]
    async fn a_dead_model_fails_at_once_and_a_success_closes_the_circuit() {
        let server = Arc::new(Server::default());
        let model = CircuitBreaker::new("m", Arc::clone(&server) as Arc<dyn Model>);
        for _ in 0..FAILURE_THRESHOLD + 10 {
            ask(&model).await.unwrap_err();
        }
        assert_eq!(server.asked.load(Ordering::SeqCst), FAILURE_THRESHOLD, "further calls do not reach the server");
        assert!(ask(&model).await.unwrap_err().to_string().contains("the circuit is open"));
        assert_eq!(model.state(), CircuitState::Open);
        // The pause is over, and the trial succeeds.
        *model.lock() = Circuit::Open { until: Instant::now(), pause: MIN_PAUSE };
        assert_eq!(model.state(), CircuitState::HalfOpen);
        server.up.store(true, Ordering::SeqCst);
        ask(&model).await.unwrap();
        assert_eq!(model.state(), CircuitState::Closed);
        assert!(matches!(*model.lock(), Circuit::Closed { failures: 0 }));
    }

    #[tokio::test]
    async fn streams_count_as_any_other_call() {
        let server = Arc::new(Server::default());
        let model = CircuitBreaker::new("m", Arc::clone(&server) as Arc<dyn Model>);
        let stream = async || model.stream(ModelRequest::new(Vec::new()), DeltaSink::unread()).await;
        for _ in 0..FAILURE_THRESHOLD + 10 {
            stream().await.unwrap_err();
        }
        assert_eq!(server.asked.load(Ordering::SeqCst), FAILURE_THRESHOLD);
        *model.lock() = Circuit::Open { until: Instant::now(), pause: MIN_PAUSE };
        server.up.store(true, Ordering::SeqCst);
        assert_eq!(stream().await.unwrap().content, "ok");
        assert!(matches!(*model.lock(), Circuit::Closed { failures: 0 }));
    }

    #[test]
    fn one_trial_at_a_time_and_a_failed_one_doubles_the_pause() {
        let model = CircuitBreaker::new("m", Arc::new(Server::default()));
        let now = Instant::now();
        *model.lock() = Circuit::Open { until: now, pause: MIN_PAUSE };
        assert_eq!(model.open_for(now), None, "the trial");
        assert!(model.open_for(now).is_some(), "other calls fail until the trial is over");
        model.record_failure("down", now);
        assert_eq!(model.open_for(now), Some(MIN_PAUSE * 2));
        assert_eq!(model.open_for(now + MIN_PAUSE * 2), None);
    }

    #[test]
    fn failures_with_successes_between_them_leave_the_circuit_closed() {
        let model = CircuitBreaker::new("m", Arc::new(Server::default()));
        for _ in 0..3 {
            (1..FAILURE_THRESHOLD).for_each(|_| model.record_failure("down", Instant::now()));
            model.record_success();
        }
        assert_eq!(model.open_for(Instant::now()), None);
    }
}
