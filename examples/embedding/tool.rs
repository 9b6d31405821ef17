//! Rust functions as skills and tools. The type of a function's params becomes a JSON Schema: the model sees it with
//! the doc comments as descriptions, and a call whose params do not match it never reaches the function.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use turnwheel::{Engine, EngineBuilder, NewMessage, ToolCall};

/// The agent of all these examples.
pub const AGENT: &str = include_str!("shop.yaml");

/// Where an order is.
#[derive(Deserialize, JsonSchema)]
pub struct Order {
    /// The order's number, such as B1001.
    #[schemars(regex(pattern = "^[Bb][0-9]+$"))]
    order: String,
}

#[derive(Serialize)]
pub struct Status {
    city: &'static str,
    summary: String,
}

/// The model reads an error as the action's result: it apologises to the user, or tries another way.
pub async fn order_status(order: Order) -> Result<Status, String> {
    let (title, city) = match order.order.to_uppercase().as_str() {
        "B1001" => ("The Dispossessed", "Leipzig"),
        "B1002" => ("三体", "上海"),
        other => return Err(format!("There is no order {other}.")),
    };
    Ok(Status { city, summary: format!("{title} is in {city}.") })
}

/// In how many days a parcel arrives.
#[derive(Deserialize, JsonSchema)]
pub struct Eta {
    /// Where it is now.
    city: String,
    /// By express.
    #[serde(default)]
    express: bool,
}

/// `ToolCall` identifies the caller. Its idempotency key stays the same when a crash makes the engine repeat the call.
pub async fn eta(eta: Eta, call: ToolCall) -> Result<u32, String> {
    tracing::info!(session = call.session_id(), key = call.idempotency_key(), "looking up {}", eta.city);
    Ok(if eta.express { 1 } else { 3 })
}

/// Registers the functions that the agent's skills and tools need.
pub fn with_tools(engine: EngineBuilder) -> EngineBuilder {
    engine.skill("order_status", order_status).tool("eta", eta)
}

/// Runs a short conversation and returns the agent's replies.
pub async fn run() -> anyhow::Result<Vec<String>> {
    // `Engine::embedded("data")` stores everything in one file, `Engine::cluster(nats, mongodb)` on servers.
    let engine = with_tools(Engine::in_memory()).flow("refund", super::flow::refund).agent(AGENT).start().await?;
    let mut said = Vec::new();
    for text in ["Where is B1002?", "When does B1001 arrive?", "And B7?"] {
        let answer = engine.ask(NewMessage::new("s1", "shop", text)).await?;
        said.extend(answer.texts().into_iter().map(str::to_owned));
    }
    engine.stop().await;
    Ok(said)
}
