//! TODO

pub mod builder;
pub mod check;
pub mod condition;
pub mod definition;
pub mod fields;
pub mod flowchart;
pub mod known;
pub mod names;
pub mod node;
pub mod outputs;
pub mod read;
pub mod reader;
pub mod reader_dynamic;
pub mod schema;
pub mod scope;
pub mod structure;
pub mod template;
