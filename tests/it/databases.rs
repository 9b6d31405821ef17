//! DATABASE nodes on a file of SQLite: values stay data, writes need a connector that allows them, and each failure has its
//! code. The crate `connectors` has the tests of the three kinds of databases.

use async_trait::async_trait;
use base::clock;
use base::config::{Connector, Environment, Settings};
use base::tasks::Tasks;
use commands::doctor::{self, Level};
use connectors::{Connectors, Query};
use definitions::agent::AgentRecord;
use definitions::workflow::definition::WorkflowRecord;
use engine::model::offline::Offline;
use engine::model::{Model, ModelError, ModelReply, ModelRequest};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use turnwheel::{Engine, NewMessage};
use types::run::RunRecord;

/// An agent that may use `sales` only, and one that may use no connector.
const AGENTS: [&str; 2] = [
    "{id: planner, sop: x, mode: coordinator, coordinator: {connectors: [sales]}}",
    "{id: nobody, sop: x, mode: coordinator, coordinator: {connectors: []}}",
];

fn record(graph: Value) -> WorkflowRecord {
    WorkflowRecord::from_document(graph, clock::now()).unwrap()
}

/// The prompts that a model has got.
type Prompts = Arc<Mutex<Vec<String>>>;

/// Keeps its prompts, and decides like the offline model.
struct Watched(Prompts);

#[async_trait]
impl Model for Watched {
    async fn complete(&self, request: ModelRequest) -> Result<ModelReply, ModelError> {
        let text = request.messages.iter().map(|message| message.content.to_string()).collect();
        self.0.lock().unwrap().push(text);
        Offline::new().complete(request).await
    }
}

struct Ground {
    engine: Engine,
    prompts: Prompts,
    settings: BTreeMap<String, Connector>,
    env: Environment,
    _folder: TempDir,
}

impl Ground {
    /// `sales` reads, and `ledger` writes.
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sales.db");
        File::create(&path).unwrap();
        let env: Environment = [("SALES_URL", format!("sqlite://{}", path.display()))].into_iter().collect();
        let of = |read_only: bool| {
            serde_json::from_value(json!({"kind": "sqlite", "url_env": "SALES_URL", "read_only": read_only})).unwrap()
        };
        let settings = BTreeMap::from([("sales".to_owned(), of(true)), ("ledger".to_owned(), of(false))]);
        let own = Connectors::new(&settings, &env, &Tasks::new());
        let ledger = own.find(Some("ledger"), &|_| true).unwrap();
        ledger.run(&Query::text("CREATE TABLE sales (month TEXT, amount INTEGER, key TEXT UNIQUE)")).await.unwrap();
        ledger.run(&Query::text("INSERT INTO sales VALUES ('2026-01', 10, 'a'), ('二月', 20, 'b')")).await.unwrap();
        let prompts = Prompts::default();
        let mut builder = Engine::in_memory().environment(env.clone()).model("default", Watched(Arc::clone(&prompts)));
        for agent in AGENTS {
            builder = builder.agent(agent);
        }
        let connectors = settings.clone();
        let engine = builder.configure(|settings| settings.connectors = connectors).start().await.unwrap();
        Self { engine, prompts, settings, env, _folder: folder }
    }

    /// Runs a graph with one DATABASE node of this config.
    async fn run(&self, config: &Value, coordinator: Option<&str>, input: &Value) -> RunRecord {
        let mut graph = json!({"type": "graph", "id": "g", "name": "g", "edges": [],
            "global_config": {"inputs": [{"name": "m", "type": "string", "default": "2026-01"}]},
            "nodes": [{"node_id": "n", "name": "n", "type": "DATABASE", "config": config}]});
        if let Some(agent) = coordinator {
            graph["coordinator"] = json!(agent);
            graph["recovery"] = json!({"action": "ABORT"});
        }
        self.engine.register(record(graph)).await.unwrap();
        let run = self.engine.run_workflow("g", input.to_string()).await.unwrap();
        self.engine.run_ended(&run.run_id).await.unwrap()
    }

    async fn output(&self, config: Value, input: Value) -> Value {
        let run = self.run(&config, None, &input).await;
        let output = run.output.clone().unwrap_or_else(|| panic!("{run:?}"));
        serde_json::from_str(&output).unwrap()
    }

    async fn cause(&self, config: Value, coordinator: Option<&str>) -> String {
        let run = self.run(&config, coordinator, &json!({})).await;
        run.error.as_ref().unwrap_or_else(|| panic!("{run:?}")).cause.clone()
    }
}

