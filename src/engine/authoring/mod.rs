//! The engine's part of an authoring dialogue. The stages are the machine of [`decisions::authoring`].
//!
//! - [`catalogue`]: what is installed and can be used by an artefact.
//! - [`ports`]: what the driver needs of its surroundings: where states and events go, prompts, documents.

pub mod catalogue;
pub mod ports;
