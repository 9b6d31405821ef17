//! Grouping: what concurrent callers ask for becomes one bulk command, and each gets its own answer.
//!
//! An idle group adds no delay: the first caller goes at once, those that arrive while it is in flight form the next one.

use super::{Result, StoreError};
use crate::tasks::{OnPanic, Tasks};
use std::future::Future;
use std::sync::Arc;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// The most items of one command.
const MAX_ITEMS: usize = 256;
/// Items that may wait; further callers wait for a place.
const MAX_WAITING: usize = 8_192;

struct Item<I, O> {
    asked: I,
    answer: oneshot::Sender<Result<O>>,
}

/// See the module. Cheap to clone.
pub(super) struct Group<I, O> {
    sender: mpsc::Sender<Item<I, O>>,
}

impl<I, O> Clone for Group<I, O> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone() }
    }
}

impl<I: Send + 'static, O: Send + 'static> Group<I, O> {
    /// A group whose commands are made by `run`, `in_flight` of them at once. `run` answers one outcome for each item, in
    /// order; its error reaches every caller of the command.
    pub(super) fn start<F, Fut>(tasks: &Tasks, name: &'static str, in_flight: usize, run: F) -> Self
    where
        F: Fn(Vec<I>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<Result<O>>>> + Send + 'static,
    {
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        let (receiver, run) = (Arc::new(Mutex::new(receiver)), Arc::new(run));
        for _ in 0..in_flight {
            let serve = serve(Arc::clone(&receiver), Arc::clone(&run), tasks.stop_token());
            tasks.spawn(name, OnPanic::Log, serve);
        }
        Self { sender }
    }

    /// Has one item handled with whatever else is waiting.
    pub(super) async fn submit(&self, asked: I) -> Result<O> {
        let ended = || StoreError::Unavailable("the store is shutting down".into());
        let (answer, answered) = oneshot::channel();
        self.sender.send(Item { asked, answer }).await.map_err(|_| ended())?;
        answered.await.map_err(|_| ended())?
    }
}

async fn serve<I, O, F, Fut>(receiver: Arc<Mutex<mpsc::Receiver<Item<I, O>>>>, run: Arc<F>, stop: CancellationToken)
where
    F: Fn(Vec<I>) -> Fut,
    Fut: Future<Output = Result<Vec<Result<O>>>>,
{
    loop {
        let mut items = Vec::new();
        {
            let mut receiver = receiver.lock().await;
            tokio::select! {
                biased;
                count = receiver.recv_many(&mut items, MAX_ITEMS) => if count == 0 { return },
                () = stop.cancelled() => return,
            }
        }
        let (asked, answers): (Vec<_>, Vec<_>) = items.into_iter().map(|item| (item.asked, item.answer)).unzip();
        match run(asked).await {
            // A caller that is gone is nobody's loss.
            Ok(outcomes) => outcomes.into_iter().zip(answers).for_each(|(outcome, answer)| drop(answer.send(outcome))),
            Err(error) => answers.into_iter().for_each(|answer| drop(answer.send(Err(error.clone())))),
        }
    }
}
