//! Logs go to stderr: what a command prints is never mixed with them. No secret of the settings gets into them, whoever
//! writes: also a library at its most talkative.

use crate::failure::Failure;
use base::config::{Environment, SecretValues};
use base::telemetry::Otlp;
use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use tracing::Subscriber;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

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

/// Standard error, without secrets and with one line for each event. An event of the log is one write.
struct Masked;

impl Write for Masked {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let event = masked(&String::from_utf8_lossy(bytes));
        io::stderr().write_all(one_line(&event).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// The event with every line break within it escaped, so that no text from outside can pose as a line of the log. The
/// library escapes the other control characters; ESC begins its own colours.
fn one_line(event: &str) -> Cow<'_, str> {
    let (text, end) = event.strip_suffix('\n').map_or((event, ""), |text| (text, "\n"));
    let breaks = |c: char| matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}');
    if !text.contains(breaks) {
        return Cow::Borrowed(event);
    }
    let mut line = String::with_capacity(event.len() + 16);
    for c in text.chars() {
        match c {
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            // Also legal within the texts of JSON.
            c if breaks(c) => line.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => line.push(c),
        }
    }
    line.push_str(end);
    Cow::Owned(line)
}

/// Starts the log with `--log`, else TURNWHEEL_LOG, else RUST_LOG, else `default`; spans go to `otlp` as well.
pub fn start(
    flag: Option<&str>,
    json: bool,
    default: &str,
    env: &Environment,
    otlp: Option<&Otlp>,
) -> anyhow::Result<()> {
    let text = filter(flag, env).unwrap_or(default);
    let filter = EnvFilter::try_new(text).map_err(|error| {
        let hint =
            "give a level (`error`, `warn`, `info`, `debug`, `trace`) or levels by module: `info,turnwheel_engine::turn=debug`";
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

/// The filter that somebody has asked for.
fn filter<'a>(flag: Option<&'a str>, env: &'a Environment) -> Option<&'a str> {
    [flag, env.get("TURNWHEEL_LOG"), env.get("RUST_LOG")].into_iter().flatten().find(|text| !text.trim().is_empty())
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
    fn the_flag_wins_over_the_variables_and_an_empty_one_is_none() {
        let env: Environment = [("TURNWHEEL_LOG", " "), ("RUST_LOG", "debug")].iter().copied().collect();
        assert_eq!(filter(None, &env), Some("debug"));
        assert_eq!(filter(Some("warn"), &env), Some("warn"));
        let both: Environment = [("TURNWHEEL_LOG", "error"), ("RUST_LOG", "debug")].iter().copied().collect();
        assert_eq!(filter(None, &both), Some("error"));
        assert_eq!(filter(None, &[("HOME", "/")].iter().copied().collect()), None);
    }

    #[test]
    fn an_event_is_one_line() {
        let forged = "WARN x\r\n2026 INFO y\u{2028}z\u{85}\u{c}\n";
        assert_eq!(one_line(forged), "WARN x\\r\\n2026 INFO y\\u2028z\\u0085\\u000c\n");
        assert!(matches!(one_line("\u{1b}[2m2026\u{1b}[0m 你好\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn colours_are_for_terminals_that_want_them() {
        let may = |variables: &[(&str, &str)]| may_colour(&variables.iter().copied().collect());
        assert!(may(&[("TERM", "xterm")]) && may(&[("NO_COLOR", "")]));
        assert!(!may(&[("NO_COLOR", "1")]) && !may(&[("TERM", "dumb")]));
    }
}
