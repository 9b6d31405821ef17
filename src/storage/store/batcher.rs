//! Groups concurrent calls into bulk commands (group commit). Each caller gets its own result.
//!
//! An idle group adds no delay: the first caller's command starts immediately. Callers that arrive while a command is
//! in flight form the next one. The next command starts before the first has finished only when it is large.
//!
//! When a whole command is refused, the group runs its items one by one, so that an invalid item fails only its own
//! caller.

use super::records::{Acquire, Commit, Record};
use super::{Result, StoreError};
use base::metrics::{metrics, observe_items};
use base::tasks::{OnPanic, Tasks};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use prometheus::Histogram;
use serde_json::Value;
use std::future::Future;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use types::run::RunRecord;
use types::step::StepRecord;

/// The largest number of items in one command.
const MAX_ITEMS: usize = 256;
/// The smallest number of items that start a second command while another one is in flight.
const MIN_CONCURRENT_BATCH: usize = 64;
/// The number of queued items. Further callers wait for a free place.
const MAX_WAITING: usize = 8_192;

/// The approximate size limit in bytes of a command with more than one item. MongoDB's limit is 48 MB.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// An item that a group can put into a bulk command.
pub trait EstimatedSize {
    /// The approximate size of the item in a command, in bytes. Only the parts that a user or a model can make large
    /// are counted.
    fn bytes(&self) -> usize;
}

impl EstimatedSize for Acquire {
    fn bytes(&self) -> usize {
        1_024
    }
}

impl EstimatedSize for String {
    fn bytes(&self) -> usize {
        self.len()
    }
}

impl EstimatedSize for Record {
    fn bytes(&self) -> usize {
        self.steps.iter().map(|step| step_bytes(step)).sum()
    }
}

impl EstimatedSize for RunRecord {
    fn bytes(&self) -> usize {
        let error = self.error.as_ref().map_or(0, |error| error.cause.len());
        let params: usize = self.params.iter().flatten().map(|(name, value)| name.len() + value_bytes(value)).sum();
        1_024 + self.query.len() + params + self.output.as_ref().map_or(0, String::len) + error
    }
}

impl EstimatedSize for Commit {
    fn bytes(&self) -> usize {
        let Some(change) = &self.change else { return 512 };
        let said: usize = change.history.iter().map(|entry| entry.text.len()).sum();
        let steps: usize = change.steps.iter().map(|step| step_bytes(step)).sum();
        let published: usize = change.outbox.iter().map(|event| 256 + event.payload.len()).sum();
        let run = change.run.as_ref().map_or(0, RunRecord::bytes);
        // Twice the history, since the job in the turn's record repeats the user's text.
        2_048 + 2 * said + steps + published + run
    }
}

fn step_bytes(step: &StepRecord) -> usize {
    512 + value_bytes(&step.output)
}

fn value_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(value_bytes).sum(),
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + value_bytes(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
    }
}

struct Item<I, O> {
    asked: I,
    answer: oneshot::Sender<Result<O>>,
}

/// A handle to a background task that groups concurrent calls. Cheap to clone.
pub struct Batcher<I, O> {
    sender: mpsc::Sender<Item<I, O>>,
}

impl<I, O> Clone for Batcher<I, O> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone() }
    }
}

