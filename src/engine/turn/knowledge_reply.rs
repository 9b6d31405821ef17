//! Replies from the agent's knowledge.
//!
//! The turn searches the knowledge for the user's message. If the search has hits, the model writes a new reply from
//! them. The decided response stays if the agent has no knowledge, the search finds nothing, or the model fails or
//! returns no text. If the token budget is spent, the turn is cancelled.

use super::interruption::Interruption;
use super::iterate::LoopState;
use super::placeholder::is_placeholder;
use super::prompt::{self, KnowledgeReply};
use super::state::{StepName, Turn};
use crate::execution::{CancelReason, TurnError};
use crate::journal::{Done, Durability, Label, StepError, Stepped};
use crate::knowledge::index::Index;
use crate::knowledge::{Hit, library};
use crate::model::delta::deltas;
use crate::model::{Facts, Grounds, ModelError, ModelRequest, recorded};
use base::metrics::metrics;
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use tracing::warn;

/// A reply written from knowledge.
pub(super) struct InformedReply {
    pub(super) text: String,
    /// Names of the source files without duplicates, the best hit first.
    pub(super) sources: Vec<String>,
}

impl Turn<'_> {
    /// Returns the reply that replaces the decided one, or `None` if the search finds nothing.
    pub(super) async fn write_knowledge_reply(
        &mut self,
        iteration: u32,
        state: &LoopState,
        index: Arc<Index>,
        decided: &str,
    ) -> Result<Option<InformedReply>, Interruption> {
        let message = self.typed_text();
        // The turn of a timer has no message, and a picture alone has no words to search for.
        if message.trim().is_empty() {
            return Ok(None);
        }
        let hits = self.search_knowledge(iteration, index, &message, decided).await?;
        if hits.is_empty() {
            return Ok(None);
        }
        let mut sources: Vec<String> = Vec::new();
        for hit in &hits {
            if !sources.contains(&hit.source) {
                sources.push(hit.source.clone());
            }
        }
        let text = self.write_reply(iteration, state, Grounds { decided: decided.to_owned(), hits }).await?;
        Ok(text.map(|text| InformedReply { text, sources }))
    }

    /// Searches the knowledge, as a step, so that a repeated turn writes its reply from the same hits.
    async fn search_knowledge(
        &mut self,
        iteration: u32,
        index: Arc<Index>,
        message: &str,
        decided: &str,
    ) -> Result<Vec<Hit>, TurnError> {
        let (journal, agent_id) = (self.journal.clone(), self.agent.config.id.clone());
        let label = Label { kind: "knowledge", target: &agent_id };
        // No write of its own: the step is stored with the next status or step, before the model call, or with the
        // commit.
        let counted = !self.services.rehearses;
        let search = async |_| {
            let hits = library::search_for_reply(index, message.to_owned(), decided.to_owned()).await;
            if counted {
                metrics().knowledge_search(!hits.is_empty());
            }
            Ok::<_, Infallible>(Done { with_commit: true, ..Done::ok(hits) })
        };
        let key = format!("{iteration}/knowledge");
        let stepped: Stepped<Vec<Hit>> =
            match journal.step(&key, label, Durability::OnReturn, &(message, decided), search).await {
                Ok(stepped) => stepped,
                Err(StepError::Journal(error)) => return Err(error.into()),
                Err(StepError::Operation(never)) => match never {},
            };
        self.step_finished("knowledge", &agent_id, &stepped);
        Ok(stepped.output)
    }

    /// Asks the model for a reply from the hits, and publishes it in chunks. Returns `None` if the model fails or
    /// returns no usable text.
    async fn write_reply(
        &mut self,
        iteration: u32,
        state: &LoopState,
        grounds: Grounds,
    ) -> Result<Option<String>, Interruption> {
        let (names, journal) = (self.agent.config.model.to_string(), self.journal.clone());
        let model = match self.models.chain(&self.agent.config.model) {
            Ok(model) => model,
            Err(problem) => {
                warn!(agent_id = self.agent.id(), "knowledge not used, replying with the decided response: {problem}");
                return Ok(None);
            }
        };
        let (message, results) = (self.message_text(), prompt::results(&state.results));
        let history = prompt::continued(&state.history, &self.entries);
        let context = KnowledgeReply::new(&state.plan, &grounds, history, &results, &message);
        let system = self.services.prompts.render("knowledge_reply", &context).map_err(prompt::failed)?;
        let input =
            json!({ "hash": self.agent.hash, "message": message, "decided": grounds.decided, "hits": grounds.hits });
        let messages = prompt::messages(system, &message, self.images());
        let facts = Facts {
            agent: Some(Arc::clone(&self.agent.config)),
            message,
            last_action: state.results.last().cloned(),
            grounds: Some(Arc::new(grounds)),
            authoring: None,
            ..Facts::default()
        };
        let (sink, pieces) = deltas();
        let request = ModelRequest::new(messages).with_facts(facts);
        let key = format!("{iteration}/inform");
        let publisher = self.chunk_publisher(&format!("{iteration}/respond")).await?;
        let asking = async {
            let named = recorded::NamedModel { names: &names, model: model.as_ref() };
            let asked = recorded::stream_last(&journal, &key, named, &input, request, sink, |_| true);
            tokio::join!(asked, publisher.publish_all(pieces)).0
        };
        let name = StepName { kind: "model", target: &names, key: &key };
        match self.publish_and_run(name, Box::pin(asking)).await? {
            Ok(stepped) => {
                self.step_finished("model", &stepped.target, &stepped);
                let text = stepped.output.trim();
                Ok((!text.is_empty() && !is_placeholder(text)).then(|| text.to_owned()))
            }
            Err(StepError::Journal(error)) => Err(error.into()),
            Err(StepError::Operation(spent @ ModelError::Spent { .. })) => {
                Err(CancelReason::from_model_error(&spent).into())
            }
            Err(StepError::Operation(problem)) => {
                warn!(agent_id = self.agent.id(), "knowledge not used, replying with the decided response: {problem}");
                Ok(None)
            }
        }
    }
}
