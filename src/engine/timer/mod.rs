//! The scheduler: publishes due timers as jobs, wakes lanes, and does housekeeping.
//!
//! - [`scheduler`] takes part in the election; one process leads, the others stand by.
//! - `leadership` is the work of the leader: it reads due timers and publishes them.
//! - [`housekeeping`] wakes lanes that have work and no lease holder, and closes idle conversations. `expiry` deletes
//!   closed conversations and unused versions that have expired.

mod expiry;
pub mod housekeeping;
mod leadership;
pub mod scheduler;
