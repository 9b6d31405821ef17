//! `--watch`: a view that is shown again as it changes.

use anyhow::Result;
use clap::Args;
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// How often it is looked at.
const PERIOD: Duration = Duration::from_secs(1);
/// To the upper left corner, and clear the screen.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J\u{1b}[3J";

/// Whether a view is kept up to date.
#[derive(Clone, Copy, Debug, Args)]
pub struct Refresh {
    /// Show it again as it changes, until Ctrl-C
    #[arg(long)]
    watch: bool,
}

impl Refresh {
    /// Shows what `view` makes: once, or again whenever it differs; `nothing` in place of an empty one.
    pub async fn show(self, nothing: &str, view: impl AsyncFn() -> Result<String>) -> Result<()> {
        let text = view().await?;
        if !self.watch {
            match text.is_empty() {
                true => eprintln!("{nothing}"),
                false => crate::table::print(text),
            }
            return Ok(());
        }
        let clear = if std::io::stdout().is_terminal() { CLEAR } else { "" };
        let (mut shown, mut now) = (None, text);
        loop {
            let text = if now.is_empty() { nothing.to_owned() } else { now };
            if shown.as_ref() != Some(&text) {
                // A reader that has left needs no more.
                if writeln!(std::io::stdout(), "{clear}{text}").is_err() {
                    return Ok(());
                }
                shown = Some(text);
            }
            tokio::time::sleep(PERIOD).await;
            // What is away for a moment is shown as such, and looked for again.
            now = view().await.unwrap_or_else(|error| crate::failure::lines(&error).join("\n"));
        }
    }
}
