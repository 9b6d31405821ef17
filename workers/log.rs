//! Logs go to stderr: what a command prints is never mixed with them.

use crate::failure::Failure;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;
use turnwheel::config::Environment;

/// Starts the log with `--log`, else TURNWHEEL_LOG, else `default`.
pub fn start(flag: Option<&str>, json: bool, default: &str, env: &Environment) -> anyhow::Result<()> {
    let named = flag.or_else(|| env.get("TURNWHEEL_LOG")).filter(|text| !text.trim().is_empty());
    let text = named.unwrap_or(default);
    let filter = EnvFilter::try_new(text).map_err(|error| {
        let hint = "give a level (`error`, `warn`, `info`, `debug`, `trace`) or levels by module: `info,turnwheel::turn=debug`";
        Failure::new(format!("the log filter `{text}` cannot be read: {error}"), hint)
    })?;
    let plain = env.get("NO_COLOR").is_some();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if json {
        log.json().init();
    } else {
        log.with_ansi(!plain && std::io::stderr().is_terminal()).init();
    }
    Ok(())
}
