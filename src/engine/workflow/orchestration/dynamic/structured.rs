//! Model calls with structured answers: asks an agent for an answer that follows a JSON Schema, and once more if the
//! answer is invalid. The calls are the steps `0/model` and `1/model`.

use crate::journal::StepError;
use crate::model::{Facts, ModelError, ModelRequest, PromptMessage, PromptRole, ResponseSchema, recorded};
use crate::workflow::orchestration::event::{RunEventType, Snapshot};
use crate::workflow::orchestration::failure::Failure;
use crate::workflow::orchestration::part::{Part, Told};
use definitions::agent::AgentRecord;
use definitions::workflow::definition::Role;
use std::sync::Arc;

/// Number of corrections that the model may make.
const MAX_CORRECTIONS: u32 = 1;

/// Why there is no valid answer.
#[derive(Debug)]
pub(super) enum Unusable {
    /// The model call failed.
    Model(ModelError),
    /// The answer is invalid, even after its correction.
    Answer(String),
}

impl std::fmt::Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Model(error) => error.fmt(f),
            Self::Answer(problem) => f.write_str(problem),
        }
    }
}

/// Returns the task agent of `role`, with the role's model if it names one.
pub(super) fn player(part: &Part, role: &Role) -> Result<Arc<AgentRecord>, Failure> {
    let Some(agent) = part.run().pinned.agent(&role.agent) else {
        let problem = format!("`{}` is not a task agent; a role needs an agent with a `system_prompt`", role.agent);
        return Err(Failure::fatal(part, problem));
    };
    Ok(match &role.model {
        Some(models) => Arc::new(agent.asking(models)),
        None => Arc::clone(agent),
    })
}

/// Asks the agent of `role` about `input`, with the events of its run.
pub(super) async fn ask<T>(
    part: &Part,
    role: &Role,
    schema: ResponseSchema,
    input: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Result<T, Unusable>, Failure> {
    let here = part.inner();
    here.tell(RunEventType::RunStarted, Told::default());
    let ended = converse(&here, role, schema, input, parse).await;
    match &ended {
        Ok(Ok((content, _))) => here.tell(RunEventType::RunCompleted, Told::output(content)),
        Ok(Err(problem)) => here.tell(RunEventType::RunFailed, Told::error(problem.to_string())),
        Err(Failure::Failed { failure, .. }) => here.tell(RunEventType::RunFailed, Told::error(&failure.cause)),
        // The turn will repeat the call or end it, so there is no end to report yet.
        Err(Failure::Journal(_)) => {}
    }
    Ok(ended?.map(|(_, answer)| answer))
}

async fn converse<T>(
    part: &Part,
    role: &Role,
    schema: ResponseSchema,
    input: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Result<(String, T), Unusable>, Failure> {
    let agent = player(part, role)?;
    let names = agent.config.model.to_string();
    let model = part.services().models.chain(&agent.config.model).map_err(|error| Failure::fatal(part, error))?;
    let prompt = agent.config.system_prompt.clone().unwrap_or_default();
    let mut messages =
        vec![PromptMessage::new(PromptRole::System, prompt), PromptMessage::new(PromptRole::User, input)];
    let mut problem = String::new();
    for attempt in 0..=MAX_CORRECTIONS {
        part.model_call()?;
        let step = format!("{attempt}/model");
        let facts = Facts { agent: Some(Arc::clone(&agent.config)), message: input.to_owned(), ..Facts::default() };
        let request = ModelRequest::new(messages.clone()).with_schema(schema.clone()).with_facts(facts);
        let (journal, asked) = (part.journal(), (&agent.hash, &messages));
        let answered = recorded::consult(&journal, &step, (&names, model.as_ref()), &asked, request).await;
        let spoken = match answered {
            Ok(stepped) => stepped.output,
            Err(StepError::Journal(error)) => return Err(error.into()),
            Err(StepError::Operation(error)) => return Ok(Err(Unusable::Model(error))),
        };
        part.tokens(spoken.tokens)?;
        let content = spoken.content;
        let snapshot = Snapshot { role: "assistant".into(), content: content.clone(), tool_calls: None };
        part.tell(RunEventType::StepCompleted, Told { step: Some(step), snapshot: Some(snapshot), ..Told::default() });
        match parse(&content) {
            Ok(answer) => return Ok(Ok((content, answer))),
            Err(found) => problem = found,
        }
        messages.push(PromptMessage::new(PromptRole::Assistant, content));
        messages.push(PromptMessage::new(PromptRole::User, correction(&problem)));
    }
    Ok(Err(Unusable::Answer(problem)))
}

/// Prompt for the correction of an invalid answer.
fn correction(problem: &str) -> String {
    format!(
        "Your last answer could not be used: {problem}. Answer again with one JSON object of the structure that was asked for, \
         and nothing else. Mend what is named here and keep what was right."
    )
}
