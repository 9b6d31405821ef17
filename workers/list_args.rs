//! The options that all listings share.

use crate::table::pretty;
use crate::watch_option::WatchOption;
use clap::Args;
use serde::Serialize;
use serde_json::json;

#[derive(Clone, Copy, Debug, Args)]
pub struct ListArgs {
    /// Highest number of entries, 1 to 1000000; more than 1000 are read in several requests
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    limit: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub refresh: WatchOption,
}

impl ListArgs {
    /// The highest number of entries.
    pub fn limit(self) -> usize {
        usize::try_from(self.limit).unwrap_or(usize::MAX)
    }

    /// Formats the items as JSON under `name`, or as the table that `rows` makes; empty if there are no items.
    pub fn text<T: Serialize>(
        self,
        name: &str,
        items: Vec<T>,
        rows: impl FnOnce(Vec<T>) -> String,
    ) -> anyhow::Result<String> {
        match self.json {
            true => pretty(&json!({ name: items })),
            false if items.is_empty() => Ok(String::new()),
            false => Ok(rows(items)),
        }
    }
}
