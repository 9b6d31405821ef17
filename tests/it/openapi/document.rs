//! The document itself, as a reader and a code generator see it: tags, security, parameters, errors and examples.

use super::{Described, collect};
use crate::gateway::Gateway;
use crate::support::backend::{embedded, embedded_with};
use base::config::Settings;
use regex::Regex;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

/// The token of a gateway that requires one.
const TOKEN: &str = "s3cret";

/// An operation of the document.
struct Operation<'d> {
    method: &'d str,
    path: &'d str,
    described: &'d Value,
}

impl Operation<'_> {
    fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// The responses with their statuses.
    fn responses(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.described["responses"].as_object().unwrap().iter()
    }

    /// The errors: status, code, and example.
    fn errors(&self) -> Vec<(String, String, &Value)> {
        let failed = self.responses().filter(|(status, _)| status.starts_with(['4', '5']));
        let codes = failed.flat_map(|(status, response)| {
            let content = &response["content"]["application/json"];
            assert_eq!(content["schema"]["$ref"], "#/components/schemas/ErrorResponse", "{} {status}", self.name());
            let examples = content["examples"].as_object().unwrap_or_else(|| panic!("{} {status}", self.name()));
            examples.iter().map(move |(code, example)| (status.clone(), code.clone(), &example["value"]))
        });
        codes.collect()
    }

    fn is_open(&self) -> bool {
        matches!(self.path, "/healthz" | "/readyz" | "/api/v1/login" | "/api/v1/logout")
    }
}

impl Described {
    fn all(&self) -> Vec<Operation<'_>> {
        let mut all = Vec::new();
        for (path, item) in self.0["paths"].as_object().unwrap() {
            for (method, described) in item.as_object().unwrap() {
                all.push(Operation { method, path, described });
            }
        }
        all
    }
}

/// The document of a gateway with a token.
async fn with_token() -> Described {
    let mut settings = Settings::default();
    settings.gateway.tokens = vec![TOKEN.into()];
    let backend = embedded_with(settings).await;
    let gateway = Gateway::start(&backend.queue, &backend.store, &backend.settings).await;
    let url = format!("{}/openapi.json", gateway.base);
    assert_eq!(gateway.client.get(&url).send().await.unwrap().status(), 401);
    let response = gateway.client.get(&url).bearer_auth(TOKEN).send().await.unwrap();
    Described(response.json().await.unwrap())
}

/// The document of a gateway without tokens.
async fn without_token() -> Described {
    Described::by(&Gateway::idle(&embedded().await).await).await
}

#[tokio::test]
async fn the_description_is_whole() {
    let described = with_token().await;
    let document = &described.0;
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(document["components"]["securitySchemes"]["bearer"]["scheme"], "bearer");
    let mut found = BTreeSet::new();
    collect(document, &mut found, |schema| schema.get("$ref"));
    for reference in &found {
        let place = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(place).is_some(), "{reference} does not exist");
    }
    for name in ["Reply", "StatusEvent", "StepEvent", "RunEvent", "TurnEvent", "HandoffEvent"] {
        assert!(document["components"]["schemas"][name].is_object(), "the payload of events is described: {name}");
    }
    let tags: BTreeSet<&str> =
        document["tags"].as_array().unwrap().iter().map(|tag| tag["name"].as_str().unwrap()).collect();
    let mut used = BTreeSet::new();
    let mut operation_ids = BTreeSet::new();
    for operation in described.all() {
        let (name, described) = (operation.name(), operation.described);
        // Each alternative is the bearer token, or the cookie of a login, with one role.
        let security = described["security"].as_array().unwrap();
        assert_eq!(security.is_empty(), operation.is_open(), "{name}");
        let one_role = |one: &Value| {
            let schemes = one.as_object().unwrap();
            schemes.len() == 1
                && ["bearer", "cookie"]
                    .iter()
                    .filter_map(|scheme| schemes.get(*scheme)?.as_array())
                    .all(|roles| roles.len() == 1)
        };
        assert!(security.iter().all(one_role), "{name}");
        assert!(described["responses"]["default"].is_object(), "{name}");
        assert!(described["summary"].as_str().unwrap().ends_with('.'), "{name}");
        assert!(operation.responses().any(|(status, _)| status.starts_with('2')), "{name} never succeeds");
        let id = described["operationId"].as_str().unwrap().to_owned();
        assert!(operation_ids.insert(id.clone()), "operation id {id} is not unique");
        let [tag] = described["tags"].as_array().unwrap().as_slice() else { panic!("{name}: one tag") };
        used.insert(tag.as_str().unwrap());
    }
    assert_eq!(used, tags);
    let events = &document["paths"]["/api/v1/sessions/{session_id}/events"]["get"];
    assert!(events["responses"]["200"]["content"]["text/event-stream"].is_object(), "{events}");
    let parameters =
        events["parameters"].as_array().unwrap().iter().map(|parameter| parameter["name"].as_str().unwrap());
    assert_eq!(parameters.collect::<BTreeSet<_>>(), ["Last-Event-ID", "last_event_id", "session_id"].into());
    assert!(without_token().await.all().iter().all(|operation| operation.described["security"] == json!([])));
}

