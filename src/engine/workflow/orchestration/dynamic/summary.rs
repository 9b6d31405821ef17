//! The final answer, streamed while the model writes it.

use super::inputs;
use super::results::Results;
use super::structured::agent_of_role;
use crate::workflow::orchestration::failure::Failure;
use crate::workflow::orchestration::stage_context::StageContext;
use crate::workflow::orchestration::task_agent;
use definitions::workflow::definition::DynamicDefinition;
use std::sync::Arc;

/// Asks the summary agent for the answer to `query`, and appends `note`. Without results the answer is the note
/// alone, and no model is asked.
pub(super) async fn write(
    context: &StageContext,
    dynamic: &DynamicDefinition,
    query: &str,
    results: &Results,
    note: Option<String>,
) -> Result<Arc<str>, Failure> {
    if let Some(note) = note.as_ref().filter(|_| results.is_empty()) {
        return Ok(note.as_str().into());
    }
    let agent = agent_of_role(context, &dynamic.summary)?;
    let input = inputs::summary(query, results, note.as_deref());
    let written = task_agent::run(&context.inner(), &agent, &input).await?;
    Ok(match note {
        Some(note) => format!("{}\n\n{note}", written.trim_end()).into(),
        None => written,
    })
}
