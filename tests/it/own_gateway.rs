//! The gateway that a command serves for itself on a cluster shows the lease to operators.

use crate::commands::Folder;
use crate::gateway::Gateway;
use crate::scenarios::sales_with;
use crate::support::engine::{DEADLINE, Engine};
use crate::support::process::Process;
use crate::support::script::{Answer, ScriptedModel};
use crate::support::{backend, eventually};
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_sees_the_lease_of_a_running_turn_and_a_client_does_not() {
    let model = ScriptedModel::start(|_| Answer::Hang).await;
    let engine = Engine::watching(backend::cluster().await, model).await;
    let folder = Folder::with(engine.settings.clone());
    engine.apply(sales_with(&json!({}))).await;
    let _worker = Process::start(folder.path(), &folder.settings, &["worker"]);
    engine.publish("s1", "m-1", "你好").await;
    eventually(DEADLINE, "the model is asked", || async { !engine.model.asked().is_empty() }).await;

    let shown = folder.run(&["sessions", "show", "s1"], "").await;
    assert_eq!(shown.code, 0, "{shown:?}");
    let lease = shown.out.lines().find(|line| line.starts_with("lease "));
    assert!(lease.is_some_and(|lease| lease.contains("worker-") && lease.contains(" more")), "{shown:?}");
    let details = folder.run(&["sessions", "show", "s1", "--json"], "").await.json();
    assert!(details["lease"]["owner"].is_string(), "{details:#}");

    let public = Gateway::of(&engine).await.json("/api/v1/sessions/s1").await;
    assert_eq!(public["session_id"], "s1");
    assert!(public.get("lease").is_none() && public.get("turn").is_none(), "{public:#}");
}