impl<I: EstimatedSize + Clone + Send + Sync + 'static, O: Send + 'static> Batcher<I, O> {
    /// Starts the background task of a group, which runs up to `in_flight` commands concurrently. `run` must return one
    /// outcome for each item, in the order of the items. An error of `run` reaches every caller of the command. `name`
    /// labels the task and its metric.
    pub fn start<F, Fut>(tasks: &Tasks, name: &'static str, in_flight: usize, run: F) -> Self
    where
        F: Fn(Arc<Vec<I>>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<Result<O>>>> + Send + 'static,
    {
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        let server = Server { receiver, waiting: Vec::new(), in_flight, sizes: metrics().batch_size(name), run };
        // A panic ends the process: without this task, no command of this kind would ever run again.
        tasks.spawn(name, OnPanic::Shutdown, server.serve(tasks.stop_token()));
        Self { sender }
    }

    /// Runs one item as part of a bulk command and returns its result. Fails with `Unavailable` when the process is
    /// shutting down. When the caller drops the future, the item may still run.
    pub async fn submit(&self, asked: I) -> Result<O> {
        let ended = || StoreError::unavailable("the store is shutting down");
        let (answer, answered) = oneshot::channel();
        self.sender.send(Item { asked, answer }).await.map_err(|_| ended())?;
        answered.await.map_err(|_| ended())?
    }
}

/// The background task, which forms commands from the waiting items.
struct Server<I, O, F> {
    receiver: mpsc::Receiver<Item<I, O>>,
    waiting: Vec<Item<I, O>>,
    in_flight: usize,
    sizes: Histogram,
    run: F,
}

impl<I, O, F, Fut> Server<I, O, F>
where
    I: EstimatedSize + Clone,
    F: Fn(Arc<Vec<I>>) -> Fut,
    Fut: Future<Output = Result<Vec<Result<O>>>>,
{
    async fn serve(mut self, stop: CancellationToken) {
        let mut commands = FuturesUnordered::new();
        loop {
            while self.can_flush(commands.len()) {
                let count = batch_len(&self.waiting);
                observe_items(&self.sizes, count);
                let (asked, answers) = self.waiting.drain(..count).map(|item| (item.asked, item.answer)).unzip();
                commands.push(answer(&self.run, asked, answers));
            }
            let (room, idle) = (MAX_ITEMS.saturating_sub(self.waiting.len()), commands.is_empty());
            tokio::select! {
                biased;
                count = self.receiver.recv_many(&mut self.waiting, room), if room > 0 => {
                    if count == 0 && idle {
                        return;
                    }
                    if count == 0 {
                        // All handles are dropped, so no item will follow. Finish the commands in flight.
                        while commands.next().await.is_some() {}
                    }
                }
                Some(()) = commands.next(), if !idle => {}
                () = stop.cancelled(), if idle => return,
            }
        }
    }

    /// True when a command is to start now. While another command is in flight, a small batch waits: it grows until
    /// that command has finished.
    fn can_flush(&self, running: usize) -> bool {
        let enough = if running == 0 { 1 } else { MIN_CONCURRENT_BATCH };
        running < self.in_flight && self.waiting.len() >= enough
    }
}

/// Runs one command and sends each caller its outcome.
async fn answer<I, O, F, Fut>(run: &F, asked: Vec<I>, answers: Vec<oneshot::Sender<Result<O>>>)
where
    I: Clone,
    F: Fn(Arc<Vec<I>>) -> Fut,
    Fut: Future<Output = Result<Vec<Result<O>>>>,
{
    let outcomes = outcomes(run, asked).await;
    // A send fails when the caller has dropped its future.
    outcomes.into_iter().zip(answers).for_each(|(outcome, answer)| drop(answer.send(outcome)));
}

/// The number of items at the front that fit into one command, at least one.
fn batch_len<I: EstimatedSize, O>(items: &[Item<I, O>]) -> usize {
    let mut bytes = 0;
    let fits = |item: &&Item<I, O>| {
        bytes += item.asked.bytes();
        bytes <= MAX_BYTES
    };
    items.iter().take(MAX_ITEMS).take_while(fits).count().max(1)
}

/// Runs the items as one command, and one by one if the command is refused. Returns one outcome for each item.
async fn outcomes<I, O, F, Fut>(run: &F, asked: Vec<I>) -> Vec<Result<O>>
where
    I: Clone,
    F: Fn(Arc<Vec<I>>) -> Fut,
    Fut: Future<Output = Result<Vec<Result<O>>>>,
{
    let asked = Arc::new(asked);
    let error = match run(Arc::clone(&asked)).await {
        Ok(outcomes) => return outcomes,
        Err(error) => error,
    };
    if asked.len() == 1 || matches!(error, StoreError::Unavailable(_)) {
        return asked.iter().map(|_| Err(error.clone())).collect();
    }
    let mut outcomes = Vec::with_capacity(asked.len());
    for one in asked.iter() {
        let outcome = run(Arc::new(vec![one.clone()])).await.map(|mut outcomes| outcomes.pop());
        outcomes.push(outcome.and_then(|outcome| outcome.unwrap_or_else(|| Err(error.clone()))));
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::join_all;
    use std::sync::Mutex as Sync;

    async fn run(asked: Arc<Vec<String>>) -> Result<Vec<Result<usize>>> {
        if asked.iter().any(|text| text == "bad") {
            return Err(StoreError::refused("bad"));
        }
        Ok(asked.iter().map(|text| Ok(text.len())).collect())
    }

    #[tokio::test]
    async fn one_refused_item_is_nobody_else_s_loss() {
        let asked: Vec<String> = ["a", "bad", "abc"].map(str::to_owned).to_vec();
        let outcomes = outcomes(&run, asked).await;
        assert!(matches!(outcomes[..], [Ok(1), Err(StoreError::Refused(_)), Ok(3)]), "{outcomes:?}");
    }

    #[tokio::test]
    async fn a_group_that_panics_ends_its_process() {
        let tasks = Tasks::new();
        let group: Batcher<String, usize> =
            Batcher::start(&tasks, "test", 1, async |_: Arc<Vec<String>>| panic!("by plan") as Result<_>);
        let refused = group.submit("a".into()).await;
        assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
        tasks.stop_token().cancelled().await;
        assert_eq!(tasks.failure().as_deref(), Some("the background task `test` panicked: by plan"));
    }

    #[tokio::test]
    async fn what_waits_goes_together_up_to_the_bounds_of_one_command() {
        let sizes = Arc::new(Sync::new(Vec::new()));
        let (tasks, seen) = (Tasks::new(), Arc::clone(&sizes));
        let group: Batcher<String, usize> = Batcher::start(&tasks, "test", 1, move |asked: Arc<Vec<String>>| {
            seen.lock().unwrap().push((asked.len(), asked.iter().map(String::len).sum::<usize>()));
            run(asked)
        });
        let large = "x".repeat(MAX_BYTES / 3);
        let asked = (0..MAX_ITEMS + 50).map(|at| if at < 10 { large.clone() } else { "y".into() });
        let answers = join_all(asked.map(|text| group.submit(text))).await;
        assert!(answers.iter().all(Result::is_ok));
        let sizes = sizes.lock().unwrap().clone();
        assert_eq!(sizes.iter().map(|size| size.0).sum::<usize>(), MAX_ITEMS + 50);
        assert!(sizes.iter().all(|size| size.0 <= MAX_ITEMS && size.1 <= MAX_BYTES), "{sizes:?}");
        assert!(sizes.len() < 20, "the items share commands: {sizes:?}");
    }
}
