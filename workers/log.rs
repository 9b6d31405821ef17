//! The log. It goes to stderr, apart from a command's output. Secrets of the settings are masked in every line,
//! including lines from libraries.

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

/// Masks these secrets in the log and in error messages from now on.
pub fn hide(secrets: SecretValues) {
    // Set once, after the settings are read.
    let _ = SECRETS.set(secrets);
}

/// `text` with masked secrets.
pub fn masked(text: &str) -> String {
    SECRETS.get().map_or_else(|| text.to_owned(), |secrets| secrets.mask(text))
}

/// False if the environment asks for output without colours.
pub fn may_colour(env: &Environment) -> bool {
    env.get("NO_COLOR").is_none() && env.get("TERM") != Some("dumb")
}

/// Standard error with masked secrets. Each write is one event, and becomes one line.
struct Masked {
    /// True if the library writes colours, which begin with ESC.
    has_colours: bool,
}

impl Write for Masked {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let event = masked(&String::from_utf8_lossy(bytes));
        io::stderr().write_all(one_line(&event, self.has_colours).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Escapes line breaks and control characters within an event, so that a text from outside can neither pose as a line of the
/// log nor change the terminal. With colours, ESC stays: the library escapes it in all texts, and writes its own.
fn one_line(event: &str, has_colours: bool) -> Cow<'_, str> {
    let (text, end) = event.strip_suffix('\n').map_or((event, ""), |text| (text, "\n"));
    let escapes = |c: char| match c {
        '\t' => false,
        '\u{1b}' => !has_colours,
        // Marks that change the direction of a text hide its real order.
        '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        c => c.is_control(),
    };
    if !text.contains(escapes) {
        return Cow::Borrowed(event);
    }
    let mut line = String::with_capacity(event.len() + 16);
    for c in text.chars() {
        match c {
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            // These characters are legal within JSON strings, too.
            c if escapes(c) => line.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => line.push(c),
        }
    }
    line.push_str(end);
    Cow::Owned(line)
}

/// Starts the log with the filter of `--log`, else TURNWHEEL_LOG, else RUST_LOG, else `default`. Exports spans to
/// `otlp`.
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
        Failure::new(format!("the log filter `{text}` is invalid: {error}"), hint)
    })?;
    let plain = !may_colour(env);
    match otlp {
        // One filter for all layers, so that disabled events cost nothing.
        None => tracing_subscriber::registry().with(filter).with(lines(json, plain)).init(),
        Some(otlp) => {
            tracing_subscriber::registry().with(otlp.layer()).with(lines(json, plain).with_filter(filter)).init();
        }
    }
    Ok(())
}

/// The filter from the flag or the environment.
fn filter<'a>(flag: Option<&'a str>, env: &'a Environment) -> Option<&'a str> {
    [flag, env.get("TURNWHEEL_LOG"), env.get("RUST_LOG")].into_iter().flatten().find(|text| !text.trim().is_empty())
}

/// The layer that writes text, or one JSON object per line.
fn lines<S>(json: bool, plain: bool) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let has_colours = !json && !plain && io::stderr().is_terminal();
    let log = tracing_subscriber::fmt::layer().with_writer(move || Masked { has_colours });
    match json {
        true => log.json().boxed(),
        false => log.with_ansi(has_colours).boxed(),
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
        assert_eq!(one_line(forged, true), "WARN x\\r\\n2026 INFO y\\u2028z\\u0085\\u000c\n");
        assert!(matches!(one_line("\u{1b}[2m2026\u{1b}[0m\t你好\n", true), Cow::Borrowed(_)));
        assert_eq!(one_line("\u{1b}]0;x\u{7}\u{8}\0\u{202e}y\n", false), "\\u001b]0;x\\u0007\\u0008\\u0000\\u202ey\n");
    }

    #[test]
    fn colours_are_for_terminals_that_want_them() {
        let may = |variables: &[(&str, &str)]| may_colour(&variables.iter().copied().collect());
        assert!(may(&[("TERM", "xterm")]) && may(&[("NO_COLOR", "")]));
        assert!(!may(&[("NO_COLOR", "1")]) && !may(&[("TERM", "dumb")]));
    }
}
