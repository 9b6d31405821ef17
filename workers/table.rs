//! Output of tables, JSON and text.

use comfy_table::{ContentArrangement, Row, Table, presets};
use serde::Serialize;
use std::io::Write;
use std::time::Duration;

/// Marks a cell that is cut.
const ELLIPSIS: &str = "…";
/// A character that occurs in no text. As the delimiter it lets cells be cut anywhere, instead of at the last blank.
const NO_DELIMITER: char = '\u{1f}';

/// A table without borders. On a terminal it fits the width: the widest cells are cut.
pub struct TextTable(Table);

/// Creates a table with these columns.
pub fn table(header: &[&str]) -> TextTable {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_delimiter(NO_DELIMITER).set_truncation_indicator(ELLIPSIS);
    table.set_header(header.iter().map(|name| name.to_uppercase()).collect::<Vec<_>>());
    TextTable(table)
}

impl TextTable {
    /// Adds a row. Removes control characters and line breaks from the cells.
    pub fn add_row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut row = Row::from(cells.into_iter().map(|cell| one_line(&cell)));
        row.max_height(1);
        self.0.add_row(row);
    }
}

/// Formats without trailing blanks.
impl std::fmt::Display for TextTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.trim_fmt())
    }
}

/// The width of the terminal in columns; unlimited without a terminal.
pub fn width() -> usize {
    Table::new().width().map_or(usize::MAX, usize::from)
}

/// Prints text. Ignores closed output, because its reader has left.
pub fn print(text: impl std::fmt::Display) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Prints the outcome of a command that put something on the queue: the words on stderr, and the id alone on stdout, so
/// that a script can read it.
pub fn print_queued(id: &str, words: &str) {
    eprintln!("{}", one_line(words));
    print(printable(id));
}

/// Prints a table.
pub fn print_table(table: &TextTable) {
    print(table);
}

/// Formats JSON for people.
pub fn pretty(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(value)?)
}

/// Prints JSON.
pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    print(pretty(value)?);
    Ok(())
}

/// The largest two units of a duration: `2h 5m`.
pub fn rough(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let units = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
    let mut rest = seconds;
    let mut parts = Vec::new();
    for (unit, size) in units {
        if rest >= size {
            parts.push(format!("{}{unit}", rest / size));
            rest %= size;
        }
    }
    parts.truncate(2);
    if parts.is_empty() { "0s".to_owned() } else { parts.join(" ") }
}

/// Removes control characters, so that text from outside cannot control the terminal.
pub fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

/// Like [`printable`], in one line.
pub fn one_line(text: &str) -> String {
    printable(text).replace(['\n', '\t'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rough() {
        for (seconds, text) in [(0, "0s"), (59, "59s"), (60, "1m"), (7_505, "2h 5m"), (90_061, "1d 1h")] {
            assert_eq!(rough(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn a_table_fits_its_width_and_chinese_characters_count_double() {
        let mut listing = table(&["session", "reason"]);
        listing.add_row(["s1".to_owned(), "订单查询接口一直没有回答，请稍后再试\n".to_owned()]);
        listing.add_row(["s2".to_owned(), "a b".to_owned()]);
        listing.0.set_width(30);
        let text = listing.to_string();
        let width = |line: &str| line.chars().map(|c| if c.is_ascii() || c == '…' { 1 } else { 2 }).sum::<usize>();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "one line each: {text}");
        assert!(lines.iter().all(|line| width(line) <= 30), "{text}");
        assert!(lines[1].contains("s1") && lines[1].contains("订单查询") && lines[1].ends_with('…'), "{text}");
        assert!(lines[2].ends_with("a b"), "{text}");
    }

    #[test]
    fn text_from_outside_cannot_steer_the_terminal() {
        assert_eq!(printable("你好\u{1b}[2J\r\n\u{7}再见\t!"), "你好[2J\n再见\t!");
    }
}
