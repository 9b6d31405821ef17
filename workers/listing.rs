//! What every listing can be told, and how it is shown.

use crate::refresh::Refresh;
use crate::table::pretty;
use clap::Args;
use serde::Serialize;
use serde_json::json;

#[derive(Clone, Copy, Debug, Args)]
pub struct Listing {
    /// The most to show
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    limit: u16,
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub refresh: Refresh,
}

impl Listing {
    /// The most to show.
    pub fn limit(self) -> usize {
        usize::from(self.limit)
    }

    /// The items, as JSON under their name or as the table that `rows` makes; nothing where there are none.
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
