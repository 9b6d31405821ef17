//! Grouping: what concurrent callers ask for becomes one bulk command, and each gets its own answer.
//!
//! An idle group adds no delay: the first caller goes at once, those that arrive while it is in flight form the next one,
//! which goes beside it only when it is large.
//! A command that is refused as a whole is taken apart, so that one bad item is nobody else's loss.

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

/// The most items of one command.
const MAX_ITEMS: usize = 256;
/// So many make a command of their own while another one is under way.
const ENOUGH: usize = 64;
/// Items that may wait; further callers wait for a place.
const MAX_WAITING: usize = 8_192;

/// The most bytes of one command that holds more than one item, roughly; MongoDB takes 48 MB.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// Something to be grouped.
pub trait Weigh {
    /// Its size in a command, roughly: what a user or a model may have made large counts.
    fn bytes(&self) -> usize;
}

impl Weigh for Acquire {
    fn bytes(&self) -> usize {
        1_024
    }
}

impl Weigh for String {
    fn bytes(&self) -> usize {
        self.len()
    }
}

impl Weigh for Record {
    fn bytes(&self) -> usize {
        self.steps.iter().map(|step| step_bytes(step)).sum()
    }
}

impl Weigh for RunRecord {
    fn bytes(&self) -> usize {
        let error = self.error.as_ref().map_or(0, |error| error.cause.len());
        1_024 + self.query.len() + self.output.as_ref().map_or(0, String::len) + error
    }
}

impl Weigh for Commit {
    fn bytes(&self) -> usize {
        let Some(change) = &self.change else { return 512 };
        let said: usize = change.history.iter().map(|entry| entry.text.len()).sum();
        let steps: usize = change.steps.iter().map(|step| step_bytes(step)).sum();
        let published: usize = change.outbox.iter().map(|event| 256 + event.payload.len()).sum();
        let run = change.run.as_ref().map_or(0, RunRecord::bytes);
        // The job of the turn's record repeats the user's text.
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

/// See the module. Cheap to clone.
pub struct Group<I, O> {
    sender: mpsc::Sender<Item<I, O>>,
}

impl<I, O> Clone for Group<I, O> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone() }
    }
}

impl<I: Weigh + Clone + Send + Sync + 'static, O: Send + 'static> Group<I, O> {
    /// A group whose commands are made by `run`, `in_flight` of them at once. `run` answers one outcome for each item, in
    /// order; its error reaches every caller of the command.
    pub fn start<F, Fut>(tasks: &Tasks, name: &'static str, in_flight: usize, run: F) -> Self
    where
        F: Fn(Arc<Vec<I>>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<Result<O>>>> + Send + 'static,
    {
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        let server = Server { receiver, waiting: Vec::new(), in_flight, sizes: metrics().batch_size(name), run };
        // Without it no command of this kind is ever sent again.
        tasks.spawn(name, OnPanic::Shutdown, server.serve(tasks.stop_token()));
        Self { sender }
    }

    /// Has one item handled with whatever else is waiting.
    pub async fn submit(&self, asked: I) -> Result<O> {
        let ended = || StoreError::Unavailable("the store is shutting down".into());
        let (answer, answered) = oneshot::channel();
        self.sender.send(Item { asked, answer }).await.map_err(|_| ended())?;
        answered.await.map_err(|_| ended())?
    }
}

/// What makes commands of what waits.
struct Server<I, O, F> {
    receiver: mpsc::Receiver<Item<I, O>>,
    waiting: Vec<Item<I, O>>,
    in_flight: usize,
    sizes: Histogram,
    run: F,
}

impl<I, O, F, Fut> Server<I, O, F>
where
    I: Weigh + Clone,
    F: Fn(Arc<Vec<I>>) -> Fut,
    Fut: Future<Output = Result<Vec<Result<O>>>>,
{
    async fn serve(mut self, stop: CancellationToken) {
        let mut commands = FuturesUnordered::new();
        loop {
            while self.may_go(commands.len()) {
                let count = fitting(&self.waiting);
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
                        // Nobody is left to ask; those who have asked are answered.
                        while commands.next().await.is_some() {}
                    }
                }
                Some(()) = commands.next(), if !idle => {}
                () = stop.cancelled(), if idle => return,
            }
        }
    }

    /// True when a command is to be made of what waits. One that goes beside another one has to be worth it: what waits for
    /// the other one to end would only be more.
    fn may_go(&self, running: usize) -> bool {
        let enough = if running == 0 { 1 } else { ENOUGH };
        running < self.in_flight && self.waiting.len() >= enough
    }
}

/// Runs one command, and tells those who wait for it.
async fn answer<I, O, F, Fut>(run: &F, asked: Vec<I>, answers: Vec<oneshot::Sender<Result<O>>>)
where
    I: Clone,
    F: Fn(Arc<Vec<I>>) -> Fut,
    Fut: Future<Output = Result<Vec<Result<O>>>>,
{
    let outcomes = outcomes(run, asked).await;
    // A caller that is gone is nobody's loss.
    outcomes.into_iter().zip(answers).for_each(|(outcome, answer)| drop(answer.send(outcome)));
}

/// How many of the items one command can hold; one at least.
fn fitting<I: Weigh, O>(items: &[Item<I, O>]) -> usize {
    let mut bytes = 0;
    let fits = |item: &&Item<I, O>| {
        bytes += item.asked.bytes();
        bytes <= MAX_BYTES
    };
    items.iter().take(MAX_ITEMS).take_while(fits).count().max(1)
}

/// One outcome for each item.
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
            return Err(StoreError::Refused("bad".into()));
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
        let group: Group<String, usize> =
            Group::start(&tasks, "test", 1, async |_: Arc<Vec<String>>| panic!("by plan") as Result<_>);
        let refused = group.submit("a".into()).await;
        assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
        tasks.stop_token().cancelled().await;
        assert_eq!(tasks.failure().as_deref(), Some("the background task `test` panicked: by plan"));
    }

    #[tokio::test]
    async fn what_waits_goes_together_up_to_the_bounds_of_one_command() {
        let sizes = Arc::new(Sync::new(Vec::new()));
        let (tasks, seen) = (Tasks::new(), Arc::clone(&sizes));
        let group: Group<String, usize> = Group::start(&tasks, "test", 1, move |asked: Arc<Vec<String>>| {
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
        assert!(sizes.len() < 20, "they go together: {sizes:?}");
    }
}
