//! `turnwheel models`: lists models with their circuits, and agents with their budgets.

use crate::connection;
use crate::table::{print, print_json, print_table, table};
use base::config::load::LoadedSettings;
use base::tasks::Tasks;
use clap::Args;
use commands::agents::AgentSummary;
use commands::models::ModelList;
use engine::model::circuit::CircuitState;

const EXAMPLES: &str = "\
Examples:
  turnwheel models
  turnwheel models --json   models with circuits, agents with budgets, stages that name models

CIRCUIT is the state in the process that was asked: `closed` calls the model, `open` fails calls immediately after \
repeated failures, `half_open` tries the model again, `-` means that this process calls no models.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ListModels {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl ListModels {
    pub async fn run(self, loaded: &LoadedSettings) -> anyhow::Result<()> {
        let tasks = Tasks::new();
        let list = connection::connect(loaded, &tasks).await?.models().await?;
        if self.json { print_json(&list) } else { show(list) }
    }
}

fn show(list: ModelList) -> anyhow::Result<()> {
    let ModelList { agents, stages, models, .. } = list;
    let mut rows = table(&["model", "provider", "at its server", "circuit"]);
    for model in models {
        let circuit = model.circuit.map_or("-", CircuitState::as_str).to_owned();
        rows.add_row([model.name, model.provider, model.model, circuit]);
    }
    print_table(&rows);
    if !agents.is_empty() {
        let mut rows = table(&["agent", "kind", "asks", "budget", "used today"]);
        for agent in agents {
            let kind = if agent.task { "task" } else { "chat" };
            let used = agent.day_tokens.map_or_else(|| "-".to_owned(), |tokens| tokens.to_string());
            rows.add_row([agent.agent_id.clone(), kind.into(), agent.models.join(", "), budget(&agent), used]);
        }
        print("");
        print_table(&rows);
    }
    if !stages.is_empty() {
        let mut rows = table(&["workflow", "stage", "asks"]);
        for stage in stages {
            rows.add_row([stage.workflow_id, stage.stage, stage.models.join(", ")]);
        }
        print("");
        print_table(&rows);
    }
    Ok(())
}

/// The agent's limits as text.
fn budget(agent: &AgentSummary) -> String {
    let limits = [("turn", agent.budget.turn), ("session", agent.budget.session), ("day", agent.budget.day)];
    let set: Vec<_> = limits.into_iter().filter_map(|(name, most)| Some(format!("{name} {}", most?))).collect();
    if set.is_empty() { "-".to_owned() } else { set.join(", ") }
}
