//! Helpers that several tests share.
#![allow(dead_code, unreachable_pub)]

pub mod api;
pub mod backend;
pub mod connections;
pub mod designed_panic;
pub mod engine;
pub mod interceptor;
pub mod model_server;
pub mod model_stream;
pub mod mongod_way;
pub mod process;
pub mod replica_set;
pub mod script;
pub mod servers;

use std::future::Future;
use std::time::{Duration, Instant};
use tokio::time::MissedTickBehavior;

/// After this time, the caller of a call without a response counts as gone.
pub const GIVEN_UP: Duration = Duration::from_secs(1);

/// Result of a condition: `bool`, or an `Option` of the awaited value.
pub trait Condition {
    type Found;
    fn found(self) -> Option<Self::Found>;
}

impl Condition for bool {
    type Found = ();
    fn found(self) -> Option<()> {
        self.then_some(())
    }
}

impl<T> Condition for Option<T> {
    type Found = T;
    fn found(self) -> Self {
        self
    }
}

/// Waits until the condition holds. Returns `None` after `deadline`.
pub async fn within<C, F, A>(deadline: Duration, condition: C) -> Option<<A as Condition>::Found>
where
    C: FnMut() -> F,
    F: Future<Output = A>,
    A: Condition,
{
    polled(deadline, Duration::from_millis(10), condition).await
}

/// Like [`within`], with another interval between two checks.
pub async fn polled<C, F, A>(
    deadline: Duration,
    interval: Duration,
    mut condition: C,
) -> Option<<A as Condition>::Found>
where
    C: FnMut() -> F,
    F: Future<Output = A>,
    A: Condition,
{
    let begun = Instant::now();
    let mut look = tokio::time::interval(interval);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        if let Some(found) = condition().await.found() {
            return Some(found);
        }
        if begun.elapsed() >= deadline {
            return None;
        }
    }
}

/// Waits until the condition holds. After `deadline` it fails the test; `what` describes the condition.
pub async fn eventually<C, F, A>(deadline: Duration, what: &str, condition: C) -> <A as Condition>::Found
where
    C: FnMut() -> F,
    F: Future<Output = A>,
    A: Condition,
{
    within(deadline, condition).await.unwrap_or_else(|| panic!("not within {deadline:?}: {what}"))
}

/// Runs a task in the background until the test ends.
#[allow(clippy::disallowed_methods)]
pub fn background(task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(task);
}
