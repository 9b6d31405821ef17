//! `turnwheel chat`: a conversation in the terminal, through a gateway. Input lines become messages; replies and status
//! changes arrive as server-sent events. With piped input, each line waits until the previous turn has ended.

use crate::chat_display::ChatDisplay;
use crate::client::GatewayClient;
use crate::connection;
use crate::failure::{self, Failure, is_unknown};
use crate::feed::{Feed, Notice};
use crate::table::rough;
use crate::wait_turn::TurnWait;
use base::clock;
use base::config::load::LoadedSettings;
use base::tasks::Tasks;
use clap::Args;
use commands::agents::AgentSummary;
use commands::messages::NewMessage;
use commands::sessions::SessionDetails;
use std::io::{IsTerminal, Write};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};
use types::duration;
use uuid::Uuid;

const EXAMPLES: &str = "\
Examples:
  turnwheel chat                                talk to the only agent, or to `sales`
  turnwheel chat --agent sales --session tour   start or resume the session `tour`
  printf '你好\\n查订单 A1001\\n' | turnwheel chat   one message per line
In the chat: /status, /help, /quit";

const HELP: &str = "/status shows the session's status and timers, /quit leaves; anything else is sent as a message";

/// The agent to talk to if there are several and none is named.
const DEFAULT_AGENT: &str = "sales";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Chat {
    /// Id of the agent [default: the only one, or `sales`]
    #[arg(long, value_parser = crate::id)]
    agent: Option<String>,
    /// Hash of the agent's version that answers, such as a draft [default: the applied one]
    #[arg(long, value_name = "HASH", value_parser = crate::id)]
    agent_version: Option<String>,
    /// Session to start or resume [default: a new session]
    #[arg(long, value_parser = crate::id)]
    session: Option<String>,
    /// Address of the gateway [default: the running `dev`, or `gateway.listen`]
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Your user id [default: none]
    #[arg(long, value_parser = crate::dotted_id)]
    user: Option<String>,
    /// How long to wait for each reply with piped input, such as `90s` or `5m`
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration::parse)]
    timeout: Duration,
}

impl Chat {
    pub async fn run(self, loaded: &LoadedSettings, colour: bool) -> anyhow::Result<()> {
        let tasks = Tasks::new();
        let client = connection::to_talk(loaded, self.url.as_deref(), &tasks).await?;
        let agents = client.agents().await?;
        let session_id =
            self.session.clone().unwrap_or_else(|| format!("chat-{}", &Uuid::new_v4().simple().to_string()[..8]));
        let resumed = match &self.session {
            Some(session_id) => client.session(session_id).await?.is_some(),
            None => false,
        };
        // An existing session already has an agent.
        let agent_id = match (&self.agent, resumed) {
            (Some(agent), _) => Some(agent.clone()),
            (None, true) => None,
            (None, false) => Some(choose(&agents)?),
        };
        let speaker = agents.iter().find(|agent| Some(&agent.agent_id) == agent_id.as_ref());
        let offline = speaker.is_some_and(|agent| agent.provider == "offline");
        let by = if offline { " (by its offline rules, without a language model)" } else { "" };
        let with = agent_id.as_deref().map(|agent| format!(" with {agent}{by}")).unwrap_or_default();
        eprintln!("session {session_id}{with}; resume it with: turnwheel chat --session {session_id}");
        let plain = ChatDisplay::plain(agents.into_iter().map(|agent| (agent.agent_id, agent.name)).collect());
        let asks = std::io::stdin().is_terminal();
        let display = match std::io::stdout().is_terminal() {
            true => plain.on_terminal(colour, if asks { "> " } else { "" }),
            false => plain,
        };
        let (user_id, agent_version) = (self.user, self.agent_version);
        let mut talk = ChatSession { client, tasks, display, session_id, agent_id, agent_version, user_id, feed: None };
        talk.open_known().await?;
        if asks { talk.interactive().await } else { talk.piped(self.timeout).await }
    }
}

