//! Waiting runs whose recorded steps are no longer stored.

use super::waits::{fire, wait};
use super::*;
use crate::support::backend::{cluster, embedded_file};
use ::embedded::store::EmbeddedStore;
use std::time::Duration;
use storage::store::Store;
use types::duration::Text;

mod embedded {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_waiting_run_whose_steps_have_expired_fails() {
        let (file, backend) = embedded_file().await;
        let mut settings = backend.settings.clone();
        settings.retention.turns = Text(Duration::ZERO);
        let forgetful = EmbeddedStore::new(file, &settings).unwrap();
        let expire = async |_: &Engine, _: &str| {
            forgetful.prune().await.unwrap();
        };
        fails(backend, expire).await;
    }
}

mod on_cluster {
    use super::*;
    use bson::{Document, doc};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_waiting_run_whose_steps_have_expired_fails() {
        // MongoDB deletes expired documents once a minute.
        let expire = async |engine: &Engine, run_id: &str| {
            let client = mongodb::Client::with_uri_str(&engine.settings.mongodb.uri).await.unwrap();
            let steps = client.database(&engine.settings.mongodb.database).collection::<Document>("steps");
            steps.delete_many(doc! {"_id": {"$regex": format!("^{run_id}/")}}).await.unwrap();
        };
        fails(cluster().await, expire).await;
    }
}

async fn fails(backend: Backend, expire: impl AsyncFn(&Engine, &str)) {
    let engine = engine(backend).await;
    let nodes = json!([call("before", "before", "1"), wait("wait", 600.0), call("after", "after", "2")]);
    register(&engine, graph(nodes, &[("before", "wait"), ("wait", "after")])).await;
    let run_id = start(&engine, NewRun::new("g", "")).await;
    let waits = at_rest(&engine, &run_id, |status| status == RunStatus::Waiting).await;
    let stored = async || !engine.store.steps(&run_id, &waits.turn_id).await.unwrap().is_empty();
    assert!(stored().await);
    eventually(DEADLINE, "the steps have expired", || async {
        expire(&engine, &run_id).await;
        !stored().await
    })
    .await;
    fire(&engine, &run_id).await;
    let run = ended(&engine, &run_id).await;
    let cause = run.error.unwrap().cause;
    assert_eq!(run.status, RunStatus::Failed);
    assert!(cause.contains("no longer stored") && cause.contains("retention.turns"), "{cause}");
    assert_eq!(told(&engine, &run_id).await.pop().unwrap().event_id, format!("{run_id}/run_failed"));
    let session = engine.session(&run_id).await;
    assert!(session.timers.is_empty() && session.waiting.is_none(), "{session:?}");
    assert_eq!((engine.api.calls("/before").len(), engine.api.calls("/after").len()), (1, 0), "nothing runs again");
}
