//! The hosts that a document calls, and the secrets that it sends to them.

use super::compare::{element, field, keys};
use base::config::secrets::references;
use decisions::hosts;
use serde_json::Value;
use std::collections::BTreeSet;

/// The field that contains the address of a call.
const URL: &str = "url";

/// A call of a host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CalledHost {
    /// The host; the whole address if it has none.
    pub host: String,
    /// Path of the address.
    pub path: String,
}

/// A secret in a call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SentSecret {
    /// The name of the secret.
    pub name: String,
    /// The host that receives it; the whole address if it has none.
    pub host: String,
    /// Path of the text that has the secret.
    pub path: String,
    /// Path of the address to which it is sent.
    pub url_path: String,
}

/// The hosts that a document calls, and the secrets that it sends.
#[derive(Debug, Default)]
pub(super) struct Reach {
    hosts: BTreeSet<CalledHost>,
    secrets: BTreeSet<SentSecret>,
}

impl Reach {
    /// Reads a document. Every table with a `url` is a call.
    pub(super) fn of(document: &Value) -> Self {
        let mut reach = Self::default();
        reach.walk("", document);
        reach
    }

    /// The calls of hosts that `before` does not call.
    pub(super) fn new_hosts(&self, before: &Self) -> Vec<CalledHost> {
        let known: BTreeSet<&str> = before.hosts.iter().map(|called| called.host.as_str()).collect();
        self.hosts.iter().filter(|called| !known.contains(called.host.as_str())).cloned().collect()
    }

    /// The secrets that `before` does not send to the same host.
    pub(super) fn new_secrets(&self, before: &Self) -> Vec<SentSecret> {
        let pair = |secret: &SentSecret| (secret.name.clone(), secret.host.clone());
        let known: BTreeSet<_> = before.secrets.iter().map(pair).collect();
        self.secrets.iter().filter(|secret| !known.contains(&pair(secret))).cloned().collect()
    }

    fn walk(&mut self, path: &str, value: &Value) {
        if let Some(url) = value.get(URL).and_then(Value::as_str) {
            let (host, url_path) = (host(url), field(path, URL));
            self.hosts.insert(CalledHost { host: host.clone(), path: url_path.clone() });
            self.secrets(path, value, &host, &url_path);
        }
        children(path, value).into_iter().for_each(|(path, child)| self.walk(&path, child));
    }

    fn secrets(&mut self, path: &str, value: &Value, host: &str, url_path: &str) {
        let texts = value.as_str().into_iter().flat_map(references).filter(|name| is_secret(name));
        let sent = texts.map(|name| SentSecret {
            name: name.to_owned(),
            host: host.to_owned(),
            path: path.to_owned(),
            url_path: url_path.to_owned(),
        });
        self.secrets.extend(sent);
        children(path, value).into_iter().for_each(|(path, child)| self.secrets(&path, child, host, url_path));
    }
}

/// The parts of a value with the paths that [`super::compare`] gives them.
fn children<'v>(path: &str, value: &'v Value) -> Vec<(String, &'v Value)> {
    match value {
        Value::Object(fields) => fields.iter().map(|(name, child)| (field(path, name), child)).collect(),
        Value::Array(list) => match keys(list) {
            Some(keyed) => keyed.into_iter().map(|(key, child)| (element(path, &key), child)).collect(),
            None => list.iter().enumerate().map(|(place, child)| (element(path, &place.to_string()), child)).collect(),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

/// Returns the host of an address. If the host cannot be determined, the whole address counts as the host.
fn host(url: &str) -> String {
    hosts::host(url).unwrap_or_else(|_| url.to_owned())
}

/// In a workflow `${name}` can also be an input or the output of a node. Only the names of secrets look like
/// environment variables.
fn is_secret(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_uppercase() || first == '_')
        && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}
