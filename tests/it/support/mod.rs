//! What tests share.

use std::future::Future;
use std::time::{Duration, Instant};

/// What a condition may answer: `bool`, or `Option` of what was waited for.
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
    fn found(self) -> Option<T> {
        self
    }
}

/// Asks until the condition holds; panics when it does not within `deadline`.
pub async fn eventually<C, F, A>(deadline: Duration, mut condition: C) -> <A as Condition>::Found
where
    C: FnMut() -> F,
    F: Future<Output = A>,
    A: Condition,
{
    let start = Instant::now();
    loop {
        if let Some(found) = condition().await.found() {
            return found;
        }
        assert!(start.elapsed() < deadline, "what was waited for did not happen within {deadline:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
