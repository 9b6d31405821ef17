//! Callers of the gateway: what each role may do, which sessions a limited token sees, how often it may ask, and the
//! audit trail. [`roles`] asks every endpoint of the OpenAPI description.

mod audit;
mod commands;
mod dialogues;
mod fairness;
mod follows;
mod limits;
mod logins;
mod roles;
mod scopes;

use crate::gateway::Gateway;
use crate::scenarios::sales;
use crate::support::engine::{Backend, DEADLINE, Engine};
use crate::support::eventually;
use base::config::{NamedToken, Settings};
use reqwest::{Method, Response};
use serde_json::{Value, json};
use std::sync::Arc;
use storage::queue::Queue;
use storage::store::Store;
use tempfile::TempDir;
use types::session::Status;

/// A gateway whose callers have tokens. The token of a caller is its name and `-token`.
pub struct Guarded {
    pub gateway: Gateway,
    _tokens: TempDir,
}

impl Guarded {
    /// A gateway without workers. Each entry is one of `[[gateway.access]]` without its token.
    async fn start(backend: &Backend, entries: &[Value]) -> Self {
        Self::on(&backend.queue, &backend.store, &backend.settings, entries).await
    }

    /// A gateway for the workers of an engine.
    pub async fn of(engine: &Engine, entries: &[Value]) -> Self {
        Self::on(&engine.queue, &engine.store, &engine.settings, entries).await
    }

    async fn on(queue: &Arc<dyn Queue>, store: &Arc<dyn Store>, settings: &Settings, entries: &[Value]) -> Self {
        let tokens = tempfile::tempdir().unwrap();
        let access = entries.iter().map(|entry| {
            let name = entry["name"].as_str().unwrap();
            let file = tokens.path().join(name);
            std::fs::write(&file, format!("{name}-token\n")).unwrap();
            let mut entry = entry.clone();
            entry["token_file"] = json!(file);
            serde_json::from_value::<NamedToken>(entry).unwrap()
        });
        let mut settings = settings.clone();
        settings.gateway.tokens = vec!["root-token".into()];
        settings.gateway.access = access.collect();
        let gateway = Gateway::start(queue, store, &settings).await;
        Self { gateway, _tokens: tokens }
    }

    async fn ask(&self, caller: &str, method: Method, path: &str, body: Option<&Value>) -> Response {
        let request = self.gateway.client.request(method, format!("{}{path}", self.gateway.base));
        let request = request.bearer_auth(format!("{caller}-token"));
        let request = match body {
            Some(body) => request.json(body),
            None => request,
        };
        request.send().await.unwrap()
    }

    pub async fn get(&self, caller: &str, path: &str) -> (u16, Value) {
        answered(self.ask(caller, Method::GET, path, None).await).await
    }

    pub async fn post(&self, caller: &str, path: &str, body: &Value) -> (u16, Value) {
        answered(self.ask(caller, Method::POST, path, Some(body)).await).await
    }

    /// Applies the agent `sales`. Its APIs are not called.
    async fn with_sales(self) -> Self {
        let sales = serde_json::from_str(&sales().to_string().replace("{api}", "http://127.0.0.1:9")).unwrap();
        let (status, body) = answered(self.ask("root", Method::PUT, "/api/v1/agents/sales", Some(&sales)).await).await;
        assert_eq!(status, 200, "{body}");
        self
    }

    /// Sends a first message by an unlimited caller.
    async fn begin(&self, session_id: &str, channel: &str) {
        let message = json!({"session_id": session_id, "agent_id": "sales", "text": "你好", "channel": channel});
        assert_eq!(self.post("root", "/api/v1/messages", &message).await.0, 202);
    }
}

/// Begins a session and waits until it is answered.
async fn opened(guarded: &Guarded, engine: &Engine, session_id: &str, channel: &str) {
    guarded.begin(session_id, channel).await;
    eventually(DEADLINE, "the session is ready", || async {
        let session = engine.store.session(session_id).await.unwrap();
        session.filter(|session| session.workflow_state.status == Status::Ready && session.history.len() > 1)
    })
    .await;
}

async fn answered(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    (status, response.json().await.unwrap_or(Value::Null))
}

fn code(body: &Value) -> &str {
    body["error"]["code"].as_str().unwrap_or_default()
}
