//! `turnwheel.example.toml`.

use super::*;

#[test]
fn every_line_of_the_example_loads() {
    let example = include_str!("../../../turnwheel.example.toml");
    let database = ("DATABASE_URL", "postgres://u:p@h/d");
    let web = ("WEB_CHAT_TOKEN", "0123456789abcdef");
    let env = [("OPENAI_API_KEY", "k"), ("NATS_PASSWORD", "p"), ("NATS_TOKEN", "t"), database, web];
    // Some settings are valid only together with another one.
    let pairs = [("user", "password_env"), ("cert", "key"), ("grpc_cert", "grpc_key")];
    let partner = |key: &str| {
        pairs.iter().find_map(|(one, other)| match key {
            key if key == *one => Some(*other),
            key if key == *other => Some(*one),
            _ => None,
        })
    };
    let line_of = |table: &str, key: &str| {
        let of_table = example.split(table).nth(1)?;
        of_table.lines().find_map(|line| line.strip_prefix('#').filter(|line| line.starts_with(&format!("{key} ="))))
    };
    let mut table = String::new();
    let mut model = String::new();
    let mut seen = BTreeSet::new();
    for line in example
        .lines()
        .filter_map(|line| line.strip_prefix("#"))
        .filter(|line| !line.is_empty() && !line.starts_with(' '))
    {
        if line.starts_with('[') {
            table = line.to_owned();
            model.clear();
            continue;
        }
        // Each optional field of a model, connector or named token needs the required ones.
        if ["[models.", "[connectors.", "[["].iter().any(|named| table.starts_with(named)) {
            if line.starts_with("max_completion_tokens") {
                // Excludes `max_tokens`.
                model = model
                    .lines()
                    .filter(|line| !line.starts_with("max_tokens"))
                    .map(|line| format!("{line}\n"))
                    .collect();
            }
            model.push_str(&format!("{line}\n"));
        }
        let body = if model.is_empty() { line } else { &model };
        let complete =
            model.is_empty() || ["model = ", "url_env = ", "token_env = "].iter().any(|last| model.contains(last));
        let key = line.split('=').next().unwrap_or_default().trim();
        let beside = partner(key)
            .filter(|_| ["[nats]", "[gateway]"].contains(&table.as_str()))
            .and_then(|other| line_of(&table, other))
            .unwrap_or("");
        let text = if table.is_empty() { body.to_owned() } else { format!("{table}\n{body}\n{beside}") };
        let tokens = [("gateway.tokens", "0123456789abcdef")];
        if complete {
            load(&text, &env, &tokens).unwrap_or_else(|error| panic!("{text}\n{error}"));
        }
        let list = table.starts_with("[[");
        let table = table.trim_matches(['[', ']']);
        seen.insert(if list {
            table.to_owned()
        } else if table.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", table.replace("default", "*"))
        });
    }
    let all: BTreeSet<String> = schema::KEYS.iter().map(|key| key.path.to_owned()).collect();
    assert_eq!(seen, all);
}
