//! The contracts of the backends: the traits of the queue and of the store.
//!
//! - [`backup`]: the file that a backup is.
//! - [`queue`]: the trait [`Queue`](queue::Queue) for jobs, events and dead letters, and the types of its messages.
//! - [`store`]: the trait [`Store`](store::Store) for sessions, journals and definitions, its requests and results, and
//!   the code that both backends share.
//!
//! The crate `cluster` implements both traits on NATS and MongoDB, the crate `embedded` in one file.

pub mod backup;
pub mod queue;
pub mod store;
