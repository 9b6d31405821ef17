//! The engine's part of an authoring dialogue. The stages are the machine of [`decisions::authoring`].
//!
//! - `drive`: takes a dialogue through its stages until it waits for the user. `ask`: the questions to the model.
//!   `limit`: the time that a stage may take.
//! - `speech`: shows a text while the model writes it. `reply_text`: reads it out of the growing answer.
//! - [`ports`]: what the driver needs of its surroundings: where states and events go, prompts, documents.
//! - [`catalogue`]: what is installed and can be used by an artefact.
//! - [`prompt`]: the request to the model for each of its six answers.
//!
//! The driver journals what a stage pays for: the model's answers, the rehearsal, the publication. Everything else is in
//! the state, which is saved before its events are shown.

mod ask;
pub mod catalogue;
mod drive;
mod limit;
pub mod ports;
pub mod prompt;
mod reply_text;
mod speech;
#[cfg(test)]
mod tests;

pub use drive::Driver;
pub use ports::{Interrupted, Outlet, Workshop};
pub use speech::Speech;
