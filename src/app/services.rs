//! The dependencies of a worker's turns.

use super::builder::EngineBuilder;
use super::rehearsal::LiveRehearsal;
use super::{Engine, EngineError};
use base::config::SecretValues;
use definitions::coordinator::DecisionLimits;
use engine::action::http::{HttpCaller, SecretFill};
use engine::authoring::Workbench;
use engine::budget::Budgets;
use engine::execution::Services;
use engine::execution::prompt_view::PlanTextCache;
use engine::execution::stored::StoredDefinitions;
use engine::model::Models;
use engine::prompt::Prompts;
use std::sync::Arc;

impl Engine {
    /// The models with their circuits, which all workers of this process share.
    fn asked_models(&self, secrets: &SecretValues) -> Result<Models, EngineError> {
        if let Some(models) = self.asked.get() {
            return Ok(models.clone());
        }
        let models = Models::from_settings(&self.settings, |name| secrets.api_key(name))?;
        let models = self.models.iter().fold(models, |models, (name, model)| models.with(name, Arc::clone(model)));
        let models = self.meter.as_ref().map_or_else(|| models.clone(), |meter| meter.limit(&models));
        Ok(self.asked.get_or_init(|| models).clone())
    }

    /// The workbench of authoring dialogues. In a rehearsal it cannot rehearse.
    fn workbench(&self) -> Result<Workbench, EngineError> {
        let (store, clock) = (Arc::clone(&self.store), self.clock.clone());
        let bench = Workbench::new(store, &self.settings, self.known(), self.flows.ids(), clock);
        if self.stand_in.is_some() {
            return Ok(bench);
        }
        let bench = bench.with_rehearsal(Arc::new(LiveRehearsal::of(self))).with_files(self.files.get().cloned());
        Ok(match self.remote_author()? {
            Some(author) => bench.with_author(Arc::new(author)),
            None => bench,
        })
    }

    /// The dependencies of a worker's turns.
    pub(super) fn services(&self) -> Result<Services, EngineError> {
        let secrets = Arc::new(SecretValues::new(&self.settings, &self.env));
        let (fill, mask) = (Arc::clone(&secrets), Arc::clone(&secrets));
        let secret_fill = SecretFill::new(
            Arc::new(move |text: &str, host: &str| fill.fill(text, host)),
            Arc::new(move |text: &str| mask.mask(text)),
        );
        let http = HttpCaller::new(secret_fill, &self.settings.http.allow_private)?;
        let http = match &self.stand_in {
            Some(stand_in) => http.answering(Arc::clone(stand_in)),
            None => http,
        };
        Ok(Services {
            queue: Arc::clone(&self.queue),
            store: Arc::clone(&self.store),
            models: self.asked_models(&secrets)?,
            prompts: Prompts::new(EngineBuilder::prompts_dir(&self.settings)).into(),
            plan_texts: PlanTextCache::default(),
            http,
            tools: self.tools.clone(),
            flows: self.flows.clone(),
            knowledge: self.knowledge.clone(),
            definitions: Arc::new(StoredDefinitions::new(Arc::clone(&self.store))),
            limits: self.settings.workflow.clone(),
            budgets: Budgets::new(Arc::clone(&self.store), &self.settings.budget),
            keep_turns: self.settings.retention.turns.0,
            keeps_prompts: self.settings.journal.keeps_prompts(),
            decisions: DecisionLimits::new(&self.settings, self.known().models()).into(),
            sandbox: Arc::clone(&self.sandbox),
            connectors: Arc::clone(&self.connectors),
            workbench: Arc::new(self.workbench()?),
            rehearses: self.rehearses,
            clock: self.clock.clone(),
        })
    }
}
