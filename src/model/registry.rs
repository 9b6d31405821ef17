//! (in the making)
/// Models by name.
pub struct Models;
