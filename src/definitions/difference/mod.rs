//! The difference of two documents of an agent or a workflow, for a person who decides whether a draft may replace a
//! document.
//!
//! `compare` finds the changes by path, `reach` the hosts and secrets that a document uses, and `readable` formats a
//! difference for people.

mod compare;
mod reach;
mod readable;
#[cfg(test)]
mod tests;

use crate::document::yaml::to_yaml;
use reach::Reach;
pub use reach::{CalledHost, SentSecret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use similar::TextDiff;
use std::collections::BTreeSet;
use types::canonical;

/// Limit in bytes on [`Difference::text`].
const MAX_TEXT: usize = 64 * 1024;
/// Length in characters from which a text counts as long, even if it has one line.
const LONG_TEXT: usize = 60;
/// The top-level fields of a document that determine which calls are made, and in which order.
const ACTIONS: [&str; 11] =
    ["skills", "tools", "flows", "handoff", "coordinator", "mode", "nodes", "edges", "stages", "branches", "type"];

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// Only the new document has the path.
    Add,
    /// Only the old document has the path.
    Remove,
    /// Both have the path, with different values.
    Replace,
}

/// The subject of a change. A difference lists its changes in the order of these variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Concern {
    /// A call of a host that the old document does not call.
    Host,
    /// A secret that the old document does not send to this host.
    Secret,
    /// A skill, tool, flow, handoff, node or stage.
    Action,
    /// Any other field.
    Setting,
    /// A long text, such as `sop`.
    Text,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// The kind of the change.
    pub op: Op,
    /// The path, such as `skills[query_order].http.url`. A path that ends with `[]` is the order of a list's elements.
    pub path: String,
    /// The subject of the change.
    pub concern: Concern,
    /// The old value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// The new value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}

/// The difference of two documents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    /// Hash of the old document.
    pub base_hash: String,
    /// Hash of the new document.
    pub hash: String,
    /// Hosts that only the new document calls.
    pub new_hosts: Vec<String>,
    /// Secrets that only the new document sends to a host, as `NAME@host`.
    pub new_secrets: Vec<String>,
    /// The changes: new hosts, secrets, actions, settings, texts; within these in the order of their paths.
    pub changes: Vec<Change>,
    /// The unified diff of both documents as YAML. Cut to 64 KiB.
    pub text: String,
}

impl Difference {
    /// Compares two documents of one agent or workflow.
    pub fn between(base: &Value, draft: &Value) -> Self {
        let (had, has) = (Reach::of(base), Reach::of(draft));
        let (hosts, secrets) = (has.new_hosts(&had), has.new_secrets(&had));
        let mut changes = compare::changes(base, draft);
        for change in &mut changes {
            let within = |path: &str| is_within(&change.path, path);
            change.concern = match () {
                () if hosts.iter().any(|host| within(&host.path)) => Concern::Host,
                () if secrets.iter().any(|secret| within(&secret.path) || within(&secret.url_path)) => Concern::Secret,
                () => concern(change),
            };
        }
        // A stable sort: within a concern the order of the paths stays.
        changes.sort_by_key(|change| change.concern);
        let named: BTreeSet<String> = secrets.iter().map(|secret| format!("{}@{}", secret.name, secret.host)).collect();
        let called: BTreeSet<String> = hosts.into_iter().map(|host| host.host).collect();
        Self {
            base_hash: canonical::hash(base),
            hash: canonical::hash(draft),
            new_hosts: called.into_iter().collect(),
            new_secrets: named.into_iter().collect(),
            changes,
            text: unified(&to_yaml(base), &to_yaml(draft)),
        }
    }

    /// True if the documents are the same.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

/// The secrets that a document sends, with the hosts that receive them.
pub fn sent_secrets(document: &Value) -> Vec<SentSecret> {
    Reach::of(document).new_secrets(&Reach::default())
}

/// The hosts that `document` calls and `base` does not.
pub fn new_hosts(base: &Value, document: &Value) -> Vec<CalledHost> {
    Reach::of(document).new_hosts(&Reach::of(base))
}

/// True if `path` is the place of a change or lies within it.
fn is_within(changed: &str, path: &str) -> bool {
    path.strip_prefix(changed).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

fn concern(change: &Change) -> Concern {
    let first = change.path.split(['.', '[']).next().unwrap_or_default();
    let is_long = |value: &Option<Value>| value.as_ref().and_then(Value::as_str).is_some_and(is_long);
    if ACTIONS.contains(&first) {
        Concern::Action
    } else if is_long(&change.before) || is_long(&change.after) {
        Concern::Text
    } else {
        Concern::Setting
    }
}

/// Returns true for a text of which only the changed lines are shown.
fn is_long(text: &str) -> bool {
    text.contains('\n') || text.chars().nth(LONG_TEXT).is_some()
}

fn unified(base: &str, draft: &str) -> String {
    let diff = TextDiff::from_lines(base, draft);
    let mut text = diff.unified_diff().context_radius(3).to_string();
    if text.len() > MAX_TEXT {
        text.truncate(text.floor_char_boundary(MAX_TEXT));
        text.push('…');
    }
    text
}
