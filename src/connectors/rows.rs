//! The rows of a result, collected within the limits.

use crate::error::{ConnectorError, ErrorKind};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The largest result in bytes of compact JSON.
pub const MAX_RESULT_BYTES: usize = 1_048_576;

/// The result of a statement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rows {
    /// The rows: objects by column.
    pub data: Vec<Value>,
    /// The number of rows in `data`; for a statement without a result the number of rows that it has changed.
    pub row_count: u64,
    /// True if the result has more rows than `max_rows`.
    pub truncated: bool,
}

/// Collects rows.
pub(crate) struct Collector {
    rows: Rows,
    names: Vec<String>,
    max_rows: u64,
    bytes: usize,
    changed: u64,
}

impl Collector {
    pub(crate) fn new(max_rows: u64) -> Self {
        Self { rows: Rows::default(), names: Vec::new(), max_rows, bytes: 0, changed: 0 }
    }

    /// Adds a row. Returns false if the result has enough rows: the caller stops reading.
    pub(crate) fn add<'c>(
        &mut self,
        columns: impl Iterator<Item = &'c str>,
        values: Vec<Value>,
    ) -> Result<bool, ConnectorError> {
        if self.rows.row_count == self.max_rows {
            self.rows.truncated = true;
            return Ok(false);
        }
        if self.names.is_empty() {
            self.names = distinct(columns);
        }
        let row = Value::Object(self.names.iter().cloned().zip(values).collect::<Map<_, _>>());
        self.bytes += size(&row);
        if self.bytes > MAX_RESULT_BYTES {
            let message = format!(
                "the result has more than {MAX_RESULT_BYTES} bytes after {} rows; select fewer columns or rows, or lower \
                 `max_rows`",
                self.rows.row_count + 1
            );
            return Err(ConnectorError::new(ErrorKind::TooLarge, message));
        }
        self.rows.data.push(row);
        self.rows.row_count += 1;
        Ok(true)
    }

    /// Notes rows that the statement has changed.
    pub(crate) fn changed(&mut self, count: u64) {
        self.changed += count;
    }

    /// The result. `has_columns` is true for a statement that returns rows.
    pub(crate) fn finish(self, has_columns: bool) -> Rows {
        let row_count = if has_columns { self.rows.row_count } else { self.changed };
        Rows { row_count, ..self.rows }
    }
}

/// The names of the columns. A repeated name gets a number, so that no value is lost.
fn distinct<'c>(columns: impl Iterator<Item = &'c str>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for column in columns {
        let numbered = (2_u32..).map(|number| format!("{column}_{number}"));
        let name = std::iter::once(column.to_owned()).chain(numbered).find(|name| !names.contains(name));
        names.extend(name);
    }
    names
}

/// The bytes of a value as compact JSON.
fn size(value: &Value) -> usize {
    struct Counter(usize);
    impl std::io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(1);
    // Counting never fails, and a value that cannot be written has no size.
    let _ = serde_json::to_writer(&mut counter, value);
    counter.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_beyond_the_limit_truncate_the_result() {
        let mut collector = Collector::new(1);
        assert!(collector.add(["id", "id", "id_2"].into_iter(), vec![json!(1), json!(2), json!(3)]).unwrap());
        assert!(!collector.add(["id", "id", "id_2"].into_iter(), vec![json!(4), json!(5), json!(6)]).unwrap());
        let rows = collector.finish(true);
        assert_eq!(rows.data, [json!({"id": 1, "id_2": 2, "id_2_2": 3})]);
        assert_eq!((rows.row_count, rows.truncated), (1, true));
    }

    #[test]
    fn a_large_result_fails() {
        let mut collector = Collector::new(10);
        let value = || vec![json!("x".repeat(MAX_RESULT_BYTES / 2))];
        assert!(collector.add(["a"].into_iter(), value()).unwrap());
        let error = collector.add(["a"].into_iter(), value()).unwrap_err();
        assert_eq!(error.code(), "OUTPUT_TOO_LARGE");
        assert!(error.message.contains("after 2 rows"), "{error}");
    }
}