#[tokio::test]
async fn parameters_have_a_meaning_a_range_and_a_default() {
    let described = without_token().await;
    let mut limits = 0;
    for operation in described.all() {
        for parameter in operation.described["parameters"].as_array().into_iter().flatten() {
            let name = format!("{}: {}", operation.name(), parameter["name"]);
            assert!(parameter["description"].as_str().is_some_and(|text| text.len() > 5), "{name}: {parameter}");
            let schema = &parameter["schema"];
            match schema["type"].as_str() {
                Some("integer") => {
                    limits += 1;
                    assert!(schema["minimum"].is_number() && schema["maximum"].is_number(), "{name}: {schema}");
                    assert!(schema["default"].is_number(), "{name}: {schema}");
                }
                // A filter: without it both kinds are listed.
                Some("boolean") if parameter["name"] == "waiting" => {}
                Some("boolean") => assert!(schema["default"].is_boolean(), "{name}: {schema}"),
                _ => assert!(schema.is_object(), "{name}"),
            }
        }
    }
    assert!(limits >= 6, "the listings have limits: {limits}");
}

#[tokio::test]
async fn every_error_has_its_codes_and_the_contract_has_the_same() {
    let mut described_codes = BTreeSet::new();
    for (described, refused) in [(without_token().await, "foreign_page"), (with_token().await, "unauthorized")] {
        for operation in described.all() {
            let errors = operation.errors();
            let codes: BTreeSet<&str> = errors.iter().map(|(_, code, _)| code.as_str()).collect();
            // A login is open to everyone, and refuses wrong tokens.
            if operation.path != "/api/v1/login" {
                assert_eq!(codes.contains(refused), !operation.is_open(), "{}: {codes:?}", operation.name());
            }
            for (status, code, example) in &errors {
                assert_eq!(&example["error"]["code"], code, "{}", operation.name());
                let schema = json!({"$ref": "#/components/schemas/ErrorResponse"});
                assert!(described.problems(&schema, example).is_empty(), "{example}");
                described_codes.insert((status.clone(), code.clone()));
            }
        }
    }
    // These have no endpoint.
    for (status, code) in [("404", "unknown_path"), ("405", "wrong_method")] {
        assert!(described_codes.insert((status.to_owned(), code.to_owned())), "{code}");
    }
    let page = |name: &str| {
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/contract").join(name)).unwrap()
    };
    let page = page("http.md") + &page("authoring.md");
    let (row, code) = (Regex::new(r"(?m)^\| (\d{3}) \| ([^|]*) \|").unwrap(), Regex::new("`([a-z_]+)`").unwrap());
    let written: BTreeSet<(String, String)> = row
        .captures_iter(&page)
        .flat_map(|row| {
            code.captures_iter(row.get(2).unwrap().as_str()).map(move |code| (row[1].to_owned(), code[1].to_owned()))
        })
        .collect();
    assert_eq!(described_codes, written);
}

