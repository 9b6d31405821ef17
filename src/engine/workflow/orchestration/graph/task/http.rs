//! HTTP nodes: one call of an API.

use super::{RUN_KEY, stepped};
use crate::action::http_request::{HttpRequest, RequestFailure};
use crate::action::would_call::WouldCall;
use crate::journal::{Done, Durability, Label};
use crate::workflow::orchestration::graph::failure::{NodeError, NodeFailure};
use crate::workflow::orchestration::graph::node::NodeRun;
use crate::workflow::orchestration::graph::resolved::ResolvedNode;
use crate::workflow::orchestration::stage_context::StageContext;
use crate::workflow::orchestration::usage::HttpLimit;
use base::config::mask::MASK;
use decisions::hosts::{self, SECRET_FIELDS};
use decisions::reference::resolve::{Resolved, Unresolved};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

impl From<RequestFailure> for NodeFailure {
    fn from(failure: RequestFailure) -> Self {
        let RequestFailure { code, problem, transient } = failure;
        if transient { Self::transient(code, problem) } else { Self::permanent(code, problem) }
    }
}

/// Calls the API. Attempts with the same resolved request send the same idempotency key, so that a server that honours
/// it carries out one request.
pub(super) async fn perform(
    run: &NodeRun<'_>,
    here: &StageContext,
    resolved: &ResolvedNode,
) -> Result<Value, NodeError> {
    let caller = &here.services().http;
    let host = check_host(run, resolved)?;
    let secrets = secrets(run, here, resolved, &host)?;
    count(run, here)?;
    let request = request(resolved, &|name| secrets.get(name).cloned())?;
    let (recorded, journal) = (resolved.recorded(), here.journal());
    let key = run.idempotency_key(RUN_KEY, resolved);
    let label = Label { kind: "node", target: run.node.kind().as_str() };
    let step = journal.step(RUN_KEY, label, Durability::OnReturn, &recorded, |_| async move {
        let response = caller.send(request, &key).await?;
        Ok::<_, NodeFailure>(Done::ok(json!({"status": response.status, "data": response.data})))
    });
    stepped(step.await)
}

/// Describes the request that the node would send. Secrets are replaced by asterisks.
pub(super) fn would_call(here: &StageContext, resolved: &ResolvedNode) -> WouldCall {
    match request(resolved, &|_| Some(MASK.to_owned())) {
        Ok(request) => here.services().http.would_request(request),
        Err(failure) => WouldCall::Refused { problem: failure.message },
    }
}

/// The values of the secrets in the request, by name.
fn secrets(
    run: &NodeRun<'_>,
    here: &StageContext,
    resolved: &ResolvedNode,
    host: &str,
) -> Result<BTreeMap<String, String>, NodeFailure> {
    let names = SECRET_FIELDS.iter().filter_map(|field| resolved.field(field)).flat_map(Resolved::secrets);
    names.map(|name| Ok((name.to_owned(), run.scope.secret(here, name, host)?))).collect()
}

/// Checks the host of the resolved address: it is the one of the written address, and the policy allows it. Returns it.
fn check_host(run: &NodeRun<'_>, resolved: &ResolvedNode) -> Result<String, NodeFailure> {
    let refused = |message: String| Err(NodeFailure::permanent("REFUSED", message));
    let written = run.node.spec.config.get("url").and_then(Value::as_str).unwrap_or_default();
    let url = resolved.text("url").unwrap_or_default();
    let Ok(host) = hosts::host(written) else {
        return refused(format!(
            "`url` is `{written:.80}`, whose host is not written out; write scheme, host and port without references"
        ));
    };
    if hosts::host(url).as_ref() != Ok(&host) {
        return refused(format!(
            "a reference in `url` leads away from the host `{host}`; use references in path and query"
        ));
    }
    match &run.scope.policy {
        Some(policy) if !policy.allows_host(&host) => refused(format!(
            "the host `{host}` is not allowed; add it to decisions.allowed_hosts and to the agent file, or call another"
        )),
        _ => Ok(host),
    }
}

/// Counts the call against the limits of a graph with a coordinator. A replayed call counts, and is never refused.
fn count(run: &NodeRun<'_>, here: &StageContext) -> Result<(), NodeFailure> {
    let Some(policy) = &run.scope.policy else { return Ok(()) };
    let (journal, counters) = (here.journal(), &here.run().counters);
    let recorded = journal.record_of(RUN_KEY);
    let at = recorded.as_ref().map_or_else(|| journal.clock().now(), |step| step.at);
    match counters.count_http_call(at, policy.max_http_calls, policy.http_per_minute) {
        Err(exceeded) if recorded.is_none() => Err(exceeded.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

impl From<HttpLimit> for NodeFailure {
    fn from(limit: HttpLimit) -> Self {
        match limit {
            HttpLimit::OfRun(most) => Self::permanent(
                "BUDGET",
                format!(
                    "the run has made {most} HTTP calls, the limit of decisions.max_http_calls; make fewer, or raise it"
                ),
            ),
            HttpLimit::OfMinute(most) => Self::transient(
                "BUDGET",
                format!(
                    "the run has made {most} HTTP calls within a minute, the limit of decisions.http_per_minute; retry later \
                     with `retry_config.retry_delay`, or raise it"
                ),
            ),
        }
    }
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
