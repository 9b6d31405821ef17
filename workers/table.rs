//! Listings, for people and for programs.

use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use std::io::Write;
use std::time::Duration;

/// A table without frames that fits the terminal.
pub fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(header.iter().map(|name| name.to_uppercase()).collect::<Vec<_>>());
    table
}

/// Prints text; a reader that has left is no failure of ours.
pub fn print(text: impl std::fmt::Display) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Prints a table without the blanks at the ends of its lines.
pub fn print_table(table: &Table) {
    print(table.trim_fmt());
}

/// Prints JSON.
pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    print(serde_json::to_string_pretty(value)?);
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

/// Text from outside without what would steer the terminal.
pub fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
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
    fn text_from_outside_cannot_steer_the_terminal() {
        assert_eq!(printable("你好\u{1b}[2J\r\n\u{7}再见\t!"), "你好[2J\n再见\t!");
    }
}
