//! A flow: a function that takes over the turn. It calls the outside through `step`, which runs a function once and
//! records its result: after a crash the flow continues behind its last recorded step. It may also ask the user; then
//! it continues with the user's next message, in any process and after any time.

use super::tool::{AGENT, with_tools};
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::atomic::{AtomicU32, Ordering};
use turnwheel::{Engine, FlowContext, FlowError, NewMessage, Question};

/// Pays the price of an order back.
#[derive(Deserialize, JsonSchema)]
pub struct Refund {
    /// The order's number.
    order: String,
    /// Why, in the customer's words.
    reason: String,
}

/// The returned text becomes a reply to the user.
pub async fn refund(refund: Refund, flow: FlowContext) -> Result<String, FlowError> {
    let cents = flow.step("price", &refund.order, |_| price(refund.order.clone())).await?;
    let euros = format!("{}.{:02} euros", cents / 100, cents % 100);
    let question = Question::new(format!("Shall I pay {euros} for {} back to you?", refund.order));
    if flow.ask(question.choices(["yes", "no"])).await? != "yes" {
        return Ok("Then all stays as it is.".to_owned());
    }
    let receipt = flow.step("pay", &(&refund.order, cents), |key| pay_back(cents, key)).await?;
    let summary =
        flow.ask_model("summary", "Sum up in three words why the customer is unhappy.", &refund.reason).await?;
    tracing::info!(receipt, summary, "paid back");
    Ok(format!("{euros} are on their way to you, receipt {receipt}."))
}

async fn price(order: String) -> Result<u64, String> {
    if order.eq_ignore_ascii_case("B1001") { Ok(1_290) } else { Err(format!("nothing was paid for {order}")) }
}

/// Stands for a bank. A crash between the payment and its record repeats this call with the same key, so a real bank
/// must pay once for each key.
async fn pay_back(_cents: u64, _idempotency_key: String) -> Result<u32, String> {
    static RECEIPTS: AtomicU32 = AtomicU32::new(1);
    Ok(RECEIPTS.fetch_add(1, Ordering::Relaxed))
}

/// Runs a short conversation and returns the agent's replies.
pub async fn run() -> anyhow::Result<Vec<String>> {
    let engine = with_tools(Engine::in_memory()).flow("refund", refund).agent(AGENT).start().await?;
    let mut said = Vec::new();
    for text in ["I want a refund for B1001, it came late", "Yes!"] {
        let answer = engine.ask(NewMessage::new("s1", "shop", text)).await?;
        said.extend(answer.texts().into_iter().map(str::to_owned));
    }
    engine.stop().await;
    Ok(said)
}
