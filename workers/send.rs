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

The first line of stdout is the id of the message.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Send {
    /// Id of the session; a new session starts with this message
    #[arg(long, value_parser = crate::id)]
    session: String,
    /// Id of the agent; required in a session's first message
    #[arg(long, value_parser = crate::id)]
    agent: Option<String>,
    /// Hash of the agent's version that answers, such as a draft [default: the applied one]
    #[arg(long, value_name = "HASH", value_parser = crate::id)]
    agent_version: Option<String>,
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
            agent_version: self.agent_version.clone(),
            text: self.text.join(" "),
            job_id: self.job_id.clone(),
            user_id: self.user.clone(),
            channel: self.channel.clone(),
            ..NewMessage::default()
        };
        let reused = self.wait && self.reuses_id(&client).await?;
        let accepted = client.send(&message).await?;
        if !self.wait {
            return self.queued(&accepted);
        }
        let Accepted { job_id, session_id } = &accepted;
        let awaited = TurnWait { client: &client, session_id, job_id, reused, limit: self.timeout };
        match self.json {
            true => collect(&awaited, &tasks).await,
            false => {
                let limit = duration::format(self.timeout);
                let next = format!("waiting up to {limit} for the replies");
                print_queued(job_id, &format!("queued message `{job_id}` for session `{session_id}`; {next}"));
                show(&awaited, &tasks).await
            }
        }
    }

    /// True if an earlier message had the given id, and the session has forgotten it.
    async fn reuses_id(&self, client: &GatewayClient) -> anyhow::Result<bool> {
        let Some(job_id) = &self.job_id else { return Ok(false) };
        let session = client.session(&self.session).await?;
        let forgotten = session.is_some_and(|found| !found.session.has_handled(job_id));
        Ok(forgotten && client.has_turn(&self.session, job_id).await?)
    }

    fn queued(&self, accepted: &Accepted) -> anyhow::Result<()> {
        if self.json {
            return print_json(accepted);
        }
        let Accepted { job_id, session_id } = accepted;
        let next = format!("`turnwheel sessions show {session_id}` shows the reply");
        print_queued(job_id, &format!("queued message `{job_id}` for session `{session_id}`; {next}"));
        Ok(())
    }
}

/// Prints the turn's replies as JSON when the turn has ended, or when waiting for it has failed.
async fn collect(awaited: &TurnWait<'_>, tasks: &Tasks) -> anyhow::Result<()> {
    let mut replies: Vec<Reply> = Vec::new();
    let waited = wait(awaited, tasks, |notice| {
        // Repeats have the same id.
        if let Some(reply) = whole_reply(notice)
            && replies.iter().all(|known| known.reply_id != reply.reply_id)
        {
            replies.push(reply.clone());
        }
    });
    let waited = waited.await;
    let turn_id = waited.as_ref().ok().and_then(Option::as_deref);
    replies.retain(|reply| is_turn(awaited, turn_id, reply));
    let (job_id, session_id) = (awaited.job_id, awaited.session_id);
    print_json(&json!({ "job_id": job_id, "session_id": session_id, "replies": replies }))?;
    waited.map(drop)
}

/// Prints the turn's replies to stdout as they arrive, and problems of the connection to stderr. Those of a turn that
/// handles several messages may be known only when it completes.
async fn show(awaited: &TurnWait<'_>, tasks: &Tasks) -> anyhow::Result<()> {
    let agents = awaited.client.agents().await?;
    let names = agents.into_iter().map(|agent| (agent.agent_id, agent.name)).collect();
    let (mut display, mut later) = (ChatDisplay::plain(names), Vec::new());
    let waited = wait(awaited, tasks, |notice| match notice {
        Notice::Event(_) => match whole_reply(notice) {
            Some(reply) if awaited.is_turn(&reply.turn_id) => print_reply(&mut display, reply),
            Some(reply) => later.push(reply.clone()),
            None => {}
        },
        Notice::Lost(_) | Notice::Back | Notice::Failed(_) => eprint!("{}", display.notice(notice)),
    });
    let turn_id = waited.await?;
    later.retain(|reply| turn_id.as_ref() == Some(&reply.turn_id));
    later.iter().for_each(|reply| print_reply(&mut display, reply));
    Ok(())
}

/// Calls `show` with every notice until the turn of the message has ended. Returns the turn's id if it is known.
async fn wait(awaited: &TurnWait<'_>, tasks: &Tasks, show: impl FnMut(&Notice)) -> anyhow::Result<Option<String>> {
    // From the first stored event: a message that was sent before has its replies there.
    let mut feed = follow_new(awaited.client, awaited.session_id, tasks).await?;
    awaited.until_end(&mut feed, show).await
}

/// The reply, if the notice is one. The final text contains its chunks.
fn whole_reply(notice: &Notice) -> Option<&Reply> {
    match notice {
        Notice::Event(event) => match event.as_ref() {
            Event::Reply(reply) if reply.kind != ReplyKind::Chunk => Some(reply),
            _ => None,
        },
        Notice::Lost(_) | Notice::Back | Notice::Failed(_) => None,
    }
}

fn is_turn(awaited: &TurnWait<'_>, turn_id: Option<&str>, reply: &Reply) -> bool {
    turn_id.map_or_else(|| awaited.is_turn(&reply.turn_id), |turn_id| reply.turn_id == turn_id)
}

fn print_reply(display: &mut ChatDisplay, reply: &Reply) {
    let text = display.notice(&Notice::Event(Box::new(Event::Reply(reply.clone()))));
    if !text.is_empty() {
        print(text.trim_end());
    }
}
