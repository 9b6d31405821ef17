//! Files that describe agents and workflows, before it is known what they say: reading them in [`mod@file`], what is wrong with
//! them in [`finding`], and where that stands in [`places`].

pub mod file;
pub mod finding;
pub mod places;

pub use file::DocumentError;
pub use finding::{Finding, Report};
pub use places::{Place, Places};
