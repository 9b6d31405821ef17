//! The embedded backend: queue and store in one file of one process, for `turnwheel dev` and for tests.
//!
//! - [`store`]: the file with its writer thread and tables, and the store in it.
//! - [`queue`]: the queue in the same file.
//! - [`backup`]: backups of a file that no process uses, and their restoration.

pub mod backup;
pub mod queue;
pub mod store;
