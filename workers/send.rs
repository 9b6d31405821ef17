//! `turnwheel send`: sends one message to an agent.

use crate::chat::follow_new;
use crate::chat_display::ChatDisplay;
use crate::client::GatewayClient;
use crate::connection;
use crate::feed::Notice;
use crate::table::{print, print_json, print_queued};
use crate::wait_turn::TurnWait;
use base::config::load::LoadedSettings;
use base::tasks::Tasks;
use clap::Args;
use commands::enqueue::Accepted;
use commands::messages::NewMessage;
use serde_json::json;
use std::time::Duration;
use types::duration;
use types::event::{Event, Reply, ReplyKind};

const EXAMPLES: &str = "\
Examples:
  turnwheel send --session s1 --agent sales 你好
  turnwheel send --session s1 --wait '查一下订单 A1001'    wait, and print the replies
  turnwheel send --session s1 --wait --json 你好         {job_id, session_id, replies}
  turnwheel send --session s1 --job-id m-7 你好          sent twice, it is one turn

The first line of stdout is the id of the message, which is also the id of its turn.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Send {
    /// Id of the session; a new session starts with this message
    #[arg(long, value_parser = crate::id)]
    session: String,
    /// Id of the agent; required in a session's first message
    #[arg(long, value_parser = crate::id)]
    agent: Option<String>,
    /// Id of the message; a repeat with the same id is not a second turn [default: a random id]
    #[arg(long, value_parser = crate::dotted_id)]
    job_id: Option<String>,
    /// Id of the user [default: that of the session's last message]
    #[arg(long, value_parser = crate::dotted_id)]
    user: Option<String>,
    /// Channel that receives the replies [default: that of the session, else `default`]
    #[arg(long, value_parser = crate::id)]
    channel: Option<String>,
    /// Wait for the end of the turn and print its replies
    #[arg(long)]
    wait: bool,
    /// Print JSON: the ids of message and session; with --wait also the replies, after the turn
    #[arg(long)]
    json: bool,
    /// How long to wait with --wait, such as `90s` or `5m`
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration::parse)]
    timeout: Duration,
    /// The text of the message
    #[arg(required = true)]
    text: Vec<String>,
}

impl Send {
    pub async fn run(self, loaded: &LoadedSettings) -> anyhow::Result<()> {
        let tasks = Tasks::new();
        let client = connection::connect(loaded, &tasks).await?;
        let message = NewMessage {
            session_id: self.session.clone(),
            agent_id: self.agent.clone(),
            text: self.text.join(" "),
            job_id: self.job_id.clone(),
            user_id: self.user.clone(),
            channel: self.channel.clone(),
            ..NewMessage::default()
        };
        let accepted = client.send(&message).await?;
        match (self.wait, self.json) {
            (false, true) => print_json(&accepted),
            (false, false) => {
                let Accepted { job_id, session_id } = &accepted;
                let next = format!("`turnwheel sessions show {session_id}` shows the reply");
                print_queued(job_id, &format!("queued message `{job_id}` for session `{session_id}`; {next}"));
                Ok(())
            }
            (true, true) => self.collect(&client, accepted, &tasks).await,
            (true, false) => {
                let (Accepted { job_id, session_id }, limit) = (&accepted, duration::format(self.timeout));
                let next = format!("waiting up to {limit} for the replies");
                print_queued(job_id, &format!("queued message `{job_id}` for session `{session_id}`; {next}"));
                let agents = client.agents().await?;
                let names = agents.into_iter().map(|agent| (agent.agent_id, agent.name)).collect();
                let (mut display, turn_id) = (ChatDisplay::plain(names), accepted.job_id.clone());
                wait(&client, &accepted, self.timeout, &tasks, |notice| show(&mut display, notice, &turn_id)).await
            }
        }
    }

    /// Prints the replies when the turn has ended, or when waiting for it has failed.
    async fn collect(&self, client: &GatewayClient, accepted: Accepted, tasks: &Tasks) -> anyhow::Result<()> {
        let mut replies: Vec<Reply> = Vec::new();
        let waited = wait(client, &accepted, self.timeout, tasks, |notice| {
            let Notice::Event(event) = notice else { return };
            // Repeats have the same id. The final text contains its chunks.
            if let Event::Reply(reply) = event.as_ref()
                && reply.turn_id == accepted.job_id
                && reply.kind != ReplyKind::Chunk
                && replies.iter().all(|known| known.reply_id != reply.reply_id)
            {
                replies.push(reply.clone());
            }
        });
        let waited = waited.await;
        let Accepted { job_id, session_id } = accepted;
        print_json(&json!({ "job_id": job_id, "session_id": session_id, "replies": replies }))?;
        waited
    }
}

/// Calls `show` with every notice until the turn of the message has ended.
async fn wait(
    client: &GatewayClient,
    accepted: &Accepted,
    limit: Duration,
    tasks: &Tasks,
    show: impl FnMut(&Notice),
) -> anyhow::Result<()> {
    let (session_id, job_id) = (accepted.session_id.as_str(), accepted.job_id.as_str());
    // From the first stored event: a message that was sent before has its replies there.
    let mut feed = follow_new(client, session_id, tasks).await?;
    TurnWait { client, session_id, job_id, limit }.until_end(&mut feed, show).await
}

/// Prints the turn's replies to stdout, and problems of the connection to stderr.
fn show(display: &mut ChatDisplay, notice: &Notice, turn_id: &str) {
    match notice {
        Notice::Event(event) => {
            let ours = matches!(event.as_ref(), Event::Reply(reply) if reply.turn_id == turn_id);
            let text = if ours { display.notice(notice) } else { String::new() };
            if !text.is_empty() {
                print(text.trim_end());
            }
        }
        Notice::Lost(_) | Notice::Back | Notice::Failed(_) => eprint!("{}", display.notice(notice)),
    }
}
