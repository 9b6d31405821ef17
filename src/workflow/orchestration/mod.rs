//! Orchestration: workflows of nested stages, each a function from text to text (REQUIREMENTS.md, group O).
//!
//! A [`definition`] says what runs; [`template`]s make inputs, [`condition`]s choose, both over a [`scope`], which
//! [`outputs`] keeps for a pipeline or loop. [`event`] is what a run tells, [`outcome`] what comes of it.

pub mod condition;
pub mod definition;
pub mod event;
pub mod outcome;
pub mod outputs;
pub mod scope;
pub mod template;
