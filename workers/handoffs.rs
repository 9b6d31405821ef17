//! `turnwheel handoffs`: lists the conversations that humans have or shall get.

use crate::connection;
use crate::list_args::ListArgs;
use crate::table::{rough, table};
use base::clock;
use base::config::load::LoadedSettings;
use base::tasks::Tasks;
use clap::Args;
use commands::handoffs::HandoffSummary;
use types::timestamp::Timestamp;

const EXAMPLES: &str = "\
Examples:
  turnwheel handoffs                    all of them, the longest waiting first
  turnwheel handoffs --waiting --watch  those that no one has claimed, live
  turnwheel handoffs --mine li          those that li has claimed

`turnwheel sessions claim` claims one.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Handoffs {
    /// Only conversations that no one has claimed
    #[arg(long, conflicts_with = "mine")]
    waiting: bool,
    /// Only conversations that this person has claimed
    #[arg(long, value_name = "NAME")]
    mine: Option<String>,
    #[command(flatten)]
    listing: ListArgs,
}

impl Handoffs {
    pub async fn run(self, loaded: &LoadedSettings) -> anyhow::Result<()> {
        let tasks = Tasks::new();
        let client = connection::connect(loaded, &tasks).await?;
        let state = match &self.mine {
            Some(_) => "mine",
            None if self.waiting => "waiting",
            None => "all",
        };
        let view = async || {
            let handoffs = client.handoffs(state, self.mine.as_deref(), self.listing.limit()).await?;
            self.listing.text("handoffs", handoffs, |handoffs| rows(handoffs, clock::now()))
        };
        self.listing.refresh.show("no handoffs", view).await
    }
}

fn rows(handoffs: Vec<HandoffSummary>, now: Timestamp) -> String {
    let mut rows = table(&["session", "agent", "user", "channel", "waits", "unread", "claim", "last message"]);
    for handoff in handoffs {
        let waits = handoff.waiting_since.map_or_else(|| "-".to_owned(), |since| rough(since.until(now)));
        rows.add_row([
            handoff.session_id,
            handoff.agent_id,
            handoff.user_id,
            handoff.channel,
            waits,
            handoff.unread.to_string(),
            handoff.claim.map_or_else(|| "-".to_owned(), |claim| claim.by),
            handoff.last_message.map(|last| last.text.replace('\n', " ")).unwrap_or_default(),
        ]);
    }
    rows.to_string()
}
