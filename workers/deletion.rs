//! The commands that delete: their arguments and their output.

use crate::client::GatewayClient;
use crate::connection;
use crate::table::{print, print_json};
use base::config::load::LoadedSettings;
use base::tasks::Tasks;
use clap::{Args, Subcommand};
use commands::definition_deletion::{DeletedAgent, DeletedWorkflow};
use commands::deletion::{DeletedData, DeletedLetter, DeletedSession, DeletedUser};

/// Help of `sessions delete`.
pub const SESSION: &str = "\
Examples:
  turnwheel sessions delete s1    with its turns, runs, plans, timers, events and dead letters
  turnwheel sessions delete s1 --json

A running turn ends and leaves nothing. A later message of the same id begins a new session.";

/// Help of `agents delete`.
pub const AGENT: &str = "\
Examples:
  turnwheel agents delete sales            with its versions, plans and knowledge
  turnwheel agents delete sales --force    also while conversations use it

Remove its file from agents_dir, too: `turnwheel agents apply` and `turnwheel dev` would store it again.";

/// Help of `workflows delete`.
pub const WORKFLOW: &str = "\
Examples:
  turnwheel workflows delete research            with its versions
  turnwheel workflows delete research --force    also while runs, agents or workflows use it

Remove its file from workflows_dir, too: a worker or gateway that starts would store it again.";

/// Help of `dead delete`.
pub const LETTER: &str = "\
Examples:
  turnwheel dead delete 7      by the number of the dead letter
  turnwheel dead delete m-1    by the id of its job";

const USERS: &str = "\
Examples:
  turnwheel users delete u1    all sessions and runs of the user, with all that belongs to them
  turnwheel users delete u1 --json";

/// A thing to delete.
#[derive(Debug, Args)]
pub struct DeleteArgs {
    /// Its id
    #[arg(value_parser = crate::id)]
    id: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// An agent or a workflow to delete.
#[derive(Debug, Args)]
pub struct DeleteDefinition {
    #[command(flatten)]
    which: DeleteArgs,
    /// Delete it even if it is used
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Subcommand)]
#[command(after_help = USERS)]
pub enum Users {
    /// Delete all data of a user
    #[command(after_help = USERS)]
    Delete {
        /// Id of the user, as the channel gives it
        #[arg(value_parser = crate::dotted_id)]
        id: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

impl Users {
    pub async fn run(self, loaded: &LoadedSettings) -> anyhow::Result<()> {
        let tasks = Tasks::new();
        let client = connection::connect(loaded, &tasks).await?;
        let Self::Delete { id, json } = self;
        let mut deleted = client.delete_user(&id).await?;
        while !deleted.complete {
            if !json {
                eprintln!("deleted so far: {}", deleted.deleted.words());
            }
            let DeletedUser { complete, deleted: more, .. } = client.delete_user(&id).await?;
            deleted.complete = complete;
            deleted.deleted.add(&more);
        }
        if json {
            return print_json(&deleted);
        }
        tell(&format!("the data of user `{id}`"), &deleted.deleted);
        Ok(())
    }
}

fn tell(what: &str, deleted: &DeletedData) {
    print(format!("deleted {what}: {}", deleted.words()));
}

impl DeleteArgs {
    /// Deletes a session.
    pub async fn session(self, client: &GatewayClient) -> anyhow::Result<()> {
        let deleted = client.delete_session(&self.id).await?;
        if self.json {
            return print_json(&deleted);
        }
        let DeletedSession { session_id, deleted } = deleted;
        tell(&format!("session `{session_id}`"), &deleted);
        Ok(())
    }
}

impl DeleteDefinition {
    /// Deletes an agent.
    pub async fn agent(self, client: &GatewayClient) -> anyhow::Result<()> {
        let deleted = client.delete_agent(&self.which.id, self.force).await?;
        if self.which.json {
            return print_json(&deleted);
        }
        let DeletedAgent { agent_id, versions, sources, plans } = deleted;
        print(format!(
            "deleted agent `{agent_id}`: versions {versions}, knowledge sources {sources}, cached plans {plans}"
        ));
        Ok(())
    }

    /// Deletes a workflow.
    pub async fn workflow(self, client: &GatewayClient) -> anyhow::Result<()> {
        let deleted = client.delete_workflow(&self.which.id, self.force).await?;
        if self.which.json {
            return print_json(&deleted);
        }
        let DeletedWorkflow { workflow_id, versions } = deleted;
        print(format!("deleted workflow `{workflow_id}`: versions {versions}"));
        Ok(())
    }
}

/// Deletes a dead letter, by its number or the id of its job.
pub async fn letter(client: &GatewayClient, which: &str, json: bool) -> anyhow::Result<()> {
    let deleted = client.delete_letter(which).await?;
    if json {
        return print_json(&deleted);
    }
    let DeletedLetter { seq, session_id } = deleted;
    print(format!("deleted dead letter {seq} of session `{session_id}`"));
    Ok(())
}
