//! The table of all settings and their types. Loading parses values by it and finds unknown keys with it; `turnwheel
//! config` prints in its order. A test checks it against [`super::Settings`].

use super::nearest::nearest;
use figment::value::{Num, Value as Raw};
use serde_json::{Map, Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use types::allowed_secrets::split_entries;
use types::duration;

/// The type of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A text.
    Text,
    /// A path. If a file sets it, it is relative to the file's folder.
    Path,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A whole number in this range, both ends included.
    Whole(u64, u64),
    /// A number of at least 0.
    Decimal,
    /// A number from 0 to 1.
    Share,
    /// A duration of at least this many milliseconds.
    Duration(u64),
    /// A list of texts.
    List,
    /// A list of secrets with their hosts.
    Secrets,
    /// An IP address and a port.
    Address,
    /// An IP address and a port, or an empty text for none.
    Listener,
    /// A table with any fields.
    Table,
    /// A list of tables, with the names of the fields that are paths.
    Tables(&'static [&'static str]),
    /// `true` or `false`.
    Truth,
}

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The dotted name; `*` stands for the name of a model or a connector.
    pub path: &'static str,
    /// The type of the value.
    pub kind: Kind,
    /// True if the value may contain a secret. It is then printed masked.
    pub secret: bool,
}

const fn key(path: &'static str, kind: Kind) -> Key {
    Key { path, kind, secret: false }
}

const fn secret(path: &'static str, kind: Kind) -> Key {
    Key { path, kind, secret: true }
}

const SOME: Kind = Kind::Whole(1, i64::MAX as u64);

