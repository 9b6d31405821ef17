//! The engine's part of an authoring dialogue. The stages are the machine of [`decisions::authoring`].
//!
//! - [`workbench`](crate::workbench): what the making of documents needs of a process. A gateway has one, too.
//! - [`catalogue`]: what is installed and can be used by an artefact.
//! - [`artifact`]: the document that a dialogue begins with, and the model's answer as a document that is kept as a draft.
//! - [`checks`]: the checks and the rehearsal of a draft. [`secrets`]: the rule for secrets in it. [`failing_calls`]: the
//!   test in which every call fails.
//! - [`publication`]: puts a draft into use.

pub mod artifact;
pub mod catalogue;
pub mod checks;
pub mod failing_calls;
pub mod publication;
pub mod secrets;

pub use crate::workbench::Workbench;
