//! The functions behind the fuzz targets. Each takes arbitrary bytes and panics only if the project breaks a promise.
//! `tests/it/fuzz.rs` runs each function for a second.

use base::config::mask::{MASK, MIN_SECRET_BYTES, Masker};
use decisions::judge::{Coordinator, Judged};
use decisions::kind::{Decision, DecisionType};
use decisions::policy::Policy;
use decisions::reference::{self as references, Reference, resolve};
use decisions::validate::validate_plan;
use decisions::world::{Snapshot, WorkflowFacts, WorkflowStatus};
use definitions::agent::validate::{self, validate};
use definitions::agent::{AgentRecord, StoredAgent, load};
use definitions::workflow::builder::{Pipeline, Stage};
use definitions::workflow::condition::Condition;
use definitions::workflow::definition::WorkflowRecord;
use definitions::workflow::outputs::OutputStore;
use definitions::workflow::runnable_registry::RunnableRegistry;
use definitions::workflow::template::InputMapping;
use definitions::workflow::{read, structure};
use engine::model::offline::Offline;
use engine::model::{Facts, Model, ModelRequest, ResponseSchema};
use engine::template::{self, Filler, Missing, TemplatePart};
use engine::turn::decision::{parse_decision, parse_plan_and_decision};
use serde_json::{Map, Value};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use storage::queue::Message;
use types::agent::AgentConfig;
use types::timestamp::Timestamp;
use types::{canonical, ids};

/// Name and function of a target; its corpus is in `corpus/<name>`.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 12] = [
    ("job", job),
    ("agent", agent),
    ("template", template),
    ("rules", rules),
    ("decision", decision),
    ("canonical", canonical),
    ("mask", mask),
    ("condition", condition),
    ("workflow", workflow),
    ("payload", payload),
    ("graph", graph),
    ("reference", reference),
];

/// A job from the stream: it is refused, or stays the same when it is published and read again.
pub fn job(data: &[u8]) {
    let named = serde_json::from_slice::<Value>(data).ok();
    let named = named.as_ref().and_then(|job| job["session_id"].as_str()).filter(|id| ids::is_legal(id));
    let message = |payload: Vec<u8>| Message {
        session_id: named.unwrap_or("s1").to_owned(),
        seq: 1,
        stream: Timestamp::from_millis(0),
        payload: payload.into(),
        msg_id: Some("s1:m-1".into()),
        default_id: "1-1".into(),
        at: Timestamp::from_millis(0),
        trace: None,
    };
    let Ok(job) = message(data.to_vec()).job() else { return };
    job.check().expect("a decoded job is legal");
    assert!(ids::is_legal_job(&job.job_id), "a turn has a legal id");
    let again = message(job.encode().to_vec()).job().expect("an encoded job can be decoded");
    assert_eq!(again, job);
}

/// An agent file as YAML and as JSON: it is refused with a reason, or it is stored and read as the same configuration.
pub fn agent(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for name in ["a.yaml", "a.json"] {
        match load::text(Path::new(name), &text) {
            Err(problem) => assert!(!problem.to_string().is_empty()),
            Ok(agent) => {
                let report = validate(&agent.config, &agent.document, validate::Context::default());
                assert_eq!(report.is_ok(), report.errors.is_empty(), "{report}");
                let stored = serde_json::to_string(&agent.to_stored()).expect("an agent can be stored");
                let stored: StoredAgent = serde_json::from_str(&stored).expect("a stored agent can be read");
                let again =
                    AgentRecord::from_document(stored.config, stored.updated_at).expect("stored agents are valid");
                assert_eq!((again.hash, again.config), (agent.hash, agent.config));
            }
        }
    }
}

/// The first line is a URL template, the rest are params: no param changes the URL's host, path depth or parameters.
pub fn template(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (template, rest) = text.split_once('\n').unwrap_or((&text, "{}"));
    let params: Map<String, Value> = serde_json::from_str(rest).unwrap_or_default();
    let pieces = template::pieces(template);
    let whole: String = pieces
        .iter()
        .map(|piece| match piece {
            TemplatePart::Text(text) | TemplatePart::Secret(text) => (*text).to_owned(),
            TemplatePart::Placeholder(path) => format!("{{{path}}}"),
        })
        .collect();
    assert_eq!(whole, template);
    let secret = |_: &str| Ok("SECRET".to_owned());
    let of_host = |token: &str, _: &str| secret(token);
    let value = |path: &str| template::lookup(&params, path).cloned();
    for missing in [Missing::Omit, Missing::Empty] {
        let filler = Filler { value: &value, secret: &secret, missing };
        let filled = filler.text(template).expect("the secret is allowed");
        let whole = filler.json(&Value::Array(vec![Value::String(template.to_owned()), Value::from(rest)]));
        assert!(whole.is_ok() && (missing == Missing::Omit || filled.is_some()));
    }
    let Ok(url) = template::fill_url(template, &value, &of_host) else { return };
    let names = pieces.iter().filter_map(|piece| match piece {
        TemplatePart::Placeholder(path) => Some(*path),
        TemplatePart::Text(_) | TemplatePart::Secret(_) => None,
    });
    if names.clone().any(|path| template::lookup(&params, path).is_some_and(|value| template::text(value).is_empty())) {
        return;
    }
    let plain: Map<String, Value> = names.map(|path| (path.to_owned(), Value::from("x"))).collect();
    let plain = |path: &str| plain.get(path).cloned();
    let plain = template::fill_url(template, &plain, &of_host).expect("harmless params make a valid URL");
    assert_eq!(
        (url.scheme(), url.host(), url.port(), url.username(), url.password()),
        (plain.scheme(), plain.host(), plain.port(), plain.username(), plain.password()),
    );
    let segments = |url: &str| url.split(['?', '#']).next().unwrap_or_default().matches('/').count();
    assert_eq!(segments(url.as_str()), segments(plain.as_str()), "{url} {plain}");
    let parameters = |url: Option<&str>| url.unwrap_or_default().matches(['&', ';', '=']).count();
    assert_eq!(parameters(url.query()), parameters(plain.query()), "{url} {plain}");
    assert_eq!(url.fragment().is_some(), plain.fragment().is_some());
}

