//! WAIT nodes: a pause whose end is recorded, so that a repeated run waits for the rest.

use super::stepped;
use crate::journal::{Done, Durability, Label};
use crate::workflow::orchestration::graph::failure::{NodeError, NodeFailure};
use crate::workflow::orchestration::graph::resolved::ResolvedNode;
use crate::workflow::orchestration::stage_context::StageContext;
use decisions::node_type::NodeType;
use serde_json::Value;
use types::timestamp::Timestamp;

/// Key of the step that records the end of the wait.
const UNTIL_KEY: &str = "until";

pub(super) async fn perform(here: &StageContext, resolved: &ResolvedNode) -> Result<Value, NodeError> {
    let (journal, clock) = (here.journal(), here.journal().clock().clone());
    let recorded = resolved.recorded();
    let label = Label { kind: "node", target: NodeType::Wait.as_str() };
    let step = journal.step(UNTIL_KEY, label, Durability::OnReturn, &recorded, |_| async {
        until(resolved, clock.now()).map(Done::ok)
    });
    let until = stepped(step.await)?;
    if here.run().notes.is_none() {
        clock.sleep(clock.now().until(until)).await;
    }
    Ok(Value::Null)
}

fn until(resolved: &ResolvedNode, now: Timestamp) -> Result<Timestamp, NodeFailure> {
    if let Some(wait) = resolved.seconds("seconds") {
        return Ok(now.plus(wait));
    }
    let written = resolved.text("until").unwrap_or_default();
    written.trim().parse().map_err(|error: <Timestamp as std::str::FromStr>::Err| {
        let message = format!("`until` is `{written:.60}`: {error}; write a time such as `2026-05-01T09:00:00Z`");
        NodeFailure::permanent("INVALID", message)
    })
}
