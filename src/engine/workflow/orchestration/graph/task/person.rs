//! ASK nodes: a question to the user of the conversation.

use crate::workflow::Question;
use crate::workflow::orchestration::ask::AskOutcome;
use crate::workflow::orchestration::graph::failure::{NodeError, NodeFailure};
use crate::workflow::orchestration::graph::resolved::ResolvedNode;
use crate::workflow::orchestration::stage_context::StageContext;
use serde_json::{Value, json};

pub(super) async fn perform(here: &StageContext, resolved: &ResolvedNode) -> Result<Value, NodeError> {
    let choices = resolved.plain("choices").and_then(Value::as_array).into_iter().flatten();
    let question =
        Question::new(resolved.text("question").unwrap_or_default()).choices(choices.filter_map(Value::as_str));
    match here.ask(question).await.map_err(|failure| NodeError::of_part("INVALID", failure))? {
        AskOutcome::Answer(answer) => Ok(json!({"answer": answer})),
        AskOutcome::Nobody => {
            let message =
                "the node asks the user, but the run belongs to no conversation; run it as a FLOW action of an agent";
            Err(NodeFailure::permanent("NOBODY", message).into())
        }
    }
}
