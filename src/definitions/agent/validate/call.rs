//! Checks HTTP calls, and the JSON Schema of their parameters.

use super::AgentChecker;
use crate::document::finding::quoted;
use base::config::nearest::question;
use base::config::secrets::references;
use http::HeaderName;
use regex::Regex;
use serde_json::Value;
use std::sync::LazyLock;
use types::agent::{HttpCall, SESSION_PLACEHOLDERS};
use url::Url;

const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];

/// Matches `{name}` and `{a.b.0}`. After a `$` it is a secret; the first group captures the `$`.
static PLACEHOLDER: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(\$?)\{([\p{Alphabetic}_][\w.\-]*)\}").ok());

/// The paths of the placeholders in `text`, without secrets.
pub(super) fn placeholders(text: &str) -> Vec<&str> {
    let Some(pattern) = PLACEHOLDER.as_ref() else { return Vec::new() };
    pattern
        .captures_iter(text)
        .filter(|found| found.get(1).is_some_and(|dollar| dollar.is_empty()))
        .filter_map(|found| found.get(2))
        .map(|path| path.as_str())
        .collect()
}

/// Collects every text within `value`, with its path.
pub(super) fn texts<'v>(path: &str, value: &'v Value, found: &mut Vec<(String, &'v str)>) {
    match value {
        Value::String(text) => found.push((path.to_owned(), text)),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, item)| texts(&format!("{path}[{at}]"), item, found));
        }
        Value::Object(fields) => fields.iter().for_each(|(name, field)| texts(&format!("{path}.{name}"), field, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The names of the parameters that a schema requires.
pub(super) fn required(schema: &Value) -> impl Iterator<Item = &str> {
    schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// Checks that `schema` is a valid JSON Schema of an object.
pub(super) fn params(check: &mut AgentChecker<'_>, path: &str, schema: &Value) {
    if !schema.is_object() {
        check.report.error(path, "is not a JSON Schema", "write {type: object, properties: {…}}");
        return;
    }
    if let Err(error) = jsonschema::validator_for(schema) {
        let place = error.instance_path().to_string().replace('/', ".");
        check.report.error(format!("{path}{place}"), format!("is not a JSON Schema: {error}"), "");
        return;
    }
    if schema.get("type").is_some_and(|kind| kind != "object") {
        check.report.error(format!("{path}.type"), "parameters are always an object", "write `type: object`");
    }
    for name in required(schema) {
        if schema.get("properties").and_then(|properties| properties.get(name)).is_none() {
            let problem = format!("`{name}` is required but not described");
            check.report.warn(format!("{path}.required"), problem, "add it to `properties`");
        }
    }
}

/// Checks method, address, headers and secrets of a call and, with a schema, its placeholders.
pub(super) fn http(check: &mut AgentChecker<'_>, path: &str, call: &HttpCall, schema: Option<&Value>) {
    let method = call.method.to_uppercase();
    if !METHODS.contains(&method.as_str()) {
        let problem = format!("found `{}`; allowed are {}", call.method, quoted(METHODS));
        check.report.error(format!("{path}.method"), problem, question(&method, METHODS));
    }
    if call.body.is_some() && matches!(method.as_str(), "GET" | "HEAD") {
        check.report.warn(format!("{path}.body"), format!("a {method} carries no body"), "use POST, or `query`");
    }
    if call.timeout.is_some_and(|timeout| timeout.0.is_zero()) {
        check.report.error(format!("{path}.timeout"), "is zero", "write the limit of one attempt, such as `10s`");
    }
    let host = address(check, &format!("{path}.url"), &call.url);
    for name in call.headers.keys() {
        if HeaderName::try_from(name.as_str()).is_err() {
            check.report.error(format!("{path}.headers"), format!("`{name}` is not the name of a header"), "");
        }
    }
    let mut found = vec![(format!("{path}.url"), call.url.as_str())];
    found.extend(call.headers.iter().map(|(name, value)| (format!("{path}.headers.{name}"), value.as_str())));
    call.query.iter().for_each(|(name, value)| texts(&format!("{path}.query.{name}"), value, &mut found));
    call.body.iter().for_each(|body| texts(&format!("{path}.body"), body, &mut found));
    for (path, text) in found {
        secrets(check, &path, text, host.as_deref());
        of_session(check, &path, text);
        if let Some(schema) = schema {
            declared(check, &path, text, schema);
        }
    }
}

/// Checks the address. Returns its host, if it is written out.
fn address(check: &mut AgentChecker<'_>, path: &str, template: &str) -> Option<String> {
    let host = template.split_once("://").map_or(template, |(_, rest)| rest);
    let host = host.split(['/', '?', '#']).next().unwrap_or_default();
    if let Some(name) = references(host).first() {
        let problem = format!("the secret `${{{name}}}` stands before the path, so its host is not known");
        check.report.error(
            path,
            problem,
            "write scheme and host out; a secret may be in path, query, headers and body",
        );
        return None;
    }
    // A digit is valid in every part of an address, even as a port.
    let filled = PLACEHOLDER.as_ref().map_or(template.into(), |pattern| pattern.replace_all(template, "1"));
    let url = Url::parse(&filled);
    match &url {
        Ok(url) if !matches!(url.scheme(), "http" | "https") => {
            check.report.error(
                path,
                format!("found the scheme `{}`; allowed are `http` and `https`", url.scheme()),
                "",
            );
        }
        Ok(url) => private(check, path, template, url),
        Err(error) => {
            let problem = format!("`{template}` is not an address: {error}");
            check.report.error(path, problem, "write it as https://api.example.com/orders/{order_id}");
        }
    }
    if !placeholders(host).is_empty() {
        let problem = "the host contains a parameter, so a user could choose which server the agent calls";
        check.report.warn(path, problem, "write the host out");
        return None;
    }
    url.ok()?.host_str().map(str::to_owned)
}

/// Warns of a private address that workers may not call. Skips hosts with placeholders, whose value is known only at
/// the call.
fn private(check: &mut AgentChecker<'_>, path: &str, template: &str, url: &Url) {
    let host = template.split_once("://").and_then(|(_, rest)| rest.split(['/', '?', '#']).next());
    if host.is_none_or(|host| host.contains('{')) {
        return;
    }
    if let Some(host) = check.context.private.and_then(|guard| guard.refuses(url)) {
        let hint = format!("add `{host}` to `http.allow_private` where workers run, and restart them");
        check.report.warn(path, format!("`{host}` is a private address, which workers may not call"), hint);
    }
}

fn secrets(check: &mut AgentChecker<'_>, path: &str, text: &str, host: Option<&str>) {
    for name in references(text) {
        if let Err(refusal) = check.secret(name, host) {
            check.report.error(path, refusal.problem(), refusal.remedy());
        }
    }
}

/// Checks the placeholders for facts of the session.
fn of_session(check: &mut AgentChecker<'_>, path: &str, text: &str) {
    for name in placeholders(text).into_iter().filter(|name| is_of_session(name)) {
        if !SESSION_PLACEHOLDERS.contains(&name) {
            let problem = format!("there is no `{{{name}}}`; known are {}", quoted(SESSION_PLACEHOLDERS));
            check.report.error(path, problem, question(name, SESSION_PLACEHOLDERS));
        }
    }
}

/// True for a placeholder that always stands for a fact of the session, whatever the params are.
fn is_of_session(placeholder: &str) -> bool {
    placeholder.starts_with("session.")
}

fn declared(check: &mut AgentChecker<'_>, path: &str, text: &str, schema: &Value) {
    let names: Vec<&str> = schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(name, _)| name.as_str())
        .collect();
    for placeholder in placeholders(text) {
        if is_of_session(placeholder) {
            if names.iter().any(|name| *name == "session" || *name == placeholder) {
                let problem = format!("`{{{placeholder}}}` is the session's, not the param's");
                check.report.warn(path, problem, "give the param another name");
            }
            continue;
        }
        let root = placeholder.split('.').next().unwrap_or(placeholder);
        if !names.contains(&root) {
            let hint = match question(root, names.iter().copied()) {
                hint if hint.is_empty() => "add it to `params.properties`".to_owned(),
                hint => hint,
            };
            check.report.warn(path, format!("`{{{placeholder}}}` is not among the parameters"), hint);
        }
    }
}
