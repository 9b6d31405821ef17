//! DATABASE nodes: one statement on a connector.

use super::{RUN_KEY, stepped};
use crate::journal::{Done, Durability, Label};
use crate::workflow::orchestration::graph::failure::{NodeError, NodeFailure};
use crate::workflow::orchestration::graph::node::NodeRun;
use crate::workflow::orchestration::graph::resolved::{QueryPart, ResolvedNode};
use crate::workflow::orchestration::stage_context::StageContext;
use connectors::{ConnectorError, Part, Query, Rows};
use serde_json::{Value, json};

impl From<ConnectorError> for NodeFailure {
    fn from(error: ConnectorError) -> Self {
        let code = error.code();
        if error.transient { Self::transient(code, error.message) } else { Self::permanent(code, error.message) }
    }
}

/// Executes the statement. The step of a read-only connector has no effect but its result, so its record may follow a
/// moment later. Attempts of a statement that writes have the same idempotency key.
pub(super) async fn perform(
    run: &NodeRun<'_>,
    here: &StageContext,
    resolved: &ResolvedNode,
) -> Result<Value, NodeError> {
    let allowed = run.scope.policy.as_ref().and_then(|policy| policy.connectors.as_ref());
    let is_allowed = |name: &str| allowed.is_none_or(|allowed| allowed.contains(name));
    let connectors = &here.services().connectors;
    let connector = connectors.find(resolved.text("connection"), &is_allowed).map_err(NodeFailure::from)?;
    let durability = if connector.is_read_only() { Durability::Deferred } else { Durability::OnReturn };
    let query = query(resolved, &run.idempotency_key(RUN_KEY, resolved))?;
    let (recorded, journal) = (resolved.recorded(), here.journal());
    let label = Label { kind: "node", target: run.node.kind().as_str() };
    let step = journal.step(RUN_KEY, label, durability, &recorded, |_| async move {
        let Rows { data, row_count, truncated } = connector.run(&query).await?;
        Ok::<_, NodeFailure>(Done::ok(json!({"data": data, "row_count": row_count, "truncated": truncated})))
    });
    stepped(step.await)
}

/// The statement with its values. `key` is the idempotency key.
fn query(resolved: &ResolvedNode, key: &str) -> Result<Query, NodeFailure> {
    let part = |part: &QueryPart| match part {
        QueryPart::Text(text) => Part::Text(text.clone()),
        QueryPart::Value(value) => Part::Value(value.clone()),
        QueryPart::Key => Part::Value(key.into()),
    };
    let params = resolved.field("params").map(|params| params.filled(&|_| Some(key.to_owned()))).transpose()?;
    let params = match params.unwrap_or_default() {
        Value::Null => Vec::new(),
        Value::Array(values) => values,
        _ => {
            let message = "`params` is no list; give a list with one value for each placeholder";
            return Err(NodeFailure::permanent("DATABASE", message));
        }
    };
    Ok(Query {
        parts: resolved.query.iter().map(part).collect(),
        params,
        max_rows: resolved.whole("max_rows"),
        timeout: resolved.seconds("timeout"),
    })
}
