//! `turnwheel author`: an authoring dialogue in the terminal, through a gateway. `display` formats its events, `trial`
//! those of a test of the draft.

mod display;
mod trial;

use crate::client::GatewayClient;
use crate::connection;
use crate::failure::{self, Failure};
use crate::table::printable;
use base::config::load::LoadedSettings;
use base::tasks::Tasks;
use clap::Args;
use commands::authoring::artifact::{PublishRequest, PublishedDraft};
use commands::authoring::chat::ChatMessage;
use commands::authoring::create::NewDialogue;
use commands::authoring::trial::TrialRequest;
use commands::authoring::view::DialogueDetails;
use display::AuthorDisplay;
pub use display::short;
use futures::StreamExt;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use trial::Line;
use types::authoring::{Artifact, ConfigRequest, Event};
use uuid::Uuid;

const EXAMPLES: &str = "\
Examples:
  turnwheel author                                       say what you want; answer the questions
  turnwheel author 每天早上把新邮件总结成三点               begin with a first message
  turnwheel author --agent --id opening_hours            make an agent of this id
  turnwheel author --edit opening_hours                  change an existing one; --copy copies it
  turnwheel author --session 1f0c…                       continue a dialogue
  printf 'summarise a text\\nyes\\n' | turnwheel author     one message per line
In the dialogue: /status, /draft, /diff, /test TEXT, /publish, /help, /quit

Without a model, offline rules write simple documents from your own words. They mark each of their texts.";

const HELP: &str = "/status shows the stage of the dialogue, /draft the document, /diff its changes; /test TEXT tries it \
    without calling anything (or /test {\"text\": …, \"answers\": {…}}), /publish puts it into use, /quit leaves; anything \
    else is a message";

/// How often the stream of a turn is opened again after it broke off.
const MAX_RETRIES: u32 = 30;
const RETRY_DELAY: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Author {
    /// The first message
    #[arg(value_name = "WORDS")]
    words: Vec<String>,
    /// Make an agent instead of a workflow
    #[arg(long, conflicts_with_all = ["edit", "copy", "session"])]
    agent: bool,
    /// Change this workflow or agent
    #[arg(long, value_name = "ID", value_parser = crate::id, conflicts_with_all = ["copy", "session"])]
    edit: Option<String>,
    /// Make another workflow or agent like this one
    #[arg(long, value_name = "ID", value_parser = crate::id, conflicts_with = "session")]
    copy: Option<String>,
    /// Id of the new workflow or agent [default: a random one]
    #[arg(long, value_name = "ID", value_parser = crate::id, conflicts_with_all = ["edit", "session"])]
    id: Option<String>,
    /// Continue this dialogue
    #[arg(long, value_parser = crate::id)]
    session: Option<String>,
    /// Language of the engine's own texts, `zh` or `en` [default: that of the first message, else zh]
    #[arg(long, value_parser = ["zh", "en"])]
    language: Option<String>,
    /// Address of the gateway [default: the running `dev`, or `gateway.listen`]
    #[arg(long, value_name = "URL")]
    url: Option<String>,
}

impl Author {
    pub async fn run(self, loaded: &LoadedSettings, colour: bool) -> anyhow::Result<()> {
        let tasks = Tasks::new();
        let client = connection::to_talk(loaded, self.url.as_deref(), &tasks).await?;
        let first = self.words.join(" ");
        let asks = std::io::stdin().is_terminal();
        let (session_id, greeting) = self.begin(&client, &first).await?;
        eprintln!("session {session_id}; resume it with: turnwheel author --session {session_id}");
        let terminal = std::io::stdout().is_terminal();
        let display = AuthorDisplay::new(terminal, terminal && colour);
        let mut dialogue = AuthorSession { client, display, session_id, prompt: if asks { "> " } else { "" } };
        if asks {
            write(&dialogue.display.note(HELP));
        }
        if first.is_empty() {
            write(&display::opening(&greeting));
        } else {
            dialogue.say(&first).await?;
        }
        dialogue.lines(asks).await
    }

    /// Begins a dialogue, or continues one. Returns its session and the first message for the user.
    async fn begin(&self, client: &GatewayClient, first: &str) -> anyhow::Result<(String, String)> {
        if let Some(session_id) = &self.session {
            let history = client.dialogue_history(session_id).await?;
            let last = history.conversations.last().map(|said| said.text.clone());
            return Ok((session_id.clone(), last.unwrap_or_default()));
        }
        let target = self.id.iter().map(|id| ("target_id".to_owned(), id.clone()));
        let preferences: BTreeMap<String, String> = target.collect();
        let spoken = (!first.is_empty()).then(|| if first.is_ascii() { "en" } else { "zh" }.to_owned());
        let config = ConfigRequest {
            language: self.language.clone().or(spoken),
            preferences: (!preferences.is_empty()).then_some(preferences),
            ..ConfigRequest::default()
        };
        let (action, workflow_id) = match (&self.edit, &self.copy) {
            (Some(id), _) => ("edit", Some(id.clone())),
            (None, Some(id)) => ("copy", Some(id.clone())),
            (None, None) => ("create", None),
        };
        let artifact = self.agent.then(|| Artifact::Agent.as_str().to_owned());
        let new = NewDialogue {
            action: action.to_owned(),
            workflow_id,
            artifact,
            config: Some(config),
            ..NewDialogue::default()
        };
        let begun = client.begin_dialogue(&new).await?;
        Ok((begun.session_id, begun.message))
    }
}