#[tokio::test]
async fn values_are_bound_and_results_are_rows() {
    let ground = Ground::start().await;
    let by_month = json!({"connection": "sales", "query": "SELECT amount FROM sales WHERE month = ${input.m}"});
    let rows = |data: Value, count: u64| json!({"data": data, "row_count": count, "truncated": false});
    assert_eq!(ground.output(by_month.clone(), json!({"m": "二月"})).await, rows(json!([{"amount": 20}]), 1));
    for attack in ["x' OR '1'='1", "'; DROP TABLE sales; --", "${input.m}", "二月\u{0}"] {
        assert_eq!(ground.output(by_month.clone(), json!({"m": attack})).await, rows(json!([]), 0), "{attack}");
    }
    let with_params = json!({"connection": "sales", "query": "SELECT ? AS a, ? AS b", "params": ["${m}", 7]});
    assert_eq!(ground.output(with_params, json!({"m": "x"})).await["data"], json!([{"a": "x", "b": 7}]));
    let limited = json!({"connection": "sales", "query": "SELECT month FROM sales ORDER BY amount", "max_rows": 1});
    let limited = ground.output(limited, json!({})).await;
    assert_eq!(limited, json!({"data": [{"month": "2026-01"}], "row_count": 1, "truncated": true}));
}

#[tokio::test]
async fn each_failure_has_its_code() {
    let ground = Ground::start().await;
    let of = |query: &str| json!({"connection": "sales", "query": query});
    for (config, code) in [
        (of("DELETE FROM sales"), "READ_ONLY"),
        (of("ATTACH '/tmp/turnwheel-never.db' AS x"), "READ_ONLY"),
        (of("PRAGMA query_only = 0"), "READ_ONLY"),
        (of("SELECT 1; DELETE FROM sales"), "REFUSED"),
        (of("SELECT nothing FROM sales"), "DATABASE"),
        (of("SELECT * FROM sales WHERE month = '${input.m}'"), "DATABASE"),
        (of("SELECT hex(zeroblob(600000)) AS x"), "OUTPUT_TOO_LARGE"),
        (json!({"connection": "other", "query": "SELECT 1"}), "CONNECTOR_UNKNOWN"),
        (json!({"query": "SELECT 1"}), "CONNECTOR_UNKNOWN"),
        (
            json!({"connection": "sales", "timeout": 0.2,
                "query": "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT COUNT(*) FROM n"}),
            "TIMEOUT",
        ),
    ] {
        let cause = ground.cause(config.clone(), None).await;
        assert!(cause.starts_with(&format!("{code}: ")), "{config}: {cause}");
        assert!(!cause.contains("sqlite://"), "{cause}");
    }
    let count = json!({"connection": "sales", "query": "SELECT COUNT(*) AS n FROM sales"});
    assert_eq!(ground.output(count, json!({})).await["data"], json!([{"n": 2}]));
}

#[tokio::test]
async fn a_writing_statement_may_name_the_nodes_idempotency_key() {
    let ground = Ground::start().await;
    let insert = json!({"connection": "ledger",
        "query": "INSERT INTO sales VALUES (${input.m}, 5, ${idempotency_key}) ON CONFLICT (key) DO NOTHING"});
    let run = ground.run(&insert, None, &json!({"m": "三月"})).await;
    let output: Value = serde_json::from_str(run.output.as_deref().unwrap()).unwrap();
    assert_eq!(output, json!({"data": [], "row_count": 1, "truncated": false}));
    let stored = json!({"connection": "sales", "query": "SELECT key FROM sales WHERE month = '三月'"});
    let key = ground.output(stored, json!({})).await["data"][0]["key"].as_str().unwrap().to_owned();
    assert!(!key.is_empty() && !key.contains('$'), "{key}");
    let steps = ground.engine.store().steps(&run.lane, &run.turn_id).await.unwrap();
    assert!(!format!("{steps:?}").contains("sqlite://"));
    let as_param = json!({"connection": "sales", "query": "SELECT ? AS k", "params": ["${idempotency_key}"]});
    let as_param = ground.output(as_param, json!({})).await["data"][0]["k"].as_str().unwrap().to_owned();
    assert!(as_param.len() > 3 && !as_param.contains('$'), "{as_param}");
}

