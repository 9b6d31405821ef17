//! The audit trail: the entry of each action, and the listing.

use super::caller::Caller;
use super::input::Filter;
use super::operation::Operation;
use super::roles::ADMINS;
use super::{GatewayState, Reject, trace};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use base::clock;
use commands::audit::{AuditTrail, list as listed};
use commands::paging::{DEFAULT_LIMIT, MAX_LIMIT, bounded};
use serde::Deserialize;
use serde_json::Map;
use tracing::{info, warn};
use types::audit::AuditEntry;
use uuid::Uuid;

/// An action whose entry is stored, and which is carried out now.
pub(super) struct Action(AuditEntry);

impl Action {
    /// Stores the entry of an action; `None` for a request that changes nothing. If the store does not take the entry,
    /// the request fails before it has changed anything.
    pub(super) async fn begin(
        state: &GatewayState,
        caller: &Caller,
        operation: &Operation,
        params: &[(&str, &str)],
        headers: &HeaderMap,
    ) -> Result<Option<Self>, Reject> {
        if !operation.is_audited() {
            return Ok(None);
        }
        let (at, mut detail) = (clock::now(), Map::new());
        if let Some(id) = headers.get(trace::HEADER).and_then(|id| id.to_str().ok()) {
            detail.insert("request_id".to_owned(), id.into());
        }
        let entry = AuditEntry {
            id: format!("{:013}-{}", at.as_millis(), Uuid::new_v4().simple()),
            at,
            by: caller.name().to_owned(),
            role: caller.role(),
            action: operation.id.to_owned(),
            target: target(params),
            detail,
        };
        state.store.put_audit(entry.clone()).await?;
        Ok(Some(Self(entry)))
    }

    /// Adds the status of the response. A failure is only logged: the entry exists, and the action is done.
    pub(super) async fn end(mut self, state: &GatewayState, status: StatusCode) {
        self.0.detail.insert("status".to_owned(), status.as_u16().into());
        let AuditEntry { by, action, target, .. } = &self.0;
        info!(by, action, target, status = status.as_u16(), "action of a caller");
        if let Err(error) = state.store.put_audit(self.0).await {
            warn!("an entry of the audit trail stays without its status: {error}");
        }
    }
}

/// The things in the path, such as `session/s1`.
fn target(params: &[(&str, &str)]) -> String {
    let part = |(name, value): &(&str, &str)| match *name {
        "source" => format!("knowledge/{value}"),
        "which" => format!("dead_letter/{value}"),
        name => format!("{}/{value}", name.strip_suffix("_id").unwrap_or(name)),
    };
    params.iter().map(part).collect::<Vec<_>>().join("/")
}

/// Which entries to list.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(super) struct AuditFilter {
    /// Only entries after this one: an `id` (such as `next`), or an RFC 3339 time. The earliest first. Without it: the last entries.
    #[schemars(extend("example" = "2026-01-02T00:00:00Z"))]
    after: Option<String>,
    /// The highest number of entries.
    #[schemars(range(min = 1, max = MAX_LIMIT), extend("default" = DEFAULT_LIMIT))]
    limit: Option<usize>,
}

pub(super) const LIST: Operation = Operation::get("/api/v1/audit", "operation", "list_audit")
    .summary("Lists actions of callers, in the order of time.")
    .details(
        "An action has its entry before it begins. To read on, give the `id` of the last entry as `after`; gateways \
         whose clocks differ may add entries that are a little older.",
    )
    .roles(ADMINS)
    .query::<AuditFilter>()
    .ok::<AuditTrail>("The entries");
pub(super) async fn list(
    State(state): State<GatewayState>,
    Filter(which): Filter<AuditFilter>,
) -> Result<Json<AuditTrail>, Reject> {
    Ok(Json(listed(state.store.as_ref(), which.after, bounded(which.limit)?).await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_names_what_the_path_names() {
        assert_eq!(target(&[("session_id", "s1")]), "session/s1");
        assert_eq!(target(&[("agent_id", "sales"), ("source", "kb/a.md")]), "agent/sales/knowledge/kb/a.md");
        assert_eq!(target(&[("which", "7")]), "dead_letter/7");
        assert_eq!(target(&[]), "");
    }
}