/// All settings, in the order in which they are printed.
pub(crate) const KEYS: &[Key] = &[
    key("namespace", Kind::Text),
    key("backend", Kind::Choice(&["cluster", "embedded"])),
    secret("nats.url", Kind::Text),
    key("nats.user", Kind::Text),
    key("nats.password_env", Kind::Text),
    key("nats.token_env", Kind::Text),
    key("nats.nkey", Kind::Path),
    key("nats.creds", Kind::Path),
    key("nats.ca", Kind::Path),
    key("nats.cert", Kind::Path),
    key("nats.key", Kind::Path),
    key("nats.inbox_prefix", Kind::Text),
    key("nats.replicas", Kind::Whole(1, 5)),
    secret("mongodb.uri", Kind::Text),
    key("mongodb.database", Kind::Text),
    key("mongodb.timeout", Kind::Duration(100)),
    key("data_dir", Kind::Path),
    key("agents_dir", Kind::Path),
    key("workflows_dir", Kind::Path),
    key("prompts_dir", Kind::Path),
    key("worker.concurrency", Kind::Whole(1, 1_000_000)),
    key("worker.ack_wait", Kind::Duration(100)),
    key("worker.agent_concurrency", Kind::Whole(0, 1_000_000)),
    key("worker.max_attempts", Kind::Whole(1, u32::MAX as u64)),
    key("worker.drain_timeout", Kind::Duration(0)),
    key("lane.max_depth", Kind::Whole(1, 1 << 40)),
    key("streams.jobs_max_mib", Kind::Whole(0, 1 << 40)),
    key("streams.out_max_mib", Kind::Whole(0, 1 << 40)),
    key("streams.dead_max_mib", Kind::Whole(0, 1 << 40)),
    key("gateway.listen", Kind::Address),
    key("gateway.grpc_listen", Kind::Listener),
    key("gateway.grpc_cert", Kind::Path),
    key("gateway.grpc_key", Kind::Path),
    secret("gateway.tokens", Kind::List),
    key("gateway.access", Kind::Tables(&["token_file"])),
    key("gateway.max_connections", Kind::Whole(1, 1_000_000)),
    key("gateway.max_connections_per_address", Kind::Whole(0, 1_000_000)),
    key("gateway.agent_messages_per_minute", Kind::Whole(0, u32::MAX as u64)),
    key("gateway.max_streams", Kind::Whole(0, 1_000_000)),
    key("gateway.cors", Kind::List),
    key("console.dir", Kind::Path),
    secret("authoring.endpoint", Kind::Text),
    secret("authoring.token", Kind::Text),
    key("authoring.ca", Kind::Path),
    key("secrets.allow", Kind::Secrets),
    key("secrets.unbound", Kind::Truth),
    key("http.allow_private", Kind::List),
    key("models.*.provider", Kind::Choice(&["openai", "offline"])),
    key("models.*.base_url", Kind::Text),
    key("models.*.api_key_env", Kind::Text),
    key("models.*.model", Kind::Text),
    key("models.*.timeout", Kind::Duration(1)),
    key("models.*.idle_timeout", Kind::Duration(1)),
    key("models.*.max_retries", Kind::Whole(0, 100)),
    key("models.*.temperature", Kind::Decimal),
    key("models.*.max_tokens", Kind::Whole(1, u32::MAX as u64)),
    key("models.*.max_completion_tokens", Kind::Whole(1, u32::MAX as u64)),
    key("models.*.extra", Kind::Table),
    key("models.*.api_key_header", Kind::Text),
    key("models.*.vision", Kind::Truth),
    key("workflow.max_stages", SOME),
    key("workflow.max_depth", Kind::Whole(1, 64)),
    key("workflow.timeout", Kind::Duration(1)),
    key("workflow.max_model_calls", SOME),
    key("workflow.max_tokens", Kind::Whole(0, i64::MAX as u64)),
    key("workflow.max_parallel", Kind::Whole(1, 10_000)),
    key("decisions.restrict_node_types", Kind::Truth),
    key("decisions.allowed_hosts", Kind::List),
    key("decisions.max_http_calls", Kind::Whole(0, i64::MAX as u64)),
    key("decisions.http_per_minute", Kind::Whole(0, i64::MAX as u64)),
    key("decisions.max_llm_tokens", Kind::Whole(0, i64::MAX as u64)),
    key("python.runner", Kind::Choice(&["builtin", "command", "off"])),
    key("python.command", Kind::List),
    key("python.timeout", Kind::Duration(1)),
    key("python.memory_mb", Kind::Whole(16, 1 << 20)),
    key("python.concurrency", Kind::Whole(0, 10_000)),
    key("python.warm", Kind::Whole(0, 1_000)),
    key("connectors.*.kind", Kind::Choice(&["sqlite", "postgres", "mysql"])),
    key("connectors.*.url_env", Kind::Text),
    key("connectors.*.read_only", Kind::Truth),
    key("connectors.*.max_rows", Kind::Whole(1, 1_000_000)),
    key("connectors.*.timeout", Kind::Duration(1)),
    key("budget.turn", Kind::Whole(0, i64::MAX as u64)),
    key("budget.session", Kind::Whole(0, i64::MAX as u64)),
    key("budget.day", Kind::Whole(0, i64::MAX as u64)),
    key("journal.prompts", Kind::Choice(&["off", "full"])),
    key("retention.turns", Kind::Duration(1)),
    key("retention.out", Kind::Duration(1)),
    key("retention.idle", Kind::Duration(1)),
    key("retention.audit", Kind::Duration(1)),
    key("quotas.versions", Kind::Whole(0, 1_000_000)),
    key("quotas.knowledge_sources", Kind::Whole(0, 1_000_000)),
    key("quotas.knowledge_mib", Kind::Whole(0, 1_000_000)),
    key("retention.closed_sessions", Kind::Duration(0)),
    key("retention.versions", Kind::Duration(1)),
    key("retention.authoring", Kind::Duration(1)),
    key("metrics.listen", Kind::Listener),
    secret("telemetry.otlp_endpoint", Kind::Text),
    key("telemetry.service_name", Kind::Text),
    key("telemetry.sample_ratio", Kind::Share),
];

/// The key with this path.
pub fn find(path: &[String]) -> Option<&'static Key> {
    KEYS.iter().find(|key| prefix(key, path) == Some(0))
}

/// The tables whose entries have names, with the field that each entry needs, its remedy, and the value that stands in
/// while it is missing. A default would turn a typing mistake into silent offline answers, or into another database.
pub(crate) const NAMED: [(&str, &str, &str, &str); 2] = [
    (
        "models",
        "provider",
        "write `provider = \"openai\"` (any compatible server) or `provider = \"offline\"`",
        "offline",
    ),
    ("connectors", "kind", "write `kind = \"sqlite\"`, `\"postgres\"` or `\"mysql\"`", "sqlite"),
];

impl Key {
    /// The table and the field of a setting of one model or connector.
    pub(crate) fn of_name(&self) -> Option<(&'static str, &'static str)> {
        self.path.split_once(".*.")
    }
}

/// The names directly below `path`; empty unless it is a table of settings.
pub fn below(path: &[String]) -> Vec<&'static str> {
    let mut names: Vec<_> = KEYS
        .iter()
        .filter(|key| prefix(key, path).is_some_and(|rest| rest > 0))
        .filter_map(|key| key.path.split('.').nth(path.len()))
        .collect();
    names.dedup();
    names
}

/// How many names of `key` follow after `path`; `None` if `key` does not begin with `path`.
fn prefix(key: &Key, path: &[String]) -> Option<usize> {
    let names: Vec<&str> = key.path.split('.').collect();
    let fits = names.len() >= path.len() && names.iter().zip(path).all(|(name, part)| *name == "*" || name == part);
    fits.then(|| names.len() - path.len())
}

