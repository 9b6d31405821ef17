//! The engine's part of an authoring dialogue. The stages are the state machine of [`decisions::authoring`].
//!
//! - `drive`: drives a dialogue through its stages until it waits for the user. `ask`: asks the model. `limit`: the
//!   time limit of a stage.
//! - `relay`: a dialogue that an authoring agent on another server leads. [`carried`]: the state in calls to it.
//! - `speech`: publishes a text while the model writes it. `reply_text`: parses the text from the incomplete answer.
//! - [`ports`]: the interfaces that the driver uses: where states and events go, prompts, documents.
//! - [`kept`]: reads the state of a dialogue; a damaged or missing one is repaired.
//! - [`installed`]: the implementation of these interfaces for this installation.
//! - [`workbench`](crate::workbench): the parts of a process that authoring uses. A gateway has one, too.
//! - [`catalogue`]: the installed items that an artefact can use.
//! - [`prompt`]: the request to the model for each of its six answers.
//! - [`artifact`]: the source of a dialogue, and the model's answer as a document that is stored as a draft.
//! - [`checks`]: the checks and the rehearsal of a draft. [`secrets`]: the rule for secrets in it. [`failing_calls`]:
//!   the test in which every call fails.
//! - [`publication`]: puts a draft into use.
//!
//! The driver records the expensive results in the journal: the model's answers, the rehearsal, the publication. The
//! rest is in the state, which is saved before its events are published.

pub mod artifact;
mod ask;
pub mod carried;
pub mod catalogue;
pub mod checks;
mod drive;
pub mod failing_calls;
pub mod installed;
pub mod kept;
mod limit;
pub mod ports;
pub mod prompt;
pub mod publication;
mod relay;
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
