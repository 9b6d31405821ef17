//! Logs go to stderr: what a command prints is never mixed with them. No secret of the settings gets into them, whoever
//! writes: also a library at its most talkative.

use crate::failure::Failure;
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use tracing::Subscriber;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};
use turnwheel::config::{Environment, SecretValues};
use turnwheel::telemetry::Otlp;

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

/// Whether a terminal may be given colours.
pub fn may_colour(env: &Environment) -> bool {
    env.get("NO_COLOR").is_none() && env.get("TERM") != Some("dumb")
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

/// Starts the log with `--log`, else TURNWHEEL_LOG, else `default`; spans go to `otlp` as well.
pub fn start(
    flag: Option<&str>,
    json: bool,
    default: &str,
    env: &Environment,
    otlp: Option<&Otlp>,
) -> anyhow::Result<()> {
    let named = flag.or_else(|| env.get("TURNWHEEL_LOG")).filter(|text| !text.trim().is_empty());
    let text = named.unwrap_or(default);
    let filter = EnvFilter::try_new(text).map_err(|error| {
        let hint = "give a level (`error`, `warn`, `info`, `debug`, `trace`) or levels by module: `info,turnwheel::turn=debug`";
        Failure::new(format!("the log filter `{text}` cannot be read: {error}"), hint)
    })?;
    let plain = !may_colour(env);
    match otlp {
        // One filter for all: what is not logged costs nothing.
        None => tracing_subscriber::registry().with(filter).with(lines(json, plain)).init(),
        Some(otlp) => {
            tracing_subscriber::registry().with(otlp.layer()).with(lines(json, plain).with_filter(filter)).init();
        }
    }
    Ok(())
}

/// The log as text, or as one JSON object a line.
fn lines<S>(json: bool, plain: bool) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let log = tracing_subscriber::fmt::layer().with_writer(|| Masked);
    match json {
        true => log.json().boxed(),
        false => log.with_ansi(!plain && io::stderr().is_terminal()).boxed(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals_that_want_them() {
        let may = |variables: &[(&str, &str)]| may_colour(&variables.iter().copied().collect());
        assert!(may(&[("TERM", "xterm")]) && may(&[("NO_COLOR", "")]));
        assert!(!may(&[("NO_COLOR", "1")]) && !may(&[("TERM", "dumb")]));
    }
}