/// The agent to talk to if none is named.
fn choose(agents: &[AgentSummary]) -> Result<String, Failure> {
    let chats: Vec<&str> = agents
        .iter()
        .filter(|agent| !agent.task && agent.error.is_none())
        .map(|agent| agent.agent_id.as_str())
        .collect();
    match chats.as_slice() {
        [] => Err(Failure::new("there is no agent to talk to", "apply one with `turnwheel agents apply`")),
        [only] => Ok((*only).to_owned()),
        several if several.contains(&DEFAULT_AGENT) => Ok(DEFAULT_AGENT.to_owned()),
        several => {
            let hint = format!("choose one with --agent: {}", several.join(", "));
            Err(Failure::new("there are several agents", hint))
        }
    }
}

/// The meaning of an input line.
#[derive(Debug, PartialEq, Eq)]
enum ChatInput<'a> {
    Blank,
    Quit,
    Status,
    Help,
    Unknown(&'a str),
    Message(&'a str),
}

fn read(line: &str) -> ChatInput<'_> {
    match line.trim() {
        "" => ChatInput::Blank,
        "/quit" | "/exit" => ChatInput::Quit,
        "/status" => ChatInput::Status,
        "/help" | "/?" => ChatInput::Help,
        // A path such as /etc/hosts is a message.
        text if text.starts_with('/') && text[1..].chars().all(|c| c.is_ascii_lowercase()) => ChatInput::Unknown(text),
        text => ChatInput::Message(text),
    }
}

fn input() -> Lines<BufReader<Stdin>> {
    BufReader::new(tokio::io::stdin()).lines()
}

