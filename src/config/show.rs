//! `turnwheel config`: the effective settings with their origin, secrets masked.

use super::load::Loaded;
use serde::Serialize;
use serde_json::{Map, Value};
use url::Url;

/// One setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Its dotted key.
    pub key: String,
    /// Its value, masked where it is secret.
    pub value: Value,
    /// Where it comes from.
    pub origin: String,
}

/// All settings, by key.
pub fn rows(loaded: &Loaded) -> Vec<Row> {
    let document = serde_json::to_value(&loaded.settings).unwrap_or_default();
    let mut rows = Vec::new();
    flatten(&document, String::new(), &mut rows);
    for row in &mut rows {
        mask(row);
        row.origin = origin(loaded, &row.key);
    }
    rows.sort_by(|a, b| a.key.cmp(&b.key));
    rows
}

fn flatten(value: &Value, key: String, rows: &mut Vec<Row>) {
    let inner: Option<&Map<String, Value>> = value.as_object().filter(|fields| !fields.is_empty());
    let Some(fields) = inner else {
        return rows.push(Row { key, value: value.clone(), origin: String::new() });
    };
    for (field, value) in fields {
        let key = if key.is_empty() { field.clone() } else { format!("{key}.{field}") };
        flatten(value, key, rows);
    }
}

fn mask(row: &mut Row) {
    match row.key.as_str() {
        "gateway.tokens" => {
            for token in row.value.as_array_mut().into_iter().flatten() {
                *token = Value::from("***");
            }
        }
        "nats.url" | "mongodb.uri" => {
            row.value = Value::from(masked_address(row.value.as_str().unwrap_or_default()));
        }
        _ => {}
    }
}

/// An address without the password in it, for output and logs.
pub fn masked_address(address: &str) -> String {
    if let Ok(mut url) = Url::parse(address) {
        if url.password().is_some() {
            // Fails only for addresses that cannot have a password.
            let _ = url.set_password(Some("***"));
            return url.to_string();
        }
        // A NATS token stands where the user would.
        if !url.username().is_empty() && url.scheme().starts_with("nats") {
            let _ = url.set_username("***");
            return url.to_string();
        }
        return address.to_owned();
    }
    // A list of hosts is no URL: everything before the last `@` goes.
    match (address.find("://"), address.rfind('@')) {
        (Some(scheme), Some(at)) if scheme < at => format!("{}://***{}", &address[..scheme], &address[at..]),
        _ => address.to_owned(),
    }
}

fn origin(loaded: &Loaded, key: &str) -> String {
    let origin = loaded.origins.get(key).or_else(|| {
        loaded.origins.iter().find(|(known, _)| key.starts_with(&format!("{known}."))).map(|(_, origin)| origin)
    });
    origin.cloned().unwrap_or_else(|| "default".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use std::collections::BTreeMap;

    #[test]
    fn secrets_are_masked_and_origins_shown() {
        let mut settings = Settings::default();
        settings.gateway.tokens = vec!["t0ken".into()];
        settings.nats.url = "nats://u:p4ss@n:4222".into();
        settings.mongodb.uri = "mongodb://u:p4ss@a:1,b:2/?replicaSet=rs0".into();
        let origins = BTreeMap::from([("gateway.tokens".to_owned(), "turnwheel.toml".to_owned())]);
        let rows = rows(&Loaded { settings, origins });
        let text = serde_json::to_string(&rows).unwrap();
        assert!(!text.contains("p4ss") && !text.contains("t0ken"), "{text}");
        assert!(rows.iter().any(|row| row.key == "gateway.tokens" && row.origin == "turnwheel.toml"));
        assert!(rows.iter().any(|row| row.key == "worker.ack_wait" && row.value == "6s" && row.origin == "default"));
    }
}
