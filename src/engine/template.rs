//! Texts with placeholders: `{name}` and `{a.b.0}` for values, `${NAME}` for secrets.
//!
//! Filling is one pass over the operator's text. Inserted text is not scanned again, so a value that contains `{other}`
//! or `${SECRET}` stays as it is. Braces around anything else are plain text.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};

/// A part of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplatePart<'t> {
    /// Plain text.
    Text(&'t str),
    /// A placeholder `{…}`, with the path inside.
    Placeholder(&'t str),
    /// A secret, with the whole token `${NAME}`.
    Secret(&'t str),
}

/// The treatment of a placeholder without a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The whole text is omitted, together with the entry that contains it.
    Omit,
    /// The placeholder becomes an empty text.
    Empty,
}

/// The sources of values for filling a template.
pub struct Filler<'a> {
    /// Returns the value at a path.
    pub value: &'a dyn Fn(&str) -> Option<Value>,
    /// Returns the value of `${NAME}`, given the whole token.
    pub secret: &'a dyn Fn(&str) -> Result<String, String>,
    /// The treatment of a placeholder without a value.
    pub missing: Missing,
}

/// Splits a template into its parts.
pub fn pieces(template: &str) -> Vec<TemplatePart<'_>> {
    let mut found = Vec::new();
    let (mut begin, mut at) = (0, 0);
    while let Some(open) = template[at..].find('{').map(|offset| at + offset) {
        let close = template[open..].find('}').map(|offset| open + offset);
        let inner = close.map(|close| &template[open + 1..close]).unwrap_or_default();
        let secret = template[..open].ends_with('$') && open > begin;
        let start = if secret { open - 1 } else { open };
        let end = open + inner.len() + 2;
        let piece = match inner {
            name if secret && is_name(name) => TemplatePart::Secret(&template[start..end]),
            path if !secret && is_path(path) => TemplatePart::Placeholder(path),
            _ => {
                at = open + 1;
                continue;
            }
        };
        if start > begin {
            found.push(TemplatePart::Text(&template[begin..start]));
        }
        found.push(piece);
        (begin, at) = (end, end);
    }
    if begin < template.len() {
        found.push(TemplatePart::Text(&template[begin..]));
    }
    found
}

/// Whether the text is a valid name of an environment variable.
fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Whether the text is a path: words joined by dots, the first of which does not start with a digit.
fn is_path(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && text
            .split('.')
            .all(|word| !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-')))
}

/// The path, if the template consists of exactly one placeholder.
pub fn exact(template: &str) -> Option<&str> {
    match pieces(template).as_slice() {
        [TemplatePart::Placeholder(path)] => Some(path),
        _ => None,
    }
}

/// The value at a dotted path. Numbers are positions in a list. A key that contains dots itself takes precedence.
pub fn lookup<'v>(root: &'v Map<String, Value>, path: &str) -> Option<&'v Value> {
    if let Some(value) = root.get(path) {
        return Some(value);
    }
    let (first, rest) = path.split_once('.')?;
    descend(root.get(first)?, rest)
}

/// The value at a dotted path below `value`.
pub(crate) fn descend<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').try_fold(value, |value, word| match value {
        Value::Object(map) => map.get(word),
        Value::Array(list) => list.get(word.parse::<usize>().ok()?),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    })
}

/// A value as it is inserted into a text: a string unchanged, null as nothing, any other value as JSON.
pub fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

impl Filler<'_> {
    /// Fills a text. `None` if the text is omitted because of a missing value.
    pub fn text(&self, template: &str) -> Result<Option<String>, String> {
        let mut filled = String::new();
        for piece in pieces(template) {
            match piece {
                TemplatePart::Text(plain) => filled.push_str(plain),
                TemplatePart::Secret(token) => filled.push_str(&(self.secret)(token)?),
                TemplatePart::Placeholder(path) => match ((self.value)(path), self.missing) {
                    (Some(value), _) => filled.push_str(&text(&value)),
                    (None, Missing::Empty) => {}
                    (None, Missing::Omit) => return Ok(None),
                },
            }
        }
        Ok(Some(filled))
    }

    /// Fills every text in a JSON structure. A text that is exactly one placeholder becomes the value itself, with its
    /// JSON type. An entry without a value is omitted.
    pub fn json(&self, template: &Value) -> Result<Option<Value>, String> {
        Ok(match template {
            Value::String(template) => match exact(template) {
                Some(path) => (self.value)(path),
                None => self.text(template)?.map(Value::String),
            },
            Value::Array(list) => {
                let filled: Result<Vec<_>, _> = list.iter().map(|item| self.json(item)).collect();
                Some(Value::Array(filled?.into_iter().flatten().collect()))
            }
            Value::Object(map) => {
                let mut filled = Map::new();
                for (key, value) in map {
                    if let Some(value) = self.json(value)? {
                        filled.insert(key.clone(), value);
                    }
                }
                Some(Value::Object(filled))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => Some(template.clone()),
        })
    }
}

