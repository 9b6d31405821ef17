//! An engine within a web server: an own route next to the gateway's routes, with one graceful stop for both.

use super::tool::{AGENT, with_tools};
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use serde::Deserialize;
use std::future::Future;
use std::sync::Arc;
use tokio::net::TcpListener;
use turnwheel::{Engine, NewMessage};

#[derive(Deserialize)]
struct Chat {
    session: String,
    text: String,
}

/// Sends the user's message and responds with the agent's replies, for a page that does not use the event stream.
async fn chat(
    State(engine): State<Arc<Engine>>,
    Json(chat): Json<Chat>,
) -> Result<Json<Vec<String>>, (StatusCode, String)> {
    let asked = engine.ask(NewMessage::new(chat.session, "shop", chat.text)).await;
    let answer = asked.map_err(|error| (StatusCode::UNPROCESSABLE_ENTITY, error.to_string()))?;
    Ok(Json(answer.replies.into_iter().map(|reply| reply.text).collect()))
}

/// Serves until `end`. Then running turns and requests are finished.
pub async fn serve(listener: TcpListener, end: impl Future<Output = ()> + Send + 'static) -> anyhow::Result<()> {
    let engine = with_tools(Engine::in_memory()).flow("refund", super::flow::refund).agent(AGENT).start().await?;
    let engine = Arc::new(engine);
    // `/api/v1/…` and `/healthz` are the gateway's routes. They require a token if `gateway.tokens` is set.
    let routes = Router::new().route("/chat", post(chat)).with_state(Arc::clone(&engine)).merge(engine.router());
    let stopping = Arc::clone(&engine);
    axum::serve(listener, routes)
        .with_graceful_shutdown(async move {
            end.await;
            // This also ends event streams, which would otherwise keep the server waiting.
            stopping.stop().await;
        })
        .await?;
    Ok(())
}