/// A known dotted key that resembles an unknown one.
pub(crate) fn suggestion(path: &[String]) -> Option<String> {
    let concrete = |key: &Key| match path {
        [first, name, ..] if NAMED.iter().any(|(table, ..)| first == table) => key.path.replace('*', name),
        _ => key.path.replace('*', "default"),
    };
    let mut names: Vec<String> = KEYS.iter().map(concrete).collect();
    names.extend(KEYS.iter().filter_map(|key| key.path.split_once('.')).map(|(table, _)| table.to_owned()));
    let wanted = path.join(".");
    if let Some(found) = nearest(&wanted, names.iter().map(String::as_str)) {
        return Some(found.to_owned());
    }
    // The name may be right and the table wrong.
    let last = path.last()?;
    names.into_iter().find(|name| name.rsplit('.').next() == Some(last))
}

impl Kind {
    /// Describes the accepted values, for error messages.
    pub fn allowed(self) -> String {
        match self {
            Self::Text => "a text".into(),
            Self::Path => "a path".into(),
            Self::Choice(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" or "),
            Self::Whole(low, high) if high >= u64::from(u32::MAX) => format!("a whole number of at least {low}"),
            Self::Whole(low, high) => format!("a whole number from {low} to {high}"),
            Self::Decimal => "a number of at least 0".into(),
            Self::Share => "a number from 0 to 1".into(),
            Self::Duration(low) => format!(
                "a duration of at least {} with its unit, such as `500ms`, `10s`, `30m`, `2h` or `1d`",
                duration::format(Duration::from_millis(low))
            ),
            Self::List => "a list of texts, such as [\"a\", \"b\"] (in an environment variable also `a,b`)".into(),
            Self::Secrets => "a list of secrets with their hosts, such as [\"ORDERS_TOKEN@api.example.com,api2.example.com\"] (in an \
                              environment variable also the entries with commas between them)"
                .into(),
            Self::Address => "an IP address and a port, such as `127.0.0.1:8080` or `[::1]:8080`".into(),
            Self::Listener => "an IP address and a port, such as `127.0.0.1:9464`, or `\"\"` for none".into(),
            Self::Table => {
                "a table such as `{ seed = 7 }` (in an environment variable or a flag JSON: `{\"seed\":7}`)".into()
            }
            Self::Tables(_) => {
                "tables such as `[[gateway.access]]` (in an environment variable or a flag a JSON list)".into()
            }
            Self::Truth => "`true` or `false`".into(),
        }
    }

    /// The value with its paths relative to the folder of the settings file.
    pub fn beside(self, file: &Path, value: Value) -> Value {
        let folder = file.parent().unwrap_or(Path::new(""));
        let join = |text: &str| Value::from(folder.join(text).to_string_lossy());
        match (self, value) {
            (Self::Path, Value::String(text)) => join(&text),
            (Self::Tables(paths), Value::Array(mut tables)) => {
                for table in tables.iter_mut().filter_map(Value::as_object_mut) {
                    for path in
                        table.iter_mut().filter(|(name, _)| paths.contains(&name.as_str())).map(|(_, path)| path)
                    {
                        *path = path.as_str().map_or(Value::Null, join);
                    }
                }
                Value::Array(tables)
            }
            (_, value) => value,
        }
    }

    /// Converts a value to this type. Returns `None` for a value of another type. `is_plain` is true for values from
    /// the environment and from flags: they are always texts, and may express lists and tables.
    pub fn read(self, raw: &Raw, is_plain: &dyn Fn(&Raw) -> bool) -> Option<Value> {
        let (text, plain) = (raw.as_str().map(str::trim), is_plain(raw));
        match self {
            Self::Text => number_as_text(raw, plain).or(text.map(str::to_owned)).map(Value::from),
            Self::Path => text.filter(|text| !text.is_empty()).map(Value::from),
            Self::Choice(words) => words.iter().find(|word| Some(**word) == text).map(|word| json!(word)),
            Self::Whole(low, high) => {
                let number = match text {
                    Some(text) => text.replace('_', "").parse().ok(),
                    None => whole(raw),
                };
                number.filter(|number| (low..=high).contains(number)).map(Value::from)
            }
            Self::Decimal => number(raw, text).map(Value::from),
            Self::Share => number(raw, text).filter(|share| *share <= 1.0).map(Value::from),
            Self::Duration(low) => {
                let read = duration::parse(text?).ok()?;
                (read >= Duration::from_millis(low)).then(|| duration::format(read).into())
            }
            Self::List => list(raw, text.filter(|_| plain), comma_list),
            Self::Secrets => list(raw, text.filter(|_| plain), split_entries),
            Self::Address => text?.parse::<SocketAddr>().ok().map(|address| address.to_string().into()),
            Self::Listener if text == Some("") => Some(Value::Null),
            Self::Listener => Self::Address.read(raw, is_plain),
            Self::Table => table(raw, is_plain).map(Value::from),
            Self::Tables(_) => tables(raw, is_plain),
            Self::Truth => match raw {
                Raw::Bool(_, truth) => Some((*truth).into()),
                _ => text.filter(|_| plain)?.parse::<bool>().ok().map(Value::from),
            },
        }
    }
}