/// Encodes all characters except RFC 3986's unreserved ones, so that a value stays one path segment or one query value.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Escapes a value for a text of some format.
pub(crate) type Escape = fn(&str) -> String;

/// The escaping for values in a body of this content type; `None` for types without a syntax of their own.
pub(crate) fn escape_for(content_type: &str) -> Option<Escape> {
    let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match kind.as_str() {
        "application/x-www-form-urlencoded" => Some(|value| utf8_percent_encode(value, ENCODED).to_string()),
        kind if kind.ends_with("xml") || kind.ends_with("html") => Some(entities),
        _ => None,
    }
}

fn entities(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for char in value.chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Fills a URL with the values that `value` finds. Values can change neither the host nor the number of path segments. `secret` gets the whole token `${NAME}` and
/// the host; its value is inserted unchanged, because an operator may keep a part of the path in it.
pub fn fill_url(
    template: &str,
    value: &dyn Fn(&str) -> Option<Value>,
    secret: &dyn Fn(&str, &str) -> Result<String, String>,
) -> Result<url::Url, String> {
    let mut filled = String::new();
    for piece in pieces(template.trim()) {
        match piece {
            TemplatePart::Text(plain) => filled.push_str(plain),
            TemplatePart::Secret(token) => {
                let host = host_of(&filled).ok_or_else(|| {
                    format!(
                        "the URL `{template}` has the secret `{token}` before its path; scheme and host must be fixed"
                    )
                })?;
                filled.push_str(&secret(token, &host)?);
            }
            TemplatePart::Placeholder(path) => {
                if !names_a_host(&filled) {
                    return Err(format!(
                        "the URL `{template}` has the param `{path}` before its path; scheme and host must be fixed"
                    ));
                }
                // An empty segment would change the path: `/orders/` is another resource than an order.
                let in_query = filled.contains(['?', '#']);
                let value = value(path).filter(|value| !value.is_null()).map(|value| text(&value));
                let value = value.filter(|value| in_query || !value.is_empty());
                let value = value.ok_or_else(|| format!("the param `{path}` is missing; the URL needs it"))?;
                filled.extend(utf8_percent_encode(&value, ENCODED));
            }
        }
    }
    // Split as the URL parser does: it drops line breaks, and treats `\` as `/`.
    let path = filled.split(['?', '#']).next().unwrap_or_default().replace(['\t', '\n', '\r'], "");
    // The parser would resolve `.` and `..`. It treats encoded dots as dots, so encoding does not help.
    let dotted = |segment: &str| matches!(segment.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..");
    if path.split(['/', '\\']).any(dotted) {
        return Err("the params turn a path segment of the URL into `.` or `..`".to_owned());
    }
    let url = url::Url::parse(&filled).map_err(|error| format!("`{template}` is not a valid URL: {error}"))?;
    if matches!(url.scheme(), "http" | "https") && url.has_host() {
        Ok(url)
    } else {
        Err(format!("the URL `{template}` must start with `https://` or `http://` and a host"))
    }
}

/// The host of a URL that begins with `prefix`; `None` if the prefix does not contain the complete host.
fn host_of(prefix: &str) -> Option<String> {
    let url = url::Url::parse(prefix).ok().filter(|_| names_a_host(prefix))?;
    url.host_str().map(str::to_owned)
}

/// Whether the text before the first param contains the complete host, in a form that all parsers read alike.
fn names_a_host(prefix: &str) -> bool {
    let lower = prefix.to_ascii_lowercase();
    let rest = lower.strip_prefix("https://").or_else(|| lower.strip_prefix("http://"));
    let Some((host, _)) = rest.and_then(|rest| rest.find(['/', '?', '#']).map(|end| rest.split_at(end))) else {
        return false;
    };
    !host.is_empty() && !prefix.contains(|c: char| c.is_whitespace() || c.is_control() || c == '\\')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn params(value: Value) -> Map<String, Value> {
        serde_json::from_value(value).unwrap()
    }

    fn url(template: &str, given: Value) -> Result<String, String> {
        let given = params(given);
        fill_url(template, &|path| lookup(&given, path).cloned(), &|token, host| match (token, host) {
            ("${BASE}", "api.example.com") => Ok("v1/x".into()),
            _ => Err(format!("{token} is not allowed for {host}")),
        })
        .map(|url| url.to_string())
    }

    #[test]
    fn braces_around_anything_else_are_text() {
        use TemplatePart::{Placeholder, Secret, Text};
        assert_eq!(
            pieces(r#"{"a": {b.0}, 订{单号}} ${KEY} ${a-b} {} {1} $"#),
            [
                Text(r#"{"a": "#),
                Placeholder("b.0"),
                Text(", 订"),
                Placeholder("单号"),
                Text("} "),
                Secret("${KEY}"),
                Text(" ${a-b} {} {1} $")
            ]
        );
        assert_eq!(pieces("{a}${B}{c}"), [Placeholder("a"), Secret("${B}"), Placeholder("c")]);
        assert_eq!((exact("{a.b}"), exact("{a} ")), (Some("a.b"), None));
        assert_eq!(pieces("{x"), [Text("{x")]);
    }

    #[test]
    fn inserted_text_is_never_expanded_again() {
        let given = params(json!({"a": "{b} ${KEY}", "b": "no", "n": 3, "list": [{"x": true}], "none": null}));
        let filler = Filler {
            value: &|path| lookup(&given, path).cloned(),
            secret: &|_| Ok("secret".into()),
            missing: Missing::Omit,
        };
        let template = json!({
            "text": "<{a}> ${KEY}", "n": "{n}", "x": "{list.0.x}", "all": ["{list}", "{gone}", 1], "none": "{none}",
            "gone": "{gone}", "partly": "dear {gone}"
        });
        assert_eq!(
            filler.json(&template).unwrap().unwrap(),
            json!({"text": "<{b} ${KEY}> secret", "n": 3, "x": true, "all": [[{"x": true}], 1], "none": null})
        );
    }

    #[test]
    fn a_param_stays_within_its_segment() {
        let order = |id: &str| url("https://api.example.com/orders/{id}", json!({"id": id}));
        assert_eq!(order("../admin").unwrap(), "https://api.example.com/orders/..%2Fadmin");
        assert_eq!(order("a?b=c#d").unwrap(), "https://api.example.com/orders/a%3Fb%3Dc%23d");
        assert_eq!(order("@evil").unwrap(), "https://api.example.com/orders/%40evil");
        assert_eq!(order("%2e%2e").unwrap(), "https://api.example.com/orders/%252e%252e");
        assert_eq!(order("订单 1").unwrap(), "https://api.example.com/orders/%E8%AE%A2%E5%8D%95%201");
        for bad in ["..", ".", ""] {
            assert!(order(bad).is_err(), "{bad}");
        }
        let two = url("https://a.example/x/{a}{b}/y", json!({"a": ".", "b": "."}));
        assert!(two.unwrap_err().contains("`..`"));
        for template in ["https://a.example/{b}/.\n{a}", "https://a.example/x/.{a}\\y", "https://a.example/x/%2e{a}"] {
            assert!(url(template, json!({"a": ".", "b": "x"})).is_err(), "{template:?}");
        }
        assert_eq!(
            url("https://API.example.com/${BASE}/q?a={a}&b=1", json!({"a": "1&b=2"})).unwrap(),
            "https://api.example.com/v1/x/q?a=1%26b%3D2&b=1"
        );
        assert_eq!(url("https://a.example/x?q={q}", json!({"q": ""})).unwrap(), "https://a.example/x?q=");
        assert!(url("https://a.example/{id}", json!({})).unwrap_err().contains("`id`"));
    }

    #[test]
    fn a_param_never_reaches_the_host() {
        for template in [
            "https://{h}/x",
            "https://{h}.example.com/x",
            "https://api.example.com{h}/x",
            "https:///{h}/x",
            "https://\t/{h}/x",
            "https://\\/{h}",
            "{h}",
            "https:{h}",
        ] {
            assert!(url(template, json!({"h": "evil.example"})).is_err(), "{template}");
        }
        assert!(url("file:///etc/passwd", json!({})).is_err());
        assert!(url("https://a.example/${OTHER}", json!({})).unwrap_err().contains("${OTHER}"));
        assert!(url("https://a.example/${BASE}", json!({})).unwrap_err().contains("not allowed for a.example"));
        for template in [
            "${BASE}/x",
            "https://${BASE}/x",
            "https://${BASE}.example.com/x",
            "https://api.example.com${BASE}/x",
            "https://${BASE}@api.example.com/x",
            "https://api.example.com:${BASE}/x",
            "https://api.example.com\\${BASE}/x",
        ] {
            let refused = url(template, json!({})).unwrap_err();
            assert!(refused.contains("`${BASE}` before its path"), "{template}: {refused}");
        }
    }
}
