//! The report of a benchmark, as a table and as JSON.

use super::conditions::Conditions;
use serde::Serialize;
use serde_json::{Map, Value};

/// A column of the table: heading, and name of the row's field.
pub(crate) type Column = (&'static str, &'static str);

/// The field of a row that is true if its figure keeps the required limit.
pub(super) const MET: &str = "met";

/// One measurement: the parameters and the figures by name.
pub type Row = Map<String, Value>;

/// All measurements of one command. Serializes to the JSON that `--json` prints.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Conditions of the measurements.
    pub environment: Conditions,
    /// The measurements.
    pub rows: Vec<Row>,
    /// Columns of the table.
    #[serde(skip)]
    pub columns: &'static [Column],
}

impl Report {
    /// The conditions as lines of text.
    pub fn conditions(&self) -> Vec<String> {
        self.environment.lines()
    }

    /// The figures that miss a required limit.
    pub fn missed(&self) -> Vec<String> {
        let missed = self.rows.iter().filter(|row| row.get(MET).is_some_and(|met| *met == Value::Bool(false)));
        missed.map(|row| cell(row.get("figure"))).collect()
    }

    /// The cells of a row in the table, in the order of the columns.
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

/// Formats a number with about three significant digits.
fn figure(number: f64) -> String {
    match number.abs() {
        large if large >= 100.0 => format!("{number:.0}"),
        medium if medium >= 10.0 => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}

/// Rounds to three digits after the decimal point.
pub(super) fn rounded(number: f64) -> Value {
    Value::from((number * 1_000.0).round() / 1_000.0)
}

/// Converts bytes to MiB.
pub(super) fn mib(bytes: u64) -> Value {
    rounded(bytes as f64 / (1024.0 * 1024.0))
}
