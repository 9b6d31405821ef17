//! What every operator's command for a session can be told.

use crate::access::Access;
use crate::table::{print, print_json};
use clap::Args;
use turnwheel::gateway::intake::Order;
use turnwheel::queue::Command;

#[derive(Debug, Args)]
pub struct Given {
    /// Why
    #[arg(long)]
    reason: Option<String>,
    /// Who orders it
    #[arg(long)]
    by: Option<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

impl Given {
    /// Puts the command onto the session's lane, and prints its job's id. `name`: of the timers that it is about.
    pub async fn order(
        self,
        access: &Access,
        session_id: &str,
        command: Command,
        name: Option<String>,
    ) -> anyhow::Result<()> {
        let Self { reason, by, json } = self;
        let accepted = access.control(session_id, Order { command, name, reason, by }).await?;
        if json {
            return print_json(&accepted);
        }
        print(accepted.job_id);
        Ok(())
    }
}
