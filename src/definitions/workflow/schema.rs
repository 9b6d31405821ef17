//! The workflow file as a JSON Schema, for editors. A test holds it to the reader's [`fields`](super::fields).

/// The schema.
pub const SCHEMA: &str = include_str!("../../../docs/workflow.schema.json");
