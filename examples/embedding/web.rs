//! An engine within a web server: a route of one's own beside the gateway's, and one end for both.

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

/// Answers at once what the agent says, for a page that needs no more.
async fn chat(
    State(engine): State<Arc<Engine>>,
    Json(chat): Json<Chat>,
) -> Result<Json<Vec<String>>, (StatusCode, String)> {
    let asked = engine.ask(NewMessage::new(chat.session, "shop", chat.text)).await;
    let answer = asked.map_err(|error| (StatusCode::UNPROCESSABLE_ENTITY, error.to_string()))?;
    Ok(Json(answer.replies.into_iter().map(|reply| reply.text).collect()))
}

/// Serves until `end`, then lets turns and requests come to theirs.
pub async fn serve(listener: TcpListener, end: impl Future<Output = ()> + Send + 'static) -> anyhow::Result<()> {
    let engine = with_tools(Engine::in_memory()).flow("refund", super::flow::refund).agent(AGENT).start().await?;
    let engine = Arc::new(engine);
    // `/api/v1/…` and `/healthz` are the gateway's. It asks for `gateway.tokens` where the settings have some.
    let routes = Router::new().route("/chat", post(chat)).with_state(Arc::clone(&engine)).merge(engine.router());
    let stopping = Arc::clone(&engine);
    axum::serve(listener, routes)
        .with_graceful_shutdown(async move {
            end.await;
            // Event streams end, too, so that nobody waits for them.
            stopping.stop().await;
        })
        .await?;
    Ok(())
}
