//! Logs go to stderr: what a command prints is never mixed with them. No secret of the settings gets into them, whoever
//! writes: also a library at its most talkative.

use crate::failure::Failure;
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use tracing_subscriber::EnvFilter;
use turnwheel::config::{Environment, SecretValues};

static SECRETS: OnceLock<SecretValues> = OnceLock::new();

/// From now on these are masked in the log and in what a command says of its failure.
pub fn hide(secrets: SecretValues) {
    // They are known once, when the settings have been read.
    let _ = SECRETS.set(secrets);
}

/// `text` without secrets.
pub fn masked(text: &str) -> String {
    SECRETS.get().map_or_else(|| text.to_owned(), |secrets| secrets.mask(text))
}

/// Standard error, without secrets. An event of the log is one write.
struct Masked;

impl Write for Masked {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::stderr().write_all(masked(&String::from_utf8_lossy(bytes)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Starts the log with `--log`, else TURNWHEEL_LOG, else `default`.
pub fn start(flag: Option<&str>, json: bool, default: &str, env: &Environment) -> anyhow::Result<()> {
    let named = flag.or_else(|| env.get("TURNWHEEL_LOG")).filter(|text| !text.trim().is_empty());
    let text = named.unwrap_or(default);
    let filter = EnvFilter::try_new(text).map_err(|error| {
        let hint = "give a level (`error`, `warn`, `info`, `debug`, `trace`) or levels by module: `info,turnwheel::turn=debug`";
        Failure::new(format!("the log filter `{text}` cannot be read: {error}"), hint)
    })?;
    let plain = env.get("NO_COLOR").is_some();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| Masked);
    if json {
        log.json().init();
    } else {
        log.with_ansi(!plain && io::stderr().is_terminal()).init();
    }
    Ok(())
}