fn write(text: &str) {
    let mut out = std::io::stdout();
    // A closed output is not an error: its reader has ended.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

struct AuthorSession {
    client: GatewayClient,
    display: AuthorDisplay,
    session_id: String,
    prompt: &'static str,
}

impl AuthorSession {
    async fn lines(&mut self, asks: bool) -> anyhow::Result<()> {
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        loop {
            write(self.prompt);
            let Some(line) = lines.next_line().await? else { break };
            match line.trim() {
                "" => {}
                "/quit" | "/exit" => return Ok(()),
                "/help" | "/?" => write(&self.display.note(HELP)),
                text => match self.obey(text).await {
                    // At a terminal the dialogue continues, because the next message may succeed.
                    Err(error) if asks => {
                        failure::lines(&error).iter().for_each(|line| write(&self.display.note(line)));
                    }
                    said => said?,
                },
            }
        }
        write(if asks { "\n" } else { "" });
        Ok(())
    }

    /// Carries out a command; anything else is a message.
    async fn obey(&mut self, text: &str) -> anyhow::Result<()> {
        let (command, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        match command {
            "/status" => self.tell_status().await,
            "/draft" => {
                let draft = self.client.draft(&self.session_id).await?;
                write(&printable(&definitions::document::yaml::to_yaml(&draft.document)));
                Ok(())
            }
            "/diff" => {
                let difference = self.client.draft_difference(&self.session_id).await?;
                write(&printable(&difference.to_string()));
                Ok(())
            }
            "/test" => self.test(rest.trim()).await,
            "/publish" => self.publish().await,
            _ => self.say(text).await,
        }
    }

    /// Tests the last draft: with a text, or with a whole request as JSON.
    async fn test(&mut self, said: &str) -> anyhow::Result<()> {
        let request = match said.starts_with('{') {
            true => serde_json::from_str(said).map_err(|problem| {
                let hint = r#"such as /test {"text": "Where is A1?", "answers": {"order": {"state": "sent"}}}"#;
                Failure::new(format!("cannot read the test: {problem}"), hint)
            })?,
            false => TrialRequest { text: (!said.is_empty()).then(|| said.to_owned()), ..TrialRequest::default() },
        };
        let mut events = self.client.test_draft(&self.session_id, &request).await?;
        while let Some(event) = events.next().await {
            let (name, data) = event.map_err(|problem| {
                Failure::new(format!("the connection is lost: {problem}"), "the next /test starts a new test")
            })?;
            for line in trial::lines(&name, &data) {
                match line {
                    Line::Said(text) => write(&format!("{text}\n")),
                    Line::Note(text) => write(&self.display.note(&text)),
                }
            }
        }
        Ok(())
    }

    /// Publishes the last draft.
    async fn publish(&mut self) -> anyhow::Result<()> {
        let hash = self.client.draft(&self.session_id).await?.hash;
        let order = PublishRequest { hash, force: false };
        let PublishedDraft { workflow_id, hash, changed, warnings } =
            self.client.publish_draft(&self.session_id, &order).await?;
        let standing = if changed { "is in use" } else { "was in use already" };
        write(&self.display.note(&format!("`{workflow_id}` {} {standing}", short(&hash))));
        for warning in &warnings {
            let problem = warning["problem"].as_str().map_or_else(|| warning.to_string(), str::to_owned);
            write(&self.display.note(&format!("warning: {problem}")));
        }
        Ok(())
    }

    /// Sends a message, and shows its turn until it ends. A stream that breaks off is opened again.
    async fn say(&mut self, text: &str) -> anyhow::Result<()> {
        let message = ChatMessage {
            session_id: self.session_id.clone(),
            user_message: text.to_owned(),
            message_id: Some(Uuid::new_v4().to_string()),
            config: None,
        };
        let (mut shown, mut tries) = (None, 0);
        loop {
            let problem = match self.follow(&message, &mut shown).await {
                Ok(None) => return Ok(()),
                Ok(Some(problem)) => problem,
                // A refusal of the first request is final.
                Err(error) if tries == 0 => return Err(error),
                Err(error) => error.to_string(),
            };
            tries += 1;
            if tries > MAX_RETRIES {
                let hint = format!("the turn continues; turnwheel author --session {} shows it later", self.session_id);
                return Err(Failure::new(format!("the connection is lost: {problem}"), hint).into());
            }
            write(&self.display.note(&format!("connection lost ({problem}); reconnecting …")));
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }

    /// Shows the events of a turn after the last `shown` one. Returns the problem if they break off.
    async fn follow(&mut self, message: &ChatMessage, shown: &mut Option<u64>) -> anyhow::Result<Option<String>> {
        let mut events = self.client.say(message).await?;
        while let Some(event) = events.next().await {
            let event: Event = match event {
                Ok(event) => event,
                Err(problem) => return Ok(Some(problem)),
            };
            if shown.is_some_and(|seq| event.seq <= seq) {
                continue;
            }
            *shown = Some(event.seq);
            write(&self.display.event(&event));
            if event.is_final {
                return Ok(None);
            }
        }
        Ok(Some("the stream ended".to_owned()))
    }

    async fn tell_status(&mut self) -> anyhow::Result<()> {
        let DialogueDetails { summary, workflow_id, pending_actions, draft, published, .. } =
            self.client.dialogue(&self.session_id).await?;
        let mut parts = vec![format!("{}, stage {}", summary.artifact, summary.stage)];
        parts.extend(workflow_id.map(|id| format!("id {id}")));
        parts.extend(draft.map(|draft| format!("draft {}", short(&draft.hash))));
        parts.extend(published.map(|published| format!("published {}", short(&published.hash))));
        parts.extend((!pending_actions.is_empty()).then(|| format!("waits for {}", pending_actions.join(", "))));
        write(&self.display.note(&parts.join(", ")));
        Ok(())
    }
}
