//! Output of `GET /api/v1/models` and `turnwheel models`.

use crate::support::model_server::{Answer, ModelServer};
use base::config::{self, Environment, Provider};
use commands::messages::NewMessage;
use serde_json::{Value, json};
use std::time::Duration;
use turnwheel::Engine;
use types::duration::Text;

const KEY: &str = "sk-very-secret-0123456789";

fn entry(base_url: String) -> config::Model {
    config::Model {
        provider: Provider::Openai,
        base_url,
        api_key_env: Some("MODEL_KEY".into()),
        model: "small-1".into(),
        timeout: Text(Duration::from_secs(10)),
        idle_timeout: Text(Duration::from_secs(10)),
        max_retries: 0,
        temperature: None,
        max_tokens: None,
        max_completion_tokens: None,
        extra: serde_json::Map::new(),
        api_key_header: None,
        vision: false,
    }
}

async fn listed(address: std::net::SocketAddr) -> String {
    let client = base::http_client::builder().no_proxy().build().unwrap();
    client.get(format!("http://{address}/api/v1/models")).send().await.unwrap().text().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn models_are_listed_with_agents_budgets_and_circuits_and_without_keys() {
    let server = ModelServer::start().await;
    server.script(|_| Some(Answer::status(500, "down")));
    let with_password = server.base_url().replace("http://", "http://user:QX7ZJ9WK@");
    let engine = Engine::in_memory()
        .environment(Environment::from_iter([("MODEL_KEY".to_owned(), KEY.to_owned())]))
        .configure(|settings| {
            settings.models.insert("fast".into(), entry(with_password));
            settings.gateway.listen = ([127, 0, 0, 1], 0).into();
            settings.budget.session = 500;
        })
        .agent(
            "{id: shop, name: 小店, model: [fast, offline], sop: x, budget: {turn: 100, session: 0, day: 900},
              rules: [{when: {always: true}, decide: {next_status: typing, response: 好的}}]}",
        )
        .agent("{id: writer, system_prompt: x}")
        .workflow("{id: w, stages: [{id: a, input: '', runnable: writer, model: [default, fast]}, {id: b, input: '', runnable: writer}]}")
        .open()
        .await
        .unwrap();
    let address = engine.start_gateway().await.unwrap();
    let circuits = |list: &Value| -> Vec<Value> {
        list["models"].as_array().unwrap().iter().map(|model| model["circuit"].clone()).collect()
    };
    let list: Value = serde_json::from_str(&listed(address).await).unwrap();
    assert_eq!(circuits(&list), [json!(null), json!(null), json!(null)], "no model has been called yet");
    engine.start_worker().unwrap();
    for number in 0..5 {
        let message = NewMessage::new(format!("s{number}"), "shop", "在吗");
        assert_eq!(engine.ask(message).await.unwrap().text(), "好的");
    }
    let text = listed(address).await;
    for secret in [KEY, "QX7ZJ9WK", "127.0.0.1", "MODEL_KEY"] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
    let mut list: Value = serde_json::from_str(&text).unwrap();
    let agents = list["agents"].as_array_mut().unwrap();
    let planner =
        agents.iter().position(|agent| agent["agent_id"] == "ops_plan_agent").expect("the shipped agent is listed");
    assert!(planner >= 2 && agents[planner]["task"] == true, "applied agents come first");
    agents.truncate(2);
    for agent in agents {
        assert_eq!(agent["hash"].as_str().unwrap().len(), 32);
        agent["hash"] = json!(null);
        agent["updated_at"] = json!(null);
    }
    let expected = json!({
        "agents": [
            {"agent_id": "shop", "name": "小店", "model": "fast", "models": ["fast", "offline"], "provider": "openai",
             "task": false, "budget": {"turn": 100, "day": 900}, "day_tokens": 0, "hash": null, "updated_at": null},
            {"agent_id": "writer", "name": "", "model": "default", "models": ["default"], "provider": "offline",
             "task": true, "budget": {"session": 500}, "day_tokens": null, "hash": null, "updated_at": null},
        ],
        "stages": [{"workflow_id": "w", "stage": "a", "models": ["default", "fast"]}],
        "models": [
            {"name": "default", "provider": "offline", "model": "offline", "circuit": null},
            {"name": "fast", "provider": "openai", "model": "small-1", "circuit": "open"},
            {"name": "offline", "provider": "offline", "model": "offline", "circuit": null},
        ],
    });
    assert_eq!(list, expected);
    engine.stop().await;
}
