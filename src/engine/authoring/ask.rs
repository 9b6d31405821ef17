//! Asks the model. If an answer cannot be used, the model gets the problems and is asked again.

use super::catalogue::Catalogue;
use super::drive::{Driver, Stopped};
use super::limit::{TimedModel, Visit};
use super::ports::{Interrupted, Outlet, Prepared, WorkshopError};
use super::speech::read_words;
use crate::journal::{Durability, StepError};
use crate::model::delta::deltas;
use crate::model::recorded::{self, NamedModel};
use crate::model::{ModelError, ModelRequest, answer};
use decisions::authoring::answer::{Generation, read};
use decisions::authoring::{self, Input, Question, Unusable};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use tracing::warn;
use types::authoring::{ErrorCode, StoredState};

/// How often the model may correct an answer.
const MAX_CORRECTIONS: u32 = 2;

impl Driver<'_> {
    /// Asks the model, and applies its answer to the dialogue.
    pub(super) async fn ask(
        &mut self,
        question: Question,
        stored: &mut StoredState,
        visit: &Visit,
        outlet: &mut dyn Outlet,
    ) -> Result<(), Stopped> {
        let catalogue = self.catalogue(question, stored).await?;
        let Prepared { mut request, notes } = self.workshop.request(question, stored, &catalogue).await?;
        let mut problem = String::new();
        for attempt in 0..=MAX_CORRECTIONS {
            let content = self.answer(question, attempt, stored, visit, request.clone(), outlet).await?;
            match self.advance(question, stored, &content, &catalogue, &notes).await {
                Ok(()) => return Ok(()),
                Err(WorkshopError::Unusable(unusable)) => problem = unusable.to_string(),
                Err(error) => return Err(error.into()),
            }
            let (session_id, schema) = (&stored.state.session_id, question.schema_name());
            warn!(session_id, schema, attempt, problem, "an answer cannot be used");
            Arc::make_mut(&mut request.messages).extend(self.workshop.correction(content, &problem)?);
        }
        Err(Stopped::Fault(ErrorCode::InvalidAnswer, problem))
    }

    /// Returns the installed items. They are recorded, because the gap analysis of a repeated turn must use the same
    /// ones.
    async fn catalogue(&self, question: Question, stored: &StoredState) -> Result<Catalogue, Stopped> {
        let catalogue = self.workshop.catalogue(stored);
        if question == Question::GapAnalysis {
            return self.record("catalogue", "catalogue", stored, Durability::Deferred, catalogue).await;
        }
        Ok(catalogue.await?)
    }

    /// Asks the model once, unless the answer is recorded.
    async fn answer(
        &mut self,
        question: Question,
        attempt: u32,
        stored: &mut StoredState,
        visit: &Visit,
        request: ModelRequest,
        outlet: &mut dyn Outlet,
    ) -> Result<String, Stopped> {
        let names = self.model.to_string();
        let model = self.models.chain(self.model).map_err(|error| fault_of(&error))?;
        let model = TimedModel { model, visit: visit.clone() };
        let named = NamedModel { names: &names, model: &model };
        let (journal, key) = (self.scope(stored), format!("model/{attempt}"));
        let input = (stored.version, question.schema_name(), attempt);
        let answered = if stored.config.enable_streaming {
            let ((answer, pieces), (words, spoken)) = (deltas(), deltas());
            let clock = self.journal.clock().clone();
            let asking = recorded::stream_last(&journal, &key, named, &input, request, answer, |_| false);
            let showing = self.speech.show(stored, spoken, outlet, &clock);
            tokio::join!(asking, read_words(pieces, words), showing).0
        } else {
            recorded::ask(&journal, &key, named, &input, request).await
        };
        match answered {
            Ok(stepped) => Ok(stepped.output),
            Err(StepError::Journal(error)) => Err(Interrupted::from(error).into()),
            Err(StepError::Operation(error)) => Err(fault_of(&error)),
        }
    }

    /// Applies an answer to the dialogue. An answer that cannot be used leaves the state unchanged.
    async fn advance(
        &self,
        question: Question,
        stored: &mut StoredState,
        content: &str,
        catalogue: &Catalogue,
        notes: &BTreeMap<String, String>,
    ) -> Result<(), WorkshopError> {
        let object = answer::object(content).map_err(|problem| Unusable(vec![problem]))?;
        let answer = Value::Object(object);
        let input = match question {
            Question::Clarification => Input::Clarified(read(answer)?),
            Question::Negotiation => Input::Negotiated(read(answer)?),
            Question::GapAnalysis => Input::Analysed(read(answer)?, catalogue.ids()),
            Question::AlternativeGeneration => Input::Offered(read(answer)?),
            Question::WorkflowGeneration => self.generated(stored, read(answer)?).await?,
            Question::Debug => Input::Diagnosed(read(answer)?),
        };
        Ok(authoring::advance(stored, input, notes.clone(), self.journal.clock().now())?)
    }

    /// Stores the document of an answer as a draft.
    async fn generated(&self, stored: &StoredState, answer: Generation) -> Result<Input, WorkshopError> {
        if answer.reopen {
            return Ok(Input::Reopened { reply: answer.reply });
        }
        if answer.document(stored.artifact).is_none() {
            let problem = format!("`{}` has no document; write it as an object", stored.artifact.as_str());
            return Err(Unusable(vec![problem]).into());
        }
        let draft = self.workshop.keep_draft(stored, &answer).await?;
        Ok(Input::Drafted { reply: answer.reply, draft })
    }
}

fn fault_of(error: &ModelError) -> Stopped {
    let code = match error {
        ModelError::Spent { .. } => ErrorCode::TokenBudget,
        ModelError::Late { .. } => ErrorCode::Timeout,
        _ => ErrorCode::ModelUnavailable,
    };
    Stopped::Fault(code, error.to_string())
}
