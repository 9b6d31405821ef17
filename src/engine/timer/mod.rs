//! Timers: [`Timer`] and its rules here, the elected [`scheduler`], whose [`term`] publishes what is due and does the
//! [`housekeeping`].

pub mod housekeeping;
pub mod scheduler;
mod term;
