//! Definitions: agents, their knowledge, and workflows, from the author's file to a checked record. No store, no queue.
//!
//! [`document`] reads YAML and JSON files and locates problems in them. [`mod@difference`] compares two documents. [`agent`] reads and checks agent files.
//! [`coordinator`] has the limits of a coordinator's decisions.
//! [`knowledge`] reads the text files that an agent answers from, and splits them into passages. [`workflow`] reads and
//! checks workflow files, builds workflows in code, and has the rules for their templates, conditions and outputs.

pub mod agent;
pub mod coordinator;
pub mod difference;
pub mod document;
pub mod knowledge;
pub mod workflow;
