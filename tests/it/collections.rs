//! The documents in MongoDB as other programs read them: names and types of the fields, and the table of
//! the contract.

use crate::scenarios::{acts, answer, sales_with};
use crate::support::backend;
use crate::support::engine::Engine;
use crate::support::script::{ScriptedModel, plan};
use bson::spec::ElementType;
use bson::{Bson, Document, doc};
use futures::TryStreamExt;
use mongodb::Database;
use serde_json::json;

/// An engine with a conversation `s1` that has had one turn with an action, a greeting and a timer.
async fn engine() -> (Engine, Database) {
    let order = acts("processing", "SKILL", "query_order", &json!({"order_id": "A1"}));
    let model = ScriptedModel::answering(vec![plan(json!("您好"), &order), answer("已发货")]).await;
    let engine = Engine::start(backend::cluster().await, model, 1).await;
    engine.api.script(|_, _| (200, json!({"status": "shipped"})));
    let timers = json!([{"name": "follow_up", "delay": "1h", "message": "还在吗？"}]);
    engine.apply(sales_with(&json!({ "timers": timers }))).await;
    engine.say("s1", "m-1", "查订单").await;
    let client = mongodb::Client::with_uri_str(&engine.settings.mongodb.uri).await.unwrap();
    let database = client.database(&engine.settings.mongodb.database);
    (engine, database)
}

async fn found(database: &Database, collection: &str, filter: Document) -> Document {
    database.collection::<Document>(collection).find_one(filter).await.unwrap().unwrap()
}

/// Checks that every field exists with this type.
fn has(document: &Document, kind: ElementType, fields: &[&str]) {
    for field in fields {
        let mut value = Some(Bson::Document(document.clone()));
        for name in field.split('.') {
            value = match value {
                Some(Bson::Document(inner)) => inner.get(name).cloned(),
                Some(Bson::Array(items)) => name.parse().ok().and_then(|at: usize| items.get(at).cloned()),
                _ => None,
            };
        }
        assert_eq!(value.as_ref().map(Bson::element_type), Some(kind), "{field}: {document}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_have_the_fields_of_the_contract() {
    let (_engine, database) = engine().await;
    let session = found(&database, "sessions", doc! {"_id": "s1"}).await;
    has(&session, ElementType::String, &["agent_id", "user_id", "channel", "kind", "recent_jobs.0"]);
    has(&session, ElementType::String, &["workflow_state.hash", "workflow_state.status", "history.0.role"]);
    has(&session, ElementType::Boolean, &["workflow_state.need_greeting"]);
    has(&session, ElementType::Null, &["status_reason", "closed_at", "timers.0.action"]);
    has(&session, ElementType::EmbeddedDocument, &["profile"]);
    has(&session, ElementType::Int64, &["timer_generation", "last_seq", "pending_seq", "epoch"]);
    has(&session, ElementType::String, &["history.0.text", "timers.0.timer_id", "timers.0.name", "timers.0.message"]);
    has(&session, ElementType::DateTime, &["history.0.at", "timers.0.due_at", "created_at", "updated_at"]);
    has(&session, ElementType::Int64, &["timers.0.generation"]);

    let agent = found(&database, "agents", doc! {"_id": "sales"}).await;
    has(&agent, ElementType::String, &["hash"]);
    has(&agent, ElementType::EmbeddedDocument, &["config"]);
    has(&agent, ElementType::DateTime, &["updated_at"]);

    let cached = found(&database, "plan_cache", doc! {"workflow_id": "sales"}).await;
    has(&cached, ElementType::String, &["hash", "name", "tone", "greeting", "sop", "constraints"]);
    has(&cached, ElementType::Array, &["tools", "skills", "timers"]);
    has(&cached, ElementType::DateTime, &["created_at"]);

    let turn = found(&database, "turns", doc! {"_id": "s1/m-1"}).await;
    has(&turn, ElementType::String, &["session_id", "statuses.0.status", "outcome"]);
    has(&turn, ElementType::EmbeddedDocument, &["job"]);
    has(&turn, ElementType::DateTime, &["statuses.0.at", "started_at", "committed_at", "expires_at"]);
    assert_eq!(turn.get_str("outcome").unwrap(), "answered");

    let step = found(&database, "steps", doc! {"_id": "s1/m-1/0/act"}).await;
    has(&step, ElementType::String, &["kind", "target", "input_hash"]);
    has(&step, ElementType::Boolean, &["ok"]);
    has(&step, ElementType::DateTime, &["expires_at"]);
    assert!(step.contains_key("output") && step.contains_key("ms"), "{step}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contract_names_every_collection() {
    let (_engine, database) = engine().await;
    let contract = include_str!("../../docs/contract/mongodb.md");
    let table = contract.split("| collection | `_id` |").nth(1).unwrap().split("\n\n").next().unwrap();
    let names: Vec<String> =
        database.list_collections().await.unwrap().map_ok(|one| one.name).try_collect().await.unwrap();
    for name in names.iter().filter(|name| !name.starts_with("system.")) {
        assert!(table.contains(&format!("`{name}`")), "{name} is not in the table of docs/contract/mongodb.md:{table}");
    }
}
