//! The audit trail: who has changed something through a gateway.

use crate::access::Role;
use crate::timestamp::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One action of a caller. The entry is stored before the action begins, so no action is without one, and again when
/// the response is known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AuditEntry {
    /// Unique. Later entries have greater ids, as far as the clocks of the gateways agree.
    pub id: String,
    /// When the request arrived.
    pub at: Timestamp,
    /// The name of the caller's token; `token` for one of `gateway.tokens`, `local` without tokens, `cli` for commands.
    pub by: String,
    /// The caller's role.
    pub role: Role,
    /// The operation, by its id in the OpenAPI description, such as `cancel_session`.
    pub action: String,
    /// The session, run, agent, … that the action concerns, such as `session/s1`; empty if the path has none.
    pub target: String,
    /// `status`: the HTTP status of the response, absent if the gateway stopped before it. `request_id`. Never a text of
    /// a user or an operator.
    pub detail: Map<String, Value>,
}

/// Which entries to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditQuery {
    /// Only entries with greater ids, the earliest first. Without it, the last entries.
    pub after: Option<String>,
    /// The highest number of entries.
    pub limit: usize,
}
