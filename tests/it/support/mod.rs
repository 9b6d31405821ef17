//! What several tests share. Not every test uses all of it.
#![allow(dead_code, unreachable_pub)]

pub mod api;
pub mod backend;
pub mod engine;
pub mod model_server;
pub mod process;
pub mod script;
pub mod servers;

use std::future::Future;
use std::time::{Duration, Instant};

/// Waits until `check` answers, and fails the test after `deadline`.
pub async fn eventually<T, F, Fut>(deadline: Duration, what: &str, mut check: F) -> T
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Option<T>>,
{
    let begun = Instant::now();
    let mut look = tokio::time::interval(Duration::from_millis(10));
    loop {
        look.tick().await;
        if let Some(found) = check().await {
            return found;
        }
        assert!(begun.elapsed() < deadline, "not within {deadline:?}: {what}");
    }
}

/// Runs something beside the test, until the test ends.
#[allow(clippy::disallowed_methods)]
pub fn background(task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(task);
}
