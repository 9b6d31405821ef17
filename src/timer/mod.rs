//! Timers: [`Timer`] and its rules here, the elected [`scheduler`], whose [`term`] publishes what is due and does the
//! [`housekeeping`].

pub mod housekeeping;
pub mod record;
pub mod scheduler;
mod term;

pub use record::{MAX_TIMER_BYTES, MAX_TIMERS, NewTimer, Timer, timer_id};
