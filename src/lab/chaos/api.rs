//! The HTTP API behind the actions of a run. It honours idempotency keys and records every call. It refuses some calls
//! at first, and loses the response to others after their effect.

use super::conversations::{Target, fate};
use super::evidence::ActionCall;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use base::clock;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The API's state, shared by its clones.
#[derive(Clone, Default)]
pub(super) struct Api {
    memory: Arc<Mutex<ApiMemory>>,
}

#[derive(Default)]
struct ApiMemory {
    calls: Vec<ActionCall>,
    /// By idempotency key: number of calls, and the receipt of the effect.
    keys: HashMap<String, (u32, Option<String>)>,
    effects: u64,
}

#[derive(Deserialize)]
struct ActionParams {
    #[serde(default)]
    tag: String,
}

type ApiResponse = (StatusCode, Json<Value>);

impl Api {
    pub(super) fn router(&self) -> Router {
        Router::new()
            .route("/order", post(order))
            .route("/eta", get(eta))
            .route("/follow_up", post(follow_up))
            .with_state(self.clone())
    }

    /// All calls in the order of their arrival.
    pub(super) fn calls(&self) -> Vec<ActionCall> {
        self.memory().calls.clone()
    }

    fn memory(&self) -> MutexGuard<'_, ApiMemory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn call(&self, headers: &HeaderMap, asked: Option<(Target, String)>) -> ApiResponse {
        let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok()).unwrap_or_default().to_owned();
        let name = asked.as_ref().map_or("follow-up", |(target, _)| target.as_str());
        let tag = asked.as_ref().map(|(_, tag)| tag.clone());
        let (receipt, answers) = self.memory().call(name, &key, asked);
        let fate = fate(&key);
        let slow = if fate.is_multiple_of(19) { 800 } else { 0 };
        tokio::time::sleep(Duration::from_millis(20 + fate % 180 + slow)).await;
        match receipt.filter(|_| answers) {
            Some(receipt) => (StatusCode::OK, Json(json!({ "receipt": receipt, "tag": tag }))),
            None => (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "error": "try again" }))),
        }
    }
}

impl ApiMemory {
    /// Records a call. Returns the receipt if the call has an effect or had one before, and whether the response
    /// reaches the caller.
    fn call(&mut self, name: &str, key: &str, asked: Option<(Target, String)>) -> (Option<String>, bool) {
        let (times, known) = self.keys.get(key).cloned().unwrap_or_default();
        let (turned_away, answer_lost) = (fate(key).is_multiple_of(23), fate(key).is_multiple_of(29));
        let receipt = match (&known, times) {
            (Some(receipt), _) => Some(receipt.clone()),
            (None, 0) if turned_away => None,
            (None, _) => {
                self.effects += 1;
                Some(format!("{name}-{}", self.effects))
            }
        };
        self.keys.insert(key.to_owned(), (times + 1, receipt.clone()));
        let call = ActionCall {
            key: key.to_owned(),
            asked,
            receipt: receipt.clone(),
            repeated: known.is_some(),
            at: clock::now(),
        };
        self.calls.push(call);
        (receipt, times > 0 || !answer_lost)
    }
}

async fn order(State(api): State<Api>, headers: HeaderMap, Json(asked): Json<ActionParams>) -> ApiResponse {
    api.call(&headers, Some((Target::Order, asked.tag))).await
}

async fn eta(State(api): State<Api>, Query(asked): Query<ActionParams>, headers: HeaderMap) -> ApiResponse {
    api.call(&headers, Some((Target::Eta, asked.tag))).await
}

async fn follow_up(State(api): State<Api>, headers: HeaderMap) -> ApiResponse {
    api.call(&headers, None).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_effect_however_often_it_comes() {
        for number in 0..200 {
            let mut memory = ApiMemory::default();
            let key = format!("c1/c1-{number}/0/act");
            let receipts: Vec<Option<String>> = (0..3).map(|_| memory.call("order", &key, None).0).collect();
            let answered: Vec<&String> = receipts.iter().flatten().collect();
            assert!(answered.len() >= 2 && answered.iter().all(|receipt| *receipt == "order-1"), "{receipts:?}");
        }
    }
}