#[tokio::test]
async fn every_body_has_an_example_that_fits_its_schema() {
    let described = without_token().await;
    let check = |name: &str, content: &Value| {
        let example = &content["example"];
        assert!(!example.is_null(), "{name} has no example");
        let problems = described.problems(&content["schema"], example);
        assert!(problems.is_empty(), "{name}: {problems:?}\n{example:#}");
    };
    for operation in described.all() {
        let name = operation.name();
        if operation.described.get("requestBody").is_some() {
            check(&name, &operation.described["requestBody"]["content"]["application/json"]);
        }
        for (status, response) in operation.responses().filter(|(status, _)| status.starts_with('2')) {
            for (kind, content) in response["content"].as_object().into_iter().flatten() {
                match kind.as_str() {
                    "text/event-stream" => check_events(&described, &name, content),
                    _ => check(&format!("{name} {status}"), content),
                }
            }
        }
    }
}

/// Checks the examples of a stream: the `data` of each event matches the schema of its type.
fn check_events(described: &Described, name: &str, content: &Value) {
    let examples = content["examples"].as_object().unwrap_or_else(|| panic!("{name} has no examples"));
    let mut checked = BTreeSet::new();
    for (example, block) in examples {
        let block = block["value"].as_str().unwrap();
        let field = |field: &str| block.lines().find_map(|line| line.strip_prefix(field));
        assert!(
            (field("id: ").is_some() || example == "open") && block.ends_with("\n\n"),
            "{name} {example}: {block:?}"
        );
        let Some(data) = field("data: ") else { continue };
        let schema = match field("event: ") {
            Some("open") => "EventsOpened",
            Some("gap") => "EventGap",
            _ if name.ends_with("/api/v1/events") => "LocatedEvent",
            Some("reply") => "Reply",
            Some("status") => "StatusEvent",
            Some("step") => "StepEvent",
            Some("turn") => "TurnEvent",
            Some("handoff") => "HandoffEvent",
            Some("test") => "TrialBegin",
            Some("end") => "TrialEnd",
            _ if name.ends_with("/chat/stream") => "AuthoringEvent",
            _ => "RunEvent",
        };
        let schema = json!({"$ref": format!("#/components/schemas/{schema}")});
        let mut data: Value = serde_json::from_str(data).unwrap();
        // In a test of a draft, a step also has the call that was not made.
        if let Some(would_call) = data.as_object_mut().and_then(|fields| fields.remove("would_call")) {
            let problems = described.problems(&json!({"$ref": "#/components/schemas/WouldCall"}), &would_call);
            assert!(problems.is_empty(), "{name} {example}: {problems:?}");
        }
        let problems = described.problems(&schema, &data);
        assert!(problems.is_empty(), "{name} {example}: {problems:?}");
        checked.insert(field("event: ").unwrap_or_default());
    }
    assert!(!checked.is_empty(), "{name} has no example with data");
    if name.ends_with("/sessions/{session_id}/events") {
        assert_eq!(checked, ["handoff", "reply", "run", "status", "step", "turn"].into());
    }
}

/// All texts of a value, without examples.
fn texts<'v>(value: &'v Value, found: &mut Vec<&'v str>) {
    match value {
        Value::String(text) => found.push(text),
        Value::Object(fields) => {
            fields.iter().filter(|(name, _)| !name.starts_with("example")).for_each(|(_, field)| texts(field, found))
        }
        Value::Array(items) => items.iter().for_each(|item| texts(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[tokio::test]
async fn the_document_speaks_of_the_api_and_not_of_its_code() {
    let described = without_token().await;
    let internal = Regex::new(
        r"::|\[`|(?:Vec|Option|Arc|Box|HashMap|BTreeMap|Result)<|\b(?:serde|tokio|schemars|axum|struct|enum|trait|crate|Reject|CommandError)\b",
    )
    .unwrap();
    for (text, is_internal) in
        [("a `Vec<String>`", true), ("see [`Reply`]", true), ("crate::run", true), ("a list", false)]
    {
        assert_eq!(internal.is_match(text), is_internal, "{text}");
    }
    let mut found = Vec::new();
    texts(&described.0, &mut found);
    found.extend(described.0["components"]["schemas"].as_object().unwrap().keys().map(String::as_str));
    assert!(found.len() > 500, "texts are read: {}", found.len());
    let named: Vec<_> = found.into_iter().filter(|text| internal.is_match(text)).collect();
    assert_eq!(named, [""; 0]);
}
