//! Stored definitions that this version cannot read: only references to them fail, with a reason.

use super::*;
use crate::conformance::kit;
use crate::gateway::Gateway;
use crate::scenarios::{acts, answer, sales_with};
use crate::support::backend::{cluster, embedded_file};
use crate::support::script::plan;
use ::embedded::store::EmbeddedStore;
use definitions::agent::AgentRecord;
use std::sync::Arc;
use storage::store::Store;
use types::cause::Cause;
use types::outcome::Outcome;
use types::run::RunStatus;

/// Stores definitions as another version, or a manual change, may leave them.
async fn damage(store: &dyn Store) {
    let stages = json!([{"id": "x", "runnable": "a", "input": "{query}"}]);
    for id in ["broken", "smart_router"] {
        let good = WorkflowRecord::from_document(json!({"id": id, "stages": stages}), clock::now()).unwrap();
        let document = json!({"id": id, "type": "tree", "stages": stages});
        assert!(store.put_workflow(WorkflowRecord { document, ..good }).await.unwrap());
    }
    let good = AgentRecord::from_document(json!({"id": "lost", "system_prompt": "x"}), clock::now()).unwrap();
    let document = json!({"id": "lost", "system_prompt": ["no text"]});
    assert!(store.put_agent(AgentRecord { document, ..good }).await.unwrap());
}

mod embedded {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_definition_that_cannot_be_read_breaks_nothing_else() {
        let (file, backend) = embedded_file().await;
        damage(backend.store.as_ref()).await;
        // The first store has the definitions in its cache; another store reads them from the file.
        let store = EmbeddedStore::new(Arc::clone(&file), &backend.settings).unwrap();
        breaks_nothing_else(Backend { store, ..backend }).await;
    }
}

mod on_cluster {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_definition_that_cannot_be_read_breaks_nothing_else() {
        let backend = cluster().await;
        damage(backend.store.as_ref()).await;
        breaks_nothing_else(backend).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_version_of_an_agent_that_cannot_be_read_keeps_no_command_from_its_session() {
        let backend = cluster().await;
        let last = kit::run_turn(&backend.store, "s1", 1, |_| ()).await;
        let good = AgentRecord::from_document(crate::scenarios::sales(), clock::now()).unwrap();
        let document = json!({"id": "sales", "sop": ["no text"]});
        let damaged = AgentRecord { document, hash: last.workflow_state.hash, ..good };
        backend.store.put_agent_version(&damaged).await.unwrap();
        let engine = engine(backend, echo).await;
        engine.apply(crate::scenarios::sales()).await;
        engine.start_worker();
        engine.publish_job("s1", json!({"type": "control", "session_id": "s1", "command": "close"})).await;
        eventually(DEADLINE, "it is closed", || async { engine.session("s1").await.closed_at }).await;
    }
}

async fn breaks_nothing_else(backend: Backend) {
    let decides = |asked: &Asked| match asked.schema.as_str() {
        "" => echo(asked),
        schema => {
            let failed = asked.system.contains("cannot be read") || asked.user.contains("cannot be read");
            let decision =
                if failed { answer("流程坏了") } else { acts("processing", "FLOW", "broken", &json!({})) };
            Answer::json(&if schema == "plan_and_decision" { plan(json!("您好"), &decision) } else { decision })
        }
    };
    let engine = engine(backend, decides).await;
    engine.apply(sales_with(&json!({"flows": ["broken"]}))).await;
    register(&engine, json!({"id": "names_it", "stages": [{"id": "s", "runnable": "broken", "input": "{query}"}]}))
        .await;
    register(&engine, json!({"id": "names_agent", "stages": [{"id": "s", "runnable": "lost", "input": "{query}"}]}))
        .await;
    let gateway = Gateway::of(&engine).await;

    // Listings show the damaged definitions and all others.
    let listed: Value = gateway.get("/api/v1/workflows").await.json().await.unwrap();
    let row = |id: &str| listed["workflows"].as_array().unwrap().iter().find(|row| row["workflow_id"] == id).unwrap();
    for id in ["broken", "smart_router"] {
        assert!(row(id)["error"].as_str().unwrap().contains("Unknown workflow type: tree"), "{listed}");
    }
    assert!(row("steps").get("error").is_none() && row("simple_pipeline").get("error").is_none(), "{listed}");
    let agents: Value = gateway.get("/api/v1/agents").await.json().await.unwrap();
    let lost = agents["agents"].as_array().unwrap().iter().find(|row| row["agent_id"] == "lost").unwrap();
    assert!(lost["error"].is_string(), "{agents}");
    assert_eq!(gateway.get("/api/v1/models").await.status(), 200);

    // A run of a damaged workflow fails, and the worker continues.
    engine.start_worker();
    for workflow in ["names_it", "names_agent"] {
        let run = ended(&engine, &start(&engine, NewRun::new(workflow, "问")).await).await;
        let cause = run.error.unwrap().cause;
        assert_eq!(run.status, RunStatus::Failed);
        assert!(cause.contains("cannot be read") && cause.contains("apply it again"), "{cause}");
    }
    let job = json!({"type": "run", "session_id": "r1", "job_id": "r1", "workflow_id": "broken", "query": "问"});
    engine.publish_job("r1", job).await;
    let letters = eventually(DEADLINE, "the run is in the dead letters", || async {
        Some(engine.dead_letters().await).filter(|letters| !letters.is_empty())
    })
    .await;
    assert_eq!(letters, [(Cause::Invalid, Some("r1".to_owned()))]);
    let job = json!({"type": "user_message", "session_id": "s2", "agent_id": "lost", "job_id": "m-1", "text": "你好"});
    engine.publish_job("s2", job).await;
    let letters = eventually(DEADLINE, "so is a message to the agent", || async {
        Some(engine.dead_letters().await).filter(|letters| letters.len() > 1)
    })
    .await;
    assert_eq!(letters[1], (Cause::UnknownAgent, Some("m-1".to_owned())));
    let turn = engine.say("s1", "m-1", "走流程").await;
    assert_eq!(turn.outcome, Outcome::Answered);
    assert_eq!(engine.said("s1").await.last().unwrap().1, "流程坏了");
    let run = ended(&engine, &start(&engine, NewRun::new("steps", "问")).await).await;
    assert_eq!(run.output.as_deref(), Some("c(b(a(问)))"));

    // Other definitions can be stored. So can the damaged one, as the remedy, even with its earlier content.
    let stages = json!([{"id": "x", "runnable": "a", "input": "{query}"}]);
    for id in ["other", "broken"] {
        let put = gateway.put(&format!("/api/v1/workflows/{id}"), &json!({"id": id, "stages": stages})).await;
        assert_eq!(put.status(), 200, "{}", put.text().await.unwrap());
    }
    let listed: Value = gateway.get("/api/v1/workflows").await.json().await.unwrap();
    let errors: Vec<_> =
        listed["workflows"].as_array().unwrap().iter().filter(|row| row["error"].is_string()).collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    let run = ended(&engine, &start(&engine, NewRun::new("names_it", "问")).await).await;
    assert_eq!(run.output.as_deref(), Some("a(问)"), "{:?}", run.error);
}
