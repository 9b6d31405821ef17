//! `turnwheel timers`: lists and cancels pending timers.

use crate::client::GatewayClient;
use crate::connection;
use crate::list_args::ListArgs;
use crate::operator_args::OperatorArgs;
use crate::table::{rough, table};
use base::clock;
use base::config::load::LoadedSettings;
use base::tasks::Tasks;
use clap::{Args, Subcommand};
use commands::timers::PendingTimer;
use types::job::{Command, Control};
use types::timestamp::Timestamp;

const EXAMPLES: &str = "\
Examples:
  turnwheel timers list                                   all pending timers, next due first
  turnwheel timers list --session s1 --watch              timers of one session, live
  turnwheel timers cancel --session s1                    cancel all timers of a session
  turnwheel timers cancel --session s1 --name follow_up   cancel those with this name";

const LIST: &str = "\
Examples:
  turnwheel timers list
  turnwheel timers list --session s1 --json
  turnwheel timers list --watch";

const CANCEL: &str = "\
Examples:
  turnwheel timers cancel --session s1
  turnwheel timers cancel --session s1 --name follow_up --by li --reason 'called already'

The lane executes the command in its order. The timers handoff_timeout and claim_timeout, which release a conversation \
and end a claim if the human does not reply, and flow_timeout are cancelled only by their names.";

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum Timers {
    /// List pending timers, next due first
    #[command(after_help = LIST)]
    List(ListTimers),
    /// Cancel a session's timers
    #[command(after_help = CANCEL)]
    Cancel(CancelTimers),
}

#[derive(Debug, Args)]
pub struct ListTimers {
    /// Only timers of this session
    #[arg(long, value_parser = crate::id)]
    session: Option<String>,
    #[command(flatten)]
    listing: ListArgs,
}

#[derive(Debug, Args)]
pub struct CancelTimers {
    /// Id of the session
    #[arg(long, value_parser = crate::id)]
    session: String,
    /// Only timers with this name [default: all]
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    args: OperatorArgs,
}

impl Timers {
    pub async fn run(self, loaded: &LoadedSettings) -> anyhow::Result<()> {
        let tasks = Tasks::new();
        let client = connection::connect(loaded, &tasks).await?;
        match self {
            Self::List(which) => which.listing.refresh.show("no timers", async || view(&client, &which).await).await,
            Self::Cancel(CancelTimers { session, name, args }) => {
                args.send(&client, &session, Control { name, ..Control::new(Command::CancelTimers) }).await
            }
        }
    }
}

async fn view(client: &GatewayClient, which: &ListTimers) -> anyhow::Result<String> {
    let timers = client.timers(which.session.as_deref(), which.listing.limit()).await?;
    which.listing.text("timers", timers, |timers| rows(timers, clock::now()))
}

fn rows(timers: Vec<PendingTimer>, now: Timestamp) -> String {
    let mut rows = table(&["session", "timer", "due", "at", "action", "message"]);
    for PendingTimer { session_id, timer } in timers {
        let due = if timer.due_at > now { format!("in {}", rough(now.until(timer.due_at))) } else { "now".into() };
        let action = timer.action.map(|action| action.target).unwrap_or_default();
        let message = timer.message.unwrap_or_default();
        rows.add_row([session_id, timer.name, due, timer.due_at.to_string(), action, message]);
    }
    rows.to_string()
}
