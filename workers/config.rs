//! `turnwheel config`: prints the effective settings, with masked secrets.

use crate::table::{print_json, print_table, table};
use base::config::load::LoadedSettings;
use base::config::show;
use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  turnwheel config\n  turnwheel --set lane.max_depth=10 config --json")]
pub struct Config {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Config {
    pub fn run(&self, loaded: &LoadedSettings) -> anyhow::Result<()> {
        let rows = show::rows(loaded);
        if self.json {
            return print_json(&show::json(&rows));
        }
        let mut shown = table(&["setting", "value", "from"]);
        for row in rows {
            let from = match row.note.is_empty() {
                true => row.origin,
                false => format!("{}; {}", row.origin, row.note),
            };
            shown.add_row([row.key, show::shown(&row.value), from]);
        }
        print_table(&shown);
        Ok(())
    }
}
