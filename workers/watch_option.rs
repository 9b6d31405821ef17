//! `--watch`: shows a view again whenever it changes.

use anyhow::Result;
use clap::Args;
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// Interval between two checks.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Control sequence: moves the cursor to the upper left corner and clears the screen.
const CLEAR_SCREEN: &str = "\u{1b}[H\u{1b}[2J\u{1b}[3J";

/// The option `--watch`.
#[derive(Clone, Copy, Debug, Args)]
pub struct WatchOption {
    /// Show it again whenever it changes, until Ctrl-C
    #[arg(long)]
    watch: bool,
}

impl WatchOption {
    /// Prints `view`: once, or with `--watch` whenever it has changed. Prints `nothing` instead of an empty view.
    pub async fn show(self, nothing: &str, view: impl AsyncFn() -> Result<String>) -> Result<()> {
        let text = view().await?;
        if !self.watch {
            match text.is_empty() {
                true => eprintln!("{nothing}"),
                false => crate::table::print(text),
            }
            return Ok(());
        }
        let clear = if std::io::stdout().is_terminal() { CLEAR_SCREEN } else { "" };
        let (mut shown, mut now) = (None, text);
        loop {
            let text = if now.is_empty() { nothing.to_owned() } else { now };
            if shown.as_ref() != Some(&text) {
                // Closed output means that the reader has left.
                if writeln!(std::io::stdout(), "{clear}{text}").is_err() {
                    return Ok(());
                }
                shown = Some(text);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
            // An error is shown like a view, and the next check may succeed.
            now = view().await.unwrap_or_else(|error| crate::failure::lines(&error).join("\n"));
        }
    }
}
