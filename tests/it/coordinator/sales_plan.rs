//! The sales plan, which is the example of a plan: a query, two scripts, and a call that sends their outputs.

use super::plans::{execute, http, node, plan};
use super::*;
use base::config::Environment;
use base::tasks::Tasks;
use connectors::{Connectors, Query};
use decisions::world::WorkflowStatus;
use std::collections::BTreeMap;
use tempfile::TempDir;

on_both_backends!(s24_a_plan_of_a_query_and_scripts_sends_what_they_have_made);

/// The scripts need no library.
const TREND: &str = "trend = {}
for row in input_data:
    month = row['month']
    trend[month] = trend.get(month, 0) + row['amount']
return {'trend': trend}";
const CHART: &str = "best = max(trend.values())
return {'chart_path': 'charts/' + str(len(trend)) + '-' + str(best) + '.png'}";

fn sales_plan() -> Value {
    let mapped = |mut node: Value, name: &str, reference: &str| {
        node["input_mapping"] = json!({ name: reference });
        node
    };
    let query = json!({"query": "SELECT month, amount FROM sales ORDER BY amount", "connection": "sales_db"});
    let mail = json!({"to": "user@example.com", "attachments": ["${node_3.output.chart_path}"]});
    let nodes = [
        node("node_1", "DATABASE", &query),
        mapped(node("node_2", "PYTHON", &json!({ "code": TREND })), "input_data", "${node_1.output.data}"),
        mapped(node("node_3", "PYTHON", &json!({ "code": CHART })), "trend", "${node_2.output.trend}"),
        node("node_4", "HTTP", &http("/email", &mail)),
    ];
    plan(&nodes, &[("node_1", "node_2"), ("node_2", "node_3"), ("node_3", "node_4")])
}

/// The connector `sales_db` to a file with three sales. The folder has the file.
async fn sales_db(backend: &mut Backend) -> (Arc<Connectors>, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sales.db");
    std::fs::File::create(&path).unwrap();
    let env: Environment = [("SALES_URL", format!("sqlite://{}", path.display()))].into_iter().collect();
    let of = |read_only: bool| {
        let fields = json!({"kind": "sqlite", "url_env": "SALES_URL", "read_only": read_only});
        BTreeMap::from([("sales_db".to_owned(), serde_json::from_value(fields).unwrap())])
    };
    let writes = Connectors::new(&of(false), &env, &Tasks::new());
    let file = writes.find(Some("sales_db"), &|_| true).unwrap();
    file.run(&Query::text("CREATE TABLE sales (month TEXT, amount INTEGER)")).await.unwrap();
    file.run(&Query::text("INSERT INTO sales VALUES ('十月', 10), ('十月', 5), ('十一月', 20)")).await.unwrap();
    backend.settings.connectors = of(true);
    (Arc::new(Connectors::new(&backend.settings.connectors, &env, &Tasks::new())), folder)
}

async fn s24_a_plan_of_a_query_and_scripts_sends_what_they_have_made(mut backend: Backend) {
    let (connectors, _folder) = sales_db(&mut backend).await;
    let engine = Engine::watching(backend, ScriptedModel::start(|_| Answer::Hang).await).await;
    let answers = json!([answer(&[sales_plan()]), answer(&[execute(json!({}))]), answer(&[respond("发了")])]);
    let answers = answers.to_string().replace("{api}", &engine.api.base_url);
    engine.model.script(with_ids(serde_json::from_str(&answers).unwrap()));
    engine.apply(coordinator()).await;
    engine.start_worker_with(Services { connectors, ..engine.services() });
    let turn = engine.say("s1", "m-1", "分析最近三个月的销售数据，生成趋势图，然后发送给我").await;
    assert_eq!(turn.outcome, Outcome::Answered);
    let second = &prompts(&engine)[1];
    assert!(second.contains(r#""status":"READY""#), "{second}");
    let mails: Vec<_> = engine.api.calls("/").into_iter().map(|call| (call.path, call.body)).collect();
    let mail = json!({"to": "user@example.com", "attachments": ["charts/2-20.png"]});
    assert_eq!(mails, [("/email".to_owned(), mail)]);
    let plan = plans_of(&engine, "s1").await.remove(0);
    assert_eq!((plan.state.status, plan.state.owner_session.as_str()), (WorkflowStatus::Completed, "s1"));
    let run = engine.store.run(plan.state.status_run.as_deref().unwrap()).await.unwrap().unwrap();
    assert_eq!(run.status, RunStatus::Completed, "{run:?}");
    let kinds: Vec<_> = run.graph.iter().flatten().map(|node| node.kind.as_str()).collect();
    assert_eq!(kinds, ["DATABASE", "PYTHON", "PYTHON", "HTTP"]);
    let steps = engine.store.steps("s1", "m-1").await.unwrap();
    let trend = steps.iter().find(|step| step.key == format!("{}/node_2/run", run.prefix)).unwrap();
    assert_eq!(trend.output["output"]["trend"], json!({"十月": 15, "十一月": 20}));
    assert_eq!(engine.replies("s1").await.pop().unwrap().text, "发了");
}
