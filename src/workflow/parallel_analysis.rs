//! A flow that looks at one input from three sides at once: technical, business, risk.

use super::{Flow, FlowContext, FlowError};
use crate::journal::StepError;
use crate::model::{Facts, ModelRequest, PromptMessage, PromptRole, recorded};
use async_trait::async_trait;
use futures::future::join_all;

/// Key, heading and instruction of each side.
const SIDES: [(&str, &str, &str); 3] = [
    (
        "technical",
        "## 技术分析",
        "Judge the technical side: feasibility, architecture, effort, open technical questions.",
    ),
    ("business", "## 商业分析", "Judge the business side: value, market, cost, what success would look like."),
    (
        "risk",
        "## 风险分析",
        "Judge the risks: what can go wrong, how likely, how to notice it early, how to contain it.",
    ),
];

/// See the module.
pub struct ParallelAnalysis;

#[async_trait]
impl Flow for ParallelAnalysis {
    async fn run(&self, context: FlowContext) -> Result<String, FlowError> {
        let context = &context;
        // All are waited for: which failure is told must not depend on which came first.
        let texts = join_all(SIDES.map(|(key, heading, instruction)| async move {
            analyse(context, key, instruction).await.map(|text| format!("{heading}\n{text}"))
        }))
        .await;
        Ok(texts.into_iter().collect::<Result<Vec<_>, _>>()?.join("\n\n"))
    }
}

async fn analyse(context: &FlowContext, key: &str, instruction: &str) -> Result<String, FlowError> {
    let instruction = format!("{instruction} Answer in the language of the input, in short points.");
    let messages = vec![
        PromptMessage::new(PromptRole::System, instruction),
        PromptMessage::new(PromptRole::User, context.input.clone()),
    ];
    let facts = Facts { message: context.input.clone(), ..Facts::default() };
    let request = ModelRequest::new(messages).with_facts(facts);
    let journal = context.journal.scope(key);
    let model = (context.agent.config.model.as_str(), context.model.as_ref());
    match recorded::ask(&journal, "complete", model, &(key, &context.input), request).await {
        Ok(stepped) => Ok(stepped.output),
        Err(StepError::Journal(error)) => Err(error.into()),
        Err(StepError::Operation(error)) => Err(FlowError::Model(error)),
    }
}
