//! What one agent or workflow may store.

use super::{Gateway, addressed, refusal};
use crate::scenarios::{on_both_backends, sales};
use crate::support::engine::Backend;
use base::config::Quotas;
use serde_json::json;

on_both_backends!(versions_and_knowledge_are_limited_and_what_is_stored_already_is_not_refused);

async fn versions_and_knowledge_are_limited_and_what_is_stored_already_is_not_refused(mut backend: Backend) {
    backend.settings.quotas = Quotas { versions: 2, knowledge_sources: 2, knowledge_mib: 1 };
    let gateway = Gateway::start(&backend.queue, &backend.store, &backend.settings).await;
    let exceeded = (409, "quota_exceeded".to_owned());
    let named = |name: &str| {
        let mut agent = addressed(&sales());
        agent["name"] = json!(name);
        agent
    };
    for name in ["一", "二", "一"] {
        assert_eq!(gateway.put("/api/v1/agents/sales", &named(name)).await.status(), 200, "{name}");
    }
    assert_eq!(refusal(gateway.put("/api/v1/agents/sales", &named("三")).await).await, exceeded);
    let shown = gateway.json("/api/v1/agents/sales").await;
    assert_eq!(shown["config"]["name"], "一", "a refused version changes nothing");

    let workflow = |description: &str| {
        let stages = json!([{"id": "a", "runnable": "smart_router", "input": "{query}"}]);
        json!({"type": "pipeline", "id": "w", "description": description, "stages": stages})
    };
    for description in ["a", "b", "a"] {
        let response = gateway.put("/api/v1/workflows/w", &workflow(description)).await;
        assert_eq!(response.status(), 200, "{}", response.text().await.unwrap());
    }
    assert_eq!(refusal(gateway.put("/api/v1/workflows/w", &workflow("c")).await).await, exceeded);

    let put = async |source: &str, text: String| {
        gateway.put(&format!("/api/v1/knowledge/sales/{source}?refresh=false"), &json!({"text": text})).await
    };
    let large = "退货说明。\n\n".repeat(40_000);
    assert_eq!(put("a.md", large.clone()).await.status(), 200);
    assert_eq!(put("a.md", format!("{large}一")).await.status(), 200, "it replaces the former one");
    assert_eq!(refusal(put("b.md", large).await).await, exceeded, "bytes");
    assert_eq!(put("b.md", "二".into()).await.status(), 200);
    assert_eq!(refusal(put("c.md", "三".into()).await).await, exceeded, "sources");
}
