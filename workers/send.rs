//! `turnwheel send`: publishes one message.

use crate::access::Access;
use crate::chat::follow_new;
use crate::ending::Awaited;
use crate::feed::Notice;
use crate::screen::Screen;
use crate::table::print;
use clap::Args;
use std::time::Duration;
use turnwheel::config::duration;
use turnwheel::config::load::Loaded;
use turnwheel::gateway::intake::NewMessage;
use turnwheel::queue::Event;
use turnwheel::tasks::Tasks;

const EXAMPLES: &str = "\
Examples:
  turnwheel send --session s1 --agent sales 你好
  turnwheel send --session s1 --wait '查一下订单 A1001'    print the replies, too
  turnwheel send --session s1 --job-id m-7 你好          sent twice, it is one turn";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Send {
    /// The session; a new one begins with this message
    #[arg(long, value_parser = crate::id)]
    session: String,
    /// The agent; needed with a session's first message
    #[arg(long, value_parser = crate::id)]
    agent: Option<String>,
    /// The message's id: the same id again is no second turn
    #[arg(long, value_parser = crate::id)]
    job_id: Option<String>,
    /// The user
    #[arg(long, value_parser = crate::id)]
    user: Option<String>,
    /// The channel that replies go to
    #[arg(long, value_parser = crate::id)]
    channel: Option<String>,
    /// Wait for the end of the turn, and print its replies
    #[arg(long)]
    wait: bool,
    /// How long to wait
    #[arg(long, default_value = "60s", value_parser = duration::parse)]
    timeout: Duration,
    /// The words
    #[arg(required = true)]
    text: Vec<String>,
}

impl Send {
    pub async fn run(self, loaded: &Loaded) -> anyhow::Result<()> {
        let tasks = Tasks::new();
        let access = Access::open(loaded, &tasks).await?;
        let message = NewMessage {
            session_id: self.session,
            agent_id: self.agent,
            text: self.text.join(" "),
            job_id: self.job_id,
            user_id: self.user,
            channel: self.channel,
            ..NewMessage::default()
        };
        let accepted = access.send(message).await?;
        print(&accepted.job_id);
        if !self.wait {
            return Ok(());
        }
        let (session_id, turn_id) = (accepted.session_id.as_str(), accepted.job_id.as_str());
        let agents = access.list_agents().await?;
        let names = agents.into_iter().map(|agent| (agent.agent_id, agent.name)).collect();
        let mut screen = Screen::plain(names);
        // From the beginning: a repeat under a known id finds its answer, too.
        let mut feed = follow_new(&access, session_id, &tasks).await?;
        let awaited = Awaited { access: &access, session_id, turn_id, limit: self.timeout };
        awaited.until_end(&mut feed, |notice| show(&mut screen, notice, turn_id)).await
    }
}

/// Replies of the turn to stdout; what concerns the connection to stderr.
fn show(screen: &mut Screen, notice: &Notice, turn_id: &str) {
    match notice {
        Notice::Event(event) => {
            let ours = matches!(event.as_ref(), Event::Reply(reply) if reply.turn_id == turn_id);
            let text = if ours { screen.notice(notice) } else { String::new() };
            if !text.is_empty() {
                print(text.trim_end());
            }
        }
        Notice::Lost(_) | Notice::Back | Notice::Failed(_) => eprint!("{}", screen.notice(notice)),
    }
}
