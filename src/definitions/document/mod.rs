//! YAML and JSON files, independent of their content: [`mod@file`] reads them, [`finding`] describes the problems in a
//! file, [`positions`] maps a problem's path to its line and column, and [`mod@yaml`] writes a document.

pub mod file;
pub mod finding;
pub mod positions;
pub(crate) mod wording;
pub mod yaml;

pub use file::DocumentError;
pub use finding::{Finding, Report};
pub use positions::{Position, Positions};