/// A number as text, if it came from a flag or the environment, where every value is a text. Elsewhere a number is an
/// error.
fn number_as_text(raw: &Raw, plain: bool) -> Option<String> {
    match raw {
        Raw::Num(_, number) if plain => number.to_i128().map(|number| number.to_string()),
        _ => None,
    }
}

fn whole(raw: &Raw) -> Option<u64> {
    let Raw::Num(_, number) = raw else { return None };
    number.to_u128().and_then(|n| u64::try_from(n).ok()).or_else(|| u64::try_from(number.to_i128()?).ok())
}

/// Parses a number of at least 0.
fn number(raw: &Raw, text: Option<&str>) -> Option<f64> {
    let number = match text {
        Some(text) => text.parse().ok(),
        None => decimal(raw),
    };
    number.filter(|number: &f64| number.is_finite() && *number >= 0.0)
}

fn decimal(raw: &Raw) -> Option<f64> {
    match raw {
        Raw::Num(_, Num::F64(number)) => Some(*number),
        Raw::Num(_, Num::F32(number)) => Some(f64::from(*number)),
        // A temperature of 1 may be written without a fraction.
        Raw::Num(..) => whole(raw).and_then(|number| u32::try_from(number).ok()).map(f64::from),
        _ => None,
    }
}

/// Parses a table. A flag or an environment variable has JSON, for the whole table or for one of its fields; the other
/// fields may be from a file.
fn table(raw: &Raw, is_plain: &dyn Fn(&Raw) -> bool) -> Option<Map<String, Value>> {
    if let Some(text) = raw.as_str().filter(|_| is_plain(raw)) {
        return serde_json::from_str(text).ok();
    }
    let given = raw.as_dict()?;
    let mut fields: Map<String, Value> = serde_json::from_value(serde_json::to_value(given).ok()?).ok()?;
    for (name, field) in &mut fields {
        if given.get(name).is_some_and(is_plain)
            && let Some(read) = field.as_str().and_then(|text| serde_json::from_str(text).ok())
        {
            *field = read;
        }
    }
    Some(fields)
}

/// Parses a list of tables. A flag or an environment variable has it as JSON.
fn tables(raw: &Raw, is_plain: &dyn Fn(&Raw) -> bool) -> Option<Value> {
    let read = match raw.as_str().filter(|_| is_plain(raw)) {
        Some(text) => serde_json::from_str(text).ok()?,
        None => serde_json::to_value(raw).ok()?,
    };
    read.as_array()?.iter().all(Value::is_object).then_some(read)
}

/// Parses a list. A plain text is JSON, or is split by `split`.
fn list(raw: &Raw, plain: Option<&str>, split: fn(&str) -> Vec<String>) -> Option<Value> {
    if let Raw::Array(_, items) = raw {
        return items.iter().map(|item| item.as_str().map(Value::from)).collect::<Option<Vec<_>>>().map(Value::from);
    }
    let text = plain?;
    if text.starts_with('[') {
        return serde_json::from_str::<Vec<String>>(text).ok().map(Value::from);
    }
    Some(split(text).into())
}

fn comma_list(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Model, Provider, Settings};

    fn leaves(value: &Value, path: &str, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                for (name, field) in fields {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    leaves(field, &path, found);
                }
            }
            _ => found.push(path.to_owned()),
        }
    }

    #[test]
    fn the_table_holds_exactly_the_settings() {
        let mut settings = Settings::default();
        let model: Model = serde_json::from_value(json!({"provider": "offline"})).unwrap();
        assert_eq!(model.provider, Provider::Offline);
        settings.models.insert("*".into(), model);
        settings.connectors.insert("*".into(), serde_json::from_value(json!({"kind": "sqlite"})).unwrap());
        let mut found = Vec::new();
        leaves(&serde_json::to_value(settings).unwrap(), "", &mut found);
        let mut table: Vec<String> = KEYS.iter().map(|key| key.path.to_owned()).collect();
        found.sort();
        table.sort();
        assert_eq!(found, table);
    }
}
