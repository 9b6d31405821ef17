//! What a benchmark found, for people and for programs.

use super::conditions::Conditions;
use serde::Serialize;
use serde_json::{Map, Value};

/// A column of the table: its heading, and the row's field.
pub type Column = (&'static str, &'static str);

/// One measurement: what was asked and what came of it.
pub type Row = Map<String, Value>;

/// All measurements of one command.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Under which conditions they were made.
    pub environment: Conditions,
    /// The measurements.
    pub rows: Vec<Row>,
    /// The fields that the table shows.
    #[serde(skip)]
    pub columns: &'static [Column],
}

impl Report {
    /// The environment as lines of text.
    pub fn conditions(&self) -> Vec<String> {
        self.environment.lines()
    }

    /// What the table shows of a row.
    pub fn cells(&self, row: &Row) -> Vec<String> {
        self.columns.iter().map(|(_, field)| cell(row.get(*field))).collect()
    }
}

fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) if number.is_f64() => figure(number.as_f64().unwrap_or_default()),
        Some(other) => other.to_string(),
    }
}

/// A number with about three digits that count.
fn figure(number: f64) -> String {
    match number.abs() {
        large if large >= 100.0 => format!("{number:.0}"),
        medium if medium >= 10.0 => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}

/// Three digits after the point are all that a figure is good for.
pub(super) fn rounded(number: f64) -> Value {
    Value::from((number * 1_000.0).round() / 1_000.0)
}

/// Bytes as MiB.
pub(super) fn mib(bytes: u64) -> Value {
    rounded(bytes as f64 / (1024.0 * 1024.0))
}