/// The first line is a user's message, the rest an agent's rules: the offline model answers or refuses.
pub fn rules(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (message, rest) = text.split_once('\n').unwrap_or((&text, "[]"));
    let Ok(rules) = serde_json::from_str::<Vec<Value>>(rest) else { return };
    let config = serde_json::json!({ "id": "a", "sop": "x", "rules": rules });
    let Ok(config) = serde_json::from_value::<AgentConfig>(config) else { return };
    let agent = Some(Arc::new(config));
    let result = serde_json::json!({ "ok": true, "result": { "status": "{message} ${HOME}" } });
    for last_action in [None, Some(("a".to_owned(), result))] {
        let facts = Facts {
            agent: agent.clone(),
            message: message.to_owned(),
            last_action: last_action.map(Arc::new),
            ..Facts::default()
        };
        if let Some(content) = answer(facts) {
            serde_json::from_str::<Value>(&content).expect("the answer is JSON");
            let _ = parse_decision(&content);
        }
    }
}

/// Polls the offline model once: it never waits.
fn answer(facts: Facts) -> Option<String> {
    let schema = ResponseSchema { name: "decision".into(), strict: false, schema: Value::Null.into() };
    let request = ModelRequest::new(Vec::new()).with_schema(schema).with_facts(facts);
    let model = Offline::new();
    match pin!(model.complete(request)).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(reply) => reply.ok().map(|reply| reply.content),
        Poll::Pending => panic!("the offline model must not wait"),
    }
}

/// A model's output: it is refused with a bounded reason, or it is a decision that can be recorded.
pub fn decision(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for problem in [parse_decision(&text).err(), parse_plan_and_decision(&text).err()].into_iter().flatten() {
        assert!(!problem.is_empty() && problem.len() < 64 * 1024, "{} bytes", problem.len());
    }
    if let Ok(decision) = parse_decision(&text) {
        let again = serde_json::to_string(&decision).expect("a decision can be recorded");
        assert_eq!(parse_decision(&again), Ok(decision));
    }
}

/// The canonical form of canonical JSON is itself, and formatting does not change the hash.
pub fn canonical(data: &[u8]) {
    let Ok(value) = serde_json::from_slice::<Value>(data) else { return };
    let text = canonical::to_string(&value);
    let again: Value = serde_json::from_str(&text).expect("the canonical form is JSON");
    assert_eq!(canonical::to_string(&again), text);
    let pretty = serde_json::to_string_pretty(&value).expect("the value is JSON");
    let pretty: Value = serde_json::from_str(&pretty).expect("formatted JSON is JSON");
    assert_eq!(canonical::hash(&pretty), canonical::hash(&value));
}

/// The first line is a secret, the rest a text: masking removes the secret from the text.
pub fn mask(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (secret, rest) = text.split_once('\n').unwrap_or((&text, &text));
    let masked = Masker::new([secret.to_owned()]).mask(rest);
    let secret = secret.trim();
    if secret.len() >= MIN_SECRET_BYTES && !MASK.chars().any(|char| secret.contains(char)) {
        assert!(!masked.contains(secret), "{masked}");
    }
    assert!(masked.len() <= rest.len());
}

/// The first line is a condition and a template, the rest are outputs: outputs are never parsed as a condition or
/// template.
pub fn condition(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (asked, rest) = text.split_once('\n').unwrap_or((&text, "{}"));
    let outputs: Map<String, Value> = serde_json::from_str(rest).unwrap_or_default();
    let mut store = OutputStore::new("问");
    for (id, output) in &outputs {
        store.set(id.as_str(), output.as_str().unwrap_or_default());
    }
    let mapping = InputMapping::parse(asked);
    let built = mapping.build(store.scope());
    if mapping.get_dependencies().is_empty() {
        // Without variables only escapes change the text: each removes one of two braces.
        assert_eq!((asked.len() - built.len()) % 2, 0, "{built}");
    }
    match Condition::parse(asked) {
        Err(error) => assert!(error.to_string().contains(asked.trim()), "{error}"),
        Ok(condition) => {
            let holds = condition.holds(store.scope());
            if let Some(constant) = condition.constant() {
                assert_eq!(holds, constant);
            }
            let negated = Condition::parse(&format!("not {asked}"));
            assert_eq!(
                negated.ok().map(|negated| negated.holds(store.scope())),
                (!asked.trim().is_empty()).then_some(!holds)
            );
        }
    }
}

