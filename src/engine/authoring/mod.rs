//! The engine's part of an authoring dialogue. The stages are the machine of [`decisions::authoring`].
//!
//! - `drive`: takes a dialogue through its stages until it waits for the user. `ask`: the questions to the model.
//!   `limit`: the time that a stage may take.
//! - `speech`: shows a text while the model writes it. `reply_text`: reads it out of the growing answer.
//! - [`ports`]: what the driver needs of its surroundings: where states and events go, prompts, documents.
//! - [`installed`]: what the stages work with in this installation.
//! - [`workbench`](crate::workbench): what the making of documents needs of a process. A gateway has one, too.
//! - [`catalogue`]: what is installed and can be used by an artefact.
//! - [`prompt`]: the request to the model for each of its six answers.
//! - [`artifact`]: the document that a dialogue begins with, and the model's answer as a document that is kept as a draft.
//! - [`checks`]: the checks and the rehearsal of a draft. [`secrets`]: the rule for secrets in it. [`failing_calls`]: the
//!   test in which every call fails.
//! - [`publication`]: puts a draft into use.
//!
//! The driver journals what a stage pays for: the model's answers, the rehearsal, the publication. Everything else is in
//! the state, which is saved before its events are shown.

pub mod artifact;
mod ask;
pub mod catalogue;
pub mod checks;
mod drive;
pub mod failing_calls;
pub mod installed;
mod limit;
pub mod ports;
pub mod prompt;
pub mod publication;
mod reply_text;
pub mod secrets;
mod speech;
#[cfg(test)]
mod tests;

pub use crate::workbench::Workbench;
pub use drive::Driver;
pub use installed::{AGENT_ID, Installed, Unsaved, day_meter, limited_models};
pub use ports::{Interrupted, Outlet, Workshop};
pub use speech::Speech;
