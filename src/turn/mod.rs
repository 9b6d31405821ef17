//! (in the making)
pub mod decision;
