//! WAIT nodes: a pause whose end is recorded, so that a repeated run waits for the rest.

use super::stepped;
use crate::journal::{Done, Durability, JournalError, Label};
use crate::workflow::orchestration::graph::failure::{NodeError, NodeFailure};
use crate::workflow::orchestration::graph::resolved::ResolvedNode;
use crate::workflow::orchestration::stage_context::StageContext;
use decisions::node_type::NodeType;
use serde_json::Value;
use types::timestamp::Timestamp;

/// Key of the step that records the end of the wait.
pub(in crate::workflow::orchestration::graph) const UNTIL_KEY: &str = "until";

pub(super) async fn perform(here: &StageContext, resolved: &ResolvedNode) -> Result<Value, NodeError> {
    let (journal, latest) = (here.journal(), here.run().pauses.latest());
    let recorded = resolved.recorded();
    let label = Label { kind: "node", target: NodeType::Wait.as_str() };
    let step = journal.step(UNTIL_KEY, label, Durability::OnReturn, &recorded, |_| async {
        end(resolved, journal.clock().now(), latest).map(Done::ok)
    });
    let until = stepped(step.await)?;
    match here.run().notes {
        None => here.wait_until(until).await,
        // A timeline shows that the node still waits.
        Some(_) if journal.clock().now() < until => return Err(JournalError::Lost.into()),
        Some(_) => {}
    }
    Ok(Value::Null)
}

/// The end of the wait, which must not be after `latest`.
fn end(resolved: &ResolvedNode, now: Timestamp, latest: Option<Timestamp>) -> Result<Timestamp, NodeFailure> {
    let until = until(resolved, now)?;
    match latest.filter(|latest| until > *latest) {
        None => Ok(until),
        Some(latest) => {
            let message = format!(
                "the wait ends at {until}, but the run's steps are kept until {latest}; raise the setting `retention.turns`"
            );
            Err(NodeFailure::permanent("INVALID", message))
        }
    }
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