/// A workflow file as YAML and as JSON: it is refused with a reason, or it is stored and read as the same workflow.
pub fn workflow(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for name in ["w.yaml", "w.json"] {
        match read::text(Path::new(name), &text) {
            Err(problem) => assert!(!problem.to_string().is_empty()),
            Ok(record) => {
                let again = WorkflowRecord::from_stored(record.to_stored()).expect("a stored workflow is valid");
                assert_eq!(again, record);
                let drawn = structure::tree(&record.workflow, 40);
                let stages = record.workflow.shape.stages().len();
                assert!(
                    drawn.lines().count() > stages
                        && definitions::workflow::flowchart::mermaid(&record.workflow).ends_with("end\n")
                );
                assert_eq!(structure::describe(&record.workflow)["id"], record.id());
                let _ = RunnableRegistry::default().check(record);
            }
        }
    }
    // Any text can be an input, and stays unchanged.
    let built =
        Pipeline::new("w").stage(Stage::new("a", "x").input(text.as_ref())).build().expect("any input is valid");
    assert_eq!(built.workflow.shape.stages()[0].input.template(), text);
}

/// A world in which every workflow of the corpus exists: its plan is the payload itself.
fn world(plan: &Map<String, Value>) -> Snapshot {
    let mut world = Snapshot::new(Policy::default(), |text| match Condition::parse(text) {
        Ok(_) => Ok(()),
        Err(problem) => Err(problem.to_string()),
    });
    let (workflow_id, definition) = ("w".to_owned(), plan.clone());
    world.add(WorkflowFacts { workflow_id, status: WorkflowStatus::Ready, is_owned: true, definition });
    world.current = Some("w".to_owned());
    world
}

/// A payload of each type: it is refused with bounded errors, or it can be read, and stays valid.
pub fn payload(data: &[u8]) {
    let Ok(Value::Object(payload)) = serde_json::from_slice::<Value>(data) else { return };
    let world = world(&payload);
    let coordinator = Coordinator::new(&world);
    for kind in DecisionType::ALL {
        let verdicts = coordinator.verdicts(Decision::new(kind, payload.clone()));
        assert!(verdicts.given.errors.iter().all(|error| error.starts_with('`') && error.len() < 64 * 1024));
        match coordinator.judge(Decision::new(kind, payload.clone())) {
            Judged::Valid { fields, .. } => {
                assert!(coordinator.validate_decision(&Decision::new(kind, fields)).is_valid);
            }
            Judged::Rejected { errors } => assert!(!verdicts.valid_after_correction, "{errors:?}"),
        }
    }
}

/// A plan, in a file and as a stored one that a decision changes.
pub fn graph(data: &[u8]) {
    let Ok(Value::Object(plan)) = serde_json::from_slice::<Value>(data) else { return };
    let world = world(&plan);
    for is_file in [true, false] {
        let verdict = validate_plan(&plan, is_file, &world);
        assert_eq!(verdict.is_valid, verdict.errors.is_empty());
    }
    let nodes = decisions::revision::ids(&plan);
    let changes = serde_json::json!({"remove_nodes": nodes.first(), "add_nodes": [{"type": "START", "name": "x"}]});
    let changes: Map<String, Value> = serde_json::from_value(changes).expect("an object");
    let revised = decisions::revision::apply(&plan, &changes).plan;
    let _ = validate_plan(&revised, false, &world);
}

/// The first line is a text with references, the rest is the value of all of them.
pub fn reference(data: &[u8]) {
    struct Same(Value);
    impl resolve::Values for Same {
        fn find<'a>(&'a self, reference: Reference<'a>) -> resolve::Found<'a> {
            match reference.path {
                "SECRET" => resolve::Found::Secret("SECRET"),
                path => match resolve::descend(&self.0, path.split_once('.').map_or("", |(_, below)| below)) {
                    Some(value) => resolve::Found::Value(std::borrow::Cow::Borrowed(value)),
                    None => resolve::Found::Missing,
                },
            }
        }
    }
    let text = String::from_utf8_lossy(data);
    let (written, rest) = text.split_once('\n').unwrap_or((&text, "{}"));
    let values = Same(serde_json::from_str(rest).unwrap_or_default());
    let Ok(resolved) = resolve::value(&Value::from(written), &values) else { return };
    let filled = resolved.filled(&|_| Some("s3cret".to_owned())).expect("the secret exists");
    let recorded = resolved.recorded();
    if references::references(written).all(|reference| reference.path != "SECRET") {
        assert_eq!(recorded.to_string().replace("$${", "${"), filled.to_string().replace("$${", "${"));
    }
    let _ = (resolve::text(written, &values), resolve::url(written, &values));
    assert_eq!(references::renamed(written, |_| None), None);
}
