//! A difference as text for people: new hosts and secrets first, then one entry for each change.

use super::{Change, Concern, Difference, Op, is_long};
use crate::document::yaml::to_yaml;
use serde_json::Value;
use similar::{ChangeTag, TextDiff};
use std::fmt::{self, Display, Formatter};

/// The longest value, in characters, that is shown in the same line as its change.
const MAX_INLINE: usize = 100;

impl Display for Difference {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return writeln!(f, "no differences");
        }
        for host in &self.new_hosts {
            writeln!(f, "calls a new host: {host}")?;
        }
        for secret in &self.new_secrets {
            let (name, host) = secret.split_once('@').unwrap_or((secret, ""));
            writeln!(f, "sends the secret {name} to {host}, which it did not before")?;
        }
        self.changes.iter().try_for_each(|change| write!(f, "{change}"))
    }
}

impl Display for Change {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mark = match self.op {
            Op::Add => '+',
            Op::Remove => '-',
            Op::Replace => '~',
        };
        write!(f, "{mark} {}", self.path)?;
        match self.concern {
            Concern::Host => write!(f, " (new host)")?,
            Concern::Secret => write!(f, " (new secret)")?,
            Concern::Action | Concern::Setting | Concern::Text => {}
        }
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => replaced(before, after, f),
            (Some(value), None) => whole('-', value, f),
            (None, Some(value)) => whole('+', value, f),
            (None, None) => writeln!(f),
        }
    }
}

fn replaced(before: &Value, after: &Value, f: &mut Formatter<'_>) -> fmt::Result {
    let (old, new) = (before.to_string(), after.to_string());
    let is_text = |value: &Value| value.as_str().is_some_and(is_long);
    if !is_text(before) && !is_text(after) && fits(&old) && fits(&new) {
        return writeln!(f, ": {old} → {new}");
    }
    writeln!(f, ":")?;
    let (old, new) = (lines(before), lines(after));
    let diff = TextDiff::from_lines(&old, &new);
    for group in diff.grouped_ops(1) {
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let mark = match change.tag() {
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
                ChangeTag::Equal => ' ',
            };
            writeln!(f, "    {mark} {}", change.value().trim_end_matches('\n'))?;
        }
    }
    Ok(())
}

fn whole(mark: char, value: &Value, f: &mut Formatter<'_>) -> fmt::Result {
    let inline = value.to_string();
    if fits(&inline) && !value.is_object() {
        return writeln!(f, ": {inline}");
    }
    writeln!(f, ":")?;
    lines(value).lines().try_for_each(|line| writeln!(f, "    {mark} {line}"))
}

fn fits(text: &str) -> bool {
    text.chars().nth(MAX_INLINE).is_none()
}

/// A value as lines: a text as it is, anything else as YAML.
fn lines(value: &Value) -> String {
    let mut text = value.as_str().map_or_else(|| to_yaml(value), str::to_owned);
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}
