//! `turnwheel config`: the effective settings, secrets masked.

use crate::table::{print_json, print_table, table};
use clap::Args;
use serde_json::{Value, json};
use turnwheel::config::load::Loaded;
use turnwheel::config::show;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  turnwheel config\n  turnwheel --set lane.max_depth=10 config --json")]
pub struct Config {
    /// As JSON
    #[arg(long)]
    json: bool,
}

impl Config {
    pub fn run(&self, loaded: &Loaded) -> anyhow::Result<()> {
        let rows = show::rows(loaded);
        if self.json {
            return print_json(&json!({ "settings": rows }));
        }
        let mut shown = table(&["setting", "value", "from"]);
        for row in rows {
            let value = match row.value {
                Value::String(text) => text,
                other => other.to_string(),
            };
            shown.add_row([row.key, value, row.origin]);
        }
        print_table(&shown);
        Ok(())
    }
}