fn write(text: &str) {
    let mut out = std::io::stdout();
    // Closed output is no error: its reader has left.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

struct ChatSession {
    client: GatewayClient,
    tasks: Tasks,
    display: ChatDisplay,
    session_id: String,
    agent_id: Option<String>,
    agent_version: Option<String>,
    user_id: Option<String>,
    feed: Option<Feed>,
}

impl ChatSession {
    /// Follows an existing session, from now on.
    async fn open_known(&mut self) -> anyhow::Result<()> {
        match self.client.follow(&self.session_id, None, &self.tasks).await {
            Ok(feed) => self.feed = Some(feed),
            Err(error) if is_unknown(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn interactive(&mut self) -> anyhow::Result<()> {
        let mut lines = input();
        write(&self.display.line(HELP));
        loop {
            tokio::select! {
                line = lines.next_line() => {
                    let Some(line) = line? else { break };
                    match read(&line) {
                        ChatInput::Quit => break,
                        ChatInput::Message(text) => if let Err(error) = self.send_message(text).await {
                            // The conversation continues: the next message may succeed.
                            failure::lines(&error).iter().for_each(|line| write(&self.display.line(line)));
                        },
                        other => self.command(&other).await,
                    }
                }
                notice = next(&mut self.feed) => match notice {
                    Some(Notice::Failed(error)) => return Err(error),
                    Some(notice) => write(&self.display.notice(&notice)),
                    None => self.feed = None,
                },
            }
        }
        write("\n");
        Ok(())
    }

    async fn piped(&mut self, limit: Duration) -> anyhow::Result<()> {
        let mut lines = input();
        while let Some(line) = lines.next_line().await? {
            match read(&line) {
                ChatInput::Quit => break,
                ChatInput::Message(text) => {
                    let job_id = self.send_message(text).await?;
                    let Some(feed) = &mut self.feed else { continue };
                    let (client, session_id) = (&self.client, self.session_id.as_str());
                    let awaited = TurnWait { client, session_id, job_id: &job_id, reused: false, limit };
                    awaited.until_end(feed, |notice| write(&self.display.notice(notice))).await?;
                }
                other => self.command(&other).await,
            }
        }
        Ok(())
    }

    async fn command(&mut self, line: &ChatInput<'_>) {
        match line {
            ChatInput::Status => match self.standing().await {
                Ok(text) => write(&self.display.line(&text)),
                Err(error) => failure::lines(&error).iter().for_each(|line| write(&self.display.line(line))),
            },
            ChatInput::Help => write(&self.display.line(HELP)),
            ChatInput::Unknown(name) => write(&self.display.line(&format!("there is no command {name}; {HELP}"))),
            ChatInput::Blank => write(&self.display.ask()),
            ChatInput::Quit | ChatInput::Message(_) => {}
        }
    }

    /// Sends a message and returns its id.
    async fn send_message(&mut self, text: &str) -> anyhow::Result<String> {
        let message = NewMessage {
            session_id: self.session_id.clone(),
            agent_id: self.agent_id.clone(),
            agent_version: self.agent_version.clone(),
            text: text.to_owned(),
            user_id: self.user_id.clone(),
            ..NewMessage::default()
        };
        let accepted = self.client.send(&message).await?;
        if self.feed.is_none() {
            // All events of a new session belong to the turn of this message.
            self.feed = Some(follow_new(&self.client, &self.session_id, &self.tasks).await?);
        }
        Ok(accepted.job_id)
    }

    async fn standing(&self) -> anyhow::Result<String> {
        let Some(SessionDetails { session, .. }) = self.client.session(&self.session_id).await? else {
            return Ok(format!("session {} has not started", self.session_id));
        };
        let now = clock::now();
        let timers =
            session.timers.iter().map(|timer| format!(", {} due in {}", timer.name, rough(now.until(timer.due_at))));
        let reason = session.status_reason.as_deref().map(|reason| format!(" ({reason})")).unwrap_or_default();
        let timers: String = timers.collect();
        Ok(format!(
            "session {}, agent {}, {}{reason}{timers}",
            session.session_id, session.agent_id, session.workflow_state.status
        ))
    }
}

/// Receives the next notice; waits forever if no session is followed.
async fn next(feed: &mut Option<Feed>) -> Option<Notice> {
    match feed {
        Some(feed) => feed.recv().await,
        None => std::future::pending().await,
    }
}

/// Follows a session from its first event. Retries while the session is unknown: a worker has to take its lane first.
pub async fn follow_new(client: &GatewayClient, session_id: &str, tasks: &Tasks) -> anyhow::Result<Feed> {
    let mut tries = tokio::time::interval(Duration::from_millis(200));
    let mut left = 50;
    loop {
        tries.tick().await;
        match client.follow(session_id, Some(0), tasks).await {
            Err(error) if is_unknown(&error) && left > 0 => left -= 1,
            followed => return followed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::budget::Limits;
    use types::timestamp::Timestamp;

    #[test]
    fn lines_are_commands_or_messages() {
        assert_eq!(read("  /quit "), ChatInput::Quit);
        assert_eq!(read("/status"), ChatInput::Status);
        assert_eq!(read(" "), ChatInput::Blank);
        assert_eq!(read("/fly"), ChatInput::Unknown("/fly"));
        assert_eq!(read("/etc/hosts 是什么"), ChatInput::Message("/etc/hosts 是什么"));
        assert_eq!(read(" 你好 "), ChatInput::Message("你好"));
    }

    #[test]
    fn the_only_agent_or_sales_is_taken() {
        let agent = |agent_id: &str, task| AgentSummary {
            provider: "offline".into(),
            agent_id: agent_id.into(),
            name: String::new(),
            model: "offline".into(),
            models: vec!["offline".into()],
            budget: Limits::default(),
            day_tokens: None,
            task,
            hash: String::new(),
            updated_at: Timestamp::from_millis(0),
            error: None,
        };
        assert_eq!(choose(&[agent("客服", false), agent("summary", true)]).unwrap(), "客服");
        assert_eq!(choose(&[agent("a", false), agent("sales", false)]).unwrap(), "sales");
        assert!(choose(&[agent("a", false), agent("b", false)]).unwrap_err().hint.contains("a, b"));
        assert!(choose(&[agent("a", true)]).is_err());
    }
}
