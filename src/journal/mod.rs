//! (in the making)
pub mod record;
pub use record::{StepRecord, Tokens};
