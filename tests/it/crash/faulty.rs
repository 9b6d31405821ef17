//! Queue and store with faults: each call goes through a [`Wire`](super::wire::Wire).

mod queue;
mod store;

pub use queue::FaultyQueue;
pub use store::FaultyStore;
