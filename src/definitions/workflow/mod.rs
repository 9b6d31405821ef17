//! Workflows: the file format, its checks, and the rules for templates, conditions and outputs. Running them is the
//! engine's part.
//!
//! - From file to definition: [`read`] loads files, [`reader`] and [`reader_dynamic`] parse a document into a
//!   [`definition`], and [`fields`] has the known fields. [`builder`] builds the same documents in code, and [`schema`]
//!   is the JSON Schema for editors.
//! - Checks: [`check`] verifies every name in templates and conditions with [`visible_names`], and
//!   [`runnable_registry`] every runnable and model.
//! - At run time: [`template`] and [`condition`] are evaluated in a [`scope`], and [`outputs`] collects the outputs of
//!   stages. [`node`] has the nodes of a dynamic workflow.
//! - [`graph`] has the workflows whose nodes form a graph: their definition, conditions, order and inputs.
//! - [`session_plan`] has the graphs that coordinator agents make, each with its session and its state.
//! - For people: [`structure`] describes a workflow as JSON or as a tree, and [`flowchart`] draws it.

pub mod builder;
pub mod check;
pub mod condition;
pub mod definition;
pub mod fields;
pub mod flowchart;
pub mod graph;
pub mod node;
pub mod outputs;
pub mod read;
pub mod reader;
pub(crate) mod reader_dynamic;
pub mod runnable_registry;
pub mod schema;
pub mod scope;
mod secrets;
pub mod session_plan;
pub mod structure;
pub mod template;
pub(crate) mod visible_names;
