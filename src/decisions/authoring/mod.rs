//! The stages of an authoring dialogue, as a state machine over the stored state. Pure code: the driver asks the model,
//! checks documents and publishes, and passes the results to the machine.
//!
//! A driver calls [`begin`] with a message. Until [`next`] returns [`Next::Wait`], it performs the returned step, and
//! passes the result to [`advance`], or a failure to [`fault`]. After each call it saves the state, and then publishes
//! the events in `turn.events`.
//!
//! - [`answer`]: the model's answers in each stage. [`schema`]: the JSON Schemas of these answers.
//! - `machine` and `entry`: the transitions. `choice`: finds the chosen alternative. `recorder`: the events.
//! - `relay`: applies the events of an author on another server.
//! - [`words`]: the engine's own texts, in Chinese and English.

pub mod answer;
mod choice;
mod entry;
mod machine;
mod recorder;
mod relay;
pub mod schema;
pub mod words;

pub use answer::{Question, Unusable};
pub use entry::{begin, fault, go_on, leave};
pub use machine::{Checked, Input, NewDraft, Next, Publication, advance, next};
pub use recorder::pending_actions;
pub use recorder::workflow_id;
pub use relay::{Relayed, relay};

#[cfg(test)]
mod tests;

/// How often a document may fail its checks before the dialogue returns to the requirements.
pub const MAX_LOOPS: u32 = 3;
/// How often the same required gap may be found before the dialogue reports that it cannot be closed.
pub const MAX_GAP_ROUNDS: u32 = 3;
/// The largest number of questions in one message.
pub const MAX_QUESTIONS: usize = 5;
