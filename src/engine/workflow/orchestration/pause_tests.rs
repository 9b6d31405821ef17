//! Tests of the pause between attempts: a repeated run does not pause again.

use super::ground::Ground;
use crate::workflow::{FlowContext, FlowError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const RETRIED: &str = "
type: pipeline
id: w
stages:
  - {id: a, runnable: third_time, input: '{query}', retry: {max_attempts: 3, backoff: 400ms}}
  - {id: b, runnable: echo, input: '{a}'}
";

#[tokio::test]
async fn a_repeated_run_does_not_pause_again() {
    let tries = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&tries);
    let mut ground = Ground::new(&[RETRIED]);
    ground.flows = ground.flows.with("third_time", move |context: FlowContext| {
        let counted = Arc::clone(&counted);
        async move {
            let attempt = async |_| match counted.fetch_add(1, Ordering::SeqCst) {
                0 | 1 => Err("not yet".to_owned()),
                _ => Ok(context.input.clone()),
            };
            context.step("try", "x", attempt).await.map_err(FlowError::failed)
        }
    });
    let begun = Instant::now();
    assert_eq!(ground.output("w", "q").await, "<q>");
    assert!(begun.elapsed() >= Duration::from_millis(1_200), "pauses of 0.4 s and 0.8 s");
    let begun = Instant::now();
    assert_eq!(ground.output("w", "q").await, "<q>");
    assert!(begun.elapsed() < Duration::from_millis(1_000), "{:?}", begun.elapsed());
    assert_eq!(tries.load(Ordering::SeqCst), 3);
}
