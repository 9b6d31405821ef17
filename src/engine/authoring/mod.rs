//! The engine's part of an authoring dialogue. The stages are the machine of [`decisions::authoring`].
//!
//! - [`catalogue`]: what is installed and can be used by an artefact.
//! - [`prompt`]: the request to the model for each of its six answers.

pub mod catalogue;
pub mod prompt;
