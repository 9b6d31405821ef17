//! JSON Schema of the workflow file, for editors. A test compares it with the [`fields`](super::fields) of the reader.

/// The JSON Schema, as `turnwheel workflows schema` prints it.
pub const SCHEMA: &str = include_str!("../../../docs/workflow.schema.json");
