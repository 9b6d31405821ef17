//! Model calls with structured answers: asks an agent for an answer that follows a JSON Schema, and once more if the
//! answer is invalid. The calls are the steps `0/model` and `1/model`.

use crate::journal::StepError;
use crate::model::{Facts, ModelError, ModelRequest, PromptMessage, PromptRole, ResponseSchema, recorded};
use crate::workflow::orchestration::event::{RunEventType, Snapshot};
use crate::workflow::orchestration::failure::Failure;
use crate::workflow::orchestration::stage_context::{EventPayload, StageContext};
use definitions::agent::AgentRecord;
use definitions::workflow::definition::RoleDefinition;
use std::sync::Arc;

/// Number of corrections that the model may make.
const MAX_CORRECTIONS: u32 = 1;

/// Why there is no valid answer.
#[derive(Debug)]
pub(super) enum NoValidAnswer {
    /// The model call failed.
    Model(ModelError),
    /// The answer is invalid, even after its correction.
    Answer(String),
    /// The part of the run cannot continue.
    Failure(Failure),
}

impl From<Failure> for NoValidAnswer {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

/// Returns the task agent of `role`, with the role's model if it names one.
pub(super) fn agent_of_role(context: &StageContext, role: &RoleDefinition) -> Result<Arc<AgentRecord>, Failure> {
    let Some(agent) = context.run().resolved.agent(&role.agent) else {
        let problem = format!("`{}` is not a task agent; a role needs an agent with a `system_prompt`", role.agent);
        return Err(Failure::fatal(context, problem));
    };
    Ok(match &role.model {
        Some(models) => Arc::new(agent.asking(models)),
        None => Arc::clone(agent),
    })
}

/// Asks the agent of `role` about `input`, with the events of its run.
pub(super) async fn ask<T>(
    context: &StageContext,
    role: &RoleDefinition,
    schema: ResponseSchema,
    input: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<T, NoValidAnswer> {
    let here = context.inner();
    here.emit(RunEventType::RunStarted, EventPayload::default());
    let ended = converse(&here, role, schema, input, parse).await;
    let failed = |problem: &str| here.emit(RunEventType::RunFailed, EventPayload::error(problem));
    match &ended {
        Ok((content, _)) => here.emit(RunEventType::RunCompleted, EventPayload::output(content)),
        Err(NoValidAnswer::Model(error)) => failed(&error.to_string()),
        Err(NoValidAnswer::Answer(problem)) => failed(problem),
        Err(NoValidAnswer::Failure(Failure::Failed { failure, .. })) => failed(&failure.cause),
        // The turn will repeat the call or end it, so there is no end to report yet.
        Err(NoValidAnswer::Failure(Failure::Journal(_))) => {}
    }
    ended.map(|(_, answer)| answer)
}

async fn converse<T>(
    context: &StageContext,
    role: &RoleDefinition,
    schema: ResponseSchema,
    input: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<(String, T), NoValidAnswer> {
    let agent = agent_of_role(context, role)?;
    let names = agent.config.model.to_string();
    let model = context.services().models.chain(&agent.config.model).map_err(|error| Failure::fatal(context, error))?;
    let prompt = agent.config.system_prompt.clone().unwrap_or_default();
    let mut messages =
        vec![PromptMessage::new(PromptRole::System, prompt), PromptMessage::new(PromptRole::User, input)];
    let mut problem = String::new();
    for attempt in 0..=MAX_CORRECTIONS {
        context.count_model_call()?;
        let step = format!("{attempt}/model");
        let facts = Facts { agent: Some(Arc::clone(&agent.config)), message: input.to_owned(), ..Facts::default() };
        let request = ModelRequest::new(messages.clone()).with_schema(schema.clone()).with_facts(facts);
        let (journal, asked) = (context.journal(), (&agent.hash, &messages));
        let named = recorded::NamedModel { names: &names, model: model.as_ref() };
        let answered = recorded::ask_with_tools(&journal, &step, named, &asked, request).await;
        let reply = match answered {
            Ok(stepped) => stepped.output,
            Err(StepError::Journal(error)) => return Err(Failure::Journal(error).into()),
            Err(StepError::Operation(error)) => return Err(NoValidAnswer::Model(error)),
        };
        context.count_tokens(reply.tokens)?;
        let content = reply.content;
        let snapshot = Snapshot { role: "assistant".into(), content: content.clone(), tool_calls: None };
        context.emit(
            RunEventType::StepCompleted,
            EventPayload { step: Some(step), snapshot: Some(snapshot), ..EventPayload::default() },
        );
        match parse(&content) {
            Ok(answer) => return Ok((content, answer)),
            Err(found) => problem = found,
        }
        messages.push(PromptMessage::new(PromptRole::Assistant, content));
        messages.push(PromptMessage::new(PromptRole::User, correction(&problem)));
    }
    Err(NoValidAnswer::Answer(problem))
}

/// Prompt for the correction of an invalid answer.
fn correction(problem: &str) -> String {
    format!(
        "Your last answer could not be used: {problem}. Answer again with one JSON object of the structure that was asked for, \
         and nothing else. Mend what is named here and keep what was right."
    )
}
