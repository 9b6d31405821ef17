//! The output of `turnwheel config`: every setting with its value, secrets masked, and its origin.

use super::load::LoadedSettings;
use super::schema::{KEYS, Key, NAMED};
use super::secrets::masked_address;

use super::mask::MASK;
use super::secrets::SecretValues;
use serde::Serialize;
use serde_json::{Value, json};

/// One setting as `turnwheel config` prints it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The dotted name.
    pub key: String,
    /// The value, with secrets masked.
    pub value: Value,
    /// Where the value came from.
    pub origin: String,
    /// Further information, such as whether a named environment variable is set.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// All settings, in the order of [`KEYS`].
pub fn rows(loaded: &LoadedSettings) -> Vec<Row> {
    let values = serde_json::to_value(&loaded.settings).unwrap_or_default();
    let secrets = SecretValues::new(&loaded.settings, &loaded.env);
    let mut rows = Vec::new();
    for key in KEYS {
        let Some((table, field)) = key.of_name() else {
            let value = values.pointer(&format!("/{}", key.path.replace('.', "/"))).cloned().unwrap_or_default();
            rows.push(row(loaded, &secrets, key, key.path.to_owned(), &value));
            continue;
        };
        // All fields of one entry are printed together, where the first field stands in the table.
        if NAMED.iter().any(|(of, first, ..)| (*of, *first) == (table, field)) {
            rows.extend(entries(loaded, &secrets, &values, table));
        }
    }
    rows
}

fn entries(loaded: &LoadedSettings, secrets: &SecretValues, values: &Value, table: &str) -> Vec<Row> {
    let fields: Vec<(&Key, &str)> =
        KEYS.iter().filter_map(|key| Some((key, key.of_name().filter(|(of, _)| *of == table)?.1))).collect();
    let mut rows = Vec::new();
    for (name, entry) in values[table].as_object().into_iter().flatten() {
        for (key, field) in &fields {
            rows.push(row(loaded, secrets, key, format!("{table}.{name}.{field}"), &entry[*field]));
        }
    }
    rows
}

fn row(loaded: &LoadedSettings, secrets: &SecretValues, key: &Key, name: String, value: &Value) -> Row {
    let origin = loaded.origins.get(&name).map_or_else(|| "default".into(), ToString::to_string);
    let state = |variable: &str| format!("{variable} is {}", if secrets.is_set(variable) { "set" } else { "not set" });
    let note = match (key.path, value) {
        (
            "models.*.api_key_env" | "connectors.*.url_env" | "nats.password_env" | "nats.token_env",
            Value::String(variable),
        ) => state(variable),
        ("secrets.allow", Value::Array(_)) => {
            loaded.settings.secrets.allowed().names().map(state).collect::<Vec<_>>().join(", ")
        }
        _ => String::new(),
    };
    let value = match value {
        Value::Array(items) if key.secret => items.iter().map(|_| json!(MASK)).collect(),
        // The address of a model may contain a password.
        Value::String(text) if key.secret || key.path == "models.*.base_url" => masked_address(text).into(),
        other => other.clone(),
    };
    Row { key: name, value, origin, note }
}

/// The rows as JSON: `{"settings":[{key,value,origin}]}`.
pub fn json(rows: &[Row]) -> Value {
    json!({ "settings": rows })
}

/// Formats a value for people; an absent or empty one as `-`.
pub fn shown(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) if text.is_empty() => "-".into(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Settings, Sources};

    #[test]
    fn prints_every_setting_with_its_origin_and_no_secret() {
        let env = [
            ("TURNWHEEL_GATEWAY__TOKENS", "hidden-1,hidden-2"),
            ("NATS_URL", "nats://me:hidden-3@queue:4222"),
            ("TURNWHEEL_MODELS__DEFAULT__PROVIDER", "openai"),
            ("TURNWHEEL_MODELS__DEFAULT__BASE_URL", "https://api.example.com/v1"),
            ("TURNWHEEL_MODELS__DEFAULT__MODEL", "m"),
            ("TURNWHEEL_MODELS__DEFAULT__API_KEY_ENV", "MODEL_KEY"),
            ("MODEL_KEY", "hidden-4"),
        ];
        let directory = tempfile::tempdir().unwrap();
        let sources = Sources {
            env: env.into_iter().collect(),
            directory: directory.path().to_owned(),
            overrides: vec![("worker.concurrency".into(), "8".into())],
            ..Sources::default()
        };
        let rows = rows(&Settings::load(&sources).unwrap());
        let line = |row: &Row| format!("{} {} # {}; {}", row.key, shown(&row.value), row.origin, row.note);
        let (text, json) = (rows.iter().map(line).collect::<Vec<_>>().join("\n"), json(&rows));
        assert!(!text.contains("hidden") && !json.to_string().contains("hidden"), "{text}");
        let line = |key: &str| text.lines().find(|line| line.starts_with(key)).unwrap_or_default().to_owned();
        assert!(
            line("nats.url").contains("nats://me:***@queue:4222 ") && line("nats.url").ends_with("variable NATS_URL; "),
            "{text}"
        );
        assert!(line("gateway.tokens").contains(r#"["***","***"]"#), "{text}");
        assert!(line("worker.concurrency").ends_with("# flag; "), "{text}");
        assert!(line("models.default.api_key_env").ends_with("; MODEL_KEY is set"), "{text}");
        assert!(line("backend").contains("cluster"), "{text}");
        assert_eq!(json["settings"].as_array().unwrap().len(), rows.len());
        assert!(rows.iter().all(|row| !row.key.contains('*')));
    }
}
