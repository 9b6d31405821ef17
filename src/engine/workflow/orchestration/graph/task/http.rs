//! HTTP nodes: one call of an API.

use super::{RUN_KEY, stepped};
use crate::action::http_request::{HttpRequest, RequestFailure};
use crate::journal::{Done, Durability, Label};
use crate::workflow::orchestration::graph::failure::{NodeError, NodeFailure};
use crate::workflow::orchestration::graph::node::NodeRun;
use crate::workflow::orchestration::graph::resolved::ResolvedNode;
use crate::workflow::orchestration::stage_context::StageContext;
use decisions::reference::resolve::Unresolved;
use serde_json::{Map, Value, json};

impl From<RequestFailure> for NodeFailure {
    fn from(failure: RequestFailure) -> Self {
        let RequestFailure { code, problem, transient } = failure;
        if transient { Self::transient(code, problem) } else { Self::permanent(code, problem) }
    }
}

/// Calls the API. Attempts with the same resolved request send the same idempotency key, so that a server that honours it
/// carries out one request.
pub(super) async fn perform(
    run: &NodeRun<'_>,
    here: &StageContext,
    resolved: &ResolvedNode,
) -> Result<Value, NodeError> {
    let caller = &here.services().http;
    let request = request(resolved, &|name| caller.secret(name).ok())?;
    let (recorded, journal) = (resolved.recorded(), here.journal());
    let key = run.idempotency_key(RUN_KEY, resolved);
    let label = Label { kind: "node", target: run.node.kind().as_str() };
    let step = journal.step(RUN_KEY, label, Durability::OnReturn, &recorded, |_| async move {
        let response = caller.send(request, &key).await?;
        Ok::<_, NodeFailure>(Done::ok(json!({"status": response.status, "data": response.data})))
    });
    stepped(step.await)
}

/// The request with its secrets.
fn request(resolved: &ResolvedNode, secret: &dyn Fn(&str) -> Option<String>) -> Result<HttpRequest, NodeFailure> {
    let filled = |name: &str| resolved.field(name).map(|field| field.filled(secret)).transpose();
    let table = |name: &str| -> Result<Map<String, Value>, Unresolved> {
        Ok(match filled(name)? {
            Some(Value::Object(fields)) => fields,
            _ => Map::new(),
        })
    };
    Ok(HttpRequest {
        method: resolved.text("method").unwrap_or("GET").to_owned(),
        url: resolved.text("url").unwrap_or_default().to_owned(),
        params: table("params")?,
        headers: table("headers")?,
        body: filled("body")?.filter(|body| !body.is_null()),
    })
}
