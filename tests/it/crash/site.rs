//! Parts that several runs share: the model, the API and their clients, whose creation takes longer than a run.

use crate::authoring::Passing;
use crate::support::api::Api;
use crate::support::designed_panic::designed_panic;
use crate::support::script::{Answer, ScriptedModel};
use async_trait::async_trait;
use base::clock::Clock;
use base::config::{self, Settings, WorkflowLimits};
use definitions::coordinator::DecisionLimits;
use engine::action::http::{HttpCaller, SecretFill};
use engine::action::tool::Tools;
use engine::authoring::Workbench;
use engine::budget::Budgets;
use engine::execution::Services;
use engine::execution::prompt_view::PlanTextCache;
use engine::execution::stored::StoredDefinitions;
use engine::knowledge::Library;
use engine::model::Models;
use engine::prompt::Prompts;
use engine::workflow::{Flow, FlowContext, FlowError, Flows, Question};
use sandbox::Sandbox;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use storage::queue::Queue;
use storage::store::Store;

/// The shared parts. One run at a time uses them.
pub struct Site {
    /// Clock of the processes, the backend, the model and the API.
    pub clock: Clock,
    pub model: ScriptedModel,
    pub api: Api,
    kits: Mutex<Vec<Kit>>,
}

/// The clients of one process. A later process reuses them with new connections.
#[derive(Clone)]
pub struct Kit {
    models: Models,
    http: HttpCaller,
}

impl Site {
    pub async fn new() -> Self {
        let (clock, model, api) = (Clock::movable(), ScriptedModel::start(|_| Answer::Hang).await, Api::start().await);
        model.go_by(clock.clone());
        api.go_by(clock.clone());
        Self { clock, model, api, kits: Mutex::default() }
    }

    /// Takes the clients of a process that has ended.
    pub fn take_kit(&self) -> Option<Kit> {
        self.kits.lock().unwrap().pop()
    }

    pub fn put_kit(&self, kit: Kit) {
        self.kits.lock().unwrap().push(kit);
    }
}

impl Kit {
    pub fn new(settings: &Settings) -> Self {
        Self {
            models: Models::from_settings(settings, |_| None).unwrap(),
            http: HttpCaller::new(SecretFill::none(), &settings.http.allow_private).unwrap(),
        }
    }

    /// Services for the turns of a process.
    pub fn services(&self, queue: Arc<dyn Queue>, store: Arc<dyn Store>, clock: Clock) -> Services {
        Services {
            knowledge: Library::new(Arc::clone(&store)),
            queue,
            definitions: Arc::new(StoredDefinitions::new(Arc::clone(&store))),
            limits: WorkflowLimits::default(),
            budgets: Budgets::new(Arc::clone(&store), &config::Budget::default()),
            keep_turns: Duration::from_secs(7 * 86_400),
            keeps_prompts: false,
            decisions: DecisionLimits::new(&Settings::default(), &[]).into(),
            rehearses: false,
            sandbox: Arc::new(Sandbox::off()),
            connectors: Arc::default(),
            workbench: Arc::new(
                Workbench::of_settings(Arc::clone(&store), &Settings::default(), Vec::new(), clock.clone())
                    .with_rehearsal(Arc::new(Passing)),
            ),
            clock,
            store,
            models: self.models.clone(),
            prompts: Prompts::new(None).into(),
            plan_texts: PlanTextCache::default(),
            http: self.http.clone(),
            tools: Tools::default(),
            flows: Flows::builtin().with("broken", Panicking).with("asks", asks),
        }
    }
}

/// A flow that asks the user two questions, and calls the model before and between them.
async fn asks(flow: FlowContext) -> Result<String, FlowError> {
    let begun = flow.ask_model("begin", "begin", &flow.input).await?;
    let order = flow.ask("哪个订单？").await?;
    let found = flow.ask_model("look_up", "look up", &order).await?;
    let way = flow.ask(Question::new("退款还是换货？").choices(["退款", "换货"])).await?;
    Ok(format!("{begun} {order} {found} {way}"))
}

/// A flow that panics.
struct Panicking;

#[async_trait]
impl Flow for Panicking {
    async fn run(&self, _context: FlowContext) -> Result<String, FlowError> {
        designed_panic()
    }
}
