//! Mutants: engines that break one promise, to show that the checker finds the violations. A wrapper around queue and
//! store changes the engine's behaviour.

mod queue;
mod store;

use super::process::Reach;
use super::run::Mutant;
use ::storage::queue::DeliveryToken;
use queue::WatchedQueue;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use store::MutantStore;

/// Acknowledges the messages of a commit before the commit.
pub const ACKNOWLEDGES_FIRST: Mutant = |backend| mutant(backend, Broken::Acknowledge);
/// Commits and renews under the session's current epoch, whichever the worker has.
pub const FILTERS_NO_EPOCH: Mutant = |backend| mutant(backend, Broken::Epoch);
/// Runs recorded steps again.
pub const IGNORES_RECORDS: Mutant = |backend| mutant(backend, Broken::Records);
/// Panics when a lease is renewed.
pub const CANNOT_RENEW: Mutant = |backend| mutant(backend, Broken::Renewal);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    Acknowledge,
    Epoch,
    Records,
    Renewal,
}

/// Pulled deliveries without an acknowledgement, by session and sequence.
type Pulled = Arc<Mutex<HashMap<String, Vec<(u64, DeliveryToken)>>>>;

fn mutant((queue, store): Reach, broken: Broken) -> Reach {
    let pulled = Pulled::default();
    let mutant = MutantStore { inner: store, queue: Arc::clone(&queue), pulled: Arc::clone(&pulled), broken };
    (Arc::new(WatchedQueue { inner: queue, pulled }), Arc::new(mutant))
}