#[tokio::test]
async fn an_agent_narrows_the_connectors() {
    let ground = Ground::start().await;
    let select = |name: Value| json!({"connection": name, "query": "SELECT 1 AS one"});
    let run = ground.run(&select(Value::Null), Some("planner"), &json!({})).await;
    assert!(run.error.is_none(), "the only allowed connector: {run:?}");
    let cause = ground.cause(select(json!("ledger")), Some("planner")).await;
    assert!(cause.starts_with("REFUSED: the connector `ledger` is not allowed"), "{cause}");
    assert!(ground.cause(select(json!("sales")), Some("nobody")).await.starts_with("REFUSED: "));
    assert!(ground.cause(select(Value::Null), Some("nobody")).await.starts_with("CONNECTOR_UNKNOWN: "));
}

#[tokio::test]
async fn a_coordinator_is_told_the_tables_of_its_connectors() {
    let ground = Ground::start().await;
    for agent in ["planner", "nobody"] {
        for text in ["hello", "and now?"] {
            ground.engine.ask(NewMessage::new(format!("s-{agent}"), agent, text)).await.unwrap();
        }
    }
    let prompts = ground.prompts.lock().unwrap();
    assert_eq!(prompts.len(), 4, "one for each message");
    for (at, prompt) in prompts.iter().enumerate() {
        let names_tables = prompt.contains("- `sales` (sqlite, read-only): sales(month, amount, key)");
        assert_eq!(names_tables, at < 2, "{at}: {prompt}");
        assert!(!prompt.contains("ledger"), "{at}: {prompt}");
    }
}

#[tokio::test]
async fn an_unknown_connector_is_a_warning_of_files() {
    let ground = Ground::start().await;
    let graph = json!({"type": "graph", "id": "g", "name": "g", "edges": [], "nodes": [
        {"node_id": "n", "name": "n", "type": "DATABASE", "config": {"connection": "salse", "query": "SELECT 1"}}]});
    let applied = ground.engine.register(record(graph)).await.unwrap();
    let warnings: Vec<_> = applied.warnings.iter().map(ToString::to_string).collect();
    assert!(
        warnings.iter().any(|warning| warning.contains("there is no connector `salse`; did you mean `sales`?")),
        "{warnings:?}"
    );
    let known = ground.engine.known();
    let agent =
        json!({"id": "a", "sop": "x", "mode": "coordinator", "coordinator": {"connectors": ["sales", "nothing"]}});
    let (_, warnings) = known.check(AgentRecord::from_document(agent, clock::now()).unwrap()).unwrap();
    let warnings: Vec<_> = warnings.iter().map(ToString::to_string).collect();
    assert!(warnings.iter().any(|warning| warning.contains("coordinator.connectors[1]")), "{warnings:?}");
}

#[tokio::test]
async fn the_doctor_tries_every_connector() {
    let mut ground = Ground::start().await;
    let broken = json!({"kind": "sqlite", "url_env": "BROKEN_URL"});
    ground.settings.insert("broken".into(), serde_json::from_value(broken).unwrap());
    let variables = ground.env.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    let env: Environment = variables.chain([("BROKEN_URL".to_owned(), "sqlite:///nowhere/x.db".to_owned())]).collect();
    let findings = doctor::connectors(&Connectors::new(&ground.settings, &env, &Tasks::new())).await;
    let found: Vec<_> = findings.iter().map(|finding| (finding.place.as_str(), finding.level)).collect();
    assert_eq!(
        found,
        [("connectors.broken", Level::Problem), ("connectors.ledger", Level::Ok), ("connectors.sales", Level::Ok)]
    );
    assert!(findings[1].what.ends_with("the connector may write") && findings[2].what.ends_with("it refuses writes"));
    assert!(!format!("{findings:?}").contains("nowhere"), "{findings:?}");
    assert!(
        doctor::connectors(&Connectors::new(&Settings::default().connectors, &env, &Tasks::new())).await.is_empty()
    );
}
